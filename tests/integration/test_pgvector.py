"""Vectors of pgvector on a server that has the extension: from the table to Arrow, Parquet and tensors."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.base import Query
from etl.tensors.dataset import open_dataset
from tests.cases.exporting import Exports
from tests.fix_servers import NO_POSTGRESQL, fresh
from tests.reading_postgresql import endpoint, read
from tests.servers.process import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fix_servers import PostgresServers
    from tests.servers.postgresql import PostgresDatabase

ROWS = 300


@pytest.fixture(scope="module")
def vectors(pg_servers: PostgresServers) -> Iterator[PostgresDatabase]:
    """300 rows of vectors; every seventh is NULL."""
    have = [one.major for one in pg_servers.found]
    if not have:
        unavailable("postgresql", NO_POSTGRESQL)
    for major in sorted(have, reverse=True):
        server = pg_servers.get(major)
        if server.sql("select 1 from pg_available_extensions where name = 'vector' and default_version >= '0.7'"):
            break
    else:
        unavailable("pgvector", "no PostgreSQL that was found has the extension vector, 0.7 or newer")
    with fresh(server) as db:
        db.sql(
            "create extension vector",
            "create table v (id int primary key, e vector(3), free vector, h halfvec(2), s sparsevec(1000))",
            f"""insert into v select g,
                case when g % 7 > 0 then array[g, g / 3.0, -g]::real[]::vector end,
                case when g % 7 > 0 then array_fill(g::real, array[g % 4 + 1])::vector end,
                case when g % 7 > 0 then array[g, 0.5]::real[]::halfvec end,
                case when g % 7 > 0 then format('{{1:%s,1000:0.25}}/1000', g)::sparsevec end
            from generate_series(1, {ROWS}) g""",
        )
        yield db


def expected(g: int) -> tuple[Any, ...]:
    if g % 7 == 0:
        return (g, None, None, None, None)
    third = struct.unpack("f", struct.pack("f", g / 3))[0]
    sparse = {"dim": 1000, "indices": [1, 1000], "values": [float(g), 0.25]}
    return (g, [float(g), third, -float(g)], [float(g)] * (g % 4 + 1), [float(g), 0.5], sparse)


def test_vectors_are_what_the_table_holds(vectors: PostgresDatabase) -> None:
    got = read(endpoint(vectors.url), Query(table="v"))
    assert got.table.schema.types[1:4] == [
        pa.list_(pa.float32(), 3),
        pa.list_(pa.float32()),
        pa.list_(pa.float16(), 2),
    ]
    assert sorted(got.data, key=lambda row: row[0]) == [expected(g) for g in range(1, ROWS + 1)]


def test_vectors_are_matrices_and_ragged_lists_of_a_dataset(vectors: PostgresDatabase, tmp_path: Path) -> None:
    exports = Exports(tmp_path, vectors.url)
    words = ("--table", "v", "--columns", "id,e,free,h", "--order", "key", "--key", "id")
    exports.done(*words, "--to", "p", "--format", "parquet", "--format", "safetensors", to="x")
    tensors = open_dataset(tmp_path / "x", verify="sha256").tensors()
    assert tensors["e"].shape == (ROWS, 3)
    assert tensors["h"].shape == (ROWS, 2)
    assert tensors["h"].dtype == np.float16
    kept = pq.read_table(tmp_path / "p").to_pylist()
    for place, row in enumerate(kept):
        g, fixed, free, half, _ = expected(place + 1)
        assert (row["id"], row["e"], row["free"], row["h"]) == (g, fixed, free, half)
        assert tensors["e.valid"][place] == (fixed is not None)
        assert tensors["e"][place].tolist() == (fixed or [0.0] * 3)
        first, last = tensors["free.offsets"][place : place + 2]
        assert tensors["free.values"][first:last].tolist() == (free or [])
