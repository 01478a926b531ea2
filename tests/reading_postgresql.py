"""Reading through the PostgreSQL source as a run does: one snapshot, a plan, every part, counts compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connectors.base import CutWish, Endpoint, Query, Tally
from connectors.postgresql.connector import CONNECTOR, PostgresSource
from etl.core.partition import Partition, PartitionPlan, Whole
from etl.core.secrets import keep_inline
from etl.core.urls import parse_url
from etl.planning.cut import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.base import Facts
    from etl.core.partition import Snapshot
    from etl.core.schema import Schema


WHOLE = Partition(0, Whole())


@dataclass(frozen=True, slots=True)
class Result:
    """What one read gave. `rows` and `sql` are per part."""

    table: pa.Table
    plan: PartitionPlan
    facts: Facts
    schema: Schema
    rows: list[int]
    sql: list[str]
    tallies: list[Tally]

    def values(self, column: str) -> list[Any]:
        """One column's values."""
        return list(self.table.column(column).to_pylist())

    @property
    def data(self) -> list[tuple[Any, ...]]:
        """The rows as tuples."""
        return list(zip(*(column.to_pylist() for column in self.table.columns), strict=True))


def endpoint(url: str, *, name: str = "pg", **options: str | float | bool) -> Endpoint:
    """The endpoint of a URL."""
    parts = parse_url(url)
    return Endpoint(
        name,
        parts.scheme,
        host=parts.host,
        port=parts.port,
        database=parts.database,
        user=parts.user,
        password=keep_inline(parts.password) if parts.password else None,
        query=parts.query,
        options=options,
    )


def source(at: Endpoint, query: Query) -> PostgresSource:
    return CONNECTOR.source(at, query)


def nothing(_: Snapshot) -> None:
    """No worker waits for the snapshot."""


def read_part(one: PostgresSource, at: Snapshot, part: Partition, schema: Schema) -> tuple[list[pa.RecordBatch], Tally]:
    """One part, its rows equal to the server's two counts of it."""
    tally = Tally()
    batches = list(one.read(at, part, schema=schema, batch_bytes=1 << 20, tally=tally))
    assert sum(b.num_rows for b in batches) == tally.rows == tally.counted == one.count(at, part)
    return batches, tally


def read(
    at: Endpoint,
    query: Query,
    wish: CutWish | None = None,
    *,
    sample: bool = True,
    between: Callable[[int], None] | None = None,
) -> Result:
    """Plan and read everything; `between` is called after the snapshot (0) and after each part (1 …)."""
    one = source(at, query)
    wish = wish or CutWish()
    with one.snapshot(attach_all=nothing) as moment:
        if between:
            between(0)
        schema = one.schema(moment)
        facts = one.facts(moment, wish, sample=sample)
        plan = cut(facts, wish)
        batches: list[pa.RecordBatch] = []
        tallies: list[Tally] = []
        for number, part in enumerate(plan.parts, 1):
            got, tally = read_part(one, moment, part, schema)
            batches += got
            tallies.append(tally)
            if between:
                between(number)
        assert sum(t.rows for t in tallies) == one.count(moment, WHOLE)
        sql = [one.explain(p, columns=schema.names) for p in plan.parts]
    table = pa.Table.from_batches(batches, schema=schema.to_arrow())
    table.validate(full=True)
    return Result(table, plan, facts, schema, [t.rows for t in tallies], sql, tallies)
