"""A run on MariaDB that is stopped: the statements end on the server, not only here."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from connectors.base import Endpoint, Query, Tally
from connectors.generic_sql import CONNECTOR
from etl.core.errors import EtlError
from etl.core.partition import Partition, Whole
from etl.core.secrets import keep_inline
from tests.faults import leftovers, running, until

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.base import Source
    from tests.servers.mariadb import MariaServer

WHOLE = Partition(0, Whole())
SLOW_COUNT = (
    "select a.seq % 7 as k, count(*) as n from seq_1_to_1000000 a, seq_1_to_1000000 b where a.seq <> b.seq group by k"
)
SLOW_ROW = "select id, if(id = 20, sleep(600), 0) as s from t"


@pytest.fixture
def shop(mariadb: MariaServer) -> MariaServer:
    mariadb.database("stopped")
    mariadb.sql(
        "create table t(id int primary key, v varchar(2000))",
        "insert into t select seq, repeat('y', 2000) from seq_1_to_20000",
        database="stopped",
    )
    return mariadb


def processes(server: MariaServer) -> list[tuple[Any, ...]]:
    return server.sql(
        "select id, command, info from information_schema.processlist where db = 'stopped' and id <> connection_id()",
        database="stopped",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("sql", "during"), [(SLOW_COUNT, "count("), (SLOW_ROW, "sleep")], ids=["planning", "reading"])
def test_a_stop_leaves_no_statement_on_the_server(
    tmp_path: Path, shop: MariaServer, sql: str, during: str, number: signal.Signals
) -> None:
    with running(
        "export", shop.url_of("stopped"), "--sql", sql, "--to", "out", "--format", "parquet", cwd=tmp_path
    ) as run:
        until(lambda: [row for row in processes(shop) if during in (row[2] or "")])
        time.sleep(0.3)
        run.send(number)
        begun = time.monotonic()
        done = run.done(30)
        assert time.monotonic() - begun < 10
        until(lambda: not processes(shop), 1)
        assert run.left() == []
    assert done.code == 130, done.err
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_stop_reaches_parts_in_worker_processes(tmp_path: Path, shop: MariaServer) -> None:
    at = shop.url_of("stopped")
    (tmp_path / "cuetl.toml").write_text(f'[connections.db]\nurl = "{at}"\nconsistency = "per-part"\n')
    wish = ("--sql", SLOW_ROW, "--partition-column", "id", "--partitions", "3", "--workers", "2")
    with running("export", "db", *wish, "--to", "out", "--format", "parquet", cwd=tmp_path) as run:
        until(lambda: [row for row in processes(shop) if "sleep" in (row[2] or "") and "count(" not in row[2]], 60)
        run.send(signal.SIGINT)
        done = run.done(30)
        until(lambda: not processes(shop), 1)
        assert run.left() == []
    assert done.code == 130, done.err
    assert leftovers(tmp_path) == ["cuetl.toml"]


def source(server: MariaServer, run_id: str) -> Source:
    at = Endpoint(
        "my",
        "mysql",
        host=server.host,
        port=server.port,
        database="stopped",
        user=server.user,
        password=keep_inline(server.password),
    )
    return CONNECTOR.source(at, Query(sql=SLOW_ROW, run_id=run_id))


def test_cancel_ends_the_statements_of_its_run_only(shop: MariaServer) -> None:
    sources = [source(shop, name) for name in ("one", "other")]
    ended: dict[str, BaseException] = {}

    def read(one: Source) -> None:
        with one.snapshot(attach_all=one.attach) as at:
            schema = one.schema(at)
            try:
                list(one.read(at, WHOLE, schema=schema, batch_bytes=1 << 16, tally=Tally()))
            except EtlError as error:
                ended[one.query.run_id] = error

    threads = [threading.Thread(target=read, args=(one,)) for one in sources]
    for thread in threads:
        thread.start()
    until(lambda: len([row for row in processes(shop) if "sleep" in (row[2] or "")]) == 2)
    sources[0].cancel()
    threads[0].join(5)
    assert set(ended) == {"one"}
    (left,) = [row for row in processes(shop) if "sleep" in (row[2] or "")]
    assert "cuetl:other" in left[2]
    sources[1].cancel()
    threads[1].join(5)
    assert set(ended) == {"one", "other"}
    until(lambda: not processes(shop), 1)
