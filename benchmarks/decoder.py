"""The binary COPY decoder alone: GB/s of wire bytes per core, by type and on the row shapes of the benchmark tables.

    python benchmarks/decoder.py [rows]

Streams are made here, framed as the server frames them, and decoded from memory; the time is this thread's CPU time,
the best of seven. "loop" is the compiled loop, "all" adds copying the bytes in and making the batches.
"""

from __future__ import annotations

import struct
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from connectors.base import Tally
from connectors.postgresql import native
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.copy import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    Maker = Callable[[int], bytes]

UTC = pa.timestamp("us", "UTC")
MODES = (b"REG AIR", b"AIR", b"RAIL", b"SHIP", b"TRUCK", b"MAIL", b"FOB")
INSTRUCTIONS = (b"DELIVER IN PERSON", b"COLLECT COD", b"NONE", b"TAKE BACK RETURN")
WORDS = b"furiously regular deposits haggle slyly above the ironic packages and sleep quickly among the asymptotes"


def number(value: int, scale: int) -> bytes:
    """numeric_send of value / 10^scale."""
    text = str(abs(value)).rjust(scale + 1, "0")
    whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    digits = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole) + len(fraction), 4)]
    weight = len(whole) // 4 - 1
    while digits and digits[0] == 0:
        digits.pop(0)
        weight -= 1
    while digits and digits[-1] == 0:
        digits.pop()
    sign = 0x4000 if value < 0 else 0
    return struct.pack(f">hhHh{len(digits)}h", len(digits), weight, sign, scale, *digits)


def packed(form: str, value: Callable[[int], float]) -> Maker:
    return lambda i: struct.pack(form, value(i))


INT8: tuple[Kind, pa.DataType, Maker] = (Kind.INT8, pa.int64(), packed(">q", lambda i: i * 8))
INT4: tuple[Kind, pa.DataType, Maker] = (Kind.INT4, pa.int32(), packed(">i", lambda i: i % 200000))
FLOAT8: tuple[Kind, pa.DataType, Maker] = (Kind.FLOAT8, pa.float64(), packed(">d", lambda i: i / 7))
DATE: tuple[Kind, pa.DataType, Maker] = (Kind.DATE, pa.date32(), packed(">i", lambda i: i % 2500 - 3000))
SHIPPED: tuple[Kind, pa.DataType, Maker] = (Kind.TIMESTAMPTZ, UTC, packed(">q", lambda i: i * 86400000000 % 10**15))
MODE: tuple[Kind, pa.DataType, Maker] = (Kind.TEXT, pa.string(), lambda i: MODES[i % 7])
MONEY: tuple[Kind, pa.DataType, Maker] = (Kind.NUMERIC, pa.decimal128(15, 2), lambda i: number(i * 7919 % 10**7, 2))
RATE: tuple[Kind, pa.DataType, Maker] = (Kind.NUMERIC, pa.decimal128(15, 2), lambda i: number(i % 11, 2))
LETTER: tuple[Kind, pa.DataType, Maker] = (Kind.TEXT, pa.string(), lambda i: b"ANR"[i % 3 :][:1])
COMMENT: tuple[Kind, pa.DataType, Maker] = (Kind.TEXT, pa.string(), lambda i: WORDS[i % 40 :][: 10 + i % 34])

SHAPES: dict[str, list[tuple[Kind, pa.DataType, Maker]]] = {
    "features": [
        INT8,
        INT4,
        INT4,
        FLOAT8,
        FLOAT8,
        (Kind.FLOAT4, pa.float32(), packed(">f", lambda i: i % 11 / 100)),
        (Kind.BOOL, pa.bool_(), lambda i: bytes([i % 2])),
        SHIPPED,
        MODE,
        INT4,
    ],
    "lineitem": [
        *(INT8, INT8, INT8, INT4, MONEY, MONEY, RATE, RATE, LETTER, LETTER, DATE, DATE, DATE),
        (Kind.TEXT, pa.string(), lambda i: INSTRUCTIONS[i % 4]),
        MODE,
        COMMENT,
    ],
    "bigint x 8": [INT8] * 8,
    "integer x 8": [INT4] * 8,
    "double x 8": [FLOAT8] * 8,
    "timestamptz x 8": [SHIPPED] * 8,
    "date x 8": [DATE] * 8,
    "boolean x 8": [(Kind.BOOL, pa.bool_(), lambda i: bytes([i % 2]))] * 8,
    "numeric(15,2) x 8": [MONEY] * 8,
    "numeric(38,18) x 8": [(Kind.NUMERIC, pa.decimal128(38, 18), lambda i: number(i * 7919 * 10**15, 18))] * 8,
    "text of 10 x 8": [(Kind.TEXT, pa.string(), lambda i: WORDS[i % 40 :][:10])] * 8,
    "text of 1000": [(Kind.TEXT, pa.string(), lambda i: WORDS[i % 40 :][:50] * 20)],
    "uuid x 4": [(Kind.UUID, pa.uuid(), lambda i: struct.pack(">qq", i, -i))] * 4,
    "NULL x 8": [(Kind.INT8, pa.int64(), lambda _: b"")] * 8,
}


def stream(columns: list[tuple[Kind, pa.DataType, Maker]], rows: int, *, null: bool) -> bytes:
    parts = [b"d" + struct.pack(">i", 23) + b"PGCOPY\n\xff\r\n\0" + bytes(8)]
    for i in range(rows):
        body = [struct.pack(">h", len(columns))]
        for position, (_, _, make) in enumerate(columns):
            if null:
                body.append(b"\xff\xff\xff\xff")
                continue
            value = make(i + position)
            body.append(struct.pack(">i", len(value)) + value)
        row = b"".join(body)
        parts.append(b"d" + struct.pack(">i", len(row) + 4) + row)
    parts.append(b"d" + struct.pack(">i", 6) + b"\xff\xff")
    return b"".join(parts)


def measure(name: str, rows: int) -> None:
    columns = SHAPES[name]
    plans = [ColumnPlan(f"c{i}", kind, type_) for i, (kind, type_, _) in enumerate(columns)]
    schema = pa.schema([pa.field(p.name, p.type) for p in plans])
    data = memoryview(stream(columns, rows, null=name.startswith("NULL")))
    calls = native.load().calls
    loop = calls["rows"]
    spent = 0.0

    def timed(*arguments: int) -> int:
        nonlocal spent
        start = time.thread_time()
        status = loop(*arguments)
        spent += time.thread_time() - start
        return status

    best, best_loop = float("inf"), float("inf")
    calls["rows"] = timed
    try:
        for _ in range(7):
            spent = 0.0
            decoder = Decoder(plans, schema, tally=Tally(), framed=True)
            start = time.thread_time()
            for _ in decoder.feed(data):
                pass
            for _ in decoder.finish():
                pass
            best, best_loop = min(best, time.thread_time() - start), min(best_loop, spent)
    finally:
        calls["rows"] = loop
    size = len(data)
    speeds = f"loop {size / best_loop / 1e9:5.2f} GB/s  all {size / best / 1e9:5.2f} GB/s"
    print(f"{name:20} {size / rows:7.1f} B/row  {speeds}")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    for name in SHAPES:
        measure(name, rows)


if __name__ == "__main__":
    main()
