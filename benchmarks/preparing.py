"""What fitted preparation costs: beside the plain export of as many columns, and beside scikit-learn.

    python -m benchmarks.preparing [ROWS] [--rounds N] [--url URL] [--keep-data]

`plain` and `prepared` are pipelines of `workloads.py` from PostgreSQL to tensors: the first writes five number columns,
the second fills one, standardizes three and makes ids of two. `ours` and `sklearn` fit and transform the same rows in
memory: Arrow and pandas, each as it comes from one Parquet file; reading it is not counted. Ways take turns as whole
processes; ratios are taken within a round. The first round warms caches and is not counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import measure
from benchmarks.pipelines import SCALE_ONE
from benchmarks.run import PEERS_ENVIRONMENT, ROOT, ensure_peers, server

COLUMNS = ["qty", "price", "discount", "seller", "mode"]
BOUNDS = {"prepared by plain, wall": 2.0, "sklearn by ours": 3.0}


def ours(file: str) -> float:
    """Seconds to fit and transform, in one process."""
    from etl.core.schema import Field, Schema  # noqa: PLC0415 # a process imports one way
    from etl.transforms import Categorify, FillNull, Standardize  # noqa: PLC0415
    from etl.transforms.fit import Watching, applied, finished, merged, planned  # noqa: PLC0415
    from etl.transforms.host import Rows  # noqa: PLC0415

    table = pq.read_table(file, columns=COLUMNS)
    batches = table.combine_chunks().to_batches(max_chunksize=1 << 17)
    start = time.perf_counter()
    steps = [FillNull("discount", "mean"), Standardize(["qty", "price", "discount"]), Categorify(["mode", "seller"])]
    given = Schema(tuple(Field(f.name, f.type) for f in table.schema))
    plan, states = planned(steps, given), {}
    for scan in range(plan.count):
        watching = Watching(plan, scan, states, 0)
        for batch in batches:
            watching.take(batch)
        states |= finished(plan, merged(plan, [watching.states()]))
    made = [applied(plan, states, Rows.of_batch(batch, plan.given)).batch(plan.returns) for batch in batches]
    seconds = time.perf_counter() - start
    if sum(batch.num_rows for batch in made) != table.num_rows:
        raise AssertionError
    return seconds


def sklearn(file: str) -> float:
    """The same by scikit-learn's ColumnTransformer on a frame of pandas."""
    import pandas as pd  # noqa: PLC0415 # as above
    from sklearn.compose import ColumnTransformer  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import OrdinalEncoder, StandardScaler  # noqa: PLC0415

    frame = pd.read_parquet(file, columns=COLUMNS)
    start = time.perf_counter()
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    made = ColumnTransformer(
        [
            ("filled", make_pipeline(SimpleImputer(), StandardScaler()), ["discount"]),
            ("scaled", StandardScaler(), ["qty", "price"]),
            ("ids", encoder, ["mode", "seller"]),
        ]
    ).fit_transform(frame)
    seconds = time.perf_counter() - start
    if len(made) != len(frame):
        raise AssertionError
    return seconds


def once(way: str, folder: Path, env: dict[str, str]) -> dict[str, float]:
    """One run: wall seconds, CPU seconds, peak MiB; in memory: its own seconds."""
    if way in ("ours", "sklearn"):
        command = [sys.executable, "-m", "benchmarks.preparing", "--one", way, str(folder / "features.parquet")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return {"wall": float(done.stdout)}
    out = folder / "out"
    command = [str(Path(sys.executable).parent / "cuetl"), "run", f"{ROOT / 'benchmarks/workloads.py'}:{way}"]
    cost = measure([*command, "--engine", "cpu", "--quiet"], env={**env, "BENCH_OUT": str(out)}, seconds=900)
    shutil.rmtree(out, ignore_errors=True)
    return {"wall": cost.wall, "cpu": cost.cpu, "peak_mib": cost.peak_mib}


def main() -> None:
    """Load, run all ways in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3, help="that count (default 3)")
    parser.add_argument("--url", help="a PostgreSQL to use, in place of a private one; its tables are made anew")
    parser.add_argument("--keep-data", action="store_true", help="with --url: the tables are there already")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print({"ours": ours, "sklearn": sklearn}[asked.one[0]](asked.one[1]))
        return
    ensure_peers()
    with server(asked.url) as (url, _), tempfile.TemporaryDirectory(prefix="cuetl-bench-") as name:
        folder = Path(name)
        python = str(PEERS_ENVIRONMENT / "bin/python")
        if not asked.keep_data:
            loader = [python, str(ROOT / "benchmarks/data.py"), url, str(asked.rows / SCALE_ONE)]
            subprocess.run(loader, check=True)
        copy = [python, str(ROOT / "benchmarks/peers.py"), "duckdb", "features", str(folder / "features.parquet")]
        measure(copy, env={"PGURL": url}, seconds=900)
        parts = urlsplit(url)
        bare = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port or 5432}"))
        env = {"PGURL": url, "BENCH_URL": bare, "PGPASSWORD": unquote(parts.password or "")}
        ways = ("plain", "prepared", "ours", "sklearn")
        turns = [{way: once(way, folder, env) for way in ways} for _ in range(asked.rounds + 1)][1:]
    report(turns)


def report(turns: list[dict[str, dict[str, Any]]]) -> None:
    """Print medians, and the two ratios with their bounds."""
    for way in turns[0]:
        figures = {name: statistics.median(turn[way][name] for turn in turns) for name in turns[0][way]}
        print(f"{way:10}", json.dumps({name: round(value, 2) for name, value in figures.items()}))
    ratios = {
        "prepared by plain, wall": [turn["prepared"]["wall"] / turn["plain"]["wall"] for turn in turns],
        "prepared by plain, peak": [turn["prepared"]["peak_mib"] / turn["plain"]["peak_mib"] for turn in turns],
        "sklearn by ours": [turn["sklearn"]["wall"] / turn["ours"]["wall"] for turn in turns],
    }
    for name, each in ratios.items():
        bound = f", bound {BOUNDS[name]}" if name in BOUNDS else ""
        print(f"{name}: {statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f}){bound}")


if __name__ == "__main__":
    pa.set_cpu_count(1)
    main()
