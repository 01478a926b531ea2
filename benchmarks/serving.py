"""What serving costs: importing it, loading a fit, and one row.

    python -m benchmarks.serving [--rounds N]

A row of five columns: one is filled, three are standardized, two become ids. `import` is a fresh process, less the
interpreter's own start; the least of the rounds is printed, since a machine can only be slower than it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

import numpy as np
import pyarrow as pa

import etl
from etl.transforms import Categorify, FillNull, Standardize

ROW_BOUND_US, IMPORT_BOUND_MS = 200.0, 150.0
IMPORT = "import time; t = time.perf_counter(); from etl import load_preprocessor; print(time.perf_counter() - t)"
NUMPY = "import time; t = time.perf_counter(); import numpy; print(time.perf_counter() - t)"


def dataset(folder: Path) -> Path:
    """A dataset of random rows."""
    rng, rows = np.random.default_rng(1), 20_000
    words = np.array(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"], object)
    table = pa.table(
        {
            "qty": rng.integers(1, 50, rows).astype(float),
            "price": rng.lognormal(6, 1, rows),
            "discount": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "seller": rng.integers(0, 1000, rows),
            "mode": pa.array(words[rng.integers(0, 7, rows)]),
        }
    )
    steps = [FillNull("discount", "mean"), Standardize(["qty", "price", "discount"]), Categorify(["mode", "seller"])]
    sink = etl.Tensors(str(folder / "d"), features=table.column_names, dtype="float32")
    etl.pipeline(name="d", sources={"t": table}, sink=sink, prepare=steps).run()
    return folder / "d"


def fresh(code: str, rounds: int) -> float:
    """The least seconds that a new process says."""
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(rounds)
    )
    return min(float(one.stdout) for one in runs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="cuetl-bench-") as name:
        path = dataset(Path(name))
        load = min(timeit.repeat(lambda: etl.load_preprocessor(path), number=1, repeat=rounds))
        prep = etl.load_preprocessor(path)
        row = {"qty": 3.0, "price": 120.5, "discount": None, "seller": 17, "mode": "RAIL"}
        one = min(timeit.repeat(lambda: prep.transform(row), number=500, repeat=rounds)) / 500
        many = [row] * 1000
        thousand = min(timeit.repeat(lambda: prep.transform(many), number=3, repeat=rounds)) / 3
    print(f"import: {fresh(IMPORT, rounds) * 1e3:.0f} ms, of which NumPy {fresh(NUMPY, rounds) * 1e3:.0f}", end="")
    print(f" (bound {IMPORT_BOUND_MS:.0f})\nload: {load * 1e3:.1f} ms")
    print(f"one row: {one * 1e6:.0f} µs (bound {ROW_BOUND_US:.0f})\n1000 rows: {thousand * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
