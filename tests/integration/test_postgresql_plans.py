"""Parts of PostgreSQL tables and queries: every row exactly once, even parts, reasons said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.base import CutWish, Query
from etl.core.errors import ConfigError
from etl.core.partition import Child, NullKeys, Pages
from tests.reading_postgresql import endpoint, nothing, read, source

if TYPE_CHECKING:
    from tests.reading_postgresql import Result
    from tests.servers.postgresql import PostgresDatabase


def table(db: PostgresDatabase, name: str, column: str | None = None, parts: int | None = None) -> Result:
    return read(endpoint(db.url), Query(table=name), CutWish(column=column, partitions=parts))


def skew(rows: list[int]) -> float:
    return max(rows) / (sum(rows) / len(rows))


def test_sql_07_and_08_null_keys_are_in_one_part(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t08(id int, v text)",
        "insert into t08 values (1,'a'),(2,'b'),(10,'z'),(null,'n1'),(null,'n2')",
    )
    got = table(pgdb, "t08", "id", 3)
    assert sorted(v for _, v in got.data) == ["a", "b", "n1", "n2", "z"]
    assert sum("is null" in one for one in got.sql) == 1


@pytest.mark.parametrize("analyzed", [True, False])
def test_sql_18_parts_of_a_skewed_key_are_even(pgdb: PostgresDatabase, *, analyzed: bool) -> None:
    pgdb.sql(
        "create table t18(id bigint primary key)",
        "insert into t18 select g from generate_series(1,95000) g",
        "insert into t18 select 95000 + g*10000 from generate_series(1,5000) g",
        *(["analyze t18"] if analyzed else []),
    )
    got = table(pgdb, "t18", "id", 4)
    assert (sum(got.rows), len(got.rows)) == (100_000, 4)
    assert len(set(got.table.column("id").to_pylist())) == 100_000
    assert skew(got.rows) <= 1.5
    assert ("statistics" in got.plan.why) == analyzed


def test_sql_28_an_all_null_key_is_one_part_and_said(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table t28(id int, v text)", "insert into t28 values (null,'a'),(null,'b')")
    got = table(pgdb, "t28", "id", 4)
    assert (got.rows, got.plan.reason) == ([2], "one-value")


def test_sql_30_the_whole_int64_range(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t30(id bigint)",
        "insert into t30 values (-9223372036854775808),(0),(9223372036854775807)",
        "create table t30b as select 9223372036854775807 - g as id from generate_series(0, 999) g",
    )
    assert sorted(i for (i,) in table(pgdb, "t30", "id", 4).data) == [-(2**63), 0, 2**63 - 1]
    assert len(set(table(pgdb, "t30b", "id", 4).data)) == 1000


def test_sql_32_dates_and_times_are_keys(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        f"alter database \"{pgdb.name}\" set timezone = 'America/New_York'",
        "create table t32a(d date)",
        "insert into t32a select '2024-01-01'::date + g from generate_series(0,5) g",
        "create table t32b(ts timestamp)",
        "insert into t32b values ('2024-01-01 00:00:00'),('2024-01-01 00:00:01'),('2024-01-01 00:00:01.5')",
        "create table t32c(ts timestamptz)",
        "insert into t32c select '2024-11-03 04:00+00'::timestamptz + g*interval '15 min' from generate_series(0,11) g",
    )
    for name, column, parts, rows in (("t32a", "d", 2, 6), ("t32b", "ts", 8, 3), ("t32c", "ts", 3, 12)):
        got = table(pgdb, name, column, parts)
        assert len(set(got.data)) == len(got.data) == rows
        assert len(got.rows) == min(parts, rows)


def test_sql_43_views_are_one_part_and_parents_are_read_by_leaf(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t43(id int primary key)",
        "insert into t43 select generate_series(1,1000)",
        "create view w43 as select * from t43",
        "create materialized view m43 as select * from t43",
        "create table p43(id int) partition by range(id)",
        "create table p43a partition of p43 for values from (0) to (501)",
        "create table p43b partition of p43 for values from (501) to (2000)",
        "insert into p43 select generate_series(1,1000)",
    )
    view = table(pgdb, "w43", None, 4)
    assert (view.rows, view.plan.reason) == ([1000], "no-key")
    by_key = table(pgdb, "w43", "id", 4)
    assert (sum(by_key.rows), len(by_key.rows)) == (1000, 4)
    assert any("once more" in note for note in by_key.facts.notes)
    matview = table(pgdb, "m43", None, 4)
    assert sum(matview.rows) == 1000
    assert all(isinstance(p.slice, Pages) for p in matview.plan.parts)
    parent = table(pgdb, "p43", None, 4)
    assert sum(parent.rows) == len(set(parent.data)) == 1000
    assert all(isinstance(p.slice, Child) for p in parent.plan.parts)
    assert "p43a" in parent.sql[0] + parent.sql[-1]


def test_inherited_parents_are_read_with_their_own_rows(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table base(id int, v text)",
        "create table kid(extra int) inherits (base)",
        "create table grandkid() inherits (kid)",
        "insert into base select g, 'b' from generate_series(1,500) g",
        "insert into kid select g, 'k', 0 from generate_series(501,900) g",
        "insert into grandkid select g, 'g', 0 from generate_series(901,1000) g",
    )
    got = table(pgdb, "base", None, 6)
    assert sorted(i for i, _ in got.data) == list(range(1, 1001))
    assert got.table.column_names == ["id", "v"]


@pytest.mark.parametrize("column", ["k", "f", "u", "s", "n", "b", "i", "e", "c", "o", "t"])
def test_sql_72_bounds_are_compared_by_the_server(pgdb_module: PostgresDatabase, column: str) -> None:
    db = pgdb_module
    if db.sql("select to_regclass('t72') is null") == [(True,)]:
        built = db.sql("select setting from pg_config() where name = 'CONFIGURE'")[0][0]
        icu = "--with-icu" in built or (db.major >= 16 and "--without-icu" not in built)
        kind = "provider=icu, locale='und-u-ks-level2', deterministic=false" if icu else "locale='C'"
        db.sql(
            f"create collation ci72 ({kind})",
            "create type mood72 as enum('z','m','a')",
            """create table t72 as select
                (case when g % 2 = 0 then chr(65+g%26) else chr(97+g%26) end)::text collate ci72 as k,
                (array['NaN','-Infinity','Infinity','0',null,'-0','1.5','-1e300'])[1 + g % 8]::float8 as f,
                md5(g::text)::uuid as u, md5(g::text) as s, (g/7.0 - 50)::numeric(30,10) as n,
                decode(md5(g::text), 'hex') as b, ('10.0.' || g % 200 || '.1')::inet as i,
                (array['z','m','a'])[1 + g % 3]::mood72 as e, (chr(65 + g % 26) || ' ')::char(5) as c,
                point(g, 1) as o, (g || ' hours')::interval as t
                from generate_series(1,1000) g""",
        )
    for analyzed in (False, True):
        columns = tuple(dict.fromkeys((column, "s")))
        got = read(endpoint(db.url), Query(table="t72", columns=columns), CutWish(column=column, partitions=5))
        assert len({row[-1] for row in got.data}) == len(got.data) == 1000
        assert len(got.rows) >= 3
        assert all(got.rows) or column == "o"
        if not analyzed:
            db.sql("analyze t72")


def test_sql_73_one_heavy_value_is_said(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t73(id bigint generated always as identity, k int)",
        "insert into t73(k) select case when g % 10 < 4 then 42 else g end from generate_series(1,20000) g",
    )
    for analyze in ((), ("analyze t73",)):
        pgdb.sql(*analyze, "select 1")
        got = table(pgdb, "t73", "k", 4)
        assert sum(got.rows) == 20_000
        assert got.plan.reason == "one-value"
        assert "k = 42" in got.plan.why
        assert "40 %" in got.plan.why


def test_sql_75_leaves_with_another_layout_and_without_rights(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table p75(id int, a text, b int) partition by range(id)",
        "create table p75a(b int, id int, a text)",
        "alter table p75 attach partition p75a for values from (0) to (10)",
        "create table p75b partition of p75 for values from (10) to (1000)",
        "insert into p75 values (1,'x',100)",
        "insert into p75 select g,'y',g from generate_series(10,999) g",
        "drop role if exists r75",
        "create role r75 login password 'r75'",
        "grant select on p75 to r75",
    )
    try:
        owner = table(pgdb, "p75", None, 4)
        assert len(owner.data) == 991
        assert (1, "x", 100) in owner.data
        url = pgdb.server.url_of(pgdb.name, user="r75", password="r75")
        guest = read(endpoint(url), Query(table="p75"), CutWish(partitions=4))
        assert sorted(guest.data) == sorted(owner.data)
        assert (len(guest.rows), guest.plan.reason) == (1, "no-privilege")
        by_key = read(endpoint(url), Query(table="p75"), CutWish(column="id", partitions=4))
        assert sorted(by_key.data) == sorted(owner.data)
        assert len(by_key.rows) == 4
    finally:
        pgdb.sql("drop owned by r75", "drop role r75")


def test_a_closed_parent_with_a_key_is_read_by_it(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table pk(a int, b int, primary key (a, b)) partition by range(a)",
        "create table pk1 partition of pk for values from (0) to (10)",
        "insert into pk select 7, g from generate_series(1,8000) g",
        "insert into pk select 1, g from generate_series(1,100) g",
        "drop role if exists rpk",
        "create role rpk login password 'rpk'",
        "grant select on pk to rpk",
    )
    try:
        url = pgdb.server.url_of(pgdb.name, user="rpk", password="rpk")
        got = read(endpoint(url), Query(table="pk"), CutWish(partitions=4))
        assert len(set(got.data)) == len(got.data) == 8100
        assert len(got.rows) == 4
        assert skew(got.rows) <= 1.5
        assert any('("a", "b") >=' in one for one in got.sql)
    finally:
        pgdb.sql("drop owned by rpk", "drop role rpk")


def test_rights_on_some_columns_are_enough_to_read_them(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table col(a int, b int)",
        "insert into col select g, g from generate_series(1,2000) g",
        "drop role if exists rcol",
        "create role rcol login password 'rcol'",
        "grant select (a) on col to rcol",
    )
    try:
        url = pgdb.server.url_of(pgdb.name, user="rcol", password="rcol")
        got = read(endpoint(url), Query(table="col", columns=("a",)), CutWish(column="a", partitions=3))
        assert sorted(got.data) == [(g,) for g in range(1, 2001)]
        assert len(got.rows) == 3
    finally:
        pgdb.sql("drop owned by rcol", "drop role rcol")


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("select id from nums limit 100", None, "limit"),
        ("select id from nums limit 100", "id", "limit"),
        ("select id from nums order by id", None, "order-by"),
        ("select id from nums where random() < 2", "id", "nondeterministic"),
        ("select id from nums where now() > '2000-01-01'", "id", "nondeterministic"),
        ("select id from nums where current_date > '2000-01-01'", None, "nondeterministic"),
        ("select count(*) as id from nums", None, "no-key"),
        ("select a.id from nums a join nums b using (id)", None, "no-key"),
    ],
)
def test_a_query_that_must_not_be_split_is_one_part_and_says_why(
    pgdb_module: PostgresDatabase, text: str, column: str | None, reason: str
) -> None:
    pgdb_module.sql("create table if not exists nums as select g as id from generate_series(1,3000) g")
    got = read(endpoint(pgdb_module.url), Query(sql=text), CutWish(column=column, partitions=4))
    assert (len(got.rows), got.plan.reason) == (1, reason)
    assert got.plan.why
    assert got.rows[0] in (1, 100, 3000)
    if reason == "order-by":
        assert [i for (i,) in got.data] == list(range(1, 3001))


@pytest.mark.parametrize(
    ("text", "column", "rows"),
    [
        ("select id from nums2 -- all", None, 3000),
        ("select id, 'a;b' as t from nums2 as n where n.id % 2 = 0 or n.id < 0 /* or */ -- x", None, 1500),
        ('select "id" + 1 as x, abs(id) p from public.nums2', None, 3000),
        ("with a as (select id from nums2 where id % 2 = 0) select id from a", "id", 1500),
        ("select id from nums2 where id <= 3 union all select id + 5000 from nums2 where id <= 2", "id", 5),
        ("select id from nums2 order by id", "id", 3000),
        ("select id % 10 as k, count(*) c from nums2 group by 1", "k", 10),
    ],
)
def test_a_query_that_can_be_split_gives_every_row_once(
    pgdb_module: PostgresDatabase, text: str, column: str | None, rows: int
) -> None:
    pgdb_module.sql("create table if not exists nums2 as select g as id from generate_series(1,3000) g")
    whole = read(endpoint(pgdb_module.url), Query(sql=text), CutWish(partitions=1))
    got = read(endpoint(pgdb_module.url), Query(sql=text), CutWish(column=column, partitions=4))
    assert sorted(map(repr, got.data)) == sorted(map(repr, whole.data))
    assert (len(got.data), len(got.rows)) == (rows, 4)
    if column is None:
        assert all(isinstance(p.slice, Pages) for p in got.plan.parts)


def test_a_volatile_function_in_a_view_or_a_selective_index_is_not_paged(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table ix(id int primary key)", "insert into ix select generate_series(1,50000)", "analyze ix")
    got = read(endpoint(pgdb.url), Query(sql="select id from ix where id = 77"), CutWish(partitions=4))
    assert got.data == [(77,)]


def test_unknown_columns_to_cut_by_are_named_with_the_nearest(pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table near(customer_id int)")
    with pytest.raises(ConfigError, match="Did you mean customer_id"):
        table(pgdb, "near", "custmer_id", 2)
    with pytest.raises(ConfigError, match="Did you mean id"):
        read(endpoint(pgdb.url), Query(sql="select 1 as id"), CutWish(column="ids"))


def test_sql_90_a_plan_reads_no_rows(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table t90(id bigint primary key, v text)",
        "insert into t90 select g, 'x' from generate_series(1,100000) g",
        "analyze t90",
    )
    at = endpoint(pgdb.url)
    before = pgdb.sql(
        "select pg_stat_force_next_flush()",
        "select seq_scan, coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 't90'",
    )
    for wish in (CutWish(column="id", partitions=4), CutWish(column="v", partitions=4), CutWish(partitions=4)):
        one = source(at, Query(table="t90"))
        with one.snapshot(attach_all=nothing) as moment:
            one.schema(moment)
            facts = one.facts(moment, wish, sample=False)
        assert facts.rows == pytest.approx(100_000, rel=0.1)
        if wish.column == "id":
            assert facts.key is not None
            assert len(facts.key.steps) > 90
    after = pgdb.sql(
        "select pg_stat_force_next_flush()",
        "select seq_scan, coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 't90'",
    )
    assert before == after
    pgdb.sql("create table t90b(id int)", "insert into t90b select generate_series(1,1000)")
    one = source(at, Query(table="t90b"))
    with one.snapshot(attach_all=nothing) as moment:
        facts = one.facts(moment, CutWish(column="id", partitions=4), sample=False)
    assert facts.key is not None
    assert facts.key.deferred


def test_a_big_table_is_sampled_by_pages(pgdb: PostgresDatabase) -> None:
    pgdb.sql(
        "create table big as select (g * 2654435761) % 1000003 as id, repeat('x', 200) v"
        " from generate_series(1,150000) g"
    )
    got = table(pgdb, "big", "id", 4)
    assert sum(got.rows) == 150_000
    assert "sample" in got.plan.why
    assert skew(got.rows) <= 1.5
    stale = pgdb.sql("analyze big", "insert into big select 5, 'y' from generate_series(1,60000)", "select 1")
    assert stale
    again = table(pgdb, "big", "id", 4)
    assert "statistics" not in again.plan.why
    assert sum(again.rows) == 210_000


KEYS: dict[str, st.SearchStrategy[Any]] = {
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int8": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)),
    "numeric": st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False, places=5), st.sampled_from(["NaN", "Infinity", "-Infinity"])
    ),
    "float8": st.floats(),
    "float4": st.floats(width=32),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
    "varchar(8)": st.text("aB' %\\", max_size=8),
    "char(4)": st.text("aB ", max_size=4),
    "bytea": st.binary(max_size=5),
    "uuid": st.uuids(),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(__import__("datetime").UTC)),
    "time": st.times(),
    "interval": st.timedeltas(),
    "bool": st.booleans(),
    "inet": st.ip_addresses(),
    "int4[]": st.lists(st.integers(0, 3), max_size=3),
    "jsonb": st.sampled_from(['{"a": 1}', "[]", "1", '"x"']),
    "json": st.sampled_from(['{"a": 1}', "[]", "1"]),
}


@pytest.mark.slow
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_key_any_distribution_any_parts_every_row_once(pgdb_module: PostgresDatabase, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS)), label="type")
    values = data.draw(st.lists(st.one_of(st.none(), KEYS[kind]), max_size=40), label="values")
    copies = data.draw(st.sampled_from([1, 1, 3]), label="copies")
    parts = data.draw(st.integers(1, 9), label="parts")
    analyzed = data.draw(st.booleans(), label="analyzed")
    shape = data.draw(st.sampled_from(["table", "query", "pages"]), label="shape")
    with psycopg.connect(pgdb_module.url, autocommit=True) as link:
        link.execute("drop table if exists anykey")
        link.execute(f"create table anykey(k {kind}, n int generated always as identity)")
        with link.cursor() as cursor:
            cursor.executemany(f"insert into anykey(k) values (%s::{kind})", [(v,) for v in values] * copies)
        if analyzed:
            link.execute("analyze anykey")
    query = Query(sql="select n, k from anykey") if shape == "query" else Query(table="anykey", columns=("n",))
    wish = CutWish(column=None if shape == "pages" else "k", partitions=parts)
    got = read(endpoint(pgdb_module.url), Query(**{**_plain(query), "special": "null"}), wish)
    assert sorted(got.values("n")) == list(range(1, len(values) * copies + 1))
    assert len(got.rows) <= max(parts, 1)
    assert sum(isinstance(p.slice, NullKeys) for p in got.plan.parts) <= 1


def _plain(query: Query) -> dict[str, Any]:
    return {"table": query.table, "sql": query.sql, "columns": query.columns}
