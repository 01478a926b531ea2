"""PyTorch data files: one `.pt` of a dict of tensors that `torch.load(weights_only=True, mmap=True)` maps.

Written without torch: a zip archive whose members are stored, aligned and in a fixed order, with a pickle of exactly
what `weights_only` allows. torch's own writer puts a random id into every file; this one's bytes depend on the rows
alone. Beside what torch asks for, the archive holds `cuetl.json`, by which it is read here without unpickling.
"""

from __future__ import annotations

import errno
import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from connectors.base import StagedFile
from etl.core.canonical import canonical_json
from etl.core.errors import Damaged
from etl.tensors.pack import ITEM_BYTES
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from etl.tensors.segments import Contents

SUFFIX = ".pt"
ALIGN = 4096
"""Data of a tensor begin at a multiple; torch's own rule is 64."""
LARGE = 0xFFFFFFFF
"""From here on a size or an offset stands in the archive's 64-bit fields."""
_ELSEWHERE = 0xFFFFFFFF
"""What stands in the 32-bit field then."""
_ROOT = "archive"
_ABOUT = f"{_ROOT}/cuetl.json"
_PICKLE = f"{_ROOT}/data.pkl"
_DATA = f"{_ROOT}/data/"
_STORAGES = {
    "bool": "BoolStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
}
"""Dtypes with a storage class; uint16, uint32 and uint64 have none and are rebuilt from bytes (torch 2.3 and later)."""
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError),
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)
"""What reading an archive raises when its bytes are others; of OSError only a seek to no place (EINVAL) is meant."""
_UTF8 = 0x800
_MIDNIGHT = 0x21
"""1980-01-01, 00:00: the archive format's earliest moment."""


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """One tensor of a file: dtype in our words, shape, offset from the file's start, bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Member:
    name: bytes
    crc: int
    size: int
    offset: int


def encode(folder: Path, stem: str, end: str, contents: Contents, /) -> StagedFile:
    """Write one file, front to back; the bytes are gone through twice, since an entry's checksum stands before them."""
    tensors = contents.tensors
    file = HashingFile(folder / f"{stem}{SUFFIX}{end}")
    members: list[_Member] = []
    spans: dict[str, list[int]] = {}
    try:
        _put(file, members, _PICKLE, pickled(tensors))
        _put(file, members, f"{_ROOT}/byteorder", b"little")
        _put(file, members, _ABOUT, _about(tensors, contents.metadata))
        for index, (name, dtype, shape) in enumerate(tensors):
            size = _items(shape) * ITEM_BYTES[dtype]
            start = _member(file, members, f"{_DATA}{index}", size, partial(contents.chunks, index))
            spans[name] = [start, size]
        _put(file, members, f"{_ROOT}/version", b"3\n")
        file.write(_directory(members, file.size))
    finally:
        file.close()
    facts: dict[str, object] = {"data_start": 0, "tensors": spans}
    path = str(file.path.relative_to(folder))
    return StagedFile(path, contents.split, contents.rows, file.size, file.hexdigest(), facts)


def read_header(path: Path, /) -> dict[str, TensorSpan]:
    """The tensors of a file, without unpickling anything.

    Raises:
        Damaged: It is no file that this module wrote, or its pickle says something else than its list of tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            listed = [(e["name"], e["dtype"], tuple(e["shape"])) for e in json.loads(archive.read(_ABOUT))["tensors"]]
            same = archive.read(_PICKLE) == pickled(listed)
            found: dict[str, TensorSpan] = {}
            for index, (name, dtype, shape) in enumerate(listed):
                info = archive.getinfo(f"{_DATA}{index}")
                file.seek(info.header_offset + 26)
                start = info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
                same = same and info.file_size == _items(shape) * ITEM_BYTES[dtype] and not info.compress_type
                found[name] = TensorSpan(dtype, shape, start, info.file_size)
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise Damaged(f"{path} is no torch file of a dataset: {error!r}", path=str(path)) from error
    if not same:
        raise Damaged(f"{path} lists other tensors than it holds", path=str(path))
    return found


def pickled(tensors: Sequence[tuple[str, str, tuple[int, ...]]], /) -> bytes:
    """The pickle, protocol 2, of a dict of tensors; the n-th has the n-th storage for itself.

    Args:
        tensors: Name, dtype in our words and shape of each.
    """
    parts = [b"\x80\x02}("]
    for index, (name, dtype, shape) in enumerate(tensors):
        storage = _STORAGES.get(dtype)
        count = _items(shape)
        kind = f"torch\n{storage}" if storage else "torch.storage\nUntypedStorage"
        strides = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
        parts += [
            _text(name),
            f"ctorch._utils\n_rebuild_tensor_{'v2' if storage else 'v3'}\n".encode(),
            # The storage, by its persistent id; an untyped one counts bytes.
            *(b"((", _text("storage"), f"c{kind}\n".encode(), _text(str(index)), _text("cpu")),
            *(_integer(count if storage else count * ITEM_BYTES[dtype]), b"tQ"),
            *(_integer(0), _tuple(shape), _tuple(strides), b"\x89", b"ccollections\nOrderedDict\n)R"),
            b"" if storage else f"ctorch\n{dtype}\n".encode(),
            b"tR",
        ]
    return b"".join([*parts, b"u."])


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(8, "little")
    return b"\x8a\x08" + data


def _tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"


def _items(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _about(tensors: Sequence[tuple[str, str, tuple[int, ...]]], metadata: str) -> bytes:
    listed = [{"name": n, "dtype": d, "shape": list(s)} for n, d, s in tensors]
    return canonical_json({"cuetl": json.loads(metadata), "tensors": listed})


def _put(file: HashingFile, members: list[_Member], name: str, data: bytes) -> None:
    _member(file, members, name, len(data), lambda: [data])


def _member(
    file: HashingFile, members: list[_Member], name: str, size: int, chunks: Callable[[], Iterable[Any]]
) -> int:
    """Write one entry of the archive; where its data begin."""
    word = name.encode()
    crc = 0
    for chunk in chunks():
        if len(chunk):
            crc = zlib.crc32(chunk, crc)
    large = struct.pack("<HHQQ", 1, 16, size, size) if size >= LARGE else b""
    head = file.size + 30 + len(word) + len(large)
    extra = large
    if name.startswith(_DATA):
        # An extra field that readers skip, as torch itself pads its entries.
        padding = -(head + 4) % ALIGN
        extra += struct.pack("<2sH", b"FB", padding) + bytes(padding)
    stored = _ELSEWHERE if large else size
    version = 45 if large else 20
    fixed = (version, _UTF8, 0, 0, _MIDNIGHT, crc, stored, stored, len(word), len(extra))
    offset = file.size
    file.write(struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *fixed) + word + extra)
    start = file.size
    for chunk in chunks():
        if len(chunk):
            file.write(chunk)
    if file.size - start != size:
        raise OSError(f"{file.path}: {name} has {file.size - start} bytes, not {size}")
    members.append(_Member(word, crc, size, offset))
    return start


def _directory(members: Sequence[_Member], start: int) -> bytes:
    """The archive's directory and its end."""
    entries: list[bytes] = []
    for one in members:
        wide = b""
        if one.size >= LARGE:
            wide += struct.pack("<QQ", one.size, one.size)
        if one.offset >= LARGE:
            wide += struct.pack("<Q", one.offset)
        extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
        size = one.size if one.size < LARGE else _ELSEWHERE
        offset = one.offset if one.offset < LARGE else _ELSEWHERE
        version = 45 if wide else 20
        fixed = (version, version, _UTF8, 0, 0, _MIDNIGHT, one.crc, size, size, len(one.name), len(extra))
        entries.append(struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", *fixed, 0, 0, 0, 0, offset) + one.name + extra)
    size, count = sum(map(len, entries)), len(entries)
    end = b""
    if start + size >= LARGE or count >= 0xFFFF:
        end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
        end += struct.pack("<4sIQI", b"PK\x06\x07", 0, start + size, 1)
        start, count = _ELSEWHERE, 0xFFFF
    end += struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, size, start, 0)
    return b"".join([*entries, end])
