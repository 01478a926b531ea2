"""Goldens of the transforms: written by `python -m tests.values.replay`, replayed by `test_values.py` and on a device.

One Arrow IPC file for each transform, of two record batches: the result of `rows()`, and that of `nulls()`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.engine import frames
from etl.engine.backends import backend
from tests.values.transforms import TRANSFORMS, given, nulls, rows

if TYPE_CHECKING:
    from etl.engine.base import Backend
    from tests.values.transforms import Transform

FOLDER = Path(__file__).parent / "goldens"


def result(on: Backend, one: Transform, table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
    """The transform of the table on a backend, in the schema that it has for no rows, or in that of a golden."""
    source = given()
    declared = on.schema_of(one.function(on.from_arrow(table.slice(0, 0), source), frames), source)
    made = on.to_arrow(one.function(on.from_arrow(table, source), frames), declared)
    return made if schema is None else made.cast(schema)


def golden(one: Transform) -> tuple[pa.Table, pa.Table]:
    """What the transform gave for `rows()` and for `nulls()`."""
    with pa.ipc.open_file(str(FOLDER / f"{one.name}.arrow")) as reader:
        first, second = reader.get_batch(0), reader.get_batch(1)
    return pa.Table.from_batches([first]), pa.Table.from_batches([second])


def comparable(table: pa.Table, *, order: bool) -> list[Any]:
    """The rows as texts that tell NaN from NULL and 0.0 from -0.0; sorted where no order is promised."""
    found = [repr(row) for row in table.to_pylist()]
    return found if order else sorted(found)


def write() -> None:
    """Make every golden anew, from pandas."""
    FOLDER.mkdir(exist_ok=True)
    for one in TRANSFORMS:
        tables = [result(backend("pandas"), one, table).combine_chunks() for table in (rows(), nulls())]
        with (
            pa.OSFile(str(FOLDER / f"{one.name}.arrow"), "wb") as out,
            pa.ipc.new_file(out, tables[0].schema) as writer,
        ):
            for table in tables:
                batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
                writer.write_batch(batches[0])


if __name__ == "__main__":
    write()
