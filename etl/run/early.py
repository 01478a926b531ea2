"""Parts that are read before the cluster is up.

Importing and starting Dask takes half a second, in which the store would have nothing to do. Where tasks run in threads
of this process, the first parts are opened at once; the tasks take the streams over, batches and counts alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.base import Tally
from etl.run.channel import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from etl.run.task import PartTask

BATCH_BYTES = 4 << 20
"""Arrow data per batch: what four caches and two queues hold stays small beside one row group."""

AHEAD = 4
"""Batches that an early stream holds at most; they come on top of what its writer gathers, so they are few."""

_begun: dict[str, tuple[ReadAhead, Tally]] = {}


def begin(task: PartTask, /) -> None:
    """Read ahead for a task of this process: a few batches, until it takes them over."""
    tally = Tally()
    _begun[task.key()] = ReadAhead(_batches(task, tally), depth=AHEAD), tally


def take(task: PartTask, /) -> tuple[Iterator[pa.RecordBatch], Tally]:
    """The stream of a task: the one that was begun for it, else a new one."""
    begun = _begun.pop(task.key(), None)
    if begun is not None:
        return begun
    tally = Tally()
    return _batches(task, tally), tally


def begun(run_id: str, /) -> bool:
    """Whether a stream was begun for a run and not taken over."""
    return any(key.startswith(f"{run_id}:") for key in _begun)


def let_go(run_id: str, /) -> None:
    """Close what was begun for a run and not taken over."""
    for key in [k for k in _begun if k.startswith(f"{run_id}:")]:
        stream, _ = _begun.pop(key)
        stream.close()


def _batches(task: PartTask, tally: Tally) -> Iterator[pa.RecordBatch]:
    return task.source.read(task.at, task.part, schema=task.schema, batch_bytes=BATCH_BYTES, tally=tally)
