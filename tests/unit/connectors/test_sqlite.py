"""SQLite: declared types, storage classes, policies, snapshots and ranges, on real files."""

from __future__ import annotations

import contextlib
import datetime as dt
import pickle
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.base import CutWish, Endpoint, Query, Tally
from connectors.sqlite import CONNECTOR, COPY_ABOVE, SqliteSource, arrow_type
from connectors.sqltext import parse_table_name
from etl.core.errors import CastError, ConfigError, EtlError, StoreRejected, StoreUnavailable
from etl.core.lookup import sql_text
from etl.core.partition import KeyRange, Partition, Snapshot, Whole
from etl.planning.cut import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WHOLE = Partition(0, Whole())
FILES = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Lite:
    """One SQLite file and reads of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tally = Tally()
        self.notes: tuple[str, ...] = ()

    def sql(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def source(self, **query: Any) -> SqliteSource:
        return CONNECTOR.source(Endpoint("lite", "sqlite", database=str(self.path)), Query(**query))

    def read(self, wanted: int = 1, column: str | None = None, **query: Any) -> pa.Table:
        source = self.source(**query)
        self.tally = Tally()
        with source.snapshot(attach_all=source.attach) as at:
            wish = CutWish(column=column, partitions=wanted)
            facts = source.facts(at, wish, sample=True)
            self.notes = facts.notes
            return everything(source, at, cut(facts, wish).parts, self.tally)


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def integers(column: pa.ChunkedArray[Any]) -> list[int]:
    return cast("list[int]", column.to_pylist())


def everything(source: SqliteSource, at: Snapshot, parts: Sequence[Partition], tally: Tally) -> pa.Table:
    schema = source.schema(at)
    batches = [b for p in parts for b in source.read(at, p, schema=schema, batch_bytes=4 << 20, tally=tally)]
    return pa.Table.from_batches(batches, schema=schema.to_arrow())


@pytest.fixture
def lite(tmp_path: Path) -> Lite:
    return Lite(tmp_path / "lite.db")


@pytest.mark.parametrize(
    ("declared", "right"),
    [
        ("integer", pa.int64()),
        ("BIGINT UNSIGNED", pa.int64()),
        ("Boolean", pa.bool_()),
        ("varchar(20)", pa.string()),
        ("json", pa.string()),
        ("uuid", pa.string()),
        ("blob", pa.binary()),
        ("double precision", pa.float64()),
        ("date", pa.date32()),
        ("datetime", pa.timestamp("us")),
        ("timestamp(6)", pa.timestamp("us")),
        ("time", pa.time64("us")),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("numeric(5)", pa.decimal128(5, 0)),
        ("decimal(60,5)", pa.decimal256(60, 5)),
        ("numeric", None),
        ("", None),
        ("whatever", None),
    ],
)
def test_the_declared_type_decides(declared: str, right: pa.DataType | None) -> None:
    assert arrow_type(declared) == right


def test_sql_70_storage_classes(lite: Lite) -> None:
    lite.sql(
        "create table t70(id integer primary key, i integer, r real, d datetime, e decimal(10,2), x)",
        "insert into t70 values (1,'12',3,'2024-01-01 00:00:00.5',1.1,9223372036854775807),(2,7,9e999,null,'2.50',1)",
    )
    table = lite.read(table="t70")
    assert table.schema.types == [
        pa.int64(), pa.int64(), pa.float64(), pa.timestamp("us"), pa.decimal128(10, 2), pa.int64()
    ]  # fmt: skip
    assert table.to_pydict() == {
        "id": [1, 2],
        "i": [12, 7],
        "r": [3.0, float("inf")],
        "d": [moment("2024-01-01T00:00:00.500000"), None],
        "e": [Decimal("1.10"), Decimal("2.50")],
        "x": [9223372036854775807, 1],
    }
    lite.sql("insert into t70(id,i) values (3,'abc')")
    with pytest.raises(CastError, match=r"^column i, id 3: .*storage class text.*'abc'") as caught:
        lite.read(table="t70", columns=("i",))
    assert caught.value.exit_code == 1
    assert lite.read(table="t70", columns=("i",), special="null")["i"].to_pylist() == [12, 7, None]
    assert lite.tally.special == {"i": {"storage class": 1}}
    assert lite.read(table="t70", columns=("i",), types={"i": "string"})["i"].to_pylist() == ["12", "7", "abc"]


def test_sql_45_nul_in_text_is_kept(lite: Lite) -> None:
    lite.sql("create table t45(id integer primary key, v text)", "insert into t45 values (1,'a'||char(0)||'b')")
    assert lite.read(table="t45")["v"].to_pylist() == ["a\0b"]


def test_sql_08_null_keys_are_in_exactly_one_part(lite: Lite) -> None:
    lite.sql(
        "create table t08(id int, v text)", "insert into t08 values (1,'a'),(2,'b'),(10,'z'),(null,'n1'),(null,'n2')"
    )
    assert sorted(map(str, lite.read(3, "id", table="t08")["v"].to_pylist())) == ["a", "b", "n1", "n2", "z"]
    source = lite.source(table="t08")
    with source.snapshot(attach_all=source.attach) as at:
        wish = CutWish("id", 3)
        parts = cut(source.facts(at, wish, sample=True), wish).parts
        assert sum("is null" in source.explain(p, columns=["id"]) for p in parts) == 1


def test_sql_30_the_whole_int64_range(lite: Lite) -> None:
    lite.sql("create table t30(id bigint)", "insert into t30 values (-9223372036854775808),(0),(9223372036854775807)")
    assert sorted(integers(lite.read(4, "id", table="t30")["id"])) == [-(2**63), 0, 2**63 - 1]


def test_sql_28_all_null_keys_are_one_part(lite: Lite) -> None:
    lite.sql("create table t28(id int, v text)", "insert into t28 values (null,'a'),(null,'b')")
    assert lite.read(4, "id", table="t28").num_rows == 2


def test_sql_16_duplicate_names_are_refused(lite: Lite) -> None:
    lite.sql("create table t(a)")
    for text in ("select 1 a, 2 a", "with q as (select 1 a, 2 a) select * from q", "select 1 a, 2 a limit 3"):
        with pytest.raises(ConfigError, match="columns 1 and 2 are both named a"):
            lite.read(sql=text)


@pytest.mark.parametrize(
    "sql", ["with q as (select 1 a) select * from q;", "select 1 a -- hi", "select 1 a;;", "values (1)"]
)
def test_sql_19_odd_texts_are_read_and_split(lite: Lite, sql: str) -> None:
    lite.sql("create table t(a)")
    column = "column1" if sql.startswith("values") else "a"
    for wanted, name in ((1, None), (2, column)):
        assert lite.read(wanted, name, sql=sql)[column].to_pylist() == [1]


def test_sql_51_any_name_is_kept(lite: Lite) -> None:
    lite.sql('create table "T51.%"("a%b" int, "c""d" int, "e.f" int)', 'insert into "T51.%" values (1,2,3)')
    assert lite.read(3, "e.f", table='"T51.%"').to_pydict() == {"a%b": [1], 'c"d': [2], "e.f": [3]}


def test_sql_59_wide_tables(lite: Lite) -> None:
    names = [f"c{i}" for i in range(1600)]
    lite.sql(f"create table w({', '.join(f'{n} int' for n in names)})")
    lite.sql(*[f"insert into w values ({', '.join(str(r * 10000 + i) for i in range(1600))})" for r in range(5)])
    table = lite.read(table="w")
    assert table.column_names == names
    assert table["c1599"].to_pylist() == [1599 + r * 10000 for r in range(5)]


KEYS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 2),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.binary(max_size=6),
)


@FILES
@given(
    keys=st.lists(KEYS, max_size=40),
    declared=st.sampled_from(["", "integer", "text", "text collate nocase", "real", "numeric", "blob"]),
    wanted=st.integers(1, 7),
    by_index=st.booleans(),
)
def test_any_key_of_any_class_lands_in_one_part(
    lite: Lite,
    keys: list[Any],
    declared: str,
    wanted: int,
    by_index: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    lite.sql("drop table if exists k", f"create table k(id integer primary key, k {declared})")
    with contextlib.closing(sqlite3.connect(lite.path)) as connection, connection:
        connection.executemany("insert into k values (?, ?)", list(enumerate(keys)))
    if by_index:
        lite.sql("create index ik on k(k)")
    source = lite.source(table="k", columns=("id",))
    wish = CutWish("k", wanted)
    full = lite.source(table="k", types={"k": "string"})
    with full.snapshot(attach_all=full.attach) as at:
        parts = cut(full.facts(at, wish, sample=True), wish).parts
        ids = integers(everything(source, at, parts, Tally())["id"])
    assert sorted(ids) == list(range(len(keys)))


@FILES
@given(
    st.lists(st.one_of(st.none(), st.decimals(-99999999, 99999999, places=2, allow_nan=False)), min_size=1, max_size=50)
)
def test_decimals_come_back_exactly(lite: Lite, values: list[Decimal | None]) -> None:
    lite.sql("drop table if exists d", "create table d(a decimal(10,2), b decimal(30,2))")
    with contextlib.closing(sqlite3.connect(lite.path)) as connection, connection:
        rows = [(None, None) if v is None else (str(v), float(v)) for v in values]
        connection.executemany("insert into d values (?, ?)", rows)
    table = lite.read(table="d")
    assert table["a"].to_pylist() == values
    assert table["b"].to_pylist() == values


@FILES
@given(st.lists(st.one_of(st.none(), st.datetimes()), min_size=1, max_size=20), st.sampled_from([" ", "T"]))
def test_times_come_back_exactly(lite: Lite, values: list[dt.datetime | None], between: str) -> None:
    lite.sql("drop table if exists d", "create table d(a timestamp, b date, c time)")
    with contextlib.closing(sqlite3.connect(lite.path)) as connection, connection:
        rows = [v and (v.isoformat(between), v.date().isoformat(), v.time().isoformat()) for v in values]
        connection.executemany("insert into d values (?, ?, ?)", [r or (None, None, None) for r in rows])
    table = lite.read(table="d")
    assert table["a"].to_pylist() == values
    assert table["b"].to_pylist() == [v and v.date() for v in values]
    assert table["c"].to_pylist() == [v and v.time() for v in values]


@FILES
@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=9)), min_size=1, max_size=60))
def test_text_comes_back_exactly(lite: Lite, values: list[str | None]) -> None:
    lite.sql("drop table if exists s", "create table s(a text, b, c blob)")
    with contextlib.closing(sqlite3.connect(lite.path)) as connection, connection:
        connection.executemany("insert into s values (?1, ?1, cast(?1 as blob))", [(v,) for v in values])
    table = lite.read(table="s")
    assert table["a"].to_pylist() == table["b"].to_pylist() == values
    assert table["c"].to_pylist() == [None if v is None else v.encode() for v in values]


@pytest.mark.parametrize(
    ("declared", "value", "null_reason", "clamped"),
    [
        ("date", "'2024-02-30'", "not ISO 8601", None),
        ("date", "20240101", "storage class", None),
        ("timestamp", "'yesterday'", "not ISO 8601", None),
        ("timestamp", "1.5", "storage class", None),
        ("time", "'24:00:00'", "not ISO 8601", dt.time(23, 59, 59, 999999)),
        ("boolean", "2", "not a boolean", None),
        ("text", "x'ff41'", "storage class", None),
        ("text", "cast(x'ff41' as text)", "not UTF-8", "\ufffdA"),
        ("decimal(4,1)", "1000", "too wide", Decimal("999.9")),
        ("decimal(4,1)", "-9e999", "too wide", Decimal("-999.9")),
        ("decimal(4,1)", "'abc'", "not a number", None),
        ("real", "'x'", "storage class", None),
    ],
)
def test_what_a_type_cannot_hold_follows_the_policy(
    lite: Lite, declared: str, value: str, null_reason: str, clamped: object
) -> None:
    lite.sql(f"create table p(id integer primary key, c {declared})", f"insert into p values (41, null), (42, {value})")
    with pytest.raises(CastError, match=r"column c, id 42: "):
        lite.read(table="p")
    assert lite.read(table="p", special="null")["c"].to_pylist() == [None, None]
    assert lite.tally.special == {"c": {null_reason: 1}}
    if clamped is None:
        with pytest.raises(CastError, match=r"column c, id 42: "):
            lite.read(table="p", special="clamp")
    else:
        assert lite.read(table="p", special="clamp")["c"].to_pylist() == [None, clamped]


def test_fraction_digits_follow_cast(lite: Lite) -> None:
    lite.sql("create table f(c decimal(6,2))", "insert into f values (1.005), ('2.345'), (-2.345), (7)")
    with pytest.raises(CastError, match="fraction digits"):
        lite.read(table="f")
    table = lite.read(table="f", cast="round")
    assert table["c"].to_pylist() == [Decimal(t) for t in ("1.01", "2.35", "-2.35", "7.00")]
    assert lite.tally.rounded == {"c": 3}


def test_offsets_become_utc_and_are_said(lite: Lite) -> None:
    lite.sql("create table z(c timestamp)", "insert into z values ('2024-01-01T10:00:00+02:00'), ('2024-01-01 10:00')")
    assert lite.read(table="z")["c"].to_pylist() == [moment("2024-01-01T08:00"), moment("2024-01-01T10:00")]
    assert any("UTC" in w for w in lite.tally.warnings)


def test_undeclared_columns_are_decided_by_all_rows(lite: Lite) -> None:
    lite.sql(
        "create table u(a, b, c, d, e)", "insert into u values (1, 1, 'x', x'00', null), (2.5, 2, null, null, null)"
    )
    table = lite.read(table="u")
    assert table.schema.types == [pa.float64(), pa.int64(), pa.string(), pa.binary(), pa.string()]
    lite.sql("insert into u(a) values ('x'), ('y')")
    with pytest.raises(CastError, match=r"column a .*1 integer, 1 real, 2 text"):
        lite.read(table="u")
    assert lite.read(table="u", columns=("b",)).num_rows == 4
    with pytest.raises(CastError, match="column a"):
        lite.read(sql="select a from u")


def test_a_type_that_was_given_needs_no_scan(lite: Lite) -> None:
    lite.sql("create table t(a)")
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i as a from n"
    source = lite.source(sql=endless, types={"a": "int64"})
    with source.snapshot(attach_all=source.attach) as at:
        assert source.schema(at).to_arrow() == pa.schema([("a", pa.int64())])


def test_tables_are_spelled_as_they_are_asked_for(lite: Lite) -> None:
    names = ["plain", "a.b", 'a"b', "`c`", "[d]", '"e.f"']
    for name in names:
        quoted = name.replace('"', '""')
        lite.sql(f'create table "{quoted}"(a integer)')
    found = CONNECTOR.tables(Endpoint("lite", "sqlite", database=str(lite.path)))
    assert "plain" in [one.name for one in found]
    assert sorted(parse_table_name(one.name, "sqlite") for one in found) == sorted((name,) for name in names)


def test_a_query_keeps_the_declared_types_of_its_columns(lite: Lite) -> None:
    lite.sql("create table q(a decimal(5,2), b date)", "insert into q values (1.5, '2024-01-01')")
    table = lite.read(sql="select b as x, a as y, a + 1 as z from q")
    assert table.schema.types == [pa.date32(), pa.decimal128(5, 2), pa.float64()]


def test_without_rowid_views_and_shadowed_rowids_are_read(lite: Lite) -> None:
    lite.sql(
        "create table w(a text, b int, primary key (a, b)) without rowid",
        "insert into w values ('x', 1), ('y', 2), ('y', 3)",
        "create view v as select * from w",
        "create table r(rowid text, oid text)",
        "insert into r values ('a', 'b')",
    )
    assert lite.read(2, table="w").num_rows == 3
    assert lite.read(2, table="v").num_rows == 3
    assert lite.read(2, "b", table="v").num_rows == 3
    assert lite.read(2, table="r").to_pydict() == {"rowid": ["a"], "oid": ["b"]}


def test_one_heavy_value_is_said(lite: Lite) -> None:
    lite.sql(
        "create table h(k int)",
        "with recursive n(i) as (select 1 union all select i+1 from n where i < 20000) "
        "insert into h select case when i % 10 < 4 then 42 else i end from n",
    )
    source = lite.source(table="h")
    with source.snapshot(attach_all=source.attach) as at:
        wish = CutWish("k", 4)
        plan = cut(source.facts(at, wish, sample=True), wish)
        assert plan.reason == "one-value"
        assert "42" in plan.why
        assert "40 %" in plan.why
        assert sum(source.count(at, p) for p in plan.parts) == 20000


WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
k, worst = 1, 0.0
print("on", flush=True)
while True:
    start = time.perf_counter()
    db.execute("begin immediate")
    db.execute("update t35 set v=v-1 where id=?", (k,))
    db.execute("update t35 set v=v+1 where id=?", (20001 - k,))
    db.execute("commit")
    worst = max(worst, time.perf_counter() - start)
    k = k % 10000 + 1
    if k % 50 == 0:
        open(sys.argv[1] + ".worst", "w").write(str(worst))
"""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def pairs(lite: Lite, journal: str) -> None:
    lite.sql(f"pragma journal_mode = {journal}", "create table t35(id integer primary key, v int)")
    lite.sql(
        "with recursive n(i) as (select 1 union all select i+1 from n where i < 20000) "
        "insert into t35 select i, 0 from n"
    )


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sql_71_parts_are_of_one_moment_while_a_writer_goes_on(lite: Lite, journal: str) -> None:
    pairs(lite, journal)
    with writing(lite.path):
        for _ in range(4):
            source = lite.source(table="t35")
            with source.snapshot(attach_all=source.attach) as at:
                wish = CutWish("id", 4)
                parts = cut(source.facts(at, wish, sample=True), wish).parts
                sums: list[int] = []

                def one(
                    part: Partition, source: SqliteSource = source, at: Snapshot = at, sums: list[int] = sums
                ) -> None:
                    table = everything(source, at, [part], Tally())
                    sums.append(sum(integers(table["v"])))
                    sums.append(table.num_rows * 1_000_000_000)

                threads = [threading.Thread(target=one, args=(p,)) for p in parts]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert len(parts) == 4
                assert sum(sums) == 20000 * 1_000_000_000


def test_sql_71_a_rollback_journal_says_that_writers_wait(lite: Lite) -> None:
    pairs(lite, "delete")
    assert lite.read(table="t35").num_rows == 20000
    assert any("writers" in note for note in lite.notes)


WORKER = """
import pickle, sys
from connectors.base import Tally
from etl.core.errors import SnapshotLost
from etl.core.partition import Partition, Whole
source, at, attached = pickle.load(sys.stdin.buffer)
if attached: source.attach(at)
print("on", flush=True)
sys.stdin.buffer.readline()
try:
    schema = source.schema(at)
    batches = source.read(at, Partition(0, Whole()), schema=schema, batch_bytes=1 << 20, tally=Tally())
    print(sum(sum(b.column("v").to_pylist()) for b in batches))
except SnapshotLost:
    print("lost")
"""


@pytest.mark.parametrize(("attached", "right"), [(True, "0"), (False, "lost")])
def test_a_worker_sees_the_moment_of_its_attachment_or_none(lite: Lite, attached: bool, right: str) -> None:  # noqa: FBT001
    pairs(lite, "wal")
    source = lite.source(table="t35")
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        heard = worker.stdout

        def attach(at: Snapshot) -> None:
            assert worker.stdin is not None
            worker.stdin.write(pickle.dumps((source, at, attached)))
            worker.stdin.flush()
            assert heard.readline() == b"on\n"

        with source.snapshot(attach_all=attach) as at:
            lite.sql("update t35 set v = 5 where id = 1")
            worker.stdin.write(b"\n")
            worker.stdin.flush()
            assert heard.readline().decode().strip() == right
            assert everything(source, at, [WHOLE], Tally())["v"].to_pylist()[0] == 0


def test_nothing_is_left_open_or_on_disk(lite: Lite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    pairs(lite, "delete")
    lite.read(2, "id", table="t35")
    assert list(scratch.iterdir()) == []
    lite.sql("update t35 set v = 1")


def test_a_large_rollback_file_is_copied_and_writers_go_on(lite: Lite, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs(lite, "delete")
    assert COPY_ABOVE == 256 << 20
    monkeypatch.setattr("connectors.sqlite.COPY_ABOVE", 1000)
    source = lite.source(table="t35")
    with source.snapshot(attach_all=source.attach) as at:
        assert at.kind == "file"
        lite.sql("update t35 set v = 1")
        assert sum(integers(everything(source, at, [WHOLE], Tally())["v"])) == 0


def test_a_busy_file_is_a_transient_error(lite: Lite) -> None:
    lite.sql("create table t(a)")
    holder = sqlite3.connect(lite.path, isolation_level=None)
    holder.execute("begin exclusive")
    source = CONNECTOR.source(
        Endpoint("lite", "sqlite", database=str(lite.path), query={"timeout": "0.1"}), Query(table="t")
    )
    with pytest.raises(StoreUnavailable, match="lite"), source.snapshot(attach_all=source.attach):
        pass
    holder.close()


def test_missing_files_foreign_files_and_odd_options_are_named(tmp_path: Path) -> None:
    def of(path: Path | str, **query: str) -> SqliteSource:
        return CONNECTOR.source(Endpoint("lite", "sqlite", database=str(path), query=query), Query(table="t"))

    with pytest.raises(ConfigError, match="no SQLite file"), of(tmp_path / "none.db").snapshot(attach_all=print):
        pass
    (tmp_path / "text.db").write_text("no database at all" * 100)
    with pytest.raises(StoreRejected, match="not a database"), of(tmp_path / "text.db").snapshot(attach_all=print):
        pass
    with pytest.raises(ConfigError, match="modus"):
        of(tmp_path / "x.db", modus="ro")
    with pytest.raises(ConfigError, match="names no SQLite file"):
        of(":memory:")


def test_sources_are_read_only(lite: Lite) -> None:
    lite.sql("create table t(a)", "insert into t values (1)")
    for text in ("delete from t", "pragma user_version = 7", "with x as (select 1) delete from t"):
        with pytest.raises(EtlError):
            lite.read(sql=text)
    assert lite.read(table="t").num_rows == 1


def test_sql_84_parameters_are_values(lite: Lite) -> None:
    lite.sql("create table t34(id int)")
    hostile = "x'); drop table t34; --"
    table = lite.read(sql="select :t as t, :n as n, ':n' as s", params={"t": hostile, "n": 5})
    assert table.to_pydict() == {"t": [hostile], "n": [5], "s": [":n"]}
    with pytest.raises(ConfigError, match="--param"):
        lite.read(sql="select :b as b")


def test_memory_follows_the_batch_not_the_table(lite: Lite) -> None:
    lite.sql(
        "create table big(id integer primary key, v text)",
        "with recursive n(i) as (select 1 union all select i+1 from n where i < 3000) "
        "insert into big select i, printf('%.*c', i * 10, 'x') from n",
    )
    source = lite.source(table="big")
    with source.snapshot(attach_all=source.attach) as at:
        schema = source.schema(at)
        sizes = [b.nbytes for b in source.read(at, WHOLE, schema=schema, batch_bytes=1 << 20, tally=Tally())]
    assert sum(sizes) > 40 << 20
    assert max(sizes) < 3 << 20


def test_the_demo_shop_is_read_quickly_and_is_the_same_in_every_build(lite: Lite, tmp_path: Path) -> None:
    other = Lite(tmp_path / "other.db")
    for one in (lite, other):
        with contextlib.closing(sqlite3.connect(one.path)) as connection:
            connection.executescript(sql_text("demo/schema.sql") + sql_text("demo/rows.sql"))
    assert lite.path.read_bytes() == other.path.read_bytes()
    start = time.process_time()
    counts = [lite.read(table=name).num_rows for name in ("users", "items", "orders")]
    used = time.process_time() - start
    assert counts == [20000, 1000, 179000]
    assert used < 4.0
    features = lite.read(sql=sql_text("demo/features.sql"))
    assert features.num_rows == 20000
    assert features.schema.field("churned").type == pa.bool_()
    assert features["churned"].to_pylist().count(True) > 3000
    part = Partition(0, KeyRange(("user_id",), ("1",), ("101",)))
    source = lite.source(sql=sql_text("demo/features.sql"))
    with source.snapshot(attach_all=source.attach) as at:
        assert everything(source, at, [part], Tally()).num_rows == 100


def test_reading_imports_no_pandas(lite: Lite) -> None:
    lite.sql("create table t(a int, b text, c date)", "insert into t values (1, 'x', '2024-01-01')")
    program = (
        "import sys\nfrom connectors.base import *\nfrom connectors.sqlite import CONNECTOR\n"
        "from etl.core.partition import Partition, Whole\n"
        f"s = CONNECTOR.source(Endpoint('l', 'sqlite', database={str(lite.path)!r}), Query(table='t'))\n"
        "with s.snapshot(attach_all=s.attach) as at:\n"
        "    list(s.read(at, Partition(0, Whole()), schema=s.schema(at), batch_bytes=1 << 20, tally=Tally()))\n"
        "assert not {'pandas', 'sqlalchemy', 'dask'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_is_not_a_file_wherever_it_is_asked(tmp_path: Path) -> None:
    at = Endpoint("lite", "sqlite", database=str(tmp_path))
    for ask in (
        lambda: CONNECTOR.tables(at),
        lambda: CONNECTOR.server(at),
        lambda: CONNECTOR.source(at, Query(table="t")).snapshot(attach_all=print).__enter__(),
    ):
        with pytest.raises(ConfigError, match=r"connection lite: .* is a folder, not an SQLite file\. Name the file"):
            ask()
    with pytest.raises(ConfigError, match="there is no SQLite file"):
        CONNECTOR.tables(replace(at, database=str(tmp_path / "none.db")))
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_began_after_the_snapshot_does_not_say_that_the_file_changed(lite: Lite) -> None:
    lite.sql("pragma journal_mode = wal", "create table t(id integer primary key)", "insert into t values (1)")
    source = lite.source(table="t")
    with source.snapshot(attach_all=lambda _: None) as at:
        ask = f"""
import pickle, sys
from etl.core.errors import SnapshotLost
source, at = pickle.loads(bytes.fromhex({pickle.dumps((source, at)).hex()!r}))
try:
    source.schema(at)
except SnapshotLost as error:
    print(error)
"""
        said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"this worker began after the snapshot of SQLite file {lite.path}"), said
    assert "changed" not in said
