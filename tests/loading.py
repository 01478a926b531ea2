"""Datasets of chosen files for loaders: row r of split "all" has id r, and every other tensor follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below

from etl.core.partition import Pages, Partition
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import begin, requires

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.dataset import Dataset
    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays as columns


def table(start: int, stop: int, *, lists: bool = False, wide: int = 0) -> Any:
    """Rows [start, stop): id int64, half float32 with NULLs, flag bool; lists of id % 4 items; `wide` more columns."""
    ids = np.arange(start, stop)
    columns = {
        "id": pa.array(ids),
        "half": pa.array(ids.astype(np.float32) / 2, mask=ids % 5 == 0),
        "flag": pa.array(ids % 3 == 0),
    }
    if lists:
        offsets = np.zeros(len(ids) + 1, np.int32)
        np.cumsum(ids % 4, out=offsets[1:])
        columns["tags"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.repeat(ids, ids % 4)))
    for n in range(wide):
        columns[f"f{n}"] = pa.array((ids + n).astype(np.float32))
    fields = [pa.field(n, c.type, n == "half") for n, c in columns.items()]
    return pa.table(list(columns.values()), pa.schema(fields))


def dataset(
    out: Path,
    sizes: Sequence[int],
    *,
    fmt: Format = "safetensors",
    lists: bool = False,
    wide: int = 0,
    options: WriteOptions | None = None,
) -> Dataset:
    """A dataset whose files have these rows, in this order."""
    whole = table(0, sum(sizes), lists=lists, wide=wide)
    wishes = options or WriteOptions(partition_bytes=1 << 40 if len(sizes) == 1 else _target(whole, sizes))
    session = begin(out, whole, fmt=fmt, options=wishes)
    try:
        staged, start = [], 0
        for number, rows in enumerate(sizes):
            batches = whole.slice(start, rows).to_batches(10_000)
            staged.append(session.stage(Partition(number, Pages(number, number + 1)), 1, iter(batches)))
            start += rows
        session.commit(staged, requires=requires(staged, "r1"))
    finally:
        session.abort()
    opened = open_dataset(out)
    if options is None:
        have = [f.rows for f in opened.manifest.files]
        assert have == list(sizes), have
    return opened


def _target(whole: Any, sizes: Sequence[int]) -> int:
    """A size of files that neither cuts nor joins these parts."""
    row = max(1, whole.nbytes // max(1, whole.num_rows))
    return int(max(1, 1.3 * row * max(sizes)))


def ids(batches: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """The ids of each batch."""
    return [b["id"].tolist() for b in batches]


def hold(batch: Mapping[str, NDArray[Any]]) -> None:
    """Every tensor of a batch is of the rows that its ids name."""
    rows = batch["id"]
    assert rows.dtype == np.int64
    assert batch["half.valid"].tolist() == (rows % 5 != 0).tolist()
    assert batch["half"].tolist() == np.where(rows % 5 != 0, rows.astype(np.float32) / 2, 0).tolist()
    assert batch["flag"].tolist() == (rows % 3 == 0).tolist()
    if "tags.values" in batch:
        offsets = batch["tags.offsets"]
        assert offsets.dtype == np.int64
        assert offsets[0] == 0
        assert np.diff(offsets).tolist() == (rows % 4).tolist()
        assert batch["tags.values"].tolist() == np.repeat(rows, rows % 4).tolist()
