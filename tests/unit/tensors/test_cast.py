"""Casts: what is exact stays exact, what is changed is counted, nothing turns into infinity."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.tensors.cast import CastCount, Refused, into, parse_fill

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


POLICIES = ("exact", "round", "saturate")


def cast(column: Any, dtype: str, policy: str = "exact") -> tuple[list[Any], CastCount]:
    out = np.full(len(column), 77, np.uint16 if dtype == "bfloat16" else dtype)
    count = CastCount()
    into(column, out, dtype, policy, count)  # type: ignore[arg-type]
    return out.tolist(), count


def bf16(bits: int) -> float:
    return float(np.array([bits << 16], np.uint32).view(np.float32)[0])


def test_same_dtype_is_a_copy_and_absent_values_are_zero() -> None:
    big = 2**53 + 1
    assert cast(pa.array([big, None, -big]), "int64")[0] == [big, 0, -big]
    assert cast(pa.array([True, None, False]), "bool")[0] == [True, False, False]
    sliced = pa.array([None, True, False, True, None])[1:4]
    assert cast(sliced, "bool")[0] == [True, False, True]


def test_an_integer_beyond_float32_is_refused_or_counted() -> None:
    column = pa.array([16777217, None], pa.int32())
    with pytest.raises(Refused) as refused:
        cast(column, "float32")
    assert refused.value.row == 0
    values, count = cast(column, "float32", "round")
    assert values == [16777216.0, 0.0]
    assert (count.n_rounded, count.max_abs_error) == (1, 1.0)


def test_a_finite_value_never_becomes_infinite() -> None:
    for policy in ("exact", "round"):
        with pytest.raises(Refused, match="largest finite"):
            cast(pa.array([1e300]), "float32", policy)
    values, count = cast(pa.array([1e300, -1e300, float("inf")]), "float32", "saturate")
    most = float(np.finfo(np.float32).max)
    assert values == [most, -most, float("inf")]
    assert (count.n_saturated, count.n_rounded) == (2, 0)


def test_narrow_floats() -> None:
    with pytest.raises(Refused):
        cast(pa.array([65520.0]), "float16", "round")
    assert cast(pa.array([65520.0]), "float16", "saturate")[0] == [65504.0]
    assert cast(pa.array([2049.0]), "float16", "round")[0] == [2048.0]
    bits, count = cast(pa.array([257.0]), "bfloat16", "round")
    assert bf16(bits[0]) == 256.0
    assert count.n_rounded == 1
    for value, dtype in ((65520.0, "float16"), (2049.0, "float16"), (257.0, "bfloat16")):
        with pytest.raises(Refused):
            cast(pa.array([value]), dtype)


def test_nan_is_kept_in_floats_and_refused_by_integers_and_bools() -> None:
    column = pa.array([1.0, float("nan")])
    assert np.isnan(cast(column, "float32")[0][1])
    for dtype in ("int64", "bool"):
        for policy in POLICIES:
            with pytest.raises(Refused, match="NaN"):
                cast(column, dtype, policy)


def test_every_unit_of_time_is_int64_microseconds() -> None:
    seconds = 1704067200
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        for kind in (pa.timestamp(unit, "UTC"), pa.duration(unit)):
            column = pa.array([seconds * factor, None], pa.int64()).view(kind)
            assert cast(column, "int64")[0] == [seconds * 10**6, 0]
    with pytest.raises(Refused, match="finer"):
        cast(pa.array([1], pa.int64()).view(pa.timestamp("ns")), "int64")
    with pytest.raises(Refused, match="beyond"):
        cast(pa.array([2**62], pa.int64()).view(pa.timestamp("s")), "int64")


def test_decimals_are_scaled_integers_or_exact_floats() -> None:
    column = pa.array([Decimal("1.10"), Decimal("1.15"), Decimal("-0.01"), None], pa.decimal128(5, 2))
    assert cast(column, "int64")[0] == [110, 115, -1, 0]
    assert cast(column, "float64")[0] == [1.1, 1.15, -0.01, 0.0]
    assert cast(column, "float32")[0] == [float(np.float32(v)) for v in (1.1, 1.15, -0.01, 0.0)]
    with pytest.raises(Refused):
        cast(pa.array([Decimal("16777217.00")], pa.decimal128(10, 2)), "float32")
    wide = pa.array([Decimal("1.5"), Decimal("100.25"), None, Decimal("0.000000000000000001")], pa.decimal128(38, 18))
    assert cast(wide, "float64")[0] == [1.5, 100.25, 0.0, 1e-18]
    with pytest.raises(Refused):
        cast(pa.array([Decimal("12345678901234567890.1")], pa.decimal128(38, 18)), "float64")


@given(st.lists(st.one_of(st.none(), st.decimals(-(10**19), 10**19, places=18)), min_size=1, max_size=20))
def test_decimals_become_the_nearest_float_and_exact_says_whether_they_come_back(values: list[Decimal | None]) -> None:
    column = pa.array(values, pa.decimal128(38, 18))
    got, count = cast(column, "float64", "round")
    assert got == [0.0 if v is None else float(v) for v in values]
    step = Decimal(1).scaleb(-18)
    lossy = sum(v is not None and abs(Fraction(float(v)) - Fraction(v)) * 2 > Fraction(step) for v in values)
    assert count.n_rounded == lossy
    if lossy:
        with pytest.raises(Refused):
            cast(column, "float64")
    else:
        assert cast(column, "float64")[0] == got


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20),
    st.sampled_from(["float32", "float64"]),
)
def test_exact_integers_come_back_and_others_are_counted(values: list[int | None], dtype: str) -> None:
    column = pa.array(values, pa.int64())
    out = np.zeros(len(values), dtype)
    count = CastCount()
    into(column, out, dtype, "round", count)
    kept = [v is None or int(out[i]) == v for i, v in enumerate(values)]
    assert count.n_rounded == kept.count(False)
    if all(kept):
        assert cast(column, dtype)[0] == out.tolist()
    else:
        with pytest.raises(Refused) as refused:
            cast(column, dtype)
        assert refused.value.row == kept.index(False)


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_bfloat16_is_rounded_once_to_nearest_even(values: list[float]) -> None:
    column = pa.array(values, pa.float64())
    got, _ = cast(column, "bfloat16", "saturate")
    for value, bits in zip(values, got, strict=True):
        image = bf16(bits)
        if np.isnan(value):
            assert np.isnan(image)
            continue
        if np.isinf(value):
            assert image == value
            continue
        near = [bf16(b) for b in (bits - 1, bits + 1) if 0 <= b < 0xFFFF and np.isfinite(bf16(b))]
        gap = abs(Fraction(image) - Fraction(value))
        assert np.isfinite(image)
        assert all(gap <= abs(Fraction(n) - Fraction(value)) for n in near)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=1, max_size=20),
    st.sampled_from(["int8", "uint16", "int64", "uint64"]),
)
def test_floats_into_integers(values: list[float], dtype: str) -> None:
    column = pa.array(values, pa.float64())
    info = np.iinfo(dtype)
    want = [
        int(max(min(round(v) if np.isfinite(v) else (info.max if v > 0 else info.min), info.max), info.min))
        for v in values
    ]
    assert cast(column, dtype, "saturate")[0] == want
    exact = all(np.isfinite(v) and v == w for v, w in zip(values, want, strict=True))
    if exact:
        assert cast(column, dtype)[0] == want
    else:
        with pytest.raises(Refused):
            cast(column, dtype)


def test_unsigned_64_bit_integers_do_not_wrap() -> None:
    column = pa.array([2**63, 5], pa.uint64())
    assert cast(column, "uint64")[0] == [2**63, 5]
    with pytest.raises(Refused):
        cast(column, "int64", "round")
    assert cast(column, "int64", "saturate")[0] == [2**63 - 1, 5]


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [("0", "int64", 0), ("-1.5", "float32", -1.5), ("true", "bool", True), ("0.1", "float64", 0.1)],
)
def test_fill_values_are_exact(text: str, dtype: str, value: float) -> None:
    assert parse_fill(text, dtype) == value


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("1.5", "int64"), ("300", "uint8"), ("16777217", "float32"), ("x", "int8"), ("2", "bool"), ("1e400", "float64")],
)
def test_inexact_fill_values_are_refused(text: str, dtype: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        parse_fill(text, dtype)
