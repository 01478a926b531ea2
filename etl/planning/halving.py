"""A part in two, for one that memory could not hold; pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Partition, Whole

if TYPE_CHECKING:
    from connectors.base import Facts
    from etl.core.partition import Slice
    from etl.core.schema import Schema


def halves(part: Partition, facts: Facts, schema: Schema, /) -> tuple[Partition, Partition] | None:
    """Two parts that have each row of this one exactly once, in the same order; None where nothing lies between.

    Ranges are cut at a bound that the source has named, or at a whole number: keys are compared by the store alone, so
    no other arithmetic is done on them.

    Args:
        part: As planned, or a half already. Both halves bear its index; the caller numbers them.
        facts: Of its source.
        schema: Of its source.
    """
    cut = _cut(part.slice, facts, schema)
    if cut is None:
        return None
    rows = None if part.rows is None else part.rows // 2
    size = None if part.bytes is None else part.bytes // 2
    first, second = (replace(part, slice=one, rows=rows, bytes=size) for one in cut)
    return first, second


def _cut(slice_: Slice, facts: Facts, schema: Schema) -> tuple[Slice, Slice] | None:
    match slice_:
        case Pages(low, high):
            end = facts.pages if high is None else high
            if end is None or end - low < 2:
                return None
            middle = low + (end - low) // 2
            return Pages(low, middle), Pages(middle, high)
        case Hash(column, index, of):
            return Hash(column, index, 2 * of), Hash(column, index + of, 2 * of)
        case KeyRange():
            bound = _between(slice_, facts, schema)
            if bound is None:
                return None
            return replace(slice_, high=bound), replace(slice_, low=bound, nulls=False)
        case Child(leaf, inner):
            pages = next((one.pages for one in facts.leaves if one.name == leaf), None)
            cut = _cut(inner, replace(facts, pages=pages), schema)
            if cut is None or not all(isinstance(one, Whole | Pages | KeyRange | NullKeys) for one in cut):
                return None
            first, second = (Child(leaf, one) for one in cut if isinstance(one, Whole | Pages | KeyRange | NullKeys))
            return first, second
        case _:
            return None


def _between(slice_: KeyRange, facts: Facts, schema: Schema) -> tuple[str, ...] | None:
    """A bound above the lower end and below the upper one, near the middle of the rows between."""
    key = facts.key
    if key is not None and key.columns == slice_.columns:
        bounds = [step.bound for step in key.steps]
        first = bounds.index(slice_.low) + 1 if slice_.low in bounds else 0
        last = bounds.index(slice_.high) if slice_.high in bounds else len(bounds)
        known = (slice_.low is None or slice_.low in bounds) and (slice_.high is None or slice_.high in bounds)
        # The first bound is the least value there is: nothing lies below it, unless the source says so.
        first += slice_.low is None and key.below == 0
        if known and first < last:
            rows = [0.0]
            for step in key.steps[first:last]:
                rows.append(rows[-1] + step.rows)
            return bounds[min(last - 1, first + bisect_left(rows, rows[-1] / 2))]
        if known and slice_.low is not None and key.steps[bounds.index(slice_.low)].single:
            return None  # all its rows have one key, however far the next one is
    return _whole_number(slice_, schema)


def _whole_number(slice_: KeyRange, schema: Schema) -> tuple[str, ...] | None:
    """The whole number in the middle, where the key is one column of them and both ends are known."""
    if len(slice_.columns) != 1 or slice_.low is None or slice_.high is None:
        return None
    kind = next((one.type for one in schema if one.name == slice_.columns[0]), None)
    if kind is None or not pa.types.is_integer(kind):
        return None
    low, high = int(slice_.low[0]), int(slice_.high[0])
    middle = low + (high - low) // 2
    return (str(middle),) if low < middle < high else None
