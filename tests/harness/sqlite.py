"""The SQLite connector under the conformance suite: a WAL file, so that writers go on while it is read."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from connectors.base import Endpoint, Query, Source
from connectors.sqlite import CONNECTOR
from tests.harness.store import Row, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def store(request: pytest.FixtureRequest) -> Store:
    """A file of its own."""
    path = request.getfixturevalue("tmp_path_factory").mktemp("sqlite") / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")

    def fill(rows: Sequence[Row]) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("drop table if exists t")
            connection.execute("create table t(id integer primary key, k bigint, v text)")
            connection.executemany("insert into t values (?, ?, ?)", rows)

    def insert(row: Row) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("insert into t values (?, ?, ?)", row)

    def source(query: Query) -> Source:
        return CONNECTOR.source(Endpoint("lite", "sqlite", database=str(path)), query)

    return Store(fill, source, cuts_by="k", insert=insert)
