"""The generic connector without a server: SQLite through SQLAlchemy, and dialects whose driver is not here."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.base import Endpoint, Query, Tally
from connectors.generic_sql import CONNECTOR
from connectors.registry import connector
from etl.api import Rows
from etl.core.errors import CastError, ConfigError, MissingDriver, StoreUnavailable
from etl.core.partition import Partition, Whole

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "g.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "create table g(id integer primary key, n numeric(10,2), d date, t datetime, b boolean, f float, "
            "x blob, v varchar(9), bare numeric)"
        )
        connection.execute(
            "insert into g values (1, 1.1, '2024-02-29', '2024-01-01 10:00:00.5', 1, 0.1, x'00ff', 'größe', 1.25), "
            "(2, null, null, null, null, null, null, null, null)"
        )
    return file


def read(path: Path, tally: Tally | None = None, **query: Any) -> pa.Table:
    source = CONNECTOR.source(Endpoint("g", "sqlite+pysqlite", database=str(path)), Query(**query))
    with source.snapshot(attach_all=source.attach) as at:
        schema = source.schema(at)
        part = Partition(0, Whole())
        batches = list(source.read(at, part, schema=schema, batch_bytes=1 << 20, tally=tally or Tally()))
    return pa.Table.from_batches(batches, schema=schema.to_arrow())


@pytest.mark.parametrize("query", [{"table": "g"}, {"sql": "select * from g where id > 0"}])
def test_types_are_those_of_the_catalogue(path: Path, query: dict[str, Any]) -> None:
    table = read(path, **query)
    assert table.schema.types == [
        pa.int64(), pa.decimal128(10, 2), pa.date32(), pa.timestamp("us"), pa.bool_(), pa.float64(), pa.binary(),
        pa.string(), pa.string(),
    ]  # fmt: skip
    first, second = table.to_pylist()
    assert first == {
        "id": 1,
        "n": Decimal("1.10"),
        "d": dt.date(2024, 2, 29),
        "t": dt.datetime.fromisoformat("2024-01-01T10:00:00.5"),
        "b": True,
        "f": 0.1,
        "x": b"\x00\xff",
        "v": "größe",
        "bare": "1.25",
    }
    assert set(second.values()) == {2, None}


def test_what_has_no_certain_type_is_text_and_said(path: Path) -> None:
    source = CONNECTOR.source(
        Endpoint("g", "sqlite+pysqlite", database=str(path)), Query(sql="select id + 1 as a from g")
    )
    with source.snapshot(attach_all=source.attach) as at:
        one = source.schema(at).field("a")
    assert (one.type, one.read_as) == (pa.string(), "text")
    assert read(path, sql="select id + 1 as a from g")["a"].to_pylist() == ["2", "3"]
    assert read(path, sql="select id + 1 as a from g", types={"a": "int64"})["a"].to_pylist() == [2, 3]


def test_values_that_do_not_fit_follow_the_policies(path: Path) -> None:
    with pytest.raises(CastError, match="column v, id 1"):
        read(path, table="g", columns=("v",), types={"v": "int64"})
    tally = Tally()
    assert read(path, tally, table="g", columns=("v",), types={"v": "int64"}, special="null")["v"].to_pylist() == [
        None,
        None,
    ]
    assert tally.special == {"v": {"does not fit": 1}}
    with pytest.raises(CastError, match="column f, id 1: more digits"):
        read(path, table="g", columns=("f",), types={"f": "decimal(5,0)"})
    assert (
        read(path, tally, table="g", columns=("f",), types={"f": "decimal(5,0)"}, cast="round")["f"].to_pylist()[0] == 0
    )
    assert tally.rounded == {"f": 1}


def test_a_missing_driver_is_named_with_its_extra() -> None:
    with pytest.raises(MissingDriver, match=r"cuetl\[oracle\]") as caught:
        connector("oracle+oracledb").server(Endpoint("o", "oracle+oracledb", host="127.0.0.1"))
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="unknown scheme"):
        connector("postgrsql")


def test_a_locked_file_is_a_transient_error(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    at = Endpoint("g", "sqlite+pysqlite", database=str(path), query={"timeout": "0.1"})
    source = CONNECTOR.source(at, Query(table="g"))
    with pytest.raises(StoreUnavailable, match="locked"), source.snapshot(attach_all=source.attach) as snapshot:
        source.schema(snapshot)
    holder.close()


def test_parts_of_different_moments_are_no_matter_for_rows_in_python(path: Path) -> None:
    at = Endpoint("g", "sqlite+pysqlite", database=str(path), options={"consistency": "per-part"})
    assert Rows(CONNECTOR.source(at, Query(table="g", columns=("id",)))).to_arrow()["id"].to_pylist() == [1, 2]
