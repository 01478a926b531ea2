"""`cuetl inspect`: tables and sizes, or one table's columns and first rows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from connectors import registry
from connectors.base import Query
from etl.cli import output, process
from etl.core.errors import ConfigError
from etl.planning.jobs import Reading
from etl.run import inspect as look
from etl.run.naming import new_run_id
from etl.settings import endpoint

if TYPE_CHECKING:
    from connectors.base import Endpoint


def inspect(source: str, /, *, table: str | None, sql: str | None, rows: int, as_json: bool, debug: bool) -> None:
    """Print the tables of a store or, with a table or query, its columns and a look at its rows.

    Raises:
        EtlError: There is no such connection, table or column, or the store refused.
    """
    process.prepare(source, debug=debug)
    if table is not None and sql is not None:
        raise ConfigError("--table and --sql were given together", hint="Give one of them.")
    at = endpoint(source)
    if table is None and sql is None:
        _tables(at, as_json=as_json)
        return
    query = Query(table=table, sql=sql, run_id=new_run_id())
    found = look.inspect(Reading(at, query), rows=rows)
    columns = [_column(one, found.looked_at) for one in found.columns]
    if as_json:
        output.emit_json(
            {
                "source": at.name,
                "title": found.title,
                "rows": round(found.rows),
                "bytes": found.bytes,
                "looked_at": found.looked_at,
                "columns": columns,
                "sample": [[_json(cell) for cell in row] for row in found.cells],
                "notes": list(found.notes),
            }
        )
        return
    output.text(f"{found.title}: about {output.count(found.rows)} rows, {output.bytes_text(found.bytes)}")
    for line in found.notes:
        output.text(line)
    output.text()
    head = ("column", "store type", "Arrow type", "tensor dtype", "nulls", "note")
    output.table(head, [[_text(one[key]) for key in COLUMN_KEYS] for one in columns], right=("nulls",))
    output.text(f"(nulls: share of the first {output.count(found.looked_at)} rows)")
    if found.cells:
        output.text()
        names = [one.field.name for one in found.columns]
        output.table(names, [[_shown(cell) for cell in row] for row in found.cells], right=(), widest=WIDEST)


WIDEST = 40
"""A value of a row that is looked at is cut here, so that one long text does not break all lines."""
COLUMN_KEYS = ("name", "store_type", "arrow_type", "tensor_dtype", "null_share", "note")


def _column(one: look.ColumnLook, looked_at: int) -> dict[str, object]:
    note = one.field.note
    if one.special:
        note = f"{note}; " * bool(note) + f"{one.special} values that Arrow cannot hold: see --special"
    return {
        "name": one.field.name,
        "store_type": one.field.source_type,
        "arrow_type": str(one.field.type),
        "tensor_dtype": one.tensor_dtype,
        "nullable": one.field.nullable,
        "null_share": round(one.nulls / looked_at, 4) if looked_at else None,
        "note": note,
    }


def _tables(at: Endpoint, *, as_json: bool) -> None:
    found = registry.connector(at.scheme).tables(at)
    if as_json:
        output.emit_json({"source": at.name, "tables": [asdict(one) for one in found]})
        return
    output.table(
        ("table", "kind", "rows", "size"),
        [(one.name, one.kind, output.count(one.rows), output.bytes_text(one.bytes)) for one in found],
    )
    output.text(f"{output.counted(len(found), 'table')}; rows and sizes are the store's estimates")


def _json(cell: object) -> object:
    if isinstance(cell, bytes):
        return cell.hex()
    if cell is None or isinstance(cell, bool | int | str) or (isinstance(cell, float) and math.isfinite(cell)):
        return cell
    return str(cell)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _shown(cell: object) -> str:
    match cell:
        case None:
            return "NULL"
        case bytes():
            return f"0x{cell.hex()}"
        case _:
            return str(cell)
