"""What writing costs: CPU, page faults and size per way of writing the same batches; read back and compared each time.

    .venv/bin/python benchmarks/writers.py [ROWS] [--json FILE]

The batches have the shape of an ML table (id, categories, prices with NULLs, flags, times, a short text) in 4 MiB
pieces, as a reader hands them out. Files go to a folder in memory, so that the disk is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.core.schema import Field, Schema
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.formats.safetensors import encode
from etl.tensors.gather import TensorPart
from etl.tensors.options import WriteOptions
from etl.tensors.pack import plan_columns
from etl.tensors.views import bits_of, column_of, mask_of, packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.base import StagedFile

BATCH_BYTES = 4 << 20


def features(rows: int) -> pa.Table:
    """An ML table, the same on every run."""
    random = np.random.default_rng(1)
    item = random.integers(1, 200_001, rows).astype(np.int32)
    amount = random.integers(1, 51, rows)
    valid = item % 17 != 0
    price = np.where(valid, amount * (90_000 + item % 20_001) / 100, 0.0)
    words = np.array([b"REG AIR", b"AIR", b"RAIL", b"SHIP", b"TRUCK", b"MAIL", b"FOB"], object)
    mode = random.integers(0, len(words), rows)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.array([len(w) for w in words], np.int32)[mode], out=offsets[1:])
    text = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(b"".join(words[mode].tolist())))
    return pa.table(
        {
            "id": column_of(pa.int64(), np.cumsum(random.integers(1, 25, rows))),
            "item": column_of(pa.int32(), item),
            "seller": column_of(pa.int32(), random.integers(1, 10_001, rows).astype(np.int32)),
            "qty": column_of(pa.float64(), amount.astype(np.float64)),
            "price": pa.Array.from_buffers(pa.float64(), rows, [packed(valid), pa.py_buffer(price)]),
            "discount": column_of(pa.float32(), (random.integers(0, 11, rows) / 100).astype(np.float32)),
            "taxed": mask_of(random.integers(0, 2, rows).astype(np.bool_)),
            "shipped": column_of(pa.timestamp("us", "UTC"), random.integers(8036, 10_560, rows) * 86_400_000_000),
            "mode": text,
            "label": column_of(pa.int32(), random.integers(0, 2, rows).astype(np.int32)),
        }
    )


def plain(folder: Path, batches: list[pa.RecordBatch], **settings: Any) -> list[Path]:
    """pyarrow's writer as it comes, a row group at a time."""
    path = folder / "plain.parquet"
    with pq.ParquetWriter(path, batches[0].schema, compression="zstd", compression_level=1, **settings) as writer:
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(b.num_rows for b in held) >= 1 << 20:
                writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 22)
                held = []
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 22)
    return [path]


def ours(folder: Path, batches: list[pa.RecordBatch]) -> list[Path]:
    """The Parquet writer of datasets, hashing included."""
    part = ParquetPart(folder, batches[0].schema, "all", lambda n: f"ours-{n}.parquet", file_bytes=128 << 20)
    return paths(folder, part.close if consume(part.write, batches) else None)


def tensors(folder: Path, batches: list[pa.RecordBatch], **options: Any) -> list[Path]:
    """The tensor writer of datasets, hashing included."""
    wishes = WriteOptions(**options)
    schema = Schema(tuple(Field(f.name, f.type, f.name == "price") for f in batches[0].schema))
    plan = plan_columns(schema, wishes, "safetensors")
    part = TensorPart(folder, schema, plan, "all", lambda n: f"st-{n}", "", wishes, "benchmark", {}, encode)
    return paths(folder, part.close if consume(part.write, batches) else None)


def consume(write: Callable[[pa.RecordBatch], None], batches: list[pa.RecordBatch]) -> bool:
    """Write all batches."""
    for batch in batches:
        write(batch)
    return True


def paths(folder: Path, close: Callable[[], list[StagedFile]] | None) -> list[Path]:
    """The files of a finished part."""
    return [p for f in close() for p in sorted(folder.glob(f"**/{Path(f.path).stem}.*"))] if close else []


def duck(folder: Path, table: pa.Table) -> list[Path]:
    """DuckDB on one thread, zstd."""
    path = folder / "duck.parquet"
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("t", table)
        connection.execute(f"copy t to '{path}' (format parquet, compression zstd)")
    return [path]


def measured(name: str, run: Callable[[], list[Path]], rows: int) -> dict[str, Any]:
    """The best of three: CPU seconds, page faults, bytes."""
    best: dict[str, Any] = {}
    for _ in range(3):
        before, cpu, wall = resource.getrusage(resource.RUSAGE_SELF), time.process_time(), time.perf_counter()
        files = run()
        seconds = time.process_time() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF)
        if not best or seconds < best["cpu_seconds"]:
            best = {
                "way": name,
                "cpu_seconds": round(seconds, 3),
                "wall_seconds": round(time.perf_counter() - wall, 3),
                "faults": after.ru_minflt - before.ru_minflt,
                "bytes": sum(f.stat().st_size for f in files),
                "ns_per_row": round(seconds / rows * 1e9),
            }
        for file in files:
            file.unlink()
    return best


def check(folder: Path, table: pa.Table, batches: list[pa.RecordBatch]) -> None:
    """Both writers wrote what they were given."""
    written = ours(folder, batches)
    assert pa.concat_tables([pq.read_table(f) for f in written]).equals(table)
    file, text = sorted(tensors(folder, batches, partition_bytes=1 << 34), key=lambda p: p.suffix, reverse=True)
    from safetensors.numpy import load_file  # noqa: PLC0415 - the stranger's reader, only here

    got = load_file(file)
    price = table.column("price").combine_chunks()
    valid = bits_of(price.buffers()[0], price.offset, len(price))
    assert (got["price.valid"] == valid).all()
    assert (got["price"][valid] == price.drop_null().to_numpy()).all()
    assert (got["id"] == table.column("id").to_numpy()).all()
    assert pq.read_table(text).column("mode").equals(table.column("mode"))
    for path in (*written, file, text):
        path.unlink()


def main() -> None:
    """Measure all ways and print them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", nargs="?", type=int, default=2_000_000)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    table = features(asked.rows)
    batches = table.to_batches(max(1, BATCH_BYTES // (table.nbytes // asked.rows)))
    dictionary = ["seller", "qty", "discount", "shipped", "mode", "label"]
    packed_x = {
        "features": ("item", "seller", "qty", "price", "discount", "taxed"),
        "target": ("label",),
        "key": ("id",),
    }
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        check(folder, table, batches)
        ways: dict[str, Callable[[], list[Path]]] = {
            "cuetl parquet": lambda: ours(folder, batches),
            "pyarrow, dictionary everywhere": lambda: plain(folder, batches),
            "pyarrow, dictionary where it pays": lambda: plain(folder, batches, use_dictionary=dictionary),
            "  and delta for id": lambda: plain(
                folder, batches, use_dictionary=dictionary, column_encoding={"id": "DELTA_BINARY_PACKED"}
            ),
            "  and 4 MiB pages": lambda: plain(
                folder, batches, use_dictionary=dictionary, column_encoding={"id": "DELTA_BINARY_PACKED"},
                data_page_size=4 << 20,
            ),
            "duckdb, 1 thread": lambda: duck(folder, table),
            "cuetl tensors, columns": lambda: tensors(folder, batches, column_nulls={}),
            "cuetl tensors, packed": lambda: tensors(folder, batches, **packed_x),
            "cuetl tensors, float32": lambda: tensors(folder, batches, dtype="float32", cast="round", **packed_x),
        }  # fmt: skip
        results = [measured(way, run, asked.rows) for way, run in ways.items()]
    for one in results:
        print(f"{one['way']:36}{one['cpu_seconds']:8.2f} s CPU{one['ns_per_row']:7} ns/row"
              f"{one['faults']:9} faults{one['bytes'] / 1e6:9.1f} MB")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps({"rows": asked.rows, "cpus": os.cpu_count(), "ways": results}, indent=1))


if __name__ == "__main__":
    main()
