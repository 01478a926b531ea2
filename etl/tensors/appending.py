"""Whether rows can be added to a dataset: the same format, layout, split, order and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl.core.errors import ConfigError, SchemaError
from etl.tensors import manifest as documents
from etl.tensors.document import column_json, layout_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.tensors.fits import SavedFit
    from etl.tensors.manifest import Manifest
    from etl.tensors.options import Format, WriteOptions
    from etl.tensors.ordering import Ordering
    from etl.tensors.pack import PackPlan
    from etl.tensors.places import Target
    from etl.tensors.split import Splitting


def check_append(
    live: Manifest, format_: Format, plan: PackPlan, split: Splitting | None, options: WriteOptions, target: Target, /
) -> None:
    """Hold that new rows fit the dataset: same format, columns, split and layout.

    Raises:
        ConfigError: Format, split or layout differ.
        SchemaError: Columns differ; each is named with both sides.
    """
    if live.format != format_:
        raise ConfigError(
            f"{target} holds {live.format} files and cannot take {format_} ones", hint=f"Use --format {live.format}."
        )
    have = live.document.get("layout")
    layout = layout_json(plan, options, format_)
    if not isinstance(have, dict) or have.get("kind") != layout["kind"]:
        raise ConfigError(
            f"{target} has the layout {have.get('kind') if isinstance(have, dict) else have}, not {layout['kind']}",
            hint="Append with the options that made it, or use --mode replace.",
        )
    recipe_json = split.as_json() if split else None
    if live.document.get("split") != recipe_json:
        raise ConfigError(
            f"{target} has the split {_split_words(live.document.get('split'))}, not {_split_words(recipe_json)}",
            hint="Append with the same --split, --split-key and --split-salt, or use --mode replace.",
        )
    new = [column_json(c) for c in plan.columns]
    if documents.schema_sha256(new) == live.document["schema_sha256"]:
        return
    differences = _differences(live.columns, new)
    raise SchemaError(
        f"the columns differ from those of {target}: {'; '.join(differences)}",
        hint="Select the same columns and types, or use --mode replace.",
    )


def _split_words(recipe: object) -> str:
    """A recipe in words: all that tells it from another one; as it stands where it is none of ours."""
    if not isinstance(recipe, dict):
        return "none"
    ranges, key = recipe.get("ranges") or {}, recipe.get("key") or []
    try:
        if recipe.get("method") == "hash":
            # Bounds of 64 bits say little: their shares of the whole are what was typed.
            ranges = {n: f"{(int(high) - int(low)) / 2**64:.4g}" for n, (low, high) in ranges.items()}
        told = {k: recipe[k] for k in ("salt", "null_key", "time_cut") if recipe.get(k) not in (None, "", "error")}
        by = f" of {', '.join(map(str, key))}" if key else ""
        return ", ".join([f"{recipe.get('method')}{by}", *(f"{n} {one}" for n, one in (dict(ranges) | told).items())])
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        return str(recipe)


def check_fit(live: Manifest, fit: SavedFit | None, target: Target, /) -> None:
    """Hold that new rows are prepared with the figures of the rows that are there.

    Raises:
        ConfigError: They are not.
    """
    had, has = live.fit_id, None if fit is None else fit.entry["fit_id"]
    if had != has:
        raise ConfigError(
            f"version {live.version} of {target} was prepared with {f'the fit {had}' if had else 'no fit'}, and these "
            f"rows with {f'the fit {has}' if has else 'none'}",
            hint="Append with the pipeline that made it, or use --mode replace.",
        )


def check_order(live: Manifest, how: Ordering | None, target: Target, /) -> None:
    """Hold that new rows come in the order of the dataset: each append in itself, behind what is there.

    Raises:
        ConfigError: The dataset has another order.
    """
    was = live.document.get("order")
    before = {k: v for k, v in was.items() if k in {"kind", "keys", "seed"}} if isinstance(was, dict) else {}
    before = before or {"kind": "source"}
    after = how.as_json() if how else {"kind": "source"}
    if before != after:
        raise ConfigError(
            f"{target} has the order {_order_words(before)}, not {_order_words(after)}",
            hint="Append with the same --order, --key and --shuffle, or use --mode replace.",
        )


def _order_words(order: Mapping[str, object]) -> str:
    keys = order.get("keys")
    by = f" by {', '.join(map(str, keys))}" if isinstance(keys, list) and keys else ""
    seed = f" with seed {order['seed']}" if "seed" in order else ""
    return f"{order.get('kind')}{by}{seed}"


def _differences(old: Sequence[Mapping[str, object]], new: Sequence[Mapping[str, object]]) -> list[str]:
    was = {str(c["name"]): c for c in old}
    now = {str(c["name"]): c for c in new}
    found = [f"{n} is missing" for n in was if n not in now]
    found += [f"{n} is new" for n in now if n not in was]
    for name, before in was.items():
        after = now.get(name, before)
        found += [
            f"{name} has {key} {after.get(key)}, the dataset {before.get(key)}"
            for key in ("dtype", "nullable", "role", "tensor", "index")
            if before.get(key) != after.get(key)
        ]
    return found or [f"their order is {', '.join(now)}, in the dataset {', '.join(was)}"]
