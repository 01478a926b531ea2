"""One moment over all parts, whatever other sessions do meanwhile; and what is left on the server afterwards."""

from __future__ import annotations

import contextlib
import pickle
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from connectors.base import CutWish, Query, Tally
from connectors.postgresql.snapshot import leader
from etl.core.errors import ConfigError, EtlError, SnapshotLost, StoreRejected, StoreUnavailable
from etl.core.partition import Pages, Partition
from etl.core.secrets import SecretRef
from etl.planning.cut import cut
from etl.run.places import place
from tests.reading_postgresql import WHOLE, endpoint, nothing, read, read_part, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_proxy import Proxy
    from tests.servers.postgresql import PostgresDatabase, PostgresServer

BIG = "create table big as select g id, repeat('y',2000) v from generate_series(1,20000) g"


@contextlib.contextmanager
def trading(db: PostgresDatabase) -> Iterator[None]:
    """Two rows trade values without pause."""
    stop = threading.Event()

    def trade() -> None:
        with psycopg.connect(db.url, autocommit=True) as link:
            k = 0
            while not stop.is_set():
                k = k % 9999 + 1
                with link.transaction():
                    link.execute(f"update t35 set v=v-1 where id={k}")
                    link.execute(f"update t35 set v=v+1 where id={20001 - k}")

    worker = threading.Thread(target=trade)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def sessions(db: PostgresDatabase, run: str) -> int:
    found: int = db.sql(f"select count(*) from pg_stat_activity where application_name = 'cuetl:{run}'")[0][0]
    return found


def gone(db: PostgresDatabase, run: str, seconds: float = 5.0) -> bool:
    """Whether every session of the run ends within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not sessions(db, run):
            return True
        time.sleep(0.05)
    return False


def test_sql_35_parts_are_of_one_moment(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t35(id int primary key, v int)", "insert into t35 select g,0 from generate_series(1,20000) g"
    )
    wishes = (CutWish(partitions=4), CutWish(column="id", partitions=4))
    with trading(pgdb):
        for trial in range(20):
            query = Query(table="t35") if trial % 3 else Query(sql="select id, v from t35")
            got = read(endpoint(pgdb.url), query, wishes[trial % 2])
            assert (len(got.rows), got.table.num_rows) == (4, 20_000)
            assert sum(got.values("v")) == 0
            if trial % 5 == 0:
                pgdb.sql("vacuum t35")


def test_sql_33_and_34_other_sessions_cannot_change_a_read(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t34(id int primary key, v int)", "insert into t34 select g, 0 from generate_series(1,1000) g"
    )

    def meddle(step: int) -> None:
        low = 1000 * (step + 1)
        pgdb.sql(
            f"insert into t34 select g, 1 from generate_series({low + 1},{low + 1000}) g",
            "update t34 set v = v + 1 where id % 2 = 0",
            "vacuum t34",
        )

    for wish in (CutWish(column="id", partitions=3), CutWish(partitions=3)):
        pgdb.sql("truncate t34", "insert into t34 select g, 0 from generate_series(1,1000) g")
        got = read(endpoint(pgdb.url), Query(table="t34"), wish, between=meddle)
        assert sorted(got.data) == [(g, 0) for g in range(1, 1001)]


def test_several_tables_and_queries_are_of_one_moment(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table a(x int)", "create table b(x int)", "insert into a values (1)", "insert into b values (1)")
    at = endpoint(pgdb.url)
    first, second, third = (
        source(at, Query(table="a")),
        source(at, Query(table="b")),
        source(at, Query(sql="select a.x + b.x as y from a, b")),
    )
    with first.snapshot(siblings=[second, third], attach_all=nothing) as moment:
        pgdb.sql("update a set x = 5", "update b set x = 5")
        got = [read_part(one, moment, WHOLE, one.schema(moment))[0][0].to_pylist() for one in (first, second, third)]
    assert got == [[{"x": 1}], [{"x": 1}], [{"y": 2}]]
    assert moment.kind == "exported"
    assert moment.position
    assert moment.server == f"PostgreSQL {pgdb.version}"
    assert moment.taken_at.tzinfo is not None


@pytest.mark.parametrize("query", [Query(table="big"), Query(sql="select * from big"), Query(sql="select v from wbig")])
def test_sql_74_ddl_waits_until_the_read_is_done(pgdb: PostgresDatabase, query: Query) -> None:
    pgdb.sql(BIG, "create view wbig as select * from big")

    def ddl(_: int) -> None:
        for statement in ("truncate big", "vacuum full big", "alter table big alter id type bigint"):
            with psycopg.connect(pgdb.url, autocommit=True) as link:
                link.execute("set lock_timeout = '100ms'")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    link.execute(statement)

    assert read(endpoint(pgdb.url), query, CutWish(partitions=3), between=ddl).table.num_rows == 20_000


def test_sql_74_a_part_behind_a_waiting_truncate_goes_on_when_it_gives_up(pgdb: PostgresDatabase) -> None:
    pgdb.sql(BIG)
    one = source(endpoint(pgdb.url), Query(table="big"))

    def truncate() -> str:
        with psycopg.connect(pgdb.url, autocommit=True) as link:
            link.execute("set lock_timeout = '1s'")
            try:
                link.execute("truncate big")
            except psycopg.errors.LockNotAvailable:
                return "gave up"
        return "truncated"

    with one.snapshot(attach_all=nothing) as moment, ThreadPoolExecutor(1) as pool:
        schema = one.schema(moment)
        waiting = pool.submit(truncate)
        while not pgdb.sql("select 1 from pg_stat_activity where query = 'truncate big' and wait_event_type = 'Lock'"):
            pass
        _, tally = read_part(one, moment, WHOLE, schema)
        assert waiting.result() == "gave up"
    assert tally.rows == 20_000


def test_sql_82_without_its_exporter_a_snapshot_is_lost_and_never_mixed(pgdb: PostgresDatabase) -> None:
    pgdb.sql(BIG)
    one = source(endpoint(pgdb.url), Query(table="big", run_id="lost"))
    with one.snapshot(attach_all=nothing) as moment:
        schema = one.schema(moment)
        read_part(one, moment, Partition(0, Pages(0, 100)), schema)
        pgdb.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cuetl:lost'")
        pgdb.sql("truncate big")
        with pytest.raises(SnapshotLost, match="is gone"):
            read_part(one, moment, Partition(1, Pages(100, None)), schema)
        with pytest.raises(SnapshotLost):
            one.count(moment, WHOLE)
        with pytest.raises(SnapshotLost):
            one.facts(moment, CutWish(), sample=True)


def test_an_error_while_planning_keeps_the_snapshot(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t(a json, b int)", "insert into t values ('1', 1)")
    one = source(endpoint(pgdb.url), Query(sql="select 1 / (b - 1) as q, b from t"))
    with one.snapshot(attach_all=nothing) as moment:
        with pytest.raises(StoreRejected, match="division by zero"):
            one.facts(moment, CutWish(column="q", partitions=2), sample=True)
        assert one.count(moment, WHOLE) == 1
        assert one.schema(moment).names == ("q", "b")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        # Between two rows the server says why; in the midst of sending one it may only close (postgres.c,
        # ProcessClientWriteInterrupt).
        (
            Query(sql="select * from big where pg_sleep(0.001) is not null limit 2000"),
            r"query, connection pg: after .* rows .*57P01",
        ),
        (Query(table="big"), r"table big, connection pg: .*after .*rows? .*57P01"),
    ],
    ids=["between-rows", "sending"],
)
def test_sql_37_a_reader_that_is_ended_says_so_with_the_servers_code(
    pgdb: PostgresDatabase, query: Query, said: str
) -> None:
    pgdb.sql(BIG)
    one = source(endpoint(pgdb.url), replace(query, run_id="cut"))
    with one.snapshot(attach_all=nothing) as moment:
        schema = one.schema(moment)
        batches = one.read(moment, WHOLE, schema=schema, batch_bytes=1 << 16, tally=Tally())
        next(batches)
        pgdb.sql("select pg_terminate_backend(pid) from pg_stat_activity where query like 'copy%'")
        with pytest.raises(StoreUnavailable) as caught:
            list(batches)
        words = str(caught.value)
        assert re.match(said, f"{place(one, words)}: {words}"), words
        assert caught.value.retry == "transient"
        again, _ = read_part(one, moment, WHOLE, schema)
        assert sum(b.num_rows for b in again) == (20_000 if query.table else 2000)


def test_sql_37_a_timeout_names_the_setting(pgdb: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match=r"57014.*statement_timeout of connection pg is 50"):
        read(endpoint(pgdb.url, statement_timeout=50), Query(sql="select 1 a, pg_sleep(5)"))


@pytest.mark.parametrize("after", [0, 1000, 100_000, 3_000_000])
def test_a_connection_that_breaks_is_an_error_never_a_short_part(
    pgdb: PostgresDatabase, proxy_to: Callable[[str, int], Proxy], after: int
) -> None:
    pgdb.sql(BIG)
    proxy = proxy_to(pgdb.server.host, pgdb.server.port)
    one, cut_off = (
        source(endpoint(pgdb.url), Query(table="big")),
        source(endpoint(proxy.url(pgdb.url)), Query(table="big")),
    )
    with one.snapshot(attach_all=nothing) as moment:
        schema = one.schema(moment)
        read_part(cut_off, moment, WHOLE, schema)
        proxy.cut_after = after
        proxy.cuts = 1
        with pytest.raises(StoreUnavailable):
            list(cut_off.read(moment, WHOLE, schema=schema, batch_bytes=1 << 18, tally=Tally()))
        _, tally = read_part(cut_off, moment, WHOLE, schema)
    assert tally.rows == 20_000


def test_closing_a_read_stops_its_statement(pgdb: PostgresDatabase) -> None:
    pgdb.sql(BIG)
    for text in ("select * from big", "select a.id from big a, big b order by a.id + b.id"):
        one = source(endpoint(pgdb.url), Query(sql=text, run_id="closed"))
        with one.snapshot(attach_all=nothing) as moment:
            batches = one.read(moment, WHOLE, schema=one.schema(moment), batch_bytes=1 << 16, tally=Tally())
            if "order by" not in text:
                next(batches)
            batches.close()  # type: ignore[attr-defined]
        assert gone(pgdb, "closed")


def test_sql_80_cancel_leaves_no_session(pgdb: PostgresDatabase) -> None:
    pgdb.sql(BIG)
    at = endpoint(pgdb.url)
    for query in (Query(sql="select pg_sleep(600), 1 a", run_id="stop"), Query(table="big", run_id="stop")):
        one = source(at, query)
        with one.snapshot(attach_all=nothing) as moment, ThreadPoolExecutor(2) as pool:
            schema = one.schema(moment)
            first = one.read(moment, WHOLE, schema=schema, batch_bytes=1 << 16, tally=Tally())
            if query.table:
                next(first)  # and then nobody takes its rows
            running = None if query.table else pool.submit(list, first)
            while not pgdb.sql("select 1 from pg_stat_activity where query like 'copy%' and state = 'active'"):
                pass
            begun = time.monotonic()
            pickle.loads(pickle.dumps(one)).cancel()
            assert gone(pgdb, "stop")
            assert time.monotonic() - begun < 5
            with pytest.raises(EtlError):
                running.result() if running else list(first)


def test_another_process_reads_from_the_pickled_source_alone(
    pgdb: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_PASSWORD", pgdb.password)
    pgdb.sql(
        "create table far(id int primary key, v text)", "insert into far select g, 'x' from generate_series(1,99) g"
    )
    one = source(replace(endpoint(pgdb.url), password=SecretRef("${env:FAR_PASSWORD}")), Query(table="far"))
    code = (
        "import pickle, sys; sys.path.insert(0, '.')\n"
        "from connectors.base import Tally\n"
        "one, at, part = pickle.load(sys.stdin.buffer)\n"
        "t = Tally()\n"
        "rows = one.read(at, part, schema=one.schema(at), batch_bytes=1 << 20, tally=t)\n"
        "print(sum(b.num_rows for b in rows), t.counted)\n"
        "print([m for m in ('pandas', 'sqlalchemy', 'dask', 'asyncpg', 'pyarrow.dataset') if m in sys.modules])\n"
    )
    with one.snapshot(attach_all=nothing) as moment:
        pgdb.sql("insert into far values (1000, 'late')")
        spec = pickle.dumps((one, moment, WHOLE))
        done = subprocess.run([sys.executable, "-c", code], input=spec, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().splitlines() == ["99 99", "[]"]


def test_an_export_needs_a_handful_of_round_trips(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table few(id int primary key)", "insert into few values (1)", "analyze few")
    at = endpoint(pgdb.url)
    for query, most in ((Query(table="few"), 4), (Query(sql="select id from few"), 9)):
        one = source(at, query)
        with one.snapshot(attach_all=nothing) as moment:
            one.schema(moment)
            facts = one.facts(moment, CutWish(), sample=True)
            assert cut(facts, CutWish()).parts
            held = leader(at, moment)
            assert held is not None
            assert held.session.trips + (held.guard.trips if held.guard else 0) <= most


def test_a_server_that_exports_no_snapshot_gives_one_part_and_says_so(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        BIG,
        "drop role if exists rsnap",
        "create role rsnap login password 'rsnap'",
        "grant select on big to rsnap",
        "revoke execute on function pg_export_snapshot() from public",
    )
    url = pgdb.server.url_of(pgdb.name, user="rsnap", password="rsnap")
    try:
        got = read(endpoint(url), Query(table="big"), CutWish(partitions=4))
        assert (got.rows, got.plan.reason) == ([20_000], "no-snapshot")
        apart = read(endpoint(url, consistency="per-part"), Query(table="big"), CutWish(partitions=4))
        assert (len(apart.rows), sum(apart.rows)) == (4, 20_000)
        with pytest.raises(StoreRejected, match="consistency"):
            read(endpoint(url, consistency="snapshot"), Query(table="big"))
    finally:
        pgdb.sql("drop owned by rsnap", "drop role rsnap")


def test_a_lock_that_is_not_given_is_named_after_three_tries(
    pgdb: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.postgresql.snapshot._LOCK_WAIT", "100ms")
    pgdb.sql("create table held(id int)")
    with psycopg.connect(pgdb.url) as link:
        link.execute("lock table held in access exclusive mode")
        with pytest.raises(StoreUnavailable, match=r"held.*55P03.*3 times 100ms.*Another session"):
            read(endpoint(pgdb.url), Query(table="held"))


def test_too_many_connections_says_which_limit(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table lim(id int)",
        "drop role if exists rlim",
        "create role rlim login password 'rlim' connection limit 1",
        "grant select on lim to rlim",
    )
    url = pgdb.server.url_of(pgdb.name, user="rlim", password="rlim")
    try:
        with pytest.raises(StoreUnavailable, match=r'too many connections for role "rlim".*max_connections') as caught:
            read(endpoint(url), Query(table="lim"))
        assert caught.value.retry == "transient"
        assert gone(pgdb, "")
    finally:
        pgdb.sql("drop owned by rlim", "drop role rlim")


def test_readers_stay_below_the_limits_of_connection_and_server(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table r(id int)", "insert into r values (1)")
    assert source(endpoint(pgdb.url, max_connections=5), Query(table="r")).capabilities.max_parallel == 3
    got = read(endpoint(pgdb.url, max_connections=5), Query(table="r"))
    assert got.facts.readers == 3
    plenty = read(endpoint(pgdb.url), Query(table="r"))
    assert plenty.facts.readers is not None
    assert plenty.facts.readers <= int(pgdb.sql("show max_connections")[0][0]) // 2


def test_sql_05_and_86_passwords_connect_and_are_never_shown(pgdb: PostgresDatabase) -> None:
    secret = "p@ss#w:r/d%?hunter2-Zq9"
    pgdb.sql("drop role if exists pw05", f"create role pw05 login password '{secret}'")
    try:
        good = pgdb.server.url_of(pgdb.name, user="pw05", password="p%40ss%23w%3Ar%2Fd%25%3Fhunter2-Zq9")
        assert read(endpoint(good), Query(sql="select current_user::text u")).data == [("pw05",)]
        one = source(endpoint(good), Query(sql="select 1/0 a"))
        assert secret.encode() not in pickle.dumps(one)
        assert secret not in repr(one)
        wrong = endpoint(pgdb.server.url_of(pgdb.name, user="pw05", password="hunter2-Zq9-wrong"))
        with pytest.raises(StoreRejected, match="authentication failed") as caught:
            read(wrong, Query(sql="select 1 a"))
        assert "hunter2" not in f"{caught.value!r} {caught.value} {caught.value.context}"
        assert caught.value.__suppress_context__
    finally:
        pgdb.sql("drop role pw05")


def test_sql_87_tls_is_checked_and_the_remedy_named(pg_tls: PostgresServer) -> None:
    query = Query(sql="select ssl::text t from pg_stat_ssl where pid = pg_backend_pid()")
    got = read(endpoint(pg_tls.url), query)
    assert got.data == [("true",)]
    assert got.tallies[0].how == "libpq"
    base = pg_tls.url.partition("?")[0]
    with pytest.raises(StoreRejected, match="sslrootcert"):
        read(endpoint(f"{base}?sslmode=verify-full&sslrootcert=/etc/ssl/certs/ca-certificates.crt"), query)
    right = endpoint(pg_tls.url)
    other = replace(right, host="other.example", query={**right.query, "hostaddr": "127.0.0.1"})
    with pytest.raises(StoreRejected, match=r"other\.example"):
        read(other, query)


def test_a_server_without_tls_is_refused_for_remote_hosts_with_the_remedy(pgdb: PostgresDatabase) -> None:
    at = endpoint(f"{pgdb.url.partition('?')[0]}?sslmode=verify-full&sslrootcert=/dev/null")
    with pytest.raises(StoreRejected, match=r"sslmode=disable"):
        read(at, Query(sql="select 1 a"))


def test_an_unknown_libpq_option_is_a_mistake_of_the_user(pgdb: PostgresDatabase) -> None:
    with pytest.raises(ConfigError, match="slmode"):
        read(endpoint(f"{pgdb.url.partition('?')[0]}?slmode=require"), Query(sql="select 1 a"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (Query(table="nothing_here"), "nothing_here"),
        (Query(table="Mixed"), "Did you mean mixed"),
        (Query(table="public.mixd"), "Did you mean public.mixed"),
        (Query(sql="selec 1"), "selec"),
        (Query(sql="select nosuch from mixed"), "nosuch"),
        (Query(sql="select * from nowhere"), "nowhere"),
    ],
)
def test_what_is_not_there_is_refused_by_name(pgdb_module: PostgresDatabase, query: Query, words: str) -> None:
    pgdb_module.sql("create table if not exists mixed(id int)")
    with pytest.raises(StoreRejected, match=words) as caught:
        read(endpoint(pgdb_module.url), query)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)


def test_every_major_reads_pages_keys_and_queries_in_one_snapshot(pgdb_all: PostgresDatabase) -> None:
    pgdb_all.sql(
        "create table m(id int primary key, n numeric, t text[], d date, r int4range)",
        "insert into m select g, g / 7.0, array['a', null], date '2024-01-01' + g, int4range(g, g + 2)"
        " from generate_series(1, 5000) g",
    )
    at = endpoint(pgdb_all.url)
    reads = [
        read(at, Query(table="m", types={"n": "string"}), CutWish(partitions=4)),
        read(at, Query(table="m", types={"n": "string"}), CutWish(column="id", partitions=4)),
        read(at, Query(sql="select * from m where id > 0", types={"n": "string"}), CutWish(partitions=4)),
    ]
    assert [len(r.rows) for r in reads] == [4, 4, 4]
    assert len({str(sorted(r.data, key=lambda row: row[0])) for r in reads}) == 1
    assert reads[0].table.num_rows == 5000
