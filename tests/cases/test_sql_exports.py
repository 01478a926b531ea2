"""Cases of everyday tables, odd types and names through whole exports."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")


@pytest.fixture
def exports(pgdb: PostgresDatabase, tmp_path: Path) -> Exports:
    return Exports(tmp_path, pgdb.url)


def test_sql_01_a_null_is_a_mask_beside_exact_integers(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t01(id int primary key, big bigint)", "insert into t01 values (1,9007199254740993),(2,null)")
    for parts in ("1", "2"):
        table = exports.table("--table", "t01", "--partitions", parts, to=f"p{parts}").sort_by("id")
        assert table.schema.types == [pa.int32(), pa.int64()]
        assert table.to_pydict() == {"id": [1, 2], "big": [9007199254740993, None]}
    found = exports.tensors("--table", "t01", "--layout", "columns", "--partitions", "1")
    assert {name: array.dtype.name for name, array in found.items()} == {
        "id": "int32", "big": "int64", "big.valid": "bool",
    }  # fmt: skip
    order = np.argsort(found["id"])
    assert found["big"][order].tolist() == [9007199254740993, 0]
    assert found["big.valid"][order].tolist() == [True, False]


def test_sql_06_an_undeclared_parameter_is_refused(exports: Exports) -> None:
    text = "select 5 % 3 as m, 'abc' like 'a%' as l, 'x:y' as c"
    assert exports.rows("--sql", text, to="good") == [(2, True, "x:y")]
    assert "day" in exports.refused("--sql", text, "--param", "day=2024-01-01", code=2)


def test_sql_07_a_null_in_a_late_part_keeps_the_type(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t07(id int primary key, v int)",
        "insert into t07 select g,g from generate_series(1,20) g",
        "insert into t07 values (21,null)",
    )
    table = exports.table("--table", "t07", "--partition-column", "id", "--partitions", "2")
    assert (table.num_rows, table.column("v").null_count) == (21, 1)
    for path in (exports.home / "out").glob("*.parquet"):
        assert pq.read_schema(path).field("v").type == pa.int32()


def test_sql_14_no_rows_have_a_schema_a_file_and_dtypes(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t14(a int, b timestamptz, c numeric(10,2))")
    text = ("--sql", "select * from t14 where false")
    table = exports.table(*text)
    assert table.num_rows == 0
    assert table.schema.types == [pa.int32(), pa.timestamp("us", tz="UTC"), pa.decimal128(10, 2)]
    assert list((exports.home / "out").glob("*.parquet"))
    x = exports.tensors(*text, "--features", "a,c", to="x")["x"]
    assert (x.shape, x.dtype.name) == ((0, 2), "float64")


def test_sql_17_and_89_others_read_what_we_write(exports: Exports) -> None:
    text = (
        "select 1.5::numeric v, 'x'::text s, now() t, '1 day'::interval i,"
        " '11111111-2222-3333-4444-555555555555'::uuid u"
    )
    table = exports.table("--sql", text)
    assert table.schema.field("u").type == pa.uuid()
    assert table.column("u").to_pylist() == [uuid.UUID("11111111-2222-3333-4444-555555555555")]
    assert len(table.to_pandas()) == 1
    (path,) = (exports.home / "out").glob("*.parquet")
    with duckdb.connect() as duck:
        found = duck.sql(f"select * replace (epoch_us(t) as t) from read_parquet('{path}')")
        kinds = dict(zip(found.columns, map(str, found.types), strict=True))
        (row,) = found.fetchall()
    assert kinds["v"] == "DECIMAL(38,18)"
    assert kinds["u"] == "UUID"
    assert row[4] == uuid.UUID("11111111-2222-3333-4444-555555555555")
    assert row[3] == {"months": 0, "days": 1, "nanoseconds": 0}


def test_sql_39_duckdb_reads_the_decimals(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t39(id int primary key, a numeric(32,16), b numeric)",
        "insert into t39 values (1,0.1234567890123456,0.12345678901234567890123)",
    )
    exports.table("--table", "t39")
    (path,) = (exports.home / "out").glob("*.parquet")
    with duckdb.connect() as duck:
        found = duck.sql(f"select a, b, a::text, b::text from read_parquet('{path}')")
        assert [str(kind) for kind in found.types[:2]] == ["DECIMAL(32,16)", "DECIMAL(38,23)"]
        assert found.fetchall()[0][2:] == ("0.1234567890123456", "0.12345678901234567890123")


def test_sql_40_depths_are_never_flattened(exports: Exports) -> None:
    text = "select array[[1,2],[3,4]] b, array[1,null,3] a, '{}'::int[] e, '[0:1]={7,8}'::int[] z"
    said = exports.refused("--sql", text, "--format", "parquet")
    for word in ("column b", "depth 2, 1 was declared", "b=list(list(int32))"):
        assert word in said
    rows = exports.table("--sql", text, "--types", "b=list(list(int32))").to_pylist()
    assert rows == [{"b": [[1, 2], [3, 4]], "a": [1, None, 3], "e": [], "z": [7, 8]}]


def test_sql_42_zeros_and_small_decimals(exports: Exports) -> None:
    text = "select v::numeric(16,5)::text t, v::numeric(16,5) v from (values (0),(1.0123),(-0.00001)) x(v)"
    table = exports.table("--sql", text)
    assert table.column("v").cast(pa.string()).to_pylist() == ["0.00000", "1.01230", "-0.00001"]
    zero = exports.table("--sql", "select 0::numeric(10,0) z", to="z")
    assert (zero.schema.field("z").type, zero.column("z").to_pylist()) == (pa.decimal128(10, 0), [0])


def test_sql_59_wide_tables(pgdb: PostgresDatabase, exports: Exports) -> None:
    names = [f"c{i}" for i in range(1600)]
    pgdb.sql(f"create table t59({', '.join(f'{c} int' for c in names)})")
    pgdb.sql(f"insert into t59 select {', '.join(f'g*10000+{i}' for i in range(1600))} from generate_series(1,100) g")
    table = exports.table("--table", "t59").sort_by("c0")
    assert table.column_names == names
    right = np.arange(1, 101)[:, None] * 10000 + np.arange(1600)
    np.testing.assert_array_equal(np.column_stack([c.to_numpy() for c in table.columns]), right)


def test_sql_60_a_policy_on_rows_is_one_part_and_said(pgdb: PostgresDatabase, exports: Exports, tmp_path: Path) -> None:
    role = f"r60_{pgdb.name}"
    pgdb.sql(
        "create table t60(a int, b int generated always as (a*2) stored, owner text)",
        f"create role {role} login password 'r60'",
        f"insert into t60(a,owner) values (1,'{role}'),(2,'x')",
        f"grant select on t60 to {role}",
        "alter table t60 enable row level security",
        "create policy p60 on t60 using (owner = current_user)",
    )
    try:
        guest = Exports(tmp_path, pgdb.server.url_of(pgdb.name, user=role, password="r60"))
        report = guest.done("--table", "t60", "--partitions", "4", "--format", "parquet")
        assert pq.read_table(tmp_path / "out").to_pylist() == [{"a": 1, "b": 2, "owner": role}]
        assert "row-security" in [w["code"] for w in report["warnings"]]
        assert len(exports.rows("--table", "t60", to="all")) == 2
    finally:
        pgdb.sql(f"drop owned by {role}", f"drop role {role}")


def test_sql_63_odd_declarations_of_numerics(pgdb: PostgresDatabase, exports: Exports) -> None:
    if pgdb.major < 15:
        pytest.skip("scales below 0 came with PostgreSQL 15")
    pgdb.sql(
        "create table t63(a numeric(3,-2), b numeric(3,5), c numeric(40,2), d numeric(100,2))",
        "insert into t63 values (12345,0.00123,12345678901234567890123456789012345678.91,1.25)",
    )
    table = exports.table("--table", "t63")
    assert table.schema.types == [pa.decimal128(5, 0), pa.decimal128(5, 5), pa.decimal256(40, 2), pa.string()]
    assert [str(v) for v in table.to_pylist()[0].values()] == [
        "12300", "0.00123", "12345678901234567890123456789012345678.91", "1.25",
    ]  # fmt: skip
    x = exports.tensors("--table", "t63", "--features", "a,b,c", "--cast", "round", to="x")["x"]
    assert x.tolist() == [[12300.0, 0.00123, 12345678901234567890123456789012345678.91]]


def test_sql_66_nested_and_user_defined_types_reach_parquet(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create type mood as enum('sad','ok')",
        "create domain posint as int check (value > 0)",
        "create type comp66 as (a int, b text)",
        "create extension if not exists hstore",
        "create table t66(x posint, y int4range, z mood[], h hstore, c comp66, v numeric(5,2)[], e int4range)",
        "insert into t66 values (1,'[1,5)','{ok,sad}','a=>1,b=>null','(1,x)','{1.50,null}','empty')",
    )
    table = exports.table("--table", "t66")
    (row,) = table.to_pylist()
    assert row["y"] == {"lower": 1, "upper": 5, "lower_inc": True, "upper_inc": False, "empty": False}
    assert row["e"] == {"lower": None, "upper": None, "lower_inc": False, "upper_inc": False, "empty": True}
    assert (row["x"], row["z"], row["h"], row["c"]) == (1, ["ok", "sad"], [("a", "1"), ("b", None)], {"a": 1, "b": "x"})
    assert [str(v) for v in row["v"]] == ["1.50", "None"]
    assert table.schema.field("v").type.value_type == pa.decimal128(5, 2)


def test_sql_67_intervals_are_three_numbers(exports: Exports) -> None:
    text = "select '1 mon 2 days 3:04:05'::interval a, '-1 year 00:00:00.000001'::interval b"
    (row,) = exports.table("--sql", text).to_pylist()
    assert row == {
        "a": {"months": 1, "days": 2, "nanoseconds": 11045000000000},
        "b": {"months": -12, "days": 0, "nanoseconds": 1000},
    }
    far = ("--sql", "select '2562047788:00:54.775807'::interval f")
    assert "column f" in exports.refused(*far, "--format", "parquet", to="far")
    report = exports.done(*far, "--format", "parquet", "--special", "null", to="null")
    assert pq.read_table(exports.home / "null").to_pylist() == [{"f": None}]
    assert [w["column"] for w in report["warnings"] if w["code"] == "special"] == ["f"]
    (row,) = exports.table(*far, "--special", "clamp", to="clamp").to_pylist()
    assert row == {"f": {"months": 0, "days": 0, "nanoseconds": 2**63 - 1}}


def test_sql_90_a_plan_touches_no_row(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t18(id bigint primary key)", "insert into t18 select generate_series(1,100000)", "analyze t18"
    )
    touched = "select seq_scan, seq_tup_read, coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 't18'"
    before = pgdb.sql("select pg_stat_clear_snapshot()", touched)
    plan: dict[str, Any] = exports.done("--table", "t18", "--partition-column", "id", "--partitions", "4", "--plan")
    job = plan
    assert len(job["partitions"]) == 4
    for part in job["partitions"]:
        assert {"sql", "rows", "bytes"} <= set(part)
    assert [f["name"] for f in job["schema"]] == ["id"]
    assert pgdb.sql("select pg_sleep(1.5)", touched) == before
    assert not (exports.home / "out").exists()
    one = exports.done("--sql", "select count(*) n from t18", "--partitions", "4", "--plan")
    job = one
    assert job["reason"] == "no-key"
