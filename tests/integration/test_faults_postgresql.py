"""Faults during a run on a real server: the whole dataset of one moment, or a clear end with nothing published."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from connectors.base import CutWish, Query
from connectors.postgresql.wire import stream
from etl.core.errors import StoreUnavailable
from etl.planning.jobs import Job, Reading, Write
from etl.run import runner
from etl.tensors.options import WriteOptions
from tests.command import cuetl, one_paragraph
from tests.faults import READERS, end, leftovers, manifest, meanwhile, running, sessions, until
from tests.reading_postgresql import endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fix_proxy import Proxy
    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")

ROWS = 12_000
BIG = f"create table big as select g id, 0 v, repeat('y', 2000) filler from generate_series(1, {ROWS}) g"
EXPORT = ("--table", "big", "--to", "out", "--format", "parquet", "--partitions", "4")


def ids(dataset: Path) -> list[int]:
    return sorted(column(dataset, "id"))


def column(dataset: Path, name: str) -> list[Any]:
    return list(pq.read_table(dataset, columns=[name]).column(name).to_pylist())


def whole(dataset: Path) -> bool:
    return ids(dataset) == list(range(1, ROWS + 1))


def slowed(proxy_to: Callable[[str, int], Proxy], db: PostgresDatabase, rate: int = 4 << 20) -> Proxy:
    proxy = proxy_to(db.server.host, db.server.port)
    proxy.bytes_per_second = rate
    return proxy


def test_sql_37_a_part_killed_once_is_read_again_alone(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)
    with running("export", proxy.url(pgdb.url), *EXPORT, cwd=tmp_path) as run:
        (pid, *_), *_ = until(lambda: sessions(pgdb, READERS))
        time.sleep(0.4)
        assert end(pgdb, f"pid = {pid}") == 1
        done = run.done()
    assert done.code == 0, done.err
    assert whole(tmp_path / "out")
    parts = manifest(tmp_path / "out")["partitions"]
    assert sorted(p["attempts"] for p in parts) == [1, 1, 1, 2]
    assert leftovers(tmp_path) == ["out"]


def test_sql_37_a_part_killed_at_every_attempt_ends_the_run(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.run.state.FIRST_WAIT_SECONDS", 0.2)
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)
    last = f"{READERS} and query like '%,0)%' and query not like '% and %'"  # one end of the table: one part
    old = f"{last} and clock_timestamp() - query_start > interval '0.4 s'"
    job = Job(
        Reading(endpoint(proxy.url(pgdb.url)), Query(table="big", run_id="killed"), CutWish(partitions=4), "big"),
        (Write(str(tmp_path / "out"), "parquet", WriteOptions(), "create"),),
    )
    with meanwhile(lambda: end(pgdb, old)), pytest.raises(StoreUnavailable) as caught:
        runner.run([job], run_id="killed")
    said = str(caught.value)
    place = r"part \d of 4 \(pages .*\) of table big, connection pg, attempt 4, given up after 4 attempts: .*"
    assert re.match(place + r"after (row \d+|[\d ]+ rows) of the part", said)
    assert "57P01" in said
    assert leftovers(tmp_path) == []
    assert until(lambda: not sessions(pgdb), 5)


def test_sql_38_a_network_that_breaks_costs_an_attempt(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    with running("export", proxy.url(pgdb.url), *EXPORT, cwd=tmp_path) as run:
        proxy.cut_after = 3 << 20
        proxy.cuts = 2
        done = run.done()
    assert done.code == 0, done.err
    assert whole(tmp_path / "out")
    assert proxy.cut_count == 2
    assert sum(p["attempts"] for p in manifest(tmp_path / "out")["partitions"]) == 6


HOLDER = "application_name like 'cuetl:%' and state = 'idle in transaction'"


@contextlib.contextmanager
def changing(db: PostgresDatabase) -> Iterator[None]:
    """Every transaction adds 1 in `big`, new rows too, and 1 in `tick`: they agree in every moment."""
    db.sql("create table tick(n int)", "insert into tick values (0)")
    with psycopg.connect(db.url, autocommit=True) as link:

        def change() -> None:
            with link.transaction():
                link.execute("update big set v = v + 1 where id = (select n % 1000 + 1 from tick)")
                link.execute(f"insert into big select {ROWS} + n / 2 + 1, 1, repeat('z', 2000) from tick")
                link.execute("update tick set n = n + 2")

        with meanwhile(change, 0.01):
            yield


def one_moment(folder: Path) -> None:
    """The two tables of `changing` agree, and no row is missing or doubled."""
    (n,) = column(folder / "tick", "n")
    assert sum(column(folder / "big", "v")) == n
    assert ids(folder / "big") == list(range(1, ROWS + n // 2 + 1))


def test_sql_82_without_its_exporter_a_run_begins_again_on_a_new_snapshot(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG, "alter table big add primary key (id)")
    proxy = slowed(proxy_to, pgdb)
    tables = ("--table", "big", "--table", "tick", "--to", "out", "--format", "parquet", "--partitions", "4")
    with changing(pgdb), running("export", proxy.url(pgdb.url), *tables, "--json", cwd=tmp_path) as run:
        until(lambda: sessions(pgdb, READERS))
        assert end(pgdb, HOLDER) >= 1
        done = run.done()
    assert done.code == 0, done.err
    one_moment(tmp_path / "out")
    big, tick = (manifest(tmp_path / "out" / name) for name in ("big", "tick"))
    assert big["snapshots"]["big"] == tick["snapshots"]["tick"]
    assert [w["code"] for w in big["warnings"]].count("new-snapshot") == 1
    assert leftovers(tmp_path) == ["out"]


@pytest.mark.slow
def test_sql_82_a_snapshot_lost_three_times_ends_the_run(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)

    def lose() -> None:
        if sessions(pgdb, READERS):
            end(pgdb, HOLDER)

    with running("export", proxy.url(pgdb.url), *EXPORT, cwd=tmp_path) as run, meanwhile(lose):
        done = run.done()
    assert done.code == 1, done.out
    said = one_paragraph(done.err)
    assert "the snapshot was lost 3 times" in said
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("during", ["opening", "planning", "reading", "counting"])
def test_sql_80_a_stop_leaves_nothing(
    tmp_path: Path,
    pgdb: PostgresDatabase,
    proxy_to: Callable[[str, int], Proxy],
    during: str,
    number: signal.Signals,
) -> None:
    pgdb.sql(
        BIG,
        "create function slow() returns int immutable language plpgsql as 'begin perform pg_sleep(600); return 1; end'",
        "create function slow(int) returns int immutable language plpgsql as"
        " 'begin if $1 = 5 then perform pg_sleep(600); end if; return $1; end'",
        "create function counted(int) returns bool stable language plpgsql as $$ begin"
        " if $1 = 5 and current_query() like '%count(*)%' then perform pg_sleep(600); end if; return true; end $$",
    )
    proxy = slowed(proxy_to, pgdb, 1 << 20)
    busy = "application_name like 'cuetl:%' and state = 'active'"
    arguments, seen = {
        "opening": (("--sql", "select slow() as a"), busy),
        "planning": (("--sql", "select slow(id) as a from big", "--partition-column", "a", "--partitions", "4"), busy),
        "reading": (("--table", "big", "--partitions", "4"), READERS),
        "counting": (
            ("--sql", "select id, filler from big where counted(id)", "--partition-column", "id", "--partitions", "2"),
            f"{busy} and query like '%count(*)%' and query not like '%copy (%'",
        ),
    }[during]
    with running("export", proxy.url(pgdb.url), *arguments, "--to", "out", "--format", "parquet", cwd=tmp_path) as run:
        until(lambda: sessions(pgdb, seen))
        time.sleep(0.5)
        begun = time.monotonic()
        run.send(number)
        done = run.done(20)
        took = time.monotonic() - begun
        until(lambda: not sessions(pgdb), 2)
        assert run.left() == []
    assert (done.code, done.out) == (130, "")
    assert "nothing was published" in done.err.lower()
    assert took < 15
    assert leftovers(tmp_path) == []


def test_a_run_that_is_killed_leaves_no_session_and_the_next_run_cleans_up(
    tmp_path: Path, pgdb: PostgresDatabase
) -> None:
    pgdb.sql(BIG)
    slow = ("--sql", "select id, filler, pg_sleep(0.002)::text from big", *EXPORT[2:6])
    with running("export", pgdb.url, *slow, cwd=tmp_path) as run:
        until(lambda: sessions(pgdb, READERS) and leftovers(tmp_path))
        run.send(signal.SIGKILL)
        assert run.done().code == -signal.SIGKILL
        until(lambda: not sessions(pgdb), 15)
    assert [name.startswith(".out.cuetl-") for name in leftovers(tmp_path)] == [True]
    assert cuetl("export", pgdb.url, *EXPORT, cwd=tmp_path).code == 0
    assert whole(tmp_path / "out")
    assert leftovers(tmp_path) == ["out"]


@pytest.mark.slow
def test_a_query_whose_run_was_killed_ends_on_the_server(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    if pgdb.major < 14:
        pytest.skip("a server before version 14 looks at its client only when it writes")
    with running("export", pgdb.url, "--sql", "select pg_sleep(600), 1 a", "--to", "out", cwd=tmp_path) as run:
        until(lambda: sessions(pgdb, READERS))
        run.send(signal.SIGKILL)
        run.done()
        until(lambda: not sessions(pgdb), 15)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_stop_while_publishing_leaves_all_or_nothing(
    tmp_path: Path, pgdb: PostgresDatabase, number: signal.Signals
) -> None:
    pgdb.sql("create table t as select g id from generate_series(1, 1000) g")
    targets = [word for name in "abc" for word in ("--to", name, "--format", "parquet")]
    for trial in range(4):
        folder = tmp_path / str(trial)
        folder.mkdir()
        with running("export", pgdb.url, "--table", "t", *targets, cwd=folder) as run:
            # The files of a part are there for a moment only: where they were missed, the stop comes at the switch.
            seen = (".a.cuetl-*/*.parquet", "a")[trial % 2 :]
            until(lambda folder=folder, seen=seen: any(list(folder.glob(one)) for one in seen), 60)  # type: ignore[misc]
            run.send(number)
            done = run.done(20)
        published = leftovers(folder)
        assert (done.code, published) in ((130, []), (0, ["a", "b", "c"])), done.err


def test_no_more_sessions_are_opened_than_asked(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]
) -> None:
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)
    at = psycopg.conninfo.conninfo_to_dict(pgdb.url)
    (tmp_path / "cuetl.toml").write_text(
        f'[connections.db]\nurl = "postgresql://{at["user"]}@127.0.0.1:{proxy.port}/{at["dbname"]}"\n'
        f'password = "${{env:PW}}"\nmax_connections = 4\n'
    )
    most: list[int] = []
    arguments = ("export", "db", *EXPORT[:-1], "8", "--workers", "8")
    with (
        running(*arguments, cwd=tmp_path, env={"PW": str(at["password"])}) as run,
        meanwhile(lambda: most.append(len(sessions(pgdb))), 0.02),
    ):
        done = run.done()
    assert done.code == 0, done.err
    assert whole(tmp_path / "out")
    assert 3 <= max(most) <= 4


@pytest.mark.slow
def test_a_server_that_takes_no_more_sessions_is_named(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        BIG,
        "create role few login password 'few' connection limit 2",
        "grant select on big to few",
    )
    url = pgdb.server.url_of(pgdb.name, user="few", password="few")
    try:
        with psycopg.connect(url), psycopg.connect(url):
            none = cuetl("export", url, *EXPORT, cwd=tmp_path)
        with psycopg.connect(url):
            one = cuetl("export", url, *EXPORT, cwd=tmp_path)
        two = cuetl("export", url, *EXPORT, cwd=tmp_path)
    finally:
        pgdb.sql("drop owned by few", "drop role few")
    for done in (none, one):
        said = one_paragraph(done.err)
        assert done.code == 1
        assert 'too many connections for role "few"' in said
        assert "max_connections" in said
    assert two.code == 0, two.err


def test_sql_37_a_slow_consumer_under_a_statement_timeout_is_told_which_setting(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.run.state.FIRST_WAIT_SECONDS", 0.2)
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)
    at = endpoint(proxy.url(pgdb.url), statement_timeout=700)
    job = Job(
        Reading(at, Query(table="big", run_id="slow"), CutWish(partitions=2), "big", count=False),
        (Write(str(tmp_path / "out"), "parquet", WriteOptions(), "create"),),
    )
    with pytest.raises(StoreUnavailable) as caught:
        runner.run([job], run_id="slow")
    said = str(caught.value)
    assert "57014" in said
    assert "statement_timeout of connection pg is 700" in said
    assert "attempt 4, given up after 4 attempts" in said
    assert leftovers(tmp_path) == []


def test_a_network_that_goes_silent_costs_an_attempt(
    tmp_path: Path, pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.run.state.FIRST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr("connectors.postgresql.connector.stream", partial(stream, stall=1.0))
    pgdb.sql(BIG)
    proxy = slowed(proxy_to, pgdb)
    job = Job(
        Reading(endpoint(proxy.url(pgdb.url)), Query(table="big", run_id="still"), CutWish(partitions=2), "big"),
        (Write(str(tmp_path / "out"), "parquet", WriteOptions(), "create"),),
    )

    def silence() -> None:
        until(lambda: sessions(pgdb, READERS))
        time.sleep(0.7)
        proxy.stall()
        time.sleep(2)
        proxy.resume()

    thread = threading.Thread(target=silence)
    thread.start()
    try:
        runner.run([job], run_id="still")
    finally:
        thread.join()
    assert whole(tmp_path / "out")
    assert max(p["attempts"] for p in manifest(tmp_path / "out")["partitions"]) > 1


SLOWLY = """
create function slowly(int) returns bool stable language plpgsql as 'begin perform pg_sleep(0.004); return true; end'
"""
"""A volatile function would keep the query in one part."""


def test_a_count_that_is_killed_once_is_made_again(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t as select g id from generate_series(1, 500) g", SLOWLY)
    slow = "select id from t where slowly(id)"
    counting = (
        "application_name like 'cuetl:%' and state = 'active' and query like '%count(*)%' and query like '%slowly%'"
        " and query not like '%window%'"
    )
    arguments = ("--sql", slow, "--partition-column", "id", "--partitions", "2", "--to", "out", "--format", "parquet")
    with running("export", pgdb.url, *arguments, "--json", cwd=tmp_path) as run:
        until(lambda: end(pgdb, counting))
        done = run.done()
    assert done.code == 0, done.err
    found = manifest(tmp_path / "out")
    assert found["rows"] == 500
    assert found["source"][0]["cut"]["whole_counted"] is True


def test_a_snapshot_lost_while_it_is_planned_is_taken_anew(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t as select g id from generate_series(1, 500) g", SLOWLY)
    slow = "select id from t where slowly(id)"
    sampling = (
        "application_name like 'cuetl:%' and state = 'active' and query like '%over w%' and query like '%slowly%'"
    )
    arguments = ("--sql", slow, "--partition-column", "id", "--partitions", "2", "--to", "out", "--format", "parquet")
    with running("export", pgdb.url, *arguments, "--json", cwd=tmp_path) as run:
        until(lambda: end(pgdb, sampling))
        done = run.done()
    assert done.code == 0, done.err
    found = manifest(tmp_path / "out")
    assert found["rows"] == 500
    assert "new-snapshot" in [w["code"] for w in found["warnings"]]
