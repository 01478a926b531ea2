"""Pipelines of whole data, in three passes: sources to spool files, a function over collections, result to a dataset.

The sources of one connection are read in one snapshot; several connections are read one after the other, and the
manifest lists the moment of each.
"""

from __future__ import annotations

import inspect
import shutil
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl.core.errors import Cancelled, DeviceOutOfMemory, EtlError, UserCodeError
from etl.core.schema import Field, Schema
from etl.core.user_code import user_error
from etl.engine import select
from etl.engine.backends import backend
from etl.engine.spool import groups
from etl.planning.calling import defined_at, printing_to_stderr
from etl.planning.jobs import Job, Reading, Write
from etl.run import explain, fitting, passes, runner
from etl.run.places import attach_nobody
from etl.run.progress import Silent
from etl.run.spool import Spooled, SpoolSink
from etl.run.state import FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from etl.engine.base import EngineChoice
    from etl.engine.spool import SpoolFile
    from etl.engine.whole import Given
    from etl.planning.binding import Bound
    from etl.planning.function import FunctionRef
    from etl.run.progress import Progress
    from etl.run.result import RunResult


def run(bound: Bound, /, *, run_id: str, engine: str, workers: int | None, progress: Progress | None) -> RunResult:
    """Carry the three passes out.

    Raises:
        Cancelled: Ctrl-C; nothing is left.
        UserCodeError: The function failed; its own line is named.
        EtlError: What failed, and in which source or part.
    """
    try:
        return _in_passes(bound, run_id, engine, workers, progress or Silent())
    except KeyboardInterrupt as error:
        raise Cancelled("interrupted: nothing was published") from error


def _in_passes(bound: Bound, run_id: str, engine: str, workers: int | None, progress: Progress) -> RunResult:
    clock = time.monotonic()
    progress.stage("planning")
    planned = _planned(bound)
    fitting.check(bound, planned.returns)
    with passes.waiting(bound.write.target, run_id) as folder:
        spooled = _read(bound, folder, run_id=run_id, engine=engine, workers=workers, progress=progress)
        came = {name: one.schema or planned.schemas[name] for name, one in spooled.items()}
        if any(came[name].to_arrow() != planned.schemas[name].to_arrow() for name in came):
            planned = _through(bound, came)  # decimals were wider than their stores had said
            fitting.check(bound, planned.returns)
        files = _made(bound, planned, spooled, folder, engine=engine, workers=workers, progress=progress)
        job = passes.last(bound, planned.returns, spooled, files)
        result = fitting.published(bound, job, run_id=run_id, engine=engine, workers=workers, progress=progress)
    parts = sum(len(passes.parts_of(one)) for one in spooled.values())
    return replace(result, partitions=parts, seconds=round(time.monotonic() - clock, 3))


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is known before a row is read: the columns of each source, and of the result."""

    schemas: Mapping[str, Schema]
    returns: Schema


def _planned(bound: Bound) -> _Planned:
    schemas: dict[str, Schema] = {}
    for connection in _connections(bound.readings):
        sources = runner.open_sources([Job(one, ()) for one in connection])
        lead, *siblings = sources
        with lead.snapshot(siblings=siblings, attach_all=attach_nobody) as at:
            schemas.update({r.name: s.schema(at) for r, s in zip(connection, sources, strict=True)})
    return _through(bound, {name: schemas[name] for name in bound.readings})


def _through(bound: Bound, schemas: Mapping[str, Schema]) -> _Planned:
    """The columns that the function gives for these."""
    ref = _function(bound)
    from etl.engine.whole import meta_through  # noqa: PLC0415 # Dask is imported for pipelines of whole data only

    try:
        meta = meta_through(partial(_called, ref), schemas)
    except EtlError as error:
        if "line" in error.context:
            error.hint = " ".join(filter(None, (error.hint, "It was called with no rows, to learn its columns.")))
        raise
    if not hasattr(meta, "columns"):
        raise _no_frame(ref, meta)
    try:
        returns = backend("pandas").schema_of(meta, _before(meta, schemas))
    except EtlError as error:
        raise error.at(defined_at(ref)) from error
    return _Planned(schemas, returns)


def _before(meta: Any, schemas: Mapping[str, Schema]) -> Schema:
    """What each column was before the function: of several sources' that of the first whose frame has that dtype."""
    fields: dict[str, Field] = {}
    for field in (f for schema in schemas.values() for f in schema):
        known = fields.setdefault(field.name, field)
        if (known.type, known.vocabulary) == (field.type, field.vocabulary) or field.name not in meta.columns:
            continue
        one, other = (Schema((f,)) for f in (known, field))
        kind, first, second = (
            frame.dtypes[field.name]
            for frame in (meta, *(backend("pandas").from_arrow(s.to_arrow().empty_table(), s) for s in (one, other)))
        )
        if kind == second and kind != first:
            fields[field.name] = field
    return Schema(tuple(fields.values()))


def _connections(readings: Mapping[str, Reading]) -> list[list[Reading]]:
    """Sources that are read in one snapshot, connection by connection."""
    found: dict[object, list[Reading]] = {}
    for name, reading in readings.items():
        key = (reading.endpoint.scheme, reading.endpoint.display())
        found.setdefault(key, []).append(replace(reading, name=name))
    return list(found.values())


def _function(bound: Bound) -> FunctionRef:
    ref = bound.pipeline.function
    if ref is None:
        raise AssertionError(bound.pipeline.name)
    return ref


def _read(
    bound: Bound, folder: Path, *, run_id: str, engine: str, workers: int | None, progress: Progress
) -> dict[str, Spooled]:
    """The first pass: every source to its spool."""
    spooled: dict[str, Spooled] = {}
    for connection in _connections(bound.readings):
        jobs = []
        for reading in connection:
            write = _spooling(reading, folder)
            if isinstance(write.sink, SpoolSink):
                spooled[reading.name] = write.sink.spooled
            jobs.append(Job(reading, (write,), retries=bound.pipeline.retries))
        runner.run(jobs, run_id=run_id, engine=_reader(engine), workers=workers, progress=progress)
    return {name: spooled[name] for name in bound.readings}


def _spooling(reading: Reading, folder: Path) -> Write:
    """All columns of a source, to a folder of its own."""
    return passes.to(SpoolSink(folder / reading.name), reading.name)


def _reader(engine: str) -> str:
    """Rows pass straight through in the first pass, which takes no GPU."""
    return "cpu" if engine == "gpu" else engine


def _made(
    bound: Bound,
    planned: _Planned,
    spooled: Mapping[str, Spooled],
    folder: Path,
    *,
    engine: str,
    workers: int | None,
    progress: Progress,
) -> list[SpoolFile]:
    """The second pass: the function over all rows."""
    from etl.engine.whole import WholeTask, carry_out, opened  # noqa: PLC0415 # as in _planned

    ref = _function(bound)
    size = sum(f.bytes for one in spooled.values() for f in one.files)
    choice = _choice(bound, size, engine, workers)
    with opened(choice, folder / "workers") as cluster:
        choice = cluster.choice
        task = WholeTask(
            call=partial(_called, ref),
            load=ref.load,
            function=ref.name,
            file=ref.file,
            given=_given(planned, spooled, choice, halved=False),
            returns=planned.returns,
            backend=choice.backend,
            folder="",
        )
        attempt, halved = 0, False
        while True:
            attempt += 1
            result = folder / f"result-{attempt}"
            result.mkdir()
            progress.stage(f"calling {ref.name}")
            try:
                return carry_out(cluster, replace(task, folder=str(result)), wrote=_told_to(progress, ref.name))
            except DeviceOutOfMemory as error:
                # Spilling does not save one task that is too large: the same graph with half as much in each, once.
                if halved:
                    raise error.at("also with partitions of half the size") from error.__cause__
                halved, attempt = True, attempt - 1
                task = replace(task, given=_given(planned, spooled, choice, halved=True))
                shutil.rmtree(result, ignore_errors=True)
                progress.stage(f"memory ran out: calling {ref.name} with partitions of half the size")
            except EtlError as error:
                if error.retry != "transient" or attempt > bound.pipeline.retries:
                    raise (error.at(f"attempt {attempt}") if attempt > 1 else error) from error.__cause__
                shutil.rmtree(result, ignore_errors=True)
                progress.stage("waiting for another try")
                wait = float(error.context.get("after", min(FIRST_WAIT_SECONDS * 2 ** (attempt - 1), MAX_WAIT_SECONDS)))
                threading.Event().wait(wait)


def _given(
    planned: _Planned, spooled: Mapping[str, Spooled], choice: EngineChoice, *, halved: bool
) -> tuple[Given, ...]:
    """The sources as partitions of a collection."""
    from etl.engine.whole import Given  # noqa: PLC0415 # as in _planned

    return tuple(
        Given(
            name,
            one.schema or planned.schemas[name],
            tuple(groups(one.files, choice.backend, choice.slots, halved=halved)),
        )
        for name, one in spooled.items()
    )


def _told_to(progress: Progress, name: str) -> Callable[[int, int, int], None]:
    known: list[int] = []

    def wrote(of: int, rows: int, count: int) -> None:
        if not known:
            known.append(of)
            progress.planned(of, 0, 0)
            progress.stage(f"computing {name}")
        progress.advanced(parts=1, rows=rows, count=count)

    return wrote


def _choice(bound: Bound, size: int, engine: str, workers: int | None) -> EngineChoice:
    """Frames on all cores, since a join has work for all: in threads, or in processes where there is much."""
    local = bound.steps is not None and bound.steps.local
    return select.choose(
        engine,
        python_rows=False,
        parts=select.MAX_READERS,
        workers=workers,
        at_once=None,
        frames=True,
        input_bytes=size,
        here=local,
        exchange=True,
    )


def _called(ref: FunctionRef, given: Mapping[str, Any]) -> Any:
    """What the function gives for collections by name; what it prints goes to stderr.

    Raises:
        UserCodeError: It failed.
        EtlError: As the function raised it.
    """
    function = ref.load()
    first = [
        given[one.name]
        for one in inspect.signature(function).parameters.values()
        if one.kind is inspect.Parameter.POSITIONAL_ONLY and one.name in given
    ]
    rest = dict(list(given.items())[len(first) :]) if first else dict(given)
    try:
        with printing_to_stderr():
            return function(*first, **rest)
    except (Exception, SystemExit) as error:
        columns = [f"{name}.{column}" for name, one in given.items() for column in one.columns]
        raise user_error(error, function=ref.name, file=ref.file, columns=columns) from error


def _no_frame(ref: FunctionRef, made: object) -> UserCodeError:
    name = "None" if made is None else f"a {type(made).__name__}"
    hint = (
        "Did you forget `return`?" if made is None else "Return the collection, or a frame; of a series .reset_index()."
    )
    return UserCodeError(f"{defined_at(ref)}: it returned {name}, not a collection of frames", hint=hint)


def plan(bound: Bound, /, *, engine: str, workers: int | None) -> dict[str, object]:
    """What `--plan` shows: the plan of every source, what the function gives, and where it goes.

    The keys are those of any plan; `sources` has the plan of each source, and `partitions` those of all.

    Raises:
        EtlError: What a run would refuse before it reads.
    """
    planned = _planned(bound)
    write = bound.write
    returns = fitting.check(bound, planned.returns)
    by_name: dict[str, dict[str, Any]] = {}
    for connection in _connections(bound.readings):
        jobs = [Job(one, (_spooling(one, Path()),)) for one in connection]
        found = explain.plan(jobs, engine=_reader(engine), workers=workers)
        by_name.update(zip((one.name for one in connection), found, strict=True))
    plans: list[dict[str, Any]] = [by_name[name] for name in bound.readings]
    size = sum(one["bytes"] for one in plans)
    ref = _function(bound)
    kinds = list(dict.fromkeys(one["snapshot"] for one in plans))
    moments = len(_connections(bound.readings))
    return {
        "source": ", ".join(f"{name} ({one['source']})" for name, one in by_name.items()),
        "connection": ", ".join(dict.fromkeys(one["connection"] for one in plans)),
        "snapshot": ", ".join(kinds) + (f", {moments} moments" if moments > 1 else ""),
        "server": ", ".join(dict.fromkeys(one["server"] for one in plans if one["server"])),
        "rows": sum(one["rows"] for one in plans),
        "bytes": size,
        "partitions": [
            {**part, "index": index, "source": name, "slice": f"{name}: {part['slice']}"}
            for index, (name, part) in enumerate((n, p) for n in bound.readings for p in by_name[n]["partitions"])
        ],
        "why": "; ".join(f"{name}: {by_name[name]['why'].rstrip('.')}" for name in bound.readings),
        "reason": "",
        "remedy": "",
        "engine": explain.shown(_choice(bound, size, engine, workers)),
        "schema": explain.columns(returns),
        "prepare": fitting.shown(bound),
        "function": {"name": ref.name, "file": ref.file, "sha256": ref.sha256},
        "given": [{**c, "source": name} for name, s in planned.schemas.items() for c in explain.columns(s)],
        "targets": [explain.target(write, size)],
        "lossy": [f"{name}: {text}" for name in bound.readings for text in by_name[name]["lossy"]],
        "notes": [
            *(f"{name}: {text}" for name in bound.readings for text in by_name[name]["notes"]),
            f"all rows are kept beside the target until it is published: about {size >> 20} MiB, and the result",
            *([passes.MOMENTS.format(moments)] if moments > 1 else []),
        ],
        "sources": by_name,
    }
