"""`Rolling`, `Lag` and `AsOf` inside a function of whole data: the same dataset from any number of parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from connectors.base import CutWish
from etl.engine import spool
from etl.planning import loader
from etl.run.naming import new_run_id
from etl.run.pipelines import run_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FILE = """
from datetime import datetime, timedelta
import pyarrow as pa
from etl import Parquet, pipeline
from etl.transforms import AsOf, Lag, Rolling
from connectors.memory import MemorySource

DAY = datetime(2024, 1, 1)
ORDERS = pa.table({
    "id": pa.array(range(210), pa.int64()),
    "item": [f"item {i % 7}" if i % 30 else None for i in range(210)],
    "at": [DAY + timedelta(hours=i * 37 % 210) for i in range(210)],
    "qty": pa.array([i % 9 if i % 11 else None for i in range(210)], pa.int64()),
})
PRICES = pa.table({
    "key": pa.array(range(70), pa.int64()),
    "item": [f"item {i % 7}" for i in range(70)],
    "since": [DAY + timedelta(hours=3 * i) for i in range(70)],
    "told": [DAY + timedelta(hours=3 * i + i % 4 * 20) for i in range(70)],
})

@pipeline(
    sources={"orders": MemorySource(ORDERS, key="id"), "prices": MemorySource(PRICES, key="key")},
    sink=Parquet("out"),
)
def features(orders, prices):
    orders = Rolling("qty", "2d", by="item", sort="at", tie="id", stats=["sum", "count"])(orders)
    orders = Lag("qty", by="item", sort="at", tie="id")(orders)
    return AsOf(on="at", event="since", known="told", by="item", columns="key", suffix="_then")(orders, prices)
"""


def run(folder: Path, parts: int) -> list[dict[str, Any]]:
    """The rows of the pipeline, its sources in so many parts and each part a partition; by id."""
    folder.mkdir()
    file = folder / "flow.py"
    file.write_text(FILE.replace('"out"', f'"{folder}/out"'), encoding="utf-8")
    run_id = new_run_id()
    bound = loader.load(str(file)).bind({}, run_id)
    cut = {name: replace(one, wish=CutWish(partitions=parts)) for name, one in bound.readings.items()}
    run_pipeline(replace(bound, readings=cut), run_id=run_id, workers=1, engine="cpu")
    return pq.read_table(folder / "out").sort_by("id").to_pylist()


def test_windows_of_a_pipeline_are_the_same_however_sources_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "LEAST_GROUP_BYTES", 1)
    found = run(tmp_path / "one", 1)
    assert run(tmp_path / "seven", 7) == found
    hour = [i * 37 % 210 for i in range(210)]
    item = [i % 7 if i % 30 else None for i in range(210)]
    qty = [i % 9 if i % 11 else None for i in range(210)]
    for row, at in zip(found, range(210), strict=True):
        before = [i for i in range(210) if item[i] == item[at] and hour[i] < hour[at]]
        inside = [qty[i] for i in before if hour[i] >= hour[at] - 48]
        known = [n for n in inside if n is not None]
        assert row["qty_count_2d"] == len(known)
        assert row["qty_sum_2d"] == (sum(known) if known else None)
        last = max(before, key=lambda i: hour[i], default=None)
        assert row["qty_lag1"] == (None if last is None else qty[last])
        facts = [k for k in range(70) if k % 7 == item[at] and 3 * k + k % 4 * 20 <= hour[at]]
        assert row["key_then"] == max(facts, default=None)
