"""What a run leaves to be kept: counts, parts and warnings, as the manifest lists them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connectors.base import PartRecord, Requires, SourceRecord
from etl.core.partition import describe, includes_null, slice_json
from etl.planning.calling import defined_at
from etl.planning.compile import NOTES_ONLY
from etl.planning.loops import row_loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from etl.core.partition import Snapshot
    from etl.core.schema import Field
    from etl.engine.base import EngineChoice
    from etl.planning.compile import JobPlan
    from etl.run.task import PartResult

SKEW_ROWS = 1000
"""From so many rows per part up, uneven parts are worth a warning."""
SKEW = 1.5
SLOW_SECONDS = 1.0
"""A function that took less in all is not worth a warning."""
SLOW_ROW_SECONDS = 20e-6
"""Column methods take some 10 to 100 ns a row and column, Python some 1 to 100 µs."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a job of which all parts are staged.

    Attributes:
        run_id: The run's name.
        at: The snapshot that was read.
        plan: What was read.
        results: Of every part, in order.
        attempts: Of every part, by its index.
        whole: Rows of the whole source where they were counted.
        started, finished: In UTC.
        engine: What read.
        warnings: Of the run and of reading this job.
    """

    run_id: str
    at: Snapshot
    plan: JobPlan
    results: Sequence[PartResult]
    attempts: Mapping[int, int]
    whole: int | None
    started: datetime
    finished: datetime
    engine: EngineChoice
    warnings: tuple[Mapping[str, object], ...]


def required(kept: Kept, dataset: int, /) -> Requires:
    """What must hold when a dataset of the job is committed, and what is recorded with it."""
    results = kept.results
    read = sum(r.rows_read for r in results)
    job = kept.plan.job
    parts = tuple(_part(result, dataset, kept.attempts[result.part.index]) for result in results)
    sources: tuple[SourceRecord, ...] = (_source(kept, dataset),)
    warnings = kept.warnings
    if job.of is not None:
        sources, warnings = _dropped_later(job.of.sources, sources[0]), each_once((*job.of.warnings, *warnings))
        parts = tuple(replace(one, source=job.read.name) for one in parts)
    return Requires(
        run_id=kept.run_id,
        rows=read if kept.whole is None else kept.whole,
        sources=sources,
        parts=parts,
        origins=() if job.of is None else job.of.parts,
        special=_sum2(r.special for r in results),
        rounded=summed(r.rounded for r in results),
        prepared=_sum2(r.prepared for r in results),
        given=_given(kept.plan, results),
        warnings=warnings,
        engine=kept.engine.name,
        workers=kept.engine.workers,
    )


def _given(plan: JobPlan, results: Sequence[PartResult]) -> tuple[tuple[Field, tuple[object, ...]], ...]:
    """Each column that steps read, with what the parts found in it before the first step."""
    if plan.steps is None:
        return ()
    read = dict.fromkeys(name for step in plan.steps.prepare for name in step.reads)
    fields = [one for one in plan.steps.made if one.name in read]
    return tuple((one, tuple(r.given[one.name] for r in results if one.name in r.given)) for one in fields)


def _dropped_later(sources: tuple[SourceRecord, ...], last: SourceRecord) -> tuple[SourceRecord, ...]:
    """The sources, and what the last pass left out of their rows; rows of several sources are nobody's own."""
    if len(sources) != 1:
        return sources
    (one,) = sources
    dropped = summed([one.rows_dropped, last.rows_dropped])
    return (replace(one, rows_dropped=dropped, rows_written=last.rows_written),)


def _source(kept: Kept, dataset: int) -> SourceRecord:
    plan, results = kept.plan, kept.results
    query = plan.source.query
    staged = [r.staged[dataset] for r in results]
    left_out = sum(max(0, r.rows_read - r.rows_made) for r in results if r.rows_made is not None)
    return SourceRecord(
        name=plan.job.read.name,
        connector=plan.source.endpoint.scheme.partition("+")[0],
        dialect=plan.source.endpoint.scheme,
        server_version=kept.at.server,
        url=plan.source.endpoint.display(),
        query=query.sql or query.table or "",
        tables=(query.table,) if query.table else (),
        cut={
            "partitions": len(results),
            "reason": plan.parts.reason,
            "why": plan.parts.why,
            "remedy": plan.parts.remedy,
            "whole_counted": kept.whole is not None,
        },
        rows_read=sum(r.rows_read for r in results),
        rows_written=sum(s.rows for s in staged),
        rows_dropped=summed(
            [*(s.dropped for s in staged), *(r.dropped for r in results), {"function": left_out} if left_out else {}]
        ),
        rows_added=sum(max(0, (r.rows_made or 0) - r.rows_read) for r in results),
        started=_rfc3339(kept.started),
        finished=_rfc3339(kept.finished),
        snapshot=kept.at,
    )


def _part(result: PartResult, dataset: int, attempts: int) -> PartRecord:
    staged = result.staged[dataset]
    made = None if result.rows_made is None else result.rows_made - sum(result.dropped.values())
    return PartRecord(
        index=result.part.index,
        key=result.part.key(),
        slice=slice_json(result.part.slice),
        predicate=describe(result.part.slice),
        rows_counted=result.rows_counted,
        rows_read=result.rows_read,
        rows=staged.rows,
        bytes=sum(f.bytes for f in staged.files),
        seconds=round(result.seconds, 3),
        attempts=attempts,
        rows_made=made,
        includes_null=includes_null(result.part.slice),
    )


def each_once(warnings: Iterable[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """The warnings in their order, without repetitions."""
    found: list[Mapping[str, object]] = []
    for one in warnings:
        if one not in found:
            found.append(one)
    return tuple(found)


def of_reading(plan: JobPlan, results: Sequence[PartResult]) -> list[Mapping[str, object]]:
    """What the user should know of a job besides its rows."""
    found: list[Mapping[str, object]] = []
    if plan.job.of is not None:
        return found  # what is read are our own files
    parts = plan.parts
    if parts.reason and parts.reason not in NOTES_ONLY:
        found.append({"code": parts.reason, "text": f"{parts.why.rstrip('.')}. {parts.remedy}".rstrip()})
    rows = [r.rows_read for r in results]
    mean = sum(rows) / len(rows)
    if mean >= SKEW_ROWS and max(rows) > SKEW * mean and parts.reason != "one-value":
        text = f"the largest of {len(rows)} parts has {max(rows) / mean:.1f} times the mean of {mean:.0f} rows"
        found.append({"code": "skew", "text": f"{text}: statistics may be old (ANALYZE)"})
    for name, reasons in sorted(_sum2(r.special for r in results).items()):
        for reason, count in sorted(reasons.items()):
            text = f"{count} values of {name} ({reason}) were replaced by --special {plan.source.query.special or ''}"
            found.append({"code": "special", "column": name, "reason": reason, "count": count, "text": text.rstrip()})
    for name, count in sorted(summed(r.rounded for r in results).items()):
        text = f"{count} values of {name} were rounded by --cast {plan.source.query.cast}"
        found.append({"code": "rounded", "column": name, "count": count, "text": text})
    for one in plan.schema:
        if one.read_as:
            text = f"{one.name} ({one.source_type}) is read as the server's own text"
            found.append({"code": "read-as-text", "column": one.name, "text": text})
    found += _of_function(plan, results)
    found += of_waiting(sum(r.device_waited for r in results), sum(r.seconds for r in results))
    seen = dict.fromkeys([*plan.facts.notes, *(w for r in results for w in r.warnings)])
    found += [{"code": "note", "text": text} for text in seen]
    return found


def _of_function(plan: JobPlan, results: Sequence[PartResult]) -> list[Mapping[str, object]]:
    """What the user should know of the function: what it does to its frame, and whether it is slow."""
    if plan.steps is None or plan.steps.function is None:
        return []
    said = dict.fromkeys([*plan.warnings, *(w for r in results for w in r.steps_warnings)])
    found: list[Mapping[str, object]] = [{"code": "function", "text": text} for text in said]
    seconds, rows = sum(r.steps_seconds for r in results), sum(r.rows_read for r in results)
    if seconds > SLOW_SECONDS and seconds > SLOW_ROW_SECONDS * rows:
        ref = plan.steps.function
        text = f"{defined_at(ref)}, took {seconds:.1f} s for {rows} rows, {1e6 * seconds / max(1, rows):.0f} µs each"
        loops = ", ".join(row_loops(ref)[:3])
        where = f" ({loops})" if loops else ""
        instead = "write expressions of whole columns, such as frame[mask] and frame.assign(c=frame.a * frame.b)"
        found.append({"code": "slow-function", "text": f"{text}{where}: {instead}"})
    return found


def of_waiting(waited: float, seconds: float, /) -> list[Mapping[str, object]]:
    """That parts waited for the device more than they fetched: more threads for each GPU would not help.

    Args:
        waited: Seconds, over all parts.
        seconds: Of all parts, from their first byte to their last.
    """
    if waited <= SLOW_SECONDS or waited <= seconds / 2:
        return []
    share = f"parts waited {waited:.1f} s of {seconds:.1f} s for the device"
    text = f"{share}: more GPUs would help, more threads_per_worker would not"
    return [{"code": "device-wait", "count": round(waited), "text": text}]


def summed(counts: Iterable[Mapping[str, int]], /) -> dict[str, int]:
    """Counts by name, added up."""
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def _sum2(counts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for one in counts:
        for name, reasons in one.items():
            total[name] = summed((total.get(name, {}), reasons))
    return total


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
