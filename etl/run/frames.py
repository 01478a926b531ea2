"""A part through its steps: batches to one frame, the function, the frame to batches."""

from __future__ import annotations

import gc
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from etl.core.errors import DeviceOutOfMemory, EtlError
from etl.engine.backends import backend
from etl.engine.device import alone
from etl.planning.calling import called, defined_at
from etl.run.early import BATCH_BYTES
from etl.run.observing import in_train
from etl.tensors.stats import PartStats
from etl.transforms.fit import applied, applied_to_frames, planned
from etl.transforms.host import Rows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from etl.core.partition import Partition
    from etl.engine.base import Backend
    from etl.planning.function import FunctionRef
    from etl.planning.steps import Steps
    from etl.tensors.stats import Stats
    from etl.transforms.fit import Planned


@dataclass(slots=True)
class Made:
    """What is counted while a part goes through its steps.

    Attributes:
        given: Rows that went in.
        rows: Rows that the function gave; without one those that went in.
        left_out: Of these, rows that steps after the function left out.
        seconds: Of work of its own thread in the function: waiting for others makes none slow.
        waited: Seconds until the device was free for this part.
        warnings: What the user should know, in sentences.
        tally: (column, what) → how often steps met it: NULL, a value that was never seen, one that was clipped.
        given_stats: Column that steps read → its values as they went into the first step.
    """

    given: int = 0
    rows: int = 0
    left_out: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    warnings: list[str] = field(default_factory=list)
    tally: dict[tuple[str, str], int] = field(default_factory=dict)
    given_stats: dict[str, Stats] = field(default_factory=dict)


def through(
    batches: Generator[pa.RecordBatch, None, None], steps: Steps, part: Partition, made: Made, /
) -> Iterator[pa.RecordBatch]:
    """The rows of a part as the steps give them: for a function all are gathered first, and are one frame.

    Memory: with a function the part some three times: as Arrow, as a frame, and as what the function gives; without
    one a few batches.

    Args:
        batches: Of exactly `steps.given`; closed at the end.
        steps: Planned.
        part: Of these rows. The function is watched at the first part of a run only.
        made: Filled.

    Raises:
        UserCodeError: The function failed, or gave no frame.
        SchemaError: It gave other columns than planned; the column, what was planned and what it gave are named.
        DeviceOutOfMemory: The frame, or what was made of it, did not fit; the part should be halved.
    """
    ref = steps.function
    with closing(_counted(batches, made) if ref is None else _through(batches, steps, ref, part, made)) as given:
        if not steps.prepare:
            yield from given
            return
        plan, first = planned(steps.prepare, steps.made, steps.figures), 0
        read = {name for step in plan.steps for name in step.reads}
        seen = PartStats([one for one in plan.given if one.name in read], part.index)
        for batch in given:
            train = None
            if plan.folds:
                train = np.ones(batch.num_rows, np.bool_) if steps.train is None else in_train(steps.train, batch, "")
            rows = Rows.of_batch(batch, plan.given, first=first, train=train, tally=made.tally)
            first += batch.num_rows
            seen.take(batch)
            prepared = _prepared(plan, steps, rows, made).batch(plan.returns)
            made.left_out += batch.num_rows - prepared.num_rows
            yield prepared
        made.given_stats = seen.done()


def _prepared(plan: Planned, steps: Steps, rows: Rows, made: Made) -> Rows:
    """Steps that are the product's own: NumPy on the host, frames on a device."""
    if steps.backend == "pandas":
        return applied(plan, steps.figures, rows)
    with alone(steps.backend) as waited:
        made.waited += waited
        return applied_to_frames(plan, steps.figures, rows, backend(steps.backend))


def _counted(batches: Generator[pa.RecordBatch, None, None], made: Made) -> Generator[pa.RecordBatch, None, None]:
    with closing(batches):
        for batch in batches:
            made.given += batch.num_rows
            made.rows += batch.num_rows
            yield batch


def _through(
    batches: Generator[pa.RecordBatch, None, None], steps: Steps, ref: FunctionRef, part: Partition, made: Made
) -> Generator[pa.RecordBatch, None, None]:
    """The rows as the function gives them."""
    with closing(batches):
        table = pa.Table.from_batches(batches, steps.given.to_arrow())
    made.given = table.num_rows
    figures = _figures(table)
    frames = backend(steps.backend)
    out: pa.Table | DeviceOutOfMemory
    try:
        with alone(steps.backend) as waited:
            made.waited += waited
            out = _one_frame(table, steps, frames, ref, part, made)
    except BaseException as error:
        if not frames.out_of_memory(error):
            raise
        out = _out_of_memory(error, frames.name, figures)
    del table
    if isinstance(out, DeviceOutOfMemory):
        # Outside of the handler nothing holds the frames any more: what they took is free before the halves come.
        gc.collect()
        raise out
    made.rows = out.num_rows
    size = max(1, BATCH_BYTES * out.num_rows // max(1, out.nbytes))
    yield from out.to_batches(max_chunksize=size)


def _one_frame(
    table: pa.Table, steps: Steps, frames: Backend, ref: FunctionRef, part: Partition, made: Made
) -> pa.Table:
    frame = frames.from_arrow(table, steps.given)
    started = time.thread_time()
    result, said = called(ref, frame, watch=part.index == 0)
    made.seconds = time.thread_time() - started
    made.warnings += said
    del frame
    try:
        return frames.to_arrow(result, steps.made)
    except EtlError as error:
        raise error.at(defined_at(ref)) from error


def _figures(table: pa.Table) -> str:
    """How large a part is, and which column takes most."""
    largest = max(table.column_names, key=lambda name: table.column(name).nbytes, default="")
    share = f", {table.column(largest).nbytes >> 10} of them in {largest}" if largest else ""
    return f"{table.num_rows} rows, {table.nbytes >> 10} KiB as Arrow{share}"


def _out_of_memory(error: BaseException, backend_name: str, figures: str) -> DeviceOutOfMemory:
    words = " ".join(str(error).split())
    return DeviceOutOfMemory(
        f"memory ran out in a frame of {backend_name} ({figures}): {words or type(error).__name__}",
        hint="Cut it smaller (partitions, partition_bytes, or partition_column where it is one part), or use fewer "
        "workers.",
    )
