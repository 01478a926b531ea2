"""Rows in binary without COPY, for servers that speak PostgreSQL's protocol and refuse COPY in binary.

An unnamed statement is run through the unnamed portal with all results in binary (documentation, "Extended Query").
A DataRow message then holds exactly the bytes of a row of a binary COPY: a field count, and per field its length and
what the type's send function gives. So one decoder reads both, and the values are the same by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import pq

from etl.core.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.pq.abc import PGconn, PGresult

COPY_DATA: Final = ord("d")
DATA_ROW: Final = ord("D")
BINARY: Final = 1
CHUNK: Final = 1024
"""Rows that libpq hands over at once (since its version 17)."""
_CHUNKS_SINCE: Final = 170000
_NULL: Final = b"\xff\xff\xff\xff"


def question(statement: str, /) -> bytes:
    """Parse, Bind, Describe, Execute and Sync: the messages that ask for all rows in binary."""
    bind = (
        b"\0\0" + (0).to_bytes(2, "big") + (0).to_bytes(2, "big") + (1).to_bytes(2, "big") + BINARY.to_bytes(2, "big")
    )
    messages = (
        (b"P", b"\0" + statement.encode() + b"\0" + (0).to_bytes(2, "big")),
        (b"B", bind),
        (b"D", b"P\0"),
        (b"E", b"\0" + (0).to_bytes(4, "big")),
        (b"S", b""),
    )
    return b"".join(kind + (len(content) + 4).to_bytes(4, "big") + content for kind, content in messages)


def check_formats(description: bytes, /) -> None:
    """Look at a RowDescription message: every column must come in binary.

    Raises:
        DataError: One comes as text.
    """
    at = 2
    for number in range(1, int.from_bytes(description[:2], "big") + 1):
        at = description.index(b"\0", at) + 1 + 18
        if int.from_bytes(description[at - 2 : at], "big") != BINARY:
            raise DataError(f"the server sends column {number} as text where binary was asked for")


def ask(pgconn: PGconn, statement: str, /) -> None:
    """The same through libpq, which then hands rows over as they come and not all at the end."""
    pgconn.send_query_params(statement.encode(), None, result_format=BINARY)
    if pq.version() >= _CHUNKS_SINCE:
        pgconn.set_chunked_rows_mode(CHUNK)
    else:
        pgconn.set_single_row_mode()


def holds_rows(result: PGresult, /) -> bool:
    """Whether a result holds some of the rows, with more to come."""
    return result.status in (pq.ExecStatus.TUPLES_CHUNK, pq.ExecStatus.SINGLE_TUPLE)


def tuples(result: PGresult, /) -> Iterator[bytes]:
    """Rows of a result as those of a binary COPY. libpq hands fields out one at a time, and no faster way.

    Raises:
        DataError: A column comes as text.
    """
    columns = range(result.nfields)
    for column in columns:
        if result.fformat(column) != BINARY:
            raise DataError(f"the server sends column {column + 1} as text where binary was asked for")
    head = len(columns).to_bytes(2, "big")
    for row in range(result.ntuples):
        fields = [head]
        for column in columns:
            value = result.get_value(row, column)
            fields.append(_NULL if value is None else len(value).to_bytes(4, "big") + value)
        yield b"".join(fields)
