"""Every carried type goes through a frame of pandas and comes back unchanged: NULL, NaN, empty, all-NULL, in chunks."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import CastError, SchemaError
from etl.core.schema import Field, Schema
from etl.engine.backends import backend
from etl.engine.backends.pandas import keep_nan_apart

pa: Any = arrow
PANDAS = backend("pandas")
keep_nan_apart()  # arrays are made below, outside of any frame
LABELS = ("red", "green", "blue", "")
FRAME_DTYPES = {
    "int8": "Int8",
    "uint64": "UInt64",
    "float": "Float32",
    "double": "Float64",
    "bool": "boolean",
    "string": "str",
    "date32[day]": "datetime64[s]",
    "timestamp[us]": "datetime64[us]",
    "timestamp[us, tz=UTC]": "datetime64[us, UTC]",
    "duration[us]": "timedelta64[us]",
    "time64[us]": "timedelta64[us]",
    "decimal128(12, 2)": "decimal128(12, 2)[pyarrow]",
    "list<item: int64>": "list<item: int64>[pyarrow]",
    "struct<a: int64, b: string>": "struct<a: int64, b: string>[pyarrow]",
}


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else st.integers(0, (1 << bits) - 1)


CARRIED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    **{f"i{b}": (getattr(pa, f"int{b}")(), _integers(b, signed=True)) for b in (8, 16, 32, 64)},
    **{f"u{b}": (getattr(pa, f"uint{b}")(), _integers(b, signed=False)) for b in (8, 16, 32, 64)},
    "f4": (pa.float32(), st.floats(width=32)),
    "f8": (pa.float64(), st.floats()),
    "ok": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(max_size=4)),
    "e": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(LABELS)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us"), st.integers(-(2**62), 2**62)),
    "z": (pa.timestamp("us", "UTC"), st.integers(-(2**62), 2**62)),
    "du": (pa.duration("us"), st.integers(-(2**62), 2**62)),
    "ti": (pa.time64("us"), st.integers(0, 86_399_999_999)),
    "m": (pa.decimal128(12, 2), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "wide": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "l": (pa.list_(pa.int64()), st.lists(_integers(64, signed=True) | st.none(), max_size=3)),
    "v": (pa.list_(pa.float32(), 2), st.lists(st.floats(width=32), min_size=2, max_size=2)),
    "st": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": _integers(64, signed=True) | st.none(), "b": st.text(max_size=2) | st.none()}),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Up to three chunks of a few columns, values missing anywhere, a column of nothing but NULL among them."""
    names = draw(st.lists(st.sampled_from(sorted(CARRIED)), min_size=1, max_size=5, unique=True))
    columns = {}
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    for name in names:
        kind, values = CARRIED[name]
        one = draw(st.sampled_from([values | st.none(), values, st.none()]))
        chunks = [pa.array(draw(st.lists(one, min_size=n, max_size=n)), kind) for n in sizes]
        columns[name] = pa.chunked_array(chunks, kind)
    return pa.table(columns)


def schema_of(table: Any) -> Schema:
    return Schema(
        tuple(
            Field(f.name, f.type, vocabulary=LABELS if pa.types.is_dictionary(f.type) else None) for f in table.schema
        )
    )


def bits(column: Any) -> list[str]:
    """Values as texts: NaN is nan, NULL is None, a date or time in Python's own words, moments as numbers."""
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return [repr(value) for value in column.to_pylist()]


@given(tables())
@settings(max_examples=150)
def test_what_goes_through_a_frame_comes_back(table: Any) -> None:
    source = schema_of(table)
    frame = PANDAS.from_arrow(table, source)
    declared = PANDAS.schema_of(PANDAS.from_arrow(table.slice(0, 0), source), source)
    assert declared == PANDAS.schema_of(frame, source)
    back = PANDAS.to_arrow(frame, declared)
    back.validate(full=True)
    assert back.schema.names == table.schema.names
    assert back.schema.types == table.schema.types
    for name in table.column_names:
        assert bits(back.column(name)) == bits(table.column(name)), name


@given(tables())
@settings(max_examples=60)
def test_a_function_that_writes_into_its_frame_changes_no_arrow_buffer(table: Any) -> None:
    before = [bits(column) for column in table.columns]
    frame = PANDAS.from_arrow(table, schema_of(table))
    for name in frame.columns:
        frame.loc[:, name] = None
        frame[name] = frame[name].shift(1)
    assert [bits(column) for column in table.columns] == before


@pytest.mark.parametrize("kind", sorted(FRAME_DTYPES))
def test_the_dtypes_of_a_frame_do_not_depend_on_values(kind: str) -> None:
    known = {str(one[0]): one[0] for one in CARRIED.values()}[kind]
    for values in ([], [None], pa.nulls(3, known).to_pylist()):
        table = pa.table({"x": pa.array(values, known)})
        assert str(PANDAS.from_arrow(table, schema_of(table))["x"].dtype) == FRAME_DTYPES[kind]


def frame_of(**columns: Any) -> tuple[Any, Schema]:
    table = pa.table(columns)
    return PANDAS.from_arrow(table, schema_of(table)), schema_of(table)


def test_a_plain_float_of_pandas_has_null_where_it_says_nan() -> None:
    frame, source = frame_of(t=pa.array([1, None], pa.timestamp("us")), s=["abc", None])
    made = pd.DataFrame({"year": frame["t"].dt.year, "length": frame["s"].str.len()})
    assert [str(one) for one in made.dtypes] == ["float64", "float64"]
    declared = Schema((Field("year", pa.int32()), Field("length", pa.int64())))
    assert PANDAS.to_arrow(made, declared).to_pylist() == [{"year": 1970, "length": 3}, {"year": None, "length": None}]
    assert PANDAS.to_arrow(made, PANDAS.schema_of(made, source))["year"].null_count == 1


def test_a_nullable_float_keeps_nan() -> None:
    frame, source = frame_of(f=pa.array([math.nan, None, 1.0], pa.float64()))
    back = PANDAS.to_arrow(frame, PANDAS.schema_of(frame, source)).column("f")
    assert back.null_count == 1
    assert math.isnan(back[0].as_py())


def test_dates_are_days_again_under_their_name_only() -> None:
    frame, source = frame_of(d=pa.array([dt.date(2024, 1, 31), None]))
    frame["again"] = frame["d"]
    frame["later"] = frame["d"] + pd.Timedelta(hours=1)
    declared = PANDAS.schema_of(frame, source)
    assert [str(one.type) for one in declared] == ["date32[day]", "timestamp[us]", "timestamp[us]"]
    assert PANDAS.to_arrow(frame, declared).column("later")[0].as_py() == dt.datetime(2024, 1, 31, 1)  # noqa: DTZ001


def test_a_time_of_day_that_leaves_the_day_is_refused_by_value() -> None:
    frame, source = frame_of(ti=pa.array([dt.time(23), None]))
    declared = PANDAS.schema_of(frame, source)
    frame["ti"] = frame["ti"] + pd.Timedelta(hours=2)
    with pytest.raises(CastError, match="column ti is a time of day; the function gave 90000000000 microseconds"):
        PANDAS.to_arrow(frame, declared)


def test_labels_of_an_enum_keep_their_codes_in_every_part() -> None:
    first, source = frame_of(e=pa.array(["blue", None]).dictionary_encode())
    second, _ = frame_of(e=pa.array(["green"]).dictionary_encode())
    declared = PANDAS.schema_of(first, source)
    assert list(first["e"].cat.categories) == list(second["e"].cat.categories) == list(LABELS)
    assert declared.field("e").vocabulary == LABELS
    made: list[Any] = [PANDAS.to_arrow(one, declared).column("e").combine_chunks() for one in (first, second)]
    assert [one.indices.to_pylist() for one in made] == [[2, None], [1]]


def test_a_value_that_is_no_label_is_refused_by_value() -> None:
    frame, source = frame_of(e=pa.array(["blue", None]).dictionary_encode())
    declared = PANDAS.schema_of(frame, source)
    frame["e"] = frame["e"].astype("str") + "ish"
    with pytest.raises(
        CastError, match=r"column e holds 'blueish', which is none of its labels \(red, green, blue, \)"
    ):
        PANDAS.to_arrow(frame, declared)
    assert PANDAS.schema_of(frame, source).field("e") == Field("e", pa.string())


def test_labels_without_a_vocabulary_become_text() -> None:
    table = pa.table(
        {"c": pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])}
    )
    source = Schema((Field("c", table.schema.field("c").type),))
    frame = PANDAS.from_arrow(table, source)
    assert list(frame["c"]) == ["a", "b", "b"]
    assert PANDAS.to_arrow(frame, PANDAS.schema_of(frame, source)).column("c").to_pylist() == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("values", "declared", "says"),
    [
        (pd.array([300, None], "Int64"), pa.int8(), "column x does not fit int8: .*300"),
        (pd.array([1.5, None], "Float64"), pa.int32(), "column x does not fit int32: .*1.5"),
        (pd.array([math.nan], "Float64"), pa.int32(), "column x does not fit int32: .*nan"),
        (pd.array([0.1, None], "Float64"), pa.float32(), "column x holds 0.1, which float cannot hold exactly"),
        (pd.array([2**60 + 1], "Int64"), pa.float64(), "column x does not fit double: .*1152921504606846977"),
        (
            pd.to_datetime(["2024-01-01 01:00"]).astype("datetime64[s]"),
            pa.date32(),
            "column x is a date; 2024-01-01 01:00:00 has a time of day",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values: Any, declared: Any, says: str) -> None:
    with pytest.raises(CastError, match=says):
        PANDAS.to_arrow(pd.DataFrame({"x": values}), Schema((Field("x", declared),)))


@pytest.mark.parametrize(
    ("values", "declared", "says"),
    [
        (pd.array(["a"], "str"), pa.int64(), "column x came out of the function as .*string; int64 was declared"),
        (pd.array([True], "boolean"), pa.int64(), "column x came out of the function as bool; int64 was declared"),
        (pd.array([1], "Int64"), pa.bool_(), "column x came out of the function as int64; bool was declared"),
        (pd.Series([Decimal(1)], dtype=object), pa.int64(), "the dtype object, which has no Arrow type"),
    ],
)
def test_a_column_of_another_kind_is_refused(values: Any, declared: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        PANDAS.to_arrow(pd.DataFrame({"x": values}), Schema((Field("x", declared),)))


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.Series([1]), "the function gave a Series, not a DataFrame"),
        (None, "the function gave a NoneType, not a DataFrame"),
        (pd.DataFrame({0: [1]}), "a column named 0, a int"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns named a"),
        (pd.DataFrame({"a": [1], "c": [1]}), "lacks b and has c, not declared"),
        (pd.DataFrame({"b": [1], "a": [1]}), "has its columns in the order b, a"),
    ],
)
def test_a_frame_with_other_columns_is_refused(frame: Any, says: str) -> None:
    declared = Schema((Field("a", pa.int64()), Field("b", pa.int64())))
    with pytest.raises(SchemaError, match=says):
        PANDAS.to_arrow(frame, declared)


def test_widths_may_differ_from_the_declared_where_values_are_exact() -> None:
    declared = Schema((Field("i", pa.int32()), Field("f", pa.float64()), Field("m", pa.decimal128(20, 3))))
    made = pd.DataFrame(
        {
            "i": pd.array([1, None], "Int64"),
            "f": pd.array([1, None], "Int32"),
            "m": pd.Series([Decimal("1.10"), None], dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
        }
    )
    back = PANDAS.to_arrow(made, declared)
    assert back.schema == declared.to_arrow()
    assert back.to_pylist() == [{"i": 1, "f": 1.0, "m": Decimal("1.100")}, {"i": None, "f": None, "m": None}]


def test_a_collection_holds_the_rows_of_its_files_in_the_frames_own_dtypes(tmp_path: Any) -> None:
    table = pa.table({"s": ["a", None], "f": [math.nan, None], "d": pa.array([1, None], pa.date32())})
    paths = [str(tmp_path / f"{i}.arrow") for i in range(3)]
    for path in paths:
        with pa.OSFile(path, "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    made = PANDAS.over([paths[:2], paths[2:]], schema_of(table))
    assert made.npartitions == 2
    whole = made.compute(scheduler="synchronous")
    assert (
        [str(one) for one in whole.dtypes] == [str(one) for one in made.dtypes] == ["str", "Float64", "datetime64[s]"]
    )
    back = PANDAS.to_arrow(whole, schema_of(table))
    assert [bits(column) for column in back.columns] == [bits(column) * 3 for column in table.columns]


def test_memory_that_ran_out_is_recognised_behind_other_errors() -> None:
    outer = RuntimeError("while sorting")
    outer.__cause__ = MemoryError()
    assert PANDAS.out_of_memory(outer)
    assert PANDAS.out_of_memory(pa.ArrowMemoryError("malloc of size 99 failed"))
    assert not PANDAS.out_of_memory(RuntimeError("no"))


@pytest.mark.parametrize(
    ("labels", "shown"), [([1, 2], ["2", None]), (["a", "b"], ["b", None]), ([0.5, 1.5], ["1.5", None])]
)
def test_labels_of_any_plain_kind_are_text(labels: list[Any], shown: list[Any]) -> None:
    made = pd.DataFrame({"x": pd.Categorical([labels[1], None], categories=pd.Index(labels))})
    declared = PANDAS.schema_of(made.iloc[:0], Schema(()))
    assert PANDAS.to_arrow(made, declared).column("x").to_pylist() == shown


def test_intervals_are_refused_before_a_row_is_read() -> None:
    frame, source = frame_of(i=pa.array([1, None], pa.int64()))
    frame["size"] = pd.cut(frame["i"], [0, 2, 4])
    with pytest.raises(SchemaError, match=r"column size .* has labels that are interval.*frames\.cut"):
        PANDAS.schema_of(frame.iloc[:0], source)


@pytest.mark.parametrize("kind", [*("int8", "uint16", "int64", "float32", "float64"), "bool"])
def test_chunks_and_slices_come_to_their_places_and_nobody_else_has_them(kind: str) -> None:
    word = pa.type_for_alias(kind)
    first = pa.array([None, 1, 0, None, 1, 1, 0, 1, 1, None, 0], pa.int8()).cast(word)
    column = pa.chunked_array([first[3:], first[:0], pa.array([1, 0], pa.int8()).cast(word), first[1:4]])
    table = pa.table({"x": column, "text": ["a"] * len(column), "y": column})
    frame = PANDAS.from_arrow(table, Schema(tuple(Field(f.name, f.type) for f in table.schema)))
    assert list(frame.columns) == ["x", "text", "y"]
    assert [None if pd.isna(one) else one for one in frame["x"]] == column.to_pylist()
    frame.loc[0, "x"] = frame.loc[1, "x"]
    frame.loc[1, "x"] = pd.NA
    assert [None if pd.isna(one) else one for one in frame["y"]] == column.to_pylist()
    assert table.column("x").to_pylist() == column.to_pylist() == [*first[3:].to_pylist(), 1, 0, 1, 0, None]
