"""Which columns there are, and which rows: each step beside plain Python."""

from __future__ import annotations

import json
import math
import operator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import transforms
from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import Field, Schema
from etl.transforms import DropNull, FillNull, Filter, NullIndicator, Rename, Select, Standardize
from etl.transforms.base import Transform, needs_fit
from etl.transforms.fit import applied, planned, scans_of
from etl.transforms.host import Rows, dropped_of
from etl.transforms.plain import to_plain, typed
from etl.transforms.preprocessor import arguments
from tests.preparing import both, fit, schema_of, through

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
MAYBE = st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=20)
ORDERS: dict[str, Any] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def again(step: Any) -> Any:
    """The step as it comes back from a saved plan."""
    saved = json.loads(json.dumps(to_plain(arguments(step))))
    return getattr(transforms, transforms.KINDS[step.kind])(**typed(saved))


@pytest.mark.parametrize(
    "step",
    [
        Rename({"date": "time"}),
        Rename({"a": "b", "b": "a"}),
        Select(["b", "a"]),
        NullIndicator("a"),
        NullIndicator(["a", "b"], "no_{}"),
        Filter("a", "in", {3, 1, 2}),
        Filter("a", "between", (date(2020, 1, 1), date(2021, 1, 1))),
        Filter("a", ">", datetime(2020, 1, 1, tzinfo=UTC)),
        Filter("a", "==", Decimal("1.50")),
        Filter("a", "<", timedelta(-1, 5)),
        Filter("a", "not null"),
        DropNull(["a", "b"]),
    ],
)
def test_a_step_comes_back_from_its_saved_arguments(step: Any) -> None:
    assert again(step) == step
    assert hash(again(step)) == hash(step)


def test_columns_go_under_other_names_and_stay_in_their_places() -> None:
    table = pa.table({"a": ARROW.array([1, None]), "b": ["x", "y"], "c": [0.5, math.nan]})
    out = through([Rename({"a": "b", "b": "a"})], table)
    assert out.column_names == ["b", "a", "c"]
    assert out.column("b").to_pylist() == [1, None]
    assert out.column("a").to_pylist() == ["x", "y"]
    assert not out.schema.equals(table.schema)
    assert Rename({"a": "b", "b": "a"}).asks(frozenset({"a", "c"})) == {"b", "c"}
    _, done = fit([Rename({"a": "d"}), Standardize("d")], table)
    assert done[1]["d"]["mean"] == 1.0


def test_a_name_that_is_taken_or_not_there_is_refused() -> None:
    given = Schema((Field("a", pa.int64()), Field("b", pa.int64())))
    with pytest.raises(ConfigError, match="there is a column b already"):
        planned([Rename({"a": "b"})], given)
    with pytest.raises(SchemaError, match="no column c"):
        planned([Rename({"c": "d"})], given)
    with pytest.raises(ConfigError, match="names d twice"):
        Rename({"a": "d", "b": "d"})
    with pytest.raises(ConfigError, match="of nothing"):
        Rename({})
    with pytest.raises(ConfigError, match="no pair of texts"):
        Rename({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there is a column b already"):
        planned([NullIndicator("a", "b")], given)
    with pytest.raises(ConfigError, match="the name is"):
        NullIndicator(["a", "b"], "null")


def test_selected_columns_alone_stay_in_the_order_of_the_list() -> None:
    table = pa.table({"a": [1, 2], "raw": ARROW.array([b"\0", None]), "b": ["x", "y"]})
    out = through([Select(["raw", "a"])], table)
    assert out.column_names == ["raw", "a"]
    assert out.column("raw").to_pylist() == [b"\0", None]
    with pytest.raises(SchemaError, match="no column b"):
        planned([Select("a"), FillNull("b", "x")], schema_of(table))


@given(MAYBE, st.lists(st.one_of(st.none(), st.just(math.nan), st.floats()), max_size=20))
def test_an_indicator_is_true_for_null_and_false_for_nan(whole: list[int | None], real: list[float | None]) -> None:
    count = min(len(whole), len(real))
    table = pa.table({"i": ARROW.array(whole[:count], pa.int8()), "f": ARROW.array(real[:count], pa.float64())})
    out = through([NullIndicator(["i", "f"], "no_{}")], table)
    assert out.column("no_i").to_pylist() == [v is None for v in whole[:count]]
    assert out.column("no_f").to_pylist() == [v is None for v in real[:count]]
    assert not out.schema.field("no_f").nullable


@given(MAYBE, st.sampled_from(sorted(ORDERS)), st.integers(-9, 9), st.sampled_from(["int8", "int64", "double"]))
def test_rows_for_which_a_comparison_is_true_stay(values: list[int | None], op: Any, with_: int, kind: str) -> None:
    dtype = {"int8": pa.int8(), "int64": pa.int64(), "double": pa.float64()}[kind]
    table = pa.table({"v": ARROW.array(values, dtype), "n": ARROW.array(range(len(values)), pa.int64())})
    out = through([Filter("v", op, with_)], table)
    right = [n for n, v in enumerate(values) if v is not None and ORDERS[op](v, with_)]
    assert out.column("n").to_pylist() == right
    assert out.column("v").to_pylist() == [values[n] for n in right]


@pytest.mark.parametrize(
    ("kind", "values", "one"),
    [
        (pa.string(), ["b", None, "a", "ü", ""], "b"),
        (pa.large_string(), ["b", None, "a", "ü", ""], "b"),
        (pa.dictionary(pa.int32(), pa.string()), ["b", None, "a", "ü"], "b"),
        (pa.decimal128(38, 2), [Decimal("1.10"), None, Decimal("-1.10"), Decimal(7)], Decimal("1.1")),
        (pa.date32(), [date(2020, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)], date(2020, 1, 1)),
        (
            pa.timestamp("s", "Europe/Berlin"),
            [datetime(2020, 1, 1, tzinfo=UTC), None, datetime(1969, 1, 1, tzinfo=UTC)],
            datetime(2020, 1, 1, tzinfo=UTC),
        ),
        (pa.time32("s"), [time(1), None, time(23), time(0)], time(1)),
        (pa.duration("us"), [timedelta(1), None, timedelta(-1)], timedelta(1)),
        (pa.uint64(), [(1 << 64) - 1, None, 0, 1 << 63], 1 << 63),
        (pa.int64(), [(1 << 53) + 1, None, 1 << 53], 1 << 53),
    ],
)
def test_values_of_every_kind_are_compared_as_such(kind: pa.DataType, values: list[Any], one: Any) -> None:
    table = pa.table({"v": ARROW.array(values, kind), "n": ARROW.array(range(len(values)), pa.int64())})
    present = [(n, v) for n, v in enumerate(values) if v is not None]
    for op, order in ORDERS.items():
        out = through([Filter("v", op, one)], table)  # type: ignore[arg-type]
        assert out.column("n").to_pylist() == [n for n, v in present if order(v, one)], op
    for op, right in (
        ("in", [n for n, v in present if v in (one, values[0])]),
        ("not in", [n for n, v in present if v not in (one, values[0])]),
        ("between", [n for n, v in present if min(one, values[0]) <= v <= max(one, values[0])]),
    ):
        ends = sorted([one, values[0]])
        out = through([Filter("v", op, ends)], table)  # type: ignore[arg-type]
        assert out.column("n").to_pylist() == right, op
    assert through([Filter("v", "is null")], table).column("n").to_pylist() == [1]
    assert through([Filter("v", "not null")], table).column("n").to_pylist() == [n for n, _ in present]


def test_nan_is_unequal_to_all_and_neither_above_nor_below() -> None:
    table = pa.table({"v": [math.nan, 1.0, None, math.inf], "n": [0, 1, 2, 3]})
    found = {
        (op, value): through([Filter("v", op, value)], table).column("n").to_pylist()  # type: ignore[arg-type]
        for op, value in [("==", 1.0), ("!=", 1.0), ("<", 2), (">=", 2), ("is nan", None), ("not nan", None)]
    }
    assert list(found.values()) == [[1], [0, 3], [1], [3], [0], [1, 3]]


def test_bools_are_equal_or_not() -> None:
    table = pa.table({"v": [True, None, False], "n": [0, 1, 2]})
    assert through([Filter("v", "==", value=True)], table).column("n").to_pylist() == [0]
    assert through([Filter("v", "!=", value=True)], table).column("n").to_pylist() == [2]
    with pytest.raises(ConfigError, match="no order"):
        planned([Filter("v", "<", value=True)], schema_of(table))


@pytest.mark.parametrize(
    ("column", "op", "value", "words"),
    [
        ("v", "=", 1, "no comparison"),
        ("v", "==", None, "the value is None"),
        ("v", "is null", 1, "the value is 1"),
        ("v", "in", 1, "the value is 1"),
        ("v", "==", [1], "the value is"),
        ("v", "between", [1, 2, 3], "the value is"),
        ("v", "in", [1, None], "NULL is equal to nothing"),
        ("", "==", 1, "names no column"),
    ],
)
def test_a_condition_that_is_none_is_refused(column: str, op: Any, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Filter(column, op, value)


@pytest.mark.parametrize(
    ("kind", "op", "value", "words"),
    [
        (pa.int64(), ">", 2.5, "no int64"),
        (pa.int8(), ">", 300, "no int8"),
        (pa.string(), "==", 1, "no string"),
        (pa.int64(), "is nan", None, "has no NaN"),
        (pa.timestamp("us", "UTC"), "<", datetime(2020, 1, 1), "without a zone"),  # noqa: DTZ001 - what is refused
        (pa.list_(pa.int64()), "==", 1, "no list"),
    ],
)
def test_a_value_of_another_kind_is_refused_before_a_row_is_read(
    kind: pa.DataType, op: Any, value: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([Filter("v", op, value)], Schema((Field("v", kind),)))


@given(MAYBE, MAYBE)
def test_rows_that_lack_a_value_go_and_are_counted_once(a: list[int | None], b: list[int | None]) -> None:
    count = min(len(a), len(b))
    pairs = list(zip(a[:count], b[:count], strict=True))
    table = pa.table({"a": ARROW.array(a[:count], pa.int16()), "b": ARROW.array(b[:count], pa.float32())})
    steps: list[Transform] = [DropNull(["a", "b"]), Filter("a", ">=", 0)]
    out = through(steps, table)
    full = [(x, y) for x, y in pairs if x is not None and y is not None]
    kept = [(x, y) for x, y in full if x >= 0]
    assert list(zip(out.column("a").to_pylist(), out.column("b").to_pylist(), strict=True)) == kept
    (batch,) = table.combine_chunks().to_batches() or [ARROW.record_batch({"a": ARROW.array([], pa.int16()), "b": []})]
    rows = applied(planned(steps, schema_of(table)), {}, Rows.of_batch(batch, schema_of(table)))
    counted = {"null": count - len(full), "filter": len(full) - len(kept)}
    assert dropped_of(rows.tally) == {reason: n for reason, n in counted.items() if n}


@given(MAYBE, st.lists(st.integers(0, 20), max_size=3))
def test_later_steps_are_not_fitted_on_rows_that_are_left_out(values: list[int | None], cuts: list[int]) -> None:
    count = len(values)
    table = pa.table({"v": ARROW.array(values, pa.int32()), "w": ARROW.array(range(count), pa.int64())})
    present = [v for v in values if v is not None]
    if not present:
        return
    filled = [v if v is not None else round(sum(present) / len(present)) for v in values]
    stays = [w for w, v in enumerate(filled) if v >= 0]
    if not stays:
        return
    # The condition is on a column that has to be fitted first, and `w` itself could be fitted at once.
    steps: list[Transform] = [FillNull("v", "mean"), Filter("v", ">=", 0), Standardize("w")]
    assert scans_of(steps) == (0, 1, 1)
    parts = sorted(min(c, count) for c in cuts)
    plan, done = fit(steps, table, parts)
    mean = sum(stays) / len(stays)
    assert done[2]["w"]["n"] == len(stays)
    assert done[2]["w"]["mean"] == pytest.approx(mean, rel=1e-15)
    assert [needs_fit(one) for one in plan.steps] == [True, False, True]


def test_all_rows_may_go() -> None:
    table = pa.table({"v": ARROW.array([None, None], pa.int64()), "w": ["a", "b"]})
    plan = planned([DropNull("v"), Filter("w", "==", "a")], schema_of(table))
    out = both(plan, {}, table.to_batches()[0])
    assert out.num_rows == 0
    assert np.array(out.column("v")).size == 0
