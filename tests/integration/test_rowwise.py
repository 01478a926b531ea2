"""Functions of one part: what they may do, what is said of what they may not, and that rows stay counted."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.base import CutWish, Endpoint, Query
from connectors.memory import MemorySource
from etl.core.errors import CastError, DeviceOutOfMemory, EtlError, SchemaError, UserCodeError
from etl.core.schema import Field, Schema
from etl.logs import traceback_text
from etl.planning.calling import called
from etl.planning.function import FunctionRef, reference, sha256_of
from etl.planning.jobs import Job, Reading, Write
from etl.planning.loops import row_loops
from etl.planning.steps import Steps
from etl.planning.trial import schema_through, tried
from etl.run import explain, runner
from etl.run.naming import new_run_id
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions

if TYPE_CHECKING:
    from pathlib import Path

    from etl.run.result import RunResult

ORDERS = Schema((Field("id", pa.int64()), Field("price", pa.float64()), Field("mode", pa.string())))
ROWS = pa.table(
    {
        "id": pa.array([*range(1, 100), None], pa.int64()),
        "price": pa.array([*(i / 4 for i in range(98)), float("nan"), None]),
        "mode": pa.array(["a", "b", None, "c"] * 25),
    }
)


def written(folder: Path, body: str, name: str = "orders_file.py") -> FunctionRef:
    """The function `clean` of a file of these lines."""
    file = folder / name
    file.write_text(body, encoding="utf-8")
    return FunctionRef(str(file), "clean", sha256_of(str(file)))


def job(target: Path, function: FunctionRef, *, parts: int = 3, format_: str = "parquet", retries: int = 3) -> Job:
    source = MemorySource(ROWS, key="id")
    read = Reading(source.endpoint, source.query, CutWish("id", parts), source=source)
    write = Write(str(target), "parquet" if format_ == "parquet" else "safetensors", WriteOptions())
    return Job(read, (write,), Steps(function), retries=retries)


def run(one: Job, *, workers: int = 1) -> RunResult:
    return runner.run([one], run_id=new_run_id(), workers=workers)[0]


def rows(target: Path) -> pa.Table:
    return open_dataset(str(target)).table(["id", "total"])


def document(target: Path) -> dict[str, Any]:
    """The dataset's manifest as its JSON says."""
    return dict(open_dataset(str(target)).manifest.document)


FILTERS = """
def clean(orders):
    print("a line for people")
    kept = orders[orders["id"].gt(10).fillna(False)]
    return kept.assign(total=kept["id"] * kept["price"]).drop(columns=["mode"])
"""


def test_rows_go_through_a_function_and_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run(job(tmp_path / "out", written(tmp_path, FILTERS)))
    assert (result.rows, result.rows_read, result.rows_dropped, result.rows_added) == (89, 100, {"function": 11}, 0)
    assert [c["name"] for c in result.columns] == ["id", "price", "total"]
    made = document(tmp_path / "out")
    (source,) = made["source"]
    assert (source["rows_read"], source["rows_written"], source["rows_dropped"]) == (100, 89, {"function": 11})
    assert sum(p["rows_read"] for p in made["partitions"]) == 100
    assert [p["rows_made"] for p in made["partitions"]] == [p["rows"] for p in made["partitions"]]
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.count("a line for people") == 4, "the trial and three parts"


@pytest.mark.slow
def test_parts_threads_and_processes_make_the_same_tensors(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table orders (id integer primary key, price real, mode text)")
        made = [(i, None if i % 7 == 0 else i / 4, "abc"[i % 3]) for i in range(1, 101)]
        connection.executemany("insert into orders values (?, ?, ?)", made)
    function = written(tmp_path, FILTERS)
    read = Endpoint("shop", "sqlite", database=str(database))
    found = []
    for name, parts, workers in (("one", 1, 1), ("threads", 7, 1), ("processes", 7, 2)):
        reading = Reading(read, Query(table="orders"), CutWish("id", parts))
        write = Write(str(tmp_path / name), "safetensors", WriteOptions())
        result = runner.run([Job(reading, (write,), Steps(function))], run_id=new_run_id(), workers=workers)[0]
        assert (result.rows, result.rows_read, result.partitions) == (90, 100, parts)
        found.append(open_dataset(str(tmp_path / name)).tensors())
    for other in found[1:]:
        assert list(other) == list(found[0])
        for tensor, values in other.items():
            np.testing.assert_array_equal(values, found[0][tensor])


BAD = {
    "a column that is not there": (
        'return orders[orders["prise"].gt(1).fillna(False)]',
        UserCodeError,
        "orders_file.py, line 3, in clean: KeyError: 'prise'; the line is `return orders",
        "it was given the columns id Int64, price Float64, mode str. Did you mean price? It was called with no rows",
    ),
    "nothing": ('orders["total"] = 1', UserCodeError, "line 2, clean: it returned None", "Did you forget `return`?"),
    "a series": ('return orders["id"]', UserCodeError, "it returned pandas.Series, not a pandas.DataFrame", "a frame"),
    "arrow": ("import pyarrow\n    return pyarrow.table({})", UserCodeError, "returned pyarrow.Table", "becomes Arrow"),
    "a generator": ("yield orders", UserCodeError, "it returned generator", "in place of `yield`"),
    "the end of the process": ("raise SystemExit(3)", UserCodeError, "line 3, in clean: SystemExit: 3", ""),
    "rows that are not there": ("return orders.iloc[[0]]", UserCodeError, "line 3, in clean: IndexError", "no rows"),
    "an error of ours": (
        'from etl import errors\n    raise errors.CastError("no price")',
        CastError,
        "line 4, in clean: no price",
        "",
    ),
    "no Arrow type": ('return orders.assign(x=orders["mode"].astype(object))', SchemaError, "column x", "Cast it"),
    "an error below the function": (
        "return inner(orders)\n\n\ndef inner(frame):\n    return frame.assign(x=1 / 0)",
        UserCodeError,
        "line 7, in clean: ZeroDivisionError: division by zero; the line is `return frame.assign(x=1 / 0)`",
        "",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_function_that_cannot_be_is_refused_before_anything_is_read(kind: str, tmp_path: Path) -> None:
    body, error, message, hint = BAD[kind]
    function = written(tmp_path, f"\ndef clean(orders):\n    {body}\n")
    with pytest.raises(error) as caught:
        tried(Steps(function), ORDERS)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


FAILS_LATER = """
def clean(orders):
    if orders["id"].eq(99).any():
        raise ValueError(f"price of {len(orders)} rows")
    return orders
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_error_names_the_part_the_line_and_the_columns_and_no_frame_of_ours(workers: int, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        run(job(tmp_path / "out", written(tmp_path, FAILS_LATER)), workers=workers)
    said = str(caught.value)
    assert said.startswith("part 3 of 3 (id >= 67) of table memory, connection memory: ")
    assert "orders_file.py, line 4, in clean: ValueError: price of 33 rows; the line is `raise ValueError" in said
    assert "given the columns id Int64, price Float64, mode str" in said
    assert "attempt" not in said, "another try would not help"
    assert "ValueError: price of 33 rows" in str(caught.value.context["traceback"])
    assert "In the worker:" in traceback_text(caught.value), "--debug shows all"
    assert not (tmp_path / "out").exists()


CHANGES = {
    "a column less": ('orders.drop(columns=["mode"])', SchemaError, "lacks mode. Declared are id, price, mode"),
    "a column more": ("orders.assign(extra=1)", SchemaError, "has extra, not declared"),
    "another type": (
        'orders.assign(mode=orders["id"])',
        SchemaError,
        "column mode came out of the function as int64; string was declared",
    ),
    "a value that does not fit": ('orders.assign(id=orders["price"])', CastError, "id"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_columns_that_change_between_parts_are_named(kind: str, tmp_path: Path) -> None:
    change, error, message = CHANGES[kind]
    body = f'\ndef clean(orders):\n    return {change} if orders["id"].eq(99).any() else orders\n'
    with pytest.raises(EtlError) as caught:
        run(job(tmp_path / "out", written(tmp_path, body)))
    assert type(caught.value) is error
    said = str(caught.value)
    assert said.startswith("part 3 of 3 (id >= 67)")
    assert "orders_file.py, line 2, clean: " in said
    assert message in said


MUTATES = {
    "a new column": ('orders["total"] = orders["id"] * 2', "column total was added", "frame.assign(total=…)"),
    "another value": (
        'orders.loc[orders["id"].gt(3), "price"] = 0.0',
        "column price was written to",
        "assign(price=…)",
    ),
    "another type": ('orders["id"] = orders["id"].astype("Float64")', "column id was written to", "assign(id=…)"),
    "rows": ("orders.drop(index=orders.index[1:], inplace=True)", "its rows", "without inplace=True"),
    "a column less": ('del orders["mode"]', "column mode was taken away", 'drop(columns=["mode"])'),
}


@pytest.mark.parametrize("kind", MUTATES)
def test_a_frame_that_is_changed_in_place_is_said_with_what_to_write(kind: str, tmp_path: Path) -> None:
    from etl.engine.backends import backend

    line, what, instead = MUTATES[kind]
    frame = backend("pandas").from_arrow(ROWS, ORDERS)
    _, said = called(written(tmp_path, f"def clean(orders):\n    {line}\n    return orders\n"), frame)
    assert len(said) == 1
    assert f"orders_file.py, line 1, clean, changes the frame it was given ({what}" in said[0]
    assert instead in said[0]
    quiet = written(
        tmp_path, "def clean(orders):\n    orders = orders.assign(x=1)\n    orders['x'] = 2\n    return orders\n"
    )
    assert called(quiet, backend("pandas").from_arrow(ROWS, ORDERS))[1] == ()


TOO_LARGE = """
def clean(orders):
    if len(orders) > {most}:
        raise MemoryError(f"{{len(orders)}} rows are too many")
    return orders.assign(total=orders["id"] * 2)
"""


def test_a_part_too_large_for_memory_is_halved_and_rows_stay_in_their_order(tmp_path: Path) -> None:
    small = run(job(tmp_path / "small", written(tmp_path, TOO_LARGE.format(most=15))))
    whole = run(job(tmp_path / "whole", written(tmp_path, TOO_LARGE.format(most=1000), "other.py")))
    assert small.rows == whole.rows == 100
    assert small.partitions > whole.partitions == 3
    before, after = rows(tmp_path / "whole"), rows(tmp_path / "small")
    assert after.sort_by("id").equals(before.sort_by("id"))
    assert after.drop_null().equals(before.drop_null()), "NULL keys go with the first half"
    halved = [w for w in small.warnings if w["code"] == "halved"]
    assert len(halved) == small.partitions - whole.partitions
    assert str(halved[0]["text"]).startswith("part 1 of 3 (")
    parts = document(tmp_path / "small")["partitions"]
    assert [p["index"] for p in parts] == list(range(small.partitions))
    assert sum(p["rows"] for p in parts) == 100


KILLED = """
import os, signal

def clean(orders):
    if len(orders) > 40:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory is short
    return orders.assign(total=orders["id"] * 2)
"""


@pytest.mark.slow
def test_a_part_whose_worker_is_killed_is_read_again_as_two_halves(tmp_path: Path) -> None:
    result = run(job(tmp_path / "out", written(tmp_path, KILLED), parts=2), workers=2)
    assert result.rows == 100
    assert rows(tmp_path / "out").column("total").drop_null().to_pylist() == [*range(2, 200, 2)]
    halved = [str(w["text"]) for w in result.warnings if w["code"] == "halved"]
    assert len(halved) == result.partitions - 2 >= 2, "what waited at the same worker is halved, too"
    assert all("lost its worker and was read again as two halves" in one for one in halved)


def test_a_part_that_fits_in_no_size_fails_with_the_figures(tmp_path: Path) -> None:
    with pytest.raises(DeviceOutOfMemory) as caught:
        run(job(tmp_path / "out", written(tmp_path, TOO_LARGE.format(most=0)), parts=1))
    said = str(caught.value)
    assert "too large even as 1/16 of the part that was planned" in said or "it cannot be halved" in said
    assert "memory ran out in a frame of pandas (" in said
    assert "KiB as Arrow" in said
    assert "partition_column" in said
    assert not (tmp_path / "out").exists()


ASKS = """
import pathlib
from etl import Retry


def clean(orders):
    asked = pathlib.Path(__file__).with_name(f"asked-{len(orders)}")
    if len(orders) and not asked.exists():
        asked.touch()
        raise Retry("the rates are not there yet", after=0)
    return orders
"""


def test_a_function_may_ask_for_another_try_but_not_more_often_than_allowed(tmp_path: Path) -> None:
    function = written(tmp_path, ASKS)
    with pytest.raises(EtlError, match=r"given up after 1 attempt: .*line 10, in clean: the rates are not there yet"):
        run(job(tmp_path / "out", function, parts=1, retries=0))
    for one in tmp_path.glob("asked-*"):
        one.unlink()
    assert run(job(tmp_path / "out", function, parts=1)).rows == 100
    (part,) = document(tmp_path / "out")["partitions"]
    assert part["attempts"] == 2


def test_a_function_may_add_rows_and_one_of_no_file_runs_here(tmp_path: Path) -> None:
    import pandas as pd

    def twice(orders: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([orders, orders])

    one = job(tmp_path / "out", reference(twice), parts=2)
    (plan,) = explain.plan([one], workers=2)
    engine = plan["engine"]
    assert isinstance(engine, dict)
    assert engine["kind"] == "threads"
    assert "no file" in str(engine["why"])
    result = run(one, workers=2)
    assert (result.rows, result.rows_read, result.rows_dropped, result.rows_added) == (200, 100, {}, 100)


def test_loops_over_rows_are_found_where_a_function_was_slow(tmp_path: Path) -> None:
    body = (
        "def clean(orders):\n"
        "    for row in orders.itertuples():\n"
        "        pass\n"
        '    return orders.assign(x=orders.apply(lambda r: r["id"], axis=1), y=[1 for _ in orders["id"]])\n'
    )
    assert row_loops(written(tmp_path, body)) == [
        "line 2: `.itertuples()`",
        "line 2: a `for` loop",
        "line 4: `.apply(…, axis=1)`",
        "line 4: a comprehension",
    ]
    assert row_loops(FunctionRef("", "clean", "")) == []


def test_only_work_of_the_functions_own_is_slow(tmp_path: Path) -> None:
    told = {}
    for name, clock in (("waits", "monotonic"), ("works", "thread_time")):
        step = "time.sleep(0.01)" if name == "waits" else "pass"
        body = f"import time\ndef clean(orders):\n    until = time.{clock}() + 1.1 * bool(len(orders))\n"
        body += f"    while time.{clock}() < until:\n        {step}\n    return orders\n"
        result = run(job(tmp_path / name, written(tmp_path, body, f"{name}.py"), parts=1))
        told[name] = [str(w["text"]) for w in result.warnings if "µs each" in str(w["text"])]
    assert not told["waits"], "a busy machine, or a store that is asked, is no loop over rows"
    assert len(told["works"]) == 1


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(3)"])
def test_what_would_end_the_process_is_an_error_of_the_function(raised: str, tmp_path: Path) -> None:
    body = f"def clean(orders):\n    if len(orders):\n        raise {raised}\n    return orders\n"
    with pytest.raises(UserCodeError, match=r"orders_file\.py, line 3, in clean"):
        run(job(tmp_path / "out", written(tmp_path, body), retries=0))


def test_what_was_stopped_stops_nothing_that_comes_later(tmp_path: Path) -> None:
    body = (
        "import pathlib, time\n"
        "def clean(orders):\n"
        "    if len(orders) and not (pathlib.Path(__file__).parent / 'well').exists():\n"
        "        time.sleep(0.3 * orders['id'].gt(90).any())\n"
        "        raise ValueError('not yet')\n"
        "    return orders\n"
    )
    one = job(tmp_path / "out", written(tmp_path, body), parts=3, retries=0)
    with pytest.raises(UserCodeError, match="not yet"):
        runner.run([one], run_id="passes", workers=1)
    (tmp_path / "well").touch()
    assert runner.run([one], run_id="passes", workers=1)[0].rows == 100


def test_an_index_that_would_be_lost_is_refused() -> None:
    with pytest.raises(SchemaError, match="index is named id and is no column"):
        schema_through(Steps(reference(lambda orders: orders.set_index("id"))), ORDERS)
    kept = reference(lambda orders: orders.set_index("id", drop=False).sort_index())
    assert schema_through(Steps(kept), ORDERS).names == ("id", "price", "mode")


def test_a_schema_goes_through_a_function() -> None:
    function = reference(lambda orders: orders.assign(n=orders["mode"].str.len(), when=orders["id"] > 3))
    found = schema_through(Steps(function), ORDERS)
    assert [f.name for f in found] == ["id", "price", "mode", "n", "when"]
    assert found.field("when").type == pa.bool_()
