"""The contracts of steps, and the states that fitted steps are made of.

A step is a frozen value whose fields are its arguments and its saved form. It knows its output columns without a row.
A fitted step first observes rows, part by part: states merge in the order of the parts, so that the same parts give
the same bytes, whatever came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from etl.core.schema import Schema

State: TypeAlias = Mapping[str, Any]
"""Numbers, texts, and mappings of them: what JSON holds. Big integers are whole; floats are saved as hex too."""


@runtime_checkable
class Transform(Protocol):
    """A step that keeps rows apart: one row in, one row out."""

    kind: ClassVar[str]
    """Names it in saved states."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values decide the result."""
        ...

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns that it changes or adds."""
        ...

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns that it gives for these.

        Raises:
            SchemaError: A column is missing.
            ConfigError: A column's type is none that it takes.
        """
        ...

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the step done, the input not changed; frames of pandas and cuDF alike.

        Args:
            frame: Of exactly `given`.
            given: As `output_schema`.
            state: What was fitted; empty for a step that is not.

        Raises:
            CastError: A result does not fit; the column is named.
        """
        ...


class Observer(Protocol):
    """What a fitted step gathers from the rows of one part; it holds none of them."""

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        ...

    def state(self) -> State:
        """What was gathered; asked for once."""
        ...


@runtime_checkable
class Fitted(Transform, Protocol):
    """A step whose figures come from the train rows."""

    @property
    def fits(self) -> bool:
        """Whether these arguments need any figures."""
        ...

    def observer(self, given: Schema, part: int, /) -> Observer:
        """For the rows of one part, of exactly `given`."""
        ...

    def merge(self, left: State, right: State, /) -> State:
        """Of both: associative, and commutative but for the last bits of floats."""
        ...

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """The figures that `apply` takes.

        Args:
            state: Of all rows.
            given: Their columns.
            filled: Columns whose NULLs an earlier step of the same scan fills, and with what: rows were seen before.

        Raises:
            DataError: Nothing can be fitted, for instance since all values are NULL; the column is named.
        """
        ...

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """What the user should know of the figures, in sentences."""
        ...


def needs_fit(step: Transform, /) -> bool:
    """Whether the step has to see rows before it can be applied."""
    return isinstance(step, Fitted) and step.fits


def listed(columns: str | list[str] | tuple[str, ...], what: str, /) -> tuple[str, ...]:
    """The columns of a step, each once.

    Raises:
        ConfigError: There is none, one is no text, or one is there twice.
    """
    given: tuple[object, ...] = (columns,) if isinstance(columns, str) else tuple(columns)
    names = tuple(name for name in given if isinstance(name, str) and name)
    if not names or len(names) != len(given):
        raise ConfigError(f"{what}: {columns!r} names no column", hint=f'Write {what}("price", …) or a list of names.')
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{what} names {', '.join(twice)} twice")
    return names
