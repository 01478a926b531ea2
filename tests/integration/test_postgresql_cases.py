"""Values, types and names of PostgreSQL tables and queries, each as the case of its number says."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.base import CutWish, Query
from etl.core.errors import CastError, ConfigError, DecimalTooNarrow, StoreRejected
from tests.reading_postgresql import WHOLE, Result, endpoint, nothing, read, read_part, source

if TYPE_CHECKING:
    from connectors.base import Special
    from tests.servers.postgresql import PostgresDatabase

UTC = dt.UTC


def sql(db: PostgresDatabase, text: str, *, special: Special | None = None, **types: str) -> Result:
    return read(endpoint(db.url), Query(sql=text, special=special, types=types))


def one(db: PostgresDatabase, text: str) -> tuple[Any, ...]:
    (row,) = sql(db, text).data
    return row


def test_sql_01_a_null_does_not_touch_integers(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t01(id int primary key, big bigint)", "insert into t01 values (1,9007199254740993),(2,null)")
    for parts in (1, 2):
        got = read(endpoint(pgdb.url), Query(table="t01"), CutWish(partitions=parts))
        assert got.table.schema == pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("big", pa.int64())])
        assert got.data == [(1, 9007199254740993), (2, None)]


def test_sql_06_percent_and_colon_mean_nothing_to_us(pgdb: PostgresDatabase) -> None:
    got = sql(pgdb, "select 5 % 3 as m, 'abc' like 'a%' as l, 'x:y' as c")
    assert got.table.schema.types == [pa.int32(), pa.bool_(), pa.string()]
    assert got.data == [(2, True, "x:y")]
    with pytest.raises(ConfigError, match="day"):
        source(endpoint(pgdb.url), Query(sql="select 5 % 3 as m", params={"day": "2024-01-01"}))


def test_sql_10_to_12_decimals_are_exact(pgdb: PostgresDatabase) -> None:
    got = sql(pgdb, "select sum(g::bigint) s, 1.5::numeric(10,2) n from generate_series(1,3) g group by 2")
    assert got.table.schema.types == [pa.decimal128(38, 18), pa.decimal128(10, 2)]
    assert got.data == [(6, Decimal("1.50"))]
    assert one(pgdb, "select 12345678901234567890.5::numeric a") == (Decimal("12345678901234567890.5"),)
    got = sql(pgdb, "select 0.123456789012345::numeric(20,15) a, 1234567890123456789012345678.91::numeric(30,2) b")
    assert got.table.schema.types == [pa.decimal128(20, 15), pa.decimal128(30, 2)]
    assert got.data == [(Decimal("0.123456789012345"), Decimal("1234567890123456789012345678.91"))]


def test_sql_14_no_rows_keep_their_schema(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t14(a int, b timestamptz, c numeric(10,2))")
    for query in (Query(sql="select * from t14 where false"), Query(table="t14")):
        got = read(endpoint(pgdb.url), query, CutWish(partitions=3))
        assert got.table.schema.types == [pa.int32(), pa.timestamp("us", tz="UTC"), pa.decimal128(10, 2)]
        assert got.table.num_rows == 0


def test_sql_15_a_column_that_is_null_at_first_has_its_type(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t15(id int, v double precision)",
        "insert into t15 select g,null from generate_series(1,100) g",
        "insert into t15 values (101,1.5)",
    )
    got = read(endpoint(pgdb.url), Query(table="t15"))
    assert got.table.schema.types == [pa.int32(), pa.float64()]
    assert got.table.column("v").null_count == 100
    nothing_known = sql(pgdb, "select null as x")
    assert nothing_known.table.schema.types == [pa.string()]
    assert nothing_known.data == [(None,)]


def test_sql_16_duplicate_names_are_refused_with_positions(pgdb: PostgresDatabase) -> None:
    with pytest.raises(ConfigError, match="columns 1 and 2 are both named a: give one an alias"):
        sql(pgdb, "select 1 a, 2 a")
    with pytest.raises(ConfigError, match=r"columns 1 and 3 are both named \?column\?"):
        sql(pgdb, "select 1, 2 as b, 3")


def test_sql_17_uuid(pgdb: PostgresDatabase) -> None:
    got = sql(pgdb, "select '11111111-2222-3333-4444-555555555555'::uuid u")
    assert got.table.schema.types == [pa.uuid()]
    assert got.data == [(uuid.UUID("11111111-2222-3333-4444-555555555555"),)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("with q as (select 1 a) select * from q;", 1),
        ("select 1 a -- hi", 1),
        ("select 1 a;;", 1),
        ("select 1 a union all select 2", 2),
        ("values (1), (2), (3)", 3),
    ],
)
def test_sql_19_the_text_is_taken_as_written_whole_or_split(pgdb: PostgresDatabase, text: str, rows: int) -> None:
    column = "column1" if text.startswith("values") else "a"
    for wish in (CutWish(), CutWish(column=column, partitions=2)):
        assert read(endpoint(pgdb.url), Query(sql=text), wish).table.num_rows == rows


def test_sql_20_both_sides_of_a_clock_change_are_instants(pgdb: PostgresDatabase) -> None:
    pgdb.sql(f"alter database \"{pgdb.name}\" set timezone = 'America/New_York'")
    got = sql(pgdb, "select * from (values ('2014-10-16 07:50:49-04'::timestamptz),('2014-11-06 07:42:06-05')) v(t)")
    assert got.table.schema.types == [pa.timestamp("us", tz="UTC")]
    assert [t for (t,) in got.data] == [
        dt.datetime(2014, 10, 16, 11, 50, 49, tzinfo=UTC),
        dt.datetime(2014, 11, 6, 12, 42, 6, tzinfo=UTC),
    ]


def test_sql_24_infinity_follows_the_policy(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t24(id int primary key, a timestamptz, d date)",
        "insert into t24 values (1,'infinity','infinity'),(2,'-infinity','-infinity'),(3,'2024-01-01','2024-01-01')",
    )
    at = endpoint(pgdb.url)
    with pytest.raises(CastError, match=r"column (a|d).*id=1.*infinity"):
        read(at, Query(table="t24"))
    nulled = read(at, Query(table="t24", special="null"))
    assert [r[1] is None and r[2] is None for r in sorted(nulled.data)] == [True, True, False]
    assert nulled.tallies[0].special == {
        "a": {"infinity": 1, "-infinity": 1},
        "d": {"infinity": 1, "-infinity": 1},
    }
    clamped = read(at, Query(table="t24", special="clamp")).table
    for column in ("a", "d"):
        raw: list[Any] = clamped.column(column).cast(pa.int64() if column == "a" else pa.int32()).to_pylist()
        assert [i for _, i in sorted(zip(raw, clamped.column("id").to_pylist(), strict=True))] == [2, 3, 1]
        assert min(raw) != -(2**63)


def test_sql_26_nan_in_numeric_is_never_zero(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t26(id int primary key, v numeric(10,2))", "insert into t26 values (1,'NaN'),(2,3.14)")
    for policy in (None, "clamp"):
        with pytest.raises(CastError, match=r"v.*id=1.*NaN"):
            read(endpoint(pgdb.url), Query(table="t26", special=policy))
    got = read(endpoint(pgdb.url), Query(table="t26", special="null"))
    assert got.data == [(1, None), (2, Decimal("3.14"))]


def test_sql_27_a_bare_numeric_is_measured_and_read_again_wider(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t27(id int primary key, v numeric)",
        "insert into t27 values (1,1.5),(2,0.1234567890123456789012)",
    )
    at = endpoint(pgdb.url)
    first = source(at, Query(table="t27"))
    with first.snapshot(attach_all=nothing) as moment:
        schema = first.schema(moment)
        assert schema.field("v").type == pa.decimal128(38, 18)
        assert "wider if the data needs it" in schema.field("v").note
        with pytest.raises(DecimalTooNarrow):
            read_part(first, moment, WHOLE, schema)
        pgdb.sql("insert into t27 values (3, 1e30)")  # after the snapshot: it must not count
        wide = first.widen(moment)
        again = wide.schema(moment)
        assert again.field("v").type == pa.decimal128(38, 22)
        assert "measured" in again.field("v").note
        (batch,), _ = read_part(wide, moment, WHOLE, again)
    assert batch.to_pylist() == [
        {"id": 1, "v": Decimal("1.5")},
        {"id": 2, "v": Decimal("0.1234567890123456789012")},
    ]


def test_sql_27_a_type_that_was_asked_for_is_not_widened(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t27(id int primary key, v numeric)", "insert into t27 values (2,0.1234567890123456789012)")
    at = endpoint(pgdb.url)
    types = {"v": "decimal(38,18)"}
    with pytest.raises(CastError, match=r"v.*id=2.*0\.1234567890123456789012") as caught:
        read(at, Query(table="t27", types=types))
    assert not isinstance(caught.value, DecimalTooNarrow)
    got = read(at, Query(table="t27", types=types, cast="round"))
    assert got.data == [(2, Decimal("0.123456789012345679"))]
    assert got.tallies[0].rounded == {"v": 1}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("1e25, 0.001", pa.decimal128(38, 3)),
        ("1e25, 1e-30", pa.decimal256(76, 30)),
        ("123456789012345678901.5, 'NaN', 'Infinity'", pa.decimal128(38, 1)),
        ("0.00000000000000000001000", pa.decimal128(38, 20)),
    ],
)
def test_widening_takes_the_narrowest_type_that_holds_all(
    pgdb: PostgresDatabase, values: str, kind: pa.DataType
) -> None:
    text = f"select unnest(array[{values}]::numeric[]) v, array[{values}]::numeric[] a"
    query = source(endpoint(pgdb.url), Query(sql=text, special="null"))
    with query.snapshot(attach_all=nothing) as moment:
        wide = query.widen(moment)
        schema = wide.schema(moment)
        assert schema.to_arrow().types == [kind, pa.list_(kind)]
        batches, _ = read_part(wide, moment, WHOLE, schema)
    want = [Decimal(v) if "'" not in v else None for v in values.split(", ")]
    assert [r["v"] for b in batches for r in b.to_pylist()] == want


def test_sql_38_odd_types_never_stop_a_query(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create type mood as enum('sad','ok')")
    got = sql(
        pgdb,
        "select '1 day'::interval i, array['ok'::mood] m, '-1.5'::money c, '10.0.0.0/8'::cidr n, B'101'::varbit b",
    )
    assert got.table.schema.types[1:] == [
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.decimal128(19, 2),
        pa.string(),
        pa.string(),
    ]
    assert got.data == [((0, 1, 0), ["ok"], Decimal("-1.50"), "10.0.0.0/8", "101")]
    assert got.schema.field("b").read_as == "text"
    assert "text" in got.schema.field("b").note


def test_sql_40_arrays_keep_their_shape(pgdb: PostgresDatabase) -> None:
    text = "select array[[1,2],[3,4]] b, array[1,null,3] a, '{}'::int[] e, '[0:1]={7,8}'::int[] z"
    with pytest.raises(CastError, match=r"b.*(2|1).*(2|1)"):
        sql(pgdb, text)
    got = sql(pgdb, text, b="list(list(int32))")
    assert got.data == [([[1, 2], [3, 4]], [1, None, 3], [], [7, 8])]


def test_sql_40_a_table_columns_depth_is_declared(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t40(m int[][])", "insert into t40 values (array[[1,2],[3,4]]), ('{}'), (null)")
    for query in (Query(table="t40"), Query(sql="select m from t40")):
        got = read(endpoint(pgdb.url), query)
        assert got.table.schema.types == [pa.list_(pa.list_(pa.int32()))]
        assert got.data == [([[1, 2], [3, 4]],), ([],), (None,)]


def test_sql_50_odd_times(pgdb: PostgresDatabase) -> None:
    text = "select '10:00:00+02'::timetz b, '23:59:59.999999-12'::timetz c"
    assert one(pgdb, text) == ("10:00:00+02", "23:59:59.999999-12")
    day = "select '24:00:00'::time a"
    with pytest.raises(CastError, match="24:00:00"):
        sql(pgdb, day)
    assert sql(pgdb, day, special="null").data == [(None,)]
    assert sql(pgdb, day, special="clamp").data == [(dt.time(23, 59, 59, 999999),)]


def test_sql_51_names_are_kept_byte_for_byte(pgdb: PostgresDatabase) -> None:
    pgdb.sql('create table "T51.%"("a%b" int, "c""d" int, "e.f" int)', 'insert into "T51.%" values (1,2,3)')
    for wish in (CutWish(), CutWish(column='c"d', partitions=2)):
        got = read(endpoint(pgdb.url), Query(table='"T51.%"'), wish)
        assert got.table.column_names == ["a%b", 'c"d', "e.f"]
        assert got.data == [(1, 2, 3)]


def test_sql_53_long_arrays_of_uuid_and_timestamp(pgdb: PostgresDatabase) -> None:
    got = sql(
        pgdb,
        "select array_agg(('00000000-0000-0000-0000-'||lpad(g::text,12,'0'))::uuid order by g) u,"
        " array_agg('2024-01-01'::timestamp + g*interval '1 us' order by g) t from generate_series(1,300) g",
    )
    assert got.table.schema.types == [pa.list_(pa.string()), pa.list_(pa.timestamp("us"))]
    ((uuids, times),) = got.data
    assert uuids == [f"00000000-0000-0000-0000-{g:012}" for g in range(1, 301)]
    assert times == [dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=g) for g in range(1, 301)]  # noqa: DTZ001


def test_sql_56_oid_money_inet(pgdb: PostgresDatabase) -> None:
    got = sql(pgdb, "select 4294967295::oid o, 12.34::money m, '10.0.0.1'::inet i, '::1/64'::inet j")
    assert got.table.schema.types[:2] == [pa.uint32(), pa.decimal128(19, 2)]
    assert got.data == [(4294967295, Decimal("12.34"), "10.0.0.1", "::1/64")]


def test_sql_59_wide_tables(pgdb: PostgresDatabase) -> None:
    columns = [f"c{i}" for i in range(1600)]
    pgdb.sql(f"create table t59({', '.join(f'{c} int' for c in columns)})")
    pgdb.sql(f"insert into t59 select {', '.join(f'g*10000+{i}' for i in range(1600))} from generate_series(1,100) g")
    got = read(endpoint(pgdb.url), Query(table="t59"))
    assert got.table.column_names == columns
    assert sorted(got.data) == [tuple(g * 10000 + i for i in range(1600)) for g in range(1, 101)]


def test_sql_60_generated_columns_and_row_security(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t60(a int, b int generated always as (a*2) stored, owner text)",
        "drop role if exists r60",
        "create role r60 login password 'r60'",
        "insert into t60(a,owner) values (1,'r60'),(2,'x')",
        "grant select on t60 to r60",
        "alter table t60 enable row level security",
        "create policy p60 on t60 using (owner = current_user)",
    )
    url = pgdb.server.url_of(pgdb.name, user="r60", password="r60")
    try:
        got = read(endpoint(url), Query(table="t60"), CutWish(partitions=4))
        assert got.data == [(1, 2, "r60")]
        assert (len(got.plan.parts), got.plan.reason) == (1, "row-security")
        by_key = read(endpoint(url), Query(table="t60"), CutWish(column="a", partitions=4))
        assert by_key.data == [(1, 2, "r60")]
    finally:
        pgdb.sql("drop owned by r60", "drop role r60")


def test_sql_62_beyond_int64_microseconds(pgdb: PostgresDatabase) -> None:
    text = "select '294276-12-31 23:59:59.999999'::timestamp t, 1 id"
    with pytest.raises(CastError, match="t"):
        sql(pgdb, text)
    nulled = sql(pgdb, text, special="null")
    assert nulled.data == [(None, 1)]
    assert sum(nulled.tallies[0].special["t"].values()) == 1
    clamped = sql(pgdb, text, special="clamp").table.column("t").cast(pa.int64()).to_pylist()
    assert clamped == [2**63 - 1]


def test_sql_63_odd_numeric_declarations(pgdb: PostgresDatabase) -> None:
    if pgdb.major < 15:
        pytest.skip("scales below 0 came with PostgreSQL 15")
    pgdb.sql(
        "create table t63(a numeric(3,-2), b numeric(3,5), c numeric(40,2), d numeric(100,2))",
        "insert into t63 values (12345,0.00123,12345678901234567890123456789012345678.91,1.25)",
    )
    got = read(endpoint(pgdb.url), Query(table="t63"))
    assert got.table.schema.types == [
        pa.decimal128(5, 0),
        pa.decimal128(5, 5),
        pa.decimal256(40, 2),
        pa.string(),
    ]
    assert got.data == [(12300, Decimal("0.00123"), Decimal("12345678901234567890123456789012345678.91"), "1.25")]
    assert got.schema.field("d").read_as == "text"


def test_sql_65_json_is_not_rewritten(pgdb: PostgresDatabase) -> None:
    got = sql(pgdb, """select '{"a": 1.10}'::json j, '{"a": 1.10}'::jsonb b""")
    assert got.data == [('{"a": 1.10}', '{"a": 1.10}')]
    assert got.schema.field("j").metadata == got.schema.field("b").metadata == {"cuetl.type": "json"}


def test_sql_66_user_defined_and_nested_types(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create type mood as enum('sad','ok')",
        "create domain posint as int check (value > 0)",
        "create type comp66 as (a int, b text)",
        "create extension if not exists hstore",
        "create table t66(x posint, y int4range, z mood[], h hstore, c comp66, v numeric(5,2)[], e int4range, k mood)",
        "insert into t66 values (1,'[1,5)','{ok,sad}','a=>1,b=>null','(1,x)','{1.50,null}','empty','ok')",
    )
    got = read(endpoint(pgdb.url), Query(table="t66"))
    span = {"lower": 1, "upper": 5, "lower_inc": True, "upper_inc": False, "empty": False}
    empty = {"lower": None, "upper": None, "lower_inc": False, "upper_inc": False, "empty": True}
    assert got.data == [
        (1, span, ["ok", "sad"], [("a", "1"), ("b", None)], {"a": 1, "b": "x"}, [Decimal("1.50"), None], empty, "ok")
    ]
    assert got.schema.field("k").vocabulary == ("sad", "ok")
    labels = got.table.column("k").chunk(0)
    assert isinstance(labels, pa.DictionaryArray)
    assert labels.dictionary.to_pylist() == ["sad", "ok"]


def test_sql_67_intervals_have_no_invented_months(pgdb: PostgresDatabase) -> None:
    row = one(pgdb, "select '1 mon 2 days 3:04:05'::interval a, '-1 year 00:00:00.000001'::interval b")
    assert row == ((1, 2, 11045000000000), (-12, 0, 1000))


def test_sql_84_parameters_are_values(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t34(id int)")
    text = "select :day::date d, ':day' s, (array[1,2,3])[1:2] a, $$:day$$ q /* :day */ -- :day"
    got = read(endpoint(pgdb.url), Query(sql=text, params={"day": "2024-01-31"}))
    assert got.data == [(dt.date(2024, 1, 31), ":day", [1, 2], ":day")]
    sly = "x'); drop table t34; --"
    assert read(endpoint(pgdb.url), Query(sql="select :v::text v", params={"v": sly})).data == [(sly,)]
    assert pgdb.sql("select count(*) from t34") == [(0,)]


def test_parameters_of_every_python_type_arrive_typed(pgdb: PostgresDatabase) -> None:
    values: dict[str, object] = {
        "i": -7,
        "b": True,
        "f": 1.5,
        "n": Decimal("-1.250"),
        "d": dt.date(2024, 2, 29),
        "t": dt.datetime(2024, 1, 1, 12, tzinfo=UTC),
        "v": dt.timedelta(days=2, seconds=3),
        "y": b"\x00\xff",
        "z": None,
        "a": [1, 2],
    }
    text = "select :i i, :b b, :f f, :n n, :d d, :t t, :v v, :y y, :z::int z, :a a"
    (row,) = read(endpoint(pgdb.url), Query(sql=text, params=values)).data
    assert row == (
        -7,
        True,
        1.5,
        Decimal("-1.25"),
        values["d"],
        values["t"],
        (0, 2, 3 * 10**9),
        b"\x00\xff",
        None,
        [1, 2],
    )


def test_sql_85_only_one_read_is_taken(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t34(id int)",
        "insert into t34 values (1)",
        "create function ins() returns int language sql as 'insert into t34 values (2) returning id'",
    )
    for text in (
        "select 1 a; select 2 b",
        "delete from t34",
        "with x as (delete from t34 returning *) select * from x",
    ):
        with pytest.raises((ConfigError, StoreRejected)):
            sql(pgdb, text)
    with pytest.raises(StoreRejected, match="read-only transaction"):
        sql(pgdb, "select ins() a")
    assert pgdb.sql("select count(*) from t34") == [(1,)]


def test_types_words_change_what_is_read(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table w(i int, b bytea, n numeric(5,2), d date, u uuid, j jsonb)",
        "insert into w values (1, '\\xff00', 1.25, '2024-01-01', '11111111-2222-3333-4444-555555555555', '{}')",
    )
    types = {"i": "int64", "b": "hex", "n": "decimal(20,4)", "d": "timestamp[us]", "u": "string", "j": "string"}
    got = read(endpoint(pgdb.url), Query(table="w", types=types))
    assert got.table.schema.types == [
        pa.int64(),
        pa.string(),
        pa.decimal128(20, 4),
        pa.timestamp("us"),
        pa.string(),
        pa.string(),
    ]
    assert got.data == [
        (1, "ff00", Decimal("1.2500"), dt.datetime(2024, 1, 1), "11111111-2222-3333-4444-555555555555", "{}")  # noqa: DTZ001
    ]
    for column, word in (("i", "int16"), ("i", "hex"), ("n", "float64"), ("d", "list(int32)")):
        with pytest.raises(ConfigError, match=f"column {column} "):
            read(endpoint(pgdb.url), Query(table="w", types={column: word}))
    with pytest.raises(ConfigError, match="Did you mean"):
        read(endpoint(pgdb.url), Query(table="w", types={"ii": "int64"}))


def test_every_type_without_a_decoder_comes_as_the_servers_text(pgdb: PostgresDatabase) -> None:
    texts = {
        "regtype": "integer",
        "macaddr": "08:00:2b:01:02:03",
        "xml": "<a/>",
        "tsvector": "a b",
        "point": "(1,2)",
        "box": "(1,1),(0,0)",
        "pg_lsn": "16/B374D848",
        "timetz": "10:00:00+02",
        "bit(3)": "101",
        "jsonpath": '$."a"',
        "tid": "(0,1)",
    }
    if pgdb.sql("select count(*) from pg_config() where setting like '%--with-libxml%'") == [(0,)]:
        del texts["xml"]
    columns = ", ".join(f"'{value}'::{kind} c{i}" for i, (kind, value) in enumerate(texts.items()))
    got = sql(
        pgdb,
        f"select {columns}, row(1,2) r, array['(1,2)'::point] p, '\"char\"'::name n, 'x'::\"char\" q, ''::\"char\" z",
    )
    assert set(got.table.schema.types) == {pa.string()}
    texts["tsvector"] = "'a' 'b'"
    assert got.data == [(*texts.values(), "(1,2)", '{"(1,2)"}', '"char"', "x", "")]
    assert all(f.read_as == "text" for f in got.schema.fields[: len(texts) + 2])


def test_latin1_databases_are_read_as_utf8(pgdb: PostgresDatabase) -> None:
    name = f"{pgdb.name}_l1"
    url = pgdb.server.database(name, options="encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'")
    try:
        pgdb.server.sql('create table "ñ"("ä" text)', "insert into \"ñ\" values ('é')", database=name)
        got = read(endpoint(url), Query(table="ñ", columns=("ä",)))
        assert got.table.to_pylist() == [{"ä": "é"}]
    finally:
        pgdb.server.drop(name)


def test_sql_ascii_text_that_is_not_utf8_follows_the_policy(pgdb: PostgresDatabase) -> None:
    name = f"{pgdb.name}_sa"
    url = pgdb.server.database(name, options="encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
    try:
        pgdb.server.sql("create table n(id int primary key, v text)", database=name)
        pgdb.server.sql(
            "insert into n values (1, 'ok'), (2, convert_from('\\x61ff'::bytea, 'SQL_ASCII'))", database=name
        )
        with pytest.raises(CastError, match=r"v.*id=2"):
            read(endpoint(url), Query(table="n"))
        assert read(endpoint(url), Query(table="n", special="null")).data == [(1, "ok"), (2, None)]
        assert read(endpoint(url), Query(table="n", special="clamp")).data == [(1, "ok"), (2, "a\ufffd")]
    finally:
        pgdb.server.drop(name)


def test_only_whole_tables_promise_not_null(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table n(id int primary key, v int)", "create view w as select * from n")
    whole = read(endpoint(pgdb.url), Query(table="n")).schema
    assert [f.nullable for f in whole] == [False, True]
    assert all(f.nullable for f in read(endpoint(pgdb.url), Query(table="w")).schema)
    assert all(f.nullable for f in read(endpoint(pgdb.url), Query(sql="select * from n")).schema)


def test_columns_are_read_in_the_order_asked_for(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table c(a int, b text, d point)", "insert into c values (1, 'x', '(1,2)')")
    for query in (Query(table="c", columns=("d", "a")), Query(sql="select * from c", columns=("d", "a"))):
        got = read(endpoint(pgdb.url), query)
        assert got.table.to_pylist() == [{"d": "(1,2)", "a": 1}]
    with pytest.raises(ConfigError, match="no column e"):
        read(endpoint(pgdb.url), Query(table="c", columns=("e",)))
    with pytest.raises(ConfigError, match="both named a"):
        read(endpoint(pgdb.url), Query(table="c", columns=("a", "a")))


def test_sql_54_a_limit_stays_on_the_server(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t02 as select g id, repeat('x',1000) v from generate_series(1,20000) g")
    at = endpoint(pgdb.url)
    for query in (
        Query(sql="select * from t02 limit 10"),
        Query(table="t02", limit=10),
        Query(sql="select * from t02", limit=10),
    ):
        got = read(at, query, CutWish(partitions=4))
        assert got.table.num_rows == 10
        assert (len(got.plan.parts), got.plan.reason) == (1, "limit")
        assert got.tallies[0].received < 1 << 20
