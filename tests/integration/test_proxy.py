"""The proxy does to a connection what it says, so that tests of faults prove something."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_proxy import Proxy
    from tests.servers.postgresql import PostgresServer

LONG = "select repeat('x', 1000) from generate_series(1, 5000)"


@pytest.fixture
def proxy(pg: PostgresServer, proxy_to: Callable[[str, int], Proxy]) -> Proxy:
    return proxy_to(pg.host, pg.port)


def test_bytes_pass_unchanged(pg: PostgresServer, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(pg.url)) as connection:
        rows = connection.execute("select g, md5(g::text) from generate_series(1, 20000) g").fetchall()
    assert rows == pg.sql("select g, md5(g::text) from generate_series(1, 20000) g")
    assert proxy.connections == 1


def test_cut_breaks_a_connection_and_a_new_one_works(pg: PostgresServer, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(pg.url)) as connection:
        connection.execute("select 1")
        assert proxy.cut() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with psycopg.connect(proxy.url(pg.url)) as connection:
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_cut_after_breaks_the_first_long_answer_only(pg: PostgresServer, proxy: Proxy) -> None:
    proxy.cut_after = 1_000_000
    with psycopg.connect(proxy.url(pg.url)) as connection, pytest.raises(psycopg.OperationalError):
        connection.execute(LONG)
    assert proxy.cut_count == 1
    with psycopg.connect(proxy.url(pg.url)) as connection:
        assert len(connection.execute(LONG).fetchall()) == 5000


def test_stall_holds_the_answer_back_until_resume(pg: PostgresServer, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(pg.url)) as connection:
        proxy.stall()
        sent = connection.pgconn
        sent.send_query(b"select 1")
        sent.flush()
        time.sleep(0.3)
        sent.consume_input()
        assert sent.is_busy()
        proxy.resume()
        while sent.is_busy():
            sent.consume_input()
        result = sent.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"1"
        assert sent.get_result() is None


def test_a_slow_network_is_as_slow_as_asked(pg: PostgresServer, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(pg.url)) as connection:
        proxy.bytes_per_second = 1_000_000
        start = time.monotonic()
        connection.execute("select repeat('x', 1000) from generate_series(1, 1000)")
        assert time.monotonic() - start > 0.8
