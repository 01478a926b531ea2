"""Rows in a global order: the same bytes for any cut of the source, in every format; keys of every type; bounds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from etl.tensors import exchange
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and fences so small that a small table has many."""
    monkeypatch.setattr(exchange, "RUN_BYTES", 1 << 16)
    monkeypatch.setattr(exchange, "FENCE_ROWS", 64)


def shop(rows: int) -> Any:
    draw = np.random.default_rng(5)
    return pa.table(
        {
            "id": draw.permutation(rows).astype(np.int64),
            "price": draw.random(rows),
            "n": pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int32()),
            "name": pa.array([None if i % 11 == 0 else f"row {i}" for i in range(rows)]),
        }
    )


def files(out: Path) -> list[tuple[str, int, str]]:
    """Split, rows and hash of every file and of the text beside it, in order."""
    found = []
    for one in open_dataset(out, verify="sha256").manifest.files:
        text = one.text_file.sha256 if one.text_file else ""
        found.append((one.split, one.rows, one.sha256 + text))
    return found


@pytest.mark.parametrize("fmt", ["safetensors", "parquet", "npy", "torch"])
@pytest.mark.parametrize("order", ["key", "shuffle"])
def test_one_and_thirteen_parts_give_the_same_bytes(tmp_path: Path, fmt: Format, order: Any) -> None:
    options = WriteOptions(
        key=("id",), order=order, partition_bytes=100_000, split={"train": "0.8", "val": "0.2"}, split_key=("id",)
    )
    table = shop(20_000)
    export(tmp_path / "one", table, 1, fmt=fmt, options=options)
    export(tmp_path / "many", table, 13, fmt=fmt, options=options, batch_rows=333)
    assert files(tmp_path / "one") == files(tmp_path / "many")
    assert len(files(tmp_path / "one")) > 3


def ids(out: Path) -> list[int]:
    found: list[int] = []
    for one in open_dataset(out).manifest.files:
        if one.path.endswith(".parquet"):
            found += np.asarray(pq.read_table(out / one.path).column("id")).tolist()
        else:
            found += load_file(out / one.path)["id"].tolist()
    return found


@pytest.mark.parametrize("fmt", ["safetensors", "parquet"])
def test_rows_come_in_the_order_of_the_key_and_of_its_hash(tmp_path: Path, fmt: Format) -> None:
    table = shop(9000)
    export(tmp_path / "key", table, 3, fmt=fmt, options=WriteOptions(key=("id",), order="key", partition_bytes=1))
    assert ids(tmp_path / "key") == list(range(9000))
    shuffled = WriteOptions(key=("id",), order="shuffle", seed=7, partition_bytes=1)
    export(tmp_path / "shuffled", table, 3, fmt=fmt, options=shuffled)

    def digest(i: int) -> bytes:
        return hashlib.sha256(f"cuetl-shuffle-1|7|{len(str(i))}:{i}".encode()).digest()

    assert ids(tmp_path / "shuffled") == sorted(range(9000), key=digest)
    assert [rows for _, rows, _ in files(tmp_path / "shuffled")] == [4096, 4096, 808]
