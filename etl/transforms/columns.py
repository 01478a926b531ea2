"""Steps on which columns there are: renamed, selected, and told where they are NULL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.transforms.base import listed
from etl.transforms.host import Values

if TYPE_CHECKING:
    from etl.transforms.base import State
    from etl.transforms.host import Rows


@dataclass(frozen=True, slots=True)
class Rename:
    """Columns under other names; each stays in its place.

    Attributes:
        names: (old, new) pairs; given as a mapping of old → new.

    Raises:
        ConfigError: No pair of names, or a name that is there twice.
    """

    kind: ClassVar[str] = "rename"
    names: tuple[tuple[str, str], ...]

    def __init__(self, names: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        pairs = pairs_of(names, "Rename", '{"old": "new"}')
        listed([new for _, new in pairs], "Rename")
        object.__setattr__(self, "names", pairs)

    @property
    def reads(self) -> tuple[str, ...]:
        """The old names."""
        return tuple(old for old, _ in self.names)

    @property
    def writes(self) -> tuple[str, ...]:
        """The new names."""
        return tuple(new for _, new in self.names)

    def asks(self, wanted: frozenset[str], /) -> frozenset[str]:
        """What is wanted, under the old names."""
        back = {new: old for old, new in self.names}
        return frozenset(back.get(name, name) for name in wanted)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns in the same order, some under new names."""
        given.require(*self.reads)
        new = dict(self.names)
        for name in self.writes:
            if name in given.names and name not in new:
                raise ConfigError(
                    f"Rename: there is a column {name} already",
                    hint="Take another name, rename that one as well, or leave it out with Select before.",
                    column=name,
                )
        return Schema(tuple(replace(f, name=new[f.name]) if f.name in new else f for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows under the new names; no value is touched."""
        del given, state
        return rows.renamed(dict(self.names))


@dataclass(frozen=True, slots=True)
class Select:
    """These columns and no others, in this order.

    Keys, targets, weights and columns that split the rows are columns as all others: what the sink names must stay.

    Attributes:
        columns: Their names.

    Raises:
        ConfigError: No column, or one twice.
    """

    kind: ClassVar[str] = "select"
    columns: tuple[str, ...]

    def __init__(self, columns: str | list[str] | tuple[str, ...]) -> None:
        object.__setattr__(self, "columns", listed(columns, "Select"))

    @property
    def reads(self) -> tuple[str, ...]:
        """None: no value is looked at, so columns of any type may stay."""
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        """None."""
        return ()

    def output_schema(self, given: Schema, /) -> Schema:
        """These columns."""
        given.require(*self.columns)
        return given.select(self.columns)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows of these columns; no value is touched."""
        del given, state
        return rows.selected(self.columns)


@dataclass(frozen=True, slots=True)
class NullIndicator:
    """A bool column beside each column: True where it is NULL. NaN is a value.

    Attributes:
        columns: Their names.
        name: Of the new columns; {} stands for the column.

    Raises:
        ConfigError: No column, or a name without {}.
    """

    kind: ClassVar[str] = "null_indicator"
    columns: tuple[str, ...]
    name: str = "{}_null"

    def __init__(self, columns: str | list[str] | tuple[str, ...], name: str = "{}_null") -> None:
        object.__setattr__(self, "columns", listed(columns, "NullIndicator"))
        if not name or (name.count("{}") != 1 and len(self.columns) > 1):
            raise ConfigError(f"NullIndicator: the name is {name!r}", hint='{} in it stands for the column: "{}_null".')
        object.__setattr__(self, "name", name)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The new columns."""
        return tuple(self.name.replace("{}", name) for name in self.columns)

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns, and the new ones after them."""
        given.require(*self.columns)
        return with_new(given, [Field(name, pa.bool_(), nullable=False) for name in self.writes], "NullIndicator")

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the new columns."""
        del given, state
        return rows.with_columns(
            {new: Values(~rows[old].present) for old, new in zip(self.columns, self.writes, strict=True)}
        )

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the new columns."""
        del given, state
        made = frame.copy(deep=False)
        for old, new in zip(self.columns, self.writes, strict=True):
            made[new] = frames.is_null(frame[old])
        return made


def pairs_of(
    given: Mapping[str, str] | Iterable[tuple[str, str]], what: str, example: str, /
) -> tuple[tuple[str, str], ...]:
    """Pairs of texts, as they are saved: a mapping of one text to another may be read back as a moment.

    Raises:
        ConfigError: They are none, there is none, or a first one is there twice.
    """
    pairs: list[Any] = list(given.items()) if isinstance(given, Mapping) else list(given)
    for one in pairs:
        fits = isinstance(one, tuple | list) and len(one) == 2
        if not fits or not all(isinstance(text, str) and text for text in one):
            raise ConfigError(f"{what}: {one!r} is no pair of texts", hint=f"Write {what}({example}).")
    if not pairs:
        raise ConfigError(f"{what} of nothing", hint=f"Write {what}({example}).")
    firsts = [str(one[0]) for one in pairs]
    twice = sorted({name for name in firsts if firsts.count(name) > 1})
    if twice:
        raise ConfigError(f"{what} names {', '.join(twice)} twice")
    return tuple((str(one), str(other)) for one, other in pairs)


def with_new(given: Schema, fields: Iterable[Field], what: str, /, *, instead: Iterable[str] = ()) -> Schema:
    """The schema with new columns after the others.

    Args:
        given: The columns before.
        fields: The new ones.
        what: The step, for the error.
        instead: Columns that go.

    Raises:
        ConfigError: There is a column of that name already.
    """
    made = [f for f in given if f.name not in set(instead)]
    for one in fields:
        if one.name in {f.name for f in made}:
            raise ConfigError(
                f"{what}: there is a column {one.name} already", hint="Give the new one another name.", column=one.name
            )
        made.append(one)
    return Schema(tuple(made))
