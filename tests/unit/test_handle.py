"""A pipeline from Python: `.run()` and `.plan()`, with a function in a notebook too."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import etl
from etl import Parquet, Tensors, errors, pipeline

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

ROWS = pa.table({"id": [1, 2, 3], "qty": [2, None, 4]})


def test_a_run_gives_what_it_made_and_a_plan_what_it_would(tmp_path: Path) -> None:
    @pipeline(
        sources={"orders": ROWS}, sink=Parquet(f"{tmp_path}/{{name}}"), params={"name": (str, "out")}, rowwise=True
    )
    def doubled(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(double=orders["qty"] * 2)[orders["id"] > 1]

    plan = doubled.plan(name="later")
    assert plan.to_json() == plan.value
    assert [c["name"] for c in plan.value["schema"]] == ["id", "qty", "double"]
    assert repr(plan) == f"<RunPlan about 3 rows in 1 part, to {tmp_path}/later>"
    assert "double" in plan._repr_html_()
    assert list(tmp_path.iterdir()) == []

    result = doubled.run(engine="cpu", workers=1)
    assert (result.status, result.rows, result.version) == ("succeeded", 2, 1)
    assert f"{tmp_path}/out" in repr(result)
    assert "double" in result._repr_html_()
    assert etl.open_dataset(f"{tmp_path}/out").split("all").table().column("double").to_pylist() == [None, 8]
    assert doubled.run().version == 2


def test_rows_without_a_function_run_too(tmp_path: Path) -> None:
    passing = pipeline(name="passing", sources={"orders": ROWS}, sink=Tensors(str(tmp_path / "out")))
    assert passing.plan().to_json()["rows"] == 3
    assert passing.run().rows == 3


def test_what_run_is_given_wrong_is_said_before_anything_is_read(tmp_path: Path) -> None:
    passing = pipeline(name="passing", sources={"orders": ROWS}, sink=Parquet(str(tmp_path / "out")))
    with pytest.raises(errors.ConfigError, match="pipeline passing: day is unknown"):
        passing.run(day="2026-01-01")
    with pytest.raises(errors.ConfigError, match="no state store"):
        passing.run(record=True)
    with pytest.raises(errors.ConfigError, match="unknown engine 'gpus'"):
        passing.run(engine="gpus")
    assert list(tmp_path.iterdir()) == []


GUARD = 'if __name__ == "__main__":'


@pytest.mark.parametrize("guard", ["", GUARD])
def test_a_script_that_runs_its_own_pipeline_on_processes(guard: str, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("create table t (id integer primary key)")
        database.executemany("insert into t values (?)", [(n,) for n in range(100)])
        database.commit()
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os
from etl import SQL, Parquet, pipeline

@pipeline(sources={{"t": SQL("sqlite:///{tmp_path}/t.db", table="t", partition_column="id", partitions=2)}},
          sink=Parquet("{tmp_path}/out"), rowwise=True, retries=0)
def made(t):
    return t.assign(process=os.getpid())

{guard or "if True:"}
    result = made.run(engine="cpu", workers=2)
    print(result.rows, result.partitions, os.path.basename(__file__))
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    if not guard:
        assert done.returncode == 1
        assert "pipeline made is run by the file that defines it" in done.stderr
        assert GUARD in done.stderr
        return
    assert (done.returncode, done.stdout) == (0, "100 2 script.py\n"), done.stderr
    processes = set(etl.open_dataset(f"{tmp_path}/out").table().column("process").to_pylist())
    assert len(processes) == 2
