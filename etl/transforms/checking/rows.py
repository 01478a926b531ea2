"""Checks of each row by itself: it offends, or it does not. NULL offends `NotNull` only, as in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from etl.core.errors import ConfigError
from etl.tensors.views import valid_of
from etl.transforms.base import listed
from etl.transforms.checking.base import Offending, json_of, none_of, outside, severity_of
from etl.transforms.filters import Filter, holds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending, Severity
    from etl.transforms.checking.base import Finding, Seen


@dataclass(frozen=True, slots=True)
class NotNull:
    """No value of a column is NULL; NaN is a value."""

    kind: ClassVar[str] = "not_null"
    columns: tuple[str, ...]
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.columns, self.kind)
        severity_of(self.severity, self.kind)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def limit(self) -> object:
        """No row."""
        return 0

    def refuse(self, given: Schema, /) -> None:
        """Every column can be asked."""

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows with a NULL in one of the columns."""
        found: NDArray[np.bool_] | None = None
        for name in self.columns:
            column = seen.column(name)
            if column.null_count:
                null = ~valid_of(column)
                found = null if found is None else found | null
        return found

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many."""
        del ending
        return none_of(states, "have NULL")


@dataclass(frozen=True, slots=True)
class InRange:
    """Every value lies between two ends, which are in; NaN lies nowhere.

    Attributes:
        column: Its name.
        least: None: no end below.
        most: None: no end above.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "in_range"
    column: str
    least: Any = None
    most: Any = None
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.column, self.kind)
        severity_of(self.severity, self.kind)
        if self.least is None and self.most is None:
            raise ConfigError(
                f"in_range({self.column!r}) has no end", hint=f'Write in_range("{self.column}", 0, 100) or min=0.'
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def limit(self) -> object:
        """The ends."""
        return {"min": json_of(self.least), "max": json_of(self.most)}

    def _conditions(self) -> list[Filter]:
        ends: list[Filter] = []
        if self.least is not None:
            ends.append(Filter(self.column, ">=", self.least))
        if self.most is not None:
            ends.append(Filter(self.column, "<=", self.most))
        return ends

    def refuse(self, given: Schema, /) -> None:
        """Columns without an order, and ends that are no values of the column."""
        for one in self._conditions():
            one.output_schema(given)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows whose value is there and lies outside."""
        inside = [holds(one, seen.rows, seen.given) for one in self._conditions()]
        return outside(np.logical_and.reduce(inside), seen, self.column)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many."""
        del ending
        ends = [f"below {json_of(self.least)}" if self.least is not None else ""]
        ends.append(f"above {json_of(self.most)}" if self.most is not None else "")
        return none_of(states, f"are {' or '.join(filter(None, ends))}")
