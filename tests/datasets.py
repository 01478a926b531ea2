"""Datasets made from Arrow tables, through the sink as a run uses it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from connectors.base import PartRecord, Published, Requires, SourceRecord, Staged
from etl.core.partition import Pages, Partition, Snapshot, slice_json
from etl.core.schema import Field, Schema
from etl.tensors.options import WriteOptions
from etl.tensors.places import Place
from etl.tensors.sink import DatasetSession, DatasetSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from connectors.base import Mode
    from etl.tensors.options import Format
    from etl.tensors.places import Target

TAKEN = datetime(2026, 1, 2, tzinfo=UTC)


def schema_of(table: pa.Table, vocabularies: dict[str, tuple[str, ...]] | None = None) -> Schema:
    """The schema of a table, nullable as its fields say."""
    words = vocabularies or {}
    return Schema(tuple(Field(f.name, f.type, f.nullable, vocabulary=words.get(f.name)) for f in table.schema))


def cut(table: pa.Table, parts: int, batch_rows: int = 1000) -> list[list[pa.RecordBatch]]:
    """The table's rows in parts, in batches."""
    size = -(-max(table.num_rows, 1) // parts)
    pieces = [table.slice(i * size, size) for i in range(parts)]
    return [[b for b in p.to_batches(batch_rows) if b.num_rows] for p in pieces]


def requires(staged: Sequence[Staged], run_id: str, rows: int | None = None) -> Requires:
    """What a run that counted everything right asks for."""
    records = []
    for one in staged:
        read = one.rows + sum(one.dropped.values())
        cut = slice_json(one.part.slice)
        records.append(PartRecord(one.part.index, one.part.key(), cut, "", read, read, one.rows, 1, 0.5, one.attempt))
    read = sum(r.rows_read for r in records)
    written = sum(r.rows for r in records)
    source = SourceRecord(
        "src",
        "memory",
        "",
        "1",
        "memory://",
        "select 1",
        ("t",),
        {"partitions": len(records)},
        read,
        written,
        {},
        "",
        "",
        Snapshot("exported", "token", TAKEN),
    )
    return Requires(
        run_id,
        read if rows is None else rows,
        (source,),
        tuple(records),
        {},
        {},
        (),
        "cpu",
        2,
    )


def begin(
    out: Target, table: pa.Table, *, fmt: Format = "parquet", options: WriteOptions | None = None,
    mode: Mode = "create", run_id: str = "r1", vocabularies: dict[str, tuple[str, ...]] | None = None,
) -> DatasetSession:  # fmt: skip
    """A session, pickled as it would be on its way to a worker."""
    sink = DatasetSink(out if isinstance(out, Place) else str(out), fmt, options or WriteOptions())
    schema = schema_of(table, vocabularies)
    sink.check(schema, mode)
    session = pickle.loads(pickle.dumps(sink.begin(run_id, schema, mode)))
    assert isinstance(session, DatasetSession)
    return session


def export(
    out: Target, table: pa.Table, parts: int = 1, *, fmt: Format = "parquet", options: WriteOptions | None = None,
    mode: Mode = "create", run_id: str = "r1", batch_rows: int = 1000,
    vocabularies: dict[str, tuple[str, ...]] | None = None,
) -> Published:  # fmt: skip
    """A whole run: every part staged once, then committed."""
    session = begin(out, table, fmt=fmt, options=options, mode=mode, run_id=run_id, vocabularies=vocabularies)
    try:
        staged = [
            session.stage(Partition(i, Pages(i, i + 1)), 1, iter(batches))
            for i, batches in enumerate(cut(table, parts, batch_rows))
        ]
        return session.commit(staged, requires=requires(staged, run_id))
    finally:
        session.abort()
