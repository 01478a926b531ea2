"""Checks of all rows together."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.tensors.drift import Limits, beyond, drift_of
from etl.tensors.views import valid_of
from etl.transforms.base import listed
from etl.transforms.checking.base import Finding, Offending, json_of, offending, severity_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending, Severity
    from etl.transforms.checking.base import Seen


_EXACT: Final = Context(prec=2000)
"""Digits enough for any sum of float64: its greatest is near 10^308, its least 2^-1074."""
_SHOWN: Final = Context(prec=40)
_HALF: Final = 26

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_UNITS: Final = {"day": (86_400_000_000, 1), "s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Microseconds in so many of a unit."""


class Nothing:
    """Observes nothing: what is asked is known at the end anyway."""

    def take(self, seen: Seen, /) -> None:
        """Nothing."""

    def state(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class RowCount:
    """The rows of the run are so many.

    Attributes:
        least: None: no end below.
        most: None: no end above.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "row_count"
    least: int | None = None
    most: int | None = None
    severity: Severity = "error"

    def __post_init__(self) -> None:
        severity_of(self.severity, self.kind)
        ends = [one for one in (self.least, self.most) if one is not None]
        if not ends or any(type(one) is not int or one < 0 for one in ends) or ends != sorted(ends):
            raise ConfigError(
                f"row_count from {self.least!r} to {self.most!r}", hint="Write row_count(min=1) or row_count(1, 1000)."
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """No column."""
        return ()

    @property
    def limit(self) -> object:
        """The ends."""
        return {"min": self.least, "max": self.most}

    def refuse(self, given: Schema, /) -> None:
        """Rows can always be counted."""

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Nothing:
        """Rows are counted anyway."""
        del given, keys, part
        return Nothing()

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many there are."""
        del states
        rows = ending.rows
        ends = [f"at least {self.least}" if self.least is not None else ""]
        ends.append(f"at most {self.most}" if self.most is not None else "")
        passed = (self.least is None or rows >= self.least) and (self.most is None or rows <= self.most)
        return Finding(passed, rows, f"there are {rows} rows, {' and '.join(filter(None, ends))} were expected")


@dataclass(frozen=True, slots=True)
class RowCountVsLast:
    """The rows are so many times those of the version before; a first version passes.

    For an append, rows that are added against those that the version before added.

    Attributes:
        least: Of the ratio; None: no end below.
        most: None: no end above.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "row_count_vs_last"
    least: float | None = None
    most: float | None = None
    severity: Severity = "error"

    def __post_init__(self) -> None:
        severity_of(self.severity, self.kind)
        ends = [one for one in (self.least, self.most) if one is not None]
        if not ends or not all(0 <= one < math.inf for one in ends) or ends != sorted(ends):
            raise ConfigError(
                f"row_count_vs_last from {self.least!r} to {self.most!r}",
                hint="Write row_count_vs_last(0.5, 2) for at least half and at most twice as many rows.",
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """No column."""
        return ()

    @property
    def limit(self) -> object:
        """The ends of the ratio."""
        return {"min": self.least, "max": self.most}

    def refuse(self, given: Schema, /) -> None:
        """Rows can always be counted."""

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Nothing:
        """Rows are counted anyway."""
        del given, keys, part
        return Nothing()

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many there are, and were."""
        del states
        rows, last = ending.rows, ending.last
        observed = {"rows": rows, "last": last}
        if last is None:
            return Finding(passed=True, observed=observed, said="there is no version before")
        passed = (self.least is None or rows >= self.least * last) and (self.most is None or rows <= self.most * last)
        ends = [f"at least {self.least:g}" if self.least is not None else ""]
        ends.append(f"at most {self.most:g}" if self.most is not None else "")
        wanted = " and ".join(filter(None, ends))
        return Finding(passed, observed, f"there are {rows} rows after {last}, {wanted} times as many were expected")


@dataclass(frozen=True, slots=True)
class NullRate:
    """At most a share of a column's rows is NULL.

    Attributes:
        column: Its name.
        most: The share, from 0 to 1.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "null_rate"
    column: str
    most: float
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.column, self.kind)
        severity_of(self.severity, self.kind)
        share: object = self.most
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(
                f"null_rate({self.column!r}): the share is {self.most!r}", hint="It is a number from 0 to 1."
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def limit(self) -> object:
        """The share."""
        return self.most

    def refuse(self, given: Schema, /) -> None:
        """Every column can be asked."""

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows that are NULL."""
        column = seen.column(self.column)
        return ~valid_of(column) if column.null_count else None

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """Their share."""
        del ending
        rows, null, sample = offending(states)
        share = null / max(1, rows)
        # Compared as counts: a share is rounded.
        passed = null <= Fraction(str(self.most)) * rows
        said = f"{null} of {rows} rows are NULL ({share:.4g}), at most {self.most:g} was expected"
        return Finding(passed, share, said, null, sample)


@dataclass(frozen=True, slots=True)
class Freshness:
    """The newest moment of a column is not older than a span; without any moment it fails.

    Attributes:
        column: Of moments or dates; those without a zone are UTC, a date is its midnight.
        within: The span.
        now: The moment that it is counted from, with a zone; None: that of the run.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "freshness"
    column: str
    within: timedelta
    now: datetime | None = None
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.column, self.kind)
        severity_of(self.severity, self.kind)
        span: object = self.within
        if not isinstance(span, timedelta) or span < timedelta():
            raise ConfigError(
                f"freshness({self.column!r}): the span is {self.within!r}", hint="Give a timedelta(hours=24)."
            )
        if self.now is not None and self.now.tzinfo is None:
            raise ConfigError(
                f"freshness({self.column!r}): now is without a zone", hint="Write datetime(…, tzinfo=UTC)."
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def limit(self) -> object:
        """The span."""
        return {"within_seconds": self.within.total_seconds()}

    def refuse(self, given: Schema, /) -> None:
        """Columns that hold no moments."""
        kind: Any = given.field(self.column).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise ConfigError(f"{self.column} is {kind}, which is no moment", column=self.column)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Newest:
        """For one part."""
        del given, keys, part
        return Newest(self.column)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """The newest moment of all."""
        now = ending.now if self.now is None else self.now
        newest = max((one["newest"] for one in states if one["newest"] is not None), default=None)
        if newest is None:
            return Finding(passed=False, observed=None, said="there is no moment in it")
        text = _moment(newest)
        said = f"the newest is {text}, older than {self.within} at {now.isoformat(timespec='seconds')}"
        return Finding(newest >= (now - _EPOCH - self.within) // _TICK, text, said)


class Newest:
    """The newest moment of a column."""

    def __init__(self, column: str, /) -> None:
        self._column = column
        self._newest: int | None = None

    def take(self, seen: Seen, /) -> None:
        """The next rows."""
        column = seen.column(self._column)
        found = pc.max(column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())).as_py()
        if found is not None:
            # In Python: a date or a second of a store may lie beyond the microseconds of int64.
            many, one = _UNITS[getattr(column.type, "unit", "day" if pa.types.is_date32(column.type) else "ms")]
            moment = found * many // one
            self._newest = moment if self._newest is None else max(self._newest, moment)

    def state(self) -> Mapping[str, Any]:
        """It, in microseconds since 1970, UTC."""
        return {"newest": self._newest}


def _moment(ticks: int) -> str:
    try:
        return (_EPOCH + ticks * _TICK).isoformat()
    except OverflowError:
        return f"{ticks} microseconds after 1970"


@dataclass(frozen=True, slots=True)
class SumMatches:
    """The sum of a column is a number, or the sum of another column; exact but for floats.

    Attributes:
        column: Of numbers or decimals.
        to: The number or the other column.
        tolerance: How far they may be apart; floats need one.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "sum_matches"
    column: str
    to: str | int | float | Decimal
    tolerance: int | float | Decimal = 0
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.column, self.kind)
        severity_of(self.severity, self.kind)
        if isinstance(self.to, bool) or not isinstance(self.to, str | int | float | Decimal):
            raise ConfigError(f"sum_matches({self.column!r}): to is {self.to!r}", hint="Give a number or a column.")
        if not self.tolerance >= 0:
            raise ConfigError(f"sum_matches({self.column!r}): the tolerance is {self.tolerance!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return (self.column, self.to) if isinstance(self.to, str) else (self.column,)

    @property
    def limit(self) -> object:
        """What it is held to."""
        return {"to": json_of(self.to), "tolerance": json_of(self.tolerance)}

    def refuse(self, given: Schema, /) -> None:
        """Columns that are no numbers, and floats without a tolerance."""
        for name in self.reads:
            kind: Any = given.field(name).type
            if pa.types.is_floating(kind):
                if not self.tolerance:
                    raise ConfigError(f"{name} is {kind}: sums of floats are rounded", hint="Give a tolerance=.")
            elif not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
                raise ConfigError(f"{name} is {kind}, which has no sum", column=name)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Sums:
        """For one part."""
        del given, keys, part
        return Sums(self.reads)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """The sums."""
        del ending
        with localcontext(_EXACT):
            sums = [sum((one["sums"][i] for one in states), Decimal()) for i in range(len(self.reads))]
            to = sums[1] if isinstance(self.to, str) else Decimal(str(self.to))
            apart = abs(sums[0] - to)
            passed = bool(apart.is_finite() and apart <= Decimal(str(self.tolerance)))
        sums, to = [_SHOWN.plus(one) for one in sums], _SHOWN.plus(to)
        said = (
            f"the sum is {sums[0]}, that of {self.to} is {to}" if len(sums) > 1 else f"the sum is {sums[0]}, not {to}"
        )
        return Finding(passed, {"sum": str(sums[0]), "to": str(to)}, said)


class Sums:
    """Exact sums of columns."""

    def __init__(self, columns: Sequence[str], /) -> None:
        self._columns = columns
        self._sums = [Decimal() for _ in columns]

    def take(self, seen: Seen, /) -> None:
        """The next rows."""
        with localcontext(_EXACT):
            for place, name in enumerate(self._columns):
                column = seen.column(name)
                if pa.types.is_floating(column.type):
                    total = _sum_of(column.drop_null().cast(pa.float64()).to_numpy())
                else:
                    scale = getattr(column.type, "scale", 0)
                    total = Decimal(pc.sum(column.cast(pa.decimal256(76, scale))).as_py() or 0)
                self._sums[place] += total

    def state(self) -> Mapping[str, Any]:
        """The sums."""
        return {"sums": self._sums}


def _sum_of(values: NDArray[np.float64]) -> Decimal:
    """The exact sum; NaN where one value is not finite. To be called where Decimals are exact."""
    if not np.isfinite(values).all():
        return Decimal("nan")
    parts, exponents = np.frexp(values)
    whole = (parts * (1 << 2 * _HALF + 1)).astype(np.int64)
    least = int(exponents.min(initial=0))
    # Halves, so that sums of less than 2^26 of them are exact in float64.
    halves = whole >> _HALF, whole & ((1 << _HALF) - 1)
    high, low = (np.bincount(exponents - least, weights=half) for half in halves)
    total = Decimal()
    for place in np.flatnonzero(high.astype(np.bool_) | low.astype(np.bool_)).tolist():
        counted = (int(high[place]) << _HALF) + int(low[place])
        total += counted * Decimal(2) ** (least + place - 2 * _HALF - 1)
    return total


@dataclass(frozen=True, slots=True)
class Drift:
    """Values are distributed as in the version before; a first version passes.

    Attributes:
        limits: What may differ.
        columns: Only these are held to the limits; none: all but keys, times and running numbers.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "drift"
    limits: Limits
    columns: tuple[str, ...] = ()
    severity: Severity = "error"

    def __post_init__(self) -> None:
        severity_of(self.severity, self.kind)
        if not self.limits.given:
            raise ConfigError("drift without a limit", hint="Write drift(max_psi=0.2).")

    @property
    def reads(self) -> tuple[str, ...]:
        """None: columns may be compared as they were before the first step."""
        return ()

    @property
    def limit(self) -> object:
        """The limits that are given."""
        return {one.name: value for one in fields(self.limits) if (value := getattr(self.limits, one.name)) is not None}

    def refuse(self, given: Schema, /) -> None:
        """Which columns can be compared is known at the end."""

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Nothing:
        """Statistics are made anyway."""
        del given, keys, part
        return Nothing()

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """What is beyond its limit."""
        del states
        if ending.before is None:
            return Finding(passed=True, observed=[], said="there is no version before")
        try:
            excess = beyond(drift_of(ending.before, ending.document), self.limits, self.columns)
        except ConfigError as error:
            return Finding(passed=False, observed=None, said=str(error))
        return Finding(not excess, [one.as_json() for one in excess], "; ".join(map(str, excess)))
