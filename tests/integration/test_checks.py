"""Checks of a pipeline: a run that fails one publishes nothing, and the manifest says what was found."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.memory import MemorySource
from etl import Parquet, Read, Tensors, checks, pipeline
from etl.core.errors import CheckFailed, ConfigError, SchemaError
from etl.transforms import FillNull, Standardize
from tests.applying import ratio_passes
from tests.command import cuetl

if TYPE_CHECKING:
    from pathlib import Path

    from etl.transforms.checking.base import Check


ROWS = 5000


def orders() -> pa.Table:
    price = pa.array([None if i % 7 == 3 else (i * 37 % 1000) / 8 for i in range(ROWS)], pa.float64())
    return pa.table({"id": pa.array(range(ROWS)), "qty": pa.array([i % 11 for i in range(ROWS)]), "price": price})


@pytest.fixture
def shop(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "shop.db") as store:
        store.execute("create table orders (id integer primary key, price real, kind text not null)")
        rows = [(i, None if i % 50 == 7 else float(i % 10), f"k{i % 3}") for i in range(1, 201)]
        store.executemany("insert into orders values (?, ?, ?)", rows)
    store.close()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def run(shop: str, to: Path, *asked: Check, **more: Any) -> Any:
    sink = Parquet(str(to), key="id", **more)
    return pipeline(name="orders", sources={"orders": Read(shop, table="orders")}, sink=sink, checks=asked).run()


def manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "_manifest.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_failed_check_leaves_the_old_version_and_names_keys(shop: str, tmp_path: Path) -> None:
    to = tmp_path / "out"
    run(shop, to, checks.row_count(1))
    before = (to / "_manifest.json").read_bytes()
    with pytest.raises(CheckFailed) as told:
        run(shop, to, checks.not_null("price"), checks.row_count(max=3), checks.in_range("price", 0, 9))
    assert told.value.exit_code == 4
    assert "not_null(price): 4 of 200 rows have NULL (id = 7; id = 57; id = 107; …)" in str(told.value)
    assert "row_count: there are 200 rows, at most 3" in str(told.value)
    assert "in_range" not in str(told.value)
    assert (to / "_manifest.json").read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "shop.db"]


def test_what_came_of_checks_is_in_result_and_manifest(shop: str, tmp_path: Path) -> None:
    to = tmp_path / "out"
    result = run(shop, to, checks.not_null("price", severity="warn"), checks.unique("id"))
    (warned,) = [one for one in result.warnings if one["code"] == "check"]
    assert warned["count"] == 4
    listed = {one["name"]: one for one in manifest(to)["checks"]}
    assert listed["not_null(price)"] == {
        "name": "not_null(price)",
        "passed": False,
        "severity": "warn",
        "limit": 0,
        "observed": 4,
        "rows": 4,
        "sample": [{"id": 7}, {"id": 57}, {"id": 107}, {"id": 157}],
    }
    assert listed["unique(id)"]["passed"]
    assert [one["name"] for one in result.to_json()["checks"]] == ["not_null(price)", "unique(id)"]
    assert warned["text"] in [one["text"] for one in manifest(to)["warnings"]]


def test_keys_are_unique_over_parts(shop: str, tmp_path: Path) -> None:
    def made(asked: Check) -> None:
        source = Read(shop, table="orders", partitions=4)
        sink = Parquet(str(tmp_path / "out"), key="id")
        pipeline(name="parts", sources={"orders": source}, sink=sink, checks=[asked]).run()

    made(checks.unique("id"))
    assert len(manifest(tmp_path / "out")["partitions"]) == 4
    with pytest.raises(CheckFailed, match=r"unique\(kind\): 200 rows share 3 keys \(kind = k0; kind = k1; kind = k2\)"):
        made(checks.unique("kind"))


def test_rows_are_looked_at_as_they_are_published(tmp_path: Path) -> None:
    def made(nulls: str, *asked: Check, prepare: Any = ()) -> None:
        sink = Tensors(str(tmp_path / "out"), features=["price", "qty"], key="id", nulls=nulls)
        pipeline(
            name="last", sources={"orders": MemorySource(orders())}, sink=sink, prepare=prepare, checks=asked
        ).run()

    with pytest.raises(CheckFailed):
        made("mask", checks.not_null("price"))
    made("mask", checks.not_null("price"), prepare=[FillNull("price", "mean"), Standardize("qty")])
    gone = sum(i % 7 == 3 for i in range(ROWS))
    made("drop", checks.not_null("price"), checks.row_count(ROWS - gone, ROWS - gone))
    made("drop", checks.custom(ratio_passes, ["price"]))
    assert {one["name"]: one["limit"] for one in manifest(tmp_path / "out")["checks"] if "limit" in one} == {
        "custom(price)": "tests.applying:ratio_passes"
    }


def test_functions_of_parts_and_of_whole_data_are_checked(tmp_path: Path) -> None:
    for rowwise in (True, False):

        @pipeline(
            sources={"orders": MemorySource(orders())},
            sink=Parquet(str(tmp_path / "out"), key="id"),
            checks=[checks.in_range("qty", 1)],
            rowwise=rowwise,
        )
        def made(orders: Any) -> Any:
            return orders.assign(qty=orders["qty"] + 1)

        made.run()
    assert manifest(tmp_path / "out")["version"] == 2


def test_an_append_is_held_to_what_the_version_before_added(shop: str, tmp_path: Path) -> None:
    to = tmp_path / "out"
    run(shop, to, checks.row_count_vs_last(1, 1))
    run(shop, to, checks.row_count_vs_last(1, 1), mode="append")
    run(shop, to, checks.row_count_vs_last(1, 1), mode="append")
    run(shop, to, checks.row_count_vs_last(max=0.4), mode="replace")
    assert manifest(to)["checks"][-1]["observed"] == {"rows": 200, "last": 600}


def test_drift_from_the_version_before_ends_a_run(shop: str, tmp_path: Path) -> None:
    to, drift = tmp_path / "out", checks.drift(max_mean_shift=1, max_null_change=0.5)
    run(shop, to, drift)
    run(shop, to, drift)
    with sqlite3.connect(tmp_path / "shop.db") as store:
        store.execute("update orders set price = price + 100")
    store.close()
    with pytest.raises(CheckFailed, match=r"drift: column price: mean_shift"):
        run(shop, to, drift)
    assert manifest(to)["version"] == 2


def test_a_check_of_no_column_is_refused_before_a_row_is_read(shop: str, tmp_path: Path) -> None:
    made = pipeline(
        name="orders",
        sources={"orders": Read(shop, table="orders")},
        sink=Parquet(str(tmp_path / "out")),
        checks=[checks.not_null("prise")],
    )
    for go in (made.plan, made.run):
        with pytest.raises(SchemaError, match=r"not_null\(prise\).*price"):
            go()


def test_the_command_ends_with_4_and_shows_checks(shop: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from etl import Parquet, Read, checks, pipeline\n"
        f"orders = pipeline(name='orders', sources={{'orders': Read({shop!r}, table='orders')}},\n"
        f"    sink=Parquet({str(tmp_path / 'out')!r}, key='id'),\n"
        "    checks=[checks.unique('id'), checks.not_null('price')])\n"
    )
    failed = cuetl("run", str(file), cwd=tmp_path)
    assert failed.code == 4
    assert "not_null(price): 4 of 200 rows have NULL (id = 7" in failed.err
    assert not (tmp_path / "out").exists()
    assert "check    not_null(price), ends the run" in cuetl("validate", str(file), cwd=tmp_path).out
    file.write_text(file.read_text().replace("'price')", "'price', severity='warn')"))
    warned = cuetl("run", str(file), cwd=tmp_path)
    assert warned.code == 0
    assert "warning: not_null(price)" in warned.err


def held(to: Path, table: pa.Table, contract: dict[str, Any] | None, **more: Any) -> None:
    sink = Parquet(str(to), **more)
    pipeline(name="held", sources={"rows": table}, sink=sink, contract=contract).run()


OLD = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array(["x"])})
NEW = OLD.append_column("c", pa.array([1.5]))


@pytest.mark.parametrize(
    ("table", "contract", "said"),
    [
        (OLD, {"columns": "freeze"}, ""),
        (NEW, {}, ""),
        (NEW, {"columns": "evolve"}, ""),
        (NEW, {"columns": "freeze"}, r"c is new \(double\)"),
        (OLD.select(["a"]), {}, ""),
        (OLD.select(["a"]), {"columns": "freeze"}, r"b \(string\) is missing"),
        (OLD.set_column(0, "a", pa.array([1], pa.int64())), {}, "a was int32 and is int64"),
        (OLD.set_column(0, "a", pa.array([1], pa.int64())), {"data_type": "evolve"}, ""),
        (OLD.set_column(0, "a", pa.array([1], pa.int16())), {"data_type": "evolve"}, "a was int32 and is int16"),
        (OLD.set_column(0, "a", pa.array([1], pa.decimal128(10))), {"data_type": "evolve"}, ""),
        (OLD.set_column(0, "a", pa.array([1], pa.decimal128(9))), {"data_type": "evolve"}, "a was int32"),
        (OLD.set_column(0, "a", pa.array(["1"])), {"data_type": "evolve"}, "a was int32 and is string"),
        (OLD, {"schema": {"a": "int32", "b": "string"}, "columns": "freeze"}, ""),
        (OLD, {"schema": {"a": "int32"}, "columns": "freeze"}, "b is new"),
        (OLD, {"schema": {"a": "int32", "d": "date32"}}, "d .* is missing"),
    ],
    ids=range(15),
)
def test_a_contract_is_held_before_a_row_is_read(
    table: pa.Table, contract: dict[str, Any], said: str, tmp_path: Path
) -> None:
    held(tmp_path / "out", OLD, None)
    if not said:
        held(tmp_path / "out", table, contract)
        return
    with pytest.raises(SchemaError, match=said) as told:
        held(tmp_path / "out", table, contract)
    assert told.value.exit_code == 4
    assert manifest(tmp_path / "out")["version"] == 1


@pytest.mark.parametrize(
    "contract",
    [{"column": "freeze"}, {"columns": "frozen"}, {"columns": "discard_row"}, {"schema": {"a": "integer32"}}, "freeze"],
    ids=range(5),
)
def test_a_contract_of_unknown_words_is_refused(contract: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pipeline held: contract"):
        held(tmp_path / "out", OLD, contract)
