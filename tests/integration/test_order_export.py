"""Exports in a global order, by the command: the same files from any cut, on threads and processes, through faults."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.measure import measure
from etl.tensors.dataset import open_dataset
from tests.cases.exporting import Exports
from tests.faults import leftovers, running, until
from tests.integration.test_faults_engine import children
from tests.integration.test_memory_bound import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

ROWS = 9000


def files(out: Path) -> list[tuple[str, int, str]]:
    """Split, rows and hash of every file and of the text beside it, in order."""
    return [
        (one.split, one.rows, one.sha256 + (one.text_file.sha256 if one.text_file else ""))
        for one in open_dataset(out, verify="sha256").manifest.files
    ]


def ids(out: Path, split: str = "all") -> list[int]:
    found: list[int] = []
    for one in open_dataset(out).split(split).files:
        found += load_file(out / one.path)["id"].tolist()
    return found


@pytest.fixture
def shop(tmp_path: Path, pgdb: PostgresDatabase) -> Exports:
    pgdb.sql(
        "create type mood as enum ('sad', 'ok', 'a')",
        "create table orders as select g::bigint id, (g * 7919) % 1003 as item, g / 3.0::float8 price, "
        "case when g % 5 = 0 then null else 'row ' || g end note, (g % 3 = 0) ok, "
        "(case g % 4 when 0 then 'ok' when 1 then 'a' when 2 then 'sad' end)::mood mood, "
        f"timestamptz '2026-01-01 00:00:00+00' + g * interval '1 hour' as at from generate_series(1, {ROWS}) g",
        "alter table orders alter id set not null",
        "analyze orders",
    )
    return Exports(tmp_path, pgdb.url)


@pytest.mark.parametrize(
    ("fmt", "flags"),
    [
        ("safetensors", ("--key", "id", "--shuffle", "7", "--split", "train=0.9,val=0.1", "--split-key", "item")),
        ("parquet", ("--key", "item,id", "--order", "key")),
        ("safetensors", ("--key", "ok", "--order", "key")),
        ("safetensors", ("--key", "mood,at", "--order", "key")),
        ("safetensors", ("--shuffle", "7")),
    ],
    ids=["shuffled", "by-key", "by-ties", "by-enum", "by-rows"],
)
def test_one_and_thirteen_parts_of_a_real_table_give_the_same_files(
    shop: Exports, fmt: str, flags: tuple[str, ...]
) -> None:
    words = ("--table", "orders", "--format", fmt, "--partition-bytes", "64KiB", *flags)
    shop.done(*words, "--partitions", "1", to="one")
    done = shop.done(*words, "--partitions", "13", "--partition-column", "id", "--workers", "1", to="many")
    assert done["partitions"] == 13
    assert files(shop.home / "one") == files(shop.home / "many")
    assert open_dataset(shop.home / "many").manifest.rows == ROWS
    if flags[1] == "mood,at":
        moods = np.concatenate([load_file(p)["mood"] for p in sorted((shop.home / "many").glob("*.safetensors"))])
        assert moods.tolist() == sorted(moods[: ROWS * 3 // 4].tolist()) + [0] * (ROWS // 4), (
            "declared order, NULL last"
        )


def test_the_plan_says_the_order_and_the_disk_that_it_needs(shop: Exports) -> None:
    done = shop.done("--table", "orders", "--key", "id", "--order", "key", "--plan")
    (target,) = done["targets"]
    assert target["order"] == "key"
    assert target["disk"] == done["bytes"] > 0
    refused = shop.refused("--table", "orders", "--order", "key", code=2)
    assert "--order key needs --key" in refused


SQLITE_ROWS = 80_000


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A SQLite file: its rows are read in worker processes."""
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as link, link:
        link.execute("create table big(id integer primary key, filler text not null)")
        link.execute(
            f"with recursive g(i) as (select 1 union all select i + 1 from g where i < {SQLITE_ROWS})"
            " insert into big select i, printf('%080d', i) from g"
        )
    return f"sqlite:///{tmp_path}/shop.db"


SHUFFLED = ("--table", "big", "--key", "id", "--shuffle", "7", "--partition-bytes", "1KiB")
PROCESSES = ("--partitions", "6", "--workers", "2")


def test_threads_and_processes_give_the_same_files_and_a_worker_lost_while_ordering_costs_an_attempt(
    tmp_path: Path, database: str
) -> None:
    Exports(tmp_path, database).done(*SHUFFLED, "--partitions", "1", to="threads")
    with running("export", database, *SHUFFLED, *PROCESSES, "--to", "out", "--json", cwd=tmp_path) as run:
        until(lambda: list(tmp_path.glob(".out.cuetl-*/*-m00003.*")), 90)
        worker = [pid for pid, args in children(run.process.pid) if "multiprocessing" in args and "tracker" not in args]
        os.kill(worker[-1], signal.SIGKILL)
        done = run.done()
        assert run.left() == []
    assert done.code == 0, done.err
    assert files(tmp_path / "out") == files(tmp_path / "threads")
    assert len(files(tmp_path / "out")) == -(-SQLITE_ROWS // 4096)
    order: Any = open_dataset(tmp_path / "out").manifest.document["order"]
    assert 1e-4 < order["source_mix_p"] <= 1.0
    found = ids(tmp_path / "out")
    assert np.array_equal(np.sort(found), np.arange(1, SQLITE_ROWS + 1))
    assert [name for name in leftovers(tmp_path) if "cuetl-" in name] == []
    assert {p.suffix for p in (tmp_path / "out").iterdir() if p.is_file()} == {".safetensors", ".json"}


@pytest.mark.slow
def test_a_stop_while_rows_are_put_in_order_leaves_nothing(tmp_path: Path, database: str) -> None:
    with running("export", database, *SHUFFLED, *PROCESSES, "--to", "out", cwd=tmp_path) as run:
        until(lambda: list(tmp_path.glob(".out.cuetl-*/*-m00003.*")), 90)
        run.send(signal.SIGINT)
        done = run.done()
        assert run.left() == []
    assert done.code == 130, done.err
    assert [name for name in leftovers(tmp_path) if "out" in name] == []


BOUND_MIB = 2 * (8 + 5 * 4 + 2 * 64) + 96
"""Above the base for two readers and files of 16 MiB: batches on their way, and a run with its sorted pieces (64 MiB at
most) or a file with the rows it is made of, twice each; blocks for the next files."""


@pytest.mark.slow
def test_memory_of_an_ordered_export_is_bounded_by_runs_and_files_in_flight(
    tmp_path: Path, pgdb: PostgresDatabase
) -> None:
    rows = 5_000_000
    pgdb.sql(TABLE.format(name="small", rows=1000), TABLE.format(name="large", rows=rows), "analyze large")
    assert pgdb.sql("select pg_relation_size('large')")[0][0] > 1.2 * BOUND_MIB * 2**20

    def peak(table: str, to: str) -> float:
        url = pgdb.url.replace(f":{pgdb.password}@", "@")
        words = ("--table", table, "--to", str(tmp_path / to), "--key", "id", "--shuffle", "7")
        command = [sys.executable, "-m", "etl.cli.main", "export", url, *words, "--partition-bytes", "16MiB", "--quiet"]
        return measure([*command, "--workers", "1"], env={"PGPASSWORD": pgdb.password}, seconds=280).peak_mib

    peak("small", "first")  # the decoder may have to be compiled, once
    base = peak("small", "small")
    assert 30 < base < 400
    most = peak("large", "large")
    assert most - base < BOUND_MIB, f"base {base:.0f} MiB, peak {most:.0f} MiB"
    assert open_dataset(tmp_path / "large").manifest.rows == rows
