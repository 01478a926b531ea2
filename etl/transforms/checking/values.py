"""Checks of each value against a list, a pattern or what the user says; NULL passes all of them, as in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.tensors.views import bits_of
from etl.transforms.applied import Apply
from etl.transforms.base import listed
from etl.transforms.checking.base import Offending, json_of, none_of, outside, severity_of
from etl.transforms.filters import Filter, holds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending, Severity
    from etl.transforms.checking.base import Finding, Seen

PASSES = "passes"
"""What a user's function gives."""
_LISTED = 20
"""Values of a list that a manifest tells."""


@dataclass(frozen=True, slots=True)
class AmongValues:
    """Every value is one of a list: of those accepted, or of the keys that rows elsewhere have.

    Attributes:
        column: Its name.
        values: Of the column's own type.
        severity: What it means when it fails.
        name: "accepted_values" or "references".
    """

    kind: ClassVar[str] = "accepted_values"
    column: str
    values: tuple[object, ...]
    severity: Severity = "error"
    name: str = "accepted_values"

    def __post_init__(self) -> None:
        listed(self.column, self.name)
        severity_of(self.severity, self.name)
        Filter(self.column, "in", self.values)

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def limit(self) -> object:
        """The first of the values, and how many there are."""
        return {"values": [json_of(one) for one in self.values[:_LISTED]], "count": len(self.values)}

    def refuse(self, given: Schema, /) -> None:
        """Values that are none of the column's."""
        Filter(self.column, "in", self.values).output_schema(given)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows whose value is there and not in the list."""
        return outside(holds(Filter(self.column, "in", self.values), seen.rows, seen.given), seen, self.column)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many."""
        del ending
        return none_of(states, "have another value" if self.name == self.kind else "refer to nothing")


@dataclass(frozen=True, slots=True)
class Matches:
    """Every text is, from its first character to its last, what a pattern says; read by RE2 on every engine.

    Attributes:
        column: Its name.
        pattern: A regular expression without backreferences and look-around.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "matches"
    column: str
    pattern: str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.column, self.kind)
        severity_of(self.severity, self.kind)
        try:
            pc.match_substring_regex(pa.array([""]), self._whole)
        except pa.ArrowInvalid as error:
            raise ConfigError(
                f"matches({self.column!r}): {self.pattern!r} is no pattern: {error}",
                hint="Backreferences and look-around are not there.",
                column=self.column,
            ) from error

    @property
    def _whole(self) -> str:
        return rf"\A(?:{self.pattern})\z"

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def limit(self) -> object:
        """The pattern."""
        return self.pattern

    def refuse(self, given: Schema, /) -> None:
        """Columns that are no text."""
        kind: Any = given.field(self.column).type
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(inner) or pa.types.is_large_string(inner)):
            raise ConfigError(f"{self.column} is {kind}, which is no text", column=self.column)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows whose text is there and is another."""
        column = seen.column(self.column)
        if pa.types.is_dictionary(column.type):
            column = pc.match_substring_regex(column.dictionary, self._whole).take(column.indices)
        else:
            column = pc.match_substring_regex(column, self._whole)
        return _untrue(column)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many."""
        del ending
        return none_of(states, f"do not match {self.pattern}")


@dataclass(frozen=True, slots=True)
class Custom:
    """What the user says is true of every row.

    Attributes:
        what: A condition; or a function of a module, which gives `passes` of bools; or the name of a column of bools.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "custom"
    what: Filter | Apply | str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        severity_of(self.severity, self.kind)
        if isinstance(self.what, str):
            listed(self.what, self.kind)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return (self.what,) if isinstance(self.what, str) else self.what.reads

    @property
    def limit(self) -> object:
        """The condition, in words."""
        if isinstance(self.what, Filter):
            value = self.what.value
            told = (
                [] if value is None else [[json_of(v) for v in value] if isinstance(value, tuple) else json_of(value)]
            )
            return [self.what.op, *told]
        return self.what.function if isinstance(self.what, Apply) else True

    def refuse(self, given: Schema, /) -> None:
        """Columns that it cannot be asked of."""
        if not isinstance(self.what, str):
            self.what.output_schema(given)
        elif not pa.types.is_boolean(given.field(self.what).type):
            raise ConfigError(
                f"{self.what} is {given.field(self.what).type}, and a check is true or false",
                hint=f'Write custom(Filter("{self.what}", ">", 0)), or a function.',
                column=self.what,
            )

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Offending:
        """For one part."""
        del given
        return Offending(self, keys, part)

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """Rows of which it is false."""
        what = self.what
        if isinstance(what, str):
            return _untrue(seen.column(what))
        if isinstance(what, Filter):
            true = holds(what, seen.rows, seen.given)
            return ~true if what.op in ("is null", "not null") else outside(true, seen, what.column)
        passes = what.on_host(seen.rows, seen.given, {})[PASSES]
        false = ~np.asarray(passes.data, np.bool_)
        return false & passes.present if passes.nulls else false

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """How many."""
        del ending
        return none_of(states, "do not pass")


def _untrue(column: Any) -> NDArray[np.bool_] | None:
    """True where a column of bools is there and false."""
    if not len(column):
        return None
    false = pc.fill_null(pc.invert(column), False)  # noqa: FBT003 - the stubs know no name of it
    return bits_of(false.buffers()[1], false.offset, len(false))
