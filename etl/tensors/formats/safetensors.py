"""Safetensors data files: aligned, deterministic, written front to back."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl.core.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SUFFIX = ".safetensors"
ALIGN = 4096
"""Data begin at a multiple: direct I/O and GPUDirect need 4 KiB pages."""
_MOST = 100 << 20
"""The format's own limit for a header."""


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
