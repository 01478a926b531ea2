"""Fields and schemas: known before the first row is read, never derived from values."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from etl.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its Arrow type and where the type came from.

    Attributes:
        name: Byte for byte as the store has it.
        type: The Arrow type; a dictionary type for enums.
        nullable: False only where a whole table is read and the catalogue says NOT NULL.
        source_type: The store's own words: "numeric(12,2)".
        read_as: "text" where the store's own text is read because the type has no decoder, else "".
        vocabulary: All labels of an enum in declared order, one vocabulary over all parts; None for other types.
        metadata: Arrow field metadata, such as {"cuetl.type": "json"}.
        note: A sentence for the plan, such as "decimal(38,18), wider if the data needs it".
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    source_type: str = ""
    read_as: str = ""
    vocabulary: tuple[str, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def to_arrow(self) -> pa.Field[pa.DataType]:
        """The Arrow field."""
        return pa.field(self.name, self.type, nullable=self.nullable, metadata=dict(self.metadata) or None)


@dataclass(frozen=True, slots=True)
class Schema:
    """Ordered, uniquely named fields, known before the first row is read."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for position, one in enumerate(self.fields, 1):
            if one.name in seen:
                raise SchemaError(
                    f"columns {seen[one.name]} and {position} are both named {one.name}", hint="Give one an alias."
                )
            seen[one.name] = position

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(f.name for f in self.fields)

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema, field metadata included."""
        return pa.schema([f.to_arrow() for f in self.fields])

    def field(self, name: str, /) -> Field:
        """The field of that name.

        Raises:
            SchemaError: There is none; the nearest names are given.
        """
        for one in self.fields:
            if one.name == name:
                return one
        self.require(name)
        raise AssertionError(name)

    def require(self, *names: str) -> None:
        """Hold that every name is a column.

        Raises:
            SchemaError: One is not; the nearest columns are named.
        """
        have = self.names
        for name in names:
            if name not in have:
                raise SchemaError(f"no column {name}", hint=nearest(name, have), column=name)

    def select(self, names: Iterable[str], /) -> Schema:
        """The schema of these columns in this order."""
        return Schema(tuple(self.field(n) for n in names))


def nearest(word: str, known: Iterable[str], /, *, what: str = "columns") -> str:
    """A sentence that names what the writer may have meant."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
    return f"The {what} are {shown}." if known else f"There are no {what}."
