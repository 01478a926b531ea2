"""A bound pipeline as one run: which passes it takes, and what each reads and writes.

Rows that pass straight through, and functions of one partition, are one pass. A function of whole data takes three:
every source is read to spool files, the function works on collections over them, and its result is published. Steps
that are fitted take a pass more, or several: see `etl.run.fitting`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError, EtlError
from etl.planning.jobs import Job
from etl.run import explain, fitting, runner, whole
from etl.tensors.operations import vacuum
from etl.transforms.checking.base import told

if TYPE_CHECKING:
    from etl.planning.binding import Bound
    from etl.planning.compile import JobPlan
    from etl.run.progress import Progress
    from etl.run.result import RunResult


def run_pipeline(
    bound: Bound,
    /,
    *,
    run_id: str,
    engine: str = "auto",
    workers: int | None = None,
    progress: Progress | None = None,
    resume: str | None = None,
) -> RunResult:
    """Run a pipeline and publish its dataset; nothing is published unless all of it is whole.

    Older versions of which the sink keeps no data are vacuumed then; where that fails, the result says so.

    Args:
        bound: With its parameters.
        run_id: Names the run on the store and in file names.
        engine: "auto", "cpu", "gpu" or a scheduler's address.
        workers: Worker processes; None: by the cores of this machine.
        progress: Told what happens.
        resume: The run whose finished parts are taken up; None: all is read anew.

    Raises:
        Cancelled: Ctrl-C; nothing is left.
        EtlError: What failed, on which part, in which line of the function.
    """
    result = _run(bound, run_id, engine, workers, progress, resume)
    if bound.write.keep is None:
        return result
    try:
        vacuum(bound.write.target, keep=bound.write.keep)
    except EtlError as error:  # the version is there: a failure now would have it made again
        told = {"code": "keep", "text": f"older versions were not vacuumed: {error}"}
        return replace(result, warnings=(*result.warnings, told))
    return result


def _run(
    bound: Bound, run_id: str, engine: str, workers: int | None, progress: Progress | None, resume: str | None
) -> RunResult:
    if is_whole(bound):
        if resume is not None:
            raise ConfigError(
                f"pipeline {bound.pipeline.name} works on whole data, and such a run is not resumed",
                hint="Run it anew, or make its function rowwise.",
            )
        return whole.run(bound, run_id=run_id, engine=engine, workers=workers, progress=progress)
    if fitting.needs_passes(bound):
        if resume is not None:
            raise ConfigError(
                f"pipeline {bound.pipeline.name} fits steps on all rows, and such a run is not resumed",
                hint="Run it anew.",
            )
        return fitting.run(bound, run_id=run_id, engine=engine, workers=workers, progress=progress)
    job = one_job(bound)
    jobs = [fitting.prepared(bound, job) if bound.pipeline.prepare else job]
    return runner.run(jobs, run_id=run_id, engine=engine, workers=workers, progress=progress, resume=resume)[0]


def plan_pipeline(bound: Bound, /, *, engine: str = "auto", workers: int | None = None) -> dict[str, object]:
    """What `--plan` shows. Reads catalogues, statistics and EXPLAIN only; writes nothing.

    Raises:
        EtlError: What a run would refuse before it reads.
    """
    plan = _plan(bound, engine, workers)
    asked = bound.pipeline.checks
    return plan | {"checks": [told(one) for one in asked]} if asked else plan


def _plan(bound: Bound, engine: str, workers: int | None) -> dict[str, object]:
    if is_whole(bound):
        return whole.plan(bound, engine=engine, workers=workers)
    job, prepare = one_job(bound), bound.pipeline.prepare
    if prepare:
        job = fitting.prepared(bound, job)

    def check(plan: JobPlan) -> None:
        if plan.steps is not None:
            fitting.check_split(bound, plan.steps.made)

    plan = explain.plan([job], engine=engine, workers=workers, check=check)[0]
    return plan | {"prepare": fitting.shown(bound)} if prepare else plan


def is_whole(bound: Bound, /) -> bool:
    """Whether a function is called once, with collections."""
    return bound.pipeline.function is not None and not bound.pipeline.rowwise


def one_job(bound: Bound, /) -> Job:
    """The one pass of a pipeline without a function, or with one of each part."""
    (reading,) = bound.readings.values()
    return Job(reading, (bound.write,), steps=bound.steps, retries=bound.pipeline.retries)
