"""Safetensors data files: aligned, deterministic, written front to back and hashed on the way.

The standard writer's metadata order varies from call to call and it wants whole tensors; this one takes chunks.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.base import StagedFile
from etl.core.errors import Damaged
from etl.tensors.pack import ITEM_BYTES
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etl.tensors.segments import Contents

SUFFIX = ".safetensors"
ALIGN = 4096
"""Data begin at a multiple: direct I/O and GPUDirect need 4 KiB pages."""
_MOST = 100 << 20
"""The format's own limit for a header."""
_WORDS = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}
DTYPES = {word: name for name, word in _WORDS.items()}
"""The format's words → ours."""


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """One tensor of a file: safetensors dtype, shape, offset from the data's start, bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header: where data start, its tensors, its metadata."""

    data_start: int
    tensors: Mapping[str, TensorSpan]
    metadata: Mapping[str, str]


def read_header(path: Path, /) -> Header:
    """Read a file's header.

    Raises:
        Damaged: It is none.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST:
                raise Damaged(f"{path} has a header of {length} bytes", path=str(path))
            entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        spans = {
            name: TensorSpan(e["dtype"], tuple(e["shape"]), first, last - first)
            for name, e in entries.items()
            for first, last in [e["data_offsets"]]
        }
    except (ValueError, KeyError, TypeError, struct.error, AttributeError, IndexError) as error:
        raise Damaged(f"{path} has no safetensors header: {error!r}", path=str(path)) from error
    return Header(8 + length, spans, metadata)


def header_bytes(
    tensors: Sequence[tuple[str, str, tuple[int, ...]]], metadata: str, /
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The header of a file, padded so that data begin at a multiple of `ALIGN`.

    Args:
        tensors: Name, dtype in our words, shape; in file order.
        metadata: The text of the single metadata key `cuetl`. One key, since the order of several would vary.

    Returns:
        The bytes, and per tensor its offset from the data's start and its bytes.
    """
    entries: dict[str, object] = {"__metadata__": {"cuetl": metadata}}
    spans: dict[str, tuple[int, int]] = {}
    offset = 0
    for name, dtype, shape in tensors:
        size = ITEM_BYTES[dtype]
        for extent in shape:
            size *= extent
        spans[name] = (offset, size)
        entries[name] = {"dtype": _WORDS[dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    length = -(-(8 + len(text)) // ALIGN) * ALIGN - 8
    return struct.pack("<Q", length) + text.ljust(length), spans


def encode(folder: Path, stem: str, end: str, contents: Contents, /) -> StagedFile:
    """Write one file, front to back."""
    head, spans = header_bytes(contents.tensors, contents.metadata)
    file = HashingFile(folder / f"{stem}{SUFFIX}{end}")
    try:
        file.write(head)
        for index in range(len(contents.specs)):
            for chunk in contents.chunks(index):
                if len(chunk):
                    file.write(chunk)
    finally:
        file.close()
    facts: dict[str, object] = {"data_start": len(head), "tensors": {n: list(v) for n, v in spans.items()}}
    path = str(file.path.relative_to(folder))
    return StagedFile(path, contents.split, contents.rows, file.size, file.hexdigest(), facts)
