"""Data checks: what must hold of the rows that a pipeline is about to publish.

Each is looked at while parts are written, over the rows after function and steps that no policy left out, and judged
before the switch: one of severity "error" that fails ends the run with exit 4, and nothing is published; one of
severity "warn" is shown. NULL fails `not_null` and counts in `null_rate`; all others pass over it, as SQL does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etl.tensors.drift import Limits
from etl.transforms.applied import Apply
from etl.transforms.checking.rows import InRange, NotNull
from etl.transforms.checking.unique import Unique
from etl.transforms.checking.values import PASSES, AmongValues, Custom, Matches
from etl.transforms.checking.whole import Drift, Freshness, NullRate, RowCount, RowCountVsLast, SumMatches
from etl.transforms.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta
    from decimal import Decimal

    import pyarrow as pa

    from etl.tensors.checking import Severity

__all__ = [
    "accepted_values",
    "custom",
    "drift",
    "freshness",
    "in_range",
    "matches",
    "not_null",
    "null_rate",
    "references",
    "row_count",
    "row_count_vs_last",
    "sum_matches",
    "unique",
]


def not_null(columns: str | Sequence[str], /, *, severity: Severity = "error") -> NotNull:
    """No value of these columns is NULL; NaN is a value.

    Raises:
        ConfigError: No column, or one twice.
    """
    return NotNull((columns,) if isinstance(columns, str) else tuple(columns), severity)


def in_range(column: str, /, min: Any = None, max: Any = None, *, severity: Severity = "error") -> InRange:  # noqa: A002 - the words of SQL
    """Every value of a column lies between two ends, which are in; NaN lies nowhere.

    Args:
        column: Numbers, decimals, moments, dates, spans or text.
        min: Of the column's own type; None: no end below.
        max: None: no end above.
        severity: "error" or "warn".

    Raises:
        ConfigError: No end at all.
    """
    return InRange(column, min, max, severity)


def row_count(min: int | None = None, max: int | None = None, *, severity: Severity = "error") -> RowCount:  # noqa: A002 - as above
    """The rows of the run are so many; for an append those that it adds.

    Raises:
        ConfigError: No end, or one that is no count.
    """
    return RowCount(min, max, severity)


def unique(columns: str | Sequence[str], /, *, severity: Severity = "error") -> Unique:
    """No two rows of the run have the same values in all of these columns; rows with a NULL there are not compared.

    Exact over all parts: their keys are held in memory at the end, up to 100 million.

    Raises:
        ConfigError: No column, or one twice.
    """
    return Unique((columns,) if isinstance(columns, str) else tuple(columns), severity)


def accepted_values(column: str, values: Sequence[object], /, *, severity: Severity = "error") -> AmongValues:
    """Every value of a column is one of these.

    Raises:
        ConfigError: NULL is among them.
    """
    return AmongValues(column, tuple(values), severity)


def references(
    column: str, keys: Sequence[object] | pa.Array[Any] | pa.ChunkedArray[Any], /, *, severity: Severity = "error"
) -> AmongValues:
    """Every value of a column is one of the keys that rows elsewhere have.

    Args:
        column: Its name.
        keys: A list, or a column of Arrow.
        severity: "error" or "warn".

    Raises:
        ConfigError: NULL is among them.
    """
    listed = keys if isinstance(keys, Sequence) else keys.to_pylist()
    return AmongValues(column, tuple(listed), severity, "references")


def matches(column: str, pattern: str, /, *, severity: Severity = "error") -> Matches:
    r"""Every text of a column is all of what a pattern says: `matches("zip", r"\d{5}")`.

    Patterns are those of RE2, whichever engine makes the rows: no backreferences, no look-around.

    Raises:
        ConfigError: It is no pattern.
    """
    return Matches(column, pattern, severity)


def row_count_vs_last(
    min: float | None = None,  # noqa: A002 - as above
    max: float | None = None,  # noqa: A002 - as above
    *,
    severity: Severity = "error",
) -> RowCountVsLast:
    """The rows are so many times those of the version before; for an append those that it added.

    Raises:
        ConfigError: No end, or one that is no ratio.
    """
    return RowCountVsLast(min, max, severity)


def null_rate(column: str, max: float, /, *, severity: Severity = "error") -> NullRate:  # noqa: A002 - as above
    """At most this share of a column's rows is NULL, from 0 to 1.

    Raises:
        ConfigError: It is no share.
    """
    return NullRate(column, max, severity)


def freshness(
    column: str, within: timedelta, /, *, now: datetime | None = None, severity: Severity = "error"
) -> Freshness:
    """The newest moment of a column is not older than a span.

    Args:
        column: Of moments or dates; without a zone they are UTC.
        within: The span.
        now: From where it is counted, with a zone; None: the moment of the run.
        severity: "error" or "warn".

    Raises:
        ConfigError: The span is none.
    """
    return Freshness(column, within, now, severity)


def sum_matches(
    column: str,
    to: str | float | Decimal,
    /,
    *,
    tolerance: float | Decimal = 0,
    severity: Severity = "error",
) -> SumMatches:
    """The sum of a column is a number, or that of another column; exact but for floats, which need a tolerance.

    Raises:
        ConfigError: `to` is neither.
    """
    return SumMatches(column, to, tolerance, severity)


def custom(
    what: str | Filter | Callable[..., Any], columns: str | Sequence[str] = (), /, *, severity: Severity = "error"
) -> Custom:
    """What you say is true of every row.

    Args:
        what: A column of bools; a condition, as `Filter("price", ">", 0)`; or a function of a module, called as that
            of `Apply` with these columns, which gives `{"passes": bools}`.
        columns: What the function gets.
        severity: "error" or "warn".

    Raises:
        ConfigError: The function cannot be imported by its name.
    """
    if isinstance(what, str | Filter):
        return Custom(what, severity)
    return Custom(Apply(what, [columns] if isinstance(columns, str) else list(columns), {PASSES: "bool"}), severity)


def drift(
    *,
    max_psi: float | None = None,
    max_null_change: float | None = None,
    max_mean_shift: float | None = None,
    max_spread_ratio: float | None = None,
    max_new_categories: int | None = None,
    max_gone_categories: int | None = None,
    columns: str | Sequence[str] = (),
    severity: Severity = "error",
) -> Drift:
    """Values are distributed as in the version before, in the measures of `etl.diff`; no rows are read for it.

    Args:
        max_psi: Of the population stability index.
        max_null_change: Of the change of the share of NULL, and of NaN.
        max_mean_shift: Of the change of the mean, in old standard deviations.
        max_spread_ratio: Of the larger standard deviation over the smaller.
        max_new_categories: Of values that only the new rows have.
        max_gone_categories: Of values that only the old rows had.
        columns: Only these; none: all but keys, times and running numbers.
        severity: "error" or "warn".

    Raises:
        ConfigError: No limit, or one that is none.
    """
    limits = Limits(max_psi, max_null_change, max_mean_shift, max_spread_ratio, max_new_categories, max_gone_categories)
    return Drift(limits, (columns,) if isinstance(columns, str) else tuple(columns), severity)
