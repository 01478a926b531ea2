"""cuETL and its peers in turn on one private PostgreSQL: wall, CPU and memory of whole processes, outputs checked.

    python -m benchmarks.run --scale 1 --repeat 5          # 6,001,215 rows in each of two tables
    python -m benchmarks.run --scale 0.05 --repeat 1       # a look

Contenders run A B C A B C …; a ratio is the median over the rounds of cuETL's figure by the peer's of that round, since
machines drift. Every output is compared with the database before it is removed. Figures go to the terminal and, as
JSON, to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from benchmarks import check
from benchmarks.measure import Cost, RunFailedError, measure
from tests.servers import postgresql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
PEERS_ENVIRONMENT = ROOT / "build/bench-env"
OURS = "cuetl"
CONTENDERS = {
    "parquet": (OURS, "duckdb", "connectorx", "connectorx-4", "adbc", "pandas"),
    "safetensors": (OURS, "pandas-tensor"),
}
FLOORS = ("floor-1", "floor-2", "floor-4")
ONCE = frozenset({"pandas", "pandas-tensor"})
"""So slow (a minute and more at scale 1) that they run in the first round only."""
TABLES = ("features", "lineitem")
TENSOR_COLUMNS = {"features": "id,item,seller,qty,price,discount,taxed,shipped,label"}
"""What a tensor can hold of a table. Tables that are not here have no tensor runs."""


@dataclass(slots=True)
class Result:
    """All rounds of one contender on one table and format."""

    table: str
    format: str
    contender: str
    costs: list[Cost] = field(default_factory=list)
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)
    """What the output holds that the database does not; or why there is none."""

    def median(self, figure: str) -> float:
        return float(statistics.median(getattr(cost, figure) for cost in self.costs))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the contenders run. `url` has no password; `env` carries it."""

    url: str
    env: dict[str, str]
    scratch: Path
    workers: int | None
    seconds: float

    def command(self, contender: str, table: str, format: str, out: Path) -> list[str]:  # noqa: A002 - the command's word
        if contender != OURS:
            peers = str(ROOT / "benchmarks/peers.py")
            return [str(PEERS_ENVIRONMENT / "bin/python"), peers, contender, table, str(out)]
        command = [str(Path(sys.executable).parent / "cuetl"), "export", self.url, "--table", table]
        command += ["--to", str(out), "--format", format, "--quiet"]
        if format == "safetensors":
            command += ["--columns", TENSOR_COLUMNS[table]]
        return command if self.workers is None else [*command, "--workers", str(self.workers)]

    def once(self, contender: str, table: str, format: str, out: Path) -> Cost:  # noqa: A002 - the command's word
        return measure(self.command(contender, table, format, out), env=self.env, seconds=self.seconds)


def ensure_peers() -> None:
    """Make the peers' environment when it is not there or its list changed."""
    wanted = (ROOT / "benchmarks/requirements.txt").read_text()
    stamp = PEERS_ENVIRONMENT / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(PEERS_ENVIRONMENT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", PEERS_ENVIRONMENT], check=True)
    install = [str(PEERS_ENVIRONMENT / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--requirement", str(ROOT / "benchmarks/requirements.txt")], check=True)
    stamp.write_text(wanted)


@contextlib.contextmanager
def server(url: str | None) -> Iterator[tuple[str, Path]]:
    """The URL given, or a private server's; and the folder of psql."""
    if url is not None:
        psql = shutil.which("psql")
        if psql is None:
            sys.exit("psql is needed for the floor and is not on the PATH")
        yield url, Path(psql).parent
        return
    found = postgresql.installations()
    if not found:
        sys.exit("no PostgreSQL is installed and .servers has none: run make bench, or give --url")
    best = max(found, key=lambda one: (not one.shipped, one.major))
    with postgresql.server(best) as started:
        if started.bin is None:
            raise AssertionError
        yield started.database("bench"), started.bin


def rounds(bench: Bench, table: str, format: str, contenders: Sequence[str], repeat: int) -> list[Result]:  # noqa: A002 - the command's word
    """Run all contenders in turn, `repeat` times, and check what they wrote in the last round that they ran in."""
    rows, columns = check.reference(bench.env["PGURL"], table)
    results = [Result(table, format, contender) for contender in contenders]
    for number in range(-1, repeat):  # the first round warms caches and is not counted
        for result in results:
            slow = result.contender in ONCE
            if result.wrong or (slow and number != 0):
                continue
            out = bench.scratch / f"{result.contender}-{table}-{format}"
            try:
                cost = bench.once(result.contender, table, format, out)
                if number >= 0:
                    result.costs.append(cost)
                if format != "floor" and (number == repeat - 1 or slow):
                    result.bytes = check.size(out)
                    result.wrong = check.FORMATS[format](out, rows, columns)
            except RunFailedError as failed:
                result.wrong = [str(failed)]
            finally:
                shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
            if number >= 0 and result.costs:
                last = result.costs[-1]
                sys.stderr.write(f"{table} {format} {result.contender}: {last.wall:.2f} s\n")
    return results


def ratio(ours: Result, peer: Result, figure: str) -> tuple[float, float, float]:
    """Median, smallest and largest of ours by theirs, round by round."""
    pairs = [
        getattr(mine, figure) / getattr(other, figure) for mine, other in zip(ours.costs, peer.costs, strict=False)
    ]
    return statistics.median(pairs), min(pairs), max(pairs)


def report(results: Sequence[Result]) -> list[dict[str, object]]:
    """Print one table for each pair of table and format; the ratios for the JSON."""
    ratios: list[dict[str, object]] = []
    for table, format in dict.fromkeys((one.table, one.format) for one in results):  # noqa: A001 - the command's word
        group = [one for one in results if (one.table, one.format) == (table, format)]
        ours = next(
            (one for one in results if one.table == table and one.contender == OURS and one.format == format), None
        )
        print(f"\n{table}, {format}")
        print(f"{'':14} {'wall s':>8} {'cpu s':>8} {'peak MiB':>9} {'MB':>7}   cuETL/this: wall (min-max), cpu, peak")
        for one in group:
            if not one.costs:
                print(f"{one.contender:14} did not run: {one.wrong[0][:300]}")
                continue
            line = (
                f"{one.contender:14} {one.median('wall'):8.2f} {one.median('cpu'):8.2f} {one.median('peak_mib'):9.0f}"
            )
            line += f" {one.bytes / 1e6:7.1f}"
            if ours is not None and ours is not one and ours.costs:
                by = {figure: ratio(ours, one, figure) for figure in ("wall", "cpu", "peak_mib")}
                wall = by["wall"]
                line += f"   {wall[0]:.2f} ({wall[1]:.2f}-{wall[2]:.2f}), {by['cpu'][0]:.2f}, {by['peak_mib'][0]:.2f}"
                ratios.append({"table": table, "format": format, "peer": one.contender, **by})
            print(line + (f"   NOT EXACT: {'; '.join(one.wrong)[:300]}" if one.wrong else ""))
    return ratios


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next((line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())  # fmt: skip
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30, 1)}


def versions() -> dict[str, str]:
    """Of the product here, and of the peers."""
    listed = subprocess.run(
        [PEERS_ENVIRONMENT / "bin/python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {one["name"]: one["version"] for one in json.loads(listed.stdout)} | {
        "cuetl": importlib.metadata.version("cuetl"),
        "pyarrow of cuetl": importlib.metadata.version("pyarrow"),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale: 1 is 6,001,215 rows (default 0.1)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds that count (default 3)")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--formats", default="parquet,safetensors,floor")
    parser.add_argument("--contenders", default="", help="peers by name, joined by commas (default: all)")
    parser.add_argument("--workers", type=int, help="passed to cuetl export")
    parser.add_argument("--seconds", type=float, default=900, help="the longest that one run may take")
    parser.add_argument("--url", help="a PostgreSQL to use, in place of a private one; its two tables are made anew")
    parser.add_argument("--keep-data", action="store_true", help="with --url: the tables are there already")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    ensure_peers()
    formats = {**CONTENDERS, "floor": FLOORS}
    wanted = set(args.contenders.split(",")) | {OURS, *FLOORS} if args.contenders else None
    results: list[Result] = []
    with server(args.url) as (url, programs), tempfile.TemporaryDirectory(prefix="cuetl-bench-") as scratch:
        if not args.keep_data:
            loader = [str(PEERS_ENVIRONMENT / "bin/python"), str(ROOT / "benchmarks/data.py"), url, str(args.scale)]
            subprocess.run(loader, check=True)
        parts = urlsplit(url)
        bare = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port or 5432}"))
        env = {"PGURL": url, "PGPASSWORD": unquote(parts.password or ""), "PSQL": str(programs / "psql")}
        bench = Bench(bare, env, Path(scratch), args.workers, args.seconds)
        for table in args.tables.split(","):
            for name in args.formats.split(","):
                if name == "safetensors" and table not in TENSOR_COLUMNS:
                    continue
                contenders = [one for one in formats[name] if wanted is None or one in wanted]
                results += rounds(bench, table, name, contenders, args.repeat)
    ratios = report(results)
    when = datetime.now(UTC)
    record = {
        "when": when.isoformat(timespec="seconds"),
        "scale": args.scale,
        "repeat": args.repeat,
        "machine": machine(),
        "versions": versions(),
        "results": [asdict(one) for one in results],
        "ratios": ratios,
    }
    path = ROOT / "benchmarks/results" / f"{when:%Y-%m-%d-%H%M%S}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{path.relative_to(ROOT)}")
    ours = [one for one in results if one.contender == OURS and (one.wrong or not one.costs)]
    if ours:
        sys.exit("cuETL's output is not what the database holds: " + "; ".join(ours[0].wrong))


if __name__ == "__main__":
    main()
