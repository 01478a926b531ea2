"""The device of this process: one thread at a time talks to it, through page-locked memory taken once."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from etl.core.errors import EngineError
from etl.core.schema import Field, Schema
from etl.engine.backends import backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etl.engine.base import BackendName

BUFFERS: Final = 4
"""One for each thread that fetches: taken for life, since page-locking is some eight times slower than allocating."""
BUFFER_BYTES: Final = 256 << 20
STICKY: Final = ("illegal memory access", "launch failure", "cudaErrorIllegalAddress", "cudaErrorLaunchFailure")
"""After one of these every later call of the process fails, too."""
LOST: Final = 86
"""Exit code of a process that gave its device up."""

_LOCK = threading.Lock()


@contextmanager
def alone(made: BackendName, /) -> Iterator[float]:
    """The device for this thread alone, from import to pack; nothing for frames of pandas.

    Gives the seconds that the thread waited for it: when they grow, more fetchers no longer help.

    Where the device failed for good, this process ends, so that its nanny starts a new one and the part is read again:
    whatever this process tried afterwards would fail.
    """
    if made == "pandas":
        yield 0.0
        return
    begun = time.monotonic()
    with _LOCK:
        try:
            yield time.monotonic() - begun
        except Exception as error:
            if gave_up(error):
                os._exit(LOST)
            raise


def gave_up(error: BaseException | None, /) -> bool:
    """Whether an error, or one that it came from, says that no call of this process will ever reach the device."""
    while error is not None:
        text = str(error)
        if any(words in text for words in STICKY):
            return True
        error = error.__cause__ or error.__context__
    return False


def page_locked(size: int, /) -> pa.Buffer:
    """Memory that the device reads by itself, without a copy by the driver."""
    import cupy  # noqa: PLC0415 # of the extra for GPUs; makes a context with the first allocation

    return pa.py_buffer(cupy.cuda.alloc_pinned_memory(size))


def settled() -> None:
    """Wait until the device has done all that it was asked to: what it reads from may be written again."""
    import cupy  # noqa: PLC0415 # as above

    cupy.cuda.Device().synchronize()


class Ring:
    """Buffers that tables pass through on their way to the device.

    Every column buffer of a table that comes out lies inside one of them (IPC aligns to 8 bytes, enough for copies).
    """

    def __init__(self, allocate: Callable[[int], pa.Buffer], size: int, count: int = BUFFERS) -> None:
        """Take all buffers at once.

        Args:
            allocate: Gives writable memory of that many bytes: `page_locked`, or plain memory where no device is.
            size: Bytes of one buffer.
            count: Threads that may fill at once.
        """
        self._size = size
        self._free: queue.LifoQueue[pa.Buffer] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(allocate(size))

    def pieces(self, table: pa.Table, /) -> Iterator[pa.Table]:
        """The table's rows in order, as tables inside a buffer: one if it fits, else as few as there must be.

        A piece is valid until the next one is asked for; before that, the device must have read it. The first is
        filled by the time it is given, so that only what does not fit waits for the device.

        Args:
            table: As the device takes it: dictionaries unified, since doing so later would move what they index.

        Raises:
            EngineError: One row alone is larger than a buffer.
        """
        buffer = self._free.get()
        try:
            begun = 0
            while begun < table.num_rows:
                piece = self._filled(buffer, table.slice(begun))
                yield piece
                begun += piece.num_rows
                del piece
        finally:
            self._free.put(buffer)

    def _filled(self, buffer: pa.Buffer, table: pa.Table) -> pa.Table:
        """As many of the table's first rows as the buffer holds, give or take half."""
        rows = max(1, min(table.num_rows, self._size * table.num_rows // max(1, table.nbytes)))
        while rows:
            try:
                return _written(buffer, table.slice(0, rows))
            except OSError:  # "Write out of bounds"
                rows //= 2
        raise EngineError(
            f"a row of {table.slice(0, 1).nbytes} bytes is larger than a buffer of {self._size} bytes",
            hint="Leave the large column out, or run with --engine cpu.",
        )


def _written(buffer: pa.Buffer, table: pa.Table) -> pa.Table:
    """The table again, its columns inside the buffer: an uncompressed stream, opened where it lies."""
    with pa.FixedSizeBufferWriter(buffer) as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(buffer).read_all()


@cache
def ring() -> Ring:
    """The ring of this process, taken when the worker warms up, by the one thread that has the device."""
    return Ring(page_locked, BUFFER_BYTES)


def pieces(table: pa.Table, /) -> Iterator[pa.Table]:
    """The table through the ring of this process; one of no rows as it is, for which no ring is taken."""
    return ring().pieces(table) if table.num_rows else iter((table,))


def warm_up() -> None:
    """The first context, kernel and file of this process, which cost up to seconds: before parts are timed.

    Raises:
        ConfigError: cuDF cannot be loaded.
        EngineError: What came back from the device is not what was sent.
    """
    from etl.engine.backends.cudf import library  # noqa: PLC0415 # only where a device is

    schema = Schema((Field("x", pa.float64(), nullable=True),))
    sent = pa.table({"x": [1.0, None, 3.0]}, schema.to_arrow())
    frames = backend("cudf")
    with alone("cudf"), tempfile.TemporaryDirectory(prefix="cuetl-") as folder:
        frame = frames.from_arrow(sent, schema)
        path = str(Path(folder) / "first.parquet")
        frame.to_parquet(path)
        back = [frames.to_arrow(one, schema) for one in (frame + 0, library().read_parquet(path))]
    if not all(one.equals(sent) for one in back):
        raise EngineError("the device gave back other values than it was given", hint="Check the driver and cuDF.")
