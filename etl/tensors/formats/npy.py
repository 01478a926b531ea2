"""NumPy data files: each tensor is a file of its own, `<file stem>.<tensor>.npy`, aligned and deterministic.

The layout is version 1.0 of NumPy's format (numpy.lib.format); never object dtype. bfloat16 is written as its uint16
bits, and the manifest has its dtype.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.base import StagedFile
from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError, Damaged
from etl.tensors.pack import ITEM_BYTES, tensor_specs
from etl.tensors.segments import held_dtype
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.pack import PackPlan
    from etl.tensors.segments import Contents

SUFFIX = ".npy"
ALIGN = 4096
"""Data begin at a multiple; the format's own rule is 64."""
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(rb"{'descr': '(\S+)', 'fortran_order': False, 'shape': \(([0-9]+,|[0-9]+(?:, [0-9]+)+)\), } *\n")
_WORDS = frozenset(held_dtype(dtype).str for dtype in ITEM_BYTES)
_NAME_BYTES = 136
"""Most bytes of a tensor in a file's name: 255 is the file system's limit; the stem takes up to 101, a split's name of
64 among them, and what a file is called until it is published 18."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its tensor: NumPy's word for the dtype, shape, where its data begin."""

    descr: str
    shape: tuple[int, ...]
    data_start: int


def check(plan: PackPlan, /) -> None:
    """Hold that every tensor can be in the name of a file.

    Raises:
        ConfigError: A name is too long, or there is no tensor at all.
    """
    specs = tensor_specs(plan)
    if not specs:
        raise ConfigError(
            "no column is a tensor: all are kept as text, and --format npy would write nothing",
            hint="Select a number too, or use --format parquet.",
        )
    for spec in specs:
        if len(file_word(spec.name).encode()) > _NAME_BYTES:
            column = spec.columns[0].field.name
            raise ConfigError(
                f"column {column} has a name too long for --format npy, where each tensor is a file named after it",
                hint="Give the column an alias in the query, or use another format.",
                column=column,
            )


def file_word(name: str, /) -> str:
    """A tensor's name as part of a file's name: as it is, but for `/`, `%` and control characters.

    >>> file_word("a/b")
    'a%2Fb'
    """
    return "".join(c if c.isprintable() and c not in "/%\\" else _escaped(c) for c in name)


def _escaped(character: str) -> str:
    return "".join(f"%{b:02X}" for b in character.encode())


def header_bytes(dtype: str, shape: tuple[int, ...], /) -> bytes:
    """The header of a file, padded so that data begin at a multiple of `ALIGN`."""
    text = f"{{'descr': '{held_dtype(dtype).str}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = -(-(len(_MAGIC) + 2 + len(text) + 1) // ALIGN) * ALIGN - len(_MAGIC) - 2
    return _MAGIC + struct.pack("<H", length) + text.ljust(length - 1).encode() + b"\n"


def read_header(path: Path, /) -> Header:
    """Read a file's header.

    Raises:
        Damaged: It is none, or not one that `header_bytes` makes.
    """
    with path.open("rb") as file:
        head = file.read(len(_MAGIC) + 2)
        length = int.from_bytes(head[len(_MAGIC) :], "little")
        found = _HEADER.fullmatch(file.read(length)) if head.startswith(_MAGIC) else None
    if found is None or found[1].decode("latin-1") not in _WORDS:
        raise Damaged(f"{path} has no header of an npy file of a dataset", path=str(path))
    shape = tuple(int(n) for n in found[2].replace(b",", b" ").split())
    return Header(found[1].decode(), shape, len(_MAGIC) + 2 + length)


def encode(folder: Path, stem: str, end: str, contents: Contents, /) -> StagedFile:
    """Write one file for each tensor. The path of the result is their common stem, its hash one over all of them."""
    members: dict[str, dict[str, object]] = {}
    spans: dict[str, list[int]] = {}
    for index, (name, dtype, shape) in enumerate(contents.tensors):
        head = header_bytes(dtype, shape)
        file = HashingFile(folder / f"{stem}.{file_word(name)}{SUFFIX}{end}")
        try:
            file.write(head)
            for chunk in contents.chunks(index):
                if len(chunk):
                    file.write(chunk)
        finally:
            file.close()
        path = str(file.path.relative_to(folder))
        members[name] = {"path": path, "bytes": file.size, "sha256": file.hexdigest()}
        spans[name] = [len(head), file.size - len(head)]
    digest = hashlib.sha256(canonical_json([[n, m["sha256"]] for n, m in members.items()])).hexdigest()
    facts: dict[str, object] = {"data_start": 0, "tensors": spans, "members": members}
    size = sum(int(str(m["bytes"])) for m in members.values())
    return StagedFile(f"{stem}{end}", contents.split, contents.rows, size, digest, facts)
