"""Values through the door to frames: what changes its type keeps its value, or is refused with it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, SchemaError
from etl.core.schema import Field, Schema
from etl.engine.door import CHUNKS, carried_schema, carry

if TYPE_CHECKING:
    import uuid

pa: Any = arrow


def through(*chunks: Any, field: Field | None = None) -> Any:
    """The one column x, in these chunks, as frames carry it."""
    column = pa.chunked_array(list(chunks))
    made = carry(pa.table({"x": column}), Schema((field or Field("x", column.type),)))
    made.validate(full=True)
    return made.column("x")


@pytest.mark.parametrize(
    ("values", "kind", "carried", "shown"),
    [
        ([1.5, None], pa.float16(), pa.float32(), None),
        (["é", None], pa.large_string(), pa.string(), None),
        (["é", None], pa.string_view(), pa.string(), None),
        (['{"a": 1}', None], pa.json_(), pa.string(), None),
        ([dt.date(2024, 1, 31), None], pa.date64(), pa.date32(), None),
        ([1, None], pa.timestamp("s"), pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1), None]),  # noqa: DTZ001
        ([1, None], pa.time32("s"), pa.duration("us"), [dt.timedelta(seconds=1), None]),
        ([2000, None], pa.time64("ns"), pa.duration("us"), [dt.timedelta(microseconds=2), None]),
        ([1, None], pa.duration("ms"), pa.duration("us"), [dt.timedelta(milliseconds=1), None]),
        ([Decimal("1.10"), None], pa.decimal32(5, 2), pa.decimal128(5, 2), None),
        ([Decimal("1.10"), None], pa.decimal256(60, 2), pa.decimal128(38, 2), None),
        ([[1, None], None], pa.large_list(pa.int8()), pa.list_(pa.int8()), None),
        ([[1.0, None], None], pa.list_(pa.float16(), 2), pa.list_(pa.float32()), None),
        ([["a"], None], pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string()), None),
    ],
)
def test_a_value_is_the_same_in_its_carried_type(values: Any, kind: Any, carried: Any, shown: Any) -> None:
    made = through(pa.array(values, kind), pa.array([], kind))
    assert made.type == carried
    assert made.to_pylist() == (shown or values)
    assert carried_schema(Schema((Field("x", kind),))).field("x").type == carried


def test_a_map_is_a_list_of_pairs() -> None:
    made = through(pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())))
    assert made.to_pylist() == [[{"key": "a", "value": 1}, {"key": "b", "value": None}], None, []]


@given(st.lists(st.uuids() | st.none(), max_size=5), st.integers(0, 3))
def test_a_uuid_is_its_36_characters(values: list[uuid.UUID | None], skip: int) -> None:
    whole = pa.array([None if one is None else one.bytes for one in values], pa.uuid())
    assert through(whole.slice(skip)).to_pylist() == [None if one is None else str(one) for one in values[skip:]]


def test_a_zone_becomes_utc_at_the_same_moment() -> None:
    made = through(pa.array([0, None], pa.timestamp("us", "+05:30")))
    assert str(made.type) == "timestamp[us, tz=UTC]"
    assert made.cast(pa.int64()).to_pylist() == [0, None]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (pa.array([1], pa.timestamp("ns")), r"column x does not fit timestamp\[us\]: .*would lose data: 1"),
        (pa.array([2**62], pa.timestamp("s")), r"column x does not fit timestamp\[us\]: "),
        (pa.array([1], pa.time64("ns")), r"column x does not fit time64\[us\]: .*would lose data: 1"),
        (pa.array([Decimal(10**40)], pa.decimal256(60, 0)), r"column x does not fit decimal128\(38, 0\): "),
        (
            pa.array([3_600_000], pa.int64()).cast(pa.date64(), safe=False),
            r"column x does not fit date32\[day\]: .*would lose data: 3600000",
        ),
    ],
)
def test_a_value_that_would_change_is_refused(values: Any, says: str) -> None:
    with pytest.raises(CastError, match=says):
        through(values)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (pa.binary(), r'column x: a frame cannot hold binary\. Read it as text, types=\{"x": "hex"\}'),
        (pa.binary(4), r"column x: a frame cannot hold fixed_size_binary\[4\]"),
        (pa.null(), r'column x: a frame cannot hold null\. Say what it is, types=\{"x": "string"\}'),
        (pa.month_day_nano_interval(), r"a frame cannot hold month_day_nano_interval\. Cast it in the query"),
        (pa.decimal256(60, 50), r"a frame cannot hold decimal256\(60, 50\)"),
        (pa.list_(pa.binary()), "column x: a frame cannot hold binary"),
    ],
)
def test_what_no_frame_holds_is_refused_before_a_row_is_read(kind: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        carried_schema(Schema((Field("x", kind),)))


def test_chunks_with_other_dictionaries_keep_their_values() -> None:
    made = through(pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None, "a"]).dictionary_encode())
    assert made.to_pylist() == ["a", "b", "b", None, "a"]
    assert {tuple(one.dictionary.to_pylist()) for one in made.chunks} == {("a", "b")}


def test_a_dictionary_with_null_or_the_same_word_twice_is_made_anew() -> None:
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", None, "a"]))
    made = through(odd)
    assert made.to_pylist() == ["a", None, "a", None]
    assert made.chunk(0).dictionary.to_pylist() == ["a"]


@given(st.lists(st.lists(st.sampled_from(["x", "y", "z"]) | st.none(), max_size=4), max_size=3))
def test_an_enum_has_the_codes_of_its_vocabulary_in_every_chunk(parts: list[list[str | None]]) -> None:
    kind, labels = pa.dictionary(pa.int32(), pa.string()), ("z", "unused", "y", "x")
    chunks = [pa.array(one, pa.string()).dictionary_encode() for one in parts] or [pa.array([], kind)]
    made = through(*chunks, field=Field("x", kind, vocabulary=labels))
    assert made.to_pylist() == [value for one in parts for value in one]
    assert all(tuple(one.dictionary.to_pylist()) == labels for one in made.chunks)


def test_a_label_that_the_dictionary_has_and_no_row_uses_is_no_mistake() -> None:
    unused = pa.DictionaryArray.from_arrays(pa.array([1, None]), pa.array(["gone", "x"]))
    field = Field("x", unused.type, vocabulary=("x",))
    assert through(unused, field=field).to_pylist() == ["x", None]
    used = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["gone", "x"]))
    with pytest.raises(CastError, match=r"column x holds 'gone', which is none of its labels \(x\)"):
        through(used, field=field)


def test_many_chunks_are_few_and_metadata_is_gone() -> None:
    column = pa.chunked_array([pa.array([1])] * (CHUNKS + 1))
    table = pa.table({"x": column}).replace_schema_metadata({"pandas": '{"index_columns": ["x"]}'})
    made = carry(table, Schema((Field("x", pa.int64()),)))
    assert made.column("x").num_chunks == 1
    assert made.schema.metadata is None
    with pytest.raises(SchemaError, match="rows have the columns x; the schema says y"):
        carry(table, Schema((Field("y", pa.int64()),)))
