"""What Python and notebooks show of the values that users hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import etl
from connectors.base import CutWish, Query
from connectors.memory import MemorySource
from etl.api import Rows
from etl.planning.compile import compile_job
from etl.planning.jobs import Job, Reading, Write
from etl.run.result import RunResult
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path


def test_a_result_is_shown() -> None:
    columns = ({"name": "<b>", "role": "feature", "dtype": "int64", "null": {"count": 3}},)
    warnings = ({"code": "text", "text": "a & b"},)
    one = RunResult("r1", "succeeded", "out", "parquet", 2, 2000, 5, 1, "cpu", 1.25, columns, warnings)
    assert repr(one) == "<RunResult r1 succeeded: out, version 2, parquet: 2 000 rows in 1 part, 1.2 s>"
    html = one._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<td>3</td>" in html


def test_a_loader_and_rows_are_shown(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table({"a": pa.array(range(10))}), fmt="safetensors")
    loader = etl.open_dataset(tmp_path / "out").split("all").loader(batch_size=4, shuffle=True, seed=3)
    assert repr(loader) == "<Loader of 4 rows a batch, shuffled, seed 3: 3 batches; at epoch 0, step 0>"
    source = MemorySource(pa.table({"a": [1, 2]}))
    assert repr(Rows(source)) == f"<Rows of {source.title}, connection memory: read when asked for>"


def test_a_plan_is_shown() -> None:
    source = MemorySource(pa.table({"a<b": [1, 2]}))
    read = Reading(source.endpoint, Query(), CutWish(None, None, 1 << 20), "t", count=True)
    with source.snapshot(attach_all=lambda _: None) as at:
        job = Job(read, (Write("out", "parquet", WriteOptions(), "create"),))
        plan = compile_job(job, source, at, readers=1, sample=False)
    assert repr(plan) == f"<JobPlan {source.title}: about 2 rows in 1 part, to out>"
    assert "a&lt;b" in plan._repr_html_()
