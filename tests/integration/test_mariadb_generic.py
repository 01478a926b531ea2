"""MariaDB through the generic connector: every type, the odd values, texts and failures, on a real server."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.base import CutWish, Endpoint, Query, Tally
from connectors.generic_sql import CONNECTOR, knows
from connectors.registry import connector
from etl.core.errors import CastError, ConfigError, EtlError, StoreRejected, StoreUnavailable
from etl.core.partition import Partition, Whole
from etl.core.secrets import keep_inline
from etl.planning.cut import cut
from tests.command import cuetl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connectors.base import Source
    from tests.servers.mariadb import MariaServer

WHOLE = Partition(0, Whole())
ANEW = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


class My:
    """One database of the server and reads of it."""

    def __init__(self, server: MariaServer) -> None:
        self.server = server
        self.tally = Tally()
        server.database("generic")
        self.at = Endpoint(
            "my",
            "mysql",
            host=server.host,
            port=server.port,
            database="generic",
            user=server.user,
            password=keep_inline(server.password),
        )

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql("set sql_mode=''", *statements, database="generic")

    def source(self, **query: Any) -> Source:
        return connector("mysql").source(self.at, Query(**query))

    def read(self, wanted: int = 1, column: str | None = None, **query: Any) -> pa.Table:
        source = self.source(**query)
        self.tally = Tally()
        with source.snapshot(attach_all=source.attach) as at:
            wish = CutWish(column=column, partitions=wanted)
            schema = source.schema(at)
            batches = [
                b
                for p in cut(source.facts(at, wish, sample=True), wish).parts
                for b in source.read(at, p, schema=schema, batch_bytes=4 << 20, tally=self.tally)
            ]
        return pa.Table.from_batches(batches, schema=schema.to_arrow())


@pytest.fixture
def my(mariadb: MariaServer) -> Iterator[My]:
    one = My(mariadb)
    yield one
    mariadb.sql("drop database generic")


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def test_sql_21_zero_dates_follow_the_policy(my: My) -> None:
    my.sql(
        "create table t21(id int primary key, d date, ts datetime)",
        "insert into t21 values (1,'0000-00-00','0000-00-00 00:00:00'),(2,'2024-02-00',null)",
    )
    table = my.read(table="t21")
    assert table.schema.types == [pa.int32(), pa.date32(), pa.timestamp("us")]
    assert table.to_pydict() == {"id": [1, 2], "d": [None, None], "ts": [None, None]}
    assert my.tally.special == {"d": {"zero date": 2}, "ts": {"zero date": 1}}
    with pytest.raises(CastError, match="column d, id 1"):
        my.read(table="t21", special="error")
    assert my.read(table="t21", types={"d": "string"})["d"].to_pylist() == ["0000-00-00", "2024-02-00"]


def test_sql_23_unsigned_integers_are_exact(my: My) -> None:
    my.sql(
        "create table t23(a tinyint unsigned, b int unsigned, c bigint unsigned primary key)",
        "insert into t23 values (255,4294967295,18446744073709551615),(0,0,9223372036854775808),(1,1,1)",
    )
    right = [1, 9223372036854775808, 18446744073709551615]
    for at in (my.at, replace(my.at, options={"consistency": "per-part"})):
        my.at = at
        table = my.read(3, "c", table="t23")
        assert table.schema.types == [pa.uint8(), pa.uint32(), pa.uint64()]
        assert sorted(map(int, map(str, table["c"].to_pylist()))) == right


def test_sql_52_bits_are_numbers(my: My) -> None:
    my.sql(
        "create table t52(a bit(1), b bit(3), c bit(64))",
        "insert into t52 values (b'1',b'101',18446744073709551615),(b'0',b'0',0)",
    )
    table = my.read(table="t52")
    assert table.schema.types == [pa.bool_(), pa.uint64(), pa.uint64()]
    assert table.to_pydict() == {"a": [True, False], "b": [5, 0], "c": [18446744073709551615, 0]}


def test_sql_57_a_binary_collation_is_text(my: My) -> None:
    my.sql(
        "create table t57(a varchar(10) collate utf8mb4_bin, b varbinary(5), c blob, d text)",
        "insert into t57 values ('x', x'00ff', x'00', 'größe 🎁')",
    )
    table = my.read(table="t57")
    assert table.schema.types == [pa.string(), pa.binary(), pa.binary(), pa.string()]
    assert table.to_pydict() == {"a": ["x"], "b": [b"\x00\xff"], "c": [b"\x00"], "d": ["größe 🎁"]}


@pytest.mark.parametrize("query", [{"table": "t58"}, {"sql": "select * from t58"}])
def test_sql_58_floats_are_exact(my: My, query: dict[str, Any]) -> None:
    my.sql(
        "create table t58(id int primary key, f float, d double)",
        "insert into t58 values (1,16777216,0.1),(2,0.12345678,1.7e308),(3,3.4e38,-1.5)",
    )
    table = my.read(**query)
    assert table.schema.types == [pa.int32(), pa.float32(), pa.float64()]
    assert table["f"].to_pylist() == pa.array([16777216, 0.12345678, 3.4e38], pa.float32()).to_pylist()
    assert table["d"].to_pylist() == [0.1, 1.7e308, -1.5]


def test_sql_68_times_beyond_a_day_are_durations(my: My) -> None:
    my.sql(
        "create table t68(t time(6))",
        "insert into t68 values ('838:59:59.999999'),('-838:59:59.999999'),('24:00:00'),('00:00:00.000001')",
    )
    table = my.read(table="t68")
    assert table.schema.types == [pa.duration("us")]
    assert table["t"].cast(pa.int64()).to_pylist() == [3020399999999, -3020399999999, 86400000000, 1]


def test_sql_69_the_invalid_enum_mark_follows_the_policy(my: My) -> None:
    my.sql(
        "create table t69(id int primary key, e enum('a','b'), s set('x','y'))",
        "insert into t69 values (1,'zzz','x,y'),(2,'b','')",
    )
    with pytest.raises(CastError, match="column e, id 1"):
        my.read(table="t69")
    table = my.read(table="t69", special="null")
    assert table.schema.field("e").type == pa.dictionary(pa.int32(), pa.string())
    assert table["e"].to_pylist() == [None, "b"]
    assert table["s"].to_pylist() == ["x,y", ""]
    assert my.tally.special == {"e": {"enum index 0": 1}}


def test_other_types_and_nulls_come_back(my: My) -> None:
    my.sql(
        "create table o(id int primary key, n decimal(65,30), m decimal(10,2) unsigned, i smallint, y year, "
        "d datetime(6), s timestamp(3) null, j json, u bool, x decimal(5,0))",
        "set time_zone = '+05:00'",
        "insert into o values (1, 12345678901234567890123456789012345.123456789012345678901234567891, 99999999.99, -5, "
        "0, '9999-12-31 23:59:59.999999', '2024-01-01 00:00:00.5', '{\"a\": 1.10}', 7, -99999)",
        "insert into o(id) values (2)",
    )
    table = my.read(table="o")
    assert table.schema.field("n").type == pa.decimal256(65, 30)
    assert table.schema.field("m").type == pa.decimal128(10, 2)
    assert table.schema.field("x").type == pa.decimal128(5, 0)
    assert table.schema.field("s").type == pa.timestamp("us", "UTC")
    assert table.schema.field("u").type == pa.int8()
    first = table.to_pylist()[0]
    assert first["n"] == Decimal("12345678901234567890123456789012345.123456789012345678901234567891")
    assert (first["m"], first["i"], first["y"], first["u"]) == (Decimal("99999999.99"), -5, 0, 7)
    assert first["d"] == moment("9999-12-31 23:59:59.999999")
    assert first["s"] == moment("2023-12-31 19:00:00.5+00:00")
    assert first["j"] == '{"a": 1.10}'
    assert set(table.to_pylist()[1].values()) == {2, None}


@ANEW
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.decimals(-(10**10), 10**10, places=4, allow_nan=False)),
            st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=8)),
            st.one_of(st.none(), st.datetimes(moment("1000-01-01"))),
            st.one_of(st.none(), st.binary(max_size=8)),
        ),
        max_size=30,
    )
)
def test_any_rows_come_back(my: My, rows: list[tuple[Any, ...]]) -> None:
    my.sql("create or replace table r(a bigint, b decimal(20,4), c text, d datetime(6), e blob)")
    connection = my.server.connect("generic")
    with connection, connection.cursor() as cursor:
        cursor.executemany("insert into r values (%s,%s,%s,%s,%s)", rows)
    table = my.read(table="r")
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_texts_are_sent_as_written(my: My) -> None:
    table = my.read(sql="select 5 % 3 as m, 'abc' like 'a%' as l, 'x:y' as c, :p as p -- %s", params={"p": "a'b\\%"})
    assert table.to_pydict() == {"m": [2], "l": [1], "c": ["x:y"], "p": ["a'b\\%"]}
    my.sql("create table o(a int)", "insert into o values (1), (3), (2)")
    assert my.read(sql="select a from o order by a desc;")["a"].to_pylist() == [3, 2, 1]
    for text in ("select 1 a, 2 a", "select 1 a, 2 a union select 3, 4"):
        with pytest.raises(ConfigError, match="columns 1 and 2 are both named a"):
            my.read(sql=text)


def test_sql_60_invisible_columns_are_read_when_named(my: My) -> None:
    my.sql("create table inv(a int, b int invisible)", "insert into inv(a,b) values (1,2)")
    assert my.read(table="inv", columns=("a", "b")).to_pydict() == {"a": [1], "b": [2]}


def test_one_part_without_a_shared_snapshot_says_why(my: My) -> None:
    my.sql("create table t(id int primary key)", "insert into t values (1), (2)")
    source = my.source(table="t")
    with source.snapshot(attach_all=source.attach) as at:
        plan = cut(source.facts(at, CutWish(partitions=4), sample=True), CutWish(partitions=4))
        assert (at.kind, len(plan.parts), plan.reason) == ("single", 1, "no-snapshot")


def test_parts_of_different_moments_are_planned_where_they_are_allowed(my: My, tmp_path: Path) -> None:
    my.sql("create table t(id int primary key)", "insert into t values (1), (2)")
    (tmp_path / "cuetl.toml").write_text(
        f'[connections.db]\nurl = "{my.server.url_of("generic")}"\nconsistency = "per-part"\n'
    )
    wish = ("export", "db", "--table", "t", "--to", "x", "--format", "parquet", "--partitions", "2")
    plan = cuetl(*wish, "--plan", "--json", cwd=tmp_path)
    assert plan.code == 0, plan.err
    assert (plan.json["snapshot"], len(plan.json["partitions"])) == ("none", 2)


def test_writes_are_refused_by_us_and_by_the_session(my: My) -> None:
    my.sql(
        "create table t(id int primary key)",
        "create function w() returns int modifies sql data begin insert into t values (1); return 1; end",
    )
    with pytest.raises(ConfigError, match="DELETE"):
        my.read(sql="delete from t")
    with pytest.raises(EtlError, match=r"(?i)read.only"):
        my.read(sql="select w() as w")
    assert my.sql("select count(*) from t") == [(0,)]


def test_failures_are_mapped(my: My) -> None:
    with pytest.raises(StoreRejected, match=r"nope.*error 1146"):
        my.read(sql="select * from nope")
    with pytest.raises(StoreRejected, match="no such table: nope"):
        my.read(table="nope")
    wrong = replace(my.at, password=keep_inline("wrong-hunter2"))
    with pytest.raises(ConfigError, match="Access denied") as caught:
        CONNECTOR.server(wrong)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="2003"):
        CONNECTOR.server(replace(my.at, port=1))
    assert "MariaDB" in CONNECTOR.server(my.at)


def test_a_killed_session_is_transient_and_a_closed_one_leaves_nothing(my: My) -> None:
    my.sql("create table big as select seq id, repeat('y', 2000) v from seq_1_to_20000")
    source = my.source(table="big")
    running = "select id from information_schema.processlist where db = 'generic' and id <> connection_id()"
    with source.snapshot(attach_all=source.attach) as at:
        schema = source.schema(at)
        batches = iter(source.read(at, WHOLE, schema=schema, batch_bytes=1 << 16, tally=Tally()))
        next(batches)
        my.sql(*[f"kill {row[0]}" for row in my.sql(running)])
        with pytest.raises(StoreUnavailable) as caught:
            list(batches)
        assert caught.value.retry == "transient"
        again = source.read(at, WHOLE, schema=schema, batch_bytes=1 << 16, tally=Tally())
        next(iter(again))
        again.close()  # type: ignore[attr-defined]
    for _ in range(200):
        if not my.sql(running):
            break
    assert my.sql(running) == []


def test_unknown_schemes_are_not_claimed() -> None:
    assert knows("mysql")
    assert knows("mysql+pymysql")
    assert knows("sqlite+pysqlite")
    assert not knows("postgrsql")
