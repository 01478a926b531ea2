"""TFRecord files read by the letter of their formats, and by nothing of ours: framing, checksums, tf.train.Example."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


@cache
def _table() -> list[int]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return found


def crc32c(message: bytes) -> int:
    """CRC-32C, byte by byte."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in message:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(message: bytes) -> bytes:
    crc = crc32c(message)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def records(path: Path, *, check: bool = False) -> Iterator[bytes]:
    """The records of a file; with `check` both checksums of each are held."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        message = data[at + 12 : at + 12 + size]
        assert len(message) == size
        if check:
            assert data[at + 8 : at + 12] == _masked(data[at : at + 8])
            assert data[at + 12 + size : at + 16 + size] == _masked(message)
        yield message
        at += 16 + size
    assert at == len(data)


def examples(path: Path, *, check: bool = True) -> list[dict[str, NDArray[Any]]]:
    """Feature → its numbers, of every row."""
    found = []
    for record in records(path, check=check):
        ((one, features),) = _fields(record)
        assert one == 1
        row: dict[str, NDArray[Any]] = {}
        for number, entry in _fields(features):
            assert number == 1
            (key, name), (value, feature) = _fields(entry)
            assert (key, value) == (1, 2)
            ((kind, numbers),) = _fields(feature)
            assert name.decode() not in row
            row[name.decode()] = _numbers(kind, numbers)
        found.append(row)
    return found


def _numbers(kind: int, message: bytes) -> NDArray[Any]:
    packed = b"".join(data for _, data in _fields(message))
    if kind == 2:
        return np.frombuffer(packed, "<f4")
    assert kind == 3
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return np.array(values, np.uint64).view(np.int64)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message, all of which are length-delimited here: number, content."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        assert tag & 7 == 2
        size, at = _varint(message, at)
        assert at + size <= len(message)
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            # The shortest form: no last byte without bits.
            assert byte or shift == 7
            return value, at
