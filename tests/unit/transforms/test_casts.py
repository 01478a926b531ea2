"""Columns as other types, beside Python's integers, fractions and decimals."""

from __future__ import annotations

import math
import uuid
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError
from etl.core.schema import Field, Schema
from etl.transforms import Cast, DecimalScale
from etl.transforms.fit import applied, planned
from etl.transforms.host import Rows
from tests.preparing import schema_of, through

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
LONG = Context(prec=80)
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
POLICIES = ["exact", "round", "saturate"]


def cast(values: list[Any], kind: pa.DataType, step: Any) -> tuple[list[Any], dict[str, int]]:
    """The values after the step, and what was counted of them."""
    table = pa.table({"v": ARROW.array(values, kind)})
    out = through([step], table).column("v").to_pylist()
    (batch,) = table.to_batches() or [ARROW.record_batch(table.schema.empty_table().to_pydict(), schema=table.schema)]
    rows = applied(planned([step], schema_of(table)), {}, Rows.of_batch(batch, schema_of(table)))
    return out, {what: n for (_, what), n in rows.tally.items()}


def right(values: list[Fraction | None], dtype: str, policy: str, *, away: bool) -> list[Any] | None:
    """The values as integers; None: one is refused."""
    bounds = (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    found: list[Any] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        whole = round(value)
        if away and value.denominator == 2:
            whole = int(value + (Fraction(1, 2) if value > 0 else Fraction(-1, 2)))
        inside = min(max(whole, bounds[0]), bounds[1])
        if (policy == "exact" and inside != value) or (policy == "round" and inside != whole):
            return None
        found.append(bool(inside) if dtype == "bool" else inside)
    return found


@given(
    st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-300, 300)), max_size=6),
    st.sampled_from([*INTEGERS, "bool"]),
    st.sampled_from(POLICIES),
)
def test_integers_become_integers_within_their_limits(values: list[int | None], dtype: Any, policy: Any) -> None:
    exact = "exact" if dtype == "bool" else policy
    expected = right([None if v is None else Fraction(v) for v in values], dtype, exact, away=False)
    if expected is None:
        with pytest.raises(CastError, match=f"column v, row \\d+: .* is no {dtype}: outside"):
            cast(values, pa.int64(), Cast("v", dtype, policy))
        return
    out, counted = cast(values, pa.int64(), Cast("v", dtype, policy))
    assert out == expected
    lost = sum(a != b for a, b in zip(values, out, strict=True))
    assert counted == ({"n_saturated": lost} if lost else {})


@given(
    st.lists(
        st.one_of(st.none(), st.floats(-1e20, 1e20), st.sampled_from([0.5, 1.5, -2.5, 2.0**63, -(2.0**63)])), max_size=6
    ),
    st.sampled_from(INTEGERS),
    st.sampled_from(POLICIES),
)
def test_floats_become_integers_ties_to_even(values: list[float | None], dtype: Any, policy: Any) -> None:
    expected = right([None if v is None else Fraction(v) for v in values], dtype, policy, away=False)
    if expected is None:
        with pytest.raises(CastError, match="column v, row"):
            cast(values, pa.float64(), Cast("v", dtype, policy))
        return
    assert cast(values, pa.float64(), Cast("v", dtype, policy))[0] == expected


@given(st.integers(1, 38), st.integers(-2, 38), st.data())
def test_decimals_become_integers_half_away_from_zero(precision: int, scale: int, data: st.DataObject) -> None:
    scale = min(scale, precision)
    most = 10**precision - 1
    halves = [v for v in (5 * 10 ** (scale - 1), -25 * 10 ** (scale - 1), most) if abs(v) <= most] if scale > 0 else []
    digits = st.one_of(st.none(), st.integers(-most, most), st.sampled_from([0, *halves]))
    values = [None if v is None else Decimal(v).scaleb(-scale, LONG) for v in data.draw(st.lists(digits, max_size=6))]
    dtype, policy = data.draw(st.sampled_from([*INTEGERS, "bool"])), data.draw(st.sampled_from(POLICIES))
    step = Cast("v", dtype, policy)  # type: ignore[arg-type]
    exact = "exact" if dtype == "bool" else policy
    expected = right([None if v is None else Fraction(v) for v in values], dtype, exact, away=True)
    kind = pa.decimal128(precision, scale)
    if expected is None:
        with pytest.raises(CastError, match="column v, row"):
            cast(values, kind, step)
        return
    assert cast(values, kind, step)[0] == expected


def test_what_was_rounded_and_what_was_saturated_is_counted_apart() -> None:
    values = [1.5, 2.0, None, 1e9, -1e9]
    out, counted = cast(values, pa.float64(), Cast("v", "int16", "saturate"))
    assert out == [2, 2, None, 32767, -32768]
    assert counted == {"n_rounded": 1, "n_saturated": 2}
    cents = [None if v is None else Decimal(v).quantize(Decimal("0.1")) for v in values]
    out, counted = cast(cents, pa.decimal128(12, 1), Cast("v", "int16", "saturate"))
    assert out == [2, 2, None, 32767, -32768]
    assert counted == {"n_rounded": 1, "n_saturated": 2}


def test_nan_is_no_integer_whatever_the_policy_and_stays_in_floats() -> None:
    for policy in POLICIES:
        with pytest.raises(CastError, match="column v, row 2: nan is no int32: NaN is no integer"):
            cast([1.0, math.nan], pa.float64(), Cast("v", "int32", policy))  # type: ignore[arg-type]
    out, counted = cast([math.nan, math.inf, None, 0.1], pa.float64(), Cast("v", "float32", "round"))
    assert math.isnan(out[0])
    assert out[1:] == [math.inf, None, float(np.float32(0.1))]
    assert counted == {"n_rounded": 1}


def test_a_float_that_float32_does_not_hold_is_refused_with_the_way_out() -> None:
    with pytest.raises(CastError, match=r"column v, row 2: 0\.1 is no float32: not exact") as caught:
        cast([0.5, 0.1], pa.float64(), Cast("v", "float32"))
    assert caught.value.hint == 'cast="round" carries it.'
    with pytest.raises(CastError, match=r"row 1: 1e\+300 is no float32: beyond"):
        cast([1e300], pa.float64(), Cast("v", "float32", "round"))
    assert cast([1e300], pa.float64(), Cast("v", "float32", "saturate"))[0] == [float(np.finfo(np.float32).max)]
    with pytest.raises(CastError, match="9007199254740993 is no float64"):
        cast([(1 << 53) + 1], pa.int64(), Cast("v", "float64"))


def test_texts_of_integers_bools_and_uuids() -> None:
    assert cast([1, None, -(1 << 63)], pa.int64(), Cast("v", "string"))[0] == ["1", None, "-9223372036854775808"]
    assert cast([True, None, False], pa.bool_(), Cast("v", "string"))[0] == ["true", None, "false"]
    labels = pa.dictionary(pa.int32(), pa.string())
    assert cast(["b", None, "a"], labels, Cast("v", "string"))[0] == ["b", None, "a"]
    one = uuid.UUID(int=5)
    assert cast([one.bytes, None], pa.uuid(), Cast("v", "string"))[0] == [str(one), None]
    for kind in (pa.float64(), pa.timestamp("us"), pa.decimal128(5, 2), pa.list_(pa.int8())):
        with pytest.raises(ConfigError, match="Cast"):
            planned([Cast("v", "string")], Schema((Field("v", kind),)))
    for other in (pa.string(), pa.date32(), pa.list_(pa.int8())):
        with pytest.raises(ConfigError, match="v is"):
            planned([Cast("v", "int32")], Schema((Field("v", other),)))
    with pytest.raises(ConfigError, match="the dtype is 'int31'"):
        Cast("v", "int31")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cast is 'nearest'"):
        Cast("v", "int32", "nearest")  # type: ignore[arg-type]


@given(st.integers(1, 38), st.integers(-2, 38), st.integers(-4, 38), st.data())
def test_decimals_scaled_are_integers_or_refused(precision: int, own: int, scale: int, data: st.DataObject) -> None:
    own = min(own, precision)
    most = 10**precision - 1
    step = 10 ** max(0, own - scale)
    digits = st.one_of(
        st.none(),
        st.integers(-most, most),
        st.integers(-(most // step), most // step).map(lambda v: v * step),
        st.integers(-99, 99).map(lambda v: v * step).filter(lambda v: abs(v) <= most),
    )
    drawn = data.draw(st.lists(digits, max_size=5))
    values = [None if v is None else Decimal(v).scaleb(-own, LONG) for v in drawn]
    scaled = [None if v is None else Fraction(v) * Fraction(10) ** (scale - own) for v in drawn]
    fits = all(v is None or (v.denominator == 1 and -(1 << 63) <= v < 1 << 63) for v in scaled)
    kind = pa.decimal128(precision, own)
    if not fits:
        with pytest.raises(CastError, match=r"column v, row .* for an int64 at scale"):
            cast(values, kind, DecimalScale("v", scale))
        return
    assert cast(values, kind, DecimalScale("v", scale))[0] == [None if v is None else int(v) for v in scaled]


def test_scale_of_money() -> None:
    cents = [Decimal("1.15"), None, Decimal("-0.01")]
    assert cast(cents, pa.decimal128(12, 2), DecimalScale("v"))[0] == [115, None, -1]
    assert cast(cents, pa.decimal64(12, 2), DecimalScale("v", 3))[0] == [1150, None, -10]
    with pytest.raises(CastError, match=r"row 1: 1\.15 has more digits behind the point for an int64 at scale 1"):
        cast(cents, pa.decimal128(12, 2), DecimalScale("v", 1))
    with pytest.raises(CastError, match="is too large"):
        cast([Decimal(10**20)], pa.decimal128(38, 0), DecimalScale("v"))
    with pytest.raises(ConfigError, match="not a decimal"):
        planned([DecimalScale("v")], Schema((Field("v", pa.float64()),)))
    with pytest.raises(ConfigError, match="the scale is"):
        DecimalScale("v", 1.5)  # type: ignore[arg-type]
    assert Decimal("2.5").quantize(Decimal(1), ROUND_HALF_UP) == 3
