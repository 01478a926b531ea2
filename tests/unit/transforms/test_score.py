"""Score: a model's answers as a column, the same whatever the batch; what is not meant is refused."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper

from etl import Tensors, load_preprocessor, open_dataset, pipeline
from etl.core.errors import CastError, ConfigError, DataError
from etl.tensors.manifest import names_sha256
from etl.transforms import FillNull, Score, runtime
from tests.preparing import both, fit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from etl.transforms.base import Transform

WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


def linear(
    path: Path,
    *,
    wide: bool = False,
    kind: int = TensorProto.FLOAT,
    rows: str | int = "rows",
    words: Mapping[str, str] | None = None,
    outputs: int = 1,
) -> Path:
    """x [rows, 2] → x @ weights, of one column or three."""
    weights = WEIGHTS if wide else WEIGHTS[:, :1]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    names = [f"y{at}" if at else "y" for at in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], [name]) for name in names],
        "linear",
        [helper.make_tensor_value_info("x", kind, [rows, 2])],
        [helper.make_tensor_value_info(name, kind, [rows, weights.shape[1]]) for name in names],
        initializer=[helper.make_tensor("w", kind, weights.shape, weights.astype(dtype).reshape(-1))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, dict(words or {}))
    onnx.save(model, path)
    return path


def table(rows: int = 11) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "a": pa.array([i / 4 for i in range(rows)], pa.float64()),
            "b": pa.array([i - 3 for i in range(rows)], pa.int32()),
        }
    )


def answers(step: Score, given: pa.Table) -> Any:
    plan, states = fit([step], given)
    (batch,) = given.combine_chunks().to_batches()
    return both(plan, states, batch).column(step.output)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_answers_are_the_models_own(tmp_path: Path, kind: int) -> None:
    given = table()
    x = np.stack([np.array(given["a"]), np.array(given["b"])], axis=1).astype(helper.tensor_dtype_to_np_dtype(kind))
    one = answers(Score(linear(tmp_path / "m.onnx", kind=kind), ["a", "b"], "s"), given)
    np.testing.assert_allclose(one.to_numpy(), (x @ WEIGHTS[:, 0].astype(x.dtype)), rtol=1e-6)
    assert one.type == (pa.float32() if kind == TensorProto.FLOAT else pa.float64())
    three = answers(Score(linear(tmp_path / "w.onnx", wide=True, kind=kind), ["a", "b"], "s"), given)
    assert three.type.list_size == 3
    np.testing.assert_allclose(np.array(three.to_pylist()), x @ WEIGHTS.astype(x.dtype), rtol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 4095, 4096, 4097, 9000])
def test_a_row_has_its_answer_whatever_its_batch(tmp_path: Path, rows: int) -> None:
    step = Score(linear(tmp_path / "m.onnx"), ["a", "b"], "s", batch_rows=4096)
    given = table(rows) if rows else table(1).slice(0, 0)
    plan, states = fit([step], table(1))
    whole = [both(plan, states, one)["s"] for one in given.to_batches()]
    parts = [both(plan, states, one)["s"] for one in given.to_batches(max_chunksize=1000)]
    found = pa.chunked_array(whole, pa.float32()).to_numpy()
    assert found.tobytes() == pa.chunked_array(parts, pa.float32()).to_numpy().tobytes()
    assert len(found) == rows


def test_batches_have_fixed_sizes(tmp_path: Path) -> None:
    # A model that is compiled for one size says so: any other would be refused by ONNX Runtime.
    step = Score(linear(tmp_path / "m.onnx", rows=4096), ["a", "b"], "s", batch_rows=4096)
    assert len(answers(step, table(5000))) == 5000
    with pytest.raises(ConfigError, match="takes 4096 rows at once, and batch_rows is 16384"):
        fit([Score(tmp_path / "m.onnx", ["a", "b"], "s")], table())


def test_a_model_is_loaded_once_for_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = runtime.session

    def counted(*given: Any, **named: Any) -> Any:
        made.append(given)
        return real(*given, **named)

    monkeypatch.setattr(runtime, "session", counted)
    path = linear(tmp_path / "m.onnx", words={"only": str(tmp_path)})
    for _ in range(3):
        answers(Score(path, ["a", "b"], "s"), table())
    assert len(made) == 1


def test_a_dataset_has_scores_and_the_manifest_says_of_which_model(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.onnx")
    sink = Tensors(str(tmp_path / "d"), features=["a", "s"], key="id")
    steps: list[Transform] = [FillNull("a", 0.0), Score(path, ["a", "b"], "s")]
    pipeline(name="p", sources={"t": table()}, sink=sink, prepare=steps).run()
    data = open_dataset(tmp_path / "d")
    (entry,) = json.loads(json.dumps(data.manifest.document["scores"]))
    assert entry == {
        "model": "m.onnx",
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "inputs": ["a", "b"],
        "feature_order_sha256": names_sha256(["a", "b"]),
        "output": "s",
        "providers": ["CPUExecutionProvider"],
        "precision": "fp32",
        "tolerance": None,
        "batch_rows": 16384,
        "onnxruntime": runtime.library().__version__,
    }
    had = data.split("all").tensors() if "all" in data.splits else data.tensors()
    order = np.argsort(had["id"])
    served = load_preprocessor(tmp_path / "d").transform(table())
    np.testing.assert_array_equal(served["x"], had["x"][order])


def test_another_model_under_the_same_path_is_refused(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.onnx", words={"of": str(tmp_path)})
    step = Score(path, ["a", "b"], "s")
    linear(path, words={"of": "another"})
    with pytest.raises(ConfigError, match=r"has the SHA-256 .* and the model that is meant"):
        fit([step], table())


def test_the_order_of_features_is_held_by_hash(tmp_path: Path) -> None:
    words = {
        "cuetl.feature_order_sha256": names_sha256(["a", "b"]),
        "cuetl.feature_order": json.dumps(["a", "b"]),
    }
    path = linear(tmp_path / "m.onnx", words=words)
    assert len(answers(Score(path, ["a", "b"], "s"), table())) == 11
    with pytest.raises(ConfigError, match="1: a, not b; 2: b, not a"):
        fit([Score(path, ["b", "a"], "s")], table())


def test_providers_that_are_not_here_are_refused_naming_what_is(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match=r"has no NoSuchProvider here; present are .*CPUExecutionProvider"):
        fit([Score(path, ["a", "b"], "s", providers=["NoSuchProvider"])], table())


def test_null_is_refused_with_its_row(tmp_path: Path) -> None:
    given = table().set_column(1, "a", pa.array([None if i == 4 else float(i) for i in range(11)]))
    with pytest.raises(CastError, match="column a, row 5: it is NULL, which no model takes"):
        answers(Score(linear(tmp_path / "m.onnx"), ["a", "b"], "s"), given)


@pytest.mark.parametrize(
    ("value", "kind"),
    [((1 << 24) + 1, pa.int64()), ((1 << 24) + 1, pa.uint32()), (-(1 << 25), pa.int32()), (1e39, pa.float64())],
)
def test_a_value_that_the_models_dtype_does_not_hold_is_refused(tmp_path: Path, value: Any, kind: Any) -> None:
    given = pa.table({"a": pa.array([1, value], kind), "b": [1.0, 2.0]})
    with pytest.raises(CastError, match=r"column a, row 2: .* is no float32"):
        answers(Score(linear(tmp_path / "m.onnx"), ["a", "b"], "s"), given)


def test_a_model_of_other_shapes_is_refused(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match="takes 2 columns, and inputs names 3"):
        fit([Score(path, ["a", "b", "id"], "s")], table())
    several = linear(tmp_path / "two.onnx", outputs=2)
    with pytest.raises(ConfigError, match="gives y, y1"):
        fit([Score(several, ["a", "b"], "s")], table())
    assert len(answers(Score(several, ["a", "b"], "s", tensor="y1"), table())) == 11
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match="ONNX Runtime does not load the model"):
        fit([Score(tmp_path / "no.onnx", ["a", "b"], "s")], table())


@pytest.mark.parametrize(
    "named",
    [
        {"batch_rows": 1000},
        {"precision": "int8"},
        {"precision": "fp16"},
        {"precision": "fp16", "providers": ["CUDAExecutionProvider"]},
        {"providers": []},
    ],
)
def test_options_that_there_are_not_are_refused(tmp_path: Path, named: dict[str, Any]) -> None:
    path = linear(tmp_path / "m.onnx")
    with pytest.raises(ConfigError):
        Score(path, ["a", "b"], "s", **named)
    with pytest.raises(ConfigError, match="cannot be read"):
        Score(tmp_path / "none.onnx", ["a", "b"], "s")


def test_sixteen_bits_must_be_near_thirty_two(tmp_path: Path) -> None:
    # TensorRT is not here; the comparison is: with answers that are not the model's own.
    step = Score(linear(tmp_path / "m.onnx"), ["a", "b"], "s")
    batch = np.ones((4, 2), np.float32)
    exact = batch @ WEIGHTS[:, :1].astype(np.float32)
    step._hold_near(exact * np.float32(1.001), batch, "y")
    for wrong in (exact * 2, exact * np.nan):
        with pytest.raises(DataError, match="16 bits"):
            step._hold_near(wrong, batch, "y")
