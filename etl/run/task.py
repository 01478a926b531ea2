"""One partition in a worker, from spec to result: read, hand on, stage, compare counts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from etl.core.errors import Cancelled, CountMismatch
from etl.engine.events import teller
from etl.run import early
from etl.run.channel import pump
from etl.run.frames import Made, through
from etl.transforms.host import by_column, dropped_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    import pyarrow as pa

    from connectors.base import Finish, Finished, Source, Staged, WriteSession
    from etl.core.partition import Partition, Snapshot
    from etl.core.schema import Schema
    from etl.planning.steps import Steps
    from etl.tensors.stats import Stats

TELL_SECONDS = 0.25
"""Between two progress reports of one part."""

_stop_marks: dict[str, threading.Event] = {}


def stop_mark(go: str, /) -> threading.Event:
    """The mark that tasks of one go of a run in this process look at between batches. Once set it stays so."""
    return _stop_marks.setdefault(go, threading.Event())


@dataclass(frozen=True, slots=True)
class PartTask:
    """What a worker needs to read and stage one part: values and references, no handle, no secret, no frame."""

    run_id: str
    job: int
    source: Source
    at: Snapshot
    part: Partition
    attempt: int
    schema: Schema
    sessions: tuple[WriteSession, ...]
    go: int = 1
    """A run reads all parts once more on a new snapshot, or with wider decimals."""
    steps: Steps | None = None
    """What happens to the rows before they are staged."""
    records: str = ""
    """The stage in which the part is written down when it is whole; "": nowhere."""

    def key(self) -> str:
        """The task's name on the cluster: new for every attempt of every go."""
        return f"{self.run_id}:{self.go}:{self.job}:{self.part.index}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class PartResult:
    """What comes back from a worker: counts and paths."""

    job: int
    part: Partition
    attempt: int
    staged: tuple[Staged, ...]
    rows_read: int
    rows_counted: int
    received: int
    seconds: float
    special: Mapping[str, Mapping[str, int]]
    rounded: Mapping[str, int]
    warnings: tuple[str, ...]
    how: str
    rows_made: int | None = None
    """Rows that the function gave for those read; None without steps."""
    steps_seconds: float = 0.0
    """In the function of the steps."""
    device_waited: float = 0.0
    """Seconds until the device was free, within `seconds`."""
    steps_warnings: tuple[str, ...] = ()
    """Of the steps, in sentences."""
    prepared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Column → what steps met in it → how often."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows that steps left out, by reason; `rows_made` counts them."""
    given: Mapping[str, Stats] = field(default_factory=dict)
    """Column that steps read → its values as they went into the first step."""


def run_part(task: PartTask, /) -> PartResult:
    """Read one part and stage it for every dataset of the job.

    Raises:
        CountMismatch: Rows that the server counted, rows read and rows staged do not agree.
        EtlError: Whatever the source or a sink refuses.
    """
    started = time.monotonic()
    batches, tally = early.take(task)
    told = [started, 0, 0]
    mark = stop_mark(f"{task.run_id}:{task.go}")
    tell = teller(task.run_id)

    def passed(batch: pa.RecordBatch) -> None:
        told[1] += batch.num_rows
        told[2] += batch.nbytes
        now = time.monotonic()
        if now - told[0] >= TELL_SECONDS:
            tell(int(told[1]), int(told[2]))
            told[:] = [now, 0, 0]

    writers = [partial(session.stage, task.part, task.attempt) for session in task.sessions]
    made = None
    if task.steps is None:
        staged = pump(batches, writers, stopped=mark.is_set, passed=passed)
    else:
        made = Made()
        given = _told_of(batches, mark.is_set, passed)
        staged = pump(through(given, task.steps, task.part, made), writers, stopped=mark.is_set, passed=_unheard)
    tell(int(told[1]), int(told[2]))
    counted = tally.rows if tally.counted is None else tally.counted
    if tally.rows != counted:
        raise CountMismatch(
            f"the server counted {counted} rows, {tally.rows} were read",
            hint="Run again; report it if it happens twice.",
        )
    if made is not None and made.given != tally.rows:
        raise CountMismatch(f"{tally.rows} rows were read, the function was given {made.given}")
    dropped = {} if made is None else dropped_of(made.tally)
    if made is not None and made.left_out != sum(dropped.values()):
        raise CountMismatch(f"steps left out {made.left_out} rows, and counted {sum(dropped.values())} of them")
    rows = tally.rows if made is None else made.rows - made.left_out
    for one in staged:
        written = one.rows + sum(one.dropped.values())
        if written != rows:
            how = "read" if made is None else "given by the steps"
            raise CountMismatch(f"{rows} rows were {how}, {written} were written or dropped by a policy")
    return PartResult(
        job=task.job,
        part=task.part,
        attempt=task.attempt,
        staged=tuple(staged),
        rows_read=tally.rows,
        rows_counted=counted,
        received=tally.received,
        seconds=time.monotonic() - started,
        special=tally.special,
        rounded=tally.rounded,
        warnings=tuple(tally.warnings),
        how=tally.how,
        rows_made=None if made is None else made.rows,
        steps_seconds=0.0 if made is None else made.seconds,
        device_waited=0.0 if made is None else made.waited,
        steps_warnings=() if made is None else tuple(made.warnings),
        prepared={} if made is None else by_column(made.tally),
        dropped=dropped,
        given={} if made is None else made.given_stats,
    )


def _told_of(
    batches: Iterator[pa.RecordBatch], stopped: Callable[[], bool], passed: Callable[[pa.RecordBatch], None]
) -> Generator[pa.RecordBatch, None, None]:
    """The same batches, of which progress is told as they arrive: the function gets none before it has all.

    Raises:
        Cancelled: The run was stopped meanwhile.
    """
    try:
        for batch in batches:
            if stopped():
                raise Cancelled("the run was stopped")
            passed(batch)
            yield batch
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _unheard(_: pa.RecordBatch) -> None:
    """What the function gives is no progress of reading."""


@dataclass(frozen=True, slots=True)
class PieceTask:
    """What a worker needs to do one piece of the work after all parts; `go` and `attempt` as for a part."""

    run_id: str
    go: int
    place: tuple[int, int, int]
    attempt: int
    piece: Finish

    def key(self) -> str:
        """The task's name on the cluster."""
        return f"{self.run_id}:{self.go}:piece:{':'.join(map(str, self.place))}:{self.attempt}"


def run_piece(task: PieceTask, /) -> Finished:
    """Do one piece.

    Raises:
        EtlError: Whatever the sink refuses.
    """
    tell = teller(task.run_id)

    def passed(batch: pa.RecordBatch) -> None:
        tell(batch.num_rows, batch.nbytes)

    return task.piece.write(task.attempt, stopped=stop_mark(f"{task.run_id}:{task.go}").is_set, passed=passed)
