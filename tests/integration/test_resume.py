"""A run that died or failed goes on: finished parts of what cannot have changed are not made again."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import CutWish, Endpoint, Query
from connectors.memory import MemorySource
from etl.core.errors import ConfigError, CountMismatch, UserCodeError
from etl.planning.function import FunctionRef, sha256_of
from etl.planning.jobs import Job, Reading, Write
from etl.planning.steps import Steps
from etl.run import runner
from etl.run.naming import new_run_id
from etl.run.plain import from_json, to_json
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.command import cuetl

if TYPE_CHECKING:
    from etl.run.result import RunResult
    from etl.tensors.options import Format

ROWS = pa.table({"id": range(100), "price": [i / 4 for i in range(100)], "mode": ["a", "b", None, "c"] * 25})
COUNTS = """
import pathlib, time


def clean(orders):
    here = pathlib.Path(__file__).parent
    if len(orders):
        with (here / "made").open("a") as file:
            file.write(f"{orders['id'].min()}\\n")
        time.sleep(float((here / "seconds").read_text()))
    if (here / "fail").exists() and orders["id"].eq(99).any():
        raise ValueError("not today")
    return orders.assign(total=orders["id"] * 2)
"""


def function(folder: Path) -> FunctionRef:
    file = folder / "orders_file.py"
    file.write_text(COUNTS, encoding="utf-8")
    (folder / "seconds").write_text("0")
    return FunctionRef(str(file), "clean", sha256_of(str(file)))


def job(folder: Path, *, frozen: bool = True, format_: Format = "parquet", options: WriteOptions | None = None) -> Job:
    source = MemorySource(ROWS, key="id")
    read = Reading(source.endpoint, source.query, CutWish("id", 5), source=source, frozen=frozen)
    write = Write(str(folder / "out"), format_, options or WriteOptions(), "replace")
    return Job(read, (write,), Steps(function(folder)), retries=0)


def run(one: Job, run_id: str = "", resume: str | None = None) -> RunResult:
    return runner.run([one], run_id=run_id or new_run_id(), workers=1, resume=resume)[0]


def calls(folder: Path) -> list[str]:
    made = folder / "made"
    found = made.read_text().split() if made.exists() else []
    made.unlink(missing_ok=True)
    return found


def codes(result: RunResult) -> dict[str, str]:
    return {str(w["code"]): str(w["text"]) for w in result.warnings}


def failed(folder: Path, one: Job, run_id: str) -> str:
    (folder / "fail").touch()
    with pytest.raises(UserCodeError) as caught:
        run(one, run_id)
    (folder / "fail").unlink()
    return str(caught.value)


@pytest.mark.parametrize("format_", ["parquet", "safetensors"])
@pytest.mark.parametrize("order", ["source", "key"])
def test_a_failed_run_of_a_frozen_source_goes_on_with_what_is_missing(
    format_: Format, order: str, tmp_path: Path
) -> None:
    options = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("id",), key=("id",))
    if order == "key":
        options = WriteOptions(order="key", key=("id",))
    one = job(tmp_path, format_=format_, options=options)
    first = new_run_id()
    said = failed(tmp_path, one, first)
    assert f"--resume {first} goes on from them" in said
    before = calls(tmp_path)
    result = run(one, resume=first)
    again = calls(tmp_path)
    assert result.rows == 100
    assert "80" in again
    assert len(again) < 5
    assert len(set(before) - {"80"}) == int(codes(result)["resumed"].split()[0]) == 5 - len(again)
    assert "2 snapshots" in codes(result)["snapshots"]
    resumed = open_dataset(str(tmp_path / "out"))
    resumed.verify()
    assert not [p for p in tmp_path.rglob("*") if first in p.name and p.is_dir()], "the stage became the dataset"
    assert not (tmp_path / "out" / ".parts").exists()
    run(one)
    whole = open_dataset(str(tmp_path / "out"))
    assert [(f.split, f.rows, f.sha256) for f in resumed.manifest.files] == [
        (f.split, f.rows, f.sha256) for f in whole.manifest.files
    ]
    assert resumed.manifest.document["columns"] == whole.manifest.document["columns"]


def test_what_cannot_be_kept_is_read_again_and_said(tmp_path: Path) -> None:
    one = job(tmp_path)
    first, second = new_run_id(), new_run_id()
    failed(tmp_path, one, first)
    other = Job(one.read, (Write(one.writes[0].target, "parquet", WriteOptions(key=("id",)), "replace"),), one.steps)
    calls(tmp_path)
    result = run(other, resume=first)
    assert "the targets or their options differs from that run's" in codes(result)["resumed"]
    assert len(calls(tmp_path)) == 5
    failed(tmp_path, one, second)
    assert [p.name for p in tmp_path.iterdir() if second in p.name] == [f".out.cuetl-{second}"]
    run(one)
    assert not [p for p in tmp_path.iterdir() if second in p.name], "a run that does not resume it cleans up"
    calls(tmp_path)
    with pytest.raises(ConfigError, match=f"run {second} left nothing"):
        run(one, resume=second)
    assert not calls(tmp_path)


def test_a_run_that_nobody_knows_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    one = job(tmp_path)
    first = new_run_id()
    failed(tmp_path, one, first)
    calls(tmp_path)
    gone = Reading(Endpoint("shop", "sqlite", database=str(tmp_path / "gone.db")), Query(table="orders"))
    with pytest.raises(ConfigError, match=f"run nobody left nothing beside .*out.*{first}"):
        run(Job(gone, one.writes), resume="nobody")
    with pytest.raises(ConfigError, match="cannot be part of a file name"):
        run(one, resume="../out")
    done = run(one, resume=first)
    with pytest.raises(ConfigError, match=f"run {done.run_id} left nothing"):
        run(one, resume=done.run_id)
    assert len(calls(tmp_path)) < 5


def test_a_failed_run_of_rows_that_may_change_leaves_nothing(tmp_path: Path) -> None:
    one = job(tmp_path, frozen=False)
    first = new_run_id()
    assert "--resume" not in failed(tmp_path, one, first)
    assert not [p for p in tmp_path.iterdir() if first in p.name]


def test_a_damaged_file_of_a_finished_part_is_made_again(tmp_path: Path) -> None:
    one = job(tmp_path)
    first = new_run_id()
    failed(tmp_path, one, first)
    calls(tmp_path)
    stage = tmp_path / f".out.cuetl-{first}"
    damaged = min(stage.glob("**/*.tmp"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    kept = len(list((stage / ".parts").glob("*.json"))) - 1
    result = run(one, resume=first)
    assert len(calls(tmp_path)) == 5 - (kept - 1)
    assert result.rows == 100
    open_dataset(str(tmp_path / "out")).verify()


def test_a_source_declared_frozen_that_has_more_rows_is_found_out(tmp_path: Path) -> None:
    one = job(tmp_path)
    first = new_run_id()
    failed(tmp_path, one, first)
    late = pa.table({"id": pa.array([None], pa.int64()), "price": [1.0], "mode": ["a"]})
    more = MemorySource(pa.concat_tables([ROWS, late]), key="id")
    read = Reading(more.endpoint, more.query, one.read.wish, source=more, frozen=True)
    changed = Job(read, one.writes, one.steps)
    with pytest.raises(CountMismatch):
        run(changed, resume=first)


def test_a_run_that_lives_is_not_taken_over(tmp_path: Path) -> None:
    from etl.tensors.stages import open_stage

    open_stage(tmp_path / "out", "living")
    with pytest.raises(ConfigError, match="run living still writes to"):
        run(job(tmp_path), resume="living")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.dates()
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("$ab", max_size=2) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_values_are_the_same_after_json(value: object) -> None:
    again = from_json(to_json(value))
    assert repr(again) == repr(value)
    assert to_json(again) == to_json(value)


def test_records_that_are_none_make_nothing() -> None:
    for text in (b'{"$": "Popen", "args": 1}', b"[", b'{"$": "tuple"}', b'{"$": "Whole", "x": 1}', b'{"$": "arrow"}'):
        with pytest.raises(ValueError, match=r"."):
            from_json(text)


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def sqlite_job(folder: Path, *, frozen: bool = False) -> Job:
    database = folder / "shop.db"
    if not database.exists():
        with sqlite3.connect(database) as connection:
            connection.execute("create table orders (id integer primary key, price real)")
            connection.executemany("insert into orders values (?, ?)", [(i, i / 4) for i in range(100)])
        connection.close()
    read = Reading(
        Endpoint("shop", "sqlite", database=str(database)), Query(table="orders"), CutWish("id", 5), frozen=frozen
    )
    return Job(read, (Write(str(folder / "out"), "safetensors", WriteOptions(), "replace"),), Steps(function(folder)))


RUNS = """
import pathlib, sys
sys.path.insert(0, {tests!r})
import test_resume as t

if __name__ == "__main__":
    folder = pathlib.Path({folder!r})
    one = t.sqlite_job(folder)
    (folder / "seconds").write_text("0.15")
    t.run(one, {run_id!r}, {resume!r})
"""


@pytest.mark.slow
def test_a_run_killed_at_any_moment_and_resumed_makes_the_same_dataset(tmp_path: Path) -> None:
    chance = random.Random(11)
    run(sqlite_job(tmp_path))
    undisturbed = [(f.rows, f.sha256) for f in open_dataset(str(tmp_path / "out")).manifest.files]
    calls(tmp_path)
    parts_kept = 0
    here = str(Path(__file__).parent)
    resume: str | None = None
    for number in range(4):
        run_id = new_run_id()
        script = RUNS.format(tests=here, folder=str(tmp_path), run_id=run_id, resume=resume)
        child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(Path.cwd())})
        wanted = chance.randint(2, 4) if number else 2
        made = tmp_path / "made"
        until = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < until:
            if made.exists() and len(made.read_text().split()) >= wanted:
                break
            time.sleep(0.01)
        time.sleep(chance.random() * 0.1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        before = set(calls(tmp_path))
        if (tmp_path / f".out.cuetl-{run_id}").exists():
            resume = run_id
        result = run(sqlite_job(tmp_path), resume=resume)
        again = calls(tmp_path)
        kept = int(codes(result)["resumed"].split()[0]) if "of run" in codes(result).get("resumed", "") else 0
        parts_kept += kept
        assert len(again) == 5 - kept
        assert kept == 0 or before
        assert "snapshots" not in codes(result), "the file proves that it is as it was"
        assert [(f.rows, f.sha256) for f in open_dataset(str(tmp_path / "out")).manifest.files] == undisturbed
        resume = None
    assert parts_kept >= 3


@pytest.mark.slow
def test_a_file_that_was_written_to_is_read_again(tmp_path: Path) -> None:
    one = sqlite_job(tmp_path, frozen=True)
    first = new_run_id()
    failed(tmp_path, one, first)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("update orders set price = 7 where id = 0")
    connection.close()
    unproved = sqlite_job(tmp_path)
    calls(tmp_path)
    result = run(unproved, resume=first)
    assert "the source was written to since" in codes(result)["resumed"]
    assert len(calls(tmp_path)) == 5
    assert open_dataset(str(tmp_path / "out")).tensors()["price"][0] == 7


@pytest.mark.slow
def test_an_export_that_was_killed_is_resumed_by_the_command(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table orders (id integer primary key, note text)")
        connection.executemany("insert into orders values (?, ?)", [(i, "x" * 200) for i in range(60_000)])
    connection.close()
    arguments = [
        "export",
        "sqlite:///shop.db",
        "--to",
        "out",
        "--table",
        "orders",
        "--partitions",
        "12",
        "--format",
        "parquet",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "etl.cli.main", *arguments, "--workers", "1", "--quiet"]
    child = subprocess.Popen(command, cwd=tmp_path, env=environment)
    until = time.monotonic() + 60
    while child.poll() is None and time.monotonic() < until:
        if len(list(tmp_path.glob(".out.cuetl-*/.parts/*.json"))) > 3:
            break
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (stage,) = tmp_path.glob(".out.cuetl-*")
    done = cuetl(*arguments, "--resume", stage.name.rpartition("cuetl-")[2], "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["rows"] == 60_000
    (said,) = [w["text"] for w in done.json["warnings"] if w["code"] == "resumed"]
    assert int(said.split()[0]) >= 3
    assert " of 12 parts of table orders are those of run " in said
