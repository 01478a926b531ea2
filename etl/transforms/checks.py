"""Data checks: what must hold of the rows that a pipeline is about to publish.

Each is looked at while parts are written, over the rows after function and steps that no policy left out, and judged
before the switch: one of severity "error" that fails ends the run with exit 4, and nothing is published; one of
severity "warn" is shown. NULL fails `not_null` and counts in `null_rate`; all others pass over it, as SQL does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etl.transforms.checking.rows import InRange, NotNull
from etl.transforms.checking.whole import RowCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.tensors.checking import Severity

__all__ = ["in_range", "not_null", "row_count"]


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
