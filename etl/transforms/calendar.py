"""Days and microseconds as parts of the calendar: the Gregorian one in both directions, exact, in integers alone.

The same arithmetic on NumPy arrays and on one Python integer: a row that is served waits for no array.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

Part: TypeAlias = Literal[
    "year",
    "quarter",
    "month",
    "week",
    "iso_year",
    "day",
    "weekday",
    "dayofyear",
    "hour",
    "minute",
    "second",
    "microsecond",
    "is_weekend",
    "is_month_start",
    "is_month_end",
]
PARTS: Final[tuple[str, ...]] = get_args(Part)
CLOCK: Final = ("hour", "minute", "second", "microsecond")
"""Parts of a time of day."""
DTYPES: Final[dict[str, str]] = {
    **dict.fromkeys(PARTS, "int8"),
    "year": "int32",
    "iso_year": "int32",
    "dayofyear": "int16",
    "microsecond": "int32",
    "is_weekend": "bool",
    "is_month_start": "bool",
    "is_month_end": "bool",
}
_UNITS: Final = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def of_clock(micros: Any, part: str, /) -> Any:
    """A part of a time of day: microseconds since midnight."""
    if part == "microsecond":
        return micros % 1_000_000
    unit, many = _UNITS[part]
    return micros // unit % many


def of_days(days: Any, parts: tuple[str, ...], /) -> dict[str, Any]:
    """Parts of dates: days since 1970-01-01."""
    found: dict[str, Any] = {}
    wanted = set(parts)
    if wanted & {"year", "quarter", "month", "day", "dayofyear", "is_month_start"}:
        year, month, day = _civil(days)
        found |= {"year": year, "month": month, "day": day, "quarter": (month + 2) // 3, "is_month_start": day == 1}
        if "dayofyear" in wanted:
            found["dayofyear"] = days - _new_year(year) + 1
    if wanted & {"weekday", "week", "iso_year", "is_weekend"}:
        weekday = (days + 3) % 7
        found |= {"weekday": weekday, "is_weekend": weekday >= 5}
        if wanted & {"week", "iso_year"}:
            thursday = days - weekday + 3  # which is in the year that the week belongs to
            year = _civil(thursday)[0]
            found |= {"iso_year": year, "week": (thursday - _new_year(year)) // 7 + 1}
    if "is_month_end" in wanted:
        found["is_month_end"] = _civil(days + 1)[2] == 1
    return {part: found[part] for part in parts}


def _new_year(year: Any) -> Any:
    """The first of January, in days since 1970."""
    last = year - 1
    return 365 * last + last // 4 - last // 100 + last // 400 - 719_162


def _civil(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day.

    Years are counted from the first of March and eras from the year 0, so that the day that leap years add comes last.
    """
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * from_march + 2) // 5 + 1
    late = from_march >= 10
    return year_of_era + era * 400 + late, from_march + 3 - 12 * late, day
