"""The generic connector on SQLite through SQLAlchemy, in parts of different moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from connectors.base import Endpoint, Query, Source
from connectors.generic_sql import CONNECTOR
from tests.harness import sqlite

if TYPE_CHECKING:
    import pytest

    from tests.harness.store import Store


def store(request: pytest.FixtureRequest) -> Store:
    """The SQLite harness's file, read by the other connector."""
    own = sqlite.store(request)
    path = own.source(Query(table="t")).endpoint.database
    at = Endpoint("lite", "sqlite+pysqlite", database=path, options={"consistency": "per-part"})

    def source(query: Query) -> Source:
        return CONNECTOR.source(at, query)

    return replace(own, source=source)
