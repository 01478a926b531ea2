"""Loading a packed float32 dataset in batches: rows per second of ours, of torch's DataLoader, of one gather a batch.

    .venv/bin/python -m benchmarks.loading [ROWS] [--features 8] [--batch 4096] [--rounds 3] [--json FILE]

The ways take turns: A B C A B C …; a ratio is taken within a round and its median is printed, since machines drift.
Before the timed rounds one epoch of each of our ways is checked: every row once, every value right. Files go to a
folder in memory, so that the disk is not measured. torch's DataLoader over a TensorDataset (one process, shuffled)
takes a share of the rows, since it makes a batch row by row; it is left out where torch is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.partition import Pages, Partition
from etl.core.schema import Field, Schema
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from etl.tensors.sink import DatasetSink
from etl.tensors.views import column_of
from tests.datasets import requires

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from etl.tensors.dataset import Dataset

PIECE = 1 << 18


def written(folder: Path, rows: int, features: int) -> Dataset:
    """x[r, f] = r + f, exact in float32 up to 2^24 rows; two parts."""
    names = tuple(f"f{n}" for n in range(features))
    schema = Schema(tuple(Field(n, pa.float32(), nullable=False) for n in names))
    sink = DatasetSink(str(folder), "safetensors", WriteOptions(features=names))
    session = sink.begin("benchmark", schema, "create")

    def batches(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, stop, PIECE):
            numbers = np.arange(at, min(stop, at + PIECE), dtype=np.float32)
            yield pa.RecordBatch.from_arrays(
                [column_of(pa.float32(), numbers + np.float32(n)) for n in range(features)], schema=schema.to_arrow()
            )

    half = rows // 2
    staged = [
        session.stage(Partition(number, Pages(number, number + 1)), 1, batches(*ends))
        for number, ends in enumerate(((0, half), (half, rows)))
    ]
    session.commit(staged, requires=requires(staged, "benchmark"))
    session.abort()
    return open_dataset(folder)


def check(batches: Iterable[Any], rows: int) -> None:
    """Every row comes once, with all of its values."""
    seen = np.zeros(rows, np.uint8)
    for batch in batches:
        x = np.asarray(batch["x"])
        assert (x == x[:, :1] + np.arange(x.shape[1], dtype=np.float32)).all(), "a row is torn"
        seen[x[:, 0].astype(np.int64)] += 1
    assert (seen == 1).all(), f"{int((seen == 0).sum())} rows missing, {int((seen > 1).sum())} doubled"


def anonymous_mib() -> float:
    """Memory of this process that no file lies behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def measured(batches: Iterable[Any], rows: int) -> tuple[float, float, float]:
    """Rows per second, CPU nanoseconds a row, and the most MiB of memory over what was there before."""
    before, most, count = anonymous_mib(), 0.0, 0
    start, cpu = time.perf_counter(), time.process_time()
    for number, batch in enumerate(batches):
        count += len(batch["x"] if "x" in batch else batch[0])
        if number % 64 == 0:
            most = max(most, anonymous_mib() - before)
    wall, busy = time.perf_counter() - start, time.process_time() - cpu
    assert count == rows, f"{count} rows of {rows}"
    return rows / wall, busy / rows * 1e9, most


class Gathered:
    """All rows in memory, permuted once, one gather a batch: what memory allows without files, threads or masks."""

    def __init__(self, x: np.ndarray[Any, Any], batch: int) -> None:
        self.x, self.batch = x, batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        order = np.random.default_rng(1).permutation(len(self.x))
        for at in range(0, len(order), self.batch):
            yield {"x": self.x[order[at : at + self.batch]]}


def torch_rows(x: np.ndarray[Any, Any], batch: int) -> Iterable[Any] | None:
    """torch's DataLoader over a TensorDataset, or None without torch."""
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError:
        return None
    data = torch.utils.data.TensorDataset(torch.from_numpy(x))
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True)
    return ({"x": rows} for (rows,) in loader)


def ways(dataset: Dataset, batch: int, torch_share: int) -> dict[str, tuple[Callable[[], Iterable[Any] | None], int]]:
    """Name → what makes an epoch, and its rows."""
    x, rows = np.ascontiguousarray(dataset.tensors()["x"]), len(dataset)
    # One loader each, as in training: every round is its next epoch.
    plain, shuffled = dataset.loader(batch), dataset.loader(batch, shuffle=True, seed=7)
    found: dict[str, tuple[Callable[[], Iterable[Any] | None], int]] = {
        "cuetl, written order": (lambda: plain, rows),
        "cuetl, shuffled": (lambda: shuffled, rows),
        "one gather a batch": (lambda: Gathered(x, batch), rows),
        "torch DataLoader": (lambda: torch_rows(x[:torch_share], batch), torch_share),
    }
    if torch_rows(x[:1], 1) is None:
        del found["torch DataLoader"]
    else:
        torch_batches = dataset.loader(batch, shuffle=True, framework="torch")
        found["cuetl, shuffled, torch"] = (lambda: torch_batches, rows)
    return found


def main() -> None:
    """Check, then measure all ways in turn and print them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("rows", nargs="?", type=int, default=6_000_000)
    arguments.add_argument("--features", type=int, default=8)
    arguments.add_argument("--batch", type=int, default=4096)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        dataset = written(Path(name) / "out", asked.rows, asked.features)
        check(dataset.loader(asked.batch), asked.rows)
        check(dataset.loader(asked.batch, shuffle=True, seed=7), asked.rows)
        all_ways = ways(dataset, asked.batch, min(asked.rows, 50 * asked.batch))
        results: dict[str, list[tuple[float, float, float]]] = {way: [] for way in all_ways}
        for _ in range(asked.rounds):
            for way, (make, rows) in all_ways.items():
                batches = make()
                assert batches is not None
                results[way].append(measured(batches, rows))
    rates = {way: [rate for rate, _, _ in found] for way, found in results.items()}
    best = "cuetl, shuffled"
    report = []
    for way, found in results.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(rates[best], rates[way], strict=True))
        one = {
            "way": way,
            "million_rows_per_s": round(statistics.median(rates[way]) / 1e6, 2),
            "cpu_ns_per_row": round(min(cpu for _, cpu, _ in found), 1),
            "shuffled_against_it": round(ratio, 2),
            "mib_above": round(max(most for _, _, most in found), 1),
        }
        report.append(one)
        print(f"{way:24}{one['million_rows_per_s']:9.2f} M rows/s{one['cpu_ns_per_row']:9.1f} ns CPU/row"
              f"{one['shuffled_against_it']:9.2f} times by ours shuffled{one['mib_above']:8.1f} MiB")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps({**vars(asked), "json": "", "cpus": os.cpu_count(), "ways": report}, indent=1))


if __name__ == "__main__":
    main()
