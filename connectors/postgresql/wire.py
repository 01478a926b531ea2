"""Read `COPY … TO STDOUT (FORMAT BINARY)`, or a portal, from a connection in bulk and hand out record batches.

psycopg opens and authenticates. Without encryption the socket is then read in large blocks and the simple-query
protocol is spoken here (documentation, "Frontend/Backend Protocol"); libpq never sees the connection again. With TLS
or GSS libpq's copy calls feed the same decoder.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus

from connectors.postgresql.copy import Decoder
from connectors.postgresql.portal import ask, check_formats, holds_rows, question, tuples
from etl.core.errors import CountMismatch, DataError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from psycopg import Connection
    from psycopg.pq.abc import PGconn, PGresult

    from connectors.base import Tally
    from connectors.postgresql.columns import ColumnPlan

BLOCK = 1 << 19
"""Bytes asked of the socket at a time: larger blocks leave the second-level cache before they are decoded."""
GATHER = 1 << 18
"""Bytes that the kernel gathers before a reader is woken: a server sends 8 KiB at a time, and a call of the decoder for
each of them costs more than its rows."""
GATHER_SECONDS = 0.002
"""How long fewer bytes are waited for: the end of a stream is short of `GATHER`."""
LONGEST_WAIT = 0.05
"""Seconds between two looks at a server that sends nothing."""
BULK = 1 << 18
"""Bytes of libpq rows that are decoded together."""
NOT_OFFERED = "0A000"
"""SQLSTATE of what a server does not offer."""
STALL = 300
"""Seconds without a byte, after the first, until the server is taken for lost."""


class ServerError(StoreError):
    """The server's own error: `sqlstate` and `detail` are in the context, its hint is the hint."""

    code = "server"

    @property
    def sqlstate(self) -> str:
        """Five characters, such as 57014; empty where the server sent none."""
        return str(self.context.get("sqlstate", ""))

    @property
    def detail(self) -> str:
        """The server's detail, or empty."""
        return str(self.context.get("detail", ""))


def stream(
    connection: Connection,
    statement: str,
    plans: Sequence[ColumnPlan],
    schema: pa.Schema,
    *,
    batch_bytes: int = 4 << 20,
    tally: Tally,
    key_columns: Sequence[str] = (),
    validate_utf8: bool = False,
    block_bytes: int = BLOCK,
    stall: float = STALL,
    keep: bool = False,
    portal: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a statement. The connection must be idle (in a transaction or not) and is closed at the end.

    Closing the generator early cancels the statement. `tally` gets rows, bytes, the way and the server's own count.

    Args:
        connection: Opened and authenticated; nothing else may use it.
        statement: `COPY (…) TO STDOUT (FORMAT BINARY)`; with `portal` a select.
        plans: One per column of the statement.
        schema: Schema of the batches.
        batch_bytes: Size of a batch, about.
        tally: Filled while reading.
        key_columns: Columns that name a row in messages.
        validate_utf8: Text is checked, since the database does not (SQL_ASCII).
        block_bytes: Bytes asked of the socket at a time.
        stall: Seconds without a byte, after the first, until the server is taken for lost.
        keep: The connection stays open for another statement when this one ended well.
        portal: The statement is a select, run by the extended protocol; see `connectors.postgresql.portal`.

    Raises:
        ServerError: The server refused or broke off; its SQLSTATE is in the context.
        StoreUnavailable: The connection was lost or stalled.
        CountMismatch: The server's count is not the rows that came.
        DataError: The bytes are not a COPY stream of these columns, or a value is refused by a policy.
    """
    pgconn = connection.pgconn
    plain = not pgconn.ssl_in_use and not pgconn.used_gssapi
    tally.how = ("socket" if plain else "libpq") + (", portal" if portal else "")
    ended = complete = False
    try:
        if plain:
            session = Session(tally, portal=portal)

            def told(kind: int, content: bytes) -> None:
                session.message(kind, content)
                if portal and session.ended:
                    decoder.ended()

            decoder = Decoder(
                plans,
                schema,
                batch_bytes=batch_bytes,
                tally=tally,
                key_columns=key_columns,
                framed=True,
                portal=portal,
                on_message=told,
                validate_utf8=validate_utf8,
                block_bytes=block_bytes,
            )
            yield from _socket_rows(
                pgconn, question(statement) if portal else simple(statement), decoder, session, tally, stall
            )
        else:
            decoder = Decoder(
                plans,
                schema,
                batch_bytes=batch_bytes,
                tally=tally,
                key_columns=key_columns,
                portal=portal,
                validate_utf8=validate_utf8,
                block_bytes=block_bytes,
            )
            rows = _libpq_portal if portal else _libpq_rows
            yield from rows(pgconn, statement, decoder, tally, stall)
        yield from decoder.finish()
        if tally.counted != decoder.rows:
            raise CountMismatch(
                f"the server sent {tally.counted} rows and {decoder.rows} arrived", hint="Nothing was published."
            )
        ended = complete = True
    except ServerError:
        # The server ended the statement itself.
        ended = True
        raise
    finally:
        if not ended:
            # A server that sorts or waits sees a closed socket only when it writes: it is told as well.
            with suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=2.0)
        if not (keep and complete):
            connection.close()


class Session:
    """What the server says besides rows, while one statement runs."""

    def __init__(self, tally: Tally, *, portal: bool = False) -> None:
        self.tally = tally
        self.portal = portal
        self.copying = False
        """Whether the server began to send rows in the way that was asked for."""
        self.ended = False
        """Whether it said that there are no more."""
        self.ready = False

    def message(self, kind: int, content: bytes) -> None:
        """Take one protocol message.

        Raises:
            ServerError: It is an error.
            DataError: It does not belong to a COPY.
        """
        match chr(kind):
            case "T" if self.portal:
                check_formats(content)
                self.copying = True
            case "H":
                if content[:1] != b"\x01":
                    raise server_error(NOT_OFFERED, "the server copies text, not binary", "", "")
                self.copying = True
            case "C":
                self.tally.counted = _counted(content.rstrip(b"\0"), b"SELECT" if self.portal else b"COPY")
                self.ended = True
            case "Z":
                self.ready = True
            case "E":
                fields = _fields(content)
                raise server_error(fields.get("C", ""), fields.get("M", ""), fields.get("D", ""), fields.get("H", ""))
            case "N" | "S" | "A" | "c" | "T":
                pass
            case "1" | "2" if self.portal:
                pass
            case "n" if self.portal:
                raise DataError("the statement has no rows")
            case other:
                raise DataError(f"unexpected protocol message {other!r} from the server")


def server_error(sqlstate: str, message: str, detail: str, hint: str) -> ServerError:
    """The server's words as an error."""
    text = message + (f" ({detail})" if detail else "")
    return ServerError(f"{text} (SQLSTATE {sqlstate})", hint=hint, sqlstate=sqlstate, detail=detail)


def _fields(content: bytes) -> dict[str, str]:
    parts = content.split(b"\0")
    return {chr(part[0]): part[1:].decode(errors="replace") for part in parts if part}


def _counted(tag: bytes, wanted: bytes) -> int:
    word, _, number = tag.partition(b" ")
    if word != wanted or not number.isdigit():
        raise DataError(f"the statement was no {wanted.decode()}: the server says {tag.decode(errors='replace')}")
    return int(number)


def simple(statement: str, /) -> bytes:
    """The message that asks a question in the simple protocol."""
    text = statement.encode() + b"\0"
    return b"Q" + (len(text) + 4).to_bytes(4, "big") + text


def _lost(decoder: Decoder, why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the connection was lost after row {decoder.rows} of the part: {why}", hint="The part can be read again."
    )


def _socket_rows(
    pgconn: PGconn, messages: bytes, decoder: Decoder, session: Session, tally: Tally, stall: float
) -> Iterator[pa.RecordBatch]:
    with socket.socket(fileno=os.dup(pgconn.socket)) as wire:
        wire.settimeout(None)
        try:
            wire.sendall(messages)
            # The time before the first byte is the query's own and has no limit here.
            got = wire.recv_into(decoder.space())
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, GATHER)
            readable = select.poll()
            readable.register(wire, select.POLLIN)
            while True:
                if not got:
                    raise _lost(decoder, "the server closed it")
                tally.received += got
                yield from decoder.advance(got)
                if session.ready:
                    break
                got = _receive(wire, readable, decoder.space(), stall)
            # Whoever uses the connection next waits for single messages.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        except BlockingIOError:
            raise _lost(decoder, f"no byte came for {stall:g} s") from None
        except OSError as error:
            raise _lost(decoder, str(error)) from error
        if not session.copying:
            raise DataError("the statement has no rows")


def _receive(wire: socket.socket, readable: select.poll, space: memoryview, stall: float) -> int:
    """Bytes received into `space`: `GATHER` of them or more, fewer where no more come at once, 0 at the end.

    Raises:
        BlockingIOError: No byte came for `stall` seconds.
    """
    waited, wait = 0.0, GATHER_SECONDS
    while True:
        readable.poll(wait * 1000)
        try:
            return wire.recv_into(space, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            waited += wait
            if waited >= stall:
                raise
            wait = min(2 * wait, LONGEST_WAIT)


def _result(result: PGresult, wanted: ExecStatus) -> PGresult:
    if result.status == wanted:
        return result
    parts = [
        (result.error_field(field) or b"").decode(errors="replace")
        for field in (
            DiagnosticField.SQLSTATE,
            DiagnosticField.MESSAGE_PRIMARY,
            DiagnosticField.MESSAGE_DETAIL,
            DiagnosticField.MESSAGE_HINT,
        )
    ]
    if result.status == ExecStatus.COMMAND_OK:
        raise DataError("the statement has no rows")
    if not parts[0]:
        raise StoreUnavailable(f"the connection was lost: {result.get_error_message()}")
    raise server_error(*parts)


def _libpq_rows(
    pgconn: PGconn, statement: str, decoder: Decoder, tally: Tally, stall: float
) -> Iterator[pa.RecordBatch]:
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)

    def wait(seconds: float | None) -> None:
        if not poll.poll(None if seconds is None else seconds * 1000):
            raise _lost(decoder, f"no byte came for {stall:g} s")
        pgconn.consume_input()

    def result(wanted: ExecStatus) -> PGresult:
        while pgconn.is_busy():
            wait(None)
        found = pgconn.get_result()
        if found is None:
            raise _lost(decoder, "the statement has no result")
        return _result(found, wanted)

    try:
        pgconn.send_query(statement.encode())
        while pgconn.flush():
            poll.poll(1000)
        if not result(ExecStatus.COPY_OUT).binary_tuples:
            raise server_error(NOT_OFFERED, "the server copies text, not binary", "", "")
        rows: list[memoryview] = []
        size = 0
        while True:
            length, row = pgconn.get_copy_data(1)
            if length > 0:
                rows.append(row)
                size += length
            if rows and (length <= 0 or size >= BULK):
                tally.received += size
                block = b"".join(rows)
                rows.clear()
                size = 0
                yield from decoder.feed(block)
            if length < 0:
                break
            if length == 0:
                wait(stall if decoder.rows else None)
        tally.counted = _counted(result(ExecStatus.COMMAND_OK).command_status or b"", b"COPY")
        while pgconn.is_busy():
            wait(None)
        if pgconn.get_result() is not None:  # libpq takes the next statement only after it has said that there is none
            raise DataError("the statement has more than one result")
    except psycopg.OperationalError as error:
        raise _lost(decoder, str(error)) from error


def _libpq_portal(
    pgconn: PGconn, statement: str, decoder: Decoder, tally: Tally, stall: float
) -> Iterator[pa.RecordBatch]:
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)

    def result() -> PGresult | None:
        while pgconn.is_busy():
            if not poll.poll(stall * 1000 if decoder.rows else None):
                raise _lost(decoder, f"no byte came for {stall:g} s")
            pgconn.consume_input()
        return pgconn.get_result()

    try:
        ask(pgconn, statement)
        while pgconn.flush():
            poll.poll(1000)
        tag = b""
        while (found := result()) is not None:
            # The last rows bring the statement's tag, or the result without rows that follows them does.
            tag = found.command_status or tag
            if not holds_rows(found):
                _result(found, ExecStatus.TUPLES_OK)
                tally.counted = _counted(tag, b"SELECT")
                decoder.ended()
                continue
            block = b"".join(tuples(found))
            tally.received += len(block)
            yield from decoder.feed(block)
    except psycopg.OperationalError as error:
        raise _lost(decoder, str(error)) from error
