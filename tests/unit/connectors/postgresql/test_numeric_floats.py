"""Numerics as float64: rounded once from the digits, as Python's own correctly rounded conversion has it."""

from __future__ import annotations

import math
import struct
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.base import Tally
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.copy import Decoder
from connectors.postgresql.types import as_float
from etl.core.errors import CastError, DataError, SchemaError
from etl.tensors.cast import CastCount, Refused, into

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
OPEN = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(38, 18), precision=38, scale=18, open=True)
MONEY = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(15, 4), precision=15, scale=4)
WORDS = {"NaN": 0xC000, "Infinity": 0xD000, "-Infinity": 0xF000}


def sent(value: Decimal) -> bytes:
    """numeric_send of a value (numeric.c): base 10000, no zero groups at either end."""
    if not value.is_finite():
        word = WORDS["NaN" if value.is_nan() else str(value)]
        return struct.pack(">hhHh", 0, 0, word, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    text = ("".join(map(str, digits)) + "0" * max(0, exponent)).rjust(scale, "0")
    whole, fraction = (text[: len(text) - scale], text[len(text) - scale :].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and not groups[0]:
        groups.pop(0)
        weight -= 1
    while groups and not groups[-1]:
        groups.pop()
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight if groups else 0, sign << 14, scale, *groups)


def read(values: list[bytes | None], plan: ColumnPlan, **policy: Any) -> tuple[list[float | None], Tally]:
    tally = Tally()
    bound = as_float(ColumnPlan(**{**{n: getattr(plan, n) for n in plan.__slots__}, **policy}), pa.float64())
    schema = pa.schema([pa.field("v", pa.float64())])
    decoder = Decoder([bound], schema, tally=tally, batch_bytes=256, block_bytes=4096)
    rows = b"".join(struct.pack(">hi", 1, -1) if v is None else struct.pack(">hi", 1, len(v)) + v for v in values)
    batches = [*decoder.feed(HEAD + rows + b"\xff\xff"), *decoder.finish()]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema).column("v").to_pylist(), tally


def same(found: list[float | None], right: list[float | None]) -> bool:
    bits = [[None if v is None or math.isnan(v) else struct.pack(">d", v) for v in one] for one in (found, right)]
    nans = [[v is not None and math.isnan(v) for v in one] for one in (found, right)]
    return bits[0] == bits[1] and nans[0] == nans[1]


decimals = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-10**11, max_value=10**11),
    st.decimals(allow_nan=False, allow_infinity=False).filter(lambda d: -400 < d.adjusted() < 400),
    st.floats(allow_nan=False, allow_infinity=False).map(Decimal).filter(lambda d: -(d.as_tuple().exponent) < 400),  # type: ignore[arg-type]
    st.builds(lambda n, e: Decimal(n).scaleb(e, Context(prec=999, Emax=MAX_EMAX, Emin=MIN_EMIN)),
              st.integers(-10**30, 10**30), st.integers(-60, 40)),
)  # fmt: skip


@given(values=st.lists(st.one_of(st.none(), st.sampled_from([Decimal(w) for w in WORDS]), decimals), max_size=30))
@example(values=[Decimal(9007199254740993), Decimal("0.1"), Decimal("-0.000"), Decimal("1e25"), Decimal("1e-25")])
@example(values=[Decimal(999999999999999), Decimal("1000000000000000.5"), Decimal("4.35"), Decimal("1.15")])
def test_open_numerics_are_rounded_once_from_their_digits(values: list[Decimal | None]) -> None:
    found, _ = read([None if v is None else sent(v) for v in values], OPEN, cast="saturate")
    # A numeric has no negative zero.
    right = [None if v is None else (float(v) if v else 0.0) for v in values]
    biggest = float(np.finfo(np.float64).max)
    right = [
        math.copysign(biggest, r) if r is not None and v is not None and v.is_finite() and math.isinf(r) else r
        for r, v in zip(right, values, strict=True)
    ]
    assert same(found, right)


@given(values=st.lists(st.one_of(st.none(), st.just(Decimal("NaN")), st.integers(-(10**15) + 1, 10**15 - 1))))
def test_declared_numerics_of_15_digits_are_one_division(values: list[Decimal | int | None]) -> None:
    scaled = [Decimal(v).scaleb(-4) if isinstance(v, int) else v for v in values]
    found, tally = read([None if v is None else sent(v) for v in scaled], MONEY)
    assert same(found, [None if v is None else float(v) for v in scaled])
    assert not tally.rounded
    assert not tally.special


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("0.1", True),
        ("123456789012345", True),
        ("123456789012345.67", True),
        ("9007199254740993", False),
        ("9007199254740992", True),
        ("0.33333333333333333333", False),
        ("1e300", True),
        ("1e-320", True),
        ("1.23456e-320", False),
        ("0.5000000000000000000000000000000000", True),
    ],
)
def test_a_float_stands_for_a_numeric_when_it_gives_it_back(text: str, exact: bool) -> None:  # noqa: FBT001
    value = Decimal(text)
    found, tally = read([sent(value)], OPEN, cast="round")
    assert found == [float(value)]
    assert tally.rounded == ({} if exact else {"v": 1})
    if exact:
        assert read([sent(value)], OPEN)[0] == found
    else:
        with pytest.raises(CastError, match=r"column v.*not exact in float64.*--cast round"):
            read([sent(value)], OPEN)


@pytest.mark.parametrize("cast", ["exact", "round"])
def test_a_finite_number_never_becomes_infinite(cast: str) -> None:
    with pytest.raises(CastError, match="beyond the largest float64"):
        read([sent(Decimal("1e309"))], OPEN, cast=cast)
    assert read([sent(Decimal("-1e309"))], OPEN, cast="saturate")[0] == [-float(np.finfo(np.float64).max)]


@pytest.mark.parametrize("plan", [OPEN, MONEY])
@pytest.mark.parametrize(
    "raw",
    [b"", b"\0" * 7, struct.pack(">hhHh", 1, 0, 0, 0), struct.pack(">hhHhh", 1, 0, 0, 0, 10000),
     struct.pack(">hhHh", 0, 0, 0x1234, 0), struct.pack(">hhHhh", -1, 0, 0, 0, 1)],
)  # fmt: skip
def test_bytes_that_are_no_numeric_are_refused(plan: ColumnPlan, raw: bytes) -> None:
    with pytest.raises(DataError, match="column v"):
        read([raw], plan)


@given(
    weight=st.integers(-32768, 32767), digit=st.integers(1, 9999), special=st.sampled_from(["error", "null", "clamp"])
)
def test_a_declared_numeric_of_any_weight_ends(weight: int, digit: int, special: str) -> None:
    raw = struct.pack(">hhHhh", 1, weight, 0, 4, digit)
    try:
        found, _ = read([raw], MONEY, special=special)
    except (CastError, DataError):
        return
    assert found == [float(Decimal(digit).scaleb(4 * weight))]


def test_only_numerics_become_floats() -> None:
    with pytest.raises(SchemaError, match="column n"):
        as_float(ColumnPlan("n", Kind.MONEY, pa.decimal128(19, 2)), pa.float64())
    with pytest.raises(SchemaError, match="cannot be read as float"):
        as_float(MONEY, pa.float32())


@given(
    values=st.lists(st.decimals(-(10**8), 10**8, places=2), min_size=1, max_size=20),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_narrower_floats_take_the_same_values_whether_decimals_come_as_floats(
    values: list[Decimal], dtype: str
) -> None:
    kind = pa.decimal128(12, 2)
    outcomes = []
    for column in (pa.array(values, kind), pa.array([float(v) for v in values], pa.float64())):
        out = np.zeros(len(values), dtype)
        count = CastCount()
        try:
            into(column, out, dtype, "exact", count, declared=kind)
            outcomes.append(out.tolist())
        except Refused as refused:
            outcomes.append([refused.row])
    assert outcomes[0] == outcomes[1]
