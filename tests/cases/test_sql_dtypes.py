"""The dtype of a tensor and the type of a column follow from the schema: not from values, NULLs, rows or parts."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from safetensors.numpy import load_file

from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")
COLUMNS = {
    "b": ("bool", "true", "bool"),
    "i2": ("int2", "7", "int16"),
    "i4": ("int4", "7", "int32"),
    "i8": ("int8", "7", "int64"),
    "o": ("oid", "7", "int64"),
    "f4": ("float4", "'NaN'", "float32"),
    "f8": ("float8", "1.5", "float64"),
    "n9": ("numeric(9,2)", "1.25", "int64"),
    "n38": ("numeric(38,2)", "1.25", "float64"),
    "n": ("numeric", "1.25", "float64"),
    "d": ("date", "'2024-01-01'", "int32"),
    "t": ("time", "'10:00'", "int64"),
    "ts": ("timestamp", "'2024-01-01'", "int64"),
    "tz": ("timestamptz", "'2024-01-01'", "int64"),
    "e": ("mood", "'ok'", "int32"),
}
"""Column → its type, a value, the dtype of a tensor of its own."""
FILLS = {
    "no rows": "",
    "all NULL": "insert into d(id) select generate_series(1,40)",
    "one value late": "insert into d(id) select generate_series(1,40); insert into d select 41, {}",
    "values": "insert into d select g, {} from generate_series(1,40) g",
}


@pytest.fixture
def exports(pgdb: PostgresDatabase, tmp_path: Path) -> Exports:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    pgdb.sql("create type mood as enum('sad','ok')", f"create table d(id int primary key, {columns})")
    return Exports(tmp_path, pgdb.url)


def fill(db: PostgresDatabase, how: str) -> None:
    values = ", ".join(f"{value}::{kind}" for kind, value, _ in COLUMNS.values())
    db.sql("truncate d", *(s for s in FILLS[how].format(values).split("; ") if s))


def schema_hash(home: Path, to: str) -> str:
    return str(json.loads((home / to / "_manifest.json").read_text())["schema_sha256"])


@pytest.mark.parametrize("parts", ["1", "3"])
def test_each_column_has_the_dtype_of_its_type(pgdb: PostgresDatabase, exports: Exports, parts: str) -> None:
    cut = ("--table", "d", "--partition-column", "id", "--partitions", parts, "--format", "safetensors")
    hashes = set()
    for number, how in enumerate(FILLS):
        fill(pgdb, how)
        exports.done(*cut, "--layout", "columns", to=f"t{number}")
        files = [load_file(path) for path in (exports.home / f"t{number}").glob("*.safetensors")]
        assert files
        for one in files:
            dtypes = {name: array.dtype.name for name, array in one.items() if not name.endswith(".valid")}
            assert dtypes == {"id": "int32", **{name: dtype for name, (_, _, dtype) in COLUMNS.items()}}, how
            assert {f"{name}.valid" for name in COLUMNS} <= set(one)
        hashes.add(schema_hash(exports.home, f"t{number}"))
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("features", "dtype"),
    [
        ("b", "bool"),
        ("b,i2", "int16"),
        ("i2,i4,e", "int32"),
        ("i4,d,tz", "int64"),
        ("i2,f4,b", "float32"),
        ("i4,f4", "float64"),
        ("n9,i2", "float64"),
        ("n,f4,n38", "float64"),
    ],
)
def test_a_matrix_has_the_dtype_of_its_types(
    pgdb: PostgresDatabase, exports: Exports, features: str, dtype: str
) -> None:
    for number, how in enumerate(FILLS):
        fill(pgdb, how)
        x = exports.tensors("--table", "d", "--features", features, "--partitions", "1", to=f"x{number}")["x"]
        assert x.dtype.name == dtype, how
        assert x.shape[1] == len(features.split(","))


def test_parquet_has_the_types_of_the_schema(pgdb: PostgresDatabase, exports: Exports) -> None:
    found = []
    for number, how in enumerate(FILLS):
        fill(pgdb, how)
        for parts in ("1", "4"):
            to = f"p{number}-{parts}"
            exports.done(
                "--table", "d", "--partition-column", "id", "--partitions", parts, "--format", "parquet", to=to
            )
            files = list((exports.home / to).glob("*.parquet"))
            found += [pq.read_schema(path).remove_metadata() for path in files]
    assert all(one == found[0] for one in found)


def test_sql_42_random_numerics_of_every_scale_are_exact(pgdb: PostgresDatabase, exports: Exports) -> None:
    dice = random.Random(42)
    kinds = [(p, dice.randint(0, p)) for p in (dice.randint(1, 38) for _ in range(200))]
    names = [f"c{i}" for i in range(len(kinds))]
    with psycopg.connect(pgdb.url, autocommit=True) as link:
        declared = ", ".join(f"{n} numeric({p},{s})" for n, (p, s) in zip(names, kinds, strict=True))
        link.execute(sql.SQL("create table r42(id int, {})").format(sql.SQL(declared)))
        with link.cursor() as cursor, cursor.copy("copy r42 from stdin") as copy:
            for row in range(50):
                copy.write_row([row, *(f"{dice.randint(-(10**p) + 1, 10**p - 1)}e{-s}" for p, s in kinds)])
        right = link.execute("select * from r42 order by id").fetchall()
    table = exports.table("--table", "r42").sort_by("id")
    got = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert [[str(v) for v in row] for row in got] == [[str(v) for v in row] for row in right]
