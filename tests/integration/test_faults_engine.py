"""Workers that die, schedulers that are not there, and targets that cannot all be published."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.command import cuetl, one_paragraph
from tests.faults import READERS, leftovers, running, sessions, until
from tests.servers import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_proxy import Proxy
    from tests.servers.postgresql import PostgresDatabase

ROWS = 12_000
BIG = f"create table big as select g id, repeat('y', 2000) filler from generate_series(1, {ROWS}) g"


def ids(dataset: Path) -> list[int]:
    return sorted(int(str(one)) for one in pq.read_table(dataset, columns=["id"]).column("id").to_pylist())


def children(pid: int) -> list[tuple[int, str]]:
    """Processes below a process: number and command line."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found: list[tuple[int, str]] = []
    above = {pid}
    while above:
        new = [(int(one), args) for one, parent, args in rows if int(parent) in above]
        found += new
        above = {one for one, _ in new}
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file in WAL mode whose export takes some seconds."""
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as link, link:
        link.execute("pragma journal_mode = wal")
        link.execute("create table big(id integer primary key, v integer not null, filler text not null)")
        link.execute(
            "with recursive g(i) as (select 1 union all select i + 1 from g where i < 400000)"
            " insert into big select i, 0, printf('%0200d', i) from g"
        )
    return path


@pytest.mark.parametrize("changed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_dead_worker_process_costs_an_attempt(tmp_path: Path, file: Path, *, changed: bool) -> None:
    arguments = ("--table", "big", "--to", "out", "--format", "parquet", "--partitions", "8", "--workers", "2")
    with running("export", f"sqlite:///{file}", *arguments, "--json", cwd=tmp_path) as run:
        until(lambda: list(tmp_path.glob(".out.cuetl-*/*")))
        if changed:
            with contextlib.closing(sqlite3.connect(file)) as link, link:
                link.execute("update big set v = 1")
        worker = [pid for pid, args in children(run.process.pid) if "multiprocessing" in args and "tracker" not in args]
        assert worker
        os.kill(worker[-1], signal.SIGKILL)
        done = run.done()
        assert run.left() == []
    assert done.code == 0, done.err
    assert ids(tmp_path / "out") == list(range(1, 400_001))
    values = set(pq.read_table(tmp_path / "out", columns=["v"]).column("v").to_pylist())
    assert len(values) == 1, "rows of two moments"
    assert {name for name in leftovers(tmp_path) if name.startswith((".out", "out"))} == {"out"}


@contextlib.contextmanager
def dask(tmp_path: Path, workers: int, env: dict[str, str]) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers as somebody else runs them."""
    port = process.free_port()
    address = f"tcp://127.0.0.1:{port}"
    quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    place = {**{k: v for k, v in os.environ.items() if not k.startswith(("CUETL_", "PG"))}, **env}
    tool = str(Path(sys.executable).with_name("dask"))
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            one = subprocess.Popen(
                [tool, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tmp_path,
                env=place,
            )
            stack.callback(one.wait)
            stack.callback(one.kill)
            return one

        start("scheduler", "--host", "127.0.0.1", "--port", str(port), *quiet)
        hands = [
            start(
                "worker", address, "--host", "127.0.0.1", "--no-nanny", "--nthreads", "1", "--memory-limit", "0", *quiet
            )
            for _ in range(workers)
        ]
        yield address, hands


def configured(tmp_path: Path, url: str) -> dict[str, str]:
    """A connection `db` in cuetl.toml; the environment that holds its password."""
    at = psycopg.conninfo.conninfo_to_dict(url)
    (tmp_path / "cuetl.toml").write_text(
        f'[connections.db]\nurl = "postgresql://{at["user"]}@{at["host"]}:{at["port"]}/{at["dbname"]}"\n'
        'password = "${env:FAR_PASSWORD}"\n'
    )
    return {"FAR_PASSWORD": str(at["password"])}


REMOTE = ("--table", "big", "--format", "parquet", "--partitions", "4")


@pytest.mark.slow
def test_a_scheduler_of_somebody_else_reads_and_a_worker_killed_there_costs_an_attempt(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    env = configured(tmp_path, proxy.url(pgdb.url))
    with dask(tmp_path, 2, env) as (address, workers):
        time.sleep(4)  # the scheduler and its workers come up
        good = cuetl("export", "db", *REMOTE, "--to", "out", "--engine", address, "--json", cwd=tmp_path, env=env)
        assert good.code == 0, good.err
        assert ids(tmp_path / "out") == list(range(1, ROWS + 1))
        refused = cuetl("export", pgdb.url, *REMOTE, "--to", "out2", "--engine", address, cwd=tmp_path)
        assert refused.code == 2
        assert "password typed in a URL" in one_paragraph(refused.err)
        proxy.bytes_per_second = 3 << 20
        with running(
            "export", "db", *REMOTE, "--to", "out3", "--engine", address, "--json", cwd=tmp_path, env=env
        ) as run:
            until(lambda: len(sessions(pgdb, READERS)) >= 1)
            time.sleep(0.5)
            workers[0].kill()
            done = run.done()
        assert done.code == 0, done.err
        assert ids(tmp_path / "out3") == list(range(1, ROWS + 1))
    assert [name for name in leftovers(tmp_path) if "cuetl-" in name] == []


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_or_has_no_workers_is_refused(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table big(id int)", "insert into big values (1)")
    env = configured(tmp_path, pgdb.url)
    port = process.free_port()
    begun = time.monotonic()
    nobody = cuetl("export", "db", *REMOTE, "--to", "x", "--engine", f"tcp://127.0.0.1:{port}", cwd=tmp_path, env=env)
    assert (nobody.code, time.monotonic() - begun < 20) == (1, True)
    assert f"no Dask scheduler answered at tcp://127.0.0.1:{port}" in one_paragraph(nobody.err)
    with dask(tmp_path, 0, env) as (address, _):
        time.sleep(2)
        empty = cuetl("export", "db", *REMOTE, "--to", "x", "--engine", address, cwd=tmp_path, env=env)
    assert empty.code == 1
    assert "has no workers" in one_paragraph(empty.err)
    assert not (tmp_path / "x").exists()


def test_several_targets_of_one_read_are_all_published_or_the_error_says_which(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    proxy.bytes_per_second = 6 << 20
    targets = ("--to", "a", "--format", "parquet", "--to", "b", "--format", "parquet")
    with running("export", proxy.url(pgdb.url), "--table", "big", *targets, cwd=tmp_path) as run:
        until(lambda: sessions(pgdb, READERS))
        other = cuetl("export", pgdb.url, "--sql", "select 1 id", "--to", "b", "--format", "parquet", cwd=tmp_path)
        assert other.code == 0, other.err
        done = run.done()
    assert done.code == 1
    assert leftovers(tmp_path) == ["b"], "one target of two was published"
    assert ids(tmp_path / "b") == [1]
    assert re.search("another run published version 1 of .*b", done.err)


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_run_as_failed(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    proxy.bytes_per_second = 3 << 20
    env = configured(tmp_path, proxy.url(pgdb.url))
    with dask(tmp_path, 1, env) as (address, _):
        time.sleep(4)  # the scheduler and its worker come up
        with running("export", "db", *REMOTE, "--to", "out", "--engine", address, cwd=tmp_path, env=env) as run:
            until(lambda: sessions(pgdb, READERS))
            port = address.rpartition(":")[2]
            listed = subprocess.run(["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True).stdout
            (scheduler,) = [line.split()[0] for line in listed.splitlines() if f"--port {port}" in line]
            os.kill(int(scheduler), signal.SIGKILL)
            begun = time.monotonic()
            done = run.done(40)
            assert time.monotonic() - begun < 30
    assert done.code == 1, done.err
    assert "scheduler" in one_paragraph(done.err)
    assert leftovers(tmp_path) == ["cuetl.toml"]
    until(lambda: not sessions(pgdb), 15)
