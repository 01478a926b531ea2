"""Moments and dates, beside Python's datetime and zoneinfo."""

from __future__ import annotations

import calendar
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl import transforms
from etl.core.errors import CastError, ConfigError, DataError
from etl.core.schema import Field, Schema
from etl.transforms import Age, Cyclic, DateParts, FillNull
from etl.transforms.calendar import CLOCK, DTYPES, PARTS
from etl.transforms.fit import applied, planned
from etl.transforms.host import Rows
from etl.transforms.plain import to_plain, typed
from etl.transforms.preprocessor import arguments
from tests.preparing import both, fit, through

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
DAYS = tuple(part for part in PARTS if part not in CLOCK)
# Half an hour, an hour and a half, none at all; summer times of both halves of the year; a day that was left out.
ZONES = [
    *("UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("Pacific/Apia", "Africa/Casablanca", "America/Sao_Paulo", "Africa/Freetown", "Antarctica/Troll"),
]
INSTANTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))  # noqa: DTZ001 - as it asks
NEARBY = st.datetimes(datetime(1880, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - as it asks


def part_of(moment: Any, part: str) -> Any:
    """A part as Python says it."""
    if part in CLOCK:
        return getattr(moment, part)
    week = moment.isocalendar()
    return {
        "year": moment.year,
        "quarter": (moment.month - 1) // 3 + 1,
        "month": moment.month,
        "week": week.week,
        "iso_year": week.year,
        "day": moment.day,
        "weekday": moment.weekday(),
        "dayofyear": moment.timetuple().tm_yday,
        "is_weekend": moment.weekday() >= 5,
        "is_month_start": moment.day == 1,
        "is_month_end": moment.day == calendar.monthrange(moment.year, moment.month)[1],
    }[part]


def again(step: Any) -> Any:
    """The step as it comes back from a saved plan."""
    saved = json.loads(json.dumps(to_plain(arguments(step))))
    return getattr(transforms, transforms.KINDS[step.kind])(**typed(saved))


def beyond_python(steps: list[Any], column: Any) -> Any:
    """The rows after steps, on the host: moments that Python has not cannot be shown."""
    schema = Schema((Field("v", column.type),))
    plan = planned(steps, schema)
    return applied(plan, {}, Rows.of_batch(ARROW.record_batch({"v": column}), schema)).batch(plan.returns)


def parts_after(values: list[Any], kind: pa.DataType, parts: tuple[str, ...], tz: str = "UTC", rows: int = 5) -> Any:
    step = DateParts("v", list(parts), tz=tz)  # type: ignore[arg-type]
    assert again(step) == step
    out = through([step], pa.table({"v": ARROW.array(values, kind)}), batch_rows=rows)
    for part in parts:
        assert out.schema.field(f"v_{part}").type == ARROW.from_numpy_dtype(np.dtype(DTYPES[part]))
    return {part: out.column(f"v_{part}").to_pylist() for part in parts}


@given(st.lists(st.one_of(st.none(), INSTANTS, NEARBY), max_size=6), st.sampled_from(ZONES), st.sampled_from([1, 9]))
@example([datetime(2011, 12, 30, 9, 59, 59, tzinfo=UTC), datetime(2011, 12, 30, 10, tzinfo=UTC)], "Pacific/Apia", 9)
@example([datetime(1900, 12, 31, 15, 54, 16, 999999, tzinfo=UTC)], "Asia/Shanghai", 1)
def test_parts_of_instants_are_those_of_the_zones_wall_clock(values: list[Any], tz: str, rows: int) -> None:
    found = parts_after(values, pa.timestamp("us", "UTC"), PARTS, tz, rows)
    for part in PARTS:
        assert found[part] == [None if v is None else part_of(v.astimezone(ZoneInfo(tz)), part) for v in values], part


@pytest.mark.parametrize("tz", ZONES)
def test_every_change_of_a_zone_is_at_its_second(tz: str) -> None:
    zone = ZoneInfo(tz)
    moments = [datetime(1938, 1, 1, tzinfo=UTC) + n * timedelta(days=1) for n in range(366 * 90)]
    offsets = [moment.astimezone(zone).utcoffset() for moment in moments]
    changes = []
    for at in range(1, len(moments)):
        if offsets[at] != offsets[at - 1]:
            low, high = moments[at - 1], moments[at]
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                same = middle.astimezone(zone).utcoffset() == offsets[at - 1]
                low, high = (middle, high) if same else (low, middle)
            changes += [high - timedelta(microseconds=1), high]
    found = parts_after(changes, pa.timestamp("us", "UTC"), ("day", "hour", "minute", "second"), tz, 10_000)
    for part, values in found.items():
        assert values == [getattr(one.astimezone(zone), part) for one in changes], part


@given(st.lists(st.one_of(st.none(), st.dates()), max_size=6), st.sampled_from([1, 9]))
@example([date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(2000, 2, 29)], 9)
def test_parts_of_dates_from_year_1_to_9999(values: list[Any], rows: int) -> None:
    for kind in (pa.date32(), pa.timestamp("s")):
        given_values = values
        if kind == pa.timestamp("s"):
            given_values = [None if v is None else datetime.combine(v, time()) for v in values]
        found = parts_after(given_values, kind, DAYS, rows=rows)
        for part in DAYS:
            assert found[part] == [None if v is None else part_of(v, part) for v in values], part


def test_dates_far_beyond_python_are_counted_on() -> None:
    days = ARROW.array([(1 << 31) - 1, -(1 << 31)], pa.int32()).cast(pa.date32())
    out = beyond_python([DateParts("v", ["year", "weekday"])], days)
    # 400 years are 146,097 days, which are whole weeks: the same place of another era, which Python knows.
    for row, day in enumerate([(1 << 31) - 1, -(1 << 31)]):
        eras, rest = divmod(day, 146_097)
        same = date(1970, 1, 1) + timedelta(days=rest)
        assert out.column("v_year")[row].as_py() == same.year + 400 * eras
        assert out.column("v_weekday")[row].as_py() == same.weekday()


@given(st.lists(st.one_of(st.none(), st.times()), max_size=6))
def test_parts_of_times_of_day(values: list[Any]) -> None:
    found = parts_after(values, pa.time64("us"), CLOCK)
    for part in CLOCK:
        assert found[part] == [None if v is None else getattr(v, part) for v in values], part


def test_a_moment_that_no_zone_is_known_for_is_refused_and_absent_ones_are_not_looked_at() -> None:
    far = ARROW.array([0, (1 << 62), None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(CastError, match=r"column v, row 2: .* outside the years 1 to 9999"):
        beyond_python([DateParts("v", "hour", tz="Asia/Shanghai")], far)
    behind = pa.Array.from_buffers(far.type, 2, [ARROW.py_buffer(b"\x01"), far.buffers()[1]])
    out = beyond_python([DateParts("v", "hour", tz="Asia/Shanghai")], behind)
    assert out.column("v_hour").to_pylist() == [8, None]


@pytest.mark.parametrize(
    ("parts", "more", "kind", "words"),
    [
        ("hours", {}, None, "'hours' is no part"),
        (["year", "day"], {"into": "{column}"}, None, "into is"),
        ("year", {"tz": "Asia/Peking"}, None, "no time zone"),
        ("year", {"tz": "../etc/passwd"}, None, "no time zone"),
        ("year", {}, pa.int64(), "no moment, date or time"),
        ("hour", {}, pa.date32(), "has no hour"),
        ("year", {}, pa.time32("s"), "has no year"),
        ("hour", {"tz": "Asia/Shanghai"}, pa.timestamp("us"), "wall clock already"),
        ("hour", {"into": "v"}, pa.timestamp("us"), "there is a column v already"),
    ],
)
def test_parts_that_are_none_are_refused(parts: Any, more: dict[str, str], kind: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([DateParts("v", parts, **more)], Schema((Field("v", kind),)))


@given(st.lists(st.one_of(st.none(), NEARBY), max_size=6), st.sampled_from(["month", "weekday", "hour", "week"]))
def test_a_part_in_its_cycle(values: list[Any], part: Any) -> None:
    step = Cyclic("v", part=part, tz="Asia/Kolkata")
    assert again(step) == step
    out = through([step], pa.table({"v": ARROW.array(values, pa.timestamp("us", "UTC"))}))
    many, first = {"month": (12, 1), "weekday": (7, 0), "hour": (24, 0), "week": (53, 1)}[part]
    for name, function in (("v_sin", math.sin), ("v_cos", math.cos)):
        right = [
            None
            if v is None
            else float(np.float32(function(math.tau * (part_of(v.astimezone(ZoneInfo(step.tz)), part) - first) / many)))
            for v in values
        ]
        assert out.column(name).to_pylist() == right


@given(
    st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=6),
    st.sampled_from([24, 7.0, 365.25, 1e-3]),
)
def test_a_number_in_its_cycle(values: list[int | None], period: float) -> None:
    whole = [None if v is None else v if period == int(period) else float(v >> 20) for v in values]
    kind = pa.int64() if period == int(period) else pa.float64()
    out = through([Cyclic("v", period)], pa.table({"v": ARROW.array(whole, kind)}))
    for name, function in (("v_sin", math.sin), ("v_cos", math.cos)):
        for value, found in zip(whole, out.column(name).to_pylist(), strict=True):
            if value is None:
                assert found is None
                continue
            at = Fraction(value) % Fraction(period) / Fraction(period)
            assert found == pytest.approx(function(math.tau * float(at)), rel=1e-6, abs=1e-7)


def test_cycles_that_are_none_are_refused() -> None:
    out = through([Cyclic("v", 2)], pa.table({"v": [math.nan, 0.5, None]}))
    assert math.isnan(out.column("v_sin")[0].as_py())
    assert out.column("v_sin").to_pylist()[1:] == [1.0, None]
    with pytest.raises(CastError, match="column v, row 1: inf is at no place"):
        through([Cyclic("v", 2)], pa.table({"v": [math.inf]}))
    for build in ({}, {"period": 2, "part": "hour"}, {"period": 0}, {"period": math.inf}, {"part": "year"}):
        with pytest.raises(ConfigError, match="Cyclic"):
            Cyclic("v", **build)
    with pytest.raises(ConfigError, match="not a number"):
        planned([Cyclic("v", 2)], Schema((Field("v", pa.timestamp("us")),)))


@given(
    st.lists(st.one_of(st.none(), INSTANTS), max_size=6),
    st.sampled_from(["seconds", "minutes", "hours", "days", "weeks", "years"]),
    st.sampled_from(["float32", "float64"]),
    INSTANTS,
)
def test_the_time_since_an_origin(values: list[Any], unit: Any, dtype: Any, origin: datetime) -> None:
    step = Age("v", origin, unit, dtype=dtype, into="age")
    assert again(step) == step
    out = through([step], pa.table({"v": ARROW.array(values, pa.timestamp("us", "UTC"))}))
    per = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800, "years": 31556952}[unit]
    apart = [None if v is None else (v - origin) // timedelta(microseconds=1) for v in values]
    right = [None if v is None else float(Fraction(v, per * 10**6)) for v in apart]
    found = out.column("age").to_pylist()
    assert [v is None for v in found] == [v is None for v in right]
    pairs = [(a, b) for a, b in zip(found, right, strict=True) if a is not None and b is not None]
    assert [a for a, _ in pairs] == pytest.approx([b for _, b in pairs], rel=6e-8 if dtype == "float32" else 3e-16)


@given(st.lists(st.one_of(st.none(), st.dates()), min_size=1, max_size=9), st.lists(st.integers(0, 9), max_size=2))
def test_the_least_of_the_train_rows_is_the_origin(values: list[Any], cuts: list[int]) -> None:
    table = pa.table({"v": ARROW.array(values, pa.date32())})
    parts = sorted(min(c, len(values)) for c in cuts)
    present = [v for v in values if v is not None]
    if not present:
        with pytest.raises(DataError, match="no value in the rows"):
            fit([Age("v")], table, parts)
        return
    plan, done = fit([Age("v", "min", "days")], table, parts)
    least = min(present)
    assert done[0] == {"v": {"origin": (least - date(1970, 1, 1)).days * 86_400_000_000}}
    out = both(plan, done, table.combine_chunks().to_batches()[0])
    assert out.column("v").to_pylist() == [None if v is None else (v - least).days for v in values]
    first = date(1900, 1, 1)
    _, done = fit([FillNull("v", first), Age("v")], table, parts)
    least = min([*present, *[first] * (None in values)])
    assert done[1]["v"]["origin"] == (least - date(1970, 1, 1)).days * 86_400 * 10**6


def test_moments_so_far_apart_that_they_wrap_are_apart_all_the_same() -> None:
    moments = ARROW.array([-(1 << 63), (1 << 63) - 1, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    for origin, micros in (("2020-01-01T00:00:00Z", 1577836800000000), ("1900-01-01T00:00:00Z", -2208988800000000)):
        out = beyond_python([Age("v", origin, "seconds", dtype="float64")], moments).column("v").to_pylist()
        right = [(v - micros) / 1e6 for v in (-(1 << 63), (1 << 63) - 1, 0)]
        assert out == pytest.approx(right, rel=1e-15)


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"origin": "yesterday"}, None, "the origin is"),
        ({"unit": "months"}, None, "the unit is"),
        ({"dtype": "int64"}, None, "the dtype is"),
        ({"into": ""}, None, "into is"),
        ({}, pa.int64(), "neither a moment nor a date"),
        ({"origin": "2020-01-01"}, pa.timestamp("us", "UTC"), "and the origin 2020-01-01 has none"),
        ({"origin": "2020-01-01T00:00:00Z"}, pa.date32(), "has a zone"),
    ],
)
def test_ages_that_are_none_are_refused(more: dict[str, Any], kind: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned([Age("v", **more)], Schema((Field("v", kind),)))
