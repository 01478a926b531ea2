"""Arrays, ranges, composites and other values made of fields, a column at a time.

A nested column arrives as the addresses and sizes of its fields (size -1: NULL). One compiled pass checks them and
finds the fields inside, which are again addresses and sizes, decoded the same way: no Python runs per value, at any
depth. Only `inet` is spelled in Python.
"""

from __future__ import annotations

import ctypes
import socket
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from connectors.postgresql import layout, native
from connectors.postgresql.columns import Kind
from connectors.postgresql.fields import (
    ITEM,
    Words,
    assemble,
    bind,
    count,
    field_error,
    float_of_numeric,
    inexact,
    of_field,
    strings,
)
from etl.core.buffers import buffer
from etl.core.errors import DataError, EtlError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from connectors.base import Tally
    from connectors.postgresql.columns import ColumnPlan

Buffers: TypeAlias = "list[pa.Buffer | None]"
MAX_ITEMS = 2**31 - 1


def at(array: npt.NDArray[Any]) -> int:
    """The address of an array's data."""
    return int(array.ctypes.data)


def validity(sizes: Words) -> tuple[pa.Buffer | None, int]:
    """The validity bitmap of fields and how many are NULL."""
    valid = sizes >= 0
    nulls = int(len(valid) - np.count_nonzero(valid))
    return (buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls


class Nested:
    """Decodes the fields of one column of any kind.

    Args:
        plan: The column, or the item, bound or attribute of one.
        tally: Where replaced values are counted.
        column: The top column's name, for counts.
        validate_utf8: Text is checked.
    """

    def __init__(self, plan: ColumnPlan, tally: Tally, column: str, *, validate_utf8: bool = False) -> None:
        self.plan = plan
        self.tally = tally
        self.column = column
        self.children = tuple(Nested(child, tally, column, validate_utf8=validate_utf8) for child in plan.children)
        own = bind(plan, validate_utf8=validate_utf8)
        self.bound = own if own.flat else None
        ways: dict[Kind, Callable[[Words, Words], pa.Array[Any]]] = {
            Kind.ARRAY: self._array,
            Kind.RANGE: self._range,
            Kind.MULTIRANGE: self._multirange,
            Kind.COMPOSITE: self._composite,
            Kind.HSTORE: self._hstore,
            Kind.INET: self._inet,
            Kind.VECTOR: self._vector,
            Kind.HALFVEC: self._vector,
            Kind.SPARSEVEC: self._sparse,
            Kind.NUMERIC_FLOAT: self._floats,
        }
        self._way = self._flat if self.bound else ways[plan.kind]

    def decode(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        """The array of these fields.

        Args:
            fields: Addresses, readable `SLACK` bytes past each field.
            sizes: Bytes of each field, -1 for NULL. May be changed: values that a policy makes NULL become -1.

        Raises:
            EtlError: A field is refused; its index among the fields here is in the context, as `ITEM`.
        """
        if not self.plan.nullable and (sizes < 0).any():
            failed = int(np.argmax(sizes < 0))
            raise of_field(failed, field_error(self.plan, layout.E_NULL, 0, b"", -1))
        return self._way(np.ascontiguousarray(fields), np.ascontiguousarray(sizes))

    def _corrupt(self, fields: Words, sizes: Words, index: int, code: int = layout.E_CORRUPT) -> EtlError:
        value = ctypes.string_at(int(fields[index]), max(0, min(int(sizes[index]), 400)))
        return of_field(index, field_error(self.plan, code, layout.R_DEPTH, value, int(sizes[index])))

    def _child(self, index: int, fields: Words, sizes: Words, parents: Callable[[int], int]) -> pa.Array[Any]:
        try:
            return self.children[index].decode(fields, sizes)
        except EtlError as error:
            if ITEM in error.context:
                of_field(parents(int(error.context[ITEM])), error)
            raise

    def _flat(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        bound = self.bound
        if bound is None:
            raise AssertionError(self.plan.kind)
        rows = len(sizes)
        row = bound.row.copy()
        valid = np.empty(rows // 8 + 16, np.uint8)
        data = np.empty(0, np.uint8)
        if bound.width < 0:
            values = np.zeros(4 * (rows + 1), np.uint8)
            total = int(np.maximum(sizes, 0).sum()) * (3 if bound.spread > 1 else 1)
            if total > MAX_ITEMS - layout.SLACK:
                raise of_field(0, DataError("the items of one batch hold more than 2 GiB of text"))
            data = np.empty(total + layout.SLACK, np.uint8)
        elif bound.width == 0:
            values = np.zeros(rows // 8 + 8, np.uint8)
        else:
            values = np.empty((rows + 1) * bound.width, np.uint8)
        row[layout.C_VALUES], row[layout.C_VALID], row[layout.C_DATA] = at(values), at(valid), at(data)
        failed = native.load().calls["cells"](at(row), at(fields), at(sizes), rows)
        if failed >= 0:
            size = int(sizes[failed])
            value = ctypes.string_at(int(fields[failed]), max(0, min(size, 400)))
            code, reason = int(row[layout.C_FAILED]), int(row[layout.C_REASON])
            raise of_field(failed, field_error(self.plan, code, reason, value, size))
        nulls = int(row[layout.C_NULLS])
        used = int(row[layout.C_USED])
        count(self.tally, self.column, row)
        buffers: Buffers = [buffer(valid) if nulls else None, buffer(values)]
        if bound.width < 0:
            buffers.append(buffer(data).slice(0, used))
        return assemble(bound, rows, buffers, nulls)

    def _array(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        calls = native.load().calls
        depth = max(self.plan.depth, 1)
        rows = len(sizes)
        totals = np.zeros(depth + 2, np.int64)
        skip = int(self.plan.special == "null")
        failed = calls["array_measure"](at(fields), at(sizes), rows, depth, skip, at(totals))
        if failed >= 0:
            code = int(totals[depth + 1])
            if code == layout.E_SPECIAL:
                levels = int.from_bytes(ctypes.string_at(int(fields[failed]), 4), "big")
                error = field_error(self.plan, code, layout.R_DEPTH, b"", levels)
                raise of_field(failed, error)
            raise self._corrupt(fields, sizes, failed, code)
        if totals[depth]:
            self.tally.add_special(self.column, layout.REASONS[layout.R_DEPTH], int(totals[depth]))
            if not self.plan.nullable:
                raise of_field(int(np.argmax(sizes < 0)), field_error(self.plan, layout.E_NULL, 0, b"", -1))
        counts = [rows, *(int(total) for total in totals[:depth])]
        if counts[-1] > MAX_ITEMS:
            raise of_field(0, DataError("the arrays of one batch hold more than 2^31 items"))
        offsets = [np.zeros(counts[level] + 1, np.int32) for level in range(depth)]
        places = np.array([at(one) for one in offsets], np.int64)
        item_fields, item_sizes = np.empty(counts[-1], np.int64), np.empty(counts[-1], np.int64)
        calls["array_fill"](at(fields), at(sizes), rows, depth, at(places), at(item_fields), at(item_sizes))

        def parents(index: int) -> int:
            for level in reversed(offsets):
                index = int(np.searchsorted(level, index, side="right")) - 1
            return index

        array = self._child(0, item_fields, item_sizes, parents)
        kinds: list[pa.DataType] = [self.plan.type]
        for _ in range(depth - 1):
            kinds.append(cast("pa.ListType[Any]", kinds[-1]).value_type)
        for level in reversed(range(depth)):
            valid, nulls = validity(sizes) if level == 0 else (None, 0)
            buffers: Buffers = [valid, buffer(offsets[level])]
            array = pa.Array.from_buffers(kinds[level], counts[level], buffers, nulls, children=[array])
        return array

    def _range(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        rows = len(sizes)
        marks = np.zeros(3 * rows + 8, np.uint8)
        bound_fields, bound_sizes = np.zeros(2 * rows, np.int64), np.zeros(2 * rows, np.int64)
        call = native.load().calls["ranges"]
        failed = call(at(fields), at(sizes), rows, at(marks), at(bound_fields), at(bound_sizes))
        if failed >= 0:
            raise self._corrupt(fields, sizes, failed)
        children: list[pa.Array[Any]] = [
            self._child(0, bound_fields[side * rows :][:rows], bound_sizes[side * rows :][:rows], lambda index: index)
            for side in range(2)
        ]
        for mark in range(3):
            bits = np.packbits(marks[mark * rows :][:rows], bitorder="little")
            children.append(pa.Array.from_buffers(pa.bool_(), rows, [None, buffer(bits)]))
        valid, nulls = validity(sizes)
        return pa.Array.from_buffers(self.plan.type, rows, [valid], nulls, children=children)

    def _lists(self, fields: Words, sizes: Words, per: int) -> tuple[npt.NDArray[np.int32], Words, Words]:
        calls = native.load().calls
        rows = len(sizes)
        items = calls["list_measure"](at(fields), at(sizes), rows, per)
        if items < 0:
            raise self._corrupt(fields, sizes, -1 - items)
        offsets = np.zeros(rows + 1, np.int32)
        inner, lengths = np.empty(per * items, np.int64), np.empty(per * items, np.int64)
        calls["list_fill"](at(fields), at(sizes), rows, per, items, at(offsets), at(inner), at(lengths))
        return offsets, inner, lengths

    def _multirange(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        offsets, inner, lengths = self._lists(fields, sizes, 1)
        ranges = self._child(0, inner, lengths, lambda index: int(np.searchsorted(offsets, index, side="right")) - 1)
        valid, nulls = validity(sizes)
        buffers: Buffers = [valid, buffer(offsets)]
        return pa.Array.from_buffers(self.plan.type, len(sizes), buffers, nulls, children=[ranges])

    def _hstore(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        offsets, inner, lengths = self._lists(fields, sizes, 2)
        items = len(inner) // 2
        kind = cast("pa.MapType[Any, Any, Any]", self.plan.type)
        parts = [(inner[:items], lengths[:items]), (inner[items:], lengths[items:])]
        entries = []
        for (places, bytes_), nullable in zip(parts, (False, True), strict=True):
            if not nullable and (bytes_ < 0).any():
                index = int(np.searchsorted(offsets, int(np.argmax(bytes_ < 0)), side="right")) - 1
                raise self._corrupt(fields, sizes, index)
            entries.append(_texts(places, bytes_))
        pairs = pa.Array.from_buffers(pa.struct([kind.key_field, kind.item_field]), items, [None], 0, children=entries)
        valid, nulls = validity(sizes)
        buffers: Buffers = [valid, buffer(offsets)]
        return pa.Array.from_buffers(kind, len(sizes), buffers, nulls, children=[pairs])

    def _composite(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        rows, width = len(sizes), len(self.children)
        inner, lengths = np.empty(width * rows, np.int64), np.empty(width * rows, np.int64)
        call = native.load().calls["attributes"]
        failed = call(at(fields), at(sizes), rows, width, at(inner), at(lengths))
        if failed >= 0:
            raise self._corrupt(fields, sizes, failed)
        children = []
        for part, child in enumerate(self.children):
            try:
                children.append(
                    self._child(part, inner[part * rows :][:rows], lengths[part * rows :][:rows], lambda index: index)
                )
            except EtlError as error:
                raise error.at(f"attribute {child.plan.name}") from None
        valid, nulls = validity(sizes)
        return pa.Array.from_buffers(self.plan.type, rows, [valid], nulls, children=children)

    def _vector(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        rows = len(sizes)
        width, item = (4, pa.float32()) if self.plan.kind is Kind.VECTOR else (2, pa.float16())
        kind = self.plan.type
        if not isinstance(kind, pa.FixedSizeListType | pa.ListType) or kind.value_type != item:
            raise SchemaError(f"column {self.column}: {self.plan.kind.name.lower()} cannot be read as {kind}")
        fixed = kind.list_size if isinstance(kind, pa.FixedSizeListType) else -1
        items = fixed * rows if fixed >= 0 else int(np.maximum(sizes - 4, 0).sum()) // width
        if items > MAX_ITEMS:
            raise of_field(0, DataError("the vectors of one batch hold more than 2^31 items"))
        call = native.load().calls["vectors"]
        offsets = np.zeros(rows + 1, np.int32)
        failed = call(at(fields), at(sizes), rows, width, fixed, at(offsets), 0)
        if failed >= 0:
            raise self._corrupt(fields, sizes, failed)
        values = np.empty(items * width + 8, np.uint8)
        call(at(fields), at(sizes), rows, width, fixed, at(offsets), at(values))
        child = pa.Array.from_buffers(item, items, [None, buffer(values)])
        valid, nulls = validity(sizes)
        buffers: Buffers = [valid] if fixed >= 0 else [valid, buffer(offsets)]
        return pa.Array.from_buffers(kind, rows, buffers, nulls, children=[child])

    def _sparse(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        calls = native.load().calls
        rows = len(sizes)
        dims = np.zeros(rows + 1, np.int32)
        items = calls["sparse_measure"](at(fields), at(sizes), rows, at(dims))
        if items < 0:
            raise self._corrupt(fields, sizes, -1 - items)
        offsets = np.zeros(rows + 1, np.int32)
        indices, values = np.empty(items, np.int32), np.empty(items, np.int32)
        # The wire counts from 0, pgvector's text from 1 (sparsevec.c).
        calls["sparse_fill"](at(fields), at(sizes), rows, at(offsets), at(indices), at(values), 1)
        kind = cast("pa.StructType", self.plan.type)
        lists = [
            pa.Array.from_buffers(
                kind.field(position).type,
                rows,
                [None, buffer(offsets)],
                children=[pa.Array.from_buffers(item, items, [None, buffer(data)])],
            )
            for position, item, data in ((1, pa.int32(), indices), (2, pa.float32(), values))
        ]
        first = pa.Array.from_buffers(pa.int32(), rows, [None, buffer(dims)])
        valid, nulls = validity(sizes)
        return pa.Array.from_buffers(kind, rows, [valid], nulls, children=[first, *lists])

    def _floats(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        rows = len(sizes)
        values, hard = np.empty(rows, np.float64), np.empty(rows, np.int64)
        many = native.load().calls["numeric_floats"](at(fields), at(sizes), rows, at(values), at(hard))
        if many < 0:
            raise self._corrupt(fields, sizes, -1 - many)
        rounded = 0
        for index in hard[:many].tolist():
            raw = ctypes.string_at(int(fields[index]), int(sizes[index]))
            near, exact = float_of_numeric(raw)
            beyond = np.isinf(near)
            if (self.plan.cast == "exact" and not exact) or (self.plan.cast == "round" and beyond):
                raise of_field(index, inexact(self.plan, raw, beyond=bool(beyond)))
            values[index] = np.copysign(np.finfo(np.float64).max, near) if beyond else near
            rounded += not exact
        if rounded:
            self.tally.rounded[self.column] = self.tally.rounded.get(self.column, 0) + rounded
        valid, nulls = validity(sizes)
        return pa.Array.from_buffers(pa.float64(), rows, [valid, buffer(values)], nulls)

    def _inet(self, fields: Words, sizes: Words) -> pa.Array[Any]:
        texts = []
        for index, (place, size) in enumerate(zip(fields.tolist(), sizes.tolist(), strict=True)):
            text = spell_inet(ctypes.string_at(place, size)) if size >= 0 else b""
            if text is None:
                raise self._corrupt(fields, sizes, index)
            texts.append(text)
        array = strings(texts, self.plan.type)
        valid, nulls = validity(sizes)
        return pa.Array.from_buffers(self.plan.type, len(texts), [valid, *array.buffers()[1:]], nulls)


def _texts(fields: Words, sizes: Words) -> pa.Array[Any]:
    """Text fields without policies."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    data = b"".join([ctypes.string_at(f, s) for f, s in zip(fields.tolist(), sizes.tolist(), strict=True) if s > 0])
    valid, nulls = validity(sizes)
    return pa.Array.from_buffers(pa.string(), len(sizes), [valid, buffer(offsets), pa.py_buffer(data)], nulls)


def spell_inet(value: bytes) -> bytes | None:
    """inet_send or cidr_send bytes as the server prints them; None where they are neither.

    The server prints the bits where they are not the whole address, and always for cidr (network.c); IPv4 inside
    IPv6 is printed with dots (inet_net_ntop.c).
    """
    if len(value) < 4:
        return None
    family, bits, cidr, size = value[:4]
    address = value[4:]
    whole = {2: 4, 3: 16}.get(family)
    if whole is None or size != whole or len(address) != whole or bits > 8 * whole or cidr > 1:
        return None
    text = str(IPv4Address(address)) if family == 2 else socket.inet_ntop(socket.AF_INET6, address)
    return (f"{text}/{bits}" if cidr or bits != 8 * whole else text).encode()
