"""The time since an origin, given or fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field, Schema, nearest
from etl.transforms.base import listed
from etl.transforms.columns import with_new
from etl.transforms.constants import number_of
from etl.transforms.host import Values, values_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows

_DAY: Final = 86_400_000_000
Unit: TypeAlias = Literal["seconds", "minutes", "hours", "days", "weeks", "years"]
_UNITS: Final[dict[str, int]] = {
    "seconds": 1_000_000,
    "minutes": 60_000_000,
    "hours": 3_600_000_000,
    "days": _DAY,
    "weeks": 7 * _DAY,
    "years": 31_556_952_000_000,
}
"""Microseconds; a year is the mean one of the calendar, 365.2425 days."""


@dataclass(frozen=True, slots=True)
class Age:
    """The time since an origin, (x - origin) / unit: computed in float64, rounded once. NULL stays NULL.

    Attributes:
        column: A moment or date. Its values are replaced, unless `into` is given.
        origin: ISO text such as "2020-01-01T00:00:00Z", with a zone where the column is of instants and without one
            where it is not; or "min": the least of the train rows, which is saved in microseconds since 1970.
        unit: "seconds", "minutes", "hours", "days", "weeks" or "years" (of 365.2425 days).
        into: The name of a new column for it; the column then stays.
        dtype: "float32" (24 bits: seconds of more than half a year are rounded) or "float64".

    Raises:
        ConfigError: The origin is no moment, or there is no such unit or dtype.
    """

    kind: ClassVar[str] = "age"
    column: str
    origin: str = "min"
    unit: Unit = "days"
    into: str | None = None
    dtype: Literal["float32", "float64"] = "float32"

    def __init__(
        self,
        column: str,
        origin: str | date = "min",
        unit: Unit = "days",
        into: str | None = None,
        dtype: Literal["float32", "float64"] = "float32",
    ) -> None:
        listed(column, "Age")
        text = origin.isoformat() if isinstance(origin, date) else origin
        if text != "min":
            _moment(text)
        if unit not in _UNITS:
            raise ConfigError(f"Age({column!r}): the unit is {unit!r}", hint=nearest(str(unit), _UNITS, what="units"))
        if dtype not in ("float32", "float64"):
            raise ConfigError(f"Age({column!r}): the dtype is {dtype!r}", hint='Give "float32" or "float64".')
        if into == "":
            raise ConfigError(f"Age({column!r}): into is {into!r}", hint="It is the name of a new column.")
        for name, value in (("column", column), ("origin", text), ("unit", unit), ("into", into), ("dtype", dtype)):
            object.__setattr__(self, name, value)

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def writes(self) -> tuple[str, ...]:
        """The column, or the new one."""
        return (self.into or self.column,)

    @property
    def fits(self) -> bool:
        """Only for "min"."""
        return self.origin == "min"

    def output_schema(self, given: Schema, /) -> Schema:
        """The column as float, or a new one after the others."""
        given.require(self.column)
        field = given.field(self.column)
        kind: Any = field.type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise ConfigError(
                f"Age({self.column!r}): {self.column} is {kind}, neither a moment nor a date", column=self.column
            )
        if not self.fits:
            zoned, zone = _moment(self.origin).tzinfo is not None, getattr(kind, "tz", None) is not None
            if zoned != zone:
                what = "has a zone" if zoned else "has none"
                raise ConfigError(
                    f"Age({self.column!r}): {self.column} is {kind}, and the origin {self.origin} {what}",
                    hint='Write "2020-01-01T00:00:00Z" for instants, "2020-01-01T00:00:00" for wall clock and dates.',
                    column=self.column,
                )
        made = pa.from_numpy_dtype(np.dtype(self.dtype))
        if self.into is not None and self.into != self.column:
            return with_new(given, [Field(self.into, made, nullable=field.nullable)], "Age")
        age = replace(field, type=made, note="", metadata={})
        return Schema(tuple(age if f.name == self.column else f for f in given))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """The least."""
        del part
        return _Least(given.field(self.column))

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        known = [one[self.column]["least"] for one in (left, right) if one[self.column]["least"] is not None]
        null = left[self.column]["null"] + right[self.column]["null"]
        return {self.column: {"least": min(known, default=None), "null": null}}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → the origin, in microseconds since 1970."""
        least = state[self.column]["least"]
        if self.column in filled and state[self.column]["null"]:
            per = _DAY if pa.types.is_date(given.field(self.column).type) else 1
            with_ = int(filled[self.column]) * per
            least = with_ if least is None else min(least, with_)
        if least is None:
            raise DataError(
                f"Age({self.column!r}): column {self.column} has no value in the rows that are fitted on",
                hint="Give the origin, or leave the column out.",
                column=self.column,
            )
        return {self.column: {"origin": least}}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    @property
    def unit_micros(self) -> int:
        """Microseconds of the unit."""
        return _UNITS[self.unit]

    def origin_in(self, state: State, /) -> int:
        """The origin, in microseconds since 1970."""
        return int(state[self.column]["origin"]) if self.fits else _micros(self.origin)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the age."""
        del given
        column = rows[self.column]
        origin = self.origin_in(state)
        data = column.data.astype(np.int64) * _DAY if column.data.dtype == np.int32 else column.data
        with np.errstate(over="ignore"):
            apart = data - np.int64(origin)
        wide = apart.astype(np.float64)
        if len(data) and (int(data.min()) - origin < -(1 << 63) or int(data.max()) - origin >= 1 << 63):
            wide = data.astype(np.float64) - origin  # so far apart that float64 has no microseconds anyway
        age = wide / self.unit_micros
        return rows.with_columns({self.writes[0]: Values(age.astype(self.dtype, copy=False), column.valid)})


class _Least:
    """Observes the least moment of a column, in microseconds."""

    def __init__(self, field: Field, /) -> None:
        self._field, self._least, self._null = field, cast("int | None", None), 0

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        column = values_in(rows.column(0), self._field)
        self._null += column.nulls
        data = column.data if column.valid is None else column.data[column.valid]
        if len(data):
            least = int(data.min()) * (_DAY if data.dtype == np.int32 else 1)
            self._least = least if self._least is None else min(self._least, least)

    def state(self) -> State:
        """Column → the least, and how many were NULL."""
        return {self._field.name: {"least": self._least, "null": self._null}}


def _moment(text: str) -> datetime:
    """An origin.

    Raises:
        ConfigError: It is no moment.
    """
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"Age: the origin is {text!r}", hint='Write "min", "2020-01-01" or "2020-01-01T00:00:00Z".'
        ) from error


@lru_cache(maxsize=256)
def _micros(text: str) -> int:
    """An origin in microseconds since 1970."""
    moment = _moment(text)
    return int(number_of(moment if moment.tzinfo is None else moment.astimezone(UTC)))
