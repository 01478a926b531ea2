"""Rows that steps leave out: counted by reason, not fitted on, not in the dataset, and answered in serving."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import etl
from connectors.memory import MemorySource
from etl import Tensors, pipeline
from etl.core.errors import EtlError
from etl.tensors.dataset import open_dataset
from etl.transforms import DropNull, FillNull, Filter, Select, Standardize

if TYPE_CHECKING:
    from pathlib import Path

    from etl.transforms.base import Transform

ROWS = 400


def orders() -> pa.Table:
    ids = np.arange(ROWS)
    price = pa.array([None if i % 10 == 3 else i / 8 for i in range(ROWS)], pa.float64())
    return pa.table({"id": pa.array(ids), "qty": pa.array(ids % 11, pa.int32()), "price": price})


def run(to: Path, prepare: list[Transform], **more: Any) -> Any:
    given: dict[str, Any] = {"features": ["qty", "price"], "key": "id", "order": "key"}
    sink = Tensors(str(to), **given | more)
    return pipeline(name="p", sources={"orders": MemorySource(orders(), key="id")}, sink=sink, prepare=prepare).run()


def manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "_manifest.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("fitted", [False, True])
def test_rows_read_are_rows_written_and_rows_left_out(tmp_path: Path, *, fitted: bool) -> None:
    prepare: list[Transform] = [DropNull("price"), Filter("qty", "not in", [0, 1])]
    stays = [i for i in range(ROWS) if i % 10 != 3 and i % 11 > 1]
    without_price = sum(i % 10 == 3 for i in range(ROWS))
    dropped = {"null": without_price, "filter": ROWS - without_price - len(stays)}
    result = run(tmp_path / "d", prepare + [Standardize("price")] * fitted)
    assert (result.rows_read, result.rows, result.rows_dropped) == (ROWS, len(stays), dropped)
    (source,) = manifest(tmp_path / "d")["source"]
    assert (source["rows_read"], source["rows_written"], source["rows_dropped"]) == (ROWS, len(stays), dropped)
    data = open_dataset(tmp_path / "d")
    assert data.tensors()["id"].tolist() == stays
    if fitted:
        assert manifest(tmp_path / "d")["fit"]["fitted_on"]["rows"] == ROWS
        x = data.tensors()["x"][:, 1].astype(np.float64)
        assert abs(x.mean()) < 1e-6
        assert x.std() == pytest.approx(1, rel=1e-6)


def test_a_row_that_a_step_would_leave_out_is_answered_in_serving(tmp_path: Path) -> None:
    run(tmp_path / "d", [DropNull("qty"), Filter("price", ">", 10.0), FillNull("price", 0.0), Standardize("qty")])
    served = etl.load_preprocessor(tmp_path / "d").transform([{"qty": 3, "price": 1.0}, {"qty": 3, "price": None}])
    assert served["x"][:, 1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "more", [{}, {"target": "price", "features": ["qty"]}, {"split": {"train": 0.5, "val": 0.5}, "split_key": "id"}]
)
def test_what_the_sink_names_must_be_selected(tmp_path: Path, more: dict[str, Any]) -> None:
    kept = {"id", "qty", "price"}
    for lost in kept if not more else kept - {"qty"}:
        if lost == "price" and "split" in more:
            continue
        with pytest.raises(EtlError, match=f"no column {lost}|{lost}"):
            run(tmp_path / "d", [Select(sorted(kept - {lost}))], **more)
    run(tmp_path / "d", [Select(["price", "qty", "id"]), Standardize("qty")], **more)
