"""What frames cost, and what a join and a group-by of whole data cost beside polars, Dask and pandas.

    python -m benchmarks.pipelines [ROWS] [--rounds N] [--json FILE] [--url URL] [--only rowwise|whole]

Row by row: the pipelines of `workloads.py` that pass rows through, derive columns in a frame, or have the server do so.
Whole: one join and one group-by over 100,000 groups. Ours reads PostgreSQL; polars, Dask and pandas read Parquet files
that hold the same rows, so that the database is in our figures alone; polars-sql reads PostgreSQL by connector-x.

Ways take turns, A B C A B C …, as whole processes; a ratio is taken within a round and its median printed, since
machines drift. The first round warms caches and is not counted. Every output of the last round is compared with what
PostgreSQL computes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg

from benchmarks import check
from benchmarks.measure import Cost, RunFailedError, measure
from benchmarks.run import PEERS_ENVIRONMENT, ROOT, ensure_peers, machine, server, versions

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS: dict[str, tuple[str, ...]] = {"rowwise": ("passed", "derived", "in_sql"), "whole": ("spending",)}
PEERS: dict[str, tuple[str, ...]] = {"rowwise": (), "whole": ("polars", "polars-sql", "dask", "pandas")}
BASE = {"rowwise": "passed", "whole": "spending"}
"""Against what the others are measured."""
EXPECTED = {"passed": "features", "derived": "derived", "in_sql": "derived"}
"""The table that holds what a way must give; all others: `spending`."""
BOUND = 1.25
"""Of `derived` by `passed`, in CPU and wall."""
SCALE_ONE = 6_001_215
GROUPS = 100_000

WHOLE = (
    "drop table if exists orders, buyers, spending",
    f"""create table orders as select i as id, (i * 7919 + i / 3) % {GROUPS} as buyer, (i * 104729) % 100000 as cents,
     (i % 9)::int as kind from generate_series(1, {{rows}}::bigint) as i""",
    "alter table orders add primary key (id)",
    f"create table buyers as select i as buyer, i % 7 + 1 as factor from generate_series(0, {GROUPS} - 1::bigint) as i",
    "alter table buyers add primary key (buyer)",
    """create table spending as select buyer, count(*) as orders, sum(cents)::int8 as cents, max(cents) as dearest,
     sum(cents * factor)::int8 as weighted from orders join buyers using (buyer) group by buyer""",
    "vacuum (freeze, analyze) orders",
    "vacuum (freeze, analyze) buyers",
)
ROWWISE = (
    "drop table if exists derived",
    """create table derived as select *, qty * price * (1 - discount::float8) as paid,
     extract(dow from shipped at time zone 'UTC')::int4 as weekday from features where qty > 2""",
)


@dataclass(slots=True)
class Way:
    """All rounds of one way."""

    kind: str
    name: str
    costs: list[Cost] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def median(self, figure: str) -> float:
        return float(statistics.median(getattr(cost, figure) for cost in self.costs))


def load(url: str, rows: int, kinds: Sequence[str]) -> None:
    """Make the tables and the results that are expected."""
    if "rowwise" in kinds:
        loader = [str(PEERS_ENVIRONMENT / "bin/python"), str(ROOT / "benchmarks/data.py"), url, str(rows / SCALE_ONE)]
        subprocess.run(loader, check=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")
        for statement in ROWWISE * ("rowwise" in kinds) + WHOLE * ("whole" in kinds):
            connection.execute(statement.replace("{rows}", str(rows)))


def copy(url: str, folder: Path) -> None:
    """Write the peers' Parquet files."""
    for table in ("orders", "buyers"):
        peers = str(ROOT / "benchmarks/peers.py")
        command = [str(PEERS_ENVIRONMENT / "bin/python"), peers, "duckdb", table, str(folder / f"{table}.parquet")]
        measure(command, env={"PGURL": url}, seconds=900)


def once(way: Way, folder: Path, out: Path, env: dict[str, str], seconds: float) -> Cost:
    if way.name in OURS[way.kind]:
        here = str(ROOT / "benchmarks/workloads.py")
        command = [
            str(Path(sys.executable).parent / "cuetl"),
            "run",
            f"{here}:{way.name}",
            "--engine",
            "cpu",
            "--quiet",
        ]
    else:
        peers = str(ROOT / "benchmarks/whole_peers.py")
        command = [str(PEERS_ENVIRONMENT / "bin/python"), peers, way.name, str(folder), str(out)]
    return measure(command, env={**env, "BENCH_OUT": str(out)}, seconds=seconds)


def rounds(kind: str, folder: Path, env: dict[str, str], number: int, seconds: float) -> list[Way]:
    """All ways of a kind in turn, `number` times after one that is not counted; the outputs of the last are checked."""
    expected = {name: check.reference(env["PGURL"], name) for name in _expected(kind)}
    ways = [Way(kind, name) for name in (*OURS[kind], *PEERS[kind])]
    for turn in range(-1, number):
        for way in ways:
            if way.wrong:
                continue
            out = folder / f"out-{way.name}"
            try:
                cost = once(way, folder, out, env, seconds)
                if turn >= 0:
                    way.costs.append(cost)
                if turn == number - 1:
                    way.wrong = check.parquet(out, *expected[EXPECTED.get(way.name, "spending")])
            except RunFailedError as failed:
                way.wrong = [str(failed)]
            finally:
                shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
    return ways


def _expected(kind: str) -> list[str]:
    return sorted({EXPECTED.get(name, "spending") for name in OURS[kind]})


def report(ways: Sequence[Way]) -> list[dict[str, Any]]:
    """Print a table for each kind; the ratios by the way that the others are measured against."""
    found: list[dict[str, Any]] = []
    for kind in dict.fromkeys(way.kind for way in ways):
        group = [way for way in ways if way.kind == kind]
        base = next(way for way in group if way.name == BASE[kind])
        print(
            f"\n{kind}\n{'':12} {'wall s':>8} {'cpu s':>8} {'peak MiB':>9}   by {base.name}: wall (min-max), cpu, peak"
        )
        for way in group:
            if not way.costs:
                print(f"{way.name:12} did not run: {' '.join(way.wrong)[:600]}")
                continue
            line = f"{way.name:12} {way.median('wall'):8.2f} {way.median('cpu'):8.2f} {way.median('peak_mib'):9.0f}"
            if way is not base and base.costs:
                by = {figure: ratio(way, base, figure) for figure in ("wall", "cpu", "peak_mib")}
                low, middle, high = by["wall"]
                line += f"   {middle:.2f} ({low:.2f}-{high:.2f}), {by['cpu'][1]:.2f}, {by['peak_mib'][1]:.2f}"
                found.append({"kind": kind, "way": way.name, "against": base.name, **by})
            print(line + (f"   NOT EXACT: {'; '.join(way.wrong)[:300]}" if way.wrong else ""))
    return found


def ratio(way: Way, base: Way, figure: str) -> tuple[float, float, float]:
    """Smallest, median and largest of the rounds."""
    pairs = zip(way.costs, base.costs, strict=False)
    each = [getattr(one, figure) / getattr(other, figure) for one, other in pairs]
    return min(each), statistics.median(each), max(each)


def main() -> None:
    """Load, run all ways in turn, check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3, help="that count (default 3)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--url", help="a PostgreSQL to use, in place of a private one; its tables are made anew")
    parser.add_argument("--keep-data", action="store_true", help="with --url: the tables are there already")
    parser.add_argument("--only", choices=sorted(OURS))
    parser.add_argument("--seconds", type=float, default=900, help="the longest that one run may take")
    asked = parser.parse_args()
    ensure_peers()
    kinds = [asked.only] if asked.only else list(OURS)
    with server(asked.url) as (url, _), tempfile.TemporaryDirectory(prefix="cuetl-bench-") as name:
        folder = Path(name)
        if not asked.keep_data:
            load(url, asked.rows, kinds)
        if "whole" in kinds:
            copy(url, folder)
        parts = urlsplit(url)
        bare = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port or 5432}"))
        env = {"PGURL": url, "BENCH_URL": bare, "PGPASSWORD": unquote(parts.password or "")}
        ways = [way for kind in kinds for way in rounds(kind, folder, env, asked.rounds, asked.seconds)]
    ratios = report(ways)
    for one in ratios:
        if one["way"] == "derived":
            worst = max(one["wall"][1], one["cpu"][1])
            print(f"\nframes cost {worst - 1:+.0%} of a pass-through run; the bound is {BOUND - 1:+.0%}, at 6 M rows")
    if asked.json:
        record = {"rows": asked.rows, "rounds": asked.rounds, "machine": machine(), "versions": versions(),
                  "ways": [asdict(way) for way in ways], "ratios": ratios}  # fmt: skip
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    if any(way.wrong for way in ways if way.name in OURS[way.kind]):
        sys.exit("what a pipeline gave is not what the database computes")


if __name__ == "__main__":
    main()
