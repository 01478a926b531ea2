"""The generic connector on MariaDB under the conformance suite."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from connectors.base import Endpoint, Query, Source
from connectors.generic_sql import CONNECTOR
from etl.core.secrets import keep_inline
from tests.harness.store import Row, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from tests.servers.mariadb import MariaServer


def store(request: pytest.FixtureRequest) -> Store:
    """A fresh database of the session's server."""
    server: MariaServer = request.getfixturevalue("mariadb")
    server.database("conformance")
    at = Endpoint(
        "my",
        "mysql",
        host=server.host,
        port=server.port,
        database="conformance",
        user=server.user,
        password=keep_inline(server.password),
    )

    def fill(rows: Sequence[Row]) -> None:
        with contextlib.closing(server.connect("conformance")) as connection, connection.cursor() as cursor:
            cursor.execute("create or replace table t(id bigint primary key, k bigint, v text)")
            cursor.executemany("insert into t values (%s, %s, %s)", rows)

    def insert(row: Row) -> None:
        with contextlib.closing(server.connect("conformance")) as connection, connection.cursor() as cursor:
            cursor.execute("insert into t values (%s, %s, %s)", row)

    def source(query: Query) -> Source:
        return CONNECTOR.source(at, query)

    return Store(fill, source, cuts_by="", insert=insert)
