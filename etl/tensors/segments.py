"""What a file is made of: the rows gathered so far in blocks, and the whole contents as an encoder takes them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from connectors.base import StagedFile
    from etl.tensors.pack import TensorSpec

ROWS = 4096
"""Rows per file are a multiple, so that every fixed-width tensor of a file begins on a 4 KiB boundary."""
BLOCK_ROWS = 16 * ROWS
_BLOCK_BYTES = 64 << 20
"""A block is not larger, or a few wide rows would want memory for many."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What one file is to hold.

    Attributes:
        split: The split of the rows.
        rows: How many.
        specs: The tensors in file order.
        counts: Per tensor its first extent: the rows, or the items of a ragged list.
        metadata: What the file says of itself, as JSON text.
        chunks: Tensor's place in `specs` → its bytes in order, in pieces of any dtype; may be asked again. The
            n-th piece holds the same rows in every tensor but ragged items.
    """

    split: str
    rows: int
    specs: Sequence[TensorSpec]
    counts: Sequence[int]
    metadata: str
    chunks: Callable[[int], Iterable[Any]]

    @property
    def tensors(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype in words and shape of each tensor."""
        return [(s.name, s.dtype, (n, *s.row_shape)) for s, n in zip(self.specs, self.counts, strict=True)]


Encode: TypeAlias = "Callable[[Path, str, str, Contents], StagedFile]"
"""Writes one file: folder, its stem, what its temporary name ends in, its contents."""


def held_dtype(dtype: str, /) -> np.dtype[Any]:
    """The NumPy dtype that holds a tensor of that dtype: uint16 bits for bfloat16."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


class Blocks:
    """Memory that is used again from file to file: fresh pages cost more than filling them.

    Attributes:
        keep: Most bytes kept free.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}
        self._bytes = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        """A block of that many bytes with any content."""
        try:
            block = self._free[size].pop()
        except (KeyError, IndexError):
            return np.empty(size, np.uint8)
        self._bytes -= size
        return block

    def give(self, block: NDArray[np.uint8]) -> None:
        """A block that nobody holds any more."""
        if self._bytes + block.nbytes <= self.keep:
            self._bytes += block.nbytes
            self._free.setdefault(block.nbytes, deque()).append(block)


_BLOCKS = Blocks(96 << 20)


class Segment:
    """The rows of one file to be, tensor after tensor, in blocks."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        widest = max((s.row_bytes for s in specs if s.part != "items"), default=0)
        self._block_rows = max(1, min(BLOCK_ROWS, _BLOCK_BYTES // max(1, widest)))
        self._blocks: list[list[NDArray[np.uint8]]] = [[] for _ in specs]
        self.items: dict[str, list[NDArray[Any]]] = {s.name: [] for s in specs if s.part == "items"}
        self.rows = 0
        self.bytes = 0

    def room(self, rows: int, /) -> int:
        """Rows up to the end of the block, at most so many."""
        return min(rows, self._block_rows - self.rows % self._block_rows)

    def slots(self, rows: int, /) -> list[NDArray[Any]]:
        """Where the next rows go, per tensor: [rows, …]; nothing for ragged items."""
        at = self.rows % self._block_rows
        found: list[NDArray[Any]] = []
        for spec, blocks in zip(self._specs, self._blocks, strict=True):
            if spec.part == "items":
                found.append(np.zeros(0))
                continue
            if not at:
                blocks.append(_BLOCKS.take(self._block_rows * spec.row_bytes))
            whole = blocks[-1].view(held_dtype(spec.dtype)).reshape(self._block_rows, *spec.row_shape)
            found.append(whole[at : at + rows])
            self.bytes += rows * spec.row_bytes
        self.rows += rows
        return found

    def chunks(self, index: int, /) -> list[NDArray[Any]]:
        """The bytes of one tensor in order."""
        spec = self._specs[index]
        if spec.part == "items":
            return self.items[spec.name]
        left = self.rows * spec.row_bytes
        found: list[NDArray[Any]] = []
        for block in self._blocks[index]:
            found.append(block[: min(left, block.nbytes)])
            left -= block.nbytes
        return found

    def release(self) -> None:
        """Give the blocks back."""
        for blocks in self._blocks:
            for block in blocks:
                _BLOCKS.give(block)
            blocks.clear()
        self.items.clear()
