"""What a model asks of a dataset: the features in the order that it was trained on, and the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl.core.errors import EtlError, SchemaError
from etl.tensors.manifest import Manifest, names_sha256, sequence
from etl.tensors.versions import current, history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.tensors.places import Target


def require(
    path: Target, manifest: Manifest, /, *, feature_order_sha256: str | None = None, fit_id: str | None = None
) -> None:
    """Hold that a version has the feature order and the fit that a model was made with; None: not asked.

    Raises:
        SchemaError: It has others. Missing, extra and moved features are named where a version of the dataset has the
            order asked for; else the dataset's own are.
    """
    have = manifest.document.get("feature_order_sha256")
    if feature_order_sha256 is not None and have != feature_order_sha256:
        own = _features(manifest)
        raise SchemaError(
            f"the feature order of {path}, version {manifest.version}, is not {feature_order_sha256[:16]}…: "
            f"{_difference(_wanted(path, feature_order_sha256), own)}",
            hint="Export the features in the order that the model was trained on, or train on this version.",
        )
    if fit_id is not None:
        found = manifest.fit_id
        if found != fit_id:
            raise SchemaError(
                f"{path}, version {manifest.version}, was prepared with {f'the fit {found}' if found else 'no fit'}, "
                f"not with the fit {fit_id}",
                hint="Open a version that was prepared with it, or make one with fit=.",
            )


def _features(manifest: Manifest) -> list[str]:
    return [str(name) for name in sequence(manifest.document.get("feature_order") or [])]


def _wanted(path: Target, digest: str) -> list[str] | None:
    """The features whose order has this hash, if a version of the dataset has them."""
    newest = current(path)
    if newest is None:
        return None
    try:
        versions = history(path, newest)
    except EtlError:
        return None  # the names are a help, and what is wrong has been found already
    return next((f for f in map(_features, versions) if names_sha256(f) == digest), None)


def _difference(wanted: Sequence[str] | None, own: Sequence[str]) -> str:
    if wanted is None:
        return f"it has {', '.join(own) or 'no features'}"
    missing = [n for n in wanted if n not in own]
    extra = [n for n in own if n not in wanted]
    common = [n for n in wanted if n in own]
    moved = [n for n, other in zip(common, (n for n in own if n in wanted), strict=True) if n != other]
    words = {"missing": missing, "extra": extra, "moved": moved}
    return "; ".join(f"{word} {', '.join(names)}" for word, names in words.items() if names)
