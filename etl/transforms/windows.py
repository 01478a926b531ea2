"""`Lag` and `Rolling`: what earlier rows of the same group had. They look at other rows, so they act on whole data.

They are called on frames and collections inside a function of whole data, `Rolling(…)(orders)`. A row sees what is
before it and, by default, not itself: a model may then be given its figures beside its own values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema, nearest
from etl.transforms.base import listed
from etl.transforms.host import values_in
from etl.transforms.ordered import check_key, ordered
from etl.transforms.rolled import check_column, rolled, rolled_type
from etl.transforms.together import (
    BUCKET,
    brought_together,
    check_columns,
    check_new,
    columns_of,
    is_collection,
    with_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.transforms.ordered import Ordered

Stat: TypeAlias = Literal["mean", "sum", "count", "min", "max", "std"]
_STATS: Final[tuple[str, ...]] = get_args(Stat)
_UNITS: Final[Mapping[str, int]] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_DAY: Final = _UNITS["d"]


@runtime_checkable
class Window(Protocol):
    """A step that looks at other rows than its own, and so acts on all rows of a group at once."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values decide the result."""
        ...

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of a group: rows of other groups are not looked at."""
        ...

    def added(self, given: Schema, /) -> Schema:
        """The columns that it adds.

        Raises:
            SchemaError: A column is missing.
            ConfigError: A column's type is none that it takes.
        """
        ...

    def found(self, arrays: Mapping[str, Any], given: Schema, /) -> dict[str, Any]:
        """The new columns as Arrow arrays.

        Raises:
            DataError: The rows have no order, or a sum does not fit.
        """
        ...

    def __call__(self, frame: Any, /) -> Any:
        """The frame or collection with the new columns behind its own."""
        ...


@dataclass(frozen=True, slots=True)
class Lag:
    """What the row `n` before had, in the order of `sort` and then `tie` within `by`; NULL where there is none.

    Attributes:
        columns: One column or several, of any type.
        n: How many rows back.
        by: Columns of a group; none: all rows are one group. NULL is a group of its own.
        sort: The column of the order. NULL is refused.
        tie: One column or several that decide between rows with the same `sort`: no two rows of a group may have the
            same place.
        into: The name of the new column; `{column}` and `{n}` stand for themselves.

    Raises:
        ConfigError: An argument is none that there is.
    """

    columns: tuple[str, ...]
    n: int
    by: tuple[str, ...]
    sort: str
    tie: tuple[str, ...]
    into: str

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        n: int = 1,
        *,
        sort: str,
        tie: str | list[str] | tuple[str, ...],
        by: str | list[str] | tuple[str, ...] = (),
        into: str = "{column}_lag{n}",
    ) -> None:
        if type(n) is not int or n < 1:
            raise ConfigError(
                f"Lag: n is {n!r}", hint="It is how many rows back, 1 or more: rows that come later are not known yet."
            )
        _set(self, columns=listed(columns, "Lag"), n=n, into=_template(into, "Lag"))
        _set(self, by=_by(by, "Lag"), sort=_sort(sort, "Lag"), tie=listed(tie, "Lag, tie="))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, and those of the order."""
        return tuple(dict.fromkeys((*self.columns, *self.by, self.sort, *self.tie)))

    def added(self, given: Schema, /) -> Schema:
        """A column of the same type for each, which may be NULL."""
        _check_order(self, given, "Lag")
        made = tuple(Field(self._name(name), given.field(name).type) for name in self.columns)
        check_new([one.name for one in made], (), "Lag", "Name each column once, or give into= with {column}.")
        return Schema(made)

    def found(self, arrays: Mapping[str, Any], given: Schema, /) -> dict[str, Any]:
        """The values of earlier rows."""
        rows = ordered(arrays, given, by=self.by, sort=self.sort, tie=self.tie, step="Lag")
        before = np.arange(len(rows.order)) - self.n
        known = before >= rows.first
        places = rows.back(np.where(known, rows.order[np.where(known, before, 0)], 0))
        taken = pa.array(places, mask=~rows.back(known))
        return {self._name(name): arrays[name].take(taken) for name in self.columns}

    def __call__(self, frame: Any, /) -> Any:
        """The frame or collection with the new columns behind its own.

        Raises:
            SchemaError: A column is missing.
            DataError: The rows have no order: a NULL, or two rows with one place.
        """
        return carried_out(self, frame)

    def _name(self, column: str) -> str:
        return self.into.replace("{column}", column).replace("{n}", str(self.n))


@dataclass(frozen=True, slots=True)
class Rolling:
    """Figures of the rows before each row, in the order of `sort` and then `tie` within `by`.

    NULL is skipped, NaN is a value: figures of a window that holds one are NaN. `count`, `sum`, `min` and `max` are
    exact for integers and decimals; a sum that its type cannot hold is refused. `std` divides by n, as `Standardize`.

    Attributes:
        columns: One column or several: numbers, decimals or bools; `count`, `min` and `max` take times too.
        window: A number of rows, or a time such as "7d" ("90s", "30min", "12h", "2w") or a timedelta: rows whose `sort`
            is so much earlier at most.
        by: Columns of a group; none: all rows are one group. NULL is a group of its own.
        sort: The column of the order; a time where the window is one. NULL is refused.
        tie: One column or several that decide between rows with the same `sort`: no two rows of a group may have the
            same place.
        stats: Which figures, all by default: "mean", "sum", "count", "min", "max", "std".
        min_rows: Windows of fewer values give NULL; `count` says how many there were.
        closed: "left": a row is not in its own window, and in a window of time no row of the same moment is.
            "right": it is, and in a window of time all rows of the same moment are; the row at the far end is not.
        into: The name of a new column; `{column}`, `{stat}` and `{window}` stand for themselves.

    Raises:
        ConfigError: An argument is none that there is.
    """

    columns: tuple[str, ...]
    window: int | str
    by: tuple[str, ...]
    sort: str
    tie: tuple[str, ...]
    stats: tuple[Stat, ...]
    min_rows: int
    closed: Literal["left", "right"]
    into: str

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        window: int | str | timedelta,
        *,
        sort: str,
        tie: str | list[str] | tuple[str, ...],
        by: str | list[str] | tuple[str, ...] = (),
        stats: Stat | Sequence[Stat] = ("mean", "sum", "count", "min", "max", "std"),
        min_rows: int = 1,
        closed: Literal["left", "right"] = "left",
        into: str = "{column}_{stat}_{window}",
    ) -> None:
        wanted: tuple[Any, ...] = (stats,) if isinstance(stats, str) else tuple(stats)
        for one in wanted:
            if one not in _STATS:
                raise ConfigError(f"Rolling: there is no stat {one!r}", hint=nearest(str(one), _STATS, what="stats"))
        if not wanted:
            raise ConfigError("Rolling has no stats", hint=f"Name some of {', '.join(_STATS)}.")
        if type(min_rows) is not int or min_rows < 1:
            raise ConfigError(f"Rolling: min_rows is {min_rows!r}", hint="It is 1 or more.")
        if closed not in ("left", "right"):
            raise ConfigError(f"Rolling: closed is {closed!r}", hint='It is "left" or "right".')
        _set(self, columns=listed(columns, "Rolling"), window=_window(window), into=_template(into, "Rolling"))
        _set(self, by=_by(by, "Rolling"), sort=_sort(sort, "Rolling"), tie=listed(tie, "Rolling, tie="))
        _set(self, stats=tuple(dict.fromkeys(wanted)), min_rows=min_rows, closed=closed)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, and those of the order."""
        return tuple(dict.fromkeys((*self.columns, *self.by, self.sort, *self.tie)))

    def added(self, given: Schema, /) -> Schema:
        """A column for each column and stat: int64 counts, float64 means, sums and extremes of the column's kind."""
        _check_order(self, given, "Rolling")
        kind = given.field(self.sort).type
        if isinstance(self.window, str):
            if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                raise ConfigError(
                    f"Rolling: the window is {self.window}, and {self.sort} is {kind}, which is no time",
                    hint="Give window= a number of rows, or sort= a column of times.",
                    column=self.sort,
                )
            if pa.types.is_date(kind) and _microseconds(self.window) % _DAY:
                raise ConfigError(
                    f"Rolling: the window is {self.window}, and {self.sort} has days only",
                    hint='Give window= whole days, such as "7d".',
                    column=self.sort,
                )
        made = []
        for name in self.columns:
            field = given.field(name)
            for stat in self.stats:
                check_column(field, stat)
                made.append(Field(self._name(name, stat), rolled_type(field.type, stat), nullable=stat != "count"))
        check_new([one.name for one in made], (), "Rolling", "Give into= with {column}, {stat} and {window}.")
        return Schema(tuple(made))

    def found(self, arrays: Mapping[str, Any], given: Schema, /) -> dict[str, Any]:
        """The figures of every row's window."""
        rows = ordered(arrays, given, by=self.by, sort=self.sort, tie=self.tie, step="Rolling")
        start, stop = self._bounds(rows, arrays, given)
        made: dict[str, Any] = {}
        named = (*self.by, self.sort, *self.tie)
        for name in self.columns:
            found = rolled(arrays, given.field(name), rows, start, stop, self.stats, self.min_rows, named)
            made |= {self._name(name, stat): found[stat] for stat in self.stats}
        return made

    def __call__(self, frame: Any, /) -> Any:
        """The frame or collection with the new columns behind its own.

        Raises:
            SchemaError: A column is missing.
            DataError: The rows have no order: a NULL, or two rows with one place.
            CastError: A sum is beyond its type.
        """
        return carried_out(self, frame)

    def _name(self, column: str, stat: str) -> str:
        made = self.into.replace("{column}", column).replace("{stat}", stat)
        return made.replace("{window}", str(self.window))

    def _bounds(
        self, rows: Ordered, arrays: Mapping[str, Any], given: Schema
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the window of each sorted row starts, and before which position it stops."""
        own = self.closed == "right"
        if isinstance(self.window, int):
            stop = np.arange(len(rows.order)) + own
            return np.maximum(rows.first, stop - min(self.window, len(rows.order) + 1)), stop
        field = given.field(self.sort)
        times = values_in(arrays[self.sort], field).data.astype(np.int64)[rows.order]
        length = _microseconds(self.window) // (_DAY if pa.types.is_date(field.type) else 1)
        steps, ranks = np.unique(times, return_inverse=True)
        earliest = np.where(times >= np.iinfo(np.int64).min + length, times - length, np.iinfo(np.int64).min)
        # A group and a moment as one number: rows are in the order of both, so each bound is one search.
        each = len(steps) + 1
        side: Literal["left", "right"] = "right" if own else "left"
        places = rows.group * each + ranks
        since = rows.group * each + np.searchsorted(steps, earliest, side=side)
        return np.searchsorted(places, since, side="left"), np.searchsorted(places, places, side=side)


def carried_out(step: Window, frame: Any, /) -> Any:
    """A window over a frame, or over a collection whose groups are brought into one partition each."""
    name = type(step).__name__
    check_columns(frame, step.reads, name)
    if not is_collection(frame):
        arrays, given = columns_of(frame, step.reads, name)
        added = step.added(given)
        check_new(added.names, list(frame.columns), name, "Give into= another name.")
        return with_columns(frame, step.found(arrays, given), added, name)
    meta = carried_out(step, frame._meta)  # noqa: SLF001 # the only way to a collection's dtypes without a row
    if frame.npartitions > 1 and step.by:
        frame = brought_together(frame, step.by, frame.npartitions, name)
    elif frame.npartitions > 1:
        frame = frame.repartition(npartitions=1)
    return frame.map_partitions(_of_partition, step, meta=meta)


def _of_partition(frame: Any, step: Window) -> Any:
    if BUCKET in frame.columns:
        frame = frame.drop(columns=[BUCKET])
    return carried_out(step, frame)


def _set(step: Any, /, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(step, name, value)


def _check_order(step: Lag | Rolling, given: Schema, name: str) -> None:
    given.require(*step.reads)
    for what, names in (("by", step.by), ("sort", (step.sort,)), ("tie", step.tie)):
        for one in names:
            check_key(given.field(one), name, what)


def _by(by: str | list[str] | tuple[str, ...], step: str) -> tuple[str, ...]:
    return () if not isinstance(by, str) and not tuple(by) else listed(by, f"{step}, by=")


def _sort(sort: object, step: str) -> str:
    if not isinstance(sort, str) or not sort:
        raise ConfigError(f"{step}: sort is {sort!r}", hint="It names the one column of the order; tie= takes more.")
    return sort


def _template(into: object, step: str) -> str:
    if not isinstance(into, str) or not into:
        raise ConfigError(f"{step}: into is {into!r}", hint='It is a name such as "{column}_before".')
    return into


def _window(window: object) -> int | str:
    """The window as it is saved: a number of rows, or a time in its largest unit."""
    if type(window) is int and window > 0:
        return window
    if isinstance(window, str | timedelta):
        length = _microseconds(window)
        if length > 0:
            unit = max((name for name in _UNITS if not length % _UNITS[name] and name != "w"), key=_UNITS.__getitem__)
            return f"{length // _UNITS[unit]}{unit}" if isinstance(window, timedelta) else window
    raise ConfigError(f"Rolling: the window is {window!r}", hint='It is a number of rows, or a time such as "7d".')


def _microseconds(window: str | timedelta) -> int:
    """The length of a window; 0 where it is none."""
    if isinstance(window, timedelta):
        return window // timedelta(microseconds=1)
    found = re.fullmatch(r"(\d{1,9})(us|ms|s|min|h|d|w)", window)
    return int(found[1]) * _UNITS[found[2]] if found else 0
