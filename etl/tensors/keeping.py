"""The schema contract of a dataset: which columns a version may have after the one before; told by schemas alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from etl.core.arrow_types import parse_type
from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etl.core.schema import Field
    from etl.tensors.options import Format

Change: TypeAlias = Literal["evolve", "freeze"]
_MODES: Final = ("evolve", "freeze")
_LATER: Final = ("discard_row", "discard_value")
_PARTS: Final = ("columns", "data_type", "schema")
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
"""Of the integers of so many bits."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What columns may do between versions; a missing column is refused unless it may be NULL and columns evolve.

    Attributes:
        columns: A new column: "evolve" takes it, "freeze" refuses it; None: as the format is used.
        data_type: Another type: "evolve" takes a wider one, "freeze" none; None: "freeze".
        schema: Column → Arrow type, which stands for the version before; None: that version's columns.
    """

    columns: Change | None = None
    data_type: Change | None = None
    schema: Mapping[str, str] | None = field(default=None)

    def hold(
        self, now: Sequence[Field], live: Sequence[Mapping[str, object]] | None, format_: Format, target: str, /
    ) -> None:
        """Refuse columns that the contract does not allow.

        Args:
            now: Of the new version.
            live: `columns[]` of the version before; None: there is none.
            format_: Of the dataset.
            target: For the message.

        Raises:
            SchemaError: Each column is named, with its old and its new type.
        """
        if self.schema is None and live is None:
            return
        columns = self.columns or ("evolve" if format_ == "parquet" else "freeze")
        before = {str(one["name"]): (str(one["arrow_type"]), bool(one["nullable"])) for one in live or ()}
        if self.schema is not None:
            before = {name: (str(parse_type(kind)), False) for name, kind in self.schema.items()}
        have = {one.name: one.type for one in now}
        found = list(_missing(before, have, columns))
        if columns == "freeze":
            found += [f"{name} is new ({kind})" for name, kind in have.items() if name not in before]
        for name, kind in have.items():
            was = before.get(name, (str(kind), True))[0]
            if was != str(kind) and not (self.data_type == "evolve" and _is_wider(was, kind)):
                found.append(f"{name} was {was} and is {kind}")
        if found:
            whose = "the contract" if self.schema is not None else "the version before"
            raise SchemaError(
                f"the columns of {target} break its contract with {whose}: {'; '.join(found)}",
                hint='Correct the source, or let it change: contract={"columns": "evolve", "data_type": "evolve"}.',
            )


def contract_of(given: object, owner: str, /) -> Contract | None:
    """`contract={…}` of a pipeline.

    Raises:
        ConfigError: A word of it is unknown.
    """
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ConfigError(f"{owner}: contract is {given!r}", hint='Write contract={"columns": "freeze"}.')
    for name, value in given.items():
        if name not in _PARTS:
            raise ConfigError(f"{owner}: contract has {name!r}", hint=nearest(str(name), _PARTS, what="parts"))
        if name == "schema":
            continue
        if value in _LATER:
            raise ConfigError(
                f"{owner}: contract {name}={value!r}: rows and values cannot be discarded by a contract yet",
                hint='Use "freeze", and select or filter in the function.',
            )
        if value not in _MODES:
            raise ConfigError(f"{owner}: contract {name}={value!r}", hint=nearest(str(value), _MODES, what="modes"))
    schema = given.get("schema")
    if schema is not None:
        if not isinstance(schema, dict) or not schema:
            raise ConfigError(f"{owner}: contract schema={schema!r}", hint='Write "schema": {"id": "int64"}.')
        for name, kind in schema.items():
            try:
                parse_type(kind)
            except ConfigError as error:
                raise error.at(f"{owner}: contract, column {name}") from error
    return Contract(given.get("columns"), given.get("data_type"), None if schema is None else dict(schema))


def _missing(before: Mapping[str, tuple[str, bool]], have: Mapping[str, object], columns: Change) -> Iterable[str]:
    for name, (kind, nullable) in before.items():
        if name not in have and not (nullable and columns == "evolve"):
            yield f"{name} ({kind}) is missing"


def _is_wider(old: str, new: Any) -> bool:
    """Whether every value of the old type is one of the new one, of the same kind or a decimal."""
    try:
        was: Any = parse_type(old)
    except ConfigError:
        return False  # a type that no words name, as a dictionary
    types = pa.types
    if types.is_decimal(new) and types.is_decimal(was):
        return bool(new.scale >= was.scale and new.precision - new.scale >= was.precision - was.scale)
    if types.is_decimal(new) and types.is_integer(was):
        return bool(new.precision - new.scale >= _DIGITS[was.bit_width])
    if types.is_integer(was) and types.is_integer(new):
        signs = types.is_signed_integer(was), types.is_signed_integer(new)
        return bool(signs != (True, False) and new.bit_width > was.bit_width)
    return bool(types.is_floating(was) and types.is_floating(new) and new.bit_width > was.bit_width)
