"""Binary COPY bytes in, Arrow record batches out: the shape of buffers and batches around the compiled loop.

The stream format is PostgreSQL's (documentation, COPY, "Binary Format"): an 11-byte signature, flags, an extension,
then per row a 16-bit field count and per field a 32-bit length (-1: NULL) and the bytes of the type's send function.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from connectors.base import Tally
from connectors.postgresql import layout, native
from connectors.postgresql.fields import ITEM, SHOWN, assemble, bind, count, field_error
from connectors.postgresql.nested import Nested
from connectors.postgresql.portal import COPY_DATA, DATA_ROW
from connectors.postgresql.slabs import Lease, give, take
from etl.core.errors import DataError, EtlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.postgresql.columns import ColumnPlan

MAX_ROWS = 1 << 20
MAX_TEXT = 2**31 - 1 - 64
FIRST_GUESS = 24
"""Bytes of text in a field, until a batch has shown it."""


class Window:
    """Bytes that arrived and were not decoded yet, at an address, followed by `SLACK` bytes."""

    __slots__ = ("end", "normal", "pos", "slab")

    def __init__(self, size: int) -> None:
        self.normal = size
        self.slab = take(size + layout.SLACK)
        self.pos = 0
        self.end = 0

    def __del__(self) -> None:
        slab = getattr(self, "slab", None)
        if slab is not None:
            give(slab)

    def space(self, need: int = 0) -> memoryview:
        """Where the next bytes go, after what is left was moved to the front.

        Args:
            need: Bytes that what is left must be able to grow to; the window grows for a large row and shrinks back.
        """
        left = self.end - self.pos
        wanted = max(self.normal, need, left + 1) + layout.SLACK
        slab = self.slab
        if slab.size < wanted or slab.size > 4 * max(wanted, 1 << 20):
            self.slab = take(max(wanted, 2 * left if need > self.normal else 0))
            self.slab.bytes[:left] = slab.bytes[self.pos : self.end]
            give(slab)
        elif self.pos:
            ctypes.memmove(slab.address, slab.address + self.pos, left)
        self.pos, self.end = 0, left
        return memoryview(cast("Any", self.slab.bytes))[left : max(self.normal, need, left + 1)]

    def peek(self, at: int, size: int) -> bytes:
        """Bytes from a machine address, which lies in the window."""
        start = at - self.slab.address
        return self.slab.bytes[start : min(start + size, self.end)].tobytes()


class Decoder:
    """Decodes one COPY stream; batches are cut at `batch_bytes` or 1 Mi rows, whatever the cuts of its input.

    Give it bytes with `feed`, or write them into `space()` and call `advance`; then `finish`.

    Args:
        plans: One per column of the stream, in its order.
        schema: The Arrow schema of the batches.
        batch_bytes: Size of a batch, about; a single row may be larger.
        tally: Rows, replaced and rounded values are counted here.
        key_columns: Columns that name a row in messages.
        framed: The input is protocol messages as read from the socket, not the COPY payload.
        portal: The rows are those of a portal (DataRow messages): no signature before them, no trailer after them;
            whoever reads the messages calls `ended`.
        on_message: Framed: called with type and content of every message other than CopyData.
        validate_utf8: Text is checked, since the database does not (SQL_ASCII).
        block_bytes: Size of the window that input is read into.
    """

    def __init__(
        self,
        plans: Sequence[ColumnPlan],
        schema: pa.Schema,
        *,
        batch_bytes: int = 4 << 20,
        tally: Tally,
        key_columns: Sequence[str] = (),
        framed: bool = False,
        portal: bool = False,
        on_message: Callable[[int, bytes], None] | None = None,
        validate_utf8: bool = False,
        block_bytes: int = 1 << 20,
    ) -> None:
        self._columns = [bind(plan, validate_utf8=validate_utf8) for plan in plans]
        self._nested = {
            index: Nested(column.plan, tally, column.plan.name, validate_utf8=validate_utf8)
            for index, column in enumerate(self._columns)
            if not column.flat
        }
        self._schema = schema
        self._batch_bytes = batch_bytes
        self._tally = tally
        self._keys = tuple(key_columns)
        self._on_message = on_message
        self._validate = validate_utf8
        self._kind = DATA_ROW if portal else COPY_DATA
        self._payload: Window | None = None
        self._window = Window(block_bytes)
        self._need = 0
        count = len(self._columns)
        self._table = np.zeros((max(count, 1), layout.STRIDE), np.int64)
        for index, column in enumerate(self._columns):
            self._table[index] = column.row
        self._before = self._table.copy()
        self._state = np.zeros(layout.STATE_WORDS, np.int64)
        self._state[layout.S_COLUMNS] = count
        self._state[layout.S_FRAMED] = self._kind if framed else 0
        self._state[layout.S_PHASE] = layout.PHASE_ROWS if portal else layout.PHASE_HEADER
        self._state[layout.S_SPREAD] = max((c.spread for c in self._columns), default=1)
        widths = np.array([c.width for c in self._columns], np.int64)
        self._is_text = widths < 0
        self._bytes_per_row = np.where(widths < 0, 4, widths)
        self._bits = widths == 0
        self._text_bytes = np.where(self._is_text, float(FIRST_GUESS), 0.0)
        self._lease: Lease | None = None
        self._loop = native.load().calls["rows"]
        self._addresses = int(self._state.ctypes.data), int(self._table.ctypes.data)
        self.rows = 0
        """Rows decoded, those of the batch in the making included."""
        self._given = 0
        self._prepare()

    @property
    def done(self) -> bool:
        """Whether the trailer was read."""
        return int(self._state[layout.S_PHASE]) == layout.PHASE_DONE

    def ended(self) -> None:
        """The server said that there are no more rows of a portal."""
        self._state[layout.S_PHASE] = layout.PHASE_DONE

    def space(self) -> memoryview:
        """Where to write the next bytes; call `advance` with how many were written."""
        return self._window.space(self._need)

    def advance(self, count: int) -> Iterator[pa.RecordBatch]:
        """Decode the bytes written into `space()`.

        Raises:
            DataError: The bytes are not a COPY stream of these columns, or a value is refused by a policy.
        """
        self._window.end += count
        self._need = 0
        if self._payload is None:
            yield from self._run(self._window)
        if self._payload is not None:
            yield from self._deframe(self._payload)

    def feed(self, block: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """Decode a block of any size; as `advance`."""
        view = memoryview(block).cast("B")
        while view:
            space = self.space()
            size = min(len(space), len(view))
            space[:size] = view[:size]
            view = view[size:]
            yield from self.advance(size)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch.

        Raises:
            DataError: The stream ended before its trailer.
        """
        if not self.done:
            left = self._window if self._payload is None else self._payload
            raise DataError(
                f"the COPY stream ended after row {self.rows} without its trailer ({left.end - left.pos} bytes left)"
            )
        if self._state[layout.S_ROW]:
            yield self._batch()

    def _prepare(self, wanted: Sequence[int] | None = None) -> None:
        """Lay a fresh slab out: values, validity and text of every column.

        Args:
            wanted: Text bytes per column for one row that is larger than a usual batch.
        """
        row_bytes = float(self._bytes_per_row.sum()) + len(self._columns) / 4 + float(self._text_bytes.sum())
        if wanted is None:
            rows = max(1, min(MAX_ROWS, int(self._batch_bytes / max(row_bytes, 1.0))))
            room = self._text_bytes * rows * 1.05 + 1024
            texts = np.minimum(room, self._batch_bytes + 1024).astype(np.int64)
            texts = np.maximum(texts, 4096)
        else:
            rows = 1
            texts = np.array(wanted, np.int64)
        texts = np.where(self._is_text, texts, 0)
        sizes = np.concatenate(
            (
                np.where(self._bits, rows // 8 + 8, self._bytes_per_row * (rows + 1)),
                np.full(len(self._columns), rows // 8 + 16),
                np.where(self._is_text, texts + layout.SLACK, 0),
            )
        )
        sizes = (sizes + 63) & ~63
        starts = np.concatenate(([0], np.cumsum(sizes)))
        self._lease = Lease(int(starts[-1]))
        slab = self._lease.slab
        count = len(self._columns)
        if count:
            addresses = starts + slab.address
            table = self._table
            table[:, layout.C_VALUES] = addresses[:count]
            table[:, layout.C_VALID] = addresses[count : 2 * count]
            table[:, layout.C_DATA] = addresses[2 * count : 3 * count]
            table[:, layout.C_CAP] = texts
            table[:, layout.C_NULLS] = 0
            table[:, layout.C_USED] = 0
            slab.bytes.view(np.int32)[starts[:count][self._is_text] // 4] = 0
        self._state[layout.S_ROW] = 0
        self._state[layout.S_ROW_CAP] = rows
        self._state[layout.S_ROOM] = 0 if wanted is None else 1 << 61

    def _run(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Call the loop until it needs more bytes."""
        loop = self._loop
        state, table = self._state, self._table
        state_at, table_at = self._addresses
        while True:
            base = window.slab.address
            state[layout.S_POS] = base + window.pos
            state[layout.S_END] = base + window.end
            before = state.copy()
            np.copyto(self._before, table)
            status = loop(state_at, table_at)
            if status == layout.STATUS_SPLIT:
                # Only counts are restored: the same rows decode to the same values again.
                np.copyto(table, self._before)
                np.copyto(state, before)
                if self._kind == DATA_ROW:
                    raise DataError(f"after row {self.rows} a row runs past its message", hint="The stream is damaged.")
                self._split(window)
                return
            window.pos = int(state[layout.S_POS]) - base
            self.rows = self._given + int(state[layout.S_ROW])
            if status == layout.STATUS_FULL:
                if state[layout.S_ROW]:
                    yield self._batch()
                    self._prepare()
                else:
                    self._prepare(self._row_texts(base + window.pos, int(state[layout.S_NEED])))
            elif status == layout.STATUS_MORE:
                self._need = int(state[layout.S_NEED])
                return
            elif status == layout.STATUS_MESSAGE:
                if not self._message(window):
                    return
            elif status == layout.STATUS_DONE:
                return
            else:
                raise self._error(window)

    def _message(self, window: Window) -> bool:
        """Hand on a protocol message; False where it is incomplete."""
        at = window.slab.address + window.pos
        head = window.peek(at, 5)
        size = int.from_bytes(head[1:], "big", signed=True)
        if not 4 <= size <= 1 << 30:
            raise DataError(f"after row {self.rows} the server sent what is no protocol message: {head.hex()}")
        if window.end - window.pos < 1 + size:
            self._need = 1 + size
            return False
        window.pos += 1 + size
        if self._on_message is None:
            raise DataError(f"unexpected protocol message {chr(head[0])!r} after row {self.rows}")
        self._on_message(head[0], window.peek(at + 5, size - 4))
        return True

    def _split(self, window: Window) -> None:
        """From here on rows may span messages: payloads are joined before they are decoded."""
        self._payload = payload = Window(window.normal)
        end = int(self._state[layout.S_MESSAGE_END])
        if end:
            # The call began inside a message whose head was read already.
            start = window.slab.address + window.pos
            rest = window.peek(start, end - start)
            payload.space(len(rest))[: len(rest)] = rest
            payload.end += len(rest)
            window.pos += len(rest)
        self._state[layout.S_FRAMED] = 0
        self._state[layout.S_MESSAGE_END] = 0

    def _deframe(self, payload: Window) -> Iterator[pa.RecordBatch]:
        window = self._window
        while window.end - window.pos >= 5:
            at = window.slab.address + window.pos
            head = window.peek(at, 5)
            if head[:1] != b"d":
                # What precedes it in the stream is decoded first.
                yield from self._run(payload)
                self._need = 0
                if not self._message(window):
                    return
                continue
            size = int.from_bytes(head[1:], "big", signed=True)
            if not 4 <= size <= 1 << 30:
                raise DataError(f"after row {self.rows} the server sent what is no protocol message: {head.hex()}")
            if window.end - window.pos < 1 + size:
                self._need = 1 + size
                break
            space = payload.space(payload.end - payload.pos + size)
            space[: size - 4] = window.peek(at + 5, size - 4)
            payload.end += size - 4
            window.pos += 1 + size
        need = self._need
        yield from self._run(payload)
        self._need = need

    def _row_texts(self, at: int, size: int) -> list[int]:
        """Text bytes that each column needs for the row at `at`."""
        del size
        wanted = []
        position = at + 2
        for column in self._columns:
            length = int.from_bytes(ctypes.string_at(position, 4), "big", signed=True)
            position += 4 + max(length, 0)
            need = max(length, 0) * column.spread + (4 if column.spread > 1 else 0)
            if column.width < 0 and need > MAX_TEXT:
                raise DataError(
                    f"column {column.plan.name}, row {self.rows + 1} of the part: a value of {length} bytes becomes "
                    "more than 2 GiB of text",
                    hint="Cut it in the SQL.",
                    column=column.plan.name,
                )
            wanted.append(need)
        return wanted

    def _batch(self) -> pa.RecordBatch:
        """The rows so far as a batch over the slab, and what was counted into the tally."""
        lease = self._lease
        rows = int(self._state[layout.S_ROW])
        table = self._table.tolist()
        arrays: list[pa.Array[Any]] = []
        if lease is None:
            raise AssertionError("a batch without memory")
        used = self._table[: len(self._columns), layout.C_USED]
        self._text_bytes = np.where(self._is_text, used / rows + 1, 0.0)
        for index, column in enumerate(self._columns):
            try:
                arrays.append(self._array(lease, index, rows, table[index]))
            except EtlError as error:
                if ITEM not in error.context:
                    raise
                item = int(error.context.pop(ITEM))
                name = column.plan.name
                raise error.at(f"column {name}, {self._keyed(lease, item, rows, table)}", column=name) from None
        self._count()
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._given += rows
        self._tally.rows += rows
        self._lease = None
        self._state[layout.S_ROW] = 0
        return batch

    def _array(self, lease: Lease, index: int, rows: int, entry: list[int]) -> pa.Array[Any]:
        """A column of the batch over the slab."""
        column = self._columns[index]
        valid = lease.buffer(entry[layout.C_VALID], (rows + 7) // 8) if entry[layout.C_NULLS] else None
        if not column.flat:
            return self._expand(index, rows, entry)
        if column.width < 0:
            values = lease.buffer(entry[layout.C_VALUES], 4 * (rows + 1))
            buffers = [valid, values, lease.buffer(entry[layout.C_DATA], entry[layout.C_USED])]
        else:
            size = (rows + 7) // 8 if column.width == 0 else rows * column.width
            buffers = [valid, lease.buffer(entry[layout.C_VALUES], size)]
        return assemble(column, rows, buffers, entry[layout.C_NULLS])

    def _keyed(self, lease: Lease, item: int, rows: int, table: list[list[int]]) -> str:
        """A row of the batch by its key where that was decoded, else its number in the part."""
        shown = []
        for index, column in enumerate(self._columns):
            if column.plan.name in self._keys:
                try:
                    value = self._array(lease, index, rows, table[index])[item].as_py()
                except (EtlError, pa.ArrowException):
                    return f"row {self._given + item + 1} of the part"
                shown.append(f"{column.plan.name}={str(value)[:SHOWN]}")
        return f"row {', '.join(shown)}" if shown else f"row {self._given + item + 1} of the part"

    def _count(self) -> None:
        for index, column in enumerate(self._columns):
            row = self._table[index]
            if row[layout.C_ROUNDED] or row[layout.C_COUNTS : layout.C_FAILED].any():
                count(self._tally, column.plan.name, row)

    def _expand(self, index: int, rows: int, entry: list[int]) -> pa.Array[Any]:
        """A nested column from the fields that were kept as they came."""
        places = (ctypes.c_int32 * (rows + 1)).from_address(entry[layout.C_VALUES])
        offsets = np.frombuffer(memoryview(places), np.int32)
        fields = entry[layout.C_DATA] + offsets[:-1].astype(np.int64)
        sizes = np.diff(offsets).astype(np.int64)
        if entry[layout.C_NULLS]:
            valid = (ctypes.c_uint8 * ((rows + 7) // 8)).from_address(entry[layout.C_VALID])
            bits = np.frombuffer(memoryview(valid), np.uint8)
            sizes[np.unpackbits(bits, count=rows, bitorder="little") == 0] = -1
        return self._nested[index].decode(fields, sizes)

    def _error(self, window: Window) -> EtlError:
        state = self._state
        code = int(state[layout.S_ERROR])
        row = self._given + int(state[layout.S_ROW]) + 1
        if code == layout.E_HEADER:
            return DataError("the stream does not begin as a binary COPY stream")
        if code == layout.E_TRAILING:
            return DataError(f"the COPY stream goes on after its trailer (row {row - 1})")
        if code == layout.E_FIELDS:
            return DataError(
                f"row {row} of the part has {int(state[layout.S_LENGTH])} fields, {len(self._columns)} were expected",
                hint="The source changed while it was read, or the stream is damaged.",
            )
        if code == layout.E_CORRUPT and not int(state[layout.S_ROW_START]):
            return DataError(f"after row {row - 1} the server sent what is no protocol message")
        index = int(state[layout.S_COLUMN])
        column = self._columns[index]
        name = column.plan.name
        place = f"column {name}, {self._row_name(window, row)}"
        if code == layout.E_TRUNCATED:
            return DataError(f"{place}: the field runs past its row", column=name, row=row)
        size = int(state[layout.S_LENGTH])
        value = window.peek(int(state[layout.S_FIELD]), max(size, 0)) if code != layout.E_NULL else b""
        return field_error(column.plan, code, int(self._table[index, layout.C_REASON]), value, size).at(
            place, column=name, row=row
        )

    def _row_name(self, window: Window, row: int) -> str:
        """The failing row by its key where that can be read, else its number."""
        named = f"row {row} of the part"
        wanted = [i for i, c in enumerate(self._columns) if c.plan.name in self._keys]
        if not wanted:
            return named
        at = int(self._state[layout.S_ROW_START]) + 2
        fields = []
        for _ in self._columns:
            size = int.from_bytes(window.peek(at, 4), "big", signed=True)
            fields.append(window.peek(at, 4 + max(size, 0)))
            at += 4 + max(size, 0)
        plans = [replace(self._columns[i].plan, special="null", nullable=True) for i in wanted]
        try:
            values = decode_one(plans, [fields[i] for i in wanted])
        except (EtlError, pa.ArrowException):
            return named
        return "row " + ", ".join(f"{plan.name}={value}" for plan, value in zip(plans, values, strict=True))


def decode_one(plans: Sequence[ColumnPlan], fields: Sequence[bytes]) -> list[str]:
    """The values of one row as text, for messages; each field has its length before it."""
    schema = pa.schema([pa.field(p.name, p.type) for p in plans])
    decoder = Decoder(plans, schema, tally=Tally(), batch_bytes=4096, block_bytes=4096)
    stream = layout.SIGNATURE + bytes(8) + len(plans).to_bytes(2, "big") + b"".join(fields) + b"\xff\xff"
    batches = [*decoder.feed(stream), *decoder.finish()]
    return [str(batches[0].column(i)[0].as_py())[:SHOWN] for i in range(len(plans))]
