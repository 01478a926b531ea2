"""Carries a run out: opens the snapshot, starts the cluster, feeds parts, publishes, and cleans up.

Every handle of a run is held here. What happens next after an event is decided by `run.state`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connectors import registry
from connectors.base import CutWish
from etl.core.errors import (
    Cancelled,
    ConfigError,
    CountMismatch,
    DecimalTooNarrow,
    EngineError,
    EtlError,
    SnapshotLost,
    WorkerLost,
)
from etl.core.partition import describe
from etl.core.secrets import SecretRef
from etl.engine import select
from etl.planning.compile import JobPlan, compile_job
from etl.planning.halving import halves
from etl.run import early, taken
from etl.run.count import WholeCount
from etl.run.places import place
from etl.run.progress import Silent
from etl.run.record import Kept, each_once, of_reading, required, summed
from etl.run.result import RunResult
from etl.run.state import (
    MAX_RESTARTS,
    Fail,
    Finish,
    Halve,
    PartBroke,
    PartHalved,
    PartStaged,
    PiecesKnown,
    Planned,
    Publish,
    Restart,
    Run,
    SnapshotGone,
    Stop,
    StopAsked,
    Submit,
    Wait,
    WaitOver,
    step,
)
from etl.run.task import PartResult, PartTask, PieceTask, run_piece, stop_mark
from etl.tensors.places import place_of
from etl.tensors.sink import DatasetSession, DatasetSink
from etl.tensors.stages import check_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType, TracebackType

    from connectors.base import Finish as Piece
    from connectors.base import Finished, Published, Requires, Sink, Source, WriteSession
    from etl.core.partition import Partition, Snapshot
    from etl.engine.base import BackendName, Cluster, EngineChoice, Handle
    from etl.planning.jobs import Job, Write
    from etl.run.progress import Progress
    from etl.run.state import Effect, Event, PartKey, PieceKey, WorkKey

SMALL_STORE = 4 << 20
"""Bytes of a store below which all of it, however it widens as Arrow, is one part of usual size."""
_GOES = itertools.count(1)
"""Of this process: the passes of one run share its name, and the stop of one go must reach no later one."""
POLL_SECONDS = 0.2
"""How often progress is drawn and waits are looked at; results wake the runner at once."""
GRACE_SECONDS = 10.0
"""How long running parts may take to end after a stop, before the cluster is closed over them."""
GATHERED_BYTES = 128 << 20
"""Arrow data that the readers of one process gather for Parquet row groups at most: two groups of full size, and
smaller groups where more readers share the process."""


def run(
    jobs: Sequence[Job],
    /,
    *,
    run_id: str,
    engine: str = "auto",
    workers: int | None = None,
    progress: Progress | None = None,
    resume: str | None = None,
) -> list[RunResult]:
    """Read every job in one snapshot and publish all their datasets; nothing is published unless all parts are whole.

    Args:
        jobs: All on one connection.
        run_id: Names the run on the store and in file names.
        engine: "auto", "cpu" or a scheduler's address.
        workers: Worker processes (each reads two parts at once); None: by the cores of this machine.
        progress: Told what happens.
        resume: A run that died or failed, whose finished parts are taken up where their rows cannot have changed.

    Returns:
        One result for each dataset, in the order of jobs and their writes.

    Raises:
        Cancelled: Ctrl-C; the statements on the store were stopped and nothing is left.
        ConfigError: Nothing is left of the run that is to be taken up; a wish that cannot be.
        EtlError: What failed, on which part.
    """
    if resume is not None:
        check_left([place_of(write.target) for job in jobs for write in job.writes if write.sink is None], resume)
    state = Run(run_id, retries=max(job.retries for job in jobs))
    execution = _Execution(jobs, state, engine, workers, progress or Silent(), resume)
    try:
        return execution.carry_out()
    except KeyboardInterrupt as error:
        if execution.published and not any(w.sink for job in jobs for w in job.writes):
            return execution.published  # it came while connections were closed
        raise Cancelled("interrupted: nothing was published") from error


def open_sources(jobs: Sequence[Job], /) -> list[Source]:
    """The source values of all jobs.

    Raises:
        ConfigError: Jobs on more than one connection, or an unknown scheme.
    """
    endpoints = {job.read.endpoint.display() for job in jobs}
    if len(endpoints) != 1:
        raise ConfigError(f"one run reads one connection, not {len(endpoints)}: {', '.join(sorted(endpoints))}")
    return [
        job.read.source or registry.connector(job.read.endpoint.scheme).source(job.read.endpoint, job.read.query)
        for job in jobs
    ]


def choice_for(plans: Sequence[JobPlan], engine: str, workers: int | None, /) -> EngineChoice:
    """The engine for all parts of these plans."""
    at_once = [n for p in plans for n in (p.facts.readers, p.source.capabilities.max_parallel) if n is not None]
    steps = [p.steps for p in plans if p.steps is not None]
    return select.choose(
        engine,
        python_rows=any(p.source.capabilities.python_rows for p in plans),
        parts=sum(len(p.parts.parts) for p in plans),
        workers=workers,
        at_once=min(at_once, default=None),
        frames=bool(steps),
        input_bytes=sum(p.facts.bytes for p in plans),
        here=any(one.local for one in steps),
        part_bytes=max((one.bytes or 0 for p in plans for one in p.parts.parts), default=0),
    )


class _Execution:
    """One run from its first connection to its last file."""

    def __init__(
        self,
        jobs: Sequence[Job],
        state: Run,
        engine: str,
        workers: int | None,
        progress: Progress,
        resume: str | None,
    ) -> None:
        self._jobs = jobs
        self._sources: list[Source] = []
        self._state = state
        self._engine = engine
        self._workers = workers
        self._progress = progress
        self._resume = resume
        self._left: list[WriteSession] = []
        self._warnings: list[Mapping[str, object]] = []
        self._widened: list[Mapping[str, object]] = []
        self._started = datetime.now(UTC)  # noqa: TID251 - a run takes its start from the clock here, once
        self._clock = time.monotonic()
        self._cluster: Cluster | None = None
        self.published: list[RunResult] = []
        """What readers can see, once all of it is there."""

    def carry_out(self) -> list[RunResult]:
        """Go until published: over a new snapshot when one is lost, in the same one when a decimal was too narrow."""
        with tempfile.TemporaryDirectory(prefix="cuetl-") as private:
            self._jobs = [_for_workers(job, Path(private), self._engine) for job in self._jobs]
            self._sources = open_sources(self._jobs)
            return self._over_snapshots()

    def _over_snapshots(self) -> list[RunResult]:
        while True:
            try:
                with ExitStack() as stack:
                    return self._in_one_snapshot(stack)
            except (_NewSnapshot, SnapshotLost) as lost:
                if isinstance(lost, SnapshotLost):
                    self._begin_again(lost)
                # What was measured in the old snapshot may not be so in the new one.
                self._sources = open_sources(self._jobs)
                self._widened.clear()
                text = f"the snapshot was lost ({lost}); all parts were read again from a new one"
                self._warnings.append({"code": "new-snapshot", "text": text})

    def _begin_again(self, lost: SnapshotLost) -> None:
        """After a snapshot that was lost while it was planned or counted."""
        self._state, effects = step(self._state, SnapshotGone())
        if Restart() not in effects:
            raise lost.at(f"the snapshot was lost {MAX_RESTARTS + 1} times")

    def _in_one_snapshot(self, stack: ExitStack) -> list[RunResult]:
        self._progress.stage("opening the snapshot")
        self._cluster = None

        def attach_all(at: Snapshot) -> None:
            at_once = select.readers(self._workers)
            steps = [job.steps for job in self._jobs if job.steps is not None]
            choice = select.choose(
                self._engine,
                python_rows=True,
                parts=1 if self._is_small() else at_once,
                workers=self._workers,
                at_once=None,
                frames=bool(steps),
                here=any(one.local for one in steps),
            )
            self._cluster = self._open(stack, choice)
            for source in self._sources:
                self._cluster.everywhere(source.attach, at)

        lead, *siblings = self._sources
        at = stack.enter_context(lead.snapshot(siblings=siblings, attach_all=attach_all))
        measured = False
        while True:
            plans = self._plan(at)
            try:
                return self._read_and_publish(at, plans, stack)
            except DecimalTooNarrow:
                if measured:
                    raise
                measured = True
                self._widen(at, plans)

    def _is_small(self) -> bool:
        """Whether the store is one part, whatever is read of it: then no worker processes are worth their start."""
        usual = len(self._jobs) == 1 and self._jobs[0].read.wish == CutWish()
        size = self._sources[0].capabilities.bytes
        return usual and self._workers is None and size is not None and size < SMALL_STORE

    def _open(self, stack: ExitStack, choice: EngineChoice) -> Cluster:
        cluster = select.open_cluster(choice)
        stack.callback(cluster.close)
        return cluster

    def _plan(self, at: Snapshot) -> list[JobPlan]:
        self._progress.stage("planning")
        readers = select.readers(self._workers)
        pairs = zip(self._jobs, self._sources, strict=True)
        return [compile_job(job, source, at, readers=readers, sample=True) for job, source in pairs]

    def _widen(self, at: Snapshot, plans: Sequence[JobPlan]) -> None:
        """Measure the open numerics of all sources in this snapshot, and note what they become."""
        self._progress.stage("measuring decimals")
        self._sources = [source.widen(at) for source in self._sources]
        for plan, source in zip(plans, self._sources, strict=True):
            before = {f.name: f.type for f in plan.schema}
            for one in source.schema(at):
                if one.name in before and before[one.name] != one.type:
                    narrow, wide = before[one.name], one.type
                    text = f"a value of {one.name} did not fit {narrow}; all parts were read again as {wide}"
                    self._widened.append({"code": "decimal-widened", "column": one.name, "text": text})
        self._state = Run(self._state.id, restarts=self._state.restarts, retries=self._state.retries)

    def _read_and_publish(self, at: Snapshot, plans: list[JobPlan], handles: ExitStack) -> list[RunResult]:
        with ExitStack() as stack:
            cluster = self._cluster
            choice = choice_for(plans, self._engine, self._workers) if cluster is None else cluster.choice
            sessions = self._begin(stack, plans, choice)
            tasks = _Tasks(self._state.id, at, plans, sessions, next(_GOES), _parts(plans), _records(plans, sessions))
            done = self._take_up(tasks)
            if cluster is None:
                if choice.kind == "threads":
                    stack.callback(_end_early, plans[0].source, at, self._state.id)
                    for key in [key for key in tasks.parts if key not in done][: choice.slots]:
                        early.begin(tasks.task(key, 1, choice.backend))
                cluster = self._cluster = self._open(handles, choice)
            bench = _Bench(tasks, cluster, self._progress, self._state, results=done)
            counting = WholeCount(plans, at)
            counting.begin()
            try:
                bench.read_all()
                self._progress.stage("publishing")
                whole = counting.finish()
                return self._publish(
                    [r for job in range(len(plans)) for r in self._prepare(bench, job, whole.get(job))]
                )
            finally:
                self._state = bench.state
                counting.over.set()
                bench.let_go(counting=counting.is_alive())

    def _begin(self, stack: ExitStack, plans: Sequence[JobPlan], choice: EngineChoice) -> list[list[WriteSession]]:
        """Open a session for every dataset, after all of them were found fit to be written."""
        gathered = GATHERED_BYTES // choice.slots if choice.kind == "threads" else GATHERED_BYTES
        sinks = [[_sink(write, gathered) for write in plan.job.writes] for plan in plans]
        for plan, row in zip(plans, sinks, strict=True):
            for sink, write in zip(row, plan.job.writes, strict=True):
                sink.check(plan.written, write.mode)
        sessions: list[list[WriteSession]] = []
        for plan, row in zip(plans, sinks, strict=True):
            opened: list[WriteSession] = []
            sessions.append(opened)
            for sink, write in zip(row, plan.job.writes, strict=True):
                session: WriteSession
                with _postponed():  # a folder that was made has somebody who removes it
                    if self._resume is not None and isinstance(sink, DatasetSink):
                        session = sink.begin(self._state.id, plan.written, write.mode, taking=self._resume)
                    else:
                        session = sink.begin(self._state.id, plan.written, write.mode)
                    stack.callback(self._abort, session)
                opened.append(session)
            stack.push(partial(self._leave, plan, opened))
        return sessions

    def _take_up(self, tasks: _Tasks) -> dict[PartKey, PartResult]:
        """The parts of the run that is resumed, where there is one; every job whose parts can be kept is described."""
        done: dict[PartKey, PartResult] = {}
        for job, plan in enumerate(tasks.plans):
            folders = [s.folder for s in tasks.sessions[job] if isinstance(s, DatasetSession)]
            if self._resume is not None and len(folders) == len(tasks.sessions[job]):
                keys = tasks.keys_of(job)
                found = taken.found(folders, plan, tasks.at, [tasks.parts[key] for key in keys])
                by_key = {tasks.parts[key].key(): key for key in keys}
                done.update({by_key[name]: replace(one, job=job) for name, one in found.results.items()})
                self._warnings += taken.told(found, self._resume, plan, len(keys))
            if tasks.records[job]:
                taken.describe_job(folders[0], plan, tasks.at)
                for key in tasks.keys_of(job):
                    if key in done:
                        taken.keep(folders, done[key])
        self._resume = None
        return done

    def _abort(self, session: WriteSession) -> None:
        if session not in self._left:
            session.abort()

    def _leave(
        self,
        plan: JobPlan,
        sessions: Sequence[WriteSession],
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Leave finished parts of a source that no longer changes to a run that resumes this one, which failed."""
        kept = [s for s in sessions if isinstance(s, DatasetSession)]
        if not isinstance(error, EtlError) or isinstance(error, Cancelled | SnapshotLost | DecimalTooNarrow):
            return
        if plan.job.read.frozen and len(kept) == len(sessions) and taken.any_kept(kept[0].folder):
            for session in kept:
                session.leave()
                self._left.append(session)
            told = f"Finished parts are kept: --resume {self._state.id} goes on from them."
            error.hint = f"{error.hint} {told}".strip()

    def _publish(self, ready: Sequence[_Ready]) -> list[RunResult]:
        """Publish what was prepared, one switch after the other, whoever asks for a stop meanwhile."""
        out: list[RunResult] = []
        visible = any(write.sink is None for job in self._jobs for write in job.writes)
        with _unbroken() if visible else contextlib.nullcontext():
            for one in ready:
                try:
                    published = one.switch()
                except EtlError as error:
                    if out:
                        before = ", ".join(f"{r.target} (version {r.version})" for r in out)
                        error.message += f"; datasets of the same read that were published before it: {before}"
                    raise
                out.append(
                    RunResult(
                        run_id=self._state.id,
                        status="succeeded",
                        target=published.target,
                        format=published.format,
                        version=published.version,
                        rows=published.rows,
                        bytes=published.bytes,
                        partitions=one.parts,
                        engine=one.requires.engine,
                        seconds=round(time.monotonic() - self._clock, 3),
                        columns=published.columns,
                        warnings=each_once((*one.requires.warnings, *published.warnings)),
                        rows_read=sum(s.rows_read for s in one.requires.sources),
                        rows_dropped=summed(s.rows_dropped for s in one.requires.sources),
                        rows_added=sum(s.rows_added for s in one.requires.sources),
                        checks=published.checks,
                    )
                )
            self.published = out
        return out

    def _prepare(self, bench: _Bench, job: int, whole: int | None) -> list[_Ready]:
        plan = bench.tasks.plans[job]
        results = bench.results_of(job)
        read = sum(r.rows_read for r in results)
        if whole is not None and whole != read:
            raise CountMismatch(
                f"{plan.source.title}, connection {plan.source.endpoint.name}: the whole source has {whole} rows in the"
                f" snapshot, its parts have {read}: nothing was published",
                hint="This is a fault of the plan; run with --partitions 1 and report it.",
            )
        kept = Kept(
            run_id=bench.state.id,
            at=bench.tasks.at,
            plan=plan,
            results=results,
            attempts={
                i: bench.state.parts[key].attempts or bench.results[key].attempt
                for i, key in enumerate(bench.tasks.keys_of(job))
            },
            whole=whole,
            started=self._started,
            finished=datetime.now(UTC),  # noqa: TID251 - the end of the run, for its record
            engine=bench.cluster.choice,
            warnings=each_once((*self._warnings, *self._widened, *bench.warnings(), *of_reading(plan, results))),
        )
        out: list[_Ready] = []
        if bench.tasks.records[job]:
            taken.forget(Path(bench.tasks.records[job]))
        for index, session in enumerate(bench.tasks.sessions[job]):
            requires = required(kept, index)
            staged = [r.staged[index] for r in results]
            finished = bench.finished_of(job, index)
            switch = session.prepare(staged, requires=requires, finished=finished)
            out.append(_Ready(switch, requires, len(results)))
        return out


def _sink(write: Write, gathered: int) -> Sink:
    """The sink of a dataset, whose row groups take `gathered` bytes of Arrow data at most."""
    if write.sink is not None:
        return write.sink
    options = write.options
    return DatasetSink(
        write.target,
        write.format,
        replace(options, row_group_bytes=min(options.row_group_bytes, gathered)),
        write.fit,
        write.checks,
        write.contract,
    )


def _for_workers(job: Job, private: Path, engine: str) -> Job:
    """The job with a password that workers in other processes can resolve.

    A password typed in a URL is known to this process only: our own worker processes read it from a file in a folder
    that only this user can open and that goes with the run; workers of somebody else's scheduler cannot.
    """
    endpoint = job.read.endpoint
    if endpoint.password is None or not endpoint.password.local:
        return job
    if engine.startswith(select.REMOTE):
        raise ConfigError(
            f"the workers of {engine} cannot know a password typed in a URL",
            hint='Name the connection in cuetl.toml with password = "${env:NAME}" or "${file:PATH}".',
        )
    path = private / "password"
    path.touch(mode=0o600)
    path.write_text(endpoint.password.resolve().reveal(), encoding="utf-8")
    shared = replace(endpoint, password=SecretRef(f"${{file:{path}}}"))
    return replace(job, read=replace(job.read, endpoint=shared))


@dataclass(frozen=True, slots=True)
class _Ready:
    """A dataset of which all but the switch is done."""

    switch: Callable[[], Published]
    requires: Requires
    parts: int


@contextlib.contextmanager
def _unbroken() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is done: all datasets of a read are published, or none is.

    A stop that was asked for meanwhile came too late and is forgotten. Elsewhere than in the main thread, which alone
    gets signals, there is nothing to hold.
    """
    with _holding():
        yield


@contextlib.contextmanager
def _postponed() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is done, and act then."""
    with _holding() as came:
        yield
    for number in came:
        signal.raise_signal(number)


@contextlib.contextmanager
def _holding() -> Iterator[list[int]]:
    """Keep the signals that come in a list, where this is the main thread, which alone gets them."""
    came: list[int] = []

    def keep(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, one in before.items():
            signal.signal(number, one)


class _NewSnapshot(Exception):  # noqa: N818 - not an error: the run begins again on a new snapshot, by rule
    """The snapshot was lost."""


@dataclass(frozen=True, slots=True)
class _Tasks:
    """What makes a task of a part: one go at a run, on one snapshot, with its open sessions."""

    run_id: str
    at: Snapshot
    plans: list[JobPlan]
    sessions: list[list[WriteSession]]
    go: int
    parts: dict[PartKey, Partition]
    records: list[str]
    """Of each job: the stage in which finished parts are written down; "": they are not."""

    def keys(self) -> tuple[PartKey, ...]:
        """All parts, in the order of their rows."""
        return tuple(self.parts)

    def keys_of(self, job: int) -> list[PartKey]:
        """The parts of a job, in the order of their rows."""
        return [key for key in self.parts if key[0] == job]

    def halve(self, key: PartKey) -> tuple[PartKey, ...]:
        """Put two parts in the place of one, under numbers that no part had; () where it cannot be cut."""
        job, _ = key
        plan = self.plans[job]
        cut = halves(self.parts[key], plan.facts, plan.schema)
        if cut is None:
            return ()
        free = 1 + max(index for _, index in self.keys_of(job))
        made = {(job, free + i): replace(one, index=free + i) for i, one in enumerate(cut)}
        before = dict(self.parts)
        self.parts.clear()
        for one, part in before.items():
            self.parts.update(made if one == key else {one: part})
        return tuple(made)

    def task(self, key: PartKey, attempt: int, backend: BackendName) -> PartTask:
        """An attempt at a part, whose frames, if any, are made by `backend`."""
        job, _ = key
        plan = self.plans[job]
        return PartTask(
            run_id=self.run_id,
            job=job,
            source=plan.source,
            at=self.at,
            part=self.parts[key],
            attempt=attempt,
            schema=plan.arriving,
            sessions=tuple(self.sessions[job]),
            go=self.go,
            steps=None if plan.steps is None else replace(plan.steps, backend=backend),
            records=self.records[job],
        )


@dataclass(slots=True)
class _Bench:
    """The parts of one go: what is submitted, waited for, staged."""

    tasks: _Tasks
    cluster: Cluster
    progress: Progress
    state: Run
    handles: dict[str, tuple[WorkKey, int, Handle[PartResult | Finished]]] = field(default_factory=dict)
    waits: dict[WorkKey, float] = field(default_factory=dict)
    results: dict[PartKey, PartResult] = field(default_factory=dict)
    pieces: dict[PieceKey, Piece] = field(default_factory=dict)
    finished: dict[PieceKey, Finished] = field(default_factory=dict)
    errors: dict[WorkKey, BaseException] = field(default_factory=dict)
    halved: list[str] = field(default_factory=list)
    fallbacks: int = 0

    def read_all(self) -> None:
        """Feed parts until all are staged.

        Raises:
            EtlError: A part failed for good.
        """
        keys = self.tasks.keys()
        rows, count = sum(p.facts.rows for p in self.tasks.plans), sum(p.facts.bytes for p in self.tasks.plans)
        self.progress.planned(len(keys), rows, count)
        self.progress.stage("reading")
        choice = self.cluster.choice
        slots = choice.slots if choice.kind == "remote" else 2 * choice.slots
        steps = [p.steps for p in self.tasks.plans if p.steps is not None]
        fallback = choice.backend == "cudf" and any(one.cpu_fallback for one in steps)
        try:
            finishes = any(w.options.order != "source" for p in self.tasks.plans for w in p.job.writes)
            done = frozenset(self.results)
            self.progress.advanced(parts=len(done), rows=sum(r.rows_read for r in self.results.values()))
            self._happened(Planned(keys, slots, finishes, done, cpu_fallback=fallback))
            self._until_staged()
        except KeyboardInterrupt:
            self._happened(StopAsked())

    def _until_staged(self) -> None:
        while self.state.phase in ("running", "finishing"):
            for ended in self.cluster.wait(seconds=POLL_SECONDS):
                if ended in self.handles:
                    self._happened(self._collect(*self.handles.pop(ended)))
            for topic, rows_more, bytes_more in self.cluster.heard():
                if topic == self.state.id:
                    self.progress.advanced(rows=rows_more, count=bytes_more)
            now = time.monotonic()
            for key in [k for k, due in self.waits.items() if due <= now]:
                del self.waits[key]
                self._happened(WaitOver(key))

    def _collect(self, key: WorkKey, attempt: int, handle: Handle[PartResult | Finished]) -> Event:
        try:
            result = handle.result()
        except EtlError as error:
            self.errors[key] = error
            after = error.context.get("after")
            return PartBroke(
                key,
                attempt,
                error.retry,
                snapshot_lost=isinstance(error, SnapshotLost),
                after=float(after) if after is not None else None,
                died=isinstance(error, WorkerLost) and self._makes_frame(key),
            )
        except Exception as error:  # noqa: BLE001 - whatever a driver or we got wrong: one more try, then it is told
            self.errors[key] = error
            return PartBroke(key, attempt, "transient" if attempt == 1 else "permanent")
        if isinstance(result, PartResult):
            self.results[result.job, result.part.index] = result
        elif len(key) == 3:
            self.finished[key] = result
        self.progress.advanced(parts=1)
        return PartStaged(key, attempt)

    def _happened(self, event: Event) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Submit(key, attempt, fallback):
                self._submit(key, attempt, fallback=fallback)
            case Halve(key):
                self._halve(key)
            case Wait(key, at_most, at_least):
                jitter = random.uniform(at_least, at_most)  # noqa: S311 - jitter, not a secret
                self.waits[key] = time.monotonic() + jitter
            case Fail(key, why):
                raise self._told(key, why) from self.errors[key]
            case Restart():
                causes = [str(e) for e in self.errors.values() if isinstance(e, SnapshotLost)]
                raise _NewSnapshot(causes[-1] if causes else "")
            case Stop():
                raise Cancelled("the run was stopped: nothing was published")
            case Finish():
                self._happened(self._find_pieces())
            case Publish():
                pass

    def _halve(self, key: PartKey) -> None:
        where = self._where(key)
        made = self.tasks.halve(key)
        if made:
            lost = isinstance(self.errors[key], WorkerLost)
            self.halved.append(f"{where} {'lost its worker' if lost else 'did not fit into memory'}")
            # The error of a half that fails in its turn is its own.
            self.errors.update(dict.fromkeys(made, self.errors.pop(key)))
        self._happened(PartHalved(key, made))

    def _makes_frame(self, key: WorkKey) -> bool:
        """Whether the size of a part is that of a frame: batches that pass through fit, however many they are."""
        steps = self.tasks.plans[key[0]].steps
        return len(key) == 2 and steps is not None and steps.function is not None

    def _submit(self, key: WorkKey, attempt: int, *, fallback: bool) -> None:
        handle: Handle[PartResult | Finished]
        if len(key) == 3:
            piece = PieceTask(self.tasks.run_id, self.tasks.go, key, attempt, self.pieces[key])
            name, handle = piece.key(), self.cluster.submit(run_piece, piece, key=piece.key())
        else:
            part = self.tasks.task(key, attempt, "pandas" if fallback else self.cluster.choice.backend)
            self.fallbacks += fallback
            name, handle = part.key(), self.cluster.submit(taken.run_kept, part, key=part.key())
        self.handles[name] = (key, attempt, handle)

    def _find_pieces(self) -> Event:
        """What the sessions leave to do after all parts, for workers."""
        self.progress.stage("ordering")
        for job, sessions in enumerate(self.tasks.sessions):
            results = self.results_of(job)
            for index, session in enumerate(sessions):
                for number, piece in enumerate(session.exchange([r.staged[index] for r in results])):
                    self.pieces[job, index, number] = piece
        read = sum(r.received for r in self.results.values())
        self.progress.planned(len(self.pieces), sum(p.rows for p in self.pieces.values()), read)
        return PiecesKnown(tuple(self.pieces))

    def results_of(self, job: int) -> list[PartResult]:
        """What came of the parts of a job, in the order of their rows, numbered in it."""
        return [_numbered(self.results[key], i) for i, key in enumerate(self.tasks.keys_of(job))]

    def warnings(self) -> list[Mapping[str, object]]:
        """What memory could not hold."""
        told = [f"{what} and was read again as two halves" for what in self.halved]
        found: list[Mapping[str, object]] = [{"code": "halved", "text": text} for text in told]
        if self.fallbacks:
            text = f"{self.fallbacks} parts were too large for the device and were made on the CPU"
            found.append({"code": "cpu-fallback", "count": self.fallbacks, "text": text})
        return found

    def finished_of(self, job: int, dataset: int) -> list[Finished]:
        """What came of the pieces of a dataset, in order."""
        return [self.finished[key] for key in self.pieces if key[:2] == (job, dataset)]

    def _told(self, key: WorkKey, why: str) -> EtlError:
        """The error of a part, with the place before it."""
        error = self.errors[key]
        plan = self.tasks.plans[key[0]]
        where = self.pieces[key].title if len(key) == 3 else self._where(key, str(error))
        attempts = self.state.parts[key].attempts
        if attempts > 1:
            where += f", attempt {attempts}"
        if why:
            where += f", {why}"
        if isinstance(error, EtlError):
            if len(key) == 3:
                return error.at(where, job=key[0], connection=plan.source.endpoint.name)
            return error.at(where, job=key[0], partition=key[1], connection=plan.source.endpoint.name)
        return EngineError(f"{where}: {type(error).__name__}: {error}", hint="--debug shows where; please report it.")

    def _where(self, key: PartKey, message: str = "") -> str:
        """Which part of what, in words."""
        source = place(self.tasks.plans[key[0]].source, message)
        keys = self.tasks.keys_of(key[0])
        if len(keys) == 1:
            return source
        return f"part {keys.index(key) + 1} of {len(keys)} ({describe(self.tasks.parts[key].slice)}) of {source}"

    def let_go(self, *, counting: bool) -> None:
        """After a failure or a stop: end what still runs, on the store and here. Nothing to do after success."""
        if not self.handles and not counting:
            return
        with contextlib.suppress(OSError, RuntimeError):  # a scheduler that is lost is the error to tell, or no news
            self.cluster.everywhere(_mark, f"{self.state.id}:{self.tasks.go}")
            self.cluster.cancel()
        stop = threading.Thread(
            target=_cancel, args=(self.tasks.plans[0].source, self.tasks.at), name="cuetl-cancel", daemon=True
        )
        stop.start()
        deadline = time.monotonic() + GRACE_SECONDS
        stop.join(GRACE_SECONDS)
        while self.handles and time.monotonic() < deadline:
            for ended in self.cluster.wait(seconds=POLL_SECONDS):
                self.handles.pop(ended, None)


def _parts(plans: Sequence[JobPlan]) -> dict[PartKey, Partition]:
    return {(j, part.index): part for j, plan in enumerate(plans) for part in plan.parts.parts}


def _records(plans: Sequence[JobPlan], sessions: Sequence[Sequence[WriteSession]]) -> list[str]:
    """Where the finished parts of each job are written down, if a later run could keep them."""
    found: list[str] = []
    for plan, row in zip(plans, sessions, strict=True):
        folders = [str(s.folder) for s in row if isinstance(s, DatasetSession)]
        found.append(folders[0] if len(folders) == len(row) and folders and taken.keeps(plan) else "")
    return found


def _numbered(result: PartResult, index: int) -> PartResult:
    """The result with the number that its part has in the order of rows, where parts were halved."""
    if result.part.index == index:
        return result
    staged = tuple(replace(one, part=replace(one.part, index=index)) for one in result.staged)
    return replace(result, part=replace(result.part, index=index), staged=staged)


def _mark(go: str) -> None:
    stop_mark(go).set()


def _end_early(source: Source, at: Snapshot, run_id: str) -> None:
    """Stop the streams that were begun for tasks which never came; nothing to do after success."""
    if early.begun(run_id):
        _cancel(source, at)
        early.let_go(run_id)


def _cancel(source: Source, at: Snapshot) -> None:
    """Ask the store to stop. The run's own error is the one to tell, so a store that is gone is no news."""
    try:
        source.cancel(keeping=at)
    except EtlError:
        return
