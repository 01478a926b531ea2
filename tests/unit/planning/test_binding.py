"""A pipeline bound: parameters reach the queries that use them, and a target stays below its folder."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import CutWish
from connectors.memory import MemorySource
from etl import SQL, Parquet, Read, Tensors, pipeline
from etl.core.errors import ConfigError
from etl.planning.steps import Steps

if TYPE_CHECKING:
    from etl.planning.definition import Pipeline

TABLE = pa.table({"id": [1, 2]})


def of(sink: Any = None, /, *, params: dict[str, object] | None = None, **sources: Any) -> Pipeline:
    """A pipeline of these sources whose function is there only to have their names."""
    made = pipeline(sources=sources, sink=sink or Parquet("out"), params=params, name="churn")
    if len(sources) == 1:
        return made.pipeline
    return made(lambda a, b: (a, b)).pipeline


def test_each_query_gets_the_parameters_that_it_uses() -> None:
    value = of(
        a=SQL("sqlite:///x.db", "select * from t where day = :day and k = :k", params={"k": 3}),
        b=SQL("sqlite:///y.db", "select ':day' from u where n < :n"),
        params={"day": date, "n": 10},
    )
    bound = value.bind({"day": "2026-01-31"}, "r1")
    assert bound.params == {"day": date(2026, 1, 31), "n": 10}
    assert bound.readings["a"].query.params == {"day": date(2026, 1, 31), "k": 3}
    assert bound.readings["b"].query.params == {"n": 10}
    assert {one.query.run_id for one in bound.readings.values()} == {"r1"}
    assert bound.steps == Steps(value.function)


def test_a_source_says_how_it_is_cut_and_what_its_values_may_become() -> None:
    sink = Tensors("out", cast="round", key="id", partition_bytes=1 << 20)
    asked = SQL(
        "sqlite:///x.db", table="t", partition_column="id", partitions=7, special="null", count=False, frozen=True
    )
    bound = of(sink, a=asked).bind({}, "r1")
    one = bound.readings["a"]
    assert (one.wish, one.count, one.frozen, one.name) == (CutWish("id", 7, 1 << 20), False, True, "a")
    assert (one.query.cast, one.query.special, one.query.key) == ("round", "null", ("id",))
    assert (bound.write.options.cast, bound.write.options.special) == ("round", "null")
    own = of(sink, a=Read("sqlite:///x.db", table="t", cast="saturate", partition_bytes=5)).bind({}, "r1").readings["a"]
    assert (own.query.cast, own.wish.partition_bytes, own.query.table) == ("saturate", 5, "t")


def test_tables_in_memory_are_read_as_they_are() -> None:
    for wish in (TABLE, MemorySource(TABLE)):
        one = of(a=wish).bind({}, "r1").readings["a"]
        assert isinstance(one.source, MemorySource)
        assert one.source.table is TABLE


def test_an_unknown_connection_is_said_of_its_source() -> None:
    with pytest.raises(ConfigError, match="pipeline churn, source a: no connection named nowhere"):
        of(a=SQL("nowhere", table="t")).bind({}, "r1")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_no_value_leaves_the_targets_folder(value: str) -> None:
    pipeline_of = of(Parquet("lake/{name}/x"), a=TABLE, params={"name": str})
    try:
        target = pipeline_of.bind({"name": value}, "r1").write.target
    except ConfigError as error:
        assert "the target has a folder" in str(error)  # noqa: PT017 - either is right
        return
    first, folder, last = target.split("/")
    assert (first, last) == ("lake", "x")
    assert folder.strip() and not folder.startswith(".") and "\0" not in folder  # noqa: PT018 - one promise


@pytest.mark.parametrize("value", ["", " ", ".", "..", ".hidden", "a" * 256])
def test_a_value_that_names_no_folder_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"pipeline churn: .*the target has a folder"):
        of(Parquet("lake/{name}"), a=TABLE, params={"name": str}).bind({"name": value}, "r1")


def test_values_that_differ_have_targets_that_differ() -> None:
    value = of(Parquet("lake/{at}-{n}"), a=TABLE, params={"at": datetime, "n": (float, 1)})
    assert value.bind({"at": "2026-01-31T06:00:00+02:00"}, "r").write.target == "lake/2026-01-31T040000Z-1.0"
    assert value.bind({"at": "2026-01-31 06:00", "n": "1e300"}, "r").write.target == "lake/2026-01-31T060000-1e+300"


def test_equal_parameters_have_one_digest() -> None:
    value = of(Parquet("lake/{day}"), a=TABLE, params={"day": date})
    text, python = value.bind({"day": "2026-01-31"}, "r"), value.bind({"day": date(2026, 1, 31)}, "s")
    assert text.params_sha256 == python.params_sha256 != value.bind({"day": "2026-02-01"}, "r").params_sha256


def test_a_key_that_the_function_makes_is_not_looked_for_in_the_sources() -> None:
    sink = Parquet("lake", key="country", order="key")
    passing = of(sink, a=SQL("sqlite:///x.db", table="users")).bind({}, "r")
    assert passing.readings["a"].query.key == ("country",)
    made = of(sink, a=SQL("sqlite:///x.db", table="users"), b=SQL("sqlite:///x.db", table="orders")).bind({}, "r")
    assert {one.query.key for one in made.readings.values()} == {()}
    assert made.write.options.key == ("country",)
