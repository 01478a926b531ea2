"""The planner as a pure function: every row in exactly one part, even parts, and a reason where that cannot be."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import CutWish, Facts, KeyFacts, KeyStep, LeafFacts, Obstacle
from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Partition, PartitionPlan, Whole
from etl.planning.cut import cut

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def facts_of(keys: list[int | None], *, every: int = 1) -> Facts:
    """Facts as a source would give them: each `every`-th distinct value is a bound, with the rows up to the next."""
    values = Counter(k for k in keys if k is not None)
    ordered = sorted(values)
    steps = []
    for i in range(0, len(ordered), every):
        inside = ordered[i : i + every]
        steps.append(KeyStep((str(inside[0]),), sum(values[v] for v in inside), single=len(inside) == 1))
    nulls = sum(k is None for k in keys)
    key = KeyFacts(("k",), tuple(steps), null_rows=nulls, nullable=True, origin="all values")
    return Facts(rows=len(keys), bytes=len(keys) * 100, key=key)


def rule(part: Partition) -> Callable[[int | None], bool]:
    """What the SQL of a slice means: whether it holds a key."""
    match part.slice:
        case Whole():
            return lambda key: True  # noqa: ARG005 - every key
        case NullKeys():
            return lambda key: key is None
        case KeyRange(_, low, high, nulls):
            first = int(low[0]) if low else -(2**63)
            end = int(high[0]) if high else 2**63
            return lambda key: nulls if key is None else first <= key < end
    raise AssertionError(part)


@given(
    keys=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 6)), max_size=200),
    wanted=st.integers(2, 40),
    every=st.integers(1, 5),
)
def test_every_key_and_every_null_lands_in_exactly_one_part(keys: list[int | None], wanted: int, every: int) -> None:
    plan = cut(facts_of(keys, every=every), CutWish(column="k", partitions=wanted))
    assert 1 <= len(plan.parts) <= wanted
    rules = [rule(p) for p in plan.parts]
    for key in set(keys):
        assert sum(holds(key) for holds in rules) == 1
    if any(k is not None for k in keys):
        for holds in rules:
            assert any(map(holds, keys)), "a part is empty by construction"


@given(gaps=st.binary(min_size=400, max_size=2000), first=st.integers(-(10**6), 10**6), wanted=st.integers(2, 16))
def test_distinct_keys_are_cut_evenly(gaps: bytes, first: int, wanted: int) -> None:
    keys = list(accumulate((gap + 1 for gap in gaps), initial=first))
    plan = cut(facts_of([*keys]), CutWish(column="k", partitions=wanted))
    sizes = [sum(map(rule(p), keys)) for p in plan.parts]
    assert len(sizes) == wanted
    assert max(sizes) <= 1.5 * len(keys) / wanted
    assert plan.reason == ""


@given(pages=st.integers(1, 10**7), wanted=st.integers(1, 500))
def test_page_ranges_share_their_bounds_and_the_last_is_open(pages: int, wanted: int) -> None:
    plan = cut(Facts(rows=1e6, bytes=pages * 8192, pages=pages), CutWish(partitions=wanted))
    slices = [p.slice for p in plan.parts]
    if slices == [Whole()]:
        assert wanted == 1
        return
    edges: list[int | None] = []
    for one in slices:
        assert isinstance(one, Pages)
        edges += [one.low, one.high]
    assert edges[0] == 0
    assert edges[-1] is None
    assert edges[1:-1:2] == edges[2::2]
    assert len(slices) == min(wanted, pages)


@given(keys=st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=1, max_size=100), wanted=st.integers(1, 9))
def test_the_same_facts_give_the_same_keys(keys: list[int | None], wanted: int) -> None:
    def names(plan: PartitionPlan) -> list[str]:
        return [p.key() for p in plan.parts]

    wish = CutWish(column="k", partitions=wanted)
    first = names(cut(facts_of(keys), wish))
    assert first == names(cut(facts_of(keys), wish))
    assert len(set(first)) == len(first)


def test_many_nulls_are_a_part_of_their_own() -> None:
    keys: list[int | None] = [None] * 600 + list(range(400))
    plan = cut(facts_of(keys), CutWish(column="k", partitions=4))
    assert isinstance(plan.parts[0].slice, NullKeys)
    assert all(not p.slice.nulls for p in plan.parts[1:] if isinstance(p.slice, KeyRange))
    assert plan.parts[0].rows == 600


def test_few_nulls_go_with_the_first_range() -> None:
    plan = cut(facts_of([None, 1, 2, 10, 11]), CutWish(column="k", partitions=3))
    assert [p.slice.nulls for p in plan.parts if isinstance(p.slice, KeyRange)] == [True, False, False]


def test_all_nulls_are_one_part_and_said() -> None:
    plan = cut(facts_of([None, None]), CutWish(column="k", partitions=4))
    assert [p.slice for p in plan.parts] == [Whole()]
    assert plan.reason == "one-value"
    assert "NULL" in plan.why


def test_one_heavy_value_is_named_with_its_share() -> None:
    keys: list[int | None] = [42] * 8000
    keys += [k for k in range(20000) if k % 10 >= 4]
    plan = cut(facts_of(keys), CutWish(column="k", partitions=4))
    assert plan.reason == "one-value"
    assert "k = 42" in plan.why
    assert "40 %" in plan.why
    assert len(plan.parts) >= 3


def test_a_column_that_is_never_null_needs_no_part_for_nulls() -> None:
    key = KeyFacts(("k",), tuple(KeyStep((str(i),), 1) for i in range(10)), nullable=False)
    plan = cut(Facts(rows=10, bytes=1000, key=key), CutWish(column="k", partitions=3))
    assert all(isinstance(p.slice, KeyRange) and not p.slice.nulls for p in plan.parts)


def test_rows_below_the_first_bound_are_in_the_first_part() -> None:
    key = KeyFacts(("k",), (KeyStep(("5",), 10), KeyStep(("9",), 10)), below=10)
    plan = cut(Facts(rows=30, bytes=3000, key=key), CutWish(column="k", partitions=3))
    assert [(p.slice.low, p.slice.high) for p in plan.parts if isinstance(p.slice, KeyRange)] == [
        (None, ("5",)),
        (("5",), ("9",)),
        (("9",), None),
    ]


@pytest.mark.parametrize(
    ("size", "wish", "parts"),
    [
        (31 * MIB, CutWish(), 1),
        (64 * MIB, CutWish(readers=2), 4),
        (1024 * MIB, CutWish(readers=2), 8),
        (1024 * MIB, CutWish(readers=2, partition_bytes=32 * MIB), 32),
        (31 * MIB, CutWish(partitions=5), 5),
        (1 << 40, CutWish(partitions=1), 1),
    ],
    ids=["small", "tail", "tail-of-big", "by-bytes", "asked", "one-asked"],
)
def test_the_number_of_parts_follows_bytes_readers_and_wishes(size: int, wish: CutWish, parts: int) -> None:
    assert len(cut(Facts(rows=1e6, bytes=size, pages=size // 8192), wish).parts) == parts


def test_leaves_get_parts_in_proportion_to_their_bytes() -> None:
    leaves = (
        LeafFacts("a", 300 * MIB, 3e6, pages=300 * 128),
        LeafFacts("b", 100 * MIB, 1e6, pages=100 * 128),
        LeafFacts("c", 0, 0, pages=0),
        LeafFacts("d", 100 * MIB, 1e6, pages=None),
    )
    plan = cut(Facts(rows=5e6, bytes=500 * MIB, leaves=leaves), CutWish(partitions=10))
    count = Counter(p.slice.leaf for p in plan.parts if isinstance(p.slice, Child))
    assert count == {"a": 6, "b": 2, "c": 1, "d": 1}


def test_an_obstacle_is_said_with_its_remedy() -> None:
    facts = Facts(rows=1e6, bytes=1 << 30, obstacle=Obstacle("no-key", "a view has no key", "Name a column."))
    plan = cut(facts, CutWish(partitions=4))
    assert (len(plan.parts), plan.reason, plan.why, plan.remedy) == (1, "no-key", "a view has no key", "Name a column.")


def test_a_type_without_order_is_cut_by_hash() -> None:
    plan = cut(Facts(rows=1e6, bytes=1 << 30, hash_column="j"), CutWish(column="j", partitions=3))
    assert [p.slice for p in plan.parts] == [Hash("j", i, 3) for i in range(3)]
