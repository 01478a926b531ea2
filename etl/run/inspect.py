"""A look at one table or query: its columns, how they arrive, and its first rows. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connectors import registry
from connectors.base import CutWish, Tally
from etl.core.errors import ConfigError, DecimalTooNarrow
from etl.core.partition import Partition, Whole
from etl.core.schema import Schema
from etl.run.early import BATCH_BYTES
from etl.tensors.options import WriteOptions
from etl.tensors.pack import plan_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from connectors.base import Source
    from etl.core.partition import Snapshot
    from etl.core.schema import Field
    from etl.planning.jobs import Reading

LOOKED_AT = 1000
"""NULLs are counted in so many rows: enough to tell a rare NULL from a common one, and read in one round trip."""


@dataclass(frozen=True, slots=True)
class ColumnLook:
    """One column: what the store calls it, what arrives, and how often it is NULL in the rows looked at.

    `special` counts values that Arrow cannot hold; `nulls` leaves them out. Both are of `Inspection.looked_at` rows.
    `tensor_dtype` is "" for a column that no tensor can hold; text goes beside the tensors.
    """

    field: Field
    nulls: int
    special: int
    tensor_dtype: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at one source found. `rows` and `bytes` are the store's estimates; `cells` are Python values."""

    title: str
    rows: float
    bytes: int
    looked_at: int
    columns: tuple[ColumnLook, ...]
    cells: tuple[tuple[object, ...], ...]
    notes: tuple[str, ...]


def inspect(read: Reading, /, *, rows: int) -> Inspection:
    """Look at one source, in one snapshot of it.

    Args:
        read: What to look at; its limit is replaced.
        rows: How many rows to return.

    Raises:
        EtlError: The store refused, or there is no such table or column.
    """
    query = replace(read.query, limit=max(rows, LOOKED_AT), special="null")
    source = registry.connector(read.endpoint.scheme).source(read.endpoint, query)
    unlimited = registry.connector(read.endpoint.scheme).source(read.endpoint, replace(query, limit=None))
    with source.snapshot(attach_all=source.attach) as at:
        facts = unlimited.facts(at, CutWish(), sample=False)
        try:
            schema = source.schema(at)
            batches, tally = _read(source, at, schema)
        except DecimalTooNarrow:
            source = source.widen(at)
            schema = source.schema(at)
            batches, tally = _read(source, at, schema)
    looked_at = sum(batch.num_rows for batch in batches)
    columns = []
    for index, field in enumerate(schema):
        special = sum(tally.special.get(field.name, {}).values())
        nulls = sum(batch.column(index).null_count for batch in batches) - special
        columns.append(ColumnLook(field, nulls, special, _tensor_dtype(field)))
    cells = [
        tuple(batch.column(index)[row].as_py() for index in range(len(schema)))
        for batch in batches
        for row in range(batch.num_rows)
    ][:rows]
    return Inspection(source.title, facts.rows, facts.bytes, looked_at, tuple(columns), tuple(cells), facts.notes)


def _tensor_dtype(field: Field) -> str:
    try:
        planned = plan_columns(Schema((field,)), WriteOptions(), "safetensors").columns
    except ConfigError:
        return ""
    return planned[0].dtype if planned else ""


def _read(source: Source, at: Snapshot, schema: Schema) -> tuple[list[pa.RecordBatch], Tally]:
    tally = Tally()
    part = Partition(0, Whole())
    return list(source.read(at, part, schema=schema, batch_bytes=BATCH_BYTES, tally=tally)), tally
