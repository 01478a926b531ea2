"""What an error of a part says: the place once, then how far, then column, key and value."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest

from etl import read_sql
from etl.core.errors import CastError
from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

NESTED = """
create type pair as (a int, d date);
create table t(id int primary key, name text, l date[], p pair, r daterange, q pair[]);
insert into t select g, 'n' || g, array['2024-01-01', null]::date[], (1, '2024-01-01')::pair,
    '[2024-01-01,2024-02-01)', array[(1, '2024-01-01')::pair] from generate_series(1, 50) g;
update t set l = array['2024-01-01', 'infinity']::date[] where id = 17;
update t set p = (2, '-infinity')::pair where id = 23;
update t set r = '[2024-01-01,infinity]' where id = 29;
update t set q = array[null, (3, 'infinity')]::pair[] where id = 31;
"""


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("l", "row id=17", "infinity"),
        ("p", "row id=23: attribute d", "-infinity"),
        ("r", "row id=29", "infinity"),
        ("q", "row id=31: attribute d", "infinity"),
    ],
)
def test_errors_inside_nested_values_name_column_key_and_value(
    tmp_path: Path, pgdb_module: PostgresDatabase, column: str, row: str, value: str
) -> None:
    if not pgdb_module.sql("select to_regclass('t')")[0][0]:
        pgdb_module.sql(NESTED)
    said = Exports(tmp_path, pgdb_module.url).refused(
        "--table", "t", "--columns", f"{column},id", "--format", "parquet"
    )
    assert f"table t, connection db: column {column}, {row}: {value} does not fit" in said


def test_keys_of_several_columns_name_a_row_before_and_after_the_value(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t(a int, l date[], b text, primary key (a, b))")
    pgdb.sql("insert into t values (1, '{}', 'x'), (1, '{2024-01-01,infinity}', 'y'), (2, '{}', 'z')")
    said = Exports(tmp_path, pgdb.url).refused("--table", "t")
    assert "column l, row a=1, b=y: infinity does not fit" in said


def test_the_place_is_said_once_and_with_its_part(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t(id int primary key, v numeric(6,2), d date)")
    pgdb.sql("insert into t select g, g, '2024-01-01' from generate_series(1, 5000) g")
    pgdb.sql("update t set d = 'infinity' where id = 4321")
    said = Exports(tmp_path, pgdb.url).refused("--table", "t", "--partition-column", "id", "--partitions", "4")
    assert said.count("table t") == said.count("connection db") == 1, said
    assert "of 4 (" in said
    assert "of table t, connection db: column d, row id=4321: infinity does not fit" in said


def test_a_refusal_in_mid_stream_says_the_place_once_and_how_far(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create view v as select g as id, repeat('x', 3000) as t, 1 / (5000 - g) as q from generate_series(1, 9000) g"
    )
    said = Exports(tmp_path, pgdb.url).refused("--table", "v")
    assert said.count("table v") == said.count("connection db") == 1, said
    assert "table v, connection db: after " in said
    assert "rows of the part: division by zero (SQLSTATE 22012)" in said


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_files_say_the_place_once(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t(id integer primary key, d date)")
        connection.execute("insert into t values (1, '2024-01-01'), (2, 'yesterday')")
    said = Exports(tmp_path, f"{scheme}:///{path}").refused("--table", "t")
    assert said.count("table t") == said.count("connection db") == 1, said
    assert "table t, connection db: column d, id 2: " in said


def test_rows_in_python_say_the_place_too(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t(id int primary key, d date)")
    pgdb.sql("insert into t values (7, 'infinity')")
    with pytest.raises(CastError) as caught:
        read_sql(pgdb.url, table="t").to_arrow()
    said = str(caught.value)
    assert said.startswith("table t, connection postgresql://"), said
    assert ": column d, row id=7: infinity does not fit" in said
    assert said.count("postgresql://") == 1
