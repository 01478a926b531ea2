"""Steps on moments, dates and times of day: their parts, and their place in a cycle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema, nearest
from etl.transforms.base import listed
from etl.transforms.calendar import CLOCK, DTYPES, PARTS, Part, of_clock, of_days
from etl.transforms.columns import with_new
from etl.transforms.figures import is_number
from etl.transforms.host import Values, floats_of
from etl.transforms.zones import FIRST, LAST, local, zone_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

_DAY: Final = 86_400_000_000
_NEAR: Final = 1 << 30
"""Days so far from 1970 are calculated with in 32 bits."""
Cycle: TypeAlias = Literal["quarter", "month", "week", "day", "weekday", "dayofyear", "hour", "minute", "second"]
_PERIODS: Final[dict[str, tuple[int, int]]] = {
    "quarter": (4, 1),
    "month": (12, 1),
    "week": (53, 1),
    "day": (31, 1),
    "weekday": (7, 0),
    "dayofyear": (366, 1),
    "hour": (24, 0),
    "minute": (60, 0),
    "second": (60, 0),
}
"""Part → how many there are, and the first."""


@dataclass(frozen=True, slots=True)
class DateParts:
    """Parts of moments, dates or times of day as columns of their own; NULL stays NULL. Exact, before 1970 too.

    Attributes:
        column: Its name; it stays.
        parts: "year", "quarter", "month", "week" and "iso_year" (ISO 8601), "day", "weekday" (Monday is 0),
            "dayofyear", "hour", "minute", "second", "microsecond", "is_weekend", "is_month_start", "is_month_end".
        into: The names of the new columns; {column} and {part} stand for them.
        tz: Whose wall clock, for moments that are instants. Those without a zone are wall clock already.

    Raises:
        ConfigError: There is no such part or zone.
    """

    kind: ClassVar[str] = "date_parts"
    column: str
    parts: tuple[Part, ...]
    into: str = "{column}_{part}"
    tz: str = "UTC"

    def __init__(
        self,
        column: str,
        parts: Part | list[Part] | tuple[Part, ...],
        into: str = "{column}_{part}",
        tz: str = "UTC",
    ) -> None:
        listed(column, "DateParts")
        names = listed(cast("Any", parts), "DateParts")
        for part in names:
            if part not in PARTS:
                raise ConfigError(f"DateParts: {part!r} is no part", hint=nearest(part, PARTS, what="parts"))
        if not into or ("{part}" not in into and len(names) > 1):
            raise ConfigError(f"DateParts: into is {into!r}", hint='Write "{column}_{part}".')
        zone_of(tz, "DateParts")
        for name, value in (("column", column), ("parts", names), ("into", into), ("tz", tz)):
            object.__setattr__(self, name, value)

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def writes(self) -> tuple[str, ...]:
        """The new columns."""
        return tuple(self.into.replace("{column}", self.column).replace("{part}", part) for part in self.parts)

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns, and the new ones after them: integers of the least width, and bools."""
        given.require(self.column)
        field = given.field(self.column)
        _check(field, self.parts, self.tz, f"DateParts({self.column!r})")
        return with_new(
            given,
            [
                Field(name, pa.from_numpy_dtype(np.dtype(DTYPES[part])), nullable=field.nullable)
                for name, part in zip(self.writes, self.parts, strict=True)
            ],
            "DateParts",
        )

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the new columns."""
        del state
        column = rows[self.column]
        found = _parts(rows, self.column, given.field(self.column).type, self.parts, self.tz)
        return rows.with_columns(
            {
                name: Values(found[part].astype(DTYPES[part], copy=False), column.valid)
                for name, part in zip(self.writes, self.parts, strict=True)
            }
        )


@dataclass(frozen=True, slots=True)
class Cyclic:
    """Where a value is in its cycle, as sine and cosine, float32: the end of a cycle is near its beginning.

    Adds `{column}_sin` and `{column}_cos`; the column stays. NULL stays NULL, NaN stays NaN.

    Attributes:
        column: A number, with `period`; a moment, date or time of day, with `part`.
        period: After how much the cycle begins again; it begins at 0.
        part: "quarter", "month", "week", "day", "weekday", "dayofyear", "hour", "minute" or "second", which begins
            again after 4, 12, 53, 31, 7, 366, 24, 60 or 60; the first of them is at 0.
        tz: Whose wall clock, as of `DateParts`.

    Raises:
        ConfigError: Neither period nor part, or both; or there is no such part or zone.
    """

    kind: ClassVar[str] = "cyclic"
    column: str
    period: float | None = None
    part: Cycle | None = None
    tz: str = "UTC"

    def __init__(self, column: str, period: float | None = None, part: Cycle | None = None, tz: str = "UTC") -> None:
        listed(column, "Cyclic")
        if (period is None) == (part is None):
            raise ConfigError(
                f"Cyclic({column!r}): period is {period!r} and part is {part!r}",
                hint='Give one of them: period=24, or part="hour" of a moment.',
            )
        if period is not None and not (_is_real(period) and 0 < period < math.inf):
            raise ConfigError(f"Cyclic({column!r}): the period is {period!r}", hint="Give a number above 0.")
        if part is not None and part not in _PERIODS:
            raise ConfigError(
                f"Cyclic({column!r}): {part!r} is no part that comes again",
                hint=nearest(str(part), _PERIODS, what="parts"),
            )
        zone_of(tz, "Cyclic")
        for name, value in (("column", column), ("period", period), ("part", part), ("tz", tz)):
            object.__setattr__(self, name, value)

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def writes(self) -> tuple[str, ...]:
        """Sine and cosine."""
        return (f"{self.column}_sin", f"{self.column}_cos")

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns, and the two new ones after them."""
        given.require(self.column)
        field = given.field(self.column)
        if self.part is not None:
            _check(field, (self.part,), self.tz, f"Cyclic({self.column!r})")
        elif not is_number(field.type):
            raise ConfigError(
                f"Cyclic({self.column!r}): {self.column} is {field.type}, not a number",
                hint='Give part="hour" of a moment, or another column.',
                column=self.column,
            )
        return with_new(given, [Field(name, pa.float32(), nullable=field.nullable) for name in self.writes], "Cyclic")

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the new columns."""
        del state
        column = rows[self.column]
        if self.part is not None:
            kind = given.field(self.column).type
            period, first = _PERIODS[self.part]
            at = _parts(rows, self.column, kind, (self.part,), self.tz)[self.part] - first
            sine, cosine = (table[at] for table in _circle(period))
        else:
            angle = self._angle(rows, column)
            sine, cosine = np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)
        made = (Values(sine, column.valid), Values(cosine, column.valid))
        return rows.with_columns(dict(zip(self.writes, made, strict=True)))

    def _angle(self, rows: Rows, column: Values) -> NDArray[np.float64]:
        """From 0 to 2 pi, shape (n,); the remainder is taken first and is exact."""
        period = cast("float", self.period)
        data = column.data
        if isinstance(data, np.ndarray) and data.dtype.kind in "iu" and period == int(period) and period < 1 << 31:
            whole = data if data.dtype.itemsize == 8 else data.astype(np.int64)
            wide = (whole % whole.dtype.type(int(period))).astype(np.float64)
            return wide * (math.tau / period)
        wide = floats_of(column)
        if np.isinf(wide).any():
            lost = np.isinf(wide) & column.present
            if lost.any():
                row = int(lost.argmax())
                raise rows.refused(self.column, row, f"{wide[row]} is at no place of a cycle")
        with np.errstate(invalid="ignore"):
            return np.asarray(np.remainder(wide, period) * (math.tau / period), np.float64)


def _check(field: Field, parts: tuple[str, ...], tz: str, what: str) -> None:
    """Hold that a column has these parts in this zone.

    Raises:
        ConfigError: It has not.
    """
    kind: Any = field.type
    types = pa.types
    if not (types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind)):
        raise ConfigError(f"{what}: {field.name} is {kind}, no moment, date or time of day", column=field.name)
    if tz != "UTC" and (not types.is_timestamp(kind) or kind.tz is None):
        raise ConfigError(
            f"{what}: {field.name} is {kind}, which has no zone: it is wall clock already, and tz is {tz!r}",
            hint="Leave tz out.",
            column=field.name,
        )
    for part in parts:
        if (types.is_date(kind) and part in CLOCK) or (types.is_time(kind) and part not in CLOCK):
            raise ConfigError(f"{what}: {field.name} is {kind}, which has no {part}", column=field.name)


def _parts(rows: Rows, name: str, kind: pa.DataType, parts: tuple[str, ...], tz: str) -> dict[str, NDArray[Any]]:
    """Part → its values, shape (n,); those of absent places are of 1970."""
    column = rows[name]
    data = column.data
    if column.nulls:
        data = np.where(column.present, data, data.dtype.type(0))
    if tz != "UTC" and len(data):
        if int(data.min()) < FIRST or int(data.max()) > LAST:
            row = int(((data < FIRST) | (data > LAST)).argmax())
            why = f"{data[row]} microseconds from 1970 are outside the years 1 to 9999, which zones are known for"
            raise rows.refused(name, row, why)
        data = local(data, tz)
    if len(data) == 1:
        return {part: np.array([one]) for part, one in _of(int(data[0]), kind, parts).items()}
    return _of(data, kind, parts)


def _of(values: Any, kind: pa.DataType, parts: tuple[str, ...]) -> dict[str, Any]:
    """The same of an array or of one integer."""
    clock = tuple(part for part in parts if part in CLOCK)
    rest = tuple(part for part in parts if part not in CLOCK)
    found: dict[str, Any] = {}
    days = values if pa.types.is_date(kind) else values // _DAY if rest or clock else values
    if clock:
        micros = values if pa.types.is_time(kind) else values - days * _DAY
        found |= {part: of_clock(micros, part) for part in clock}
    if rest:
        if isinstance(days, np.ndarray) and len(days):
            near = int(days.min()) > -_NEAR and int(days.max()) < _NEAR
            days = days.astype(np.int32 if near else np.int64, copy=False)
        found |= of_days(days, rest)
    return found


@lru_cache(maxsize=32)
def _circle(period: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sine and cosine of each place of a cycle."""
    angles = [math.tau * at / period for at in range(period)]
    return np.array([math.sin(a) for a in angles], np.float32), np.array([math.cos(a) for a in angles], np.float32)


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
