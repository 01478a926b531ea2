"""Random tables of every type, NULLs and extremes: the wire reader gives what psycopg reads, row for row."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from connectors.base import Tally
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.wire import stream
from etl.core.errors import CastError, DecimalTooNarrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.postgresql import PostgresDatabase, PostgresServer

UTC = pa.timestamp("us", "UTC")
ROWS = 400


@dataclass(frozen=True, slots=True)
class Case:
    """A type of the server, how it is read, texts at its edges and a maker of random texts."""

    sql: str
    kind: Kind
    type: pa.DataType
    edges: tuple[str, ...]
    some: Callable[[random.Random], str]
    children: tuple[ColumnPlan, ...] = ()
    vocabulary: tuple[str, ...] = ()
    depth: int = 0

    def plan(self, name: str) -> ColumnPlan:
        return ColumnPlan(
            name, self.kind, self.type, vocabulary=self.vocabulary, children=self.children, depth=self.depth
        )


def whole(bits: int) -> tuple[tuple[str, ...], Callable[[random.Random], str]]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return (str(low), str(high), "0", "-1"), lambda r: str(r.randint(low, high))


def digits(precision: int, scale: int) -> Case:
    most = 10**precision - 1

    def text(number: int) -> str:
        # Exact where `Decimal`'s context would round.
        sign, size = "-" * (number < 0), str(abs(number)).rjust(scale + 1, "0")
        return f"{sign}{size[: len(size) - scale]}.{size[len(size) - scale :]}" if scale else f"{sign}{size}"

    def some(r: random.Random) -> str:
        return text(r.choice((1, -1)) * r.randint(0, 10 ** r.randint(0, precision) - 1))

    kind: pa.DataType = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    edges = (text(most), text(-most), "0", text(1), text(-1), text(10 ** (precision // 2)))
    return Case(f"numeric({precision},{scale})", Kind.NUMERIC, kind, edges, some)


def letters(r: random.Random) -> str:
    return "".join(r.choice("aZ é漢😀'\\\n\t\x01") for _ in range(r.choice((0, 1, 2, 15, 16, 17, 40, 300))))


def array(item: ColumnPlan, sql: str, some: Callable[[random.Random], str], kind: pa.DataType | None = None) -> Case:
    def items(r: random.Random) -> str:
        quoted = [
            "NULL" if r.random() < 0.2 else '"' + some(r).replace("\\", r"\\").replace('"', r"\"") + '"'
            for _ in range(r.randint(0, 6))
        ]
        return "{" + ",".join(quoted) + "}"

    return Case(f"{sql}[]", Kind.ARRAY, kind or pa.list_(item.type), ("{}", "{NULL}"), items, (item,), depth=1)


def item(kind: Kind, type_: pa.DataType) -> ColumnPlan:
    return ColumnPlan("item", kind, type_)


def some_uuid(r: random.Random) -> str:
    return str(uuid.UUID(int=r.getrandbits(128)))


def moment(r: random.Random) -> str:
    day, hour = f"{r.randint(1, 9999):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}", r.randint(0, 23)
    return f"{day} {hour:02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}.{r.randint(0, 999999):06d}"


CASES: dict[str, Case] = {
    "boolean": Case("boolean", Kind.BOOL, pa.bool_(), ("t", "f"), lambda r: r.choice("tf")),
    "int2": Case("smallint", Kind.INT2, pa.int16(), *whole(16)),
    "int4": Case("integer", Kind.INT4, pa.int32(), *whole(32)),
    "int8": Case("bigint", Kind.INT8, pa.int64(), *whole(64)),
    "oid": Case("oid", Kind.UINT4, pa.uint32(), ("0", "4294967295"), lambda r: str(r.getrandbits(32))),
    "real": Case("real", Kind.FLOAT4, pa.float32(), ("1e-37", "3.4e38", "-0", "inf"), lambda r: str(r.gauss(0, 1e9))),
    "double": Case(
        "double precision", Kind.FLOAT8, pa.float64(), ("5e-324", "1.7e308", "-inf"), lambda r: repr(r.gauss(0, 1e90))
    ),
    "text": Case("text", Kind.TEXT, pa.string(), ("", " ", "x" * 5000), letters),
    "varchar": Case("varchar(400)", Kind.TEXT, pa.string(), ("",), letters),
    "char": Case("char(5)", Kind.TEXT, pa.string(), ("", "abcde"), lambda r: r.choice("abc") * r.randint(0, 5)),
    "bytea": Case(
        "bytea", Kind.BYTEA, pa.binary(), (r"\x", r"\x00ff"), lambda r: "\\x" + r.randbytes(r.randint(0, 70)).hex()
    ),
    "uuid": Case("uuid", Kind.UUID, pa.uuid(), (str(uuid.UUID(int=0)), str(uuid.UUID(int=2**128 - 1))), some_uuid),
    "date": Case("date", Kind.DATE, pa.date32(), ("0001-01-01", "9999-12-31", "2000-01-01"), lambda r: moment(r)[:10]),
    "time": Case("time", Kind.TIME, pa.time64("us"), ("00:00", "23:59:59.999999"), lambda r: moment(r)[11:]),
    "timestamp": Case(
        "timestamp", Kind.TIMESTAMP, pa.timestamp("us"), ("0001-01-01", "9999-12-31 23:59:59.999999"), moment
    ),
    "timestamptz": Case(
        "timestamptz", Kind.TIMESTAMPTZ, UTC, ("1970-01-01 00:00:00.000001+00",), lambda r: moment(r) + "+00"
    ),
    "money": Case(
        "money",
        Kind.MONEY,
        pa.decimal128(19, 2),
        ("-92233720368547758.08", "92233720368547758.07"),
        lambda r: str(r.randint(-(10**9), 10**9) / 100),
    ),
    "json": Case("json", Kind.TEXT, pa.string(), ('{"a": 1.10}', " [ ] "), lambda r: str(r.randint(0, 9))),
    "jsonb": Case("jsonb", Kind.JSONB, pa.string(), ('{"a": 1.10}', "[]"), lambda r: str(r.randint(0, 9))),
    "inet": Case(
        "inet",
        Kind.INET,
        pa.string(),
        ("10.0.0.1", "::1", "::1/64", "::ffff:1.2.3.4", "10.0.0.0/8", "1::"),
        lambda r: f"{r.randint(0, 255)}.2.3.4/{r.randint(0, 32)}",
    ),
    "cidr": Case(
        "cidr", Kind.INET, pa.string(), ("10.0.0.1/32", "fe80::/10", "::/0"), lambda r: f"{r.randint(0, 255)}.0.0.0/8"
    ),
    "mood": Case(
        "mood",
        Kind.ENUM,
        pa.dictionary(pa.int32(), pa.string()),
        ("sad", "ok", "glücklich"),
        lambda r: r.choice(("sad", "ok")),
        vocabulary=("sad", "ok", "glücklich"),
    ),
    "int4[]": array(item(Kind.INT4, pa.int32()), "integer", whole(32)[1]),
    "text[]": array(item(Kind.TEXT, pa.string()), "text", letters),
    "uuid[]": array(item(Kind.UUID_TEXT, pa.string()), "uuid", some_uuid),
    "bool[]": array(item(Kind.BOOL, pa.bool_()), "boolean", lambda r: r.choice("tf")),
    "timestamp[]": array(item(Kind.TIMESTAMP, pa.timestamp("us")), "timestamp", moment),
    "numeric[]": array(item(Kind.NUMERIC, pa.decimal128(9, 3)), "numeric(9,3)", digits(9, 3).some),
    "int4[][]": Case(
        "integer[][]",
        Kind.ARRAY,
        pa.list_(pa.list_(pa.int32())),
        ("{}", "{{1,2},{3,NULL}}", "{{1},{2},{3}}"),
        lambda r: f"{{{{{r.randint(0, 9)}}},{{{r.randint(0, 9)}}}}}",
        (item(Kind.INT4, pa.int32()),),
        depth=2,
    ),
    **{
        f"numeric({p},{s})": digits(p, s)
        for p, s in (
            (1, 0),
            (3, 3),
            (10, 2),
            (15, 2),
            (18, 0),
            (18, 18),
            (19, 2),
            (28, 9),
            (38, 0),
            (38, 18),
            (38, 38),
            (39, 1),
            (60, 30),
            (76, 0),
            (76, 76),
        )
    },
}


def read(url: str, sql: str, plans: list[ColumnPlan], **options: Any) -> tuple[pa.Table, Tally]:
    tally = Tally()
    schema = pa.schema([pa.field(p.name, p.type, p.nullable) for p in plans])
    connection = psycopg.connect(url, options="-c timezone=UTC")
    batches = list(stream(connection, f"copy ({sql}) to stdout (format binary)", plans, schema, tally=tally, **options))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema), tally


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, str | bytes) or ours is None or theirs is None or isinstance(theirs, list):
        return bool(ours == theirs)
    if isinstance(theirs, float):
        return bool(ours == theirs and str(ours)[0] == str(theirs)[0]) or (ours != ours and theirs != theirs)  # noqa: PLR0124 - NaN
    return bool(ours == theirs)


@pytest.fixture(scope="module")
def table(pgdb_module: PostgresDatabase) -> tuple[str, list[tuple[Any, ...]]]:
    """All types side by side, rows of edges and random values with NULLs; the URL and what psycopg reads."""
    r = random.Random(20)
    names = list(CASES)
    with psycopg.connect(pgdb_module.url, autocommit=True, options="-c timezone=UTC") as connection:
        connection.execute("create type mood as enum ('sad', 'ok', 'glücklich')")
        columns = ", ".join(f'"{n}" {CASES[n].sql}' for n in names)
        connection.execute(f"create table everything (row_id int, {columns})")
        rows = []
        for number in range(ROWS):
            values: list[str | None] = []
            for name in names:
                case = CASES[name]
                value = case.edges[number] if number < len(case.edges) else case.some(r)
                values.append(None if number >= len(case.edges) and r.random() < 0.15 else value)
            rows.append((number, *values))
        places = ", ".join(["%s", *(f"%s::text::{CASES[n].sql}" for n in names)])
        with connection.cursor() as cursor:
            cursor.executemany(f"insert into everything values ({places})", rows)
            shown = ", ".join(f'"{n}"::text' if n == "json" else f'"{n}"' for n in names)
            shown = shown.replace('"jsonb"', '"jsonb"::text').replace('"money"', '"money"::numeric')
            shown = shown.replace(
                '"inet"', 'case when "inet" is not null then trim(\'"\' from to_json("inet")::text) end'
            )
            shown = shown.replace(
                '"cidr"', 'case when "cidr" is not null then trim(\'"\' from to_json("cidr")::text) end'
            )
            shown = shown.replace('"uuid[]"', '"uuid[]"::text[]')
            theirs = cursor.execute(f"select {shown} from everything order by row_id").fetchall()
    return pgdb_module.url, theirs


@pytest.mark.parametrize("block", [1 << 20, 1 << 14])
def test_every_type_with_nulls_and_edges_reads_as_psycopg_reads_it(
    table: tuple[str, list[tuple[Any, ...]]], block: int
) -> None:
    url, theirs = table
    plans = [case.plan(name) for name, case in CASES.items()]
    quoted = ", ".join(f'"{n}"' for n in CASES)
    found, tally = read(
        url, f"select {quoted} from everything order by row_id", plans, block_bytes=block, batch_bytes=1 << 16
    )
    assert tally.counted == tally.rows == ROWS
    assert tally.how == "socket"
    for index, name in enumerate(CASES):
        ours = found.column(index).to_pylist()
        for row, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            wanted = np.float32(other[index]).item() if name == "real" and other[index] is not None else other[index]
            assert same(mine, wanted), (name, row, mine, wanted)


def test_tls_reads_the_same_rows_through_libpq(pg_tls: PostgresServer) -> None:
    plans = [ColumnPlan("g", Kind.INT4, pa.int32()), ColumnPlan("t", Kind.TEXT, pa.string())]
    sql = "select g, repeat(g::text, g % 9) t from generate_series(1, 100000) g"
    found, tally = read(pg_tls.url, sql, plans)
    assert tally.how == "libpq"
    assert tally.counted == 100000
    assert found.column("g").to_pylist() == list(range(1, 100001))
    assert found.column("t")[99998].as_py() == "99999" * (99999 % 9)


def test_wide_tables_keep_all_columns_in_order(pg: PostgresServer) -> None:
    names = [f"c{i}" for i in range(1600)]
    sql = "select " + ", ".join(f"g * {i} as {n}" for i, n in enumerate(names)) + " from generate_series(1, 100) g"
    found, _ = read(pg.url, sql, [ColumnPlan(n, Kind.INT4, pa.int32()) for n in names])
    assert found.column_names == names
    assert all(found.column(i).to_pylist() == [i * g for g in range(1, 101)] for i in range(1600))


def test_no_rows_give_no_batch_and_all_null_keeps_the_type(pg: PostgresServer) -> None:
    plan = [ColumnPlan("v", Kind.INT4, pa.int32())]
    found, tally = read(pg.url, "select 1 v where false", plan)
    assert found.num_rows == tally.counted == 0
    found, _ = read(pg.url, "select null::int v from generate_series(1, 3)", plan)
    assert found.column("v").to_pylist() == [None] * 3
    assert found.schema.field("v").type == pa.int32()


def test_sql_42_small_decimals_and_zeros_are_exact(pg: PostgresServer) -> None:
    sql = "select v::numeric(16,5) v, 0::numeric(10,0) z from (values (0),(1.0123),(-0.00001)) x(v)"
    plans = [
        ColumnPlan("v", Kind.NUMERIC, pa.decimal128(16, 5)),
        ColumnPlan("z", Kind.NUMERIC, pa.decimal128(10, 0)),
    ]
    found, _ = read(pg.url, sql, plans)
    assert [str(v) for v in found.column("v").to_pylist()] == ["0.00000", "1.01230", "-0.00001"]
    assert found.column("z").to_pylist() == [Decimal(0)] * 3


SPECIAL: dict[str, tuple[str, Kind, pa.DataType, Any]] = {
    "nan": ("'NaN'::numeric(10,2)", Kind.NUMERIC, pa.decimal128(10, 2), None),
    "infinity": ("'Infinity'::numeric", Kind.NUMERIC, pa.decimal128(38, 18), Decimal("9" * 20 + "." + "9" * 18)),
    "date": ("'infinity'::date", Kind.DATE, pa.date32(), 2145042905),
    "date-": ("'-infinity'::date", Kind.DATE, pa.date32(), -2440588),
    "timestamp": ("'infinity'::timestamp", Kind.TIMESTAMP, pa.timestamp("us"), 2**63 - 1),
    "timestamptz-": ("'-infinity'::timestamptz", Kind.TIMESTAMPTZ, UTC, -210866803200000000),
    "beyond": ("'294276-12-31 23:59:59.999999'::timestamp", Kind.TIMESTAMP, pa.timestamp("us"), 2**63 - 1),
    "midnight": ("'24:00:00'::time", Kind.TIME, pa.time64("us"), 86399999999),
    "interval": ("'2562047788:00:54.775807'::interval", Kind.INTERVAL, pa.month_day_nano_interval(), (0, 0, 2**63 - 1)),
    "digits": ("12345::numeric", Kind.NUMERIC, pa.decimal128(4, 0), Decimal(9999)),
    "digits-": ("-1e40::numeric", Kind.NUMERIC, pa.decimal128(30, 2), Decimal("-" + "9" * 28 + ".99")),
}
REASON = {
    "nan": "nan",
    "infinity": "infinity",
    "date": "infinity",
    "date-": "-infinity",
    "timestamp": "infinity",
    "timestamptz-": "-infinity",
    "midnight": "time_24",
}


def raw(array: pa.ChunkedArray[Any]) -> Any:
    """A clamped value as Arrow holds it: beyond Python's years."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())[0].as_py()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return array.cast(pa.int64())[0].as_py()
    value = array[0].as_py()
    return tuple(value) if kind == pa.month_day_nano_interval() else value


@pytest.mark.parametrize("name", SPECIAL)
def test_values_that_do_not_fit_follow_the_policy(pg: PostgresServer, name: str) -> None:
    expression, kind, type_, clamped = SPECIAL[name]
    sql = f"select {expression} v, 7 id"
    key = ColumnPlan("id", Kind.INT4, pa.int32())

    def plan(special: Any) -> list[ColumnPlan]:
        return [ColumnPlan("v", kind, type_, special=special), key]

    with pytest.raises(CastError, match=r"column v, row id=7: .*--special null") as caught:
        read(pg.url, sql, plan("error"), key_columns=("id",))
    assert caught.value.context["column"] == "v"
    found, tally = read(pg.url, sql, plan("null"))
    assert found.column("v").to_pylist() == [None]
    assert tally.special == {"v": {REASON.get(name, "out_of_range"): 1}}
    if clamped is None:
        with pytest.raises(CastError):
            read(pg.url, sql, plan("clamp"))
        return
    found, tally = read(pg.url, sql, plan("clamp"))
    assert raw(found.column("v")) == clamped
    assert tally.special == {"v": {REASON.get(name, "out_of_range"): 1}}


def test_clamped_infinities_keep_their_order(pg: PostgresServer) -> None:
    sql = """select * from (values (1,'infinity'::timestamptz,'infinity'::date),(2,'-infinity','-infinity'),
             (3,'2024-01-01','2024-01-01')) x(id,a,d)"""
    plans = [
        ColumnPlan("id", Kind.INT4, pa.int32()),
        ColumnPlan("a", Kind.TIMESTAMPTZ, UTC, special="clamp"),
        ColumnPlan("d", Kind.DATE, pa.date32(), special="clamp"),
    ]
    found, tally = read(pg.url, sql, plans)
    for column in ("a", "d"):
        assert found.sort_by(column).column("id").to_pylist() == [2, 3, 1]
        assert tally.special[column] == {"infinity": 1, "-infinity": 1}


def test_open_numerics_say_that_the_type_is_too_narrow(pg: PostgresServer) -> None:
    plan = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(38, 18), open=True)
    for value in ("0.1234567890123456789012", "123456789012345678901"):
        with pytest.raises(DecimalTooNarrow, match="column v"):
            read(pg.url, f"select {value}::numeric v", [plan])
    found, _ = read(pg.url, "select 1.500000000000000000000000 v", [plan])
    assert found.column("v").to_pylist() == [Decimal("1.5")]


def test_fraction_digits_follow_cast(pg: PostgresServer) -> None:
    sql = "select * from (values (1, 1.5), (2, 0.1234567890123456789012), (3, -2.0000000000000000005)) x(id, v)"
    key = ColumnPlan("id", Kind.INT4, pa.int32())
    exact = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(38, 18))
    with pytest.raises(CastError, match=r"column v, row id=2: 0\.1234567890123456789012 .*--cast round"):
        read(pg.url, sql, [key, exact], key_columns=("id",))
    rounded = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(38, 18), cast="round")
    found, tally = read(pg.url, sql, [key, rounded])
    assert [str(v) for v in found.column("v").to_pylist()] == [
        "1.500000000000000000",
        "0.123456789012345679",
        "-2.000000000000000001",
    ]
    assert tally.rounded == {"v": 2}


@pytest.mark.parametrize(("precision", "scale"), [(9, 0), (9, 1), (9, 2), (9, 3), (9, 5), (30, 0), (30, 3), (30, 6)])
def test_rounding_is_half_away_from_zero_at_every_scale(pg: PostgresServer, precision: int, scale: int) -> None:
    sql = f"""select v, round(v, {scale}) r from (select ((random() - 0.5) * 20)::numeric(30,8) v
              from generate_series(1, 2000) union all select unnest(array[0.5, -0.5, 1.5, 0.05, 0.005, 0.0005,
              0.00005, 0.499999, -0.000005, 9.99999999, 0.45, 0.0045])) x"""
    plans = [
        ColumnPlan("v", Kind.NUMERIC, pa.decimal128(precision, scale), cast="round"),
        ColumnPlan("r", Kind.NUMERIC, pa.decimal128(precision, scale)),
    ]
    found, tally = read(pg.url, sql, plans)
    assert found.column("v").to_pylist() == found.column("r").to_pylist()
    assert tally.rounded["v"] > 1000


def test_intervals_keep_months_days_and_time_apart(pg: PostgresServer) -> None:
    sql = "select '1 mon 2 days 3:04:05'::interval a, '-1 year 00:00:00.000001'::interval b, null::interval c"
    kind = pa.month_day_nano_interval()
    found, _ = read(pg.url, sql, [ColumnPlan(n, Kind.INTERVAL, kind) for n in "abc"])
    row = found.to_pylist()[0]
    assert tuple(row["a"]) == (1, 2, 11045000000000)
    assert tuple(row["b"]) == (-12, 0, 1000)
    assert row["c"] is None


def test_nested_kinds_keep_null_empty_and_values_apart(pgdb: PostgresDatabase) -> None:
    with psycopg.connect(pgdb.url, autocommit=True) as connection:
        connection.execute("create type comp as (a int, b text)")
        connection.execute("create extension hstore")
    bound = ColumnPlan("bound", Kind.INT4, pa.int32())
    range_type = pa.struct(
        [
            ("lower", pa.int32()),
            ("upper", pa.int32()),
            ("lower_inc", pa.bool_()),
            ("upper_inc", pa.bool_()),
            ("empty", pa.bool_()),
        ]
    )
    ranges = ColumnPlan("r", Kind.RANGE, range_type, children=(bound,))
    composite = pa.struct([("a", pa.int32()), ("b", pa.string())])
    plans = [
        ranges,
        ColumnPlan("m", Kind.MULTIRANGE, pa.list_(range_type), children=(ranges,)),
        ColumnPlan(
            "c",
            Kind.COMPOSITE,
            composite,
            children=(ColumnPlan("a", Kind.INT4, pa.int32()), ColumnPlan("b", Kind.TEXT, pa.string())),
        ),
        ColumnPlan("h", Kind.HSTORE, pa.map_(pa.string(), pa.string())),
        ColumnPlan("x", Kind.HEX, pa.string()),
        ColumnPlan(
            "cs",
            Kind.ARRAY,
            pa.list_(composite),
            depth=1,
            children=(
                ColumnPlan(
                    "item",
                    Kind.COMPOSITE,
                    composite,
                    children=(ColumnPlan("a", Kind.INT4, pa.int32()), ColumnPlan("b", Kind.TEXT, pa.string())),
                ),
            ),
        ),
    ]
    sql = r"""select * from (values
        ('[1,5)'::int4range, '{[1,3),[7,9)}'::int4multirange, '(1,x)'::comp, 'a=>1,b=>null'::hstore, '\x00ffAB'::bytea,
         array['(1,x)'::comp, null, '(,)']),
        ('empty', '{}', '(,)', '', '\x', '{}'), (null, null, null, null, null, null),
        ('(,3]', '{(,)}', '(2,)', 'k=>v', '\x01', '{}')
        ) x(r, m, c, h, x, cs)"""
    found, _ = read(pgdb.url, sql, plans)
    one = {"lower": 1, "upper": 5, "lower_inc": True, "upper_inc": False, "empty": False}
    nothing = {"lower": None, "upper": None, "lower_inc": False, "upper_inc": False, "empty": True}
    assert found.column("r").to_pylist() == [one, nothing, None, {**one, "lower": None, "lower_inc": False, "upper": 4}]
    assert found.column("m").to_pylist() == [
        [{**one, "upper": 3}, {**one, "lower": 7, "upper": 9}],
        [],
        None,
        [{**nothing, "empty": False}],
    ]
    assert found.column("c").to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": None}, None, {"a": 2, "b": None}]
    assert [None if v is None else dict(v) for v in found.column("h").to_pylist()] == [
        {"a": "1", "b": None},
        {},
        None,
        {"k": "v"},
    ]
    assert found.column("x").to_pylist() == ["00ffab", "", None, "01"]
    assert found.column("cs").to_pylist() == [[{"a": 1, "b": "x"}, None, {"a": None, "b": None}], [], None, []]


def test_arrays_of_another_depth_follow_the_policy(pg: PostgresServer) -> None:
    sql = "select * from (values (array[1]), (array[array[1,2]]), ('{}')) x(v)"
    child = (ColumnPlan("item", Kind.INT4, pa.int32()),)
    plan = ColumnPlan("v", Kind.ARRAY, pa.list_(pa.int32()), depth=1, children=child)
    with pytest.raises(CastError, match=r"column v, row 2 of the part: .*depth"):
        read(pg.url, sql, [plan])
    with pytest.raises(CastError, match="depth"):
        read(pg.url, sql, [ColumnPlan("v", Kind.ARRAY, plan.type, depth=1, children=child, special="clamp")])
    found, tally = read(pg.url, sql, [ColumnPlan("v", Kind.ARRAY, plan.type, depth=1, children=child, special="null")])
    assert found.column("v").to_pylist() == [[1], None, []]
    assert tally.special == {"v": {"depth": 1}}


def test_lower_bounds_of_arrays_are_dropped_and_long_arrays_are_whole(pg: PostgresServer) -> None:
    sql = """select array_agg(('00000000-0000-0000-0000-'||lpad(g::text,12,'0'))::uuid order by g) u,
             array_agg('2024-01-01'::timestamp + g*interval '1 us' order by g) t, '[5:6]={1,2}'::int[] b
             from generate_series(1,300) g"""
    plans = [
        ColumnPlan("u", Kind.ARRAY, pa.list_(pa.string()), depth=1, children=(item(Kind.UUID_TEXT, pa.string()),)),
        ColumnPlan(
            "t", Kind.ARRAY, pa.list_(pa.timestamp("us")), depth=1, children=(item(Kind.TIMESTAMP, pa.timestamp("us")),)
        ),
        ColumnPlan("b", Kind.ARRAY, pa.list_(pa.int32()), depth=1, children=(item(Kind.INT4, pa.int32()),)),
    ]
    found, _ = read(pg.url, sql, plans)
    row = found.to_pylist()[0]
    assert row["u"] == [f"00000000-0000-0000-0000-{g:012d}" for g in range(1, 301)]
    assert [t.microsecond for t in row["t"]] == list(range(1, 301))
    assert row["b"] == [1, 2]
