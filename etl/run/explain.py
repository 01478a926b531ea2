"""What `--plan` shows: every decision of a run, found without reading a row."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from etl.core.partition import describe
from etl.engine import select
from etl.planning.compile import compile_job
from etl.run.places import attach_nobody
from etl.run.runner import choice_for, open_sources
from etl.tensors.publish import commit_of
from etl.tensors.sink import DatasetSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.base import Source
    from etl.core.partition import Partition, Snapshot
    from etl.core.schema import Schema
    from etl.engine.base import EngineChoice
    from etl.planning.compile import JobPlan
    from etl.planning.jobs import Job, Write

SAMPLED = "(sampled at run)"


def plan(
    jobs: Sequence[Job],
    /,
    *,
    engine: str = "auto",
    workers: int | None = None,
    check: Callable[[JobPlan], None] | None = None,
) -> list[dict[str, object]]:
    """One plan for each job, as JSON values. Reads catalogues, statistics and EXPLAIN only; writes nothing.

    Args:
        jobs: What would run.
        engine: As for a run.
        workers: As for a run.
        check: What else a run would refuse of each.

    Raises:
        EtlError: What a run would refuse before it reads.
    """
    sources = open_sources(jobs)
    lead, *siblings = sources
    with ExitStack() as stack:
        at = stack.enter_context(lead.snapshot(siblings=siblings, attach_all=attach_nobody))
        readers = select.readers(workers)
        plans = [compile_job(j, s, at, readers=readers, sample=False) for j, s in zip(jobs, sources, strict=True)]
        for one in plans:
            if check is not None:
                check(one)
            for write in (w for w in one.job.writes if w.sink is None):
                dataset = DatasetSink(
                    write.target, write.format, write.options, write.fit, write.checks, write.contract
                )
                dataset.check(one.written, write.mode)
        choice = choice_for(plans, engine, workers)
        return [_shown(one, at, choice) for one in plans]


def _shown(plan: JobPlan, at: Snapshot, choice: EngineChoice) -> dict[str, object]:
    source = plan.source
    return {
        "source": source.title,
        "connection": source.endpoint.name,
        "snapshot": at.kind,
        "server": at.server,
        "rows": round(plan.facts.rows),
        "bytes": plan.facts.bytes,
        "partitions": [_part(plan, source, part) for part in plan.parts.parts],
        "why": plan.parts.why,
        "reason": plan.parts.reason,
        "remedy": plan.parts.remedy,
        "engine": shown(choice),
        "schema": columns(plan.written),
        **_function(plan),
        "targets": [target(w, _disk(plan, w)) for w in plan.job.writes if w.sink is None],
        "lossy": list(plan.lossy),
        "notes": list(plan.facts.notes),
    }


def target(write: Write, disk: int, /) -> dict[str, object]:
    """A dataset as a plan shows it; `disk`: bytes of local disk that are needed besides its files."""
    return {
        "target": write.target,
        "format": write.format,
        "mode": write.mode,
        "order": write.options.order,
        "disk": disk,
        "commit": commit_of(write.target),
    }


def shown(choice: EngineChoice, /) -> dict[str, object]:
    """An engine as a plan shows it."""
    return {
        "name": choice.name,
        "kind": choice.kind,
        "workers": choice.workers,
        "slots": choice.slots,
        "why": choice.why,
    }


def columns(schema: Schema, /) -> list[dict[str, object]]:
    """The columns of a schema as a plan shows them."""
    return [
        {
            "name": f.name,
            "source_type": f.source_type,
            "arrow_type": str(f.type),
            "nullable": f.nullable,
            "read_as": f.read_as,
            "note": f.note,
        }
        for f in schema
    ]


def _function(plan: JobPlan) -> dict[str, object]:
    """What a plan with a function says more: the function, the columns it is given, what its trial found."""
    ref = None if plan.steps is None else plan.steps.function
    if ref is None:
        return {}
    return {
        "function": {"name": ref.name, "file": ref.file, "sha256": ref.sha256},
        "given": columns(plan.schema),
        "warnings": list(plan.warnings),
    }


def _disk(plan: JobPlan, write: Write) -> int:
    """Bytes of local disk that are needed besides the target's files, until it is published.

    The sorted runs of an order, and all files of a target in another storage.
    """
    ordered = plan.facts.bytes if write.options.order != "source" else 0
    gathered = plan.facts.bytes if commit_of(write.target)["kind"] == "manifest" else 0
    return ordered + gathered


def _part(plan: JobPlan, source: Source, part: Partition) -> dict[str, object]:
    deferred = plan.facts.key is not None and plan.facts.key.deferred and len(plan.parts.parts) > 1
    return {
        "index": part.index,
        "slice": SAMPLED if deferred else describe(part.slice),
        "sql": SAMPLED if deferred else source.explain(part, columns=plan.schema.names),
        "rows": part.rows,
        "bytes": part.bytes,
    }
