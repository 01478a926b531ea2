"""What a user's type checker infers through the public door; `make check` holds it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import assert_type

import pandas as pd
import pyarrow as pa

import etl
from etl import testing
from etl.api import Definition, Rows
from etl.planning.binding import Bound
from etl.planning.definition import Pipeline
from etl.run.result import RunPlan, RunResult
from etl.tensors.batch import Batch
from etl.tensors.dataset import Dataset
from etl.tensors.reading import Split


def reading() -> None:
    """Rows are a value; each way out has its own type."""
    rows = etl.read_sql("warehouse", "select 1")
    assert_type(rows, Rows)
    assert_type(rows.schema(), pa.Schema)
    assert_type(rows.stream(), Iterator[pa.RecordBatch])
    assert_type(rows.to_arrow(), pa.Table)
    assert_type(rows.to_pandas(), pd.DataFrame)
    assert_type(rows.to_torch(), Batch)


def opening() -> None:
    """A dataset is pinned at one version; its splits have a length."""
    dataset = etl.open_dataset("out")
    assert_type(dataset, Dataset)
    assert_type(dataset.splits, tuple[str, ...])
    assert_type(dataset.split("train"), Split)
    assert_type(len(dataset.split("train")), int)
    assert_type(dataset.split("train").tensors(), Batch)
    assert_type(dataset.split("train")[3], Batch)
    assert_type(dataset.split("train")[:3], Batch)
    assert_type(dataset.split("train").take([3, 1]), Batch)
    assert_type(dataset.split("train").table(), pa.Table)


def failing() -> None:
    """Errors are reached through the door."""
    error = etl.errors.SchemaError("no column qty", hint="Did you mean qti?", column="qty")
    assert_type(error.exit_code, int)
    assert_type(error.context, dict[str, str | int])


@etl.pipeline(
    sources={"orders": etl.SQL("warehouse", "select * from orders where day = :day")},
    sink=etl.Tensors("lake/{day}", features=["qty"], split={"train": 0.9, "val": "0.1"}, split_key="id"),
    schedule=[etl.cron("0 2 * * *", tz="Asia/Shanghai"), etl.every(hours=6), etl.after("lake/orders")],
    params={"day": date, "rows": (int, 5)},
)
def churn(orders: pd.DataFrame) -> pd.DataFrame:
    """A pipeline's function keeps its own types."""
    return orders


def defining() -> None:
    """A decorated function is its pipeline, and called it is the function."""
    assert_type(churn(orders=pd.DataFrame()), pd.DataFrame)
    assert_type(churn(pd.DataFrame()), pd.DataFrame)
    assert_type(churn.pipeline, Pipeline)
    plain = etl.pipeline(
        name="plain", sources={"rows": etl.Read("warehouse", table="t")}, sink=etl.Parquet("lake", nulls={"a": "drop"})
    )
    assert_type(plain, Definition)
    assert_type(plain.pipeline, Pipeline)
    assert_type(churn.pipeline.bind({"day": "2026-01-31"}, "run"), Bound)
    assert_type(churn.run(day="2026-01-31", engine="cpu"), RunResult)
    assert_type(plain.plan(), RunPlan)
    assert_type(testing.run(churn, sources={}, day="2026-01-31"), pa.Table)
    churn()  # type: ignore[call-arg]
    etl.SQL("warehouse", tabel="t")  # type: ignore[call-arg]
    etl.Tensors("lake", mode="merge2")  # type: ignore[arg-type]
    raise etl.Retry(after=30)
