"""Batches from one reader to several writers: order, bounded memory, and one clear failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from etl.core.errors import Cancelled, CastError, StoreUnavailable
from etl.run.channel import DEPTH, ReadAhead, pump

if TYPE_CHECKING:
    from collections.abc import Iterator


def batch(value: int) -> pa.RecordBatch:
    array = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(value.to_bytes(8, "little"))])
    return pa.RecordBatch.from_arrays([array], ["v"])


def values(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [b.column(0)[0].as_py() for b in batches]


def never() -> bool:
    return False


def test_every_writer_gets_every_batch_in_order() -> None:
    seen: list[int] = []
    out = pump(
        (batch(i) for i in range(50)),
        [values, values, values],
        stopped=never,
        passed=lambda b: seen.append(b.num_rows),
    )
    assert out == [list(range(50))] * 3
    assert len(seen) == 50


def test_a_slow_writer_stops_the_reader() -> None:
    made: list[int] = []
    lead: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for i in range(40):
            made.append(i)
            yield batch(i)

    def slow(batches: Iterator[pa.RecordBatch]) -> int:
        taken = 0
        for _ in batches:
            taken += 1
            threading.Event().wait(0.002)
            lead.append(len(made) - taken)
        return taken

    assert pump(source(), [slow], stopped=never, passed=lambda _: None) == [40]
    assert max(lead) <= DEPTH + 1


def test_a_failing_reader_is_the_error() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        raise StoreUnavailable("cut")

    with pytest.raises(StoreUnavailable, match="cut"):
        pump(source(), [values, values], stopped=never, passed=lambda _: None)


def test_a_failing_writer_closes_the_reader_and_ends_the_others() -> None:
    closed = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        try:
            for i in range(10**6):
                yield batch(i % 100)
        finally:
            closed.set()

    def refuses(batches: Iterator[pa.RecordBatch]) -> list[int]:
        next(batches)
        raise CastError("no")

    with pytest.raises(CastError, match="no"):
        pump(source(), [values, refuses], stopped=never, passed=lambda _: None)
    assert closed.is_set()
    assert not [t for t in threading.enumerate() if t.name in ("cuetl-read", "cuetl-write")]


def test_a_stop_mark_ends_the_part() -> None:
    seen: list[int] = []
    with pytest.raises(Cancelled):
        pump(
            (batch(1) for _ in range(10**6)),
            [values],
            stopped=lambda: len(seen) > 5,
            passed=lambda b: seen.append(b.num_rows),
        )


def test_reading_ahead_keeps_order_and_stays_short() -> None:
    made: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for i in range(30):
            made.append(i)
            yield batch(i)

    got = []
    for one in ReadAhead(source()):
        threading.Event().wait(0.002)
        got.append(one.column(0)[0].as_py())
        assert len(made) - len(got) <= DEPTH + 1
    assert got == list(range(30))


def test_reading_ahead_hands_on_the_failure_and_closes_early() -> None:
    closed = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        try:
            yield batch(1)
            yield batch(2)
            raise StoreUnavailable("cut")
        finally:
            closed.set()

    with pytest.raises(StoreUnavailable, match="cut"):
        values(ReadAhead(source()))
    assert closed.is_set()

    def endless() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield batch(1)
        finally:
            closed.set()

    closed.clear()
    stream = ReadAhead(endless())
    next(stream)
    stream.close()
    assert closed.is_set()
