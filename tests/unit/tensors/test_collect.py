"""Rows read into memory as tensors are those that a dataset of the same rows holds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from etl.core.errors import ConfigError
from etl.tensors.collect import collected
from etl.tensors.dataset import open_dataset
from tests.datasets import export, schema_of

if TYPE_CHECKING:
    from pathlib import Path

KINDS: dict[str, Any] = {
    "i": pa.array([2**53 + 1, None, -1], pa.int64()),
    "b": pa.array([True, None, False]),
    "f": pa.array([0.1, float("nan"), None], pa.float32()),
    "d": pa.array([Decimal("1.10"), None, Decimal("-0.01")], pa.decimal128(5, 2)),
    "t": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
    "r": pa.array([[1, 2], None, [3]], pa.list_(pa.int16())),
    "e": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
}


@pytest.mark.parametrize("rows", [0, 3, 10_000])
def test_the_tensors_are_those_of_a_dataset(tmp_path: Path, rows: int) -> None:
    table = pa.concat_tables([pa.table(KINDS)] * -(-max(rows, 1) // 3)).slice(0, rows).combine_chunks()
    export(tmp_path / "d", table, fmt="safetensors")
    want = open_dataset(tmp_path / "d").tensors()
    got = collected(schema_of(table), table.to_batches(999), framework="numpy")
    assert dict(got.dtypes) == dict(want.dtypes)
    assert {n: (a.shape, a.tobytes()) for n, a in got.items()} == {n: (a.shape, a.tobytes()) for n, a in want.items()}


def test_text_is_left_out_by_name_and_text_alone_is_refused() -> None:
    table = pa.table({"n": [1, 2], "s": ["a", None]})
    with pytest.warns(UserWarning, match="text is no tensor: s left out"):
        assert list(collected(schema_of(table), table.to_batches(), framework="numpy")) == ["n", "n.valid"]
    only = table.select(["s"])
    with pytest.raises(ConfigError, match="all are text"):
        collected(schema_of(only), only.to_batches(), framework="numpy")
