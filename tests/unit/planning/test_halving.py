"""A part in two: every row in exactly one half, in the old order."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import CutWish, Facts, LeafFacts, Tally
from connectors.memory import MemorySource
from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Partition, Whole
from etl.core.schema import Field, Schema
from etl.planning.cut import cut
from etl.planning.halving import halves

NUMBERS = Schema((Field("k", pa.int64()),))


def rows_of(source: MemorySource, part: Partition) -> list[object]:
    with source.snapshot(attach_all=lambda _: None) as at:
        read = source.read(at, part, schema=source.schema(at), batch_bytes=1 << 20, tally=Tally())
        return [value for batch in read for value in batch.column(0).to_pylist()]


@given(
    st.lists(st.none() | st.integers(-5, 40), max_size=60).map(lambda v: pa.array(v, pa.int64()))
    | st.lists(st.none() | st.text("ab", max_size=3), max_size=60).map(lambda v: pa.array(v, pa.string())),
    st.integers(1, 5),
)
def test_halves_of_key_ranges_hold_each_row_once(keys: pa.Array[pa.Scalar[pa.DataType]], wanted: int) -> None:
    source = MemorySource(pa.table({"k": keys}), key="k")
    with source.snapshot(attach_all=lambda _: None) as at:
        schema, facts = source.schema(at), source.facts(at, CutWish("k", wanted), sample=True)
    for part in cut(facts, CutWish("k", wanted)).parts:
        whole = rows_of(source, part)
        cut_in_two = halves(part, facts, schema)
        if cut_in_two is None:
            assert isinstance(part.slice, Whole | NullKeys) or len({v for v in whole if v is not None}) < 2
            continue
        first, second = (rows_of(source, half) for half in cut_in_two)
        assert sorted(map(repr, first + second)) == sorted(map(repr, whole))
        assert first
        assert second or None in whole


def test_whole_numbers_are_cut_in_the_middle_and_texts_only_at_known_bounds() -> None:
    ranged = Partition(3, KeyRange(("k",), ("10",), ("20",), nulls=True), rows=100, bytes=1000)
    made = halves(ranged, Facts(100, 1000), NUMBERS)
    assert made == (
        Partition(3, KeyRange(("k",), ("10",), ("15",), nulls=True), rows=50, bytes=500),
        Partition(3, KeyRange(("k",), ("15",), ("20",)), rows=50, bytes=500),
    )
    texts = Schema((Field("k", pa.string()),))
    assert halves(ranged, Facts(100, 1000), texts) is None
    assert halves(Partition(0, KeyRange(("k",), ("10",), ("11",))), Facts(1, 1), NUMBERS) is None
    assert halves(Partition(0, KeyRange(("k",), None, ("11",))), Facts(1, 1), NUMBERS) is None


def test_pages_hashes_and_leaves_have_halves_and_a_whole_source_has_none() -> None:
    facts = Facts(10, 10, pages=9, leaves=(LeafFacts('"s"."l"', 10, 5, pages=7),))
    made = halves(Partition(0, Pages(4, None)), facts, NUMBERS)
    assert made is not None
    assert [p.slice for p in made] == [Pages(4, 6), Pages(6, None)]
    assert halves(Partition(0, Pages(8, None)), facts, NUMBERS) is None
    made = halves(Partition(0, Hash("k", 2, 3)), facts, NUMBERS)
    assert made is not None
    assert [p.slice for p in made] == [Hash("k", 2, 6), Hash("k", 5, 6)]
    made = halves(Partition(0, Child('"s"."l"', Pages(3, None))), facts, NUMBERS)
    assert made is not None
    assert [p.slice for p in made] == [Child('"s"."l"', Pages(3, 5)), Child('"s"."l"', Pages(5, None))]
    for slice_ in (Whole(), NullKeys("k"), Child('"s"."l"', Whole())):
        assert halves(Partition(0, slice_), facts, NUMBERS) is None
