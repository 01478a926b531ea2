"""The PostgreSQL connector under the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import psycopg

from connectors.base import Endpoint, Query, Source
from connectors.registry import connector
from etl.core.secrets import keep_inline
from tests.harness.store import Row, Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    import pytest


def store(request: pytest.FixtureRequest) -> Store:
    """A fresh database of the session's server."""
    server = request.getfixturevalue("pg")
    url = server.database("conformance")
    request.addfinalizer(lambda: server.drop("conformance"))
    parts = urlsplit(url)
    at = Endpoint(
        "pg",
        "postgresql",
        host=parts.hostname,
        port=parts.port,
        database=parts.path[1:],
        user=parts.username,
        password=keep_inline(unquote(parts.password or "")),
    )

    def fill(rows: Sequence[Row]) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("drop table if exists t")
            cursor.execute("create table t(id bigint primary key, k bigint, v text)")
            cursor.executemany("insert into t values (%s, %s, %s)", rows)

    def insert(row: Row) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("insert into t values (%s, %s, %s)", row)

    def fill_decimals(values: Sequence[Decimal | None]) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("drop table if exists d")
            cursor.execute("create table d(id bigint primary key, n numeric(30, 10))")
            cursor.executemany("insert into d values (%s, %s)", list(enumerate(values, 1)))

    def source(query: Query) -> Source:
        return connector("postgresql").source(at, query)

    return Store(fill, source, cuts_by="k", insert=insert, fill_decimals=fill_decimals)
