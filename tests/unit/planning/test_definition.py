"""Definitions: each mistake is one error that names the pipeline, made where it is written down."""

from __future__ import annotations

import pickle
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from etl import SQL, Parquet, Read, Tensors, cron, every, pipeline
from etl.api import Defined, Definition
from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from etl.planning.definition import Pipeline

ORDERS = SQL("warehouse", "select * from orders where day = :day")
TABLE = pa.table({"id": [1, 2]})


def define(function: Any = None, /, **given: Any) -> Pipeline:
    """A pipeline of a function, or without one."""
    named = {"name": "plain"} if function is None else {}
    standard: dict[str, Any] = {"sources": {"orders": TABLE}, "sink": Tensors("out")}
    made = pipeline(**{**standard, **named, **given})
    return made.pipeline if function is None else made(function).pipeline


def churn(orders: Any) -> Any:
    return orders


def two(orders: Any, clicks: Any) -> Any:
    return orders, clicks


async def later(orders: Any) -> Any:
    return orders


def yields(orders: Any) -> Any:
    yield orders


def any_number(*orders: Any) -> Any:
    return orders


def open_ended(orders: Any, **rest: Any) -> Any:
    return orders, rest


def with_default(orders: Any, size: int = 5) -> Any:
    return orders, size


def misspelt(order: Any) -> Any:
    return order


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "a parameter that is no source": (
        lambda: define(misspelt),
        (
            "pipeline misspelt: its function has a parameter order, and there is no source of that name. "
            "Did you mean orders?"
        ),
    ),
    "a source that is no parameter": (
        lambda: define(churn, sources={"orders": ORDERS, "clicks": TABLE}, params={"day": date}),
        "pipeline churn: source clicks is no parameter of its function. The parameters are orders.",
    ),
    "a parameter without a source": (
        lambda: define(two),
        (
            "pipeline two: its function has a parameter clicks, and there is no source of that name. "
            "The sources are orders."
        ),
    ),
    "rowwise over several sources": (
        lambda: define(two, sources={"orders": TABLE, "clicks": TABLE}, rowwise=True),
        "pipeline two is rowwise and has 2 sources. Rows of several sources",
    ),
    "rowwise without a function": (lambda: define(rowwise=True), "pipeline plain is rowwise and has no function"),
    "several sources without a function": (
        lambda: define(sources={"a": TABLE, "b": TABLE}),
        "pipeline plain has 2 sources and no function. Only one source can pass straight through.",
    ),
    "no name and no function": (lambda: define(name=None), "a pipeline has no name and no function that gives it one"),
    "a name with a folder": (lambda: define(name="a/b"), "pipeline a/b: 'a/b' cannot be its name"),
    "no sources": (lambda: define(churn, sources={}), "pipeline churn has no sources"),
    "sources that are no mapping": (lambda: define(churn, sources=[TABLE]), "pipeline churn has sources a list"),
    "a source's name": (lambda: define(sources={"a b": TABLE}), "pipeline plain: 'a b' cannot be a source's name"),
    "a source that is text": (
        lambda: define(churn, sources={"orders": "warehouse"}),
        "pipeline churn: source orders is 'warehouse'. Sources are SQL(…)",
    ),
    "a source that is a sink": (
        lambda: define(churn, sources={"orders": Parquet("out")}),
        "pipeline churn: source orders is Parquet(…), which is a sink. Give it as sink=.",
    ),
    "a source that is a class": (
        lambda: define(churn, sources={"orders": SQL}),
        "pipeline churn: source orders is a SQL and not a value",
    ),
    "a sink that is text": (
        lambda: define(churn, sink="lake"),
        "pipeline churn: the sink is 'lake'. Did you mean Tensors(\"lake\")?",
    ),
    "a sink that is a source": (
        lambda: define(churn, sink=ORDERS),
        "pipeline churn: the sink is SQL(…), which is a source. Give it in sources=.",
    ),
    "async": (lambda: define(later), "pipeline later: later is async or yields"),
    "a generator": (lambda: define(yields), "pipeline yields: yields is async or yields"),
    "any number": (lambda: define(any_number), "pipeline any_number: its function takes *orders"),
    "open keywords": (lambda: define(open_ended), "pipeline open_ended: its function takes **rest"),
    "no function": (lambda: define(5, name="five"), "pipeline five: it was put on a int, which is no function"),
    "a negative number of tries": (lambda: define(churn, retries=-1), "pipeline churn: retries is -1"),
    "too many tries": (lambda: define(churn, retries=101), "pipeline churn: retries is 101"),
    "tries that are no number": (lambda: define(churn, retries="3"), "pipeline churn: retries is '3'"),
    "a switch that is no bool": (lambda: define(churn, rowwise="yes"), "pipeline churn: rowwise is 'yes'"),
    "a schedule that is text": (
        lambda: define(churn, schedule="0 2 * * *"),
        "pipeline churn: the schedule is '0 2 * * *'. Did you mean cron(\"0 2 * * *\")?",
    ),
    "one schedule of two": (
        lambda: define(churn, schedule=[cron("@daily"), 5]),
        "pipeline churn: the schedule is a int",
    ),
    "params that are no mapping": (lambda: define(churn, params=["day"]), "pipeline churn: params is ['day']"),
    "a reserved parameter": (
        lambda: define(churn, params={"resume": str}),
        "pipeline churn: no parameter can be named resume",
    ),
    "a query without its parameter": (
        lambda: define(churn, sources={"orders": ORDERS}),
        (
            "pipeline churn: source orders has :day in its query, and there is no parameter of that name. "
            'Give params={"day": date}.'
        ),
    ),
    "a misspelt parameter": (
        lambda: define(churn, sources={"orders": ORDERS}, params={"dya": date}),
        (
            "pipeline churn: source orders has :day in its query, and there is no parameter of that name. "
            "Did you mean dya?"
        ),
    ),
    "a target without its parameter": (
        lambda: define(churn, sink=Tensors("lake/{day}")),
        "pipeline churn: the target has {day}, and there is no parameter of that name",
    ),
    "half a bracket": (
        lambda: define(churn, sink=Tensors("lake/{day"), params={"day": date}),
        "pipeline churn: the target lake/{day has a bracket without its other half",
    ),
    "a list in a target": (
        lambda: define(churn, sink=Tensors("lake/{days}"), params={"days": list[int]}),
        "pipeline churn: the target has {days}, which is a list",
    ),
    "a parameter without use": (
        lambda: define(churn, params={"day": date}),
        "pipeline churn: parameter day is used nowhere",
    ),
    "a parameter that another begins like": (
        lambda: define(churn, sources={"orders": ORDERS}, params={"day": date, "da": date}),
        "pipeline churn: parameter da is used nowhere",
    ),
    "a parameter given twice": (
        lambda: define(churn, sources={"orders": SQL("w", "select :day", params={"day": 1})}, params={"day": date}),
        "pipeline churn: day is a parameter of the pipeline and of source orders",
    ),
    "a query and a table": (lambda: SQL("w", "select 1", table="t"), "SQL('w') has both a query and a table"),
    "neither": (lambda: SQL("w"), "SQL('w') has neither a query nor a table"),
    "no connection": (lambda: SQL("", table="t"), "the connection of SQL() is ''"),
    "parameters of a table": (lambda: SQL("w", table="t", params={"a": 1}), "SQL('w'): params= fills :NAME"),
    "columns in one text": (lambda: SQL("w", table="t", columns="a,b"), "SQL: columns is 'a,b'. Write it as columns="),
    "a column twice": (lambda: Read("w", table="t", columns=["a", "a"]), "Read: columns names column a twice"),
    "no parts": (lambda: SQL("w", table="t", partitions=0), "SQL: partitions is 0. It is a whole number from 1 on."),
    "too many parts": (lambda: SQL("w", table="t", partitions=100_001), "SQL: partitions=100001 is more than 100000"),
    "a size in words": (
        lambda: SQL("w", table="t", partition_bytes="1GB"),  # type: ignore[arg-type]
        "SQL: partition_bytes is '1GB'. It is a whole number from 1 on, in bytes.",
    ),
    "a cast": (lambda: SQL("w", table="t", cast="exct"), "SQL: cast is 'exct'. Did you mean exact?"),  # type: ignore[arg-type]
    "types": (lambda: SQL("w", table="t", types={"a": int}), "SQL: types is"),  # type: ignore[dict-item]
    "frozen": (lambda: SQL("w", table="t", frozen=1), "SQL: frozen is 1"),  # type: ignore[arg-type]
    "an empty target": (lambda: Tensors(" "), "the target of Tensors() is ' '"),
    "an unknown format": (lambda: Tensors("o", format="npz"), "Tensors('o'): unknown format 'npz'"),  # type: ignore[arg-type]
    "Parquet as tensors": (lambda: Tensors("o", format="parquet"), "Tensors('o'): unknown format 'parquet'"),
    "a mode": (lambda: Parquet("o", mode="merge"), "Parquet: mode is 'merge'"),
    "a null policy": (lambda: Tensors("o", nulls={"a": "fil=0"}), "Tensors('o'): unknown nulls 'fil=0'"),
    "a split without its key": (
        lambda: Tensors("o", split={"train": 0.9, "val": 0.1}),
        "Tensors('o'): split= needs split_key=: the column whose hash decides",
    ),
    "shares that are not one": (
        lambda: Tensors("o", split={"train": 0.9, "val": 0.2}, split_key="id"),
        "Tensors('o'): ",
    ),
    "a seed without a shuffle": (
        lambda: Tensors("o", order="source", shuffle=7),
        "Tensors('o'): shuffle= 7 and order=",
    ),
    "tags": (lambda: Tensors("o", tags={"a": 1}), "Tensors: tags is"),  # type: ignore[dict-item]
    "a row group": (lambda: Parquet("o", row_group_rows=0), "Parquet: row_group_rows is 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_mistake_is_refused_where_it_is_made(what: str) -> None:
    make, said = BAD[what]
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(said)


def test_a_pipeline_knows_what_was_said_and_where() -> None:
    day = cron("0 2 * * *", tz="Asia/Shanghai")
    made = pipeline(
        sources={"orders": ORDERS}, sink=Tensors("lake/{day}"), params={"day": date}, schedule=day, retries=5
    )
    handle = made(churn)
    value = handle.pipeline
    assert (value.name, list(value.sources), value.retries, value.schedule) == ("churn", ["orders"], 5, (day,))
    assert (Path(value.file), Path(__file__).read_text().splitlines()[value.line - 1].strip()) == (
        Path(__file__).resolve(),
        "made = pipeline(",
    )
    assert isinstance(handle, Defined)
    assert handle(7) == 7
    assert define(churn, schedule=[day, every(hours=6)]).schedule == (day, every(hours=6))


def test_a_source_with_a_name_and_no_function_passes_through() -> None:
    made = pipeline(name="orders", sources={"rows": TABLE}, sink=Parquet("out"))
    assert isinstance(made, Definition)
    assert (made.pipeline.name, made.pipeline.function, made.function) == ("orders", None, None)
    assert made.pipeline is made.pipeline
    with pytest.raises(ConfigError, match="no name and no function"):
        pipeline(sources={"rows": TABLE}, sink=Parquet("out")).pipeline  # noqa: B018 - asked for


def test_a_parameter_with_a_default_need_not_be_a_source() -> None:
    assert define(with_default).name == "with_default"


def test_colons_that_are_no_parameters_stay() -> None:
    text = "select a[1:n], ':x', b::date, \":y\" /* :z */ from t -- :w"
    assert define(churn, sources={"orders": SQL("w", text)}).params.declared == {}


def test_a_slice_may_be_by_a_parameter() -> None:
    text = "select a[1:n], a[:m] from t"
    value = define(churn, sources={"orders": SQL("postgresql://h/d", text)}, params={"n": (int, 2)})
    assert value.bind({}, "r").readings["orders"].query.params == {"n": 2}


def test_a_definition_crosses_to_other_processes() -> None:
    value = define(churn, sources={"orders": ORDERS}, params={"day": (date, "2026-01-01")}, schedule=every(hours=6))
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert again.function is not None
    assert again.function.load() is churn


def test_keywords_become_writing_options() -> None:
    sink = Tensors(
        "lake/{day}",
        format="npy",
        features=["qty", "price"],
        target="label",
        target_dtype="int64",
        nulls={"price": "fill=0"},
        split={"train": 0.9, "val": 0.1},
        split_key="user_id",
        shuffle=7,
        tags={"team": "growth"},
    )
    write = define(churn, sink=sink, params={"day": date}).bind({"day": "2026-01-31"}, "run")
    assert (write.write.target, write.write.format, write.write.mode) == ("lake/2026-01-31", "npy", "replace")
    options = write.write.options
    assert (options.features, options.target, options.target_dtype) == (("qty", "price"), ("label",), "int64")
    assert (options.nulls_of("price"), options.nulls_of("qty")) == ("fill=0", "mask")
    assert (options.split, options.split_key) == ({"train": "0.9", "val": "0.1"}, ("user_id",))
    assert (options.order, options.seed, options.pipeline, options.tags) == ("shuffle", 7, "churn", {"team": "growth"})


def test_a_split_by_time_takes_moments() -> None:
    sink = Parquet("out", split={"train": date(2026, 1, 1), "val": datetime(2026, 2, 1), "test": None}, split_time="at")  # noqa: DTZ001 - as the column
    options = define(churn, sink=sink).bind({}, "run").write.options
    assert options.split == {"train": "2026-01-01", "val": "2026-02-01T00:00:00", "test": ""}
