"""Memory and back pressure: what is held does not grow with the rows, and a slow consumer stops the reader."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import etl
from benchmarks.measure import measure
from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")
CUETL = str(Path(sys.executable).parent / "cuetl")
ROWS = "select g id, repeat('x',1000) v from generate_series(1,{}) g"
STREAM = """
import sys, etl
rows = 0
for batch in etl.read_sql(sys.argv[1], sys.argv[2]).stream():
    rows += batch.num_rows
print(rows)
"""
BOUND_MIB = 250
HELD = 6
"""Batches: two that wait, one in the reader's hand, one in the consumer's, one being decoded, one about to be put."""


@pytest.fixture(scope="module")
def t02(pgdb_module: PostgresDatabase) -> PostgresDatabase:
    pgdb_module.sql(f"create table t02 as {ROWS.format(200_000)}", "analyze t02")
    return pgdb_module


def peak(db: PostgresDatabase, way: str, rows: int, out: Path) -> float:
    """The peak of reading so many rows, in MiB."""
    url = db.url.replace(f":{db.password}@", "@")
    export = [CUETL, "export", url, "--sql", ROWS.format(rows), "--to", str(out), "--format", "parquet", "--quiet"]
    stream = [sys.executable, "-c", STREAM, url, ROWS.format(rows)]
    command = stream if way == "stream" else [*export, "--workers", "1"]
    return measure(command, env={"PGPASSWORD": db.password}, seconds=280).peak_mib


@pytest.mark.parametrize("way", ["export", "stream"])
def test_sql_02_memory_does_not_grow_with_rows(t02: PostgresDatabase, tmp_path: Path, way: str) -> None:
    base = peak(t02, way, 10, tmp_path / "base")
    assert peak(t02, way, 200_000, tmp_path / "many") - base < BOUND_MIB
    if way == "export":
        assert pq.read_metadata(next((tmp_path / "many").glob("*.parquet"))).num_rows == 200_000


@pytest.mark.slow
@pytest.mark.parametrize("way", ["export", "stream"])
def test_sql_02_memory_of_25_times_the_rows_is_the_same(t02: PostgresDatabase, tmp_path: Path, way: str) -> None:
    base = peak(t02, way, 10, tmp_path / "base")
    some = peak(t02, way, 200_000, tmp_path / "some")
    most = peak(t02, way, 5_000_000, tmp_path / "most")
    assert most - base < BOUND_MIB
    assert most < some * 1.2


def test_sql_03_a_slow_consumer_stops_the_reader(t02: PostgresDatabase) -> None:
    rows = etl.read_sql(t02.url, "select * from t02")
    batches = rows.stream()
    first = next(batches)
    assert rows.tally[0].rows < 0.05 * 200_000 + HELD * first.num_rows
    assert first.num_rows < 0.05 * 200_000
    taken = first.num_rows
    pause = threading.Event()
    for _ in range(8):
        pause.wait(0.05)
        assert rows.tally[0].rows - taken <= HELD * first.num_rows
        taken += next(batches).num_rows
    assert taken < 200_000
    batches.close()  # type: ignore[attr-defined]
    read = rows.tally[0].rows
    pause.wait(0.2)
    assert rows.tally[0].rows == read < 200_000


def test_sql_03_row_groups_are_cut_by_bytes(t02: PostgresDatabase, tmp_path: Path) -> None:
    Exports(tmp_path, t02.url).done("--table", "t02", "--format", "parquet")
    files = [pq.ParquetFile(path).metadata for path in (tmp_path / "out").glob("*.parquet")]
    groups = [one.row_group(i).num_rows * 1004 for one in files for i in range(one.num_row_groups)]
    assert len(groups) >= 3
    assert max(groups) <= 72 << 20
    assert sum(one.num_rows for one in files) == 200_000


def test_sql_03_files_are_cut_by_bytes(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    text = "select g id, md5(g::text) || md5((-g)::text) v from generate_series(1,200000) g"
    pgdb.sql(f"create table noise as {text}", "analyze noise")
    Exports(tmp_path, pgdb.url).done("--table", "noise", "--format", "parquet", "--partition-bytes", "2MiB")
    files = list((tmp_path / "out").glob("*.parquet"))
    assert len(files) > 1
    assert max(path.stat().st_size for path in files) < 5 << 20
    assert pq.read_table(tmp_path / "out").num_rows == 200_000


def test_sql_54_a_limit_stays_on_the_server(t02: PostgresDatabase, tmp_path: Path) -> None:
    report = Exports(tmp_path, t02.url).done("--sql", "select * from t02 limit 10", "--format", "parquet",
                                             "--partitions", "4")  # fmt: skip
    assert report["rows"] == 10
    rows = etl.read_sql(t02.url, "select * from t02 limit 10")
    assert rows.to_arrow().num_rows == 10
    assert 0 < rows.tally[0].received < 1 << 20


@pytest.mark.slow
def test_sql_81_a_row_larger_than_every_buffer(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    table = Exports(tmp_path, pgdb.url).table("--sql", "select repeat('z', 300000000) v, 1 a")
    assert pc.binary_length(table.column("v")).to_pylist() == [300_000_000]
    assert table.column("a").to_pylist() == [1]
    assert table.schema.types == [pa.string(), pa.int32()]


def test_sql_81_a_large_row_beside_small_ones(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    text = "select g id, repeat('z', case when g = 500 then 20000000 else 10 end) v from generate_series(1,1000) g"
    table = Exports(tmp_path, pgdb.url).table("--sql", text)
    assert table.num_rows == 1000
    assert pc.sum(pc.binary_length(table.column("v"))).as_py() == 20_000_000 + 999 * 10
