"""A fit as an ONNX model gives what the dataset has, on its own rows and at every edge; or there is no model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa

from etl import Tensors, load_preprocessor, pipeline
from etl.transforms import (
    Categorify,
    Log1p,
    OneHot,
    Standardize,
)
from etl.transforms.asking import asked_of
from etl.transforms.export.tensors import fed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etl.transforms.base import Transform
    from etl.transforms.serving import Preprocessor


def fitted(
    folder: Path,
    table: pa.Table,
    steps: Sequence[Transform],
    features: Sequence[str] = (),
    *,
    dtype: str | None = None,
    cast: Any = "exact",
) -> Preprocessor:
    place = folder / f"d{len(list(folder.iterdir()))}"
    sink = Tensors(str(place), features=list(features), dtype=dtype, cast=cast)
    pipeline(name="p", sources={"t": table}, sink=sink, prepare=list(steps)).run()
    return load_preprocessor(place)


def run(model: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, dict(inputs)), strict=True))


def ran(prep: Preprocessor, model: Path, table: pa.Table) -> dict[str, Any]:
    return run(model, fed(prep.inputs, asked_of(table, prep.inputs, strict=False)[1]))


def test_epoch_seconds_are_scaled_in_double(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1700000000, 1700000001, 1700000060], pa.int64())})
    prep = fitted(tmp_path, table, [Standardize("t")])
    prep.to_onnx(tmp_path / "m.onnx")
    made = ran(prep, tmp_path / "m.onnx", table)
    want = np.array([-0.7248562, -0.6892076, 1.4140638], np.float32)
    np.testing.assert_array_max_ulp(made["out.t"], want, 1)
    assert made["out.t"].tobytes() == prep.transform(table)["t"].tobytes()


def test_keys_never_pass_through_floats(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([16777216, 16777217, 3], pa.int64())})
    prep = fitted(tmp_path, table, [Categorify("k")])
    prep.to_onnx(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64
    assert ran(prep, tmp_path / "m.onnx", table)["out.k"].tolist() == [4, 5, 3]
    assert prep.transform(table)["k"].tolist() == [4, 5, 3]


def test_what_the_batch_path_refuses_has_a_status(tmp_path: Path) -> None:
    table = pa.table({"c": ["a", "b", "a"], "p": [0.0, 1.0, 2.0]})
    prep = fitted(tmp_path, table, [OneHot("c", unseen="error"), Log1p("p")])
    prep.to_onnx(tmp_path / "m.onnx")
    given = {"c": np.array(["a", "?", "b", "?"], object), "p": np.array([1.0, 1.0, -1.0, -1.0])}
    made = run(tmp_path / "m.onnx", given)
    assert made["status"].tolist() == [0, 1, 2, 1]
    assert made["out.c"].tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
    words = {one.key: one.value for one in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(words["cuetl.status"])["2"] == "step 2, Log1p"
    assert "not for TensorRT" in words["cuetl.devices"]
