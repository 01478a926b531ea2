"""FillNull and Standardize against exact arithmetic: whatever the offset, the NULLs, NaN, types and parts."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError, DataError, SchemaError
from etl.core.schema import Field, Schema
from etl.transforms import FillNull, Standardize
from etl.transforms.fit import planned
from tests.preparing import PANDAS, both, fit, schema_of, through

if TYPE_CHECKING:
    from etl.transforms.base import Transform

whole = st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62))
real = st.one_of(st.none(), st.floats(-1e12, 1e12), st.just(math.nan))


@given(
    st.lists(whole, min_size=1, max_size=40), st.integers(-(1 << 61), 1 << 61), st.lists(st.integers(0, 40), max_size=3)
)
def test_whole_numbers_are_scaled_by_their_exact_mean_and_spread(
    small: list[int | None], offset: int, cuts: list[int]
) -> None:
    values = [None if v is None else (v % 1000) + offset for v in small]
    table = pa.table({"v": pa.array(values, pa.int64())})
    present = [v for v in values if v is not None]
    if not present:
        with pytest.raises(DataError, match="column v has 0 values"):
            fit([Standardize("v")], table)
        return
    mean = Fraction(sum(present), len(present))
    variance = sum((v - mean) ** 2 for v in present) / len(present)
    _, done = fit([Standardize("v")], table, sorted(min(c, len(values)) for c in cuts))
    assert done[0]["v"]["mean"] == float(mean)
    assert done[0]["v"]["std"] == pytest.approx(math.sqrt(variance), rel=1e-15, abs=0)
    out = through([Standardize("v")], table).column("v")
    assert out.type == pa.float32()
    assert [v.is_valid for v in out] == [v is not None for v in values]


@given(st.lists(real, min_size=1, max_size=40), st.lists(st.integers(0, 40), max_size=3))
def test_floats_keep_their_spread_and_nan_stays(values: list[float | None], cuts: list[int]) -> None:
    table = pa.table({"v": pa.array(values, pa.float64())})
    present = [Fraction(v) for v in values if v is not None and not math.isnan(v)]
    if not present:
        return
    mean = sum(present) / len(present)
    spread = math.sqrt(sum((v - mean) ** 2 for v in present) / len(present))
    _, done = fit([Standardize("v")], table, sorted(min(c, len(values)) for c in cuts))
    most = max(abs(float(v)) for v in present)
    assert done[0]["v"]["mean"] == pytest.approx(float(mean), rel=1e-12, abs=most * 1e-15)
    assert done[0]["v"]["std"] == pytest.approx(spread, rel=1e-10, abs=most * 1e-13)
    out = through([Standardize("v")], table).column("v").to_pylist()
    for before, after in zip(values, out, strict=True):
        assert (before is None) == (after is None)
        assert (before is not None and math.isnan(before)) == (after is not None and math.isnan(after))


@given(
    st.lists(st.one_of(st.none(), st.integers(-1000, 1000)), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_mean_then_scale_is_one_reading_and_what_two_would_give(values: list[int | None], cuts: list[int]) -> None:
    table = pa.table({"v": pa.array(values, pa.int32())})
    present = [v for v in values if v is not None]
    if not present:
        with pytest.raises(DataError, match="'mean'"):
            fit([FillNull("v", "mean")], table)
        return
    plan, done = fit([FillNull("v", "mean"), Standardize("v")], table, sorted(min(c, len(values)) for c in cuts))
    fill = round(Fraction(sum(present), len(present)))
    full = [fill if v is None else v for v in values]
    mean = Fraction(sum(full), len(full))
    assert plan.count == 1
    assert done[0]["v"] == fill
    assert done[1]["v"]["n"] == len(full)
    assert done[1]["v"]["mean"] == float(mean)
    spread = math.sqrt(sum((v - mean) ** 2 for v in full) / len(full))
    assert done[1]["v"]["std"] == pytest.approx(spread, rel=1e-15)
    assert plan.returns.field("v").nullable is False


@pytest.mark.parametrize("scale", [0, 2, 9])
def test_decimals_are_filled_with_the_mean_at_their_own_scale(scale: int) -> None:
    digits = [1, None, 2, 4]
    values = [None if d is None else Decimal(d).scaleb(-scale) for d in digits]
    table = pa.table({"v": pa.array(values, pa.decimal128(18, scale))})
    out = through([FillNull("v", "mean")], table)
    assert out.column("v").to_pylist() == [Decimal(d).scaleb(-scale) for d in (1, 2, 2, 4)]
    assert out.schema.field("v").type == pa.decimal128(18, scale)


def test_steps_act_in_order_and_leave_other_columns_alone() -> None:
    table = pa.table(
        {
            "raw": pa.array([b"\x00", None, b"\xff"], pa.binary()),
            "f": pa.array([1.0, None, math.nan], pa.float32()),
            "s": pa.array(["a", None, "c"]),
            "b": pa.array([True, None, False]),
        }
    )
    steps: list[Transform] = [
        FillNull("f", 3.0, indicator="f_was_null"),
        FillNull("s", "none"),
        FillNull("b", value=False),
        Standardize("f"),
    ]
    out = through(steps, table)
    assert out.column_names == ["raw", "f", "s", "b", "f_was_null"]
    assert out.column("raw").equals(table.column("raw"))
    assert out.column("s").to_pylist() == ["a", "none", "c"]
    assert out.column("b").to_pylist() == [True, False, False]
    assert out.column("f_was_null").to_pylist() == [False, True, False]
    assert out.column("f").to_pylist()[:2] == [-1.0, 1.0]
    assert out.column("f").to_pylist()[2] != out.column("f").to_pylist()[2]


def test_a_step_on_what_another_step_fitted_waits_for_the_next_reading() -> None:
    table = pa.table({"v": pa.array([1.0, 2.0, 4.0, None]), "w": pa.array([1, 2, 3, 4], pa.int8())})
    plan, done = fit([Standardize("v"), FillNull("v", "mean"), Standardize("w"), Standardize("v")], table)
    assert plan.scans == (0, 1, 0, 1)
    assert done[1]["v"] == pytest.approx(0, abs=1e-7)
    assert done[3]["v"]["n"] == 4


@pytest.mark.parametrize("values", [[3.1, 3.1, 3.1, None], [7.0], [1e300, 1e300]])
def test_a_column_without_spread_becomes_zero_and_that_is_said(values: list[float | None]) -> None:
    table = pa.table({"v": pa.array([*values, math.inf, math.nan], pa.float64())})
    step = Standardize("v")
    _, done = fit([step], table)
    out = through([step], table).column("v").to_pylist()
    assert [v for v in out if v is not None][: len([v for v in values if v is not None])] == [0.0] * sum(
        v is not None for v in values
    )
    assert out[-2] == math.inf
    assert out[-1] != out[-1]
    assert step.warnings(done[0]) == ("all values of v that it was fitted on are equal: it is 0 after Standardize",)


def test_rows_of_a_large_offset_keep_their_spread() -> None:
    table = pa.table({"v": pa.array([(1 << 60) + v for v in (1, 2, 3)], pa.int64())})
    out = through([Standardize("v")], table)
    _, done = fit([Standardize("v")], table)
    assert done[0]["v"]["std"] == pytest.approx(math.sqrt(2 / 3), rel=1e-15)
    assert out.column("v").to_pylist() == pytest.approx([-1.2247449, 0.0, 1.2247449])


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2, max_size=20))
def test_any_integers_are_scaled_without_wrapping(values: list[int]) -> None:
    mean = Fraction(sum(values), len(values))
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    out = through([Standardize("v")], pa.table({"v": pa.array(values, pa.int64())})).column("v").to_pylist()
    right = [float(v - mean) / spread if spread else 0.0 for v in values]
    assert out == pytest.approx(right, rel=1e-6, abs=1e-6)


def test_a_result_beyond_float32_is_refused() -> None:
    plan, done = fit([Standardize("v")], pa.table({"v": [0.0, 1.0]}))
    with pytest.raises(CastError, match="its standardized value 2e\\+300 is beyond float32"):
        both(plan, done, pa.record_batch({"v": [1e300]}))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda: FillNull("v", None), "None is NULL itself"),
        (lambda: FillNull([], 1), "names no column"),
        (lambda: FillNull(["v", "v"], 1), "names v twice"),
        (lambda: FillNull(["v", "w"], 1, indicator="i"), "one indicator"),
        (lambda: Standardize("v", ddof=2), "ddof is 2"),
        (lambda: Standardize("v", nan="drop"), "nan is 'drop'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(step: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        step()


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        (FillNull("v", 1.5), pa.int64(), "no int64"),
        (FillNull("v", 300), pa.int8(), "no int8"),
        (FillNull("v", True), pa.int8(), "no int8"),  # noqa: FBT003
        (FillNull("v", 1), pa.bool_(), "no bool"),
        (FillNull("v", 1e39), pa.float32(), "beyond float"),
        (FillNull("v", "x"), pa.float64(), "no double"),
        (FillNull("v", Decimal("0.123")), pa.decimal128(5, 2), "no decimal"),
        (FillNull("v", "mean"), pa.string(), "has no mean"),
        (FillNull("v", "mean"), pa.bool_(), "has no mean"),
        (FillNull("v", "mean"), pa.timestamp("us"), "has no mean"),
        (Standardize("v"), pa.string(), "not a number"),
        (Standardize("v"), pa.date32(), "not a number"),
    ],
)
def test_a_step_that_a_column_does_not_take_is_refused_before_a_row_is_read(
    step: Transform, kind: pa.DataType, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        planned([step], Schema((Field("v", kind),)))
    assert "step 1 of prepare" in str(caught.value)


def test_a_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(SchemaError, match="prize"):
        planned([FillNull("prize", 0)], Schema((Field("price", pa.int64()),)))


def test_nan_may_be_refused() -> None:
    with pytest.raises(DataError, match="1 values of v are NaN"):
        fit([Standardize("v", nan="error")], pa.table({"v": [1.0, math.nan]}))


def test_the_input_is_not_changed() -> None:
    table = pa.table({"v": pa.array([1, None], pa.int64())})
    given = schema_of(table)
    frame = PANDAS.from_arrow(table, given)
    before = frame.copy(deep=True)
    FillNull("v", 5).apply(frame, given, {})
    assert frame.equals(before)
