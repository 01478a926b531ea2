"""Steps on columns of every kind: exact where arithmetic can be, and refused before a row is read where it cannot."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError, SchemaError
from etl.core.schema import Field, Schema
from etl.transforms import FillNull, Standardize
from etl.transforms.fit import planned
from tests.preparing import both, fit, through

LONG = Context(prec=80)
LABELS = pa.dictionary(pa.int32(), pa.string())


def digits(value: int, scale: int) -> Decimal:
    return Decimal(value).scaleb(-scale, LONG)


@given(st.integers(1, 38), st.integers(-2, 6), st.data())
def test_decimals_of_any_width_are_fitted_exactly(precision: int, scale: int, data: st.DataObject) -> None:
    scale = min(scale, precision)
    most = 10**precision - 1
    whole = data.draw(st.lists(st.one_of(st.none(), st.integers(-most, most)), min_size=1, max_size=12))
    cuts = sorted(min(c, len(whole)) for c in data.draw(st.lists(st.integers(0, 12), max_size=2)))
    present = [Fraction(v) for v in whole if v is not None]
    if not present:
        return
    kind = pa.decimal128(precision, scale)
    table = pa.table({"v": pa.array([None if v is None else digits(v, scale) for v in whole], kind)})
    mean = sum(present) / len(present)
    out = through([FillNull("v", "mean")], table, cuts).column("v")
    assert out.type == kind
    assert out.to_pylist() == [digits(round(mean) if v is None else v, scale) for v in whole]
    step = Fraction(10) ** -scale
    full = [Fraction(round(mean)) if v is None else Fraction(v) for v in whole]
    middle = sum(full) / len(full)
    _, done = fit([FillNull("v", "mean"), Standardize("v")], table, cuts)
    assert done[1]["v"]["mean"] == float(middle * step)
    spread = math.sqrt(sum((v - middle) ** 2 for v in full) / len(full) * step**2)
    assert done[1]["v"]["std"] == pytest.approx(spread, rel=1e-14, abs=0)


@pytest.mark.parametrize("kind", [pa.decimal32(5, 2), pa.decimal64(18, 2), pa.decimal128(19, 2), pa.decimal256(40, 2)])
def test_decimals_of_any_storage_have_their_own_unit(kind: pa.DataType) -> None:
    table = pa.table({"v": pa.array([Decimal("1.25"), None, Decimal("1.27")], kind)})
    _, done = fit([FillNull("v", "mean"), Standardize("v")], table)
    assert done[0]["v"] == "1.26"
    assert done[1]["v"]["mean"] == 1.26
    assert done[1]["v"]["std"] == pytest.approx(0.01 * math.sqrt(2 / 3), rel=1e-15)


def test_a_decimal_of_more_digits_than_frames_hold_is_named() -> None:
    with pytest.raises(CastError, match="column v"):
        fit([Standardize("v")], pa.table({"v": pa.array([Decimal(10) ** 60], pa.decimal256(76, 0))}))


def test_decimals_whose_spread_float64_does_not_hold_are_warned_of() -> None:
    step = Standardize("v")
    near = pa.array([Decimal(10**30 + v) for v in range(4)], pa.decimal128(38, 0))
    _, done = fit([step], pa.table({"v": near}))
    assert done[0]["v"]["std"] == pytest.approx(math.sqrt(1.25), rel=1e-15)
    (text,) = step.warnings(done[0])
    assert "float64 holds little of their spread" in text
    _, done = fit([step], pa.table({"v": pa.array([Decimal("19.99"), Decimal("5.01")], pa.decimal128(38, 2))}))
    assert step.warnings(done[0]) == ()


@given(st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=20), st.integers(0, (1 << 64) - 1001))
def test_unsigned_numbers_near_2_to_the_64_keep_their_spread(small: list[int | None], offset: int) -> None:
    values = [None if v is None else v + offset for v in small]
    present = [v for v in values if v is not None]
    if not present:
        return
    mean = Fraction(sum(present), len(present))
    spread = math.sqrt(sum((v - mean) ** 2 for v in present) / len(present))
    out = through([Standardize("v")], pa.table({"v": pa.array(values, pa.uint64())})).column("v").to_pylist()
    right = [None if v is None else float(v - mean) / spread if spread else 0.0 for v in values]
    assert [v is None for v in out] == [v is None for v in right]
    pairs = [(a, b) for a, b in zip(out, right, strict=True) if a is not None and b is not None]
    assert [a for a, _ in pairs] == pytest.approx([b for _, b in pairs], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "value", "first"),
    [
        (pa.date32(), date(2021, 2, 3), date(2020, 1, 1)),
        (pa.date64(), date(2021, 2, 3), date(2020, 1, 1)),
        (pa.timestamp("us"), datetime(2021, 2, 3, 4, 5, 6, 7), datetime(2020, 1, 1)),  # noqa: DTZ001 - without a zone
        (pa.timestamp("s", "UTC"), datetime(2021, 2, 3, 4, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)),
        (pa.time64("us"), time(23, 59, 59, 999999), time(1)),
        (pa.time32("s"), time(2), time(1)),
        (pa.duration("us"), timedelta(-2, microseconds=1), timedelta(1)),
        (pa.string(), "", "a"),
        (pa.large_string(), "ü", "a"),
        (pa.bool_(), False, True),
        (pa.uint64(), (1 << 64) - 1, 1),
        (pa.int64(), Decimal(2), 1),
        (pa.float64(), 1 << 60, 1.0),
        (pa.float16(), 0.5, 1.0),
        (pa.decimal128(38, 0), 10**38 - 1, Decimal(1)),
        (LABELS, "not yet seen", "a"),
    ],
)
def test_a_value_of_the_columns_own_kind_takes_the_place_of_null(kind: pa.DataType, value: Any, first: Any) -> None:
    step = FillNull("v", value, indicator="was_null")
    for values in ([first, None, None], [None], []):
        plan = planned([step], Schema((Field("v", kind),)))
        column: Any = pa.array(values, kind)
        out = both(plan, {}, pa.record_batch({"v": column}))
        assert out.schema.field("v").type == kind
        assert out.column("v").to_pylist() == [value if v is None else v for v in values]
        assert out.column("was_null").to_pylist() == [v is None for v in values]


def test_an_instant_of_another_zone_is_the_same_instant() -> None:
    value = datetime(2021, 2, 3, 4, tzinfo=timezone(timedelta(hours=3)))
    out = through([FillNull("v", value)], pa.table({"v": pa.array([None], pa.timestamp("us", "Europe/Berlin"))}))
    assert out.column("v").to_pylist() == [value]


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (Decimal("2.5"), pa.int64(), "no int64"),
        ((1 << 53) + 1, pa.float64(), "no double"),
        (10**400, pa.float64(), "no double"),
        (math.inf, pa.int32(), "no int32"),
        (math.nan, pa.int32(), "no int32"),
        (math.nan, pa.decimal128(5, 2), "no decimal"),
        (5, pa.timestamp("us"), "no timestamp"),
        (date(2020, 1, 1), pa.timestamp("us"), "no timestamp"),
        (datetime(2020, 1, 1), pa.date32(), "no date32"),  # noqa: DTZ001 - without a zone
        (datetime(2020, 1, 1), pa.timestamp("us", "UTC"), "without a zone"),  # noqa: DTZ001 - without a zone
        (datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us"), "with a zone"),
        (1, pa.string(), "no string"),
        (b"x", pa.binary(), "no binary"),
        ([1], pa.list_(pa.int64()), "no list"),
        ({"a": 1}, pa.struct([("a", pa.int64())]), "no struct"),
        (1, pa.null(), "no null"),
    ],
)
def test_a_value_of_another_kind_is_refused_before_a_row_is_read(value: Any, kind: pa.DataType, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([FillNull("v", value)], Schema((Field("v", kind),)))


def test_a_label_that_an_enum_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="none of its labels"):
        planned([FillNull("v", "z")], Schema((Field("v", LABELS, vocabulary=("a", "b")),)))


def test_a_column_that_no_frame_carries_is_refused_before_a_row_is_read() -> None:
    class Step(FillNull):
        """Takes whatever it is given."""

        def output_schema(self, given: Schema, /) -> Schema:
            """The same."""
            return given

    with pytest.raises(SchemaError, match="step 1 of prepare"):
        planned([Step("v", 1)], Schema((Field("v", pa.binary()),)))


@pytest.mark.parametrize(("indicator", "words"), [("w", "a column w already"), ("v", "a column v already")])
def test_an_indicator_is_a_new_column(indicator: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([FillNull("v", 0, indicator=indicator)], Schema((Field("v", pa.int64()), Field("w", pa.int64()))))


@pytest.mark.parametrize("indicator", ["", 5])
def test_an_indicator_has_a_name(indicator: Any) -> None:
    with pytest.raises(ConfigError, match="the indicator is"):
        FillNull("v", 0, indicator=indicator)


def test_numbers_of_numpy_are_the_same_steps() -> None:
    assert repr(FillNull("v", np.float64(3))) == repr(FillNull("v", 3.0))
