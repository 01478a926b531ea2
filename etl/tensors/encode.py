"""The formats of data files: who writes each, and how the tensors of a written file are looked at again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from etl.core.errors import Damaged
from etl.tensors.formats import npy, parquet, safetensors, tfrecord, torch
from etl.tensors.segments import held_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.manifest import FileEntry, Manifest
    from etl.tensors.options import Format
    from etl.tensors.pack import PackPlan
    from etl.tensors.places import Target
    from etl.tensors.segments import Encode

ENCODERS: Mapping[str, Encode] = {
    "safetensors": safetensors.encode,
    "npy": npy.encode,
    "torch": torch.encode,
    "tfrecord": tfrecord.encode,
}
"""Format → what writes a file of gathered tensors; Parquet takes rows as they come."""
SUFFIXES: Mapping[str, str] = {
    "parquet": parquet.SUFFIX,
    "safetensors": safetensors.SUFFIX,
    "npy": npy.SUFFIX,
    "torch": torch.SUFFIX,
    "tfrecord": tfrecord.SUFFIX,
}
"""Format → what its data files' names end in."""
FORMATS: tuple[Format, ...] = ("safetensors", "parquet", "npy", "torch", "tfrecord")
MAPPED = frozenset({"safetensors", "npy", "torch"})
"""Formats whose files are mapped: any row of any tensor is at a known place."""


def fitted(plan: PackPlan, format_: Format, /) -> PackPlan:
    """The plan as the format can hold it.

    Raises:
        ConfigError: It cannot; the column is named.
    """
    if format_ == "npy":
        npy.check(plan)
    return tfrecord.fitted(plan) if format_ == "tfrecord" else plan


def mapped(entry: FileEntry, format_: str, locate: Callable[[str], Path], /) -> dict[str, NDArray[Any]]:
    """One file's tensors, mapped copy-on-write: nothing is read before it is looked at, writing changes no file.

    Args:
        entry: The file.
        format_: Of the dataset: safetensors, npy or torch.
        locate: Path in the manifest → where the file lies now.

    Returns:
        Name → [rows or items, …]; bfloat16 as its uint16 bits.

    Raises:
        FileNotFoundError: The file is in neither place.
        Damaged: It is not what its name says.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, (path, dtype, shape, start) in spans(entry, format_, locate).items():
        try:
            if 0 in shape:
                found[name] = np.zeros(shape, dtype)
            else:
                found[name] = np.memmap(path, dtype, "c", start, shape).view(np.ndarray)
        except (ValueError, OverflowError) as error:
            raise Damaged(f"{path} is too short for its tensor {name}", path=str(path)) from error
    return found


Span: TypeAlias = tuple["Path", np.dtype[Any], tuple[int, ...], int]


def spans(entry: FileEntry, format_: str, locate: Callable[[str], Path], /) -> dict[str, Span]:
    """Tensor → its file, dtype (uint16 for bfloat16), shape, and the byte at which it begins, by the file's header.

    Raises:
        FileNotFoundError, Damaged: As `mapped`.
    """
    if format_ == "npy":
        members = {name: locate(one.path) for name, one in (entry.members or {}).items()}
        heads = {name: npy.read_header(path) for name, path in members.items()}
        return {n: (members[n], np.dtype(h.descr), h.shape, h.data_start) for n, h in heads.items()}
    path = locate(entry.path)
    if format_ == "torch":
        return {n: (path, held_dtype(t.dtype), t.shape, t.offset) for n, t in torch.read_header(path).items()}
    header = safetensors.read_header(path)
    found: dict[str, Span] = {}
    for name, span in header.tensors.items():
        kind = safetensors.DTYPES.get(span.dtype)
        if kind is None:
            raise Damaged(f"{path} holds {name} in the unknown dtype {span.dtype}", path=str(path))
        found[name] = (path, held_dtype(kind), span.shape, header.data_start + span.offset)
    return found


def features_of(manifest: Manifest, /) -> dict[str, tfrecord.Feature]:
    """`tfrecord_features` of a manifest.

    Raises:
        Damaged: They are not what this code writes.
    """
    found = manifest.document.get("tfrecord_features")
    try:
        return {str(n): tfrecord.Feature.from_json(one) for n, one in dict(found).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Damaged(f"version {manifest.version} lists no features of TFRecord files: {error!r}") from error


def reading(manifest: Manifest, folder: Target, /) -> str:
    """Python that reads the first split of a TFRecord dataset with TensorFlow."""
    return tfrecord.reading(features_of(manifest), str(folder), next(iter(manifest.splits), "all"))


def tensor_faults(entry: FileEntry, format_: str, locate: Callable[[str], Path], /) -> Iterator[str]:
    """What a tensor file's header says otherwise than the manifest.

    Raises:
        Damaged: A file has no header.
    """
    tensors = dict(entry.tensors or {})
    base = entry.data_start or 0
    found = spans(entry, format_, locate)
    have = {n: (start - base, _bytes(dtype, shape)) for n, (_, dtype, shape, start) in found.items()}
    wrong = {n for n in have.keys() | tensors.keys() if have.get(n) != tensors.get(n)}
    for path in sorted({_path_of(entry, n) for n in wrong}):
        yield f"{path} holds other tensors than the manifest says"
    lengths = {n: shape[0] for n, (_, _, shape, _) in found.items() if not n.endswith(".values")}
    for path, rows in sorted({(_path_of(entry, n), rows) for n, rows in lengths.items() if rows != entry.rows}):
        yield f"{path} holds tensors of {rows} rows, the manifest says {entry.rows}"


def _path_of(entry: FileEntry, tensor: str) -> str:
    member = (entry.members or {}).get(tensor)
    return entry.path if member is None else member.path


def _bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    return size
