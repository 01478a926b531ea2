"""The memory bound that the README states, measured on the whole process tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.measure import measure

if TYPE_CHECKING:
    from tests.servers.postgresql import PostgresDatabase

CUETL = str(Path(sys.executable).parent / "cuetl")
ABOVE_BASE_MIB = {"parquet": 250, "safetensors": 2 * (8 + 5 * 4 + 24 + 64) + 96}
"""For two readers and tensor files of 16 MiB (up to 24): the terms are those of Memory in the README."""
ROWS = 5_000_000
"""About 600 MB of table, 310 MB of tensors and 160 MB of text: more than the bound."""
TABLE = """create table {name} as
 select g::bigint as id, (g::bigint * 7919) % 1000003 as item, g / 3.0::float8 as price,
 g / 7.0::float8 as a, g / 11.0::float8 as b, g / 13.0::float8 as c,
 case when g % 7 = 0 then null else (g % 100)::int4 end as qty, md5(g::text) as note,
 timestamptz '2026-01-01 00:00:00+00' + g * interval '1 second' as at from generate_series(1, {rows}) g"""


def peak_mib(database: PostgresDatabase, table: str, format: str, out: Path) -> float:  # noqa: A002 - the option's word
    """The peak of an export with two readers."""
    url = database.url.replace(f":{database.password}@", "@")
    command = [
        CUETL,
        "export",
        url,
        "--table",
        table,
        "--to",
        str(out),
        "--format",
        format,
        "--workers",
        "1",
        "--quiet",
    ]
    return measure(command, env={"PGPASSWORD": database.password}, seconds=240).peak_mib


@pytest.fixture(scope="module")
def tables(pgdb_module: PostgresDatabase) -> PostgresDatabase:
    pgdb_module.sql(
        TABLE.format(name="small", rows=1000),
        TABLE.format(name="large", rows=ROWS),
        "analyze small",
        "analyze large",
    )
    assert pgdb_module.sql("select pg_relation_size('large')")[0][0] > 1.5 * max(ABOVE_BASE_MIB.values()) * 2**20
    return pgdb_module


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "safetensors"])
def test_memory_is_bounded_by_parts_in_flight_not_by_the_table(
    tables: PostgresDatabase,
    tmp_path: Path,
    format: str,  # noqa: A002 - the option's word
) -> None:
    peak_mib(tables, "small", format, tmp_path / "first")  # the decoder may have to be compiled, once
    base = peak_mib(tables, "small", format, tmp_path / "small")
    peak = peak_mib(tables, "large", format, tmp_path / "large")
    assert 30 < base < 400
    assert peak - base < ABOVE_BASE_MIB[format], f"base {base:.0f} MiB, peak {peak:.0f} MiB"
