"""Figures of runs of neighbouring rows, from `start` to before `stop`, for every row at once.

Whole numbers are added up by running sums, which are exact. For floats a running sum would carry every earlier row's
error, and its NaN, into all later windows: they are added in blocks of 1, 2, 4 … rows that begin at the window's own
first row, so that a figure follows from the rows of its window alone, whatever lies around them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Ints = np.ndarray[Any, np.dtype[np.int64]]
_LOW: Final = np.int64(0xFFFFFFFF)
_LIMB: Final = 32


def counts(flags: NDArray[np.bool_] | None, start: Ints, stop: Ints, /) -> Ints:
    """How many flags are True; None: all are. Shape (windows,)."""
    if flags is None:
        return stop - start
    return _running(flags, start, stop)


def limbs_of(values: NDArray[Any], /) -> list[Ints]:
    """Whole numbers as digits of 32 bits, the lowest first and the last with the sign: 2^31 of them add up exactly."""
    if values.dtype.kind == "b" or values.dtype.itemsize <= 4:
        return [values.astype(np.int64)]
    if values.dtype.kind == "u":
        low = (values & np.uint64(_LOW)).astype(np.int64)
        return [low, (values >> np.uint64(_LIMB)).astype(np.int64)]
    return [values & _LOW, values >> _LIMB]


def whole_sums(limbs: Sequence[Ints], start: Ints, stop: Ints, /) -> list[Ints]:
    """The sums of whole numbers, exact: digits of 32 bits, as many as before; the last one has the sign."""
    made = [_running(one, start, stop) for one in limbs]
    for at in range(len(made) - 1):
        made[at + 1] += made[at] >> _LIMB
        made[at] &= _LOW
    return made


def sums(values: NDArray[np.float64], start: Ints, stop: Ints, /) -> NDArray[np.float64]:
    """The sums of floats, 0.0 of none; NaN and infinities count."""
    (made,) = _folded([values], (0.0,), start, stop, lambda a, b: [a[0] + b[0]])
    return made


def least(values: NDArray[Any], start: Ints, stop: Ints, none: Any, /) -> NDArray[Any]:
    """The smallest value, NaN where one is NaN; `none` of no values."""
    (made,) = _folded([values], (none,), start, stop, lambda a, b: [np.minimum(a[0], b[0])])
    return made


def greatest(values: NDArray[Any], start: Ints, stop: Ints, none: Any, /) -> NDArray[Any]:
    """The greatest value, NaN where one is NaN; `none` of no values."""
    (made,) = _folded([values], (none,), start, stop, lambda a, b: [np.maximum(a[0], b[0])])
    return made


def spreads(values: NDArray[np.float64], present: NDArray[np.bool_], start: Ints, stop: Ints, /) -> NDArray[np.float64]:
    """The sums of squared distances from each window's own mean, of the values that are present."""
    tables = [present.astype(np.float64), np.where(present, values, 0.0), np.zeros(len(values))]
    return _folded(tables, (0.0, 0.0, 0.0), start, stop, _merged)[2]


def _merged(left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Counts, means and squared distances of two neighbouring blocks as those of one."""
    n, share = left[0] + right[0], right[0]
    share = np.divide(right[0], n, out=np.zeros_like(n), where=n > 0)
    apart = right[1] - left[1]
    # A block of no values has the mean 0, which must not count.
    mean = np.where(left[0] > 0, left[1] + apart * share, right[1])
    return [n, mean, left[2] + right[2] + np.where(share < 1, apart * apart * left[0] * share, 0.0)]


def _running(values: NDArray[Any], start: Ints, stop: Ints) -> Ints:
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total[stop] - total[start]


def _folded(
    tables: list[NDArray[Any]],
    none: tuple[Any, ...],
    start: Ints,
    stop: Ints,
    join: Callable[[Sequence[NDArray[Any]], Sequence[NDArray[Any]]], list[NDArray[Any]]],
) -> list[NDArray[Any]]:
    """All windows, each as its blocks of 1, 2, 4 … rows from its first row on, joined from left to right."""
    made = [np.full(len(start), one, table.dtype) for table, one in zip(tables, none, strict=True)]
    at, length, size = start.copy(), stop - start, 1
    longest = int(length.max(initial=0))
    with np.errstate(all="ignore"):
        while size <= longest:
            (mine,) = np.nonzero(length & size)
            places = at[mine]
            for whole, part in zip(
                made, join([one[mine] for one in made], [one[places] for one in tables]), strict=True
            ):
                whole[mine] = part
            at[mine] += size
            if 2 * size > longest:
                break
            tables = join([one[:-size] for one in tables], [one[size:] for one in tables])
            size *= 2
    return made
