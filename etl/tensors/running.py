"""Statistics that the compiled loops gather: states that go from batch to batch, and what is known at the end.

The loops give what `stats` computes with NumPy, in a tenth of the time; they are asked for once a process has seen
rows enough to pay for loading them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from etl.core.earned import Earned
from etl.tensors.sums import RealSums, WholeSums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.core.earned import Calls
    from etl.tensors.views import Column

MANY = 1 << 21
"""Values of a process from which the loops are loaded (some hundredths of a second) …"""
VERY_MANY = 1 << 28
"""… and from which they are compiled (seconds), where their code is not on disk."""
SLOTS, FIRST_SLOT = 2048, 24
"""Integers that are counted one by one, and the word of a state at which their counts begin."""
BLOCK = 4096
"""Values that the loops look at together: they stay in the nearest cache, and their sums of squares below 2^52 fit 64
bits."""
_WORD = 1 << 64
_HALF = 1 << 63


def loaded(*, compiling: bool) -> Calls | None:
    """The loops by name; None where they are not on disk and are not to be compiled."""
    from etl.core import native  # noqa: PLC0415 - the loader of machine code, for many rows only

    here = Path(__file__).resolve()
    loops = native.Loops(
        "statistics",
        "etl.tensors.loops",
        {"wholes": 8, "narrow": 4, "reals": 7, "texts": 8},
        (here.with_name("loops.py"), here, native.MACHINE),
        vectorized=True,
    )
    return native.load(loops).calls if compiling or native.on_disk(loops) is not None else None


seen = Earned(loaded, MANY, VERY_MANY)
"""How many values this process has looked at, and the loops once they were many."""


@dataclass(slots=True)
class Wholes:
    """Of integers, times and decimals that fit 64 bits; unsigned numbers of 64 bits are held 2^63 lower.

    Attributes:
        wide: Whether they are unsigned numbers of 64 bits.
        words: 0 count, 1 least, 2 most, 3 the first least; of values near it, as differences from it: 4 sum (2
            words), 6 squares (3), 10 count; of values far from it, as they are: 12 sum (2), 14 squares (3), 11 count;
            17 whether single values are counted in the slots from 24 on, 18 the value of the first slot.
    """

    wide: bool
    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(FIRST_SLOT + SLOTS, np.int64))

    def __post_init__(self) -> None:
        self.words[17] = 1

    def take(self, calls: Calls, block: NDArray[np.int64], column: Column, width: int, *, signed: bool) -> bool:
        """Add a column; False, and nothing was added, where a decimal does not fit."""
        values, valid, offset, rows = _places(column, width)
        if width == 16 and column.type.precision > 18 and not calls["narrow"](values, valid, offset, rows):
            return False
        calls["wholes"](_at(self.words), _at(block), values, valid, offset, rows, width, int(signed))
        return True

    @property
    def ends(self) -> tuple[int, int] | None:
        """The least and the greatest."""
        if not self.words[0]:
            return None
        least, most = int(self.words[1]), int(self.words[2])
        return (least + _HALF, most + _HALF) if self.wide else (least, most)

    @property
    def sums(self) -> WholeSums:
        """Count, sum and sum of squares, exact."""
        found = WholeSums()
        lift = _HALF if self.wide else 0
        for count, at, base in ((10, 4, int(self.words[3])), (11, 12, 0)):
            found.add(_moved(int(self.words[count]), self._total(at), self._squares(at + 2), base + lift))
        return found

    def _total(self, at: int) -> int:
        return (int(self.words[at + 1]) << 64) + int(self.words[at]) % _WORD

    def _squares(self, at: int) -> int:
        return sum((int(self.words[at + i]) % _WORD) << (64 * i) for i in range(3))

    @property
    def table(self) -> dict[int, int] | None:
        """Value → how often; None where the values are further apart than there are slots."""
        if not self.words[17]:
            return None
        slots = self.words[FIRST_SLOT:]
        found: dict[int, int] = {}
        for slot in np.flatnonzero(slots).tolist():
            value = int(self.words[18]) + slot
            # The first slot may lie below what 64 bits hold.
            value = (value + _HALF) % _WORD - _HALF
            found[value + _HALF if self.wide else value] = int(slots[slot])
        return found


@dataclass(slots=True)
class Reals:
    """Of floats.

    Attributes:
        words: count, NaNs, infinities, then as float64 least, greatest, mean, m2, then whether there was any number.
    """

    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(8, np.int64))

    def take(self, calls: Calls, block: NDArray[np.int64], column: Column, width: int) -> None:
        """Add a column."""
        values, valid, offset, rows = _places(column, width)
        calls["reals"](_at(self.words), _at(block), values, valid, offset, rows, width)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The least and the greatest but for NaN."""
        if not self.words[7]:
            return None
        least, most = self.words.view(np.float64)[3:5].tolist()
        # -0.0 and 0.0 are one value; which of them comes first must not show.
        return least + 0.0, most + 0.0

    @property
    def sums(self) -> RealSums:
        """Mean and squared differences of the finite ones."""
        mean, m2 = self.words.view(np.float64)[5:7].tolist()
        return RealSums(int(self.words[0]), mean, math.inf if math.isnan(m2) else m2)


def text_ends(calls: Calls, column: Column, /) -> tuple[str, str] | None:
    """The least and the greatest text of a column by their bytes; None where all are absent."""
    wide = pa.types.is_large_string(column.type)
    data = column.buffers()[2]
    offsets, valid, offset, rows = _places(column, 8 if wide else 4)
    ends = np.zeros(2, np.int64)
    at, size = (data.address, data.size) if data is not None else (0, 0)
    calls["texts"](_at(ends), offsets, int(wide), at, size, valid, offset, rows)
    least, most = ends.tolist()
    return None if least < 0 else (column[least].as_py(), column[most].as_py())


def new_block() -> NDArray[np.int64]:
    """Room for a block of values."""
    return np.empty(BLOCK, np.int64)


def _at(words: NDArray[np.int64]) -> int:
    return int(words.ctypes.data)


def _moved(count: int, total: int, squares: int, by: int) -> WholeSums:
    """The sums of numbers that are greater by so much."""
    return WholeSums(count, total + count * by, squares + 2 * by * total + count * by * by)


def _places(column: Column, width: int) -> tuple[int, int, int, int]:
    """The addresses of the first value and of the validity bits, the place of the first bit, and the rows."""
    bits, values = column.buffers()[:2]
    valid = bits.address if bits is not None and column.null_count else 0
    return values.address + column.offset * width, valid, column.offset, len(column)
