"""From PostgreSQL's types to Arrow, by catalogue alone: a pure function of type rows, never of values.

Wire forms are found by the type's send function, so that a type of an extension is known whatever its schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connectors.postgresql.columns import ColumnPlan, Kind
from etl.core.arrow_types import HEX, parse_type
from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.base import Cast, Special

OPEN: Final = pa.decimal128(38, 18)
"""What a numeric without declared precision is read as."""
MAX_DIGITS: Final = 76
"""Digits of decimal256."""
BARE: Final = -1
_VARCHAR: Final = 1043
_CHAR: Final = 18
_JSON: Final = {"cuetl.type": "json"}
_EWKB: Final = {"cuetl.type": "ewkb"}


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One row of `sql/catalogue/postgresql/types.sql`.

    `kind` is pg_type.typtype, `send` the name of the send function, `bound` the subtype of a range, `range` the range
    of a multirange, `attributes` (name, type, modifier, dimensions) of a composite.
    """

    oid: int
    name: str
    builtin: bool
    kind: str
    category: str
    item: int
    base: int
    modifier: int
    dimensions: int
    send: str
    bound: int
    range: int
    labels: tuple[str, ...]
    attributes: tuple[tuple[str, int, int, int], ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for every column of a query: special values, casts, and the scale of stored money."""

    special: Special = "error"
    cast: Cast = "exact"
    money_scale: int = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One output column, bound: its field, its decoder, and how SQL speaks of it.

    Attributes:
        field, plan: The Arrow side and the decoder.
        cast: The type it is cast to in the select list, "" for none.
        collation: Quoted, where it is not the default one; "" else.
        literal_type: The type's words for a quoted bound: `'text'::bpchar`.
        ordered: Whether the type has an order of its own.
        is_array: Statistics of arrays cannot be taken apart again.
        table, attribute: The base column that describe or catalogue names; 0 for none.
    """

    field: Field
    plan: ColumnPlan
    cast: str = ""
    collation: str = ""
    literal_type: str = "text"
    ordered: bool = False
    is_array: bool = False
    table: int = 0
    attribute: int = 0

    @property
    def name(self) -> str:
        """The output column's name."""
        return self.field.name


@dataclass(frozen=True, slots=True)
class Given:
    """What the catalogue says of one output column."""

    name: str
    type: int
    modifier: int
    words: str
    dimensions: int = 0
    nullable: bool = True
    collation: str = ""
    table: int = 0
    attribute: int = 0


@dataclass(frozen=True, slots=True)
class _Wire:
    """A decoder before it has a column: everything of ColumnPlan that the type alone decides."""

    kind: Kind
    type: pa.DataType
    precision: int = 0
    scale: int = 0
    open: bool = False
    vocabulary: tuple[str, ...] = ()
    depth: int = 0
    children: tuple[tuple[str, _Wire], ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    cast: str = ""


_FIXED: Final[Mapping[str, tuple[Kind, pa.DataType]]] = {
    "boolsend": (Kind.BOOL, pa.bool_()),
    "int2send": (Kind.INT2, pa.int16()),
    "int4send": (Kind.INT4, pa.int32()),
    "int8send": (Kind.INT8, pa.int64()),
    "oidsend": (Kind.UINT4, pa.uint32()),
    "xidsend": (Kind.UINT4, pa.uint32()),
    "cidsend": (Kind.UINT4, pa.uint32()),
    "xid8send": (Kind.UINT8, pa.uint64()),
    "float4send": (Kind.FLOAT4, pa.float32()),
    "float8send": (Kind.FLOAT8, pa.float64()),
    "textsend": (Kind.TEXT, pa.string()),
    "varcharsend": (Kind.TEXT, pa.string()),
    "bpcharsend": (Kind.TEXT, pa.string()),
    "namesend": (Kind.TEXT, pa.string()),
    "unknownsend": (Kind.TEXT, pa.string()),
    "json_send": (Kind.TEXT, pa.string()),
    "jsonb_send": (Kind.JSONB, pa.string()),
    "byteasend": (Kind.BYTEA, pa.binary()),
    "date_send": (Kind.DATE, pa.date32()),
    "time_send": (Kind.TIME, pa.time64("us")),
    "timestamp_send": (Kind.TIMESTAMP, pa.timestamp("us")),
    "timestamptz_send": (Kind.TIMESTAMPTZ, pa.timestamp("us", tz="UTC")),
    "interval_send": (Kind.INTERVAL, pa.month_day_nano_interval()),
    "inet_send": (Kind.INET, pa.string()),
    "cidr_send": (Kind.INET, pa.string()),
}
_EXTENSIONS: Final[Mapping[str, tuple[Kind, pa.DataType]]] = {
    "citextsend": (Kind.TEXT, pa.string()),
    "textsend": (Kind.TEXT, pa.string()),
    "hstore_send": (Kind.HSTORE, pa.map_(pa.string(), pa.string())),
    "geometry_send": (Kind.BYTEA, pa.binary()),
    "geography_send": (Kind.BYTEA, pa.binary()),
    "sparsevec_send": (
        Kind.SPARSEVEC,
        pa.struct([("dim", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))]),
    ),
}


def bind(
    given: Given, rows: Mapping[int, TypeRow], policy: Policy, /, *, override: str | None = None, note: str = ""
) -> Column:
    """One column's field and decoder.

    Args:
        given: The column as the catalogue or describe has it.
        rows: Every type it is made of, by oid.
        policy: Of the query.
        override: The Arrow type asked for, in the words of `etl.core.arrow_types`, or "hex" or "string".
        note: A sentence that replaces the field's own note.

    Raises:
        ConfigError: The override cannot hold every value of the type.
    """
    wire = _wire(given.type, given.modifier, given.dimensions, rows, policy)
    read_as, own_note = "", ""
    if override is not None:
        wire = _overridden(given, wire, override)
        if override == "string" and wire.cast == "text":
            own_note = "read as the server's text, as asked"
    elif wire is None:
        read_as, own_note = "text", f"{given.words} has no decoder: the server's text is read"
        wire = _Wire(Kind.TEXT, pa.string(), cast="text")
    if _is_open(wire):
        own_note = f"{_spelled(wire.type)}, wider if the data needs it"
    base = rows.get(_base(given.type, rows))
    return Column(
        field=Field(
            given.name,
            wire.type,
            nullable=given.nullable,
            source_type=given.words,
            read_as=read_as,
            vocabulary=wire.vocabulary if wire.kind is Kind.ENUM else None,
            metadata=wire.metadata,
            note=note or own_note,
        ),
        plan=_plan(given.name, wire, policy, nullable=given.nullable),
        cast=wire.cast,
        collation=given.collation,
        literal_type=base.name if base else "text",
        ordered=_ordered(given.type, rows),
        is_array=base is not None and base.category == "A",
        table=given.table,
        attribute=given.attribute,
    )


def _spelled(kind: pa.DataType) -> str:
    return str(kind).replace("decimal128", "decimal").replace(" ", "")


def _is_open(wire: _Wire) -> bool:
    return wire.open or any(_is_open(child) for _, child in wire.children)


def _base(oid: int, rows: Mapping[int, TypeRow]) -> int:
    row = rows.get(oid)
    while row is not None and row.base and row.kind == "d":
        oid = row.base
        row = rows.get(oid)
    return oid


def _ordered(oid: int, rows: Mapping[int, TypeRow]) -> bool:
    row = rows.get(_base(oid, rows))
    if row is None:
        return False
    if row.category == "A":
        return _ordered(row.item, rows)
    if row.kind in ("r", "m"):
        return True
    return row.ordered or row.kind == "e" or row.oid == _VARCHAR or row.send == "cidr_send"


def _wire(
    oid: int, modifier: int, dimensions: int, rows: Mapping[int, TypeRow], policy: Policy, *, nested: bool = False
) -> _Wire | None:
    """The decoder of a type; None where the server's text has to be read."""
    row = rows.get(oid)
    if row is None:
        return None
    match row.kind:
        case "d":
            deeper = row.modifier if row.modifier != BARE else modifier
            return _wire(row.base, deeper, max(dimensions, row.dimensions), rows, policy, nested=nested)
        case "e":
            kind = pa.dictionary(pa.int32(), pa.string())
            return _Wire(Kind.ENUM, kind, vocabulary=row.labels) if row.labels else None
        case "r":
            return _range(row, rows, policy)
        case "m":
            inner = _range(rows[row.range], rows, policy) if row.range in rows else None
            return inner and _Wire(Kind.MULTIRANGE, pa.list_(inner.type), children=(("item", inner),))
        case "c":
            return _composite(row, rows, policy)
        case "b":
            pass
        case _:
            return None
    if row.category == "A" and row.item:
        item = _wire(row.item, modifier, 0, rows, policy, nested=True)
        return item and _array(item, max(dimensions, 1))
    return _plain(row, modifier, policy, nested=nested)


def _plain(row: TypeRow, modifier: int, policy: Policy, *, nested: bool) -> _Wire | None:
    if not row.builtin:
        if row.send in ("vector_send", "halfvec_send"):
            return _vector(row.send, modifier)
        known = _EXTENSIONS.get(row.send)
        return known and _Wire(*known, metadata=_EWKB if known[0] is Kind.BYTEA else {})
    match row.send:
        case "numeric_send":
            return _numeric(modifier)
        case "cash_send":
            return _Wire(Kind.MONEY, pa.decimal128(19, policy.money_scale), precision=19, scale=policy.money_scale)
        case "uuid_send":
            return _Wire(Kind.UUID_TEXT, pa.string()) if nested else _Wire(Kind.UUID, pa.uuid())
        case "charsend" if row.oid == _CHAR:
            # Its binary form is one byte for the empty value too; the text form tells the two apart.
            return None if nested else _Wire(Kind.TEXT, pa.string(), cast="text")
    known = _FIXED.get(row.send)
    return known and _Wire(*known, metadata=_JSON if row.send in ("json_send", "jsonb_send") else {})


def _numeric(modifier: int) -> _Wire | None:
    if modifier == BARE:
        return _Wire(Kind.NUMERIC, OPEN, precision=38, scale=18, open=True)
    precision, scale = numeric_modifier(modifier)
    digits, kept = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    return None if digits > MAX_DIGITS else _decimal(digits, kept)


def numeric_modifier(modifier: int, /) -> tuple[int, int]:
    """Precision and scale of numeric's type modifier (`numeric_typmod_precision` in numeric.c; scale is signed)."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _decimal(precision: int, scale: int, *, is_open: bool = False) -> _Wire:
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return _Wire(Kind.NUMERIC, kind, precision=precision, scale=scale, open=is_open)


def _vector(send: str, modifier: int) -> _Wire:
    kind, item = (Kind.VECTOR, pa.float32()) if send == "vector_send" else (Kind.HALFVEC, pa.float16())
    return _Wire(kind, pa.list_(item, modifier) if modifier > 0 else pa.list_(item))


def _range(row: TypeRow, rows: Mapping[int, TypeRow], policy: Policy) -> _Wire | None:
    bound = _wire(row.bound, BARE, 0, rows, policy, nested=True)
    if bound is None:
        return None
    bound = _closed(bound)
    kind = pa.struct(
        [
            ("lower", bound.type),
            ("upper", bound.type),
            ("lower_inc", pa.bool_()),
            ("upper_inc", pa.bool_()),
            ("empty", pa.bool_()),
        ]
    )
    return _Wire(Kind.RANGE, kind, children=(("bound", bound),))


def _composite(row: TypeRow, rows: Mapping[int, TypeRow], policy: Policy) -> _Wire | None:
    children: list[tuple[str, _Wire]] = []
    for name, oid, modifier, dimensions in row.attributes:
        child = _wire(oid, modifier, dimensions, rows, policy, nested=True)
        if child is None or name in (n for n, _ in children):
            return None
        children.append((name, _closed(child)))
    if not children:
        return None
    return _Wire(Kind.COMPOSITE, pa.struct([(n, c.type) for n, c in children]), children=tuple(children))


def _array(item: _Wire, depth: int) -> _Wire:
    kind: pa.DataType = item.type
    for _ in range(depth):
        kind = pa.list_(kind)
    return _Wire(Kind.ARRAY, kind, depth=depth, children=(("item", item),), metadata=item.metadata)


def _plan(name: str, wire: _Wire, policy: Policy, *, nullable: bool) -> ColumnPlan:
    return ColumnPlan(
        name=name,
        kind=wire.kind,
        type=wire.type,
        nullable=nullable,
        precision=wire.precision,
        scale=wire.scale,
        open=wire.open,
        special=policy.special,
        cast=policy.cast,
        vocabulary=wire.vocabulary,
        depth=wire.depth,
        children=tuple(_plan(n, child, policy, nullable=True) for n, child in wire.children),
    )


_TEXTS: Final = frozenset({Kind.TEXT, Kind.JSONB})
_WIDER: Final[Mapping[Kind, tuple[Kind, ...]]] = {
    Kind.INT2: (Kind.INT4, Kind.INT8, Kind.NUMERIC, Kind.FLOAT4, Kind.FLOAT8),
    Kind.INT4: (Kind.INT8, Kind.NUMERIC, Kind.FLOAT8),
    Kind.INT8: (Kind.NUMERIC,),
    Kind.UINT4: (Kind.INT8,),
    Kind.FLOAT4: (Kind.FLOAT8,),
    Kind.DATE: (Kind.TIMESTAMP,),
    Kind.MONEY: (Kind.NUMERIC,),
}
"""Casts in the select list that keep every value exact."""
_CASTS: Final[Mapping[Kind, tuple[pa.DataType, str]]] = {
    Kind.INT4: (pa.int32(), "pg_catalog.int4"),
    Kind.INT8: (pa.int64(), "pg_catalog.int8"),
    Kind.FLOAT4: (pa.float32(), "pg_catalog.float4"),
    Kind.FLOAT8: (pa.float64(), "pg_catalog.float8"),
    Kind.TIMESTAMP: (pa.timestamp("us"), "pg_catalog.timestamp"),
}


def _overridden(given: Given, wire: _Wire | None, override: str) -> _Wire:
    if override == "string":
        if wire is not None and wire.kind in _TEXTS:
            return wire
        return _Wire(Kind.TEXT, pa.string(), cast="text")
    if override == HEX:
        if wire is None or wire.kind is not Kind.BYTEA:
            raise ConfigError(f"types: column {given.name} is {given.words}; hex is for bytea", column=given.name)
        return _Wire(Kind.HEX, pa.string())
    wanted = parse_type(override)
    found = None if wire is None else _as(wire, wanted)
    if found is None:
        raise ConfigError(
            f"types: column {given.name} is {given.words}, which cannot be read as {override} with every value exact",
            hint="Cast it in the SQL, or ask for string.",
            column=given.name,
        )
    return found


def _as(wire: _Wire, wanted: pa.DataType) -> _Wire | None:
    """The decoder that reads a type as another Arrow type, where one keeps every value or refuses it."""
    if wanted == wire.type:
        return _closed(wire)
    if wire.kind is Kind.ARRAY:
        depth, item = 0, wanted
        while pa.types.is_list(item):
            depth, item = depth + 1, item.value_type
        inner = _as(wire.children[0][1], item) if depth else None
        return None if inner is None or inner.cast else replace(_array(inner, depth), metadata=wire.metadata)
    if pa.types.is_decimal(wanted) and wire.kind in (Kind.NUMERIC, Kind.INT2, Kind.INT4, Kind.INT8, Kind.MONEY):
        cast = "" if wire.kind is Kind.NUMERIC else "pg_catalog.numeric"
        found = replace(_decimal(wanted.precision, wanted.scale), type=wanted)
        return replace(found, cast=cast)
    for kind in _WIDER.get(wire.kind, ()):
        if kind in _CASTS and _CASTS[kind][0] == wanted:
            return _Wire(kind, wanted, cast=_CASTS[kind][1])
    return None


def as_float(plan: ColumnPlan, wanted: pa.DataType, /) -> ColumnPlan:
    """The decoder that reads a numeric as float64 from its digits.

    Raises:
        SchemaError: The column is no numeric, or another type is wanted.
    """
    if plan.kind is not Kind.NUMERIC or wanted != pa.float64():
        raise SchemaError(f"column {plan.name}: {plan.type} cannot be read as {wanted}", column=plan.name)
    return replace(plan, kind=Kind.NUMERIC_FLOAT, type=pa.float64(), open=False)


def _closed(wire: _Wire) -> _Wire:
    """The same decoder, no longer to be widened: the user has fixed the type."""
    return replace(wire, open=False, children=tuple((n, _closed(c)) for n, c in wire.children))


def widened(digits: int, scale: int, /) -> pa.DataType:
    """The decimal for measured integer digits and fraction digits: the narrowest step that holds both.

    decimal128(38,18), else decimal128(38, scale), else decimal256(76, scale); digits that no step holds are left to
    the policies for special values and casts.
    """
    if digits <= 20 and scale <= 18:
        return OPEN
    if digits + scale <= 38:
        return pa.decimal128(38, scale)
    return pa.decimal256(MAX_DIGITS, max(0, min(scale, MAX_DIGITS - digits)))
