"""Splits by time: which split a row belongs to follows from its moment alone, or a cut keeps late rows out of training.

Cuts are whole numbers in the unit that the tensors have: microseconds since 1970 of timestamps, days of dates, and
integers as they are. A row at a cut belongs to the later side.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError
from etl.tensors.views import Column, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Schema

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO = dt.timedelta(microseconds=1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Method `time`: every split is a range of one column.

    Attributes:
        names: Split names in order of time.
        column: The time column.
        unit: "us", "d" or "1", of the cuts.
        cuts: The first moment of every split but the first, ascending.
    """

    names: tuple[str, ...]
    column: str
    unit: str
    cuts: tuple[int, ...]

    def as_json(self) -> dict[str, object]:
        """The `split` field of a manifest; an open end is an empty text."""
        edges = ["", *map(str, self.cuts), ""]
        return {
            "method": "time",
            "key": [self.column],
            "unit": self.unit,
            "ranges": {n: [edges[i], edges[i + 1]] for i, n in enumerate(self.names)},
            "null_key": "error",
            "keys_in_two_splits": 0,
        }

    def assign(self, batch: pa.RecordBatch, place: str, /) -> NDArray[np.uint8]:
        """The split index of every row of a batch, which is part of `place`.

        Returns:
            uint8 [rows], indexes into `names`.

        Raises:
            CastError: A time is NULL.
        """
        column = batch.column(batch.schema.get_field_index(self.column))
        _no_null(self.column, column, place)
        return sides(column, self.cuts)


@dataclass(frozen=True, slots=True)
class TimeCut:
    """Beside a split by hash: rows of one split from a moment on are left out.

    Attributes:
        column: The time column.
        unit: "us", "d" or "1".
        at: The first moment that is left out.
        split: Of whose rows.
    """

    column: str
    unit: str
    at: int
    split: str

    def as_json(self) -> dict[str, object]:
        """`split.time_cut` of a manifest."""
        return {"column": self.column, "unit": self.unit, "at": str(self.at), "split": self.split}

    def late(self, batch: pa.RecordBatch, rows: NDArray[np.bool_], place: str, /) -> NDArray[np.bool_]:
        """Which of these rows are at or after the cut, bool [rows of the batch].

        Raises:
            CastError: The time of one of them is NULL.
        """
        column = batch.column(batch.schema.get_field_index(self.column))
        _no_null(self.column, column, place, rows)
        found: NDArray[np.bool_] = rows & (sides(column, (self.at,)) == 1)
        return found


def time_split(split: Mapping[str, str], column: str, schema: Schema, /) -> TimeSplit:
    """The split whose names map to the ends of their ranges; the last has none.

    Raises:
        ConfigError: An end is no moment of the column, or they do not ascend.
    """
    *ends, last = split.values()
    if last:
        raise ConfigError(
            f"the last split by {column}, {list(split)[-1]}, ends at {last}",
            hint="Leave its end empty: it takes all rows from the one before on.",
            column=column,
        )
    found = [moment(end, column, schema) for end in ends]
    cuts = tuple(at for at, _ in found)
    if any(a >= b for a, b in pairwise(cuts)):
        raise ConfigError(f"the ends of the splits by {column} do not ascend: {', '.join(ends)}", column=column)
    return TimeSplit(tuple(split), column, _unit(schema.field(column).type, column), cuts)


def time_cut(text: str, column: str, split: str, schema: Schema, /) -> TimeCut:
    """The cut at a moment of a column.

    Raises:
        ConfigError: It is no moment of the column.
    """
    at, unit = moment(text, column, schema)
    return TimeCut(column, unit, at, split)


def moment(text: str, column: str, schema: Schema, /) -> tuple[int, str]:
    """A moment as written, in the unit of the column's tensor, and that unit.

    Raises:
        ConfigError: It is no moment of the column; a zone is neither dropped nor invented.
    """
    kind: Any = schema.field(column).type
    unit = _unit(kind, column)
    try:
        if unit == "1":
            return int(text), unit
        if unit == "d":
            return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days, unit
        at = dt.datetime.fromisoformat(text)
        if (at.tzinfo is None) == (kind.tz is None):
            return (at.replace(tzinfo=at.tzinfo or dt.UTC) - _EPOCH) // _MICRO, unit
    except ValueError:
        pass
    like = {"1": "1767225600", "d": "2026-01-01"}.get(unit, "2026-01-01T00:00:00")
    like += "Z" if unit == "us" and kind.tz is not None else ""
    raise ConfigError(
        f"{text!r} is no moment of column {column} ({kind})", hint=f"Write it as {like}, for example.", column=column
    )


def _unit(kind: Any, column: str) -> str:
    types = pa.types
    if types.is_timestamp(kind):
        return "us"
    if types.is_date(kind):
        return "d"
    if types.is_integer(kind):
        return "1"
    raise ConfigError(
        f"column {column} is {kind}, and a split by time needs a timestamp, a date or an integer", column=column
    )


def _no_null(name: str, column: Column, place: str, rows: NDArray[np.bool_] | None = None) -> None:
    if not column.null_count:
        return
    absent = ~valid_of(column) if rows is None else ~valid_of(column) & rows
    if absent.any():
        raise CastError(
            f"the time {name} is NULL in {int(absent.sum())} of {len(column)} rows looked at in {place}",
            hint="Leave such rows out in the query, or split by another column.",
            column=name,
        )


def sides(column: Column, cuts: tuple[int, ...], /) -> NDArray[np.uint8]:
    """How many of the ascending cuts each moment has reached, uint8 [rows]; anything for a NULL."""
    kind: Any = column.type
    # The cuts go to the column's own unit, rounded up: times of seconds may lie beyond int64 microseconds.
    if pa.types.is_timestamp(kind):
        scaled = [-(-cut * _PER_SECOND[kind.unit] // 10**6) for cut in cuts]
    elif pa.types.is_date64(kind):
        scaled = [cut * _DAY_MS for cut in cuts]
    else:
        scaled = list(cuts)
    letter = "u" if pa.types.is_unsigned_integer(kind) else "i"
    values = values_of(column, f"{letter}{kind.bit_width // 8}")
    limits = np.iinfo(values.dtype)
    below = sum(cut <= int(limits.min) for cut in scaled)
    within = [cut for cut in scaled if int(limits.min) < cut <= int(limits.max)]
    reached = np.searchsorted(np.array(within, values.dtype), values, side="right")
    return (reached + below).astype(np.uint8)
