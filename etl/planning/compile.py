"""From a job to a plan with every decision taken: what `--plan` prints and a run carries out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from etl.core.schema import Schema
from etl.planning.cut import cut
from etl.planning.fits import fit_for, train_split
from etl.planning.trial import tried
from etl.tensors.pack import check_names, is_float, plan_columns
from etl.tensors.page import small_page
from etl.tensors.showing import counted
from etl.transforms.base import Folded, needs_fit
from etl.transforms.fit import planned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.base import Facts, Source
    from etl.core.partition import PartitionPlan, Snapshot
    from etl.planning.jobs import Job, Write
    from etl.planning.steps import Steps

NOTES_ONLY = frozenset({"asked", "small"})
"""Reasons for one part that nobody needs to be warned of."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job, decided.

    Attributes:
        job: As asked.
        source: The value that workers read from.
        schema: The columns that are read: those that some dataset of the job needs, in the source's order; all of
            them where a function gets them.
        facts: What the source knew.
        parts: How it is cut, and why.
        floats: Decimals that every dataset wants as a float: the source makes it from the digits, so that NaN and
            infinities, which no decimal has, arrive as they are.
        lossy: Every step that may change a value, in words.
        steps: What happens to the rows of each part before they are written, with their columns; None: nothing.
        warnings: What a trial of the function found, in sentences.
    """

    job: Job
    source: Source
    schema: Schema
    facts: Facts
    parts: PartitionPlan
    lossy: tuple[str, ...]
    floats: frozenset[str] = frozenset()
    steps: Steps | None = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts, writes = counted(len(self.parts.parts), "part"), ", ".join(w.target for w in self.job.writes)
        return f"<JobPlan {self.source.title}: about {counted(round(self.facts.rows), 'row')} in {parts}, to {writes}>"

    def _repr_html_(self) -> str:
        """What notebooks show: the columns, and why it is cut so."""
        rows, parts = counted(round(self.facts.rows), "row"), counted(len(self.parts.parts), "part")
        soft = f"about {rows} in {parts}: {self.parts.why}"
        columns = [(f.name, f.source_type, f.type, "may be" if f.nullable else "never", f.note) for f in self.written]
        head = ("column", "store type", "Arrow type", "NULL", "note")
        return small_page(self.source.title, soft, head, columns, self.lossy)

    @property
    def written(self) -> Schema:
        """The schema of the rows that the datasets get."""
        return self.schema if self.steps is None else self.steps.returns

    @property
    def arriving(self) -> Schema:
        """The schema of the batches that the source hands out."""
        kind = pa.float64()
        return Schema(tuple(replace(f, type=kind) if f.name in self.floats else f for f in self.schema))


def compile_job(job: Job, source: Source, at: Snapshot, /, *, readers: int, sample: bool) -> JobPlan:
    """Ask the source for columns and facts, and cut it.

    Raises:
        ConfigError: A column that was named does not exist; the nearest are given.
        UserCodeError: The job's function fails on a frame of no rows.
    """
    schema = source.schema(at)
    # A function gets every column that its source gives: which of them it needs, nobody knows.
    trial = tried(job.steps, schema) if job.steps is not None else None
    wanted = _wanted(job.writes, schema if trial is None else trial.steps.returns)
    wish = job.read.wish
    if wish.readers != readers:
        wish = type(wish)(wish.column, wish.partitions, wish.partition_bytes, readers)
    facts = source.facts(at, wish, sample=sample)
    lossy = tuple(_lossy(job, schema))
    if trial is not None:
        said = trial.warnings
        steps = _with_train(job, trial.steps)
        job = _with_fit(job, steps)
        return JobPlan(job, source, schema, facts, cut(facts, wish), lossy, steps=steps, warnings=said)
    read = schema.select(wanted)
    floats = _floats(job, read) if source.capabilities.decimal_floats else frozenset[str]()
    return JobPlan(job, source, read, facts, cut(facts, wish), lossy, floats)


def _with_train(job: Job, steps: Steps) -> Steps:
    """The steps, told how train rows are known, where some give those other values."""
    if not any(isinstance(one, Folded) for one in steps.prepare):
        return steps
    (write,) = job.writes
    return replace(steps, train=train_split(write.options, steps.made, steps.prepare))


def _with_fit(job: Job, steps: Steps) -> Job:
    """The job whose datasets get the state of steps that need no figures: a service prepares rows by it."""
    if not steps.prepare or any(needs_fit(step) for step in steps.prepare):
        return job
    plan = planned(steps.prepare, steps.made)
    writes = (
        replace(one, fit=fit_for(one, plan, {}, split="none", rows=0)) if one.sink is None and one.fit is None else one
        for one in job.writes
    )
    return replace(job, writes=tuple(writes))


def _floats(job: Job, schema: Schema) -> frozenset[str]:
    """Decimals that are a float tensor in every dataset, by the schema alone; a type that was asked for stays."""
    found = {f.name for f in schema if pa.types.is_decimal(f.type) and f.name not in job.read.query.types}
    for write in job.writes:
        if not found:
            break
        if write.format == "parquet":
            return frozenset()
        found -= {*write.options.key, *write.options.split_key}
        found -= {c.field.name for c in plan_columns(schema, write.options, write.format).columns if not is_float(c)}
    return frozenset(found)


def _wanted(writes: Iterable[Write], schema: Schema) -> list[str]:
    """The columns that some dataset needs, in the source's order."""
    names: set[str] = set()
    for write in writes:
        options = write.options
        named = (*options.features, *options.target, *options.key, *options.split_key)
        if options.weight:
            named = (*named, options.weight)
        check_names(schema, options)
        names.update(named if options.features else schema.names)
    return [n for n in schema.names if n in names]


def _lossy(job: Job, schema: Schema) -> Iterable[str]:
    query = job.read.query
    if query.special in ("null", "clamp"):
        yield f"--special {query.special}: values that the Arrow type cannot hold are replaced and counted"
    if query.cast != "exact":
        clamped = ", values beyond its range become its least or greatest" if query.cast == "saturate" else ""
        yield f"--cast {query.cast}: digits beyond a type's precision are rounded{clamped}, and counted"
    for field in schema:
        if field.name in query.types:
            yield f"{field.name} is read as {field.type} because --types says so"
    for write in job.writes:
        options = write.options
        if write.format != "parquet" and options.nulls not in ("mask", "error"):
            yield f"--nulls {options.nulls} in {write.target}"
