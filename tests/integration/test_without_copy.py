"""Servers that speak PostgreSQL's protocol and refuse COPY in binary: the same rows, read through a portal."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.base import Tally
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.wire import ServerError, stream
from etl.core.errors import DataError
from tests.cases.exporting import Exports
from tests.faults import until
from tests.fix_proxy import POOLED
from tests.integration import test_random_tables as random_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.fix_proxy import Proxy
    from tests.servers.postgresql import PostgresDatabase, PostgresServer

WORDS = (
    "the server refuses COPY in binary (unimplemented: this syntax (SQLSTATE 0A000)): rows are read through a portal"
)
moods = random_tables.moods
INT = ColumnPlan("a", Kind.INT4, pa.int32())
TEXT = ColumnPlan("v", Kind.TEXT, pa.string())


@pytest.fixture
def refusing(pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy]) -> Proxy:
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    proxy.refuses = b"copy"
    return proxy


def rows(
    url: str, sql: str, plans: list[ColumnPlan], tally: Tally, **options: Any
) -> Generator[pa.RecordBatch, None, None]:
    schema = pa.schema([pa.field(p.name, p.type) for p in plans])
    yield from stream(psycopg.connect(url), sql, plans, schema, tally=tally, portal=True, **options)


def test_a_refusal_is_found_by_a_run_and_said(tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy) -> None:
    pgdb.sql("create table t(id int primary key, v text)")
    pgdb.sql("insert into t select g, repeat('x', g % 300) from generate_series(1, 40000) g")
    exports = Exports(tmp_path, refusing.url(pgdb.url))
    report = exports.done("--table", "t", "--format", "parquet", "--partitions", "5")
    assert refusing.refused >= 1
    assert report["rows"] == 40000
    assert report["partitions"] == 5
    assert [w["text"] for w in report["warnings"]] == [WORDS]
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert table.column("id").to_pylist() == list(range(1, 40001))
    assert table.column("v").to_pylist() == ["x" * (g % 300) for g in range(1, 40001)]


def test_a_refusal_is_named_by_the_plan(tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy) -> None:
    pgdb.sql("create table t(id int primary key)")
    said = Exports(tmp_path, refusing.url(pgdb.url)).done("--table", "t", "--plan")
    assert said["notes"] == [WORDS]
    assert refusing.refused == 1
    assert not (tmp_path / "out").exists()


def test_an_error_in_the_rows_is_the_servers_own(tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy) -> None:
    pgdb.sql("create view v as select g as id, 1 / (5000 - g) as q from generate_series(1, 9000) g")
    said = Exports(tmp_path, refusing.url(pgdb.url)).refused("--table", "v")
    assert "division by zero (SQLSTATE 22012)" in said


def test_neither_a_shared_snapshot_nor_copy_is_one_part_that_is_whole(
    tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy
) -> None:
    role = f"r_{pgdb.name}"
    pgdb.sql(
        "create table t(id int primary key, v text)",
        "insert into t select g, repeat('x', g % 300) from generate_series(1, 20000) g",
        f"create role {role} login password 'w'",
        f"grant select on t to {role}",
        "revoke execute on function pg_export_snapshot() from public",
    )
    try:
        url = refusing.url(pgdb.server.url_of(pgdb.name, user=role, password="w"))
        wish = ("--table", "t", "--format", "parquet", "--partitions", "4")
        plan = Exports(tmp_path, url).done(*wish, "--plan")
        report = Exports(tmp_path, url).done(*wish)
    finally:
        pgdb.sql(f"drop owned by {role}", f"drop role {role}")
    assert (len(plan["partitions"]), plan["reason"], plan["notes"]) == (1, "no-snapshot", [WORDS])
    assert (report["partitions"], report["rows"]) == (1, 20000)
    assert sorted(w["code"] for w in report["warnings"]) == ["no-snapshot", "note"]
    assert pq.read_table(tmp_path / "out").sort_by("id").column("v").to_pylist() == [
        "x" * (g % 300) for g in range(1, 20001)
    ]


def test_a_part_that_loses_its_session_is_read_again_through_a_portal(
    tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy
) -> None:
    pgdb.sql("create table t as select g id, repeat('y', 2000) v from generate_series(1, 6000) g")
    refusing.cut_after, refusing.cuts = 2 << 20, 1
    wish = ("--table", "t", "--format", "parquet", "--partitions", "3")
    assert Exports(tmp_path, refusing.url(pgdb.url)).done(*wish)["rows"] == 6000
    assert refusing.cut_count >= 1
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert table.column("id").to_pylist() == list(range(1, 6001))


@pytest.mark.parametrize("wish", [("--table", "t"), ("--sql", "select id from t")])
def test_a_pool_that_takes_no_transaction_is_named_and_what_to_set(
    tmp_path: Path, pgdb: PostgresDatabase, refusing: Proxy, wish: tuple[str, ...]
) -> None:
    pgdb.sql("create table t(id int primary key)")
    refusing.refuses, refusing.refusal = b"begin", POOLED
    said = Exports(tmp_path, refusing.url(pgdb.url)).refused(*wish)
    assert "transaction blocks not allowed in statement pooling mode (SQLSTATE 08P01)" in said
    assert "set pool_mode = transaction" in said
    assert refusing.refused <= 3


PHASES = (Phase.explicit, Phase.generate)
FEW = settings(max_examples=8, phases=PHASES, suppress_health_check=list(HealthCheck))


@FEW
@given(data=st.data())
def test_any_table_is_the_same_without_copy(
    moods: PostgresDatabase, proxy_to: Callable[[str, int], Proxy], data: st.DataObject
) -> None:
    table = data.draw(random_tables.tables(random_tables.TYPES), label="table")
    proxy = proxy_to(moods.server.host, moods.server.port)
    proxy.refuses = b"copy"
    with random_tables.connected(moods) as link, tempfile.TemporaryDirectory() as at:
        random_tables.make(link, table)
        wish = ["--table", "r", "--format", "parquet", *random_tables.how(data, table)]
        found = []
        for name, url in (("copy", moods.url), ("portal", proxy.url(moods.url))):
            Exports(Path(at), url).done(*wish, to=name)
            found.append(pq.read_table(Path(at) / name).sort_by("id"))
        assert proxy.refused
    assert found[0].schema == found[1].schema
    assert found[0].equals(found[1]) or random_tables.plain(found[0].to_pydict()) == random_tables.plain(
        found[1].to_pydict()
    )


@pytest.mark.parametrize("block", [64, 1 << 10, 1 << 19])
def test_rows_of_a_portal_are_whole_for_any_block(pg: PostgresServer, block: int) -> None:
    sql = "select case when g % 7 > 0 then g end a, repeat('é', g % 997) v from generate_series(1, 5000) g"
    tally = Tally()
    found = pa.Table.from_batches(list(rows(pg.url, sql, [INT, TEXT], tally, block_bytes=block, batch_bytes=1 << 16)))
    assert tally.rows == tally.counted == 5000
    assert tally.how == "socket, portal"
    assert found.column("a").to_pylist() == [g if g % 7 else None for g in range(1, 5001)]
    assert found.column("v").to_pylist() == ["é" * (g % 997) for g in range(1, 5001)]


@pytest.mark.parametrize("count", [1024, 4096, 5000])
def test_rows_of_a_portal_under_tls(pg_tls: PostgresServer, count: int) -> None:
    sql = f"select case when g % 7 > 0 then g end a, repeat('é', g % 97) v from generate_series(1, {count}) g"
    tally = Tally()
    found = pa.Table.from_batches(list(rows(pg_tls.url, sql, [INT, TEXT], tally)))
    assert tally.rows == tally.counted == count
    assert tally.how == "libpq, portal"
    assert found.column("a").to_pylist() == [g if g % 7 else None for g in range(1, count + 1)]
    assert found.column("v").to_pylist() == ["é" * (g % 97) for g in range(1, count + 1)]


@pytest.mark.parametrize("fixture", ["pg", "pg_tls"])
def test_no_rows_errors_and_columns_that_changed(request: pytest.FixtureRequest, fixture: str) -> None:
    server: PostgresServer = request.getfixturevalue(fixture)
    tally = Tally()
    assert sum(batch.num_rows for batch in rows(server.url, "select 1 a where false", [INT], tally)) == 0
    assert tally.counted == 0
    with pytest.raises(ServerError, match="22012"):
        list(rows(server.url, "select 1 / (g - 3000) a from generate_series(1, 5000) g", [INT], Tally()))
    with pytest.raises(DataError, match="1 fields, 2 were expected"):
        list(rows(server.url, "select 1 a", [INT, TEXT], Tally()))
    with pytest.raises(DataError, match="no rows"):
        list(rows(server.url, "set application_name = 'x'", [INT], Tally()))


@pytest.mark.parametrize("fixture", ["pg", "pg_tls"])
def test_closing_early_ends_the_statement(request: pytest.FixtureRequest, fixture: str) -> None:
    server: PostgresServer = request.getfixturevalue(fixture)
    named = f"{server.url}{'&' if '?' in server.url else '?'}application_name=portal"
    batches = rows(named, "select g a from generate_series(1, 100000000) g", [INT], Tally())
    assert next(batches).num_rows > 0
    batches.close()
    with psycopg.connect(server.url, autocommit=True) as link:
        there = "select 1 from pg_stat_activity where application_name = 'portal'"
        until(lambda: not link.execute(there).fetchall(), 5)
