"""PostgreSQL's types become Arrow's by catalogue rows alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.postgresql.columns import Kind
from connectors.postgresql.types import OPEN, Column, Given, Policy, TypeRow, bind, numeric_modifier, widened
from etl.core.errors import ConfigError


def row(oid: int, name: str, send: str, **more: Any) -> TypeRow:
    values: dict[str, Any] = {
        "builtin": True,
        "kind": "b",
        "category": "U",
        "item": 0,
        "base": 0,
        "modifier": -1,
        "dimensions": 0,
        "bound": 0,
        "range": 0,
        "labels": (),
        "attributes": (),
        "ordered": True,
    }
    return TypeRow(oid=oid, name=name, send=send, **(values | more))


ROWS = {
    one.oid: one
    for one in (
        row(23, "integer", "int4send"),
        row(20, "bigint", "int8send"),
        row(25, "text", "textsend"),
        row(600, "point", "point_send", ordered=False),
        row(1700, "numeric", "numeric_send"),
        row(790, "money", "cash_send"),
        row(2950, "uuid", "uuid_send"),
        row(18, '"char"', "charsend"),
        row(1007, "integer[]", "array_send", category="A", item=23),
        row(1017, "point[]", "array_send", category="A", item=600),
        row(2951, "uuid[]", "array_send", category="A", item=2950),
        row(1231, "numeric[]", "array_send", category="A", item=1700),
        row(3904, "int4range", "range_send", kind="r", bound=23),
        row(4451, "int4multirange", "multirange_send", kind="m", range=3904),
        row(9000, "posint", "int4send", kind="d", base=23),
        row(9001, "grid", "array_send", kind="d", base=1007, dimensions=2, builtin=False),
        row(9002, "mood", "enum_send", kind="e", labels=("sad", "ok"), builtin=False),
        row(9003, "pair", "record_send", kind="c", attributes=(("a", 23, -1, 0), ("u", 2950, -1, 0)), builtin=False),
        row(9004, "odd", "record_send", kind="c", attributes=(("a", 600, -1, 0),), builtin=False),
        row(9005, "mine", "int4send", builtin=False),
        row(9006, "public.vector", "vector_send", builtin=False),
        row(9007, "public.hstore", "hstore_send", builtin=False),
        row(9008, "money_dec", "numeric_send", kind="d", base=1700, modifier=((10 << 16) | 2) + 4),
        row(2249, "record", "record_send", kind="p"),
        row(3361, "nosend", ""),
    )
}


def column(oid: int, modifier: int = -1, dimensions: int = 0, override: str | None = None) -> Column:
    given_ = Given("c", oid, modifier, ROWS[oid].name, dimensions)
    return bind(given_, ROWS, Policy(money_scale=2), override=override)


@pytest.mark.parametrize(
    ("oid", "kind", "arrow", "cast"),
    [
        (23, Kind.INT4, pa.int32(), ""),
        (790, Kind.MONEY, pa.decimal128(19, 2), ""),
        (2950, Kind.UUID, pa.uuid(), ""),
        (1700, Kind.NUMERIC, OPEN, ""),
        (18, Kind.TEXT, pa.string(), "text"),
        (600, Kind.TEXT, pa.string(), "text"),
        (1007, Kind.ARRAY, pa.list_(pa.int32()), ""),
        (1017, Kind.TEXT, pa.string(), "text"),
        (2951, Kind.ARRAY, pa.list_(pa.string()), ""),
        (4451, Kind.MULTIRANGE, None, ""),
        (9000, Kind.INT4, pa.int32(), ""),
        (9001, Kind.ARRAY, pa.list_(pa.list_(pa.int32())), ""),
        (9002, Kind.ENUM, pa.dictionary(pa.int32(), pa.string()), ""),
        (9003, Kind.COMPOSITE, pa.struct([("a", pa.int32()), ("u", pa.string())]), ""),
        (9004, Kind.TEXT, pa.string(), "text"),
        (9005, Kind.TEXT, pa.string(), "text"),
        (9006, Kind.VECTOR, pa.list_(pa.float32()), ""),
        (9007, Kind.HSTORE, pa.map_(pa.string(), pa.string()), ""),
        (9008, Kind.NUMERIC, pa.decimal128(10, 2), ""),
        (2249, Kind.TEXT, pa.string(), "text"),
        (3361, Kind.TEXT, pa.string(), "text"),
    ],
)
def test_each_type_has_its_decoder_and_arrow_type(oid: int, kind: Kind, arrow: pa.DataType | None, cast: str) -> None:
    found = column(oid)
    assert (found.plan.kind, found.cast) == (kind, cast)
    assert found.plan.type == found.field.type
    if arrow is not None:
        assert found.field.type == arrow
    assert bool(found.field.read_as) == (cast == "text" and oid != 18)
    assert bool(found.field.note) == (bool(found.field.read_as) or oid == 1700)


def test_a_fixed_vector_keeps_its_width() -> None:
    assert column(9006, 768).field.type == pa.list_(pa.float32(), 768)


def test_a_type_that_only_borrows_a_send_function_is_text() -> None:
    assert column(9005).field.read_as == "text"


@given(precision=st.integers(1, 1000), scale=st.integers(-1000, 1000))
def test_numeric_modifiers_give_precision_and_scale_back(precision: int, scale: int) -> None:
    modifier = ((precision << 16) | (scale & 0x7FF)) + 4
    assert numeric_modifier(modifier) == (precision, scale)
    found = column(1700, modifier)
    digits = precision - scale if scale < 0 else max(precision, scale)
    if digits > 76:
        assert found.field.read_as == "text"
    else:
        assert found.field.type == (pa.decimal128 if digits <= 38 else pa.decimal256)(digits, max(scale, 0))
        assert not found.plan.open


@given(digits=st.integers(0, 90), scale=st.integers(0, 90))
def test_a_widened_decimal_holds_what_was_measured_where_one_can(digits: int, scale: int) -> None:
    kind = widened(digits, scale)
    assert isinstance(kind, pa.Decimal128Type | pa.Decimal256Type)
    if digits + scale <= 76:
        assert kind.precision - kind.scale >= digits
        assert kind.scale >= scale
    assert kind.scale <= kind.precision


@pytest.mark.parametrize(
    ("oid", "override", "arrow", "cast"),
    [
        (23, "int64", pa.int64(), "pg_catalog.int8"),
        (23, "decimal(12,2)", pa.decimal128(12, 2), "pg_catalog.numeric"),
        (1700, "decimal(38,18)", pa.decimal128(38, 18), ""),
        (1700, "decimal(50,10)", pa.decimal256(50, 10), ""),
        (1231, "list(list(decimal(20,3)))", pa.list_(pa.list_(pa.decimal128(20, 3))), ""),
        (1007, "list(list(int32))", pa.list_(pa.list_(pa.int32())), ""),
        (2950, "string", pa.string(), "text"),
        (25, "string", pa.string(), ""),
    ],
)
def test_types_that_keep_every_value_may_be_asked_for(oid: int, override: str, arrow: pa.DataType, cast: str) -> None:
    found = column(oid, override=override)
    assert (found.field.type, found.cast, found.plan.open) == (arrow, cast, False)


@pytest.mark.parametrize(
    ("oid", "override"), [(20, "int32"), (23, "hex"), (1700, "float64"), (600, "int32"), (1007, "list(int64)")]
)
def test_types_that_could_lose_something_are_refused(oid: int, override: str) -> None:
    with pytest.raises(ConfigError, match="column c"):
        column(oid, override=override)
