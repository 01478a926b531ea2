"""Checks of all rows together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from etl.core.errors import ConfigError
from etl.transforms.checking.base import Finding, severity_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending, Severity
    from etl.transforms.checking.base import Seen


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
