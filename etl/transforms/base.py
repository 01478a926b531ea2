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
    from etl.transforms.host import Rows

State: TypeAlias = Mapping[str, Any]
"""Numbers, texts, lists and mappings of them, which are saved as JSON (big integers whole, floats as hex too), and
`pyarrow.Table`s, which are saved beside it: a table under {column: {"vocab": table}} is `vocab.<column>.table`."""


@runtime_checkable
class Transform(Protocol):
    """A step that keeps rows apart: what becomes of a row follows from that row and from what was fitted."""

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

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the step done: the batch path on CPUs, and serving.

        No row is touched in Python; one row takes microseconds, since a model waits for it.

        Args:
            rows: Of at least the columns that it reads.
            given: As `output_schema`.
            state: What was fitted; empty for a step that is not.

        Raises:
            CastError: A value is refused, or a result does not fit; column, row and value are named.
        """
        ...


@runtime_checkable
class Folded(Transform, Protocol):
    """A step that gives train rows other values than the rest, out of their fold: it looks at `Rows.train`."""

    @property
    def folds(self) -> int:
        """How many."""
        ...


@runtime_checkable
class Framed(Transform, Protocol):
    """A step that frames of a device can do themselves, row for row; any other is done on the host and handed back."""

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the step done, the input not changed; frames of pandas and cuDF alike.

        The same values as `on_host`; floats to the last bit, but for logarithms, powers and sines (1 ulp).

        Args:
            frame: Of exactly `given`.
            given: As `output_schema`.
            state: What was fitted; empty for a step that is not.

        Raises:
            CastError: A result does not fit; the column is named.
        """
        ...


@runtime_checkable
class Telling(Framed, Protocol):
    """A step whose `apply` counts what it met in values, as `on_host` does by `Rows.counted`."""

    def met(self, frame: Any, state: State, /) -> Mapping[tuple[str, str], int]:
        """(column, what) → count, of the frame that `apply` gave."""
        ...


@runtime_checkable
class Dropping(Transform, Protocol):
    """A step that leaves rows out of the dataset; serving passes it over, since who asks with a row wants an answer."""

    @property
    def drops_rows(self) -> bool:
        """True."""
        ...


@runtime_checkable
class Asking(Transform, Protocol):
    """A step that needs fewer columns in serving than it reads: no target, no key of folds."""

    def asks(self, wanted: frozenset[str], /) -> frozenset[str]:
        """The columns that must be there before it, so that `wanted` are there after it."""
        ...


@runtime_checkable
class Widened(Transform, Protocol):
    """A step whose columns' widths follow from what was fitted: `output_schema` says 1 where they are not known yet."""

    def fitted_schema(self, given: Schema, state: State, /) -> Schema:
        """As `output_schema`, once it is fitted."""
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
    """A step whose figures come from the train rows.

    One that has a true `knows_fills` takes what an earlier step fills NULLs with from `finish`, so that both are fitted
    in one reading; for any other the filled column is read once more.
    """

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


@runtime_checkable
class Described(Transform, Protocol):
    """A step that the manifest's columns say more of: vocabularies, scales of integers."""

    def describes(self, column: str, state: State, named: Mapping[str, Any], /) -> Mapping[str, object]:
        """Fields of `columns[]` for a column that it wrote, such as {"category": {…}}.

        Args:
            column: The column.
            state: What was fitted.
            named: The column's figures as they are saved: tables are {"table": name, "sha256": …, "rows": n}.
        """
        ...


def is_framed(step: Transform, given: Schema, /) -> bool:
    """Whether frames of a device can do the step.

    A step may say by `framed` that it cannot with these arguments, by `takes_frames(given)` that it cannot with these
    columns.
    """
    if not isinstance(step, Framed) or not getattr(step, "framed", True):
        return False
    takes = getattr(step, "takes_frames", None)
    return takes is None or bool(takes(given))


def asked(step: Transform, wanted: frozenset[str], before: frozenset[str], /) -> frozenset[str]:
    """The columns that serving needs before a step so that `wanted` are there after it.

    Args:
        step: The step.
        wanted: Columns after it.
        before: All columns before it.
    """
    if isinstance(step, Asking):
        return step.asks(wanted)
    made = frozenset(step.writes)
    if not made & wanted:
        return wanted
    return (wanted - (made - before)) | frozenset(step.reads)


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


class InPlace:
    """What reads columns and writes the same ones."""

    __slots__ = ()
    columns: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns
