"""Query text: every quoting style, parameters, refusals and what may be split."""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sqltext import (
    SimpleSelect,
    Text,
    key_condition,
    literal,
    parse_table_name,
    prepare,
    quote_name,
    quote_text,
    tokens,
    wrap,
)
from etl.core.errors import ConfigError
from etl.core.partition import KeyRange, NullKeys, Pages, Whole

if TYPE_CHECKING:
    from etl.core.partition import Slice

DIALECTS = ("postgresql", "mysql", "sqlite", "mssql", "oracle", "duckdb", "other")


def text(sql: str, dialect: str = "postgresql", **params: object) -> Text:
    def literal(value: object) -> str:
        return str(value) if isinstance(value, int) else quote_text(str(value), dialect)

    return prepare(sql, dialect=dialect, params=params, quote_literal=literal)


@given(st.text(alphabet="ab1 :'\"`[]$-/*\\#;().,e\n", max_size=30), st.sampled_from(DIALECTS))
def test_tokens_joined_are_the_text_or_it_is_refused(sql: str, dialect: str) -> None:
    try:
        found = tokens(sql, dialect)
    except ConfigError:
        return
    assert "".join(t.text for t in found) == sql


@given(st.text(min_size=0, max_size=20).filter(lambda s: "\0" not in s and s.isprintable()))
def test_any_text_parameter_comes_back_as_a_value(value: str) -> None:
    bound = text("select :v, ':v' -- :v", "sqlite", v=value)
    assert sqlite3.connect(":memory:").execute(bound.sql).fetchone() == (value, ":v")


@given(st.lists(st.one_of(st.integers(-5, 5), st.sampled_from(["a", "b'", ":v"])), min_size=1, max_size=5))
def test_a_list_among_the_values_of_in_is_its_values(values: list[object]) -> None:
    bound = text("select 1 where 'a' in ('z', /* x */ :v) or 2 not in (:v)", "sqlite", v=values)
    found = sqlite3.connect(":memory:").execute(bound.sql).fetchone()
    assert found == ((1,) if "a" in values or 2 not in values else None)


def test_a_list_elsewhere_and_an_empty_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="the parameter v is an empty list"):
        text("select 1 where 1 in (:v)", v=[])
    with pytest.raises(ConfigError, match=r"in \(:name\)"):
        literal([1, 2], dialect="sqlite")


def test_sql_84_parameters_stand_outside_strings_comments_and_names() -> None:
    bound = text(
        "select :day::date d, ':day' s, (array[1,2,3])[1:2] a, $$:day$$ q, \":day\" /* :day */ -- :day", day="x"
    )
    assert bound.sql == "select 'x' ::date d, ':day' s, (array[1,2,3])[1:2] a, $$:day$$ q, \":day\""


def test_sql_84_a_hostile_value_stays_a_value() -> None:
    assert text("select :t", t="x'); drop table t34; --").sql == "select 'x''); drop table t34; --'"


@pytest.mark.parametrize(
    ("sql", "dialect", "right"),
    [
        ("select 3-:n", "postgresql", "select 3- -1"),
        ("select e:n", "postgresql", "select e -1"),
        (r"select E'\':n', :n", "postgresql", r"select E'\':n', -1"),
        (r"select '\',:n, ':n'", "postgresql", r"select '\', -1, ':n'"),
        (r"select '\':n', :n", "mysql", r"select '\':n', -1"),
        ('select ":n", `:n`, :n # :n', "mysql", 'select ":n", `:n`, -1'),
        ("select [:n], `:n`, :n", "sqlite", "select [:n], `:n`, -1"),
        ("select q'[:n']' , :n from dual", "oracle", "select q'[:n']' , -1 from dual"),
        ("select $a$ $$ :n $a$, :n", "postgresql", "select $a$ $$ :n $a$, -1"),
        ("/* a /* :n */ :n */ select :n", "postgresql", "/* a /* :n */ :n */ select -1"),
        ("/* a /* :n */ select :n", "sqlite", "/* a /* :n */ select -1"),
        ("select 5--:n\n+:n", "mysql", "select 5-- -1\n+ -1"),
    ],
)
def test_each_dialects_quoting_is_known(sql: str, dialect: str, right: str) -> None:
    assert text(sql, dialect, n=-1).sql == right


@pytest.mark.parametrize("sql", ["select a::n, :nn", "select ':n'", 'select ":n"', "select 1 -- :n"])
def test_a_name_that_is_no_parameter_counts_as_unused(sql: str) -> None:
    with pytest.raises(ConfigError, match="parameter n is declared"):
        text(sql, n=-1)


def test_sql_06_a_declared_parameter_must_be_used() -> None:
    with pytest.raises(ConfigError, match="day") as caught:
        text("select 5 % 3 as m, 'abc' like 'a%' as l, 'x:y' as c", day="2024-01-01")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("sql", ["select 1 a;;", "select 1 a -- hi", "select 1 a; /* x */ ; -- y\n", ";select 1 a"])
def test_sql_19_final_semicolons_and_comments_go(sql: str) -> None:
    assert text(sql).sql == "select 1 a"


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 a; select 2 b",
        "",
        " -- nothing",
        "delete from t34",
        "CALL p()",
        "with x as (delete from t34 returning *) select * from x",
        "with x as materialized (update t set a=1 returning *) select * from x",
        "with x as (select 1) insert into t select * from x",
        "select a into t2 from t",
        "select 'a",
        "select /* a",
        "truncate t",
    ],
)
def test_sql_85_only_one_read_passes(sql: str) -> None:
    with pytest.raises(ConfigError):
        text(sql)


def test_words_that_only_look_like_changes_pass() -> None:
    assert text("with x as (select 1 a) select * from x for update").top_level.has_limit
    assert text("select \"delete\", 'insert' from t").is_read
    assert not text("show tables").is_read


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t limit 3",
        "select * from t offset 3",
        "select * from t fetch first 3 rows only",
        "select top 3 * from t",
        "select distinct on (a) a, b from t",
        "select * from t tablesample system (3)",
        "select * from t for update",
        "(select * from t limit 3)",
        "(select * from t limit 3) union all select * from u",
        "with q as (select 1) select * from q limit 1",
    ],
)
def test_a_limit_at_the_top_is_seen(sql: str) -> None:
    assert text(sql).top_level.has_limit


@pytest.mark.parametrize(
    "sql",
    [
        "select t.offset from t",
        'select "limit" from t',
        "select * from (select * from t limit 3) q",
        "select 'limit 3' from t -- limit 3",
        "select substring(a from 1 for 2) from t",
    ],
)
def test_a_limit_elsewhere_is_not(sql: str) -> None:
    assert not text(sql).top_level.has_limit


def test_an_executed_comment_counts_as_a_limit() -> None:
    assert text("select * from t /*!50000 limit 3 */", "mysql").top_level.has_limit
    assert "limit 3" in text("select * from t /*!50000 limit 3 */", "mysql").sql


def test_order_and_set_operations_at_the_top_are_seen() -> None:
    top = text("select a, row_number() over (order by b) from t").top_level
    assert not top.has_order_by
    assert top.functions == {"row_number"}
    assert text("select a from t order by a").top_level.has_order_by
    assert text("select a from t union select b from u").top_level.has_set_operation
    assert text("select a from t where b in (select 1 union select 2)").top_level.has_set_operation is False
    assert text('select pg_catalog.Random(), "Odd"(1)').top_level.functions == {"random", "Odd"}


@pytest.mark.parametrize(
    ("sql", "right"),
    [
        ("select * from t", SimpleSelect("*", "t", None, None)),
        ('Select a, b+1 c From s."T 1" Where a > 3 -- x', SimpleSelect("a, b+1 c", 's."T 1"', None, "a > 3")),
        ("select x.a from t as x where x.b = 'from'", SimpleSelect("x.a", "t", "x", "x.b = 'from'")),
        ("select lower(a) from t x", SimpleSelect("lower(a)", "t", "x", None)),
        ("select extract(year from d) from t", SimpleSelect("extract(year from d)", "t", None, None)),
        ("select a from t where b in (1, 2)", SimpleSelect("a", "t", None, "b in (1, 2)")),
        ("select count(*) from t", None),
        ("select my_aggregate(a) from t", None),
        ("select sum(a) over () from t", None),
        ("select distinct a from t", None),
        ("select a is distinct from b from t", None),
        ("select a from t, u", None),
        ("select a from t join u on true", None),
        ("select a from t left join u using (a)", None),
        ("select a from t group by a", None),
        ("select a from t where b in (select 1)", None),
        ("select a from f(1)", None),
        ("select a from (select 1) t", None),
        ("select a from only t", None),
        ("select a from t order by a", None),
        ("select a from t limit 1", None),
        ("select 1", None),
        ("with q as (select 1 a) select a from q", None),
        ("select a from t union select a from u", None),
    ],
)
def test_a_simple_select_is_taken_apart_or_left(sql: str, right: SimpleSelect | None) -> None:
    assert text(sql).top_level.simple_select == right


def test_wrapping_ends_a_line_comment() -> None:
    inner = text("select 1 a, 2 b -- x\n, 3 c")
    rows = sqlite3.connect(":memory:").execute(wrap(inner, "c", "a < 2")).fetchall()
    assert rows == [(3,)]


def test_sql_19_sql_server_never_nests_with() -> None:
    wrapped = wrap(text("with q as (select 1 a) select * from q", "mssql"), "[a]", "[a] < 3")
    assert wrapped == "with q as (select 1 a),\ncuetl_q as (\nselect * from q\n)\nselect [a] from cuetl_q where [a] < 3"
    assert wrap(text("select 1 a from dual", "oracle"), "*").endswith(") cuetl_q")


@pytest.mark.parametrize(
    ("name", "dialect", "parts"),
    [
        ("a.b", "postgresql", ("a", "b")),
        ('"a.b"', "postgresql", ("a.b",)),
        ('a."b.c"', "postgresql", ("a", "b.c")),
        ('"T51.%"', "sqlite", ("T51.%",)),
        ('"a""b".c', "postgresql", ('a"b', "c")),
        ("`a``b`.c", "mysql", ("a`b", "c")),
        ("[a]]b].[c.d]", "mssql", ("a]b", "c.d")),
        ("Größe x", "sqlite", ("Größe x",)),
    ],
)
def test_table_names_are_taken_apart(name: str, dialect: str, parts: tuple[str, ...]) -> None:
    assert parse_table_name(name, dialect) == parts


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", '"a', '"a"b', "a..b", '""'])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        parse_table_name(name, "postgresql")


@given(
    st.lists(st.text(min_size=1, max_size=8).filter(lambda s: "\0" not in s), min_size=1, max_size=3),
    st.sampled_from(DIALECTS),
)
def test_quoted_names_come_back(parts: list[str], dialect: str) -> None:
    written = ".".join(quote_name(p, dialect) for p in parts)
    assert parse_table_name(written, dialect) == tuple(parts)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "1"),
        (-3, "-3"),
        (0.1, "0.1"),
        (math.inf, "9e999"),
        (-math.inf, "-9e999"),
        (math.nan, "null"),
        (Decimal("1.10"), "1.10"),
        (b"\x00'", "x'0027'"),
        (dt.date(2024, 2, 29), "'2024-02-29'"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 4), "'2024-02-29 01:02:03.000004'"),  # noqa: DTZ001 - naive stays naive
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), "'2024-02-28 23:00:00'"),
        ("it's", "'it''s'"),
    ],
)
def test_literals_are_typed_and_quoted(value: object, text: str) -> None:
    assert literal(value, "sqlite") == text


@pytest.mark.parametrize(
    ("part", "condition"),
    [
        (Whole(), ""),
        (NullKeys("a b"), '"a b" is null'),
        (KeyRange(("k",), None, None), '"k" is not null'),
        (KeyRange(("k",), None, None, nulls=True), ""),
        (KeyRange(("k",), ("1",), ("5",)), '"k" >= 1 and "k" < 5'),
        (KeyRange(("k",), ("1",), None, nulls=True), '("k" >= 1 or "k" is null)'),
    ],
)
def test_a_part_by_one_key_is_a_condition(part: Slice, condition: str) -> None:
    assert key_condition(part, "sqlite") == condition


def test_a_part_by_pages_is_refused_by_stores_without_pages() -> None:
    with pytest.raises(ConfigError, match="sqlite cannot read a part by Pages"):
        key_condition(Pages(0, 4), "sqlite")
