"""The memory connector under the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connectors import memory
from connectors.base import Endpoint, Query, Source
from tests.harness.store import Row, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("k", pa.int64()),
    pa.field("v", pa.string()),
]
SCHEMA = pa.schema(FIELDS)


def store(request: pytest.FixtureRequest) -> Store:
    """Tables of this process."""
    request.addfinalizer(memory.clear)

    def fill(rows: Sequence[Row]) -> None:
        columns = [list(c) for c in zip(*rows, strict=True)] or [[], [], []]
        memory.put("t", pa.Table.from_pydict(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA))

    def source(query: Query) -> Source:
        return memory.CONNECTOR.source(Endpoint("memory", "memory"), query)

    return Store(fill, source, cuts_by="k", insert=None, takes_sql=False)
