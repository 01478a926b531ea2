"""Streams of a real server: ends, large rows, errors, early close, and what is loaded to read them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from connectors.base import Tally
from connectors.postgresql import native
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.wire import ServerError, stream
from etl.core.errors import DataError, StoreUnavailable
from etl.core.native import cached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgresql import PostgresServer

ROOT = Path(__file__).resolve().parents[4]
INT = ColumnPlan("a", Kind.INT4, pa.int32())
TEXT = ColumnPlan("v", Kind.TEXT, pa.string())


def batches(url: str, sql: str, plans: list[ColumnPlan], tally: Tally, **options: Any) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([pa.field(p.name, p.type) for p in plans])
    connection = psycopg.connect(url)
    return stream(connection, f"copy ({sql}) to stdout (format binary)", plans, schema, tally=tally, **options)


@pytest.mark.parametrize("block", [1 << 10, 1 << 16, 8 << 20])
def test_sql_61_values_that_look_like_the_end_of_the_stream_do_not_end_it(pg: PostgresServer, block: int) -> None:
    sql = """select g id, decode(repeat('5a0000000549',200),'hex') b, repeat('x',g%97) v
             from generate_series(1,50000) g"""
    plans = [ColumnPlan("id", Kind.INT4, pa.int32()), ColumnPlan("b", Kind.BYTEA, pa.binary()), TEXT]
    tally = Tally()
    rows = 0
    for batch in batches(pg.url, sql, plans, tally, block_bytes=block):
        offsets = batch.column(1).buffers()[1]
        assert offsets is not None
        assert set(np.diff(np.frombuffer(memoryview(offsets), np.int32))) == {1200}
        assert batch.column(0)[0].as_py() == rows + 1
        rows += batch.num_rows
    assert rows == tally.rows == tally.counted == 50000


@pytest.mark.slow
def test_sql_81_a_row_of_300_million_characters_is_whole(pg: PostgresServer) -> None:
    tally = Tally()
    (batch,) = batches(pg.url, "select repeat('z', 300000000) v, 1 a", [TEXT, INT], tally)
    data = batch.column(0).buffers()[2]
    assert data is not None
    assert data.size == 300_000_000
    assert bytes(data[:3]) + bytes(data[-3:]) == b"zzzzzz"
    assert tally.received > 300_000_000


def test_an_error_in_the_middle_carries_the_servers_code_and_words(pg: PostgresServer) -> None:
    with pytest.raises(ServerError, match="division by zero") as caught:
        list(batches(pg.url, "select 1 / (50000 - g) a from generate_series(1, 100000) g", [INT], Tally()))
    assert caught.value.sqlstate == "22012"


def test_a_statement_that_is_refused_carries_the_servers_code(pg: PostgresServer) -> None:
    with pytest.raises(ServerError) as caught:
        list(batches(pg.url, "select a from nowhere", [INT], Tally()))
    assert caught.value.sqlstate == "42P01"


def test_a_stream_of_other_columns_is_an_error(pg: PostgresServer) -> None:
    with pytest.raises(DataError, match="2 fields, 1 were expected"):
        list(batches(pg.url, "select 1 a, 2 b", [INT], Tally()))


def test_a_session_that_is_ended_is_unavailable_and_not_a_short_part(pg: PostgresServer) -> None:
    sql = "select repeat('x', 1000) v from generate_series(1, 1000000) g"
    found = batches(pg.url, sql, [TEXT], Tally(), batch_bytes=1 << 20)
    next(found)
    with psycopg.connect(pg.url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where query like 'copy (select repeat(''x'', 1000)%'"
        )
        with pytest.raises((StoreUnavailable, ServerError)) as caught:
            list(found)
    assert not isinstance(caught.value, ServerError) or caught.value.sqlstate == "57P01"


def test_closing_early_stops_the_statement_within_a_second(pg: PostgresServer) -> None:
    sql = "select 4711 a from generate_series(1, 20000) g, generate_series(1, 20000) h"
    found = batches(pg.url, sql, [INT], Tally())
    next(found)
    found.close()  # type: ignore[attr-defined]
    running = "select count(*) from pg_stat_activity where query like 'copy (select 4711%' and state = 'active'"
    with psycopg.connect(pg.url, autocommit=True) as other:
        waited = threading.Event()
        for _ in range(20):
            row = other.execute(running).fetchone()
            if row == (0,):
                return
            waited.wait(0.05)
    pytest.fail("the statement still runs")


def test_a_silent_server_is_taken_for_lost_after_the_stall_time(pg: PostgresServer) -> None:
    sql = "select case when g > 30000 then length(pg_sleep(20)::text) else g end a from generate_series(1, 30001) g"
    with pytest.raises(StoreUnavailable, match=r"no byte came for 0\.5 s"):
        list(batches(pg.url, sql, [INT], Tally(), stall=0.5))


def test_reading_in_a_transaction_sees_its_snapshot(pg: PostgresServer) -> None:
    connection = psycopg.connect(pg.url)
    connection.execute("set transaction isolation level repeatable read read only")
    schema = pa.schema([("a", pa.int32())])
    statement = "copy (select current_setting('transaction_read_only')::bool::int a) to stdout (format binary)"
    (batch,) = stream(connection, statement, [INT], schema, tally=Tally())
    assert batch.column(0).to_pylist() == [1]
    assert connection.closed


@pytest.mark.parametrize("server", ["pg", "pg_tls"])
def test_a_kept_connection_takes_small_statements_and_further_streams(
    request: pytest.FixtureRequest, server: str
) -> None:
    schema = pa.schema([pa.field("a", pa.int32())])
    with psycopg.connect(request.getfixturevalue(server).url) as connection:
        for rows in (200_000, 3, 0):
            tally = Tally()
            statement = f"copy (select g::int a from generate_series(1, {rows}) g) to stdout (format binary)"
            given = stream(connection, statement, [INT], schema, tally=tally, keep=True)
            assert sum(b.num_rows for b in given) == rows
            assert connection.execute("select 1").fetchall() == [(1,)]


def test_neither_numba_nor_pandas_is_loaded_to_read(pg: PostgresServer) -> None:
    native.warm()
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import psycopg, pyarrow as pa
from connectors.base import Tally
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.wire import stream
plans = [ColumnPlan("i", Kind.INT4, pa.int32()), ColumnPlan("t", Kind.TEXT, pa.string()),
         ColumnPlan("n", Kind.NUMERIC, pa.decimal128(9, 2)), ColumnPlan("u", Kind.UUID, pa.uuid()),
         ColumnPlan("e", Kind.ENUM, pa.dictionary(pa.int32(), pa.string()), vocabulary=("a", "b")),
         ColumnPlan("x", Kind.INET, pa.string()),
         ColumnPlan("l", Kind.ARRAY, pa.list_(pa.int32()), depth=1,
                    children=(ColumnPlan("item", Kind.INT4, pa.int32()),))]
sql = "select 1, 'x', 1.5::numeric(9,2), gen_random_uuid(), 'b', '10.0.0.1'::inet, array[1,2]"
schema = pa.schema([(p.name, p.type) for p in plans])
copy = f"copy ({{sql}}) to stdout (format binary)"
rows = sum(b.num_rows for b in stream(psycopg.connect({pg.url!r}), copy, plans, schema, tally=Tally()))
assert rows == 1
print([name for name in ("numba", "pandas", "dask") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"


def test_a_damaged_cache_is_not_used(tmp_path: Path) -> None:
    path = native.warm()
    assert path is not None
    whole = path.read_bytes()
    copy = tmp_path / path.name
    for damaged in (b"", whole[:100], whole[:-1], whole[:5000] + b"\0" + whole[5001:], b"x" + whole):
        copy.write_bytes(damaged)
        assert cached(copy) is None or damaged == whole
    copy.write_bytes(whole)
    assert cached(copy) is not None
