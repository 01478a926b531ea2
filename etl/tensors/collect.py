"""Rows that were read, as tensors in memory: the columns of a dataset that was never written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from connectors.base import StagedFile
from etl.core.errors import ConfigError
from etl.core.schema import Schema
from etl.tensors.batch import Batch
from etl.tensors.gather import TensorPart
from etl.tensors.options import WriteOptions
from etl.tensors.pack import is_text, tensor_plan
from etl.tensors.segments import held_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from etl.tensors.frameworks import Framework
    from etl.tensors.segments import Contents


def collected(
    schema: Schema, batches: Iterable[pa.RecordBatch], /, *, framework: Framework, device: str | None = None
) -> Batch:
    """One tensor per column, in its own dtype, and `<column>.valid` for those that may be absent, as a file has them.

    Text is no tensor: its columns are left out, and a warning names them. Lists are `<column>.values` and
    `<column>.offsets`.

    Raises:
        ConfigError: No column can be a tensor, or one is of no type that tensors have.
        CastError: A value that its dtype does not hold, or a NULL inside a list.
        MissingDriver: The framework is not installed.
    """
    texts = [f.name for f in schema if is_text(f.type)]
    kept = Schema(tuple(f for f in schema if f.name not in texts))
    if not len(kept):
        raise ConfigError("no column can be a tensor: all are text", hint="Use to_arrow() or to_pandas().")
    if texts:
        warnings.warn(f"text is no tensor: {', '.join(texts)} left out; to_arrow() has them", stacklevel=3)
    options = WriteOptions(partition_bytes=1 << 62)
    plan = tensor_plan(kept, options)
    arrays: dict[str, NDArray[Any]] = {}
    words: dict[str, str] = {}

    def keep(folder: Path, stem: str, end: str, contents: Contents) -> StagedFile:
        for index, (name, dtype, shape) in enumerate(contents.tensors):
            arrays[name], words[name] = _whole(contents, index, dtype, shape), dtype
        return StagedFile(str(folder / f"{stem}{end}"), contents.split, contents.rows, 0, "")

    part = TensorPart(Path(), kept, plan, "all", str, "", options, "the rows read", {}, keep)
    try:
        for batch in batches:
            part.write(batch.select(list(kept.names)))
        part.close(empty=True)
    finally:
        part.abandon()
    for name in [n for n in arrays if n.endswith(".lengths") and f"{n[:-8]}.values" in arrays]:
        lengths = arrays.pop(name)
        offsets = arrays[f"{name.removesuffix('.lengths')}.offsets"] = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
    return Batch.of(arrays, framework=framework, device=device, dtypes=words)


def _whole(contents: Contents, index: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """One tensor out of its pieces."""
    out = np.empty(shape, held_dtype(dtype))
    room = out.reshape(-1).view(np.uint8)
    at = 0
    for piece in contents.chunks(index):
        flat = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
        room[at : at + len(flat)] = flat
        at += len(flat)
    return out
