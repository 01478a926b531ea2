"""How each column of a binary COPY stream becomes Arrow: the values that `types` decides and `copy` carries out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from connectors.base import Cast, Special


class Kind(IntEnum):
    """The wire forms that have a decoder (PostgreSQL's `typsend` functions)."""

    BOOL = 1
    INT2 = 2
    INT4 = 3
    INT8 = 4
    UINT4 = 5
    """oid, xid, cid."""
    UINT8 = 6
    """xid8."""
    FLOAT4 = 7
    FLOAT8 = 8
    NUMERIC = 9
    """base-10000 digits → decimal128 or decimal256."""
    MONEY = 10
    """int64 of the smallest unit → decimal128(19, scale)."""
    TEXT = 11
    """Bytes of the client encoding UTF8 → string; used for every column read as `::text` too."""
    BYTEA = 12
    HEX = 13
    """bytea → lower-case hex text (`types={"b": "hex"}`)."""
    UUID = 14
    UUID_TEXT = 15
    """uuid inside lists and structs: 36 characters."""
    DATE = 16
    TIME = 17
    TIMESTAMP = 18
    TIMESTAMPTZ = 19
    INTERVAL = 20
    JSONB = 21
    """One version byte, then text."""
    ENUM = 22
    """Label text → dictionary<int32, string> over `vocabulary`."""
    ARRAY = 30
    RANGE = 31
    MULTIRANGE = 32
    COMPOSITE = 33
    HSTORE = 34
    INET = 35
    """inet and cidr as the server prints them."""
    VECTOR = 36
    HALFVEC = 37
    SPARSEVEC = 38
    NUMERIC_FLOAT = 39
    """numeric → float64, each value rounded once from its digits; NaN and infinities are kept."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column's decoder, bound once per query.

    Attributes:
        name: The output column.
        kind: The wire form.
        type: The Arrow type produced.
        nullable: Whether the schema's field may be NULL.
        precision, scale: Of the decimal produced.
        open: A numeric without declared precision: a value that does not fit raises `DecimalTooNarrow`.
        special, cast: The policies of this column.
        vocabulary: Labels of an enum in declared order.
        depth: Expected dimensions of an array.
        children: The item of an array, the bound of a range, the attributes of a composite, in order.
    """

    name: str
    kind: Kind
    type: pa.DataType
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    open: bool = False
    special: Special = "error"
    cast: Cast = "exact"
    vocabulary: tuple[str, ...] = ()
    depth: int = 0
    children: tuple[ColumnPlan, ...] = ()
