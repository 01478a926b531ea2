"""Files for a framework are read by that framework's own reader: `.pt` by torch.load, TFRecord by tf.data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest

from etl.tensors.dataset import open_dataset
from etl.tensors.encode import mapped
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


def table(rows: int) -> Any:
    numbers = np.arange(rows)
    return pa.table(
        {
            "i8": pa.array(numbers % 100, pa.int8()),
            "i64": pa.array([None if i % 5 == 0 else i * 2**40 - 7 for i in range(rows)], pa.int64()),
            "u8": pa.array(numbers % 256, pa.uint8()),
            "f16": pa.array(numbers.astype(np.float16)),
            "f32": pa.array(numbers * 0.5, pa.float32()),
            "b": pa.array(numbers % 2 == 0),
            "emb": pa.array([[i, -i, 0.5] for i in range(rows)], pa.list_(pa.float32(), 3)),
            "tags": pa.array([None if i % 7 == 0 else list(range(i % 4)) for i in range(rows)], pa.list_(pa.int32())),
        }
    )


def stored(out: Path) -> dict[str, NDArray[Any]]:
    dataset = open_dataset(out)
    (file,) = dataset.manifest.files
    return mapped(file, dataset.manifest.format, dataset.locate)


@pytest.mark.framework("torch")
@pytest.mark.parametrize("dtype", [None, "bool", "uint16", "uint32", "uint64", "bfloat16", "float64"])
@pytest.mark.parametrize("how", ["mapped", "read"])
def test_torch_loads_its_files_without_running_code(tmp_path: Path, dtype: str | None, how: str) -> None:
    import torch

    rows = table(9)
    options = WriteOptions()
    if dtype is not None:
        rows = pa.table({"a": [0, 1, None], "c": [1, 1, 0]})
        options = WriteOptions(features=("a", "c"), dtype=dtype)
    export(tmp_path / "out", rows, 2, fmt="torch", options=options)
    (path,) = (tmp_path / "out").glob("*.pt")
    loaded = torch.load(path, weights_only=True, mmap=how == "mapped")
    want = stored(tmp_path / "out")
    assert list(loaded) == list(want)
    for name, tensor in loaded.items():
        assert tensor.is_contiguous()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.uint16)  # noqa: PLW2901 - the bits, for NumPy
        assert tensor.numpy().dtype == want[name].dtype
        assert tensor.shape == want[name].shape
        assert tensor.numpy().tobytes() == want[name].tobytes()
    assert dtype is None or str(loaded["x"].dtype) == f"torch.{dtype}"


@pytest.mark.framework("torch")
@pytest.mark.parametrize("kept", [0, 3])
def test_torch_loads_files_with_64_bit_fields_and_files_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    import torch

    from etl.tensors.formats import torch as files

    monkeypatch.setattr(files, "LARGE", 20)  # as if the fields ended here
    export(tmp_path / "out", table(9).slice(0, kept), fmt="torch")
    (path,) = (tmp_path / "out").glob("*.pt")
    loaded = torch.load(path, weights_only=True, mmap=True)
    for name, want in stored(tmp_path / "out").items():
        assert tuple(loaded[name].shape) == want.shape
        assert loaded[name].numpy().tobytes() == want.tobytes()


@pytest.mark.framework("tensorflow")
def test_tf_data_reads_tfrecord_files_as_dataset_show_says(tmp_path: Path) -> None:
    import tensorflow as tf

    for fmt in ("safetensors", "tfrecord"):
        export(tmp_path / fmt, table(900), 2, fmt=fmt)
    dataset = open_dataset(tmp_path / "tfrecord")
    names: dict[str, Any] = {}
    exec(str(dataset.summary()["reading"]), names)
    rows = [{n: v.numpy() for n, v in row.items()} for row in names["rows"]]
    want = stored(tmp_path / "safetensors")
    assert len(rows) == 900
    assert set(rows[0]) == set(want) - {"tags.lengths"}
    assert [len(row["tags.values"]) for row in rows] == want["tags.lengths"].tolist()
    for name, values in want.items():
        if name == "tags.lengths":
            continue
        join = np.concatenate if name == "tags.values" else np.stack
        assert (join([row[name] for row in rows]).astype(values.dtype) == values).all(), name
    for record in tf.data.TFRecordDataset(names["files"]):
        assert tf.train.Example.FromString(record.numpy()).ByteSize() == len(record.numpy())


@pytest.mark.framework("tensorflow")
def test_tf_data_notices_a_flipped_byte(tmp_path: Path) -> None:
    import tensorflow as tf

    export(tmp_path / "out", table(3), fmt="tfrecord")
    (path,) = (tmp_path / "out").glob("*.tfrecord")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset(str(path)))
