"""`cuetl run` and `cuetl validate` as a user meets them: names, parameters, plans, output, exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import etl
from tests.command import cuetl, one_paragraph
from tests.shops import few_orders

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {
    *("run_id", "status", "target", "format", "version", "rows"),
    *("bytes", "partitions", "engine", "seconds", "columns", "warnings"),
}
PAID = """
from etl import SQL, Parquet, pipeline

print("loaded")

@pipeline(
    sources={"orders": SQL("shop", "select id, qty, price from orders where id >= :first")},
    sink=Parquet("out/{first}"),
    params={"first": int},
    rowwise=True,
)
def paid(orders):
    print("called")
    return orders.assign(paid=orders["qty"] * orders["price"].astype("float64"))
"""
BOTH = """
from etl import SQL, Parquet, pipeline

@pipeline(
    sources={"left": SQL("shop", table="orders"), "right": SQL("shop", "select id, qty * 2 as twice from orders")},
    sink=Parquet("out/both", key="id", order="key"),
)
def both(left, right):
    return left.merge(right, on="id", how="left")
"""
WRONG = """
from etl import SQL, Parquet, pipeline

@pipeline(sources={"orders": SQL("shop", table="orders")}, sink=Parquet("out/wrong"), rowwise=True)
def wrong(orders):
    double = orders["qtty"] * 2
    return orders.assign(double=double)

lost = pipeline(name="lost", sources={"gone": SQL("shop", table="gone")}, sink=Parquet("out/lost"))
away = pipeline(name="away", sources={"rows": SQL("nowhere", table="rows")}, sink=Parquet("out/away"))

@pipeline(sources={"orders": SQL("shop", table="orders")}, sink=Parquet("out/key", key="idd"), rowwise=True)
def key(orders):
    return orders.groupby("id").sum().reset_index()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a small database, a cuetl.toml that names it `shop`, and one pipeline."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(
            """
            create table orders (id integer primary key, qty integer, price decimal(10,2));
            insert into orders values (1, 2, 9.99), (2, null, 1.5), (3, 4, 0.01);
            """
        )
    (tmp_path / "cuetl.toml").write_text('[connections.shop]\nurl = "sqlite:///shop.db"\n')
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "paid.py").write_text(PAID)
    return tmp_path


def test_a_pipeline_runs_by_its_name_and_prints_what_it_made(shop: Path) -> None:
    done = cuetl("run", "paid", "--param", "first=2", "--json", cwd=shop)
    assert done.code == 0, done.err
    assert done.json.keys() >= FIELDS
    assert (done.json["status"], done.json["rows"]) == ("succeeded", 2)
    assert "loaded" in done.err  # what the user's code prints is not part of the one object
    assert "called" in done.err
    rows = etl.open_dataset(str(shop / "out/2")).split("all").table()
    assert rows.column("paid").to_pylist() == [None, 0.04]

    again = cuetl("run", "pipelines/paid.py:paid", "--param", "first=2", cwd=shop)
    assert again.code == 0, again.err
    assert again.out.splitlines()[1].split()[1:4] == ["parquet", "2", "2"]


def test_a_plan_says_what_comes_out_and_reads_nothing(shop: Path) -> None:
    done = cuetl("run", "pipelines/paid.py", "--param", "first=1", "--plan", "--json", cwd=shop)
    assert done.code == 0, done.err
    assert {f["name"]: f["arrow_type"] for f in done.json["schema"]}["paid"] == "double"
    assert done.json["partitions"]
    assert "pandas" in json.dumps(done.json["engine"])
    told = cuetl("run", "paid", "--param", "first=1", "--plan", cwd=shop)
    assert told.code == 0, told.err
    assert "paid" in told.out
    assert not (shop / "out").exists()


def test_a_plan_of_two_sources_shows_the_parts_of_both(shop: Path) -> None:
    (shop / "pipelines" / "both.py").write_text(BOTH)
    done = cuetl("run", "both", "--plan", cwd=shop)
    assert done.code == 0, done.err
    for words in ("left: ", "right: ", "function  both of ", "the same columns", "writes    out/both as parquet"):
        assert words in done.out
    assert not (shop / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["paid"], ["first is missing", "--param first="]),
        (["paid", "--param", "first=many"], ["first is 'many'"]),
        (["paid", "--param", "first=1", "--param", "frist=2"], ["frist is unknown", "first"]),
        (["piad"], ["piad", "paid"]),
    ],
)
def test_what_is_missing_or_wrong_is_named_before_anything_runs(
    shop: Path, arguments: list[str], said: list[str]
) -> None:
    done = cuetl("run", *arguments, cwd=shop)
    assert done.code == 2
    for words in said:
        assert words in one_paragraph(done.err.replace("loaded\n", ""))


def test_an_error_of_the_function_names_its_line(shop: Path) -> None:
    (shop / "pipelines" / "wrong.py").write_text(WRONG)
    done = cuetl("run", "pipelines/wrong.py:wrong", cwd=shop)
    assert done.code == 1
    said = one_paragraph(done.err)
    for words in ("wrong.py", "line 6", 'double = orders["qtty"] * 2', "qtty"):
        assert words in said
    assert "pandas/core" not in said
    assert not (shop / "out").exists()


def test_validate_lists_every_problem_and_every_warning(shop: Path) -> None:
    fine = cuetl("validate", "--param", "first=1", cwd=shop)
    assert fine.code == 0, fine.err + fine.out
    assert fine.out.startswith("paid: valid, 4 columns")

    (shop / "pipelines" / "wrong.py").write_text(WRONG)
    (shop / "pipelines" / "broken.py").write_text("from etl import pipeline\nimport nothing_of_that_name\n")
    done = cuetl("validate", "--json", "--param", "first=1", cwd=shop)
    assert done.code == 2
    found = {one["pipeline"].rpartition("/")[2]: one for one in done.json["pipelines"]}
    problems = {name: " ".join(p["text"] for p in one["problems"]) for name, one in found.items()}
    assert found.keys() == {"paid", "wrong", "lost", "away", "key", "broken.py"}
    assert problems["paid"] == ""
    assert "qtty" in problems["wrong"]
    assert "gone" in problems["lost"]
    assert "nowhere" in problems["away"]
    assert "idd" in problems["key"]
    assert "broken.py:2" in problems["broken.py"]
    assert any("L1" in warning and "sort=" in warning for warning in found["key"]["warnings"])
    assert not (shop / "out").exists()


def test_validate_without_pipelines_says_where_it_looked(tmp_path: Path) -> None:
    done = cuetl("validate", cwd=tmp_path)
    assert done.code == 2
    assert "pipelines" in one_paragraph(done.err)


def test_what_init_writes_runs(tmp_path: Path) -> None:
    assert cuetl("init", cwd=tmp_path).code == 0
    few_orders(tmp_path / "cuetl-demo" / "shop.sqlite")
    done = cuetl("validate", cwd=tmp_path)
    assert (done.code, done.out.count("\n")) == (0, 1), done.out + done.err
    ran = cuetl("run", "shop_orders", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.json["rows"] > 1000
    assert [c["name"] for c in ran.json["columns"]][:3] == ["qty", "price", "paid"]
