"""Memory for Arrow buffers that is used again: fresh pages cost more time than decoding into them does."""

from __future__ import annotations

import mmap
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

STEP = 1 << 18
KEEP = 32
"""Slabs kept free, of at most `LARGEST` bytes each: what two row groups held. More are never kept than were in use at
one time before, since a new one is made only where no free one fits, and then an old one is let go."""
LARGEST = 8 << 20
HUGE = 2 << 20
"""Bytes from which the kernel may use pages of 2 MiB."""

_free: deque[Slab] = deque()


class Slab:
    """One block of memory at a fixed address, zero or old content."""

    __slots__ = ("address", "bytes", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)
        self.address = int(self.bytes.ctypes.data)


class Lease:
    """Keeps a slab from being used again; Arrow buffers hold it, and the last one to go gives the slab back."""

    __slots__ = ("slab",)

    def __init__(self, size: int) -> None:
        self.slab = take(size)

    def buffer(self, address: int, size: int) -> pa.Buffer:
        """An Arrow buffer over a piece of the slab, without a copy."""
        return pa.foreign_buffer(address, size, base=self)

    def __del__(self) -> None:
        slab = getattr(self, "slab", None)
        if slab is not None:
            give(slab)


def take(size: int) -> Slab:
    """A slab of at least `size` bytes; a free one where it fits and is not over half as large again."""
    wanted = -(-max(size, 1) // STEP) * STEP
    for _ in range(len(_free)):
        try:
            slab = _free.popleft()
        except IndexError:
            break
        if wanted <= slab.size <= wanted + wanted // 2:
            return slab
        _free.append(slab)
    with suppress(IndexError):
        _free.popleft()
    return Slab(wanted)


def give(slab: Slab) -> None:
    """Let a slab be used again. Nothing may hold its memory. May be called by any thread, also while collecting."""
    if slab.size <= LARGEST:
        _free.append(slab)
        if len(_free) > KEEP:
            _free.popleft()
