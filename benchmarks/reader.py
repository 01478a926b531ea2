"""The PostgreSQL reader alone against the COPY floor: `python -m benchmarks.reader URL TABLE [READERS] [ROUNDS]`.

The reader decodes every part of the table into Arrow and drops the batches; the floor copies the same page ranges to
nowhere with psql's own client. Both in turn, each as a whole process; the ratio is taken within a round.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.measure import Cost, measure
from connectors import registry
from connectors.base import CutWish, Query, Tally
from etl.planning.cut import cut
from etl.settings import endpoint


def read(url: str, table: str, readers: int) -> None:
    """Read all parts with so many threads, and print rows, bytes and seconds."""
    source = registry.connector("postgresql").source(endpoint(url), Query(table=table, run_id="bench"))
    with source.snapshot(attach_all=print) as at:
        schema = source.schema(at)
        wish = CutWish(readers=readers)
        parts = cut(source.facts(at, wish, sample=True), wish).parts
        started = time.monotonic()

        def one(index: int) -> Tally:
            tally = Tally()
            for batch in source.read(at, parts[index], schema=schema, batch_bytes=4 << 20, tally=tally):
                del batch
            return tally

        with ThreadPoolExecutor(readers) as threads:
            tallies = list(threads.map(one, range(len(parts))))
        seconds = time.monotonic() - started
    received = sum(t.received for t in tallies)
    rows = sum(t.rows for t in tallies)
    print(f"{rows} rows, {received / 1e9:.2f} GB, {seconds:.2f} s, {received / seconds / 1e9:.2f} GB/s")


def main(arguments: list[str]) -> None:
    """Run both in turn and print their cost and ratio."""
    if arguments[0] == "--read":
        read(arguments[1], arguments[2], int(arguments[3]))
        return
    url, table = arguments[:2]
    readers = arguments[2] if len(arguments) > 2 else "2"
    rounds = int(arguments[3]) if len(arguments) > 3 else 5
    environment = {**os.environ, "PGURL": url, "PSQL": shutil.which("psql") or "psql"}
    commands = {
        "reader": [sys.executable, "-m", "benchmarks.reader", "--read", url, table, readers],
        "floor": [sys.executable, "benchmarks/peers.py", f"floor-{readers}", table, ""],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(measure(command, env=environment, seconds=600))
    for name, row in costs.items():
        wall, cpu = (statistics.median(getattr(c, name) for c in row) for name in ("wall", "cpu"))
        print(f"{name:7} wall {wall:6.2f} s   client CPU {cpu:6.2f} s")
    ratios = [a.wall / b.wall for a, b in zip(costs["reader"], costs["floor"], strict=True)]
    print(f"reader/floor wall {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main(sys.argv[1:])
