"""Random tables, all types, NULLs and extremes, any cut: a whole export equals what psycopg reads, row for row."""

from __future__ import annotations

import datetime as dt
import math
import struct
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from safetensors.numpy import load_file

from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")
DAY_ZERO = dt.date(1970, 1, 1)
ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clock
MOODS = ("sad", "", "ok", "grün 'x'")


def same(value: Any) -> Any:
    return value


def text(letters: str | None = None, most: int = 12) -> st.SearchStrategy[str]:
    if letters:
        return st.text(letters, max_size=most)
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=most)


def scaled(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    edges = st.sampled_from([0, most, -most, 1, -1])
    return st.one_of(edges, st.integers(-most, most)).map(lambda n: Decimal(f"{n}e{-scale}"))


def micros(value: dt.timedelta) -> int:
    return value // dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Type:
    """How a type's values are made, inserted, asked for, and what they are in a table and in a tensor.

    Attributes:
        name: In SQL.
        values: What is inserted.
        put: How a parameter becomes a value.
        ask: The expression that psycopg reads.
        table: psycopg's value as pyarrow's.
        tensor: psycopg's value as that of a tensor of its own; None: it has none.
    """

    name: str
    values: st.SearchStrategy[Any]
    put: str = "%s"
    ask: str = "{}"
    table: Callable[[Any], Any] = same
    tensor: Callable[[Any], Any] | None = None


SPELLED = "case when {0} is not null then format('%s', {0}) end"
DATES = st.one_of(st.sampled_from([dt.date.min, dt.date.max, DAY_ZERO]), st.dates())
MOMENTS = st.one_of(
    st.sampled_from([ZERO, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
    st.datetimes(),
)
TYPES = (
    Type("bool", st.booleans(), tensor=same),
    *(
        Type(f"int{n}", st.one_of(st.sampled_from([-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1, 0]),
                                  st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1)), tensor=same)
        for n in (2, 4, 8)
    ),
    Type("float4", st.floats(width=32), ask="{}::float8", tensor=same),
    Type("float8", st.one_of(st.floats(), st.sampled_from([5e-324, -0.0, 1.7976931348623157e308])), tensor=same),
    Type("numeric(9,2)", scaled(9, 2), tensor=lambda d: int(d.scaleb(2))),
    Type("numeric(18,18)", scaled(18, 18), tensor=lambda d: int(d.scaleb(18))),
    Type("numeric(19,4)", scaled(19, 4)),
    Type("numeric(38,9)", scaled(38, 9)),
    Type("numeric(76,38)", scaled(76, 38)),
    Type("numeric", scaled(38, 18)),
    Type("numeric", scaled(60, 45)),
    Type("oid", st.integers(0, 2**32 - 1), tensor=same),
    Type("money", st.integers(-(2**63), 2**63 - 1).map(lambda n: Decimal(n).scaleb(-2)), "%s::numeric::money",
         "{}::numeric"),
    Type("text", st.one_of(text(), st.just("x" * 3000))),
    Type("varchar(7)", text(most=7)),
    Type("char(5)", text("ab c", 5)),
    Type("bytea", st.binary(max_size=20)),
    Type("uuid", st.uuids()),
    Type("date", DATES, tensor=lambda d: (d - DAY_ZERO).days),
    Type("time", st.times(), tensor=lambda t: micros(dt.datetime.combine(DAY_ZERO, t) - ZERO)),
    Type("timestamp", MOMENTS, tensor=lambda t: micros(t - ZERO)),
    Type("timestamptz", MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)),
         tensor=lambda t: micros(t.replace(tzinfo=None) - ZERO)),
    Type("timetz", st.times().map(lambda t: f"{t.isoformat()}+02:30"), ask=SPELLED),
    Type(
        "interval",
        st.builds("{} mons {} days {} microseconds".format, st.integers(-1200, 1200), st.integers(-3000, 3000),
                  st.integers(-(10**12), 10**12)),
        ask="case when {0} is not null then array["
            "extract(year from {0}) * 12 + extract(month from {0}), extract(day from {0}), "
            "(extract(hour from {0}) * 3600 + extract(minute from {0}) * 60) * 1000000 + "
            "extract(microseconds from {0})]::int8[] end",
        table=lambda parts: {"months": parts[0], "days": parts[1], "nanoseconds": parts[2] * 1000},
    ),
    Type("jsonb", st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), text()),
                               lambda inner: st.lists(inner, max_size=2), max_leaves=4).map(Jsonb), ask="{}::text"),
    Type("mood", st.sampled_from(MOODS), "%s::mood", "{}::text", tensor=MOODS.index),
    Type("inet", st.ip_addresses(), ask=SPELLED),
    Type("bit(5)", text("01", 5).map(lambda t: t.ljust(5, "0")), "%s::bit(5)", ask="{}::text"),
    Type("int4[]", st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=4)),
    Type("text[]", st.lists(st.one_of(st.none(), text()), max_size=4)),
    Type("numeric(8,3)[]", st.lists(st.one_of(st.none(), scaled(8, 3)), max_size=4)),
    Type("timestamptz[]", st.lists(MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)), max_size=3)),
)  # fmt: skip


def plain(value: Any) -> Any:
    """A value that equals another exactly when type and bits are the same; every NaN is one NaN."""
    if isinstance(value, float | np.floating):
        return "nan" if math.isnan(value) else struct.pack(">d", float(value))
    if isinstance(value, Decimal):
        return ("decimal", f"{value.normalize():f}" if value else "0")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return ("instant", value.astimezone(dt.UTC).replace(tzinfo=None))
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


@dataclass(frozen=True, slots=True)
class Table:
    """A table as made: its columns' types, its rows, and how often they were inserted."""

    kinds: tuple[Type, ...]
    rows: tuple[tuple[Any, ...], ...]
    copies: int
    key: bool
    analyzed: bool


@st.composite
def tables(draw: st.DrawFn, usable: tuple[Type, ...]) -> Table:
    kinds = tuple(draw(st.lists(st.sampled_from(usable), min_size=1, max_size=7)))
    row = st.tuples(*(st.one_of(st.none(), kind.values) for kind in kinds))
    shape = draw(st.sampled_from(["empty", "nulls", "few", "few", "pages"]))
    rows = tuple(draw(st.lists(row, min_size=1, max_size=12)))
    if shape == "empty":
        rows = ()
    elif shape == "nulls":
        rows = tuple((None,) * len(kinds) for _ in rows)
    copies = 150 if shape == "pages" else 1
    event(shape)
    return Table(kinds, rows, copies, draw(st.booleans()), draw(st.booleans()))


def make(link: psycopg.Connection, table: Table) -> list[list[Any]]:
    """Make `r(id, c0, …)` and read it back as psycopg has it, by id."""
    columns = [f"c{i}" for i in range(len(table.kinds))]
    declared = ", ".join(f"{c} {k.name}" for c, k in zip(columns, table.kinds, strict=True))
    link.execute("drop table if exists r")
    link.execute(
        f"create table r(id int generated always as identity{' primary key' if table.key else ''}, {declared})"
    )
    puts = ", ".join(kind.put for kind in table.kinds)
    if table.rows:
        with link.cursor() as cursor:
            cursor.executemany(f"insert into r({', '.join(columns)}) values ({puts})", table.rows)
        if table.copies > 1:
            names = ", ".join(columns)
            link.execute(f"insert into r({names}) select {names} from r, generate_series(2, {table.copies})")
    if table.analyzed:
        link.execute("analyze r")
    asks = ", ".join(k.ask.format(c) for c, k in zip(columns, table.kinds, strict=True))
    return [list(row) for row in link.execute(f"select id, {asks} from r order by id").fetchall()]


def connected(db: PostgresDatabase) -> psycopg.Connection:
    return psycopg.connect(db.url, autocommit=True, options="-c timezone=UTC")


def how(draw: st.DataObject, table: Table) -> list[str]:
    """How it is cut: by pages, by any column, or not at all."""
    column = draw.draw(st.sampled_from(["", "id", *(f"c{i}" for i in range(len(table.kinds)))]), label="column")
    parts = draw.draw(st.integers(1, 6), label="parts")
    return ["--partitions", str(parts), *(["--partition-column", column] if column else [])]


def check_table(db: PostgresDatabase, data: st.DataObject) -> None:
    table = data.draw(tables(TYPES), label="table")
    arguments = how(data, table)
    with (
        psycopg.connect(db.url, autocommit=True, options="-c timezone=UTC") as link,
        tempfile.TemporaryDirectory() as at,
    ):
        right = make(link, table)
        report = Exports(Path(at), db.url).done("--table", "r", "--format", "parquet", *arguments)
        got = pq.read_table(Path(at) / "out").sort_by("id")
        rows = list(zip(*(column.to_pylist() for column in got.columns), strict=True))
    assert report["rows"] == len(right)
    kinds = [same, *(kind.table for kind in table.kinds)]
    wanted = [[None if v is None else plain(k(v)) for k, v in zip(kinds, row, strict=True)] for row in right]
    assert [[plain(v) for v in row] for row in rows] == wanted


def check_tensors(db: PostgresDatabase, data: st.DataObject) -> None:
    table = data.draw(tables(tuple(t for t in TYPES if t.tensor)), label="table")
    arguments = how(data, table)
    with (
        psycopg.connect(db.url, autocommit=True, options="-c timezone=UTC") as link,
        tempfile.TemporaryDirectory() as at,
    ):
        right = make(link, table)
        Exports(Path(at), db.url).done("--table", "r", "--format", "safetensors", *arguments)
        files = [load_file(path) for path in sorted((Path(at) / "out").glob("*.safetensors"))]
    found = {name: np.concatenate([one[name] for one in files]) for name in files[0]}
    order = np.argsort(found["id"], kind="stable")
    for place, (name, kind) in enumerate([("id", TYPES[2]), *((f"c{i}", k) for i, k in enumerate(table.kinds))]):
        valid = found.get(f"{name}.valid")
        values = found[name][order].tolist()
        present = [True] * len(values) if valid is None else valid[order].tolist()
        assert kind.tensor is not None
        wanted = [None if row[place] is None else plain(kind.tensor(row[place])) for row in right]
        assert [plain(v) if there else None for v, there in zip(values, present, strict=True)] == wanted, kind.name


@pytest.fixture(scope="module")
def moods(pgdb_module: PostgresDatabase) -> PostgresDatabase:
    labels = ", ".join("'" + mood.replace("'", "''") + "'" for mood in MOODS)
    pgdb_module.sql(f"create type mood as enum({labels})")
    return pgdb_module


PHASES = (Phase.explicit, Phase.generate)
"""Each example is an export: making a failure smaller would take hundreds of them."""
FEW = settings(max_examples=12, phases=PHASES, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=150, phases=PHASES, suppress_health_check=list(HealthCheck))


@FEW
@given(data=st.data())
def test_any_table_in_parquet_is_what_psycopg_reads(moods: PostgresDatabase, data: st.DataObject) -> None:
    check_table(moods, data)


@FEW
@given(data=st.data())
def test_any_table_in_tensors_is_what_psycopg_reads(moods: PostgresDatabase, data: st.DataObject) -> None:
    check_tensors(moods, data)


@pytest.mark.slow
@MANY
@given(data=st.data())
def test_many_tables_in_parquet_are_what_psycopg_reads(moods: PostgresDatabase, data: st.DataObject) -> None:
    check_table(moods, data)


@pytest.mark.slow
@MANY
@given(data=st.data())
def test_many_tables_in_tensors_are_what_psycopg_reads(moods: PostgresDatabase, data: st.DataObject) -> None:
    check_tensors(moods, data)
