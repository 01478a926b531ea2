"""The saved state of a fit: plain data under `_state/<fit id>/`, from which serving and later appends work.

`plan.json` is canonical JSON: the steps with their arguments and figures, the columns before and after, and the order
of the features. Floats stand twice, as decimal text for people and as hex, which is what is read. Loading runs nothing.
Its bytes follow from the fit id, so that versions with equal fits can share it; what differs between them (rows that
were fitted on, versions of libraries) is in their manifests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError, Damaged, DatasetError
from etl.tensors.manifest import names_sha256
from etl.transforms.base import needs_fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etl.core.schema import Schema
    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned

STATE_VERSION = 1
PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit as it is saved.

    Attributes:
        document: `plan.json`.
        made: What was fitted on, and which versions of libraries did it.
    """

    document: Mapping[str, Any]
    made: Mapping[str, object]

    @property
    def fit_id(self) -> str:
        """The first 16 hex digits of the SHA-256 of `plan.json`."""
        return hashlib.sha256(canonical_json(self.document)).hexdigest()[:16]

    @property
    def files(self) -> dict[str, bytes]:
        """Path below the dataset's folder → content."""
        return {f"_state/{self.fit_id}/{PLAN}": canonical_json(self.document)}

    def entry(self) -> dict[str, object]:
        """The `fit` field of a manifest."""
        plan = canonical_json(self.document)
        return {
            "fit_id": self.fit_id,
            "plan_sha256": hashlib.sha256(plan).hexdigest(),
            **self.made,
            "files": {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()},
        }


def saved(
    plan: Planned,
    states: Mapping[int, State],
    /,
    *,
    features: Sequence[str],
    split: str,
    rows: int,
    versions: Mapping[str, str],
) -> Fit:
    """The fit of a plan.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        features: Columns of `x` in order; none where every column is a tensor of its own.
        split: Whose rows it was fitted on; "all" without a split.
        rows: How many.
        versions: Package → version, of those that computed it.
    """
    steps = [
        {"kind": step.kind, "arguments": _plain(arguments(step)), "figures": _plain(states.get(place, {}))}
        for place, step in enumerate(plan.steps)
    ]
    document: dict[str, Any] = {
        "state_version": STATE_VERSION,
        "steps": steps,
        "input": _columns(plan.given),
        "output": _columns(plan.returns),
        "feature_order": list(features),
        "feature_order_sha256": names_sha256(features),
    }
    return Fit(document, {"fitted_on": {"split": split, "rows": rows}, "versions": dict(versions)})


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A step as it is saved.

    Attributes:
        kind: Of the step.
        arguments: By name, as JSON holds them.
        figures: What was fitted; empty for a step that is not.
    """

    kind: str
    arguments: Mapping[str, Any]
    figures: State

    def __str__(self) -> str:
        return _words(self.kind, _back(self.arguments))


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What a `plan.json` says.

    Attributes:
        steps: In the order in which they act.
        given: Column → type of the rows before the first step.
    """

    steps: tuple[SavedStep, ...]
    given: Mapping[str, str]


def loaded(content: bytes, path: str, /) -> SavedPlan:
    """A saved fit of any version that there was.

    Args:
        content: `plan.json`.
        path: Of the file, for messages.

    Raises:
        DatasetError: It is of a later version.
        Damaged: It is no saved fit.
    """
    try:
        document = json.loads(content)
        version = document["state_version"]
        if type(version) is not int:
            raise TypeError(f"its version is {version!r}")
        if version > STATE_VERSION:
            raise DatasetError(
                f"{path} has the state version {version}; this cuETL reads {STATE_VERSION} and older ones",
                hint="Install a newer cuETL.",
            )
        return _READERS[version](document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(
            f"{path} is no saved fit: {type(error).__name__}: {error}", hint="Restore it from a copy.", path=path
        ) from error


def _version_1(document: Mapping[str, Any]) -> SavedPlan:
    steps = tuple(
        SavedStep(str(one["kind"]), dict(one["arguments"]), _back(dict(one["figures"]))) for one in document["steps"]
    )
    return SavedPlan(steps, {str(one["name"]): str(one["type"]) for one in document["input"]})


_READERS = {1: _version_1}
"""By state version; one that was released stays."""


def figures_of(content: bytes, steps: Sequence[Transform], /, *, path: str = PLAN) -> dict[int, State]:
    """The figures of a saved fit, for steps that are the same.

    Args:
        content: `plan.json`.
        steps: What the rows are to be prepared with.
        path: Of the file, for messages.

    Raises:
        DatasetError: It is of a later version.
        Damaged: It is no saved fit, or lacks figures.
        ConfigError: The steps are others than those that were fitted; the first that differs is named.
    """
    known = loaded(content, path).steps
    for number, (was, step) in enumerate(zip_longest(known, steps), 1):
        now = None if step is None else (step.kind, _plain(arguments(step)))
        if was is None or now is None or now != (was.kind, was.arguments):
            before = "nothing" if was is None else str(was)
            after = "nothing" if now is None else _words(now[0], _back(now[1]))
            raise ConfigError(
                f"step {number} of prepare is {after}, and the dataset's fit has {before}",
                hint='An append is prepared as the version before it. Make a new fit with mode="replace".',
            )
        if step is not None and needs_fit(step) and set(was.figures) != set(step.reads):
            raise Damaged(f"{path}: step {number} has the figures of other columns", path=path)
    return {place: one.figures for place, one in enumerate(known) if one.figures}


def lines(plan: SavedPlan, /) -> list[str]:
    """Each step in one line, with what was fitted."""
    return [", ".join([str(one), *_figures(one.figures)]) for one in plan.steps]


def _figures(figures: State) -> Iterable[str]:
    for name, found in figures.items():
        shown = found.items() if isinstance(found, dict) else [("", found)]
        words = [f"{what} {_number(value)}".strip() for what, value in shown if what in ("", "mean", "std")]
        yield f"{name}: {', '.join(words)}"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _words(kind: str, given: Mapping[str, Any]) -> str:
    """A step as it is written in a pipeline."""
    told = {name: _told(value) for name, value in given.items() if value is not None}
    first = [told.pop("columns")] if "columns" in told else []
    first += [f"value={told.pop('value')}"] if "value" in told else []
    return f"{kind.title().replace('_', '')}({', '.join([*first, *(f'{n}={one}' for n, one in told.items())])})"


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return repr(value[0] if len(value) == 1 else list(value))
    if isinstance(value, dict) and len(value) == 1:
        return "".join(f"{name}({text!r})" for name, text in value.items())
    return repr(value)


def arguments(step: Transform, /) -> dict[str, Any]:
    """A step's arguments by name: its fields."""
    return {one.name: getattr(step, one.name) for one in fields(step)}  # type: ignore[arg-type]  # steps are dataclasses


def _columns(schema: Schema) -> list[dict[str, object]]:
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def _plain(value: Any) -> Any:
    """A value as JSON holds it without loss."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex(), "text": repr(value)}
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {type(value).__name__: str(value)}


def _back(value: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(value, list):
        return [_back(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float", "text"}:
        return float.fromhex(value["float"])
    if set(value) == {"int"} and isinstance(value["int"], str):
        return int(value["int"])
    return {name: _back(one) for name, one in value.items()}
