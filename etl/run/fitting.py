"""Pipelines that prepare rows: figures are fitted on the train rows first, and saved with the dataset.

Rows are read from the store once. Where steps need figures, rows wait in spool files: while they get there the first
scan observes them; steps that need what others fitted take a scan of the files each; the last pass prepares and
publishes. An append takes the figures of the version that it adds to, and fits nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from etl.core.errors import Cancelled, ConfigError
from etl.planning.fits import TRAIN, check_model, fit_for, train_split
from etl.planning.jobs import Job
from etl.planning.steps import Steps
from etl.planning.trial import check_expected
from etl.run import passes, runner
from etl.run.observing import Observed, ObserveSink
from etl.run.progress import Silent
from etl.run.spool import SpoolSink, SpoolSource
from etl.tensors.fits import SavedFit
from etl.tensors.places import place_of
from etl.tensors.sink import DatasetSink
from etl.tensors.versions import current
from etl.transforms.base import Fitted, needs_fit
from etl.transforms.fit import planned, scans_of
from etl.transforms.preprocessor import figures_of, loaded, saved_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Schema
    from etl.planning.binding import Bound
    from etl.planning.jobs import Lineage
    from etl.run.progress import Progress
    from etl.run.result import RunResult
    from etl.transforms.base import State
    from etl.transforms.fit import Planned


_KEPT = ("transforms", "category", "quant")
"""Fields of the manifest's columns that follow from the fit."""


def needs_passes(bound: Bound, /) -> bool:
    """Whether rows must wait until steps are fitted: not for an append, whose figures are there."""
    return bound.write.mode != "append" and any(needs_fit(step) for step in bound.pipeline.prepare)


def check(bound: Bound, made: Schema, /) -> Schema:
    """Refuse before anything is read what would fail at the end; the columns of the dataset's rows.

    Args:
        bound: The pipeline.
        made: What its function gives, or its source.

    Raises:
        ConfigError: A step does not take its columns, or the sink not what comes of them.
    """
    prepare = bound.pipeline.prepare
    plan = planned(prepare, made)
    returns = plan.returns
    check_split(bound, made)
    write, expects = bound.write, None
    if write.mode == "append" and any(needs_fit(step) for step in prepare):
        fit, steps = _taken(bound)
        write, expects = replace(write, fit=fit), steps.expects
    if expects is not None:
        check_expected(expects, made)
    dataset = DatasetSink(write.target, write.format, write.options, write.fit, write.checks, write.contract)
    dataset.check(returns, write.mode)
    check_model(dataset, plan)
    return returns


def check_split(bound: Bound, made: Schema, /) -> None:
    """Hold that the rows to fit on can be told: those of the split `train`.

    Raises:
        ConfigError: There is none, or a step changes what rows are split by.
    """
    if any(needs_fit(step) for step in bound.pipeline.prepare):
        train_split(bound.write.options, made, bound.pipeline.prepare)


def shown(bound: Bound, /) -> list[dict[str, object]]:
    """The steps as a plan shows them: what each does, and in which scan its figures are found (None: it needs none)."""
    steps, appends = bound.pipeline.prepare, bound.write.mode == "append"
    return [
        {"step": repr(step), "scan": scan + 1 if needs_fit(step) and not appends else None}
        for step, scan in zip(steps, scans_of(steps), strict=True)
    ]


def run(bound: Bound, /, *, run_id: str, engine: str, workers: int | None, progress: Progress | None) -> RunResult:
    """A pipeline of one source, without a function or with one of each part, whose steps are fitted.

    Raises:
        Cancelled: Ctrl-C; nothing is left.
        DataError: A step cannot be fitted on these rows.
        EtlError: What failed, on which part.
    """
    try:
        return _in_passes(bound, run_id, engine, workers, progress or Silent())
    except KeyboardInterrupt as error:
        raise Cancelled("interrupted: nothing was published") from error


def _in_passes(bound: Bound, run_id: str, engine: str, workers: int | None, progress: Progress) -> RunResult:
    clock = time.monotonic()
    (reading,) = bound.readings.values()
    with passes.waiting(bound.write.target, run_id) as folder:
        rows, watching = SpoolSink(folder / reading.name), _observing(bound)
        steps = None if bound.steps is None or bound.steps.function is None else replace(bound.steps, prepare=())
        writes = (passes.to(rows, reading.name), passes.to(watching, "figures"))
        job = Job(reading, writes, steps, bound.pipeline.retries)
        runner.run([job], run_id=run_id, engine=engine, workers=workers, progress=progress)
        spooled = rows.spooled
        if spooled.schema is None:
            raise AssertionError(reading.name)
        last = passes.last(bound, spooled.schema, {reading.name: spooled}, spooled.files)
        result = published(
            bound, last, run_id=run_id, engine=engine, workers=workers, progress=progress, first=watching.observed
        )
    return replace(result, partitions=len(passes.parts_of(spooled)), seconds=round(time.monotonic() - clock, 3))


def published(
    bound: Bound,
    job: Job,
    /,
    *,
    run_id: str,
    engine: str,
    workers: int | None,
    progress: Progress,
    first: Observed | None = None,
) -> RunResult:
    """Prepare the rows that wait, and publish them.

    Args:
        bound: The pipeline.
        job: The last pass, as if nothing were to be prepared.
        run_id: Of the run.
        engine: For the last pass; figures are found on the host.
        workers: As everywhere.
        progress: Told what happens.
        first: What the first scan observed already; None: it is still to be made.

    Raises:
        DataError: A step cannot be fitted on these rows.
        EtlError: What failed, on which part.
    """
    source, prepare = job.read.source, bound.pipeline.prepare
    if not prepare or not isinstance(source, SpoolSource):
        return runner.run([job], run_id=run_id, engine="cpu", workers=workers, progress=progress)[0]
    plan = planned(prepare, source.fields)
    if not plan.count or bound.write.mode == "append":
        done = prepared(bound, job)
    else:
        observed: list[Observed] = [] if first is None else [first]
        figures: dict[int, State] = dict(first.states) if first is not None else {}
        for scan in range(len(observed), plan.count):
            sink = replace(_observing(bound), scan=scan, done=dict(figures), observed=Observed())
            scanning = replace(job, writes=(passes.to(sink, "figures"),))
            runner.run([scanning], run_id=run_id, engine="cpu", workers=workers, progress=progress)
            observed.append(sink.observed)
            figures |= sink.observed.states
        plan = planned(prepare, source.fields, figures)
        split = TRAIN if bound.write.options.split else "all"
        seen = observed[0]
        fit = fit_for(bound.write, plan, figures, split=split, rows=seen.rows, golden=seen.golden)
        done = _with(bound, job, plan, figures, fit)
    return runner.run([done], run_id=run_id, engine=engine, workers=workers, progress=progress)[0]


def _observing(bound: Bound) -> ObserveSink:
    write = bound.write
    dataset = DatasetSink(write.target, write.format, write.options, checks=write.checks, contract=write.contract)
    return ObserveSink(bound.pipeline.prepare, dataset, write.mode)


def prepared(bound: Bound, job: Job, /) -> Job:
    """A job whose steps need no scan: they need no figures, or the figures of the version that is appended to.

    Raises:
        ConfigError: That version was prepared otherwise.
    """
    prepare, steps = bound.pipeline.prepare, job.steps or Steps()
    if bound.write.mode != "append" or not any(needs_fit(step) for step in prepare):
        return replace(job, steps=replace(steps, prepare=prepare))
    fit, taken = _taken(bound)
    steps = replace(steps, prepare=prepare, figures=taken.figures, expects=taken.expects)
    return replace(job, writes=(replace(bound.write, fit=fit),), steps=steps)


def _taken(bound: Bound) -> tuple[SavedFit, Steps]:
    """The fit of the version that is appended to, and its figures.

    Raises:
        ConfigError: There is none, or of other steps.
        DatasetError: It is of a later version of cuETL.
    """
    place = place_of(bound.write.target)
    live = current(place)
    if live is None:
        raise ConfigError(f"there is no dataset at {place} to append to", hint='Use mode="create" first.')
    hashes = live.state_hashes
    if not hashes:
        raise ConfigError(
            f"version {live.version} of {place} was prepared with no fitted steps, and this pipeline has some",
            hint='Make a new version with mode="replace".',
        )
    path, plan, read = saved_plan(place, hashes)
    figures = figures_of(plan, bound.pipeline.prepare, path=path, read=read)
    known = loaded(plan, path)
    entry = cast("Mapping[str, object]", live.document["fit"])
    steps = Steps(figures=figures, expects=known.given)
    said = {str(one["name"]): {key: one[key] for key in _KEPT if one.get(key)} for one in live.columns}
    scores = cast("Sequence[Mapping[str, object]]", live.document.get("scores") or ())
    return SavedFit(entry, {}, said, scores), steps


def _with(bound: Bound, job: Job, plan: Planned, figures: Mapping[int, State], fit: SavedFit) -> Job:
    """The last pass with its figures, and what they say to the user."""
    said = [
        {"code": "fit", "text": text}
        for place, step in enumerate(plan.steps)
        if isinstance(step, Fitted) and place in figures
        for text in step.warnings(figures[place])
    ]
    of: Lineage | None = job.of
    if of is not None:
        of = replace(of, warnings=(*of.warnings, *said))
    steps = Steps(prepare=bound.pipeline.prepare, figures=dict(figures))
    return replace(job, writes=(replace(bound.write, fit=fit),), steps=steps, of=of)
