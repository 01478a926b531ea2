"""From facts about a source to its parts: pure, so that the same facts give the same plan anywhere.

Every row lands in exactly one part by construction: page ranges and key ranges are half-open and share their bounds,
the first and the last are open, and rows with a NULL key have one part that takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Partition, PartitionPlan, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.base import CutWish, Facts, KeyFacts, LeafFacts
    from etl.core.partition import Slice

SMALL = 32 << 20
"""Bytes below which a source is read as one part: starting more readers would cost more than they bring."""
WORTH = 16 << 20
"""Bytes that a part must still hold when more parts are made only to shorten the tail."""
PARTS_PER_READER = 4
"""With several parts per reader the last ones to finish are short."""
SKEW = 1.5
"""The largest part over the mean part that a plan may have before it says why."""


@dataclass(frozen=True, slots=True)
class _Piece:
    slice: Slice
    rows: float


def cut(facts: Facts, wish: CutWish, /) -> PartitionPlan:
    """The parts of a source, in the source's own order.

    The number of parts is an upper bound: bounds that coincide are merged. Fewer parts than wished, and a part that
    is larger than 1.5 means because one value cannot be cut, carry a reason code.
    """
    if wish.partitions == 1:
        return _one(facts, "asked", "one part was asked for")
    cuttable = facts.leaves or facts.key or facts.pages or facts.hash_column
    if not cuttable:
        if facts.obstacle:
            return _one(facts, facts.obstacle.reason, facts.obstacle.why, facts.obstacle.remedy)
        return _one(facts, "small", "there is nothing to cut")
    if wish.partitions is None and facts.bytes < SMALL:
        return _one(facts, "small", f"about {_size(facts.bytes)}, under {_size(SMALL)}")
    wanted = wish.partitions or _by_size(facts.bytes, wish)
    if facts.leaves:
        pieces, why = _leaves(facts.leaves, wanted)
    elif facts.key:
        return _by_key(facts, facts.key, wanted)
    elif facts.pages:
        pieces = [_Piece(p, facts.rows * _share(p, facts.pages)) for p in _pages(facts.pages, wanted)]
        why = f"{facts.pages} pages in ranges of equal size"
    else:
        column = facts.hash_column or ""
        pieces = [_Piece(Hash(column, i, wanted), facts.rows / wanted) for i in range(wanted)]
        why = f"{column} has no order: parts by a hash of its text, each part scans everything"
    return _plan(facts, pieces, why)


def _by_size(total: int, wish: CutWish) -> int:
    by_bytes = -(-total // wish.partition_bytes)
    for_the_tail = min(PARTS_PER_READER * wish.readers, total // WORTH)
    return max(1, by_bytes, for_the_tail)


def _one(facts: Facts, reason: str, why: str, remedy: str = "") -> PartitionPlan:
    part = Partition(0, Whole(), rows=round(facts.rows), bytes=facts.bytes)
    return PartitionPlan((part,), why, reason=reason, remedy=remedy)


def _plan(facts: Facts, pieces: Sequence[_Piece], why: str, reason: str = "", remedy: str = "") -> PartitionPlan:
    total = sum(p.rows for p in pieces) or 1.0
    parts = tuple(
        Partition(i, p.slice, rows=round(p.rows), bytes=round(facts.bytes * p.rows / total))
        for i, p in enumerate(pieces)
    )
    if facts.obstacle and not reason:
        reason, remedy = facts.obstacle.reason, facts.obstacle.remedy
        why = f"{why}; {facts.obstacle.why}"
    return PartitionPlan(parts, why, reason=reason, remedy=remedy)


def _pages(pages: int, wanted: int) -> list[Pages]:
    count = max(1, min(wanted, pages))
    bounds = [pages * i // count for i in range(count)]
    return [Pages(low, high) for low, high in pairwise([*bounds, None]) if low is not None]


def _share(part: Pages, pages: int) -> float:
    return ((pages if part.high is None else part.high) - part.low) / pages


def _leaves(leaves: Sequence[LeafFacts], wanted: int) -> tuple[list[_Piece], str]:
    total = sum(leaf.bytes for leaf in leaves) or 1
    pieces: list[_Piece] = []
    for leaf in leaves:
        count = max(1, round(wanted * leaf.bytes / total))
        if leaf.pages and count > 1:
            pieces += [
                _Piece(Child(leaf.name, p), leaf.rows * _share(p, leaf.pages)) for p in _pages(leaf.pages, count)
            ]
        else:
            pieces.append(_Piece(Child(leaf.name, Whole()), leaf.rows))
    return pieces, f"{len(leaves)} leaves, parts in proportion to their bytes"


def _by_key(facts: Facts, key: KeyFacts, wanted: int) -> PartitionPlan:
    column = key.columns[0]
    name = ", ".join(key.columns)
    if key.deferred:
        slices = [KeyRange(key.columns, None, None) for _ in range(wanted)]
        return _plan(facts, [_Piece(s, facts.rows / wanted) for s in slices], f"{name}: bounds are sampled at run")
    if not key.steps:
        return _one(facts, "one-value", f"every value of {name} is NULL", "Name another column to cut by.")
    valued = key.below + sum(s.rows for s in key.steps)
    mean = (valued + key.null_rows) / wanted
    apart = key.nullable and key.null_rows > mean and wanted > 1
    bounds = _bounds(key, wanted - 1 if apart else wanted)
    pieces = _ranges(key, bounds, nulls=key.nullable and not apart)
    if apart:
        pieces.insert(0, _Piece(NullKeys(column), key.null_rows))
    elif key.nullable:
        pieces[0] = _Piece(pieces[0].slice, pieces[0].rows + key.null_rows)
    why = f"{name} by {key.origin}" if key.origin else f"ranges of {name}"
    heavy = max(key.steps, key=lambda s: s.rows)
    everything = valued + key.null_rows
    if heavy.single and wanted > 1 and heavy.rows > SKEW * everything / max(len(pieces), 2):
        share = round(100 * heavy.rows / everything)
        sentence = f"{column} = {heavy.bound[0]} holds about {share} % of the rows and cannot be cut"
        return _plan(facts, pieces, f"{why}; {sentence}", "one-value", "Cut by a column whose values differ more.")
    if len(pieces) < min(wanted, round(everything)) and len(key.steps) < wanted:
        sentence = f"{name} has {len(key.steps)} distinct bounds, so {len(pieces)} parts instead of {wanted}"
        return _plan(facts, pieces, f"{why}; {sentence}", "one-value", "Cut by a column with more distinct values.")
    return _plan(facts, pieces, why)


def _bounds(key: KeyFacts, wanted: int) -> list[int]:
    """Indices of the steps at which a new part begins, chosen so that parts are even.

    The target is taken anew from what is left after each part, so that one heavy value does not starve the rest.
    """
    segments = [key.below, *(s.rows for s in key.steps)]
    left, parts_left = sum(segments), wanted
    chosen: list[int] = []
    filled = segments[0]
    for index, rows in enumerate(segments[1:]):
        target = left / max(parts_left, 1)
        begins = parts_left > 1 and filled > 0 and filled + rows / 2 >= target
        if begins:
            chosen.append(index)
            left -= filled
            parts_left -= 1
            filled = 0.0
        filled += rows
    return chosen


def _ranges(key: KeyFacts, bounds: Sequence[int], *, nulls: bool) -> list[_Piece]:
    edges: list[int | None] = [None, *bounds, None]
    pieces: list[_Piece] = []
    for low, high in pairwise(edges):
        inside = key.steps[low or 0 : high]
        rows = sum(s.rows for s in inside) + (key.below if low is None else 0.0)
        pieces.append(
            _Piece(
                KeyRange(
                    key.columns,
                    None if low is None else key.steps[low].bound,
                    None if high is None else key.steps[high].bound,
                    nulls=nulls and low is None,
                ),
                rows,
            )
        )
    return pieces


def _size(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB" if count >= 1 << 20 else f"{count / 1024:.0f} KiB"
