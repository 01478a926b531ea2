"""What a user's type checker infers through the public door; `make check` holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import pandas as pd
import pyarrow as pa

import etl
from etl.api import Rows
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
