"""Figures do not know how rows were cut, who read them, how often a part was tried, or that a run died before."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from etl import SQL, Tensors, pipeline
from etl.core.errors import Retry
from etl.tensors.dataset import open_dataset
from etl.transforms import FillNull, Standardize
from tests.integration.test_prepared import fit_of, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from etl.api import Definition
    from etl.transforms.base import Transform

ROWS = 3900
STEPS: list[Transform] = [
    FillNull(["whole", "real"], "mean"),
    Standardize(["whole", "real"]),
    FillNull("late", "mean"),
    Standardize("late"),
    Standardize("late"),
]
"""Of two scans: the last step needs what the one before it fitted."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "store.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table t (id integer primary key, whole integer, real double, late double)")
        rows = [
            (i, None if i % 9 == 4 else (1 << 60) + i * 7 % 1001, None if i % 5 == 1 else 1e9 + i * 13 % 997 / 7, i / 3)
            for i in range(ROWS)
        ]
        db.executemany("insert into t values (?, ?, ?, ?)", rows)
    return path


def made(store: Path, to: Path, partitions: int, **more: Any) -> Definition:
    return pipeline(
        name="made",
        sources={"t": SQL(f"sqlite:///{store}", table="t", partition_column="id", partitions=partitions)},
        sink=Tensors(
            str(to),
            features=["whole", "real", "late"],
            key="id",
            order="key",
            split={"train": 0.7, "val": 0.3},
            split_key="id",
        ),
        prepare=STEPS,
        **more,
    )


def numbers(folder: Path, place: int) -> dict[str, dict[str, float]]:
    """Column → name → figure of a step that standardizes."""
    figures = plan_of(folder)["steps"][place]["figures"]
    return {
        column: {
            n: float.fromhex(v["float"]) if "float" in v else float(v["int"])
            for n, v in found.items()
            if isinstance(v, dict) and v.keys() & {"float", "int"}
        }
        for column, found in figures.items()
    }


def same(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> None:
    """Whole numbers to the last bit; floats within the bounds of another order of summing."""
    for column, figures in one.items():
        if column == "whole":
            assert other[column] == figures
        assert other[column]["mean"] == pytest.approx(figures["mean"], rel=1e-12, abs=1e-12)
        assert other[column]["std"] == pytest.approx(figures["std"], rel=1e-10)


def test_thirteen_parts_are_one_part(store: Path, tmp_path: Path) -> None:
    found = {name: made(store, tmp_path / name, n).run(workers=1) for name, n in (("one", 1), ("many", 13))}
    assert {name: one.partitions for name, one in found.items()} == {"one": 1, "many": 13}
    for place in (1, 3, 4):
        same(numbers(tmp_path / "one", place), numbers(tmp_path / "many", place))


@pytest.mark.slow
def test_parts_in_processes_give_the_bytes_that_they_give_in_threads(store: Path, tmp_path: Path) -> None:
    for name, workers in (("threads", 1), ("processes", 2), ("again", 2)):
        made(store, tmp_path / name, 13).run(workers=workers)
    found = [open_dataset(tmp_path / name, verify="sha256").manifest for name in ("threads", "processes", "again")]
    assert len({one.fit_id for one in found}) == 1
    assert len({str(one.document["content_sha256"]) for one in found}) == 1


def test_a_part_that_is_tried_again_is_observed_once(store: Path, tmp_path: Path) -> None:
    calm, shaken = tmp_path / "calm", tmp_path / "shaken"
    source = SQL(f"sqlite:///{store}", table="t", partition_column="id", partitions=5)
    tries: dict[int, int] = {}

    def define(to: Path, *, fails: bool) -> Any:
        @pipeline(
            sources={"t": source},
            sink=Tensors(str(to), features=["whole", "real"], key="id", order="key"),
            prepare=STEPS[:2],
            rowwise=True,
        )
        def rows(t: Any) -> Any:
            first = int(t["id"].iloc[0]) if len(t) else -1
            tries[first] = tries.get(first, 0) + 1
            if fails and len(t) and tries[first] == 1:
                raise Retry(after=0)
            if fails and len(t) > 700:
                raise MemoryError
            return t

        return rows

    define(calm, fails=False).run(workers=1)
    tries.clear()
    define(shaken, fails=True).run(workers=1)
    assert max(tries.values()) >= 2
    assert fit_of(shaken)["fitted_on"] == fit_of(calm)["fitted_on"] == {"split": "all", "rows": ROWS}
    same(numbers(shaken, 1), numbers(calm, 1))


RUN = """
import signal, sys, os, threading
from pathlib import Path
from tests.integration.test_prepared_parts import made
from etl.run import fitting, runner
from etl.core.errors import Cancelled

store, to, dies, how = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
real, gone = runner.run, 0

def run(jobs, **more):
    global gone
    gone += 1
    if gone == dies + 1:
        if how == "KILL":
            from etl.tensors import sink
            from etl.run import observing
            for session in (sink.DatasetSession, observing.ObserveSession):
                session.prepare = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        elif how == "BEGUN":
            from etl.tensors.sink import DatasetSink
            begin = DatasetSink.begin

            def begun(*a, **k):
                session = begin(*a, **k)
                os.kill(os.getpid(), signal.SIGINT)
                return session

            DatasetSink.begin = begun
        else:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    return real(jobs, **more)

runner.run = run
if __name__ == "__main__":
    try:
        made(store, to, 13).run(workers=1)
    except (Cancelled, KeyboardInterrupt):
        sys.exit(3)
"""


@pytest.mark.parametrize(
    ("how", "scan"),
    [
        ("KILL", 1),
        ("BEGUN", 2),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in product(("KILL", "INT"), (0, 1, 2))
            if one != ("KILL", 1)
        ),
    ],
)
def test_a_run_that_dies_in_any_pass_leaves_the_old_version_and_its_remains_go(
    how: str, scan: int, store: Path, tmp_path: Path
) -> None:
    to = tmp_path / "d"
    made(store, to, 2).run(workers=1)
    before = (to / "_manifest.json").read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(store), str(to), str(scan), how],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == (-signal.SIGKILL if how == "KILL" else 3), done.stderr
    assert (to / "_manifest.json").read_bytes() == before
    assert how == "KILL" or [p.name for p in tmp_path.iterdir()] == ["d"]
    made(store, to, 13).run(workers=1)
    assert [p.name for p in tmp_path.iterdir() if ".spool" in p.name] == []
    assert open_dataset(to, verify="sha256").manifest.version == 2
