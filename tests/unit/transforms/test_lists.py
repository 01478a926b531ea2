"""Lists, beside Python's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError
from etl.core.schema import Field, Schema
from etl.transforms import ListPad, ListPool, ListSlice
from etl.transforms.fit import applied, planned
from etl.transforms.host import Rows
from tests.preparing import schema_of, through

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
KINDS: dict[str, Any] = {
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
WHOLE = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 100), max_size=5)), max_size=9)


def typed(values: list[Any], kind: str) -> list[Any]:
    """The same numbers as the elements' own type has them."""
    make: Any = {"bool": lambda v: v % 2 == 1, "float": float, "double": float}.get(kind, int)
    return [None if one is None else [make(v) for v in one] for one in values]


def table_of(values: list[Any], kind: Any, *, behind: bool = False) -> pa.Table:
    """Lists of a column; with `behind`, absent ones have elements that nobody may look at."""
    column = ARROW.array(values, kind)
    if behind:
        full = ARROW.array([[1, 1] if one is None else one for one in values], kind)
        column = ARROW.ListArray.from_arrays(
            full.offsets, full.values, mask=ARROW.array([one is None for one in values], pa.bool_())
        )
    return pa.table({"v": column})


@given(WHOLE, st.sampled_from(sorted(KINDS)), st.integers(1, 6), st.sampled_from(["right", "left"]), st.booleans())
def test_lists_of_one_length(values: list[Any], kind: str, width: int, side: Any, behind: bool) -> None:  # noqa: FBT001 - drawn
    lists = typed(values, kind)
    table = table_of(lists, pa.list_(KINDS[kind]), behind=behind and kind != "bool")
    step = ListPad("v", width, side=side)
    out = through([step], table)
    assert out.schema.field("v").type == pa.list_(KINDS[kind], width)
    (nothing,) = typed([[0]], kind)
    right: list[Any] = []
    for one in lists:
        if one is None:
            right.append(None)
            continue
        pad = nothing * (width - len(one))
        right.append([*one[:width], *pad] if side == "right" else [*pad, *one[-width:]])
    assert out.column("v").to_pylist() == right
    (batch,) = table.to_batches() or [ARROW.record_batch({"v": ARROW.array([], table.schema.field("v").type)})]
    rows = applied(planned([step], schema_of(table)), {}, Rows.of_batch(batch, schema_of(table)))
    cut = sum(one is not None and len(one) > width for one in lists)
    assert rows.tally == ({("v", "truncated"): cut} if cut else {})


@given(
    st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text("abé", max_size=2)), max_size=5)), max_size=9),
    st.integers(-6, 6),
    st.one_of(st.none(), st.integers(-6, 6)),
)
def test_slices_are_pythons(values: list[Any], start: int, stop: int | None) -> None:
    for kind in (pa.list_(pa.string()), pa.large_list(pa.string())):
        table = table_of(values, kind)
        out = through([ListSlice("v", start, stop)], table.slice(1)).column("v").to_pylist()
        assert out == [None if one is None else one[start:stop] for one in values[1:]]


@given(WHOLE, st.sampled_from(sorted(KINDS)), st.sampled_from(["mean", "sum", "max", "min", "count"]), st.booleans())
def test_one_number_for_each_list(values: list[Any], kind: str, how: Any, behind: bool) -> None:  # noqa: FBT001 - drawn
    lists = typed(values, kind)
    table = table_of(lists, pa.list_(KINDS[kind]), behind=behind and kind != "bool")
    out = through([ListPool("v", how)], table)
    functions: dict[str, Any] = {
        "mean": lambda v: float(np.float32(sum(v) / len(v))),
        "sum": sum,
        "max": max,
        "min": min,
        "count": len,
    }
    function = functions[how]
    of_none = {"sum": 0, "count": 0}.get(how)
    assert out.column("v").to_pylist() == [None if one is None else function(one) if one else of_none for one in lists]
    own = KINDS[kind]
    sums = own if pa.types.is_floating(own) else pa.int64()
    kinds = {"mean": pa.float32(), "sum": sums, "max": own, "min": own, "count": pa.int32()}
    assert out.schema.field("v").type == kinds[how]


def test_vectors_of_one_length_are_lists_too() -> None:
    table = table_of([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)).slice(1)
    assert through([ListPool("v", "sum")], table).column("v").to_pylist() == [None, 7]
    assert through([ListPad("v", 3), ListPool("v", "max")], table).column("v").to_pylist() == [None, 4]
    assert through([ListSlice("v", 1)], table).column("v").to_pylist() == [None, [4]]


def test_a_null_element_is_refused_with_its_row() -> None:
    table = table_of([[1], None, [], [2, None]], pa.list_(pa.int64()))
    for step in (ListPad("v", 1), ListPool("v", "mean")):
        with pytest.raises(CastError, match="column v, row 4: an element of its list is NULL"):
            through([step], table, batch_rows=9)
    assert through([ListPool("v", "count")], table).column("v").to_pylist() == [1, None, 0, 2]


def test_sums_are_exact_or_refused() -> None:
    most = (1 << 63) - 1
    table = table_of([[most, -most, 7], [1 << 53, 1]], pa.list_(pa.int64()))
    assert through([ListPool("v", "sum")], table).column("v").to_pylist() == [7, (1 << 53) + 1]
    for values, kind in (([[1], [most, 1]], pa.int64()), ([[1], [1 << 63]], pa.uint64())):
        with pytest.raises(CastError, match="row 2: the sum of its list is beyond int64"):
            through([ListPool("v", "sum")], table_of(values, pa.list_(kind)))
    with pytest.raises(CastError, match="row 1: what its list comes to is beyond float32"):
        through([ListPool("v", "sum")], table_of([[3e38, 3e38]], pa.list_(pa.float32())))
    out = through([ListPool("v", "sum")], table_of([[math.inf, 1.0], [math.nan]], pa.list_(pa.float64())))
    assert repr(out.column("v").to_pylist()) == "[inf, nan]"


@pytest.mark.parametrize(
    ("build", "arguments", "kind", "words"),
    [
        (ListPad, (0,), None, "max_len is 0"),
        (ListPad, (2, 0, "up"), None, "the side is 'up'"),
        (ListPad, (2,), pa.int64(), "not a list"),
        (ListPad, (2,), pa.list_(pa.string()), "neither numbers nor bools"),
        (ListPad, (2, 0.5), pa.list_(pa.int64()), "no int64"),
        (ListSlice, (0.5,), None, "ListSlice: from 0.5"),
        (ListPool, ("median",), None, "how is 'median'"),
        (ListPool, ("mean",), pa.list_(pa.date32()), "neither numbers nor bools"),
    ],
)
def test_what_fits_no_list_is_refused(build: Any, arguments: tuple[Any, ...], kind: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([build("v", *arguments)], Schema((Field("v", kind),)))
