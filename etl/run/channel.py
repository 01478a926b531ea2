"""One reader, several writers, a short queue between them: receiving and writing overlap within one part.

A full queue blocks the reader, which then stops reading its socket; nothing piles up.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Self, TypeVar

from etl.core.errors import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

DEPTH = 2
"""Batches held for each writer, besides the one in its hand."""

OutT = TypeVar("OutT")


class _Stopped(BaseException):  # not an error: it unwinds the other threads after one has failed
    """Another thread of this part has failed."""


class _End:
    """No more batches."""


class _Lane:
    """The queue of one writer."""

    def __init__(self, stop: threading.Event, depth: int = DEPTH) -> None:
        self._items: queue.Queue[pa.RecordBatch | _End] = queue.Queue(depth)
        self._stop = stop

    def put(self, item: pa.RecordBatch | _End) -> None:
        while not self._stop.is_set():
            try:
                self._items.put(item, timeout=0.1)
            except queue.Full:
                continue
            return
        raise _Stopped

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                item = self._items.get(timeout=0.1)
            except queue.Empty:
                if self._stop.is_set():
                    raise _Stopped from None
                continue
            if isinstance(item, _End):
                return
            yield item
            del item


def pump(
    batches: Iterator[pa.RecordBatch],
    writers: Sequence[Callable[[Iterator[pa.RecordBatch]], OutT]],
    /,
    *,
    stopped: Callable[[], bool],
    passed: Callable[[pa.RecordBatch], None],
) -> list[OutT]:
    """Hand every batch to every writer; the reader runs in a thread of its own, the first writer in the caller's.

    Args:
        batches: Read until it ends, or closed when a writer fails.
        writers: Each gets its own iterator and returns its result.
        stopped: Looked at for every batch; True ends the part with `Cancelled`.
        passed: Called with every batch after it was handed on.

    Returns:
        The writers' results, in order.

    Raises:
        BaseException: The first failure of the reader or a writer, after all threads have ended.
    """
    stop = threading.Event()
    lanes = [_Lane(stop) for _ in writers]
    failures: list[BaseException] = []
    results: dict[int, OutT] = {}

    def fail(error: BaseException) -> None:
        if not isinstance(error, _Stopped):
            failures.append(error)
        stop.set()

    def read() -> None:
        try:
            for batch in batches:
                if stopped():
                    raise Cancelled("the run was stopped")
                for lane in lanes:
                    lane.put(batch)
                passed(batch)
                del batch
            for lane in lanes:
                lane.put(_End())
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            fail(error)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()

    def write(index: int) -> None:
        try:
            results[index] = writers[index](lanes[index].batches())
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            fail(error)

    threads = [threading.Thread(target=read, name="cuetl-read", daemon=True)]
    threads += [
        threading.Thread(target=write, args=(i,), name="cuetl-write", daemon=True) for i in range(1, len(writers))
    ]
    for thread in threads:
        thread.start()
    write(0)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[i] for i in range(len(writers))]


class ReadAhead:
    """The same batches, read ahead by a thread that begins at once: at most `depth` wait besides the one in its hand.

    Iterate over it from one thread; `close` closes the batches in their thread and waits for it.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], /, *, depth: int = DEPTH) -> None:
        self._batches = batches
        self._stop = threading.Event()
        self._lane = _Lane(self._stop, depth)
        self._failures: list[BaseException] = []
        self._given = self._lane.batches()
        self._thread = threading.Thread(target=self._read, name="cuetl-read", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._given)
        except _Stopped:
            self.close()
            raise self._failures[0] from None

    def close(self) -> None:
        """Stop reading; may be called twice."""
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            for batch in self._batches:
                self._lane.put(batch)
                del batch
            self._lane.put(_End())
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            self._failures.append(error)
            self._stop.set()
        finally:
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()
