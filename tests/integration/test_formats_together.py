"""One read, several datasets: every format has the same rows, in the same order, on the same sides of the split."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.tensors.dataset import open_dataset
from tests.cases.exporting import Exports
from tests.records import examples

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("parquet", "npy", "torch", "safetensors", "tfrecord")


@pytest.fixture
def db(tmp_path: Path) -> Exports:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("create table orders (id integer primary key, qty integer, user integer)")
        rows = [(i, None if i % 11 == 0 else i * i, i * 7919 % 101) for i in range(700)]
        shop.executemany("insert into orders values (?, ?, ?)", rows)
    shop.close()
    return Exports(tmp_path, f"sqlite:///{tmp_path}/shop.db")


def ids(home: Path, fmt: str, split: str) -> list[int]:
    dataset = open_dataset(home / fmt, verify="sha256")
    files = [home / fmt / f.path for f in dataset.split(split).files]
    if fmt == "parquet":
        found: Any = pa.concat_tables([pq.read_table(f) for f in files]).column("id")
    elif fmt == "tfrecord":
        found = np.concatenate([row["id"] for f in files for row in examples(f)])
    else:
        found = dataset.split(split).tensors()["id"]
    return [int(one) for one in np.asarray(found)]


@pytest.mark.parametrize("order", [(), ("--shuffle", "7"), ("--order", "key")])
def test_formats_of_one_run_are_twins(db: Exports, order: tuple[str, ...]) -> None:
    words: list[str] = ["--table", "orders", "--nulls", "drop", "--key", "user,id", "--split", "train=0.8,val=0.2"]
    for fmt in FORMATS[:-1]:
        words += ["--to", fmt, "--format", fmt]
    done = db.done(*words, "--format", FORMATS[-1], "--split-key", "user", *order, to=FORMATS[-1])
    assert {one["format"] for one in done["datasets"]} == set(FORMATS)
    for split in ("train", "val"):
        twins = {fmt: ids(db.home, fmt, split) for fmt in FORMATS}
        assert len(twins["parquet"]) > 50
        assert len({tuple(one) for one in twins.values()}) == 1, twins
    kept = [*ids(db.home, "npy", "train"), *ids(db.home, "npy", "val")]
    assert sorted(kept) == [i for i in range(700) if i % 11]


def test_a_parquet_twin_keeps_what_the_tensors_cast_and_fill(db: Exports) -> None:
    words = ["--table", "orders", "--features", "qty", "--key", "id", "--dtype", "float32", "--nulls", "fill=0"]
    db.done(*words, "--to", "x", "--format", "safetensors", "--format", "parquet", to="twin")
    x = open_dataset(db.home / "x").tensors()["x"]
    assert x.dtype == np.float32
    kept: Any = pq.read_table(db.home / "twin").column("qty")
    assert kept.type == pa.int64()
    assert kept.null_count == 64
    assert [v or 0 for v in kept.to_pylist()] == x[:, 0].tolist()
