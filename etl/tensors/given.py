"""Values as they went into the first step of `prepare`: their statistics, beside those of what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.tensors.pack import kind_of
from etl.tensors.stats import Stats, merged
from etl.tensors.summary import combined, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Field

ALL = "all"
"""Statistics are of all rows: those that steps leave out are in no split."""


def given_json(
    found: Sequence[tuple[Field, Sequence[object]]], columns: Sequence[Mapping[str, object]], /
) -> list[dict[str, object]]:
    """`given[]` of a manifest: name, type, kind and statistics of every column that steps read.

    Args:
        found: Columns, and what the parts found in them.
        columns: `columns[]`. Texts that the dataset does not hold, as texts or in a vocabulary, are counted only: a
            step may be there so that they are not kept.
    """
    held = {str(one["name"]) for one in columns if one.get("kind") == "text" or one.get("category")}
    made = []
    for field, parts in found:
        kind, types = field.type, pa.types
        stats = summary(kind, [one for one in parts if isinstance(one, Stats)])
        if kind_of(kind) == "text" and field.name not in held:
            stats |= {"min": None, "max": None, "top": []}
        unit = {"unit": "d" if types.is_date(kind) else "us", "zone": kind.tz if types.is_timestamp(kind) else None}
        made.append(
            {
                "name": field.name,
                "arrow_type": str(kind),
                "nullable": field.nullable,
                "kind": kind_of(kind),
                "time": unit if types.is_temporal(kind) else None,
                "stats": {ALL: stats},
            }
        )
    return made


def met_in(reserved: Mapping[str, Any], parts: Sequence[Stats], /) -> dict[str, int] | None:
    """How often the ids that a vocabulary reserves are in the rows of a split.

    Args:
        reserved: {"null": id, "oov": ids, "rare": id or None, …}.
        parts: What the parts found in the column of ids, in their order.

    Returns:
        "null", "unseen" and "rare" → rows; None where the ids were not counted one by one.
    """
    table = merged(parts).table
    if table is None:
        return None
    found = {"null": table.get(reserved["null"], 0), "unseen": sum(table.get(one, 0) for one in reserved["oov"])}
    return found if reserved.get("rare") is None else {**found, "rare": table.get(reserved["rare"], 0)}


def joined_given(old: Sequence[Any], new: Sequence[Mapping[str, Any]], /) -> list[dict[str, object]]:
    """`given[]` of old and new rows together; of a column that the old version says nothing of, nothing is said."""
    before = {(one["name"], one["arrow_type"]): one for one in old}
    made = []
    for column in new:
        was = before.get((column["name"], column["arrow_type"]))
        if was is not None:
            stats = combined(str(column["kind"]), was["stats"][ALL], column["stats"][ALL])
            made.append({**column, "stats": {ALL: stats}})
    return made
