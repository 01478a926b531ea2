"""SHA-256 of many short keys: the first 8 bytes of each digest as a big-endian number."""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from etl.tensors.sha256 import Kernel
    from etl.tensors.views import Column

_FIRST = struct.Struct(">Q")
MANY = 1 << 17
"""Messages of one process after which the compiled loop is worth its import and compilation, a fifth of a second: by
then as much was spent on calls one by one."""
LONG = 64
"""Messages of more blocks of 64 bytes are hashed one by one: there the call is the small part."""


class _Spent:
    """How many messages this process has hashed one by one, and the compiled loop once there were many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages = 0
        self._kernel: Kernel | None = None
        self._possible = True

    def kernel(self, messages: int, /) -> Kernel | None:
        """The loop, if so many more messages make it worth while and this machine can run it."""
        if self._kernel is not None:
            return self._kernel
        with self._lock:
            self._messages += messages
            if self._possible and self._messages >= MANY:
                try:
                    from etl.tensors import sha256  # noqa: PLC0415 - a compiler, for many keys only

                    # Compiled once per process, whoever comes first.
                    self._kernel = sha256.load()
                except (ImportError, OSError, RuntimeError):
                    # No compiler, or none that may make memory executable: the digests are the same without.
                    self._possible = False
            return self._kernel


_spent = _Spent()


def first_words(messages: Iterable[bytes], /) -> NDArray[np.uint64]:
    """The word u of every message: the first 8 bytes of its SHA-256 as a big-endian unsigned number.

    Args:
        messages: A few: about 0.9 µs each (measured); `words_of` is for many.

    Returns:
        uint64 [number of messages].
    """
    sha, first = hashlib.sha256, _FIRST.unpack_from
    return np.fromiter((first(sha(m).digest())[0] for m in messages), dtype=np.uint64)


def words_of(messages: Column, /) -> NDArray[np.uint64]:
    """The same for a large_binary column without NULLs: about 0.05 µs each (measured) once there were many.

    Returns:
        uint64 [rows].
    """
    kernel = _spent.kernel(len(messages))
    return first_words(messages.to_pylist()) if kernel is None else compiled_words(kernel, messages)


def compiled_words(kernel: Kernel, messages: Column, /) -> NDArray[np.uint64]:
    """`words_of` by the compiled loop; the interpreter lock is free meanwhile.

    Returns:
        uint64 [rows].
    """
    rows = len(messages)
    out = np.zeros(rows, np.uint64)
    if not rows:
        return out
    offsets = np.frombuffer(messages.buffers()[1], np.int64, rows + 1, messages.offset * 8)
    data = messages.buffers()[2]
    # A copy with room behind it: the loop reads 64 bytes at a time.
    first, last = int(offsets[0]), int(offsets[-1])
    room = np.zeros(last - first + 64, np.uint8)
    if data is not None:
        room[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    offsets = offsets - first
    # The message, one byte that ends it and eight of its length.
    blocks = (np.diff(offsets) + 72) // 64
    blocks = np.minimum(blocks, LONG + 1)
    for size in np.flatnonzero(np.bincount(blocks)).tolist():
        chosen = np.flatnonzero(blocks == size)
        if size > LONG:
            out[chosen] = first_words(messages[i].as_py() for i in chosen.tolist())
        else:
            kernel.call(room.ctypes.data, offsets.ctypes.data, chosen.ctypes.data, len(chosen), size, out.ctypes.data)
    return out
