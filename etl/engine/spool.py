"""Spool files: rows between two passes of a run, as Arrow IPC files that are mapped and never copied.

A part of a source becomes one file or several of some 64 MiB; a few files are one partition of a collection. They lie
in the run's own hidden folder, belong to it alone, and go with it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from etl.core.errors import Cancelled, Damaged, DatasetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from etl.core.schema import Schema
    from etl.engine.base import BackendName

FILE_BYTES = 64 << 20
"""Arrow data of a file at most, and of a partition on a CPU: a step of pandas or a shuffle holds a few times this."""
LEAST_GROUP_BYTES = 4 << 20
"""Partitions are not cut smaller for the sake of more workers: a task would cost more than its rows."""
GROUP_BYTES_GPU = 256 << 20
"""Of a partition on a GPU at least: many small ones are over fifty times slower."""
GROUPS_PER_WORKER = 4
BATCH_BYTES = 4 << 20
SUFFIX = ".arrow"


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """One file: its absolute path, its rows, its bytes of Arrow data. Written once, by one attempt."""

    path: str
    rows: int
    bytes: int


def write_spool(
    folder: Path, name: str, schema: Schema, batches: Iterable[pa.RecordBatch], /, *, stopped: Callable[[], bool]
) -> list[SpoolFile]:
    """Write rows to files `<name>-<token>-<number>.arrow`; at least one, so that its schema is there.

    Memory: one batch; all of them where a column has labels, whose lists are made one.

    Args:
        folder: Exists.
        name: What the files' names begin with.
        schema: Of every batch.
        batches: The rows, in order.
        stopped: Looked at between batches.

    Raises:
        Cancelled: It was stopped.
        DatasetError: The file system refused: no space, mostly.
    """
    token = secrets.token_hex(4)
    arrow = schema.to_arrow()
    if any(pa.types.is_dictionary(f.type) for f in arrow):
        # A file has one list of labels per column, and batches may come with lists of their own.
        batches = pa.Table.from_batches(batches, arrow).unify_dictionaries().to_batches()
    found: list[SpoolFile] = []
    rest = iter(batches)
    try:
        while True:
            path = folder / f"{name}-{token}-{len(found):03}{SUFFIX}"
            file, more = _one_file(path, arrow, rest, stopped)
            found.append(file)
            if not more:
                return found
    except OSError as error:
        raise DatasetError(
            f"cannot write rows between two passes to {folder}: {error.strerror or error}",
            hint="The disk of the target must hold all rows that are read, and all that the function gives.",
        ) from error


def _one_file(
    path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], stopped: Callable[[], bool]
) -> tuple[SpoolFile, bool]:
    """Write until the file is full or the rows end; whether there may be more."""
    rows = size = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            if stopped():
                raise Cancelled("the run was stopped")
            writer.write_batch(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size >= FILE_BYTES:
                return SpoolFile(str(path), rows, size), True
    return SpoolFile(str(path), rows, size), False


def read_spool(file: SpoolFile, /) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the batches in which they were written, mapped.

    Raises:
        Damaged: It is gone or not what was written.
    """
    try:
        with pa.memory_map(file.path) as mapped, pa.ipc.open_file(mapped) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
    except (OSError, pa.ArrowInvalid) as error:
        raise Damaged(f"rows between two passes, {file.path}: {error}", hint="Run again.", path=file.path) from error


def pieces(table: pa.Table, /) -> list[pa.RecordBatch]:
    """The rows of a table in batches of about 4 MiB."""
    rows = max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes))
    return table.to_batches(max_chunksize=rows)


def groups(
    files: Sequence[SpoolFile], backend: BackendName, workers: int, /, *, halved: bool = False
) -> list[tuple[str, ...]]:
    """Paths, neighbours together: the partitions of a collection, at least one.

    Args:
        files: In order.
        backend: What makes the frames.
        workers: That share the partitions.
        halved: Partitions of half the size, down to a file: what is done when memory ran out.
    """
    total = sum(f.bytes for f in files)
    even = total // (GROUPS_PER_WORKER * max(1, workers))
    most = GROUP_BYTES_GPU if backend == "cudf" else FILE_BYTES
    wanted = max(LEAST_GROUP_BYTES, min(most, even)) if backend != "cudf" else most
    if halved:
        wanted //= 2
    found: list[list[str]] = []
    size = wanted
    for file in files:
        if size + file.bytes // 2 >= wanted:
            found.append([])
            size = 0
        found[-1].append(file.path)
        size += file.bytes
    return [tuple(one) for one in found]
