"""`cuetl run`: a pipeline by file or name, its parameters, and what its run made."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from etl.cli import output, process, words
from etl.planning import loader
from etl.run import pipelines
from etl.run.naming import new_run_id


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of `run` as typed."""

    pipeline: str
    params: tuple[str, ...] = ()
    engine: str = "auto"
    workers: int | None = None
    plan: bool = False
    resume: str | None = None
    as_json: bool = False
    quiet: bool = False
    debug: bool = False


def run(flags: Flags, /) -> None:
    """Carry out one `cuetl run`.

    Raises:
        EtlError: What failed; nothing was published then.
    """
    process.prepare(None, debug=flags.debug)
    params = words.assignments(flags.params, "--param")
    run_id = new_run_id()
    bound = loader.load(flags.pipeline).bind(params, run_id)
    if flags.plan:
        plan = pipelines.plan_pipeline(bound, engine=flags.engine, workers=flags.workers)
        if flags.as_json:
            output.emit_json(plan)
        else:
            output.plan(plan)
        return
    with output.progress(quiet=flags.quiet or flags.as_json) as progress:
        result = pipelines.run_pipeline(
            bound,
            run_id=run_id,
            engine=flags.engine,
            workers=flags.workers,
            progress=progress,
            resume=flags.resume,
        )
    # All is published: a stop that comes now ends the report, not the run.
    with contextlib.suppress(KeyboardInterrupt):
        if flags.as_json:
            output.emit_results([result])
        elif not flags.quiet:
            output.report([result])
