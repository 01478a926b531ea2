"""A dataset read with each framework: whole, by index and by the loader, the same dtypes and values on every way in."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from etl.core.errors import CastError
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etl.tensors.reading import Split

BEYOND = 2**53 + 1
FRAMEWORKS = [pytest.param(name, marks=pytest.mark.framework(name)) for name in ("torch", "jax", "tensorflow")]


@pytest.fixture
def _x64() -> Iterator[None]:
    """JAX with its 64-bit types, where it is installed."""
    if importlib.util.find_spec("jax") is None:
        yield
        return
    import jax

    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - JAX's own signature
    yield
    jax.config.update("jax_enable_x64", False)  # noqa: FBT003


def made(out: Path, rows: int, **options: Any) -> Split:
    """Rows of every kind of column, each with and without NULL."""
    table = pa.table({
        "n": pa.array([BEYOND if i % 3 else None for i in range(rows)], pa.int64()),
        "b": pa.array([None if i % 3 == 1 else i % 2 == 0 for i in range(rows)], pa.bool_()),
        "f": pa.array([i / 2 for i in range(rows)], pa.float32()),
        "r": pa.array([[i] * (i % 4) for i in range(rows)], pa.list_(pa.int32())),
    })  # fmt: skip
    export(out, table, 2, fmt="safetensors", options=WriteOptions(**options))
    return open_dataset(out).split("all")


def kinds(batch: Any) -> dict[str, tuple[type, str]]:
    return {name: (type(value), str(value.dtype)) for name, value in batch.items()}


def plain(batch: Any) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in batch.items()}


@pytest.mark.usefixtures("_x64")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_t02_t12_t17_every_way_in_gives_the_same(framework: Any, rows: int, tmp_path: Path) -> None:
    split = made(tmp_path / "d", rows)
    want = split.tensors()
    whole = split.tensors(framework=framework)
    assert plain(whole) == plain(want)
    assert {n: tuple(v.shape) for n, v in whole.items()} == {n: v.shape for n, v in want.items()}
    assert {n: str(np.asarray(v).dtype) for n, v in whole.items()} == dict(want.dtypes)
    taken = split.take(range(rows), framework=framework)
    assert plain(taken) == plain(want)
    loader = split.loader(4, framework=framework)
    batches = list(loader)
    assert [len(np.asarray(b["n"])) for b in batches] == [4] * (rows // 4) + [rows % 4] * (rows % 4 > 0)
    assert [kinds(b) for b in (taken, *batches)] == [kinds(whole)] * (1 + len(batches))
    assert [n for b in batches for n in plain(b)["n"]] == plain(want)["n"]
    assert np.asarray(whole.padded("r", 3)).tolist() == want.padded("r", 3).tolist()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_bfloat16_is_the_frameworks_own(framework: Any, tmp_path: Path) -> None:
    split = made(tmp_path / "d", 5, features=("f",), dtype="bfloat16", nulls="fill=0")
    x, y = split.arrays(framework=framework)
    assert ("bfloat16" in str(x.dtype), y) == (True, None)
    assert [float(v) for v in np.asarray(x.float() if framework == "torch" else x)[:, 0]] == [0, 0.5, 1, 1.5, 2]


@pytest.mark.framework("jax")
def test_a_value_that_jax_would_narrow_is_refused_by_the_tensors_name_also_out_of_the_loader(tmp_path: Path) -> None:
    split = made(tmp_path / "d", 9)
    with pytest.raises(CastError, match=rf"the tensor n is int64, and its value {BEYOND} at \[1\] cannot be int32"):
        split.tensors(framework="jax")
    with pytest.raises(CastError, match=rf"the tensor n is int64, and its value {BEYOND} at \[1\] cannot be int32"):
        list(split.loader(4, framework="jax"))


@pytest.mark.framework("torch")
def test_whole_arrays_of_torch_share_the_map_of_the_file_and_leave_it_as_it_is(tmp_path: Path) -> None:
    split = made(tmp_path / "d", 9, features=("f",), nulls="fill=0")
    x, _ = split.arrays(framework="torch")
    x += 1
    assert split.arrays(framework="torch")[0][:, 0].tolist() == [i / 2 for i in range(9)]
    open_dataset(tmp_path / "d", verify="sha256")
