"""What holds of every step: rows one by one are rows at once, saved is as good as new, and old states stay readable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etl import transforms
from etl.transforms.base import Dropping, needs_fit
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from etl.transforms.preprocessor import figures_of, loaded, saved
from tests.every_step import ROWS, STEPS, reopened, rows, served_rows
from tests.preparing import agree, both, fit

GOLDEN = Path(__file__).with_name("golden") / "steps"
each = pytest.mark.parametrize("step", STEPS, ids=[f"{at:02d}-{step.kind}" for at, step in enumerate(STEPS)])


def test_there_is_one_of_each() -> None:
    have = {type(step).__name__ for step in STEPS}
    elsewhere = {"Score", "Lag", "Rolling", "AsOf"}  # which need a model, or other rows: test_score, test_windows …
    assert have == {*transforms.__all__} - elsewhere


@each
def test_rows_one_by_one_are_rows_at_once(step: Any) -> None:
    table = rows()
    plan, states = fit([step], table)
    (whole,) = table.to_batches()
    made = both(plan, states, whole, ulps=1)
    singles = table.to_batches(max_chunksize=1)
    parts = [applied(plan, states, Rows.of_batch(one, plan.given)).batch(plan.returns) for one in singles]
    agree(made, pa.Table.from_batches(parts, plan.returns.to_arrow()).combine_chunks().to_batches()[0])
    if not isinstance(step, Dropping):
        assert made.num_rows == ROWS


@pytest.mark.parametrize("step", [one for one in STEPS if needs_fit(one)], ids=repr)
def test_the_order_and_cut_of_rows_does_not_change_a_fit(step: Any) -> None:
    table = rows()
    backwards = table.take(pa.array(range(ROWS - 1, -1, -1)))
    (batch,) = table.to_batches()
    made = []
    for given, parts, size in ((table, (), ROWS), (backwards, (5, 6, 30), 4)):
        plan, states = fit([step], given, parts, batch_rows=size)
        made.append(applied(plan, states, Rows.of_batch(batch, plan.given)).batch(plan.returns))
    agree(made[0], made[1], ulps=4)


@each
@pytest.mark.parametrize("what", ["empty", "null"])
def test_no_rows_and_rows_of_null_keep_every_type(step: Any, what: str) -> None:
    plan, states = fit([step], rows())
    table = rows().slice(0, 0) if what == "empty" else rows().slice(3, 1)
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    made = both(plan, states, batch, ulps=1)
    assert made.schema.equals(plan.returns.to_arrow())


@each
def test_a_saved_fit_is_as_good_as_new(step: Any) -> None:
    table = rows()
    plan, states = fit([step], table)
    made = saved(plan, states, features=[], split="all", rows=ROWS, versions={})
    files = {path.rpartition("/")[2]: content for path, content in made.files.items()}
    found = figures_of(files["plan.json"], [step], read=files.__getitem__)
    agree(served_rows(plan, found, table).to_batches()[0], served_rows(plan, states, table).to_batches()[0])
    assert str(loaded(files["plan.json"], "plan.json").steps[0]).startswith(type(step).__name__)


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_what_was_saved_once_makes_the_same_for_ever(folder: Path) -> None:
    with pa.ipc.open_file(str(folder / "made.arrow")) as file:
        expected = file.read_all()
    agree(reopened(folder, rows()).to_batches()[0], expected.combine_chunks().to_batches()[0], ulps=1)


SERVING = """
import os, sys
from pathlib import Path
from etl.core.schema import Field, Schema
from etl.transforms.asking import asked_of, inputs_of
from etl.transforms.fit import applied, planned, served
from etl.transforms.host import Rows
from etl.transforms.preprocessor import built, figures_of, loaded
from etl.transforms.types import type_of
row = dict(id=1, real=0.5, whole=3, big=1 << 60, money=None, flag=True, word="zoo", day=None, at=None, y=1)

def one(folder):
    read = lambda name: (folder / name).read_bytes()
    known = loaded(read("plan.json"), "plan.json", read)
    steps = built(known)
    states = figures_of(read("plan.json"), steps, read=read)
    given = Schema(tuple(Field(n, type_of(t), n in known.nullable) for n, t in known.given.items() if n in row))
    plan = planned(steps, given, states)
    kept, figures = served(plan, states, plan.returns.names)
    inputs = inputs_of(kept, plan.returns.names)
    for given_row in (row, {**row, **dict.fromkeys(["real", "whole", "big", "flag", "word"])}):
        count, values = asked_of(given_row, inputs, strict=False)
        applied(kept, figures, Rows.of_values(count, values))
    if "pandas" in sys.modules:
        print(folder.name)

for folder in sorted(Path(sys.argv[1]).iterdir()):
    if not folder.name[3:].startswith(("list_", "multi_hot")):  # Arrow alone makes lists of Python's values
        child = os.fork()  # so that each begins without it
        if not child:
            one(folder)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(folder.name)
"""


def test_a_row_is_served_without_pandas_whatever_the_step() -> None:
    done = subprocess.run([sys.executable, "-c", SERVING, str(GOLDEN)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
