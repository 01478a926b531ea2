"""Counts, sums and squares that are the same however the rows are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CHUNK = 1 << 15
"""Rows at a time: they stay in the cache, and sums of 48-bit products stay within 64 bits."""
_LIMB = 24
_LOW = np.uint64((1 << _LIMB) - 1)
_SHIFT = np.uint64(_LIMB)


@dataclass(slots=True)
class WholeSums:
    """Of integers: exact, so that any cut of the rows gives the same sums to the last bit.

    Attributes:
        count: How many.
        total: Their sum.
        squares: The sum of their squares.
    """

    count: int = 0
    total: int = 0
    squares: int = 0

    def take(self, offsets: NDArray[np.uint64], base: int, most: int, /) -> None:
        """Add `base + offset` for each of at most `CHUNK` offsets, the largest of which is `most`."""
        rows = len(offsets)
        total, squares = _sums(offsets, most)
        self.add(WholeSums(rows, total + rows * base, squares + 2 * base * total + rows * base * base))

    def take_counted(self, times: NDArray[np.int64], base: int, /) -> None:
        """Add `base + i` as often as `times[i]` says, for at most 2^20 places."""
        places = np.arange(len(times))
        counted = times * places
        rows, total = int(times.sum()), int(counted.sum())
        squares = int((counted * places).sum())
        self.add(WholeSums(rows, total + rows * base, squares + 2 * base * total + rows * base * base))

    def take_wide(self, high: NDArray[np.int64], low: NDArray[np.int64], /) -> None:
        """Add integers of 128 bits, at most `CHUNK`, each as its upper and lower half."""
        # Each is held 2^127 higher, so that no limb has a sign.
        above, below = high.view(np.uint64) ^ np.uint64(1 << 63), low.view(np.uint64)
        limbs = [
            below & _LOW,
            (below >> _SHIFT) & _LOW,
            (below >> np.uint64(48)) | ((above & np.uint64(0xFF)) << np.uint64(16)),
            (above >> np.uint64(8)) & _LOW,
            (above >> np.uint64(32)) & _LOW,
            above >> np.uint64(56),
        ]
        rows, base = len(high), -(1 << 127)
        total, squares = _sums_of(limbs)
        self.add(WholeSums(rows, total + rows * base, squares + 2 * base * total + rows * base * base))

    def add(self, other: WholeSums, /) -> None:
        """Add the sums of other rows."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    def real(self, scale: Fraction, /) -> RealSums:
        """Mean and squared differences from it, each rounded once; values times `scale`."""
        if not self.count:
            return RealSums()
        mean = Fraction(self.total, self.count) * scale
        m2 = Fraction(self.count * self.squares - self.total * self.total, self.count) * scale * scale
        return RealSums(self.count, _float(mean), _float(m2))


@dataclass(slots=True)
class RealSums:
    """Of floats: the mean, and the squared differences from it (Chan's merge), never a sum of squares.

    Attributes:
        count: How many; NaN and infinities are not among them.
        mean: Their mean.
        m2: The sum of squared differences from the mean; infinite where it is beyond float64.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def take(self, values: NDArray[np.float64], /) -> None:
        """Add finite values, at most `CHUNK`."""
        if not len(values):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(values.sum()) / len(values)
            if not math.isfinite(mean):
                mean = float((values / len(values)).sum())
            apart = values - mean
            # What rounding of the mean left; the squares are corrected by it.
            rest = float(apart.sum())
            np.square(apart, out=apart)
            m2 = float(apart.sum()) - rest * rest / len(values)
        self.add(RealSums(len(values), mean, math.inf if math.isnan(m2) else m2))

    def add(self, other: RealSums, /) -> None:
        """Add the sums of other rows."""
        count = self.count + other.count
        if not other.count:
            return
        share = other.count / count
        apart = other.mean - self.mean
        if math.isfinite(apart):
            self.mean += apart * share
        else:
            self.mean = self.mean * (1 - share) + other.mean * share
        between = apart * apart * share * self.count if self.count else 0.0
        self.m2 += other.m2 + between
        self.count = count


def _sums(offsets: NDArray[np.uint64], most: int) -> tuple[int, int]:
    """Sum and sum of squares, exact: in limbs of 24 bits, whose products' sums fit 64."""
    if most < 1 << _LIMB:
        return int(offsets.sum()), int((offsets * offsets).sum())
    limbs: list[NDArray[np.uint64]] = []
    while most:
        limbs.append(offsets & _LOW)
        most >>= _LIMB
        if most:
            offsets = offsets >> _SHIFT
    return _sums_of(limbs)


def _sums_of(limbs: Sequence[NDArray[np.uint64]]) -> tuple[int, int]:
    """Sum and sum of squares of integers that are there as limbs of 24 bits, the lowest first."""
    total = sum(int(limb.sum()) << (_LIMB * i) for i, limb in enumerate(limbs))
    squares = 0
    for i, one in enumerate(limbs):
        for j in range(i, len(limbs)):
            product = int((one * limbs[j]).sum()) << (_LIMB * (i + j))
            squares += product if i == j else 2 * product
    return total, squares


def _float(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def offsets_from(values: NDArray[Any], least: int, /) -> NDArray[np.uint64]:
    """`values - least` for integers of any width, none below `least`; the difference always fits 64 bits."""
    if values.dtype.itemsize < 8:
        near: NDArray[np.uint64] = np.subtract(values, least, dtype=np.int64).view(np.uint64)
        return near
    wide: NDArray[np.uint64] = values.view(np.uint64) - np.uint64(least & 0xFFFF_FFFF_FFFF_FFFF)
    return wide
