"""Every type into every dtype under every policy, against the rules worked out in whole fractions.

The oracle knows no NumPy cast: it rounds exact numbers by the definition of each format.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.tensors.cast import CastCount, Refused, into, parse_fill

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns

POLICIES = ("exact", "round", "saturate")
FLOATS = {
    "float16": (11, -24, 15),
    "bfloat16": (8, -133, 127),
    "float32": (24, -149, 127),
    "float64": (53, -1074, 1023),
}
"""Bits of the significand, exponent of the smallest step, exponent of the largest number."""
INTEGERS = {
    **{f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (0, 2**b - 1) for b in (8, 16, 32, 64)},
    "bool": (0, 1),
}
DTYPES = (*FLOATS, *INTEGERS)
WIDE = Context(prec=500)


@dataclass
class Wanted:
    """What one value becomes: a number, or a reason to refuse it; whether it was changed on the way."""

    value: float | int = 0
    refused: bool = False
    rounded: bool = False
    saturated: bool = False
    error: Fraction = Fraction(0)


def nearest(value: Fraction, dtype: str) -> Fraction | None:
    """The nearest number of a float format, ties to even; None beyond the largest."""
    bits, smallest, top = FLOATS[dtype]
    if not value:
        return value
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    step = Fraction(2) ** max(exponent - bits + 1, smallest)
    found = round(size / step) * step
    if found > (2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** top:
        return None
    return found if value > 0 else -found


def largest(dtype: str) -> Fraction:
    bits, _, top = FLOATS[dtype]
    return (2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** top


def sure(value: Decimal, dtype: str, scale: int) -> bool:
    """So few digits, not counting zeros behind the point, that the format's own shortest text is the decimal again."""
    digits, places = {"float16": (3, 7), "bfloat16": (2, 40), "float32": (6, 44), "float64": (15, 320)}[dtype]
    text = format(value, "f")
    text = text.rstrip("0") if "." in text else text
    return len(text.replace(".", "").lstrip("-0")) <= digits and scale <= places


def into_float(value: Any, dtype: str, policy: str, scale: int | None) -> Wanted:
    if isinstance(value, float) and not math.isfinite(value):
        return Wanted(value)
    exact = Fraction(value)
    found = nearest(exact, dtype)
    if found is None:
        if policy != "saturate":
            return Wanted(refused=True)
        most = largest(dtype)
        return Wanted(float(most if exact > 0 else -most), saturated=True)
    if scale is None:
        changed = found != exact
    else:
        image = WIDE.divide(Decimal(found.numerator), Decimal(found.denominator))
        image = image.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=WIDE)
        changed = image != value and not sure(value, dtype, scale)
    if changed and policy == "exact":
        return Wanted(refused=True)
    out = float(found)
    if not found:
        out = math.copysign(0.0, value)
    return Wanted(out, rounded=changed, error=abs(found - exact) if changed else Fraction(0))


def into_integer(value: Any, dtype: str, policy: str) -> Wanted:
    low, high = INTEGERS[dtype]
    if isinstance(value, float) and math.isnan(value):
        return Wanted(refused=True)
    if isinstance(value, float) and math.isinf(value):
        return Wanted(high if value > 0 else low, saturated=True) if policy == "saturate" else Wanted(refused=True)
    whole = round(Fraction(value))
    changed = whole != Fraction(value)
    if not low <= whole <= high:
        if policy != "saturate":
            return Wanted(refused=True)
        return Wanted(high if whole > high else low, saturated=True)
    if changed and policy == "exact":
        return Wanted(refused=True)
    return Wanted(whole, rounded=changed, error=abs(whole - Fraction(value)) if changed else Fraction(0))


def seen(out: np.ndarray[Any, Any], dtype: str) -> list[Any]:
    if dtype == "bfloat16":
        return [float(v) for v in (out.astype(np.uint32) << 16).view(np.float32)]
    return [float(v) if dtype in FLOATS else int(v) for v in out]


def check(column: Any, values: list[Any], dtype: str, policy: str, scale: int | None = None) -> None:
    """Hold one column against the oracle; absent values are None."""
    wanted = [
        Wanted(0)
        if v is None
        else into_float(v, dtype, policy, scale)
        if dtype in FLOATS
        else into_integer(v, dtype, policy)
        for v in values
    ]
    out = np.full(len(values), 3, np.uint16 if dtype == "bfloat16" else dtype)
    count = CastCount()
    refused = [i for i, w in enumerate(wanted) if w.refused]
    if refused:
        with pytest.raises(Refused) as error:
            into(column, out, dtype, policy, count)  # type: ignore[arg-type]
        if dtype in FLOATS:
            assert error.value.row == refused[0]
        else:
            assert error.value.row in refused
        return
    into(column, out, dtype, policy, count)  # type: ignore[arg-type]
    for got, want in zip(seen(out, dtype), wanted, strict=True):
        same = math.isnan(got) if isinstance(want.value, float) and math.isnan(want.value) else got == want.value
        assert same, (got, want)
        if dtype in FLOATS and got == 0:
            assert math.copysign(1, got) == math.copysign(1, float(want.value))
    assert count.n_rounded == sum(w.rounded for w in wanted)
    assert count.n_saturated == sum(w.saturated for w in wanted)
    most = max((w.error for w in wanted), default=Fraction(0))
    # A decimal's error is that of its nearest float64.
    slack = 0.0 if scale is None else max(abs(float(v)) for v in values if v is not None) * 2**-52 if most else 0.0
    assert math.isclose(count.max_abs_error, most, rel_tol=1e-9, abs_tol=slack)


def near(values: st.SearchStrategy[Any], edges: list[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.sampled_from(edges), values)


def ties(bits: int, top: int) -> list[int]:
    """Integers on and beside the places where a format of so many bits turns from one number to the next."""
    found = []
    for exponent in range(bits, top):
        half = 1 << (exponent - bits)
        for base in ((1 << exponent) + half, (1 << exponent) + 3 * half):
            found += [base - 1, base, base + 1, -base, -base - 1]
    return found


WHOLE = [e + d for p in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64) for e in (2**p, -(2**p)) for d in (-1, 0, 1)]
WHOLE += [
    65503,
    65504,
    65519,
    65520,
    65521,
    2049,
    2050,
    2051,
    257,
    258,
    *ties(8, 63),
    *ties(24, 63)[:200],
    *ties(53, 63),
]
KINDS = {
    "bool": (pa.bool_(), 0, 1),
    **{k: (getattr(pa, k)(), *INTEGERS[k]) for k in INTEGERS if k != "bool"},
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), policy=st.sampled_from(POLICIES))
def test_integers(kind: str, data: st.DataObject, dtype: str, policy: str) -> None:
    type_, low, high = KINDS[kind]
    edges = [v for v in (0, 1, *WHOLE) if low <= v <= high]
    values = data.draw(st.lists(near(st.integers(low, high), edges), min_size=1, max_size=6))
    column = pa.array([v if v is None or kind != "bool" else bool(v) for v in values], type_)
    check(column, values, dtype, policy)


def float_edges(width: int) -> list[float]:
    found = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, 1.5, 2.5, -0.5, 0.7, -0.2, 1.0, 1.4999]
    found += [float(number) for number in WHOLE[::3]]
    for bits, smallest, top in FLOATS.values():
        most = float((2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** top)
        least = math.ldexp(1.0, smallest)
        found += [most, -most, least, least / 2, least * 0.75, least * 1.5, math.nextafter(least / 2, 1)]
        if bits < 53:
            edge = most + math.ldexp(1.0, top - bits)
            found += [edge, math.nextafter(edge, 0), math.nextafter(edge, math.inf)]
            tie = 1 + math.ldexp(1.0, -bits)
            found += [tie, math.nextafter(tie, 0), math.nextafter(tie, 2), 1 + 3 * math.ldexp(1.0, -bits)]
    codes = {16: "e", 32: "f", 64: "d"}
    kept = []
    for value in found:
        try:
            if struct.unpack(codes[width], struct.pack(codes[width], value))[0] == value or math.isnan(value):
                kept.append(value)
        except OverflowError:
            continue
    return kept


@pytest.mark.parametrize("width", [16, 32, 64])
@settings(max_examples=80)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), policy=st.sampled_from(POLICIES))
def test_floats(width: Literal[16, 32, 64], data: st.DataObject, dtype: str, policy: str) -> None:
    values = data.draw(st.lists(near(st.floats(width=width), float_edges(width)), min_size=1, max_size=6))
    array = np.array([0 if v is None else v for v in values], f"float{width}")
    column = pa.array(array, mask=np.array([v is None for v in values]))
    check(column, values, dtype, policy)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    digits = st.one_of(st.integers(-most, most), st.integers(-999, 999).filter(lambda v: abs(v) <= most))
    return digits.map(lambda d: Decimal(d).scaleb(-scale, WIDE))


SHAPES = [
    (pa.decimal128, 3, 2), (pa.decimal128, 5, 2), (pa.decimal128, 6, 6), (pa.decimal128, 15, 0),
    (pa.decimal128, 15, 12), (pa.decimal128, 15, 14), (pa.decimal128, 18, 2), (pa.decimal128, 38, 18),
    (pa.decimal128, 38, 37), (pa.decimal128, 3, 9), (pa.decimal128, 5, -3), (pa.decimal256, 10, 2),
    (pa.decimal256, 60, 30), (pa.decimal32, 7, 3), (pa.decimal64, 16, 4),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0].__name__}_{s[1]}_{s[2]}")
@settings(max_examples=40)
@given(data=st.data(), dtype=st.sampled_from(list(FLOATS)), policy=st.sampled_from(POLICIES))
def test_decimals(shape: tuple[Any, int, int], data: st.DataObject, dtype: str, policy: str) -> None:
    make, precision, scale = shape
    values = data.draw(st.lists(st.one_of(st.none(), decimals(precision, scale)), min_size=1, max_size=6))
    check(pa.array(values, make(precision, scale)), values, dtype, policy, scale)


@settings(max_examples=80)
@given(
    st.sampled_from(["float16", "bfloat16", "float32"]),
    st.integers(0, 2**24 - 1),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)
@example("float32", 0, 1, 1)
@example("float16", 0, -1, 1)
def test_a_decimal_beside_a_tie_is_rounded_once(dtype: str, step: int, beside: int, sign: int) -> None:
    bits = FLOATS[dtype][0]
    tie = Decimal(1) + Decimal(2 * (step % 2 ** (bits - 1)) + 1) * Decimal(2) ** -bits
    value = sign * (tie + Decimal(beside).scaleb(-30))
    check(pa.array([value, None], pa.decimal128(38, 30)), [value, None], dtype, "round", 30)
    # 15 digits cannot come as near, but nearer than a float64 tells apart.
    short = sign * tie.quantize(Decimal(1).scaleb(-14))
    check(pa.array([short], pa.decimal128(15, 14)), [short], dtype, "round", 14)


@pytest.mark.parametrize("value", ["65519.999999999999999999", "65520", "65520.000000000000000001"])
def test_a_decimal_beside_the_end_of_float16(value: str) -> None:
    column = pa.array([Decimal(value)], pa.decimal128(38, 18))
    for policy in POLICIES:
        check(column, [Decimal(value)], "float16", policy, 18)


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("make", [pa.timestamp, pa.duration, pa.time64, pa.time32])
@settings(max_examples=20)
@given(
    data=st.data(), dtype=st.sampled_from(["int64", "float64", "float32", "int32"]), policy=st.sampled_from(POLICIES)
)
def test_times_are_microseconds(make: Any, unit: str, data: st.DataObject, dtype: str, policy: str) -> None:
    if (make is pa.time64 and unit in "sms") or (make is pa.time32 and unit in {"us", "ns"}):
        return
    kind = make(unit)
    top = min(2**63 - 1, (2**63 - 1) * UNITS[unit] // 10**6)
    top = min(top, 2**31 - 1) if kind.bit_width == 32 else top
    ticks = data.draw(
        st.lists(
            st.one_of(st.none(), st.integers(-top, top), st.sampled_from([0, 500, 1500, -500, 2500, 1, -1])),
            min_size=1,
            max_size=6,
        )
    )
    ints = pa.int32() if kind.bit_width == 32 else pa.int64()
    values = [None if t is None else Fraction(t * 10**6, UNITS[unit]) for t in ticks]
    whole = all(v is None or v.denominator == 1 for v in values)
    if dtype == "int64" or (policy == "exact" and whole):
        check(pa.array(ticks, ints).view(kind), values, dtype, policy)


REFUSED_FILLS = {
    "257": {"bfloat16"},
    "2049": {"float16", "bfloat16"},
    "65504": {"bfloat16"},
    "65520": {"float16", "bfloat16"},
    "16777217": {"float16", "bfloat16", "float32"},
    "9007199254740993": set(FLOATS),
    "18446744073709551615": set(FLOATS),
    "-9223372036854775808": {"float16"},
    "0.30000001": {"float16", "bfloat16", "float32"},
    "1e39": {"float16", "bfloat16", "float32"},
    "1e999999999": set(FLOATS),
    "5e-324": {"float16", "bfloat16", "float32"},
    "x": set(FLOATS),
    "": set(FLOATS),
}
"""The float dtypes that do not hold a value; an integer dtype holds every whole number in its range."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", [*REFUSED_FILLS, "0", "1", "-1", "256", "0.1", "0.25", "1.5", "-0.0", "nan", "-inf"])
def test_a_fill_value_is_exact_in_every_dtype_that_holds_it(text: str, dtype: str) -> None:
    if dtype in FLOATS:
        held = dtype not in REFUSED_FILLS.get(text, set())
    else:
        low, high = INTEGERS[dtype]
        whole = text.lstrip("-").isdigit() or (text == "-0.0" and dtype != "bool")
        held = whole and low <= int(Decimal(text)) <= high
    if not held:
        with pytest.raises((ValueError, ArithmeticError)):
            parse_fill(text, dtype)
        return
    (got,) = seen(np.array([parse_fill(text, dtype)], np.uint16 if dtype == "bfloat16" else dtype), dtype)
    if dtype in FLOATS:
        want = float(text)
        near = nearest(Fraction(text), dtype) if math.isfinite(want) else want
        assert math.isnan(got) if math.isnan(want) else got == near
        assert math.copysign(1, got) == math.copysign(1, want)
    else:
        assert got == int(Decimal(text))


def test_dates_are_days() -> None:
    days = [0, None, -719528, 2**31 - 1, -(2**31)]
    check(pa.array(days, pa.int32()).view(pa.date32()), days, "int32", "exact")
    check(pa.array(days, pa.int32()).view(pa.date32()), days, "int16", "saturate")
    millis = pa.array([None if d is None else d * 86_400_000 for d in days], pa.int64()).view(pa.date64())
    check(millis, days, "int32", "exact")
