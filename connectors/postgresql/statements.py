"""The SQL of parts: pure text from a description and a slice. Every name is quoted, every bound a quoted literal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.postgresql.describe import DIALECT, Description
from connectors.postgresql.session import literal
from connectors.sqltext import quote_name, wrap
from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.base import Query
    from connectors.postgresql.types import Column
    from connectors.sqltext import SimpleSelect
    from etl.core.partition import Slice


WHOLE: Final = Whole()


def name(text: str, /) -> str:
    """A quoted identifier."""
    return quote_name(text, DIALECT)


def condition(described: Description, part: Slice, /) -> str:
    """The WHERE condition of a slice, "" for all rows."""
    match part:
        case Whole():
            return ""
        case Pages():
            return pages_condition(part)
        case KeyRange():
            return _range(described, part)
        case NullKeys(column):
            return f"{name(column)} is null"
        case Hash(column, index, of):
            hashed = f"pg_catalog.hashtext(({name(column)})::text)::int8"
            return f"coalesce(pg_catalog.abs({hashed}) % {of}, 0) = {index}"
        case Child(_, inner):
            return condition(described, inner)


def pages_condition(part: Pages, /) -> str:
    """Half-open ranges of ctid. A page holds tuples from number 1 on: (low,0) lies before all of them."""
    upper = f" and ctid < '({part.high},0)'::tid" if part.high is not None else ""
    return f"ctid >= '({part.low},0)'::tid{upper}"


def _range(described: Description, part: KeyRange) -> str:
    columns = [described.column(c) for c in part.columns]
    left = _row([name(c.name) for c in columns])
    sides = []
    if part.low is not None:
        sides.append(f"{left} >= {_bounds(columns, part.low)}")
    if part.high is not None:
        sides.append(f"{left} < {_bounds(columns, part.high)}")
    both = " and ".join(sides)
    nothing = f"{name(part.columns[0])} is null"
    if not both:
        return "" if part.nulls or not columns[0].field.nullable else f"{name(part.columns[0])} is not null"
    return f"({both} or {nothing})" if part.nulls else both


def _bounds(columns: Sequence[Column], texts: Sequence[str]) -> str:
    return _row([f"{literal(text)}::{c.literal_type}" for c, text in zip(columns, texts, strict=True)])


def _row(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"({', '.join(items)})"


def projection(columns: Sequence[Column], /) -> str:
    """The select list: each column by name, cast where its type has no decoder."""
    return ", ".join(f"{name(c.name)}::{c.cast} as {name(c.name)}" if c.cast else name(c.name) for c in columns)


def select(described: Description, query: Query, part: Slice, columns: Sequence[Column], /) -> str:
    """The select of a part, ready for COPY."""
    where = condition(described, part)
    limit = f" limit {query.limit}" if query.limit is not None else ""
    text = described.text
    if text is None:
        return f"select {projection(columns)} from {_from(described, part)}{f' where {where}' if where else ''}{limit}"  # noqa: S608 - quoted names and literals only
    whole = tuple(columns) == described.everything and not any(c.cast for c in columns)
    if isinstance(part, Pages) and text.top_level.simple_select is not None:
        inner = paged(text.top_level.simple_select, where)
        return inner if whole else f"select {projection(columns)} from (\n{inner}\n) as cuetl_q"  # noqa: S608 - the user's own query
    if whole and not where and not limit:
        return text.sql
    return wrap(text, projection(columns), where or None) + limit


def count(described: Description, query: Query, part: Slice, /) -> str:
    """How many rows a part has."""
    where = condition(described, part)
    text = described.text
    if query.limit is not None:
        inner = select(described, query, part, described.columns)
        return f"select count(*) from (\n{inner}\n) as cuetl_n"  # noqa: S608 - built above
    if text is None:
        return f"select count(*) from {_from(described, part)}{f' where {where}' if where else ''}"  # noqa: S608 - quoted names and literals only
    if isinstance(part, Pages) and text.top_level.simple_select is not None:
        return f"select count(*) from (\n{paged(text.top_level.simple_select, where)}\n) as cuetl_n"  # noqa: S608 - the user's own query
    return wrap(text, "count(*)", where or None)


def paged(simple: SimpleSelect, where: str, /) -> str:
    """A plain select with one more condition. The user's own condition stands on lines of its own, for its comments."""
    alias = f" as {simple.alias}" if simple.alias else ""
    own = f" and (\n{simple.where}\n)" if simple.where else ""
    return f"select {simple.columns}\nfrom {simple.table}{alias}\nwhere {where}{own}"


def copy(statement: str, /) -> str:
    """The COPY that sends a select's rows in binary."""
    return f"copy (\n{statement}\n) to stdout (format binary)"


def _from(described: Description, part: Slice) -> str:
    if isinstance(part, Child):
        return f"only {part.leaf}"
    return described.relation.quoted if described.relation else ""
