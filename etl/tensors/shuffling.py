"""Permutations of a loader's windows, and rows out of them, by compiled loops once rows are many.

The results are those of `order.permutation` and `numpy.take`, sooner.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl.core.earned import Earned
from etl.tensors.order import permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.core.earned import Calls

MANY = 1 << 20
"""Rows shuffled by a process from which the loops are loaded …"""
VERY_MANY = 1 << 28
"""… and from which they are compiled, where their code is not on disk."""
_LEAST, _MOST = 1 << 10, 1 << 24
"""Rows of a permutation below which NumPy is as fast, and above which two passes leave too much undone."""

_LINE = 64
"""Bytes of a cache line: of longer rows NumPy's copy finds the lines as soon."""


def loaded(*, compiling: bool) -> Calls | None:
    """The loops by name; None where they are not on disk and are not to be compiled."""
    from etl.core import native  # noqa: PLC0415 - the loader of machine code, for many rows only

    loops = native.Loops(
        "shuffling",
        "etl.tensors.shuffle_loops",
        {"permuted": 7, "taken": 5},
        (Path(__file__).resolve().with_name("shuffle_loops.py"), native.MACHINE),
        vectorized=True,
    )
    return native.load(loops).calls if compiling or native.on_disk(loops) is not None else None


earned = Earned(loaded, MANY, VERY_MANY)


def room_for(rows: int, /) -> NDArray[np.int64]:
    """Memory for permutations of up to so many rows, used again and again: fresh pages cost as much as the sorting."""
    return np.empty(2 * rows + (2 << _digits(rows)), np.int64)


def permuted(rows: int, key: int, room: NDArray[np.int64], /) -> NDArray[np.int64]:
    """As `order.permutation`: int64 [rows], in the room's memory."""
    calls = earned.calls(rows)
    if calls is not None and _LEAST <= rows <= _MOST:
        digits = _digits(rows)
        out, spare, counts = room[:rows], room[rows : 2 * rows], room[2 * rows : 2 * rows + (2 << digits)]
        start = key - (1 << 64) if key >> 63 else key
        if not calls["permuted"](_at(out), _at(spare), _at(counts), rows, start, _bits(rows), digits):
            return out
    return permutation(rows, key)


def take(source: NDArray[Any], places: NDArray[np.int64], out: NDArray[Any], /) -> None:
    """Rows of a C-contiguous array at places inside it, into an array of their shape."""
    width = source.strides[0]
    calls = earned.calls(0) if width % 16 == 0 and width <= _LINE and len(places) else None
    if calls is None:
        np.take(source, places, axis=0, out=out, mode="clip")
    else:
        calls["taken"](_at(out), _at(source), _at(places), len(places), width)


def _bits(rows: int) -> int:
    return max(1, (rows - 1).bit_length())


def _digits(rows: int) -> int:
    """Bits of a pass: two of them nearly sort the rows, and its counters stay in the nearest cache."""
    return min((_bits(rows) + 1) // 2, 11)


def _at(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
