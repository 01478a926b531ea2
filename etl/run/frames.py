"""A part through its steps: batches to one frame, the function, the frame to batches."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from etl.core.errors import EtlError
from etl.engine.backends import backend
from etl.planning.calling import called, defined_at
from etl.run.early import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from etl.core.partition import Partition
    from etl.planning.steps import Steps


@dataclass(slots=True)
class Made:
    """What is counted while a part goes through its steps.

    Attributes:
        given: Rows that went in.
        rows: Rows that came out.
        seconds: In the function.
        warnings: What the user should know, in sentences.
    """

    given: int = 0
    rows: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


def through(
    batches: Generator[pa.RecordBatch, None, None], steps: Steps, part: Partition, made: Made, /
) -> Iterator[pa.RecordBatch]:
    """The rows of a part as the steps give them: all are gathered first, and are one frame.

    Memory: the part some three times: as Arrow, as a frame, and as what the function gives.

    Args:
        batches: Of exactly `steps.given`; closed at the end.
        steps: Planned.
        part: Of these rows. The function is watched at the first part of a run only.
        made: Filled.

    Raises:
        UserCodeError: The function failed, or gave no frame.
        SchemaError: It gave other columns than planned; the column, what was planned and what it gave are named.
    """
    with closing(batches):
        table = pa.Table.from_batches(batches, steps.given.to_arrow())
    made.given = table.num_rows
    ref = steps.function
    if ref is None:
        made.rows = table.num_rows
        yield from table.to_batches()
        return
    frames = backend(steps.backend)
    frame = frames.from_arrow(table, steps.given)
    del table
    started = time.monotonic()
    result, said = called(ref, frame, watch=part.index == 0)
    made.seconds = time.monotonic() - started
    made.warnings += said
    del frame
    try:
        out = frames.to_arrow(result, steps.returns)
    except EtlError as error:
        raise error.at(defined_at(ref)) from error
    del result
    made.rows = out.num_rows
    size = max(1, BATCH_BYTES * out.num_rows // max(1, out.nbytes))
    yield from out.to_batches(max_chunksize=size)
