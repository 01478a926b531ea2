"""What is read, as values: a table or a query with its columns bound, found by catalogue and describe alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from connectors.postgresql.session import Row, Session, catalogue, literal
from connectors.postgresql.types import Column, Given, Policy, TypeRow, bind
from connectors.sqltext import parse_table_name, prepare, quote_name
from etl.core.errors import ConfigError, StoreRejected
from etl.core.schema import Schema, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.base import Query
    from connectors.sqltext import Text

DIALECT: Final = "postgresql"
MULTIRANGES: Final = 140000
"""The version that brought them, and TID range scans."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the catalogue has it. `kind` is pg_class.relkind."""

    oid: int
    schema: str
    name: str
    kind: str
    primary: tuple[str, ...] = ()

    @property
    def quoted(self) -> str:
        """Schema and name, quoted."""
        return f"{quote_name(self.schema, DIALECT)}.{quote_name(self.name, DIALECT)}"

    @property
    def words(self) -> str:
        """Schema and name, for messages."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Description:
    """Exactly one of `relation` and `text` is set. `columns` are those wanted, `everything` all there are."""

    columns: tuple[Column, ...]
    everything: tuple[Column, ...]
    relation: Relation | None = None
    text: Text | None = None
    version: int = 0

    @property
    def schema(self) -> Schema:
        """The fields of the columns wanted."""
        return Schema(tuple(c.field for c in self.columns))

    def column(self, name: str, /) -> Column:
        """A column of the table, or of the query's output, whether it is wanted or not.

        Raises:
            ConfigError: There is none; the nearest are named.
        """
        for one in self.everything:
            if one.name == name:
                return one
        raise ConfigError(f"no column {name}", hint=nearest(name, [c.name for c in self.everything]), column=name)


def table_name(text: str, /) -> str:
    """The user's words for a table, quoted for SQL and kept byte for byte."""
    return ".".join(quote_name(part, DIALECT) for part in parse_table_name(text, DIALECT))


def query_text(query: Query, /) -> Text:
    """The user's query, checked and with its parameters in place."""
    return prepare(query.sql or "", dialect=DIALECT, params=query.params, quote_literal=quoted_value)


def quoted_value(value: object, /) -> str:
    """A parameter's value as a typed literal of PostgreSQL.

    Raises:
        ConfigError: Values of this Python type have no literal.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return f"({value})" if value < 0 else str(value)
        case str():
            return literal(value)
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case list() | tuple():
            return f"array[{', '.join(quoted_value(one) for one in value)}]"
        case timedelta():
            return (
                literal(f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds") + "::interval"
            )
    words = _LITERALS.get(type(value).__name__)
    if words is None:
        raise ConfigError(f"a parameter of type {type(value).__name__} has no literal in PostgreSQL")
    if words == "timestamp" and getattr(value, "tzinfo", None) is not None:
        words = "timestamptz"
    return f"{literal(str(value))}::{words}"


_LITERALS: Final[Mapping[str, str]] = {
    "Decimal": "numeric",
    "float": "float8",
    "date": "date",
    "datetime": "timestamp",
    "time": "time",
    "UUID": "uuid",
}


def describe(session: Session, query: Query, /) -> Description:
    """The table or query with its columns bound. Reads catalogues only: two round trips, for a query three.

    Raises:
        ConfigError: A column or type asked for does not fit; two columns have one name.
        StoreRejected: There is no such table, or the server refuses the text.
    """
    found = _query(session, query) if query.table is None else _table(session, query, query.table)
    names = [c.name for c in found.everything]
    _refuse_twice(names)
    for name in query.types:
        if name not in names:
            raise ConfigError(f"types: no column {name}", hint=nearest(name, names), column=name)
    if not names:
        raise ConfigError("there are no columns to read")
    if query.columns is None:
        return found
    _refuse_twice(query.columns)
    return replace(found, columns=tuple(found.column(name) for name in query.columns))


def _refuse_twice(names: Iterable[str]) -> None:
    seen: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if name in seen:
            raise ConfigError(
                f"columns {seen[name]} and {position} are both named {name}: give one an alias", column=name
            )
        seen[name] = position


def _table(session: Session, query: Query, table: str) -> Description:
    name = table_name(table)
    relation = f"pg_catalog.to_regclass({literal(name)})"
    own = f"a.attrelid = {relation} and a.attnum > 0 and not a.attisdropped"
    wanted = f"(select array_agg(a.atttypid) from pg_catalog.pg_attribute a where {own})"  # noqa: S608 - a quoted name
    results = session.run(
        "; ".join(
            (
                catalogue("relation", {"relation": relation}),
                catalogue("columns", {"relation": relation}),
                _types(wanted, session.version),
            )
        ),
        f"describing table {table}",
    )
    if not results[0]:
        raise no_table(session, table)
    oid, schema, bare, kind, primary, money = results[0][0]
    found = Relation(oid, schema, bare, kind, tuple(primary))
    plain = kind in ("r", "p", "m")
    given = [
        Given(c, typ, mod, words, dims, not (plain and required), collation, oid, number)
        for c, typ, mod, dims, required, words, collation, number in results[1]
    ]
    columns = _bound(given, _rows(results[2]), query, money)
    return Description(columns, columns, relation=found, version=session.version)


def _query(session: Session, query: Query) -> Description:
    text = query_text(query)
    described = session.describe(text.sql, "describing the query")
    arrays = {
        "types": _array([d[1] for d in described], "oid"),
        "modifiers": _array([d[2] for d in described], "int4"),
        "tables": _array([d[3] for d in described], "oid"),
        "attributes": _array([d[4] for d in described], "int4"),
    }
    more, types = session.run(
        f"{catalogue('described', arrays)}; {_types(arrays['types'], session.version)}", "describing the query"
    )
    given = [
        Given(name, typ, mod, words, dims, nullable=True, collation=collation, table=table, attribute=attribute)
        for (name, typ, mod, table, attribute), (_, words, dims, collation, _) in zip(described, more, strict=True)
    ]
    money = more[0][4] if more else 2
    columns = _bound(given, _rows(types), query, money)
    return Description(columns, columns, text=text, version=session.version)


def _array(values: Sequence[int], kind: str) -> str:
    return f"'{{{','.join(str(v) for v in values)}}}'::{kind}[]"


def _types(roots: str, version: int) -> str:
    # Before 14 there are no multiranges, and pg_range has no column for them.
    column = "r.rngmultitypid" if version >= MULTIRANGES else "0::oid"
    return catalogue("types", {"roots": roots, "multirange": column})


def _rows(found: Sequence[Row]) -> dict[int, TypeRow]:
    types: dict[int, TypeRow] = {}
    for row in found:
        more = (tuple(row[12] or ()), tuple(tuple(one) for one in row[13] or ()), row[14])
        types[row[0]] = TypeRow(*(row[:12] + more))
    return types


def _bound(given: Sequence[Given], rows: Mapping[int, TypeRow], query: Query, money: int) -> tuple[Column, ...]:
    policy = Policy(query.special or "error", query.cast, money)
    return tuple(bind(one, rows, policy, override=query.types.get(one.name)) for one in given)


def no_table(session: Session, table: str, /) -> StoreRejected:
    """The error for a table that is not there, with the nearest names."""
    parts = parse_table_name(table, DIALECT)
    rows = session.rows(catalogue("tables", {}), "listing tables")
    word = ".".join(parts)
    near = [f"{r[0]}.{r[1]}" for r in rows if len(parts) > 1 or not r[5]] + [r[1] for r in rows if r[5]]
    lowered = {name.lower(): name for name in near}
    hint = f"Did you mean {lowered[word.lower()]}?" if word.lower() in lowered else nearest(word, near, what="tables")
    return StoreRejected(
        f"connection {session.endpoint.name} has no table {table}",
        hint=hint,
        connection=session.endpoint.name,
        sqlstate="42P01",
    )
