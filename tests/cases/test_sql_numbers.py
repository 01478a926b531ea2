"""Numerics through whole exports: exact in Parquet, rounded once in tensors, never changed without being asked."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tests.cases.exporting import Exports
from tests.faults import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")


@pytest.fixture
def exports(pgdb: PostgresDatabase, tmp_path: Path) -> Exports:
    return Exports(tmp_path, pgdb.url)


def test_sql_26_nan_in_numeric_is_nan_in_float_tensors(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t26(id int primary key, v numeric(10,2))", "insert into t26 values (1,'NaN'),(2,3.14)")
    plain = ("--table", "t26")
    for policy in ("error", "clamp"):
        said = exports.refused(*plain, "--special", policy, "--format", "parquet")
        assert "column v" in said
        assert "id=1" in said
        assert "NaN" in said
    assert exports.rows(*plain, "--special", "null") == [(1, None), (2, Decimal("3.14"))]
    for policy in ("error", "null", "clamp"):
        x = exports.tensors(*plain, "--features", "v", "--special", policy, to=f"x-{policy}")["x"]
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, [[math.nan], [3.14]])
    scaled = ("--columns", "v", "--layout", "columns", "--format", "safetensors")
    assert "NaN" in exports.refused(*plain, *scaled, to="scaled")
    nulled = exports.tensors(*plain, *scaled[:-2], "--special", "null", to="scaled")
    assert nulled["v"].dtype == np.int64
    assert nulled["v"][1] == 314
    assert nulled["v.valid"].tolist() == [False, True]


def test_sql_26_a_narrow_numeric_keeps_nan_in_float32(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t26(v numeric(4,2))", "insert into t26 values ('NaN'),(3.14),(null)")
    found = exports.tensors("--table", "t26", "--features", "v")
    assert found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["x"], np.array([[math.nan], [3.14], [0]], np.float32))
    assert found["x.valid"].tolist() == [[True], [True], [False]]


def test_sql_64_infinite_numerics_are_infinite_in_float_tensors(pgdb: PostgresDatabase, exports: Exports) -> None:
    if pgdb.major < 14:
        pytest.skip("infinite numerics came with PostgreSQL 14")
    text = "select 'Infinity'::numeric v union all select 'NaN' union all select '-Infinity' union all select 1"
    assert "Infinity" in exports.refused("--sql", text, "--format", "parquet")
    table = exports.table("--sql", text, "--special", "null")
    assert table.column("v").to_pylist() == [None, None, None, Decimal(1)]
    x = exports.tensors("--sql", text, "--features", "v", to="x")["x"]
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, [[math.inf], [math.nan], [-math.inf], [1]])


def test_digits_that_no_float_holds_are_refused_or_rounded_once(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table long(id int primary key, v numeric, w numeric(20,3))",
        "insert into long values (1, 0.1, 0.1), (2, 123456789012345.67, 1.5), (3, 0.33333333333333333333, null)",
    )
    ask = ("--table", "long", "--features", "v,w")
    said = exports.refused(*ask, "--format", "safetensors")
    assert "column v" in said
    assert "row 3" in said
    assert "0.33333333333333333333" in said
    assert "--cast round" in said
    report = exports.done(*ask, "--format", "safetensors", "--cast", "round")
    assert [(w["column"], w["count"]) for w in report["warnings"] if w["code"] == "rounded"] == [("v", 1)]
    x = exports.tensors(*ask, "--cast", "round", to="x")["x"]
    np.testing.assert_array_equal(x, [[0.1, 0.1], [123456789012345.67, 1.5], [1 / 3, 0]])


def test_numbers_beyond_float64_saturate_only_when_asked(exports: Exports) -> None:
    ask = ("--sql", "select '1e400'::numeric v union all select -1e400 union all select 2", "--features", "v")
    for cast in ("exact", "round"):
        assert "largest float64" in exports.refused(*ask, "--cast", cast, "--format", "safetensors")
    x = exports.tensors(*ask, "--cast", "saturate")["x"]
    largest = np.finfo(np.float64).max
    np.testing.assert_array_equal(x, [[largest], [-largest], [2]])


def test_a_column_that_a_table_needs_too_stays_a_decimal(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table pair(v numeric(10,2))", "insert into pair values (1.25),('NaN')")
    two = ("--table", "pair", "--features", "v", "--to", "x", "--format", "safetensors", "--format", "parquet")
    assert "NaN" in exports.refused(*two)
    exports.done(*two, "--special", "null")
    table = pq.read_table(exports.home / "out")
    assert table.schema.types == [pa.decimal128(10, 2)]
    assert table.column("v").to_pylist() == [Decimal("1.25"), None]
    (path,) = (exports.home / "x").glob("*.safetensors")
    found = load_file(path)
    assert found["x"].tolist() == [[1.25], [0]]
    assert found["x.valid"].tolist() == [[True], [False]]


def test_sql_27_wide_numerics_are_read_again_with_the_type_they_need(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t27(id int primary key, v numeric)",
        "insert into t27 values (1,1.5),(2,0.1234567890123456789012)",
    )
    report = exports.done("--table", "t27", "--format", "parquet")
    table = pq.read_table(exports.home / "out")
    assert table.schema.field("v").type == pa.decimal128(38, 22)
    assert table.sort_by("v").column("v").to_pylist() == [Decimal("0.1234567890123456789012"), Decimal("1.5")]
    assert [w["column"] for w in report["warnings"] if w["code"] == "decimal-widened"] == ["v"]
    fixed = ("--table", "t27", "--types", "v=decimal(38,18)", "--format", "parquet")
    said = exports.refused(*fixed, to="fixed")
    for word in ("column v", "id=2", "0.1234567890123456789012", "--cast round"):
        assert word in said
    report = exports.done(*fixed, "--cast", "round", to="fixed")
    values = pq.read_table(exports.home / "fixed").sort_by("v").column("v").to_pylist()
    assert values == [Decimal("0.123456789012345679"), Decimal("1.5")]
    assert [(w["column"], w["count"]) for w in report["warnings"] if w["code"] == "rounded"] == [("v", 1)]


def test_sql_27_parts_that_still_run_are_stopped_without_losing_the_snapshot(
    pgdb: PostgresDatabase, exports: Exports
) -> None:
    pgdb.sql(
        "create table t27(id int primary key, v numeric)",
        "insert into t27 select g, case when g % 5000 = 1 then 1e-45 else g end from generate_series(1, 20000) g",
    )
    table = exports.table("--table", "t27", "--partition-column", "id", "--partitions", "4")
    assert table.schema.field("v").type == pa.decimal256(76, 45)
    assert table.num_rows == 20_000
    kept = table.filter(pc.field("id") == 5001).column("v")
    assert kept.to_pylist() == [Decimal("1e-45")]


def test_sql_27_quotients_and_averages_are_exact(exports: Exports) -> None:
    text = "select 1/3.0 as a, avg(x) as b from (values (0.01), (0.02), (0.02)) v(x)"
    assert exports.rows("--sql", text) == [(Decimal("0.33333333333333333333"), Decimal("0.01666666666666666667"))]


def test_sql_39_decimals_in_parquet(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t39(id int primary key, a numeric(32,16), b numeric)",
        "insert into t39 values (1,0.1234567890123456,0.12345678901234567890123)",
    )
    narrow = exports.table("--table", "t39", "--columns", "id,a", to="narrow")
    assert narrow.schema.field("a").type == pa.decimal128(32, 16)
    assert narrow.column("a").to_pylist() == [Decimal("0.1234567890123456")]
    report = exports.done("--table", "t39", "--format", "parquet", to="whole")
    whole = pq.read_table(exports.home / "whole")
    assert whole.schema.field("b").type == pa.decimal128(38, 23)
    assert whole.column("b").to_pylist() == [Decimal("0.12345678901234567890123")]
    assert "decimal-widened" in [w["code"] for w in report["warnings"]]
    text = exports.table("--table", "t39", "--types", "b=string", to="text")
    assert text.column("b").to_pylist() == ["0.12345678901234567890123"]


def test_statistics_of_decimals_that_are_floats_are_those_of_the_floats(
    pgdb: PostgresDatabase, exports: Exports
) -> None:
    pgdb.sql("create table t(id int primary key, v numeric)", "insert into t values (1,'NaN'),(2,1.5),(3,-2.25)")
    exports.tensors("--table", "t")
    (column,) = [one for one in manifest(exports.home / "out")["columns"] if one["name"] == "v"]
    (stats,) = column["stats"].values()
    assert (stats["count"], stats["nan"], stats["min"], stats["max"], stats["mean"]) == (3, 1, -2.25, 1.5, -0.375)
