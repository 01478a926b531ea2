"""Sums by key that merge: how many rows a key has, and the mean and spread of a number in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from etl.tensors.views import column_of, mask_of, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etl.tensors.views import Column

NAMES = ("n", "mean", "rest", "m2")
"""Of the numbers of a key: how many, their mean as the sum of two floats, and the sum of squared differences from it.

The rest keeps the digits that a mean far from 0 has no room for: without it, spreads would depend on how rows are cut.
"""

SUMS = ("n", "high", "low")
"""Of the whole numbers of a key: how many, and their sum as 2^32 * high + low."""
Groups: TypeAlias = "list[pa.Table]"
_EXACT: Final = 1 << 21
"""So many halves of 32 bits have a sum that float64 holds, in which NumPy adds up."""


def grouped(keys: Column, numbers: NDArray[np.float64], /) -> pa.Table:
    """The moments of numbers by key: value, n, mean, rest, m2.

    Args:
        keys: Of their key type; NULL is a key of its own.
        numbers: Finite, shape (n,).
    """
    encoded = keys.dictionary_encode(null_encoding="encode")
    return _table(encoded.dictionary, *_moments(values_of(encoded.indices, np.int32), numbers, len(encoded.dictionary)))


def in_folds(keys: Column, numbers: NDArray[Any], folds: NDArray[np.int64], count: int, /, *, exact: bool) -> Groups:
    """The sums of numbers by key, a table for each fold.

    Args:
        keys: Of their key type; NULL is a key of its own.
        numbers: Finite float64 or, where exact, int64 or uint64, shape (n,).
        folds: Of each row, from 0, shape (n,).
        count: How many folds there are.
        exact: As `summed_together` takes them, not as `together`.
    """
    encoded = keys.dictionary_encode(null_encoding="encode")
    width = len(encoded.dictionary)
    codes = values_of(encoded.indices, np.int32) + folds * width
    with np.errstate(invalid="ignore"):  # a key that is in no row of a fold has no mean there
        found = (_halves if exact else _moments)(codes, numbers, count * width)
    made = []
    for fold in range(count):
        here = slice(fold * width, (fold + 1) * width)
        there = found[0][here] > 0
        columns = [encoded.dictionary.filter(mask_of(there)), *(_column(one[here][there]) for one in found)]
        made.append(pa.table(columns, names=["value", *(SUMS if exact else NAMES)]))
    return made


def together(tables: Sequence[pa.Table], /) -> pa.Table:
    """The moments of all, by key: Chan's formula for any number of groups."""
    whole = pa.concat_tables(tables)
    if len(tables) == 1 or not whole.num_rows:
        return whole.combine_chunks()
    keys: Any = whole.column("value").combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks)
    encoded = keys.dictionary_encode(null_encoding="encode")
    return _table(encoded.dictionary, *_merged(whole, values_of(encoded.indices, np.int32), len(encoded.dictionary)))


def of_all(table: pa.Table, /) -> tuple[int, float, float]:
    """The moments of all keys together: n, mean, m2."""
    if not table.num_rows:
        return 0, 0.0, 0.0
    n, means, rest, m2 = _merged(table, np.zeros(table.num_rows, np.int32), 1)
    return int(n[0]), float(means[0] + rest[0]), float(m2[0])


def none_of(kind: pa.DataType, /) -> pa.Table:
    """No key."""
    empty = np.zeros(0)
    return _table(pa.array([], kind), np.zeros(0, np.int64), empty, empty, empty)


def summed_together(tables: Sequence[pa.Table], /) -> pa.Table:
    """The exact sums of all, by key: halves of 32 bits, so that 2^31 rows fit into 64."""
    found = pa.concat_tables(tables).group_by("value", use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return pa.table([found.column(name) for name in ("value", *(f"{n}_sum" for n in SUMS))], names=["value", *SUMS])


def none_summed(kind: pa.DataType, /) -> pa.Table:
    """No key, of exact sums."""
    none = pa.array([], pa.int64())
    return pa.table([pa.array([], kind), none, none, none], names=["value", *SUMS])


def _moments(
    codes: NDArray[Any], numbers: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """n, mean, rest and m2 of the numbers of each code."""
    n = np.bincount(codes, minlength=count).astype(np.int64)
    means = np.asarray(np.bincount(codes, numbers, minlength=count) / n, np.float64)
    apart = numbers - means[codes]
    rest = np.bincount(codes, apart, minlength=count) / n
    apart -= rest[codes]
    return n, means, rest, np.asarray(np.bincount(codes, apart * apart, minlength=count), np.float64)


def _halves(
    codes: NDArray[Any], whole: NDArray[Any], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """n, high and low of the whole numbers of each code."""
    n, high, low = (np.zeros(count, np.int64) for _ in SUMS)
    for start in range(0, len(codes), _EXACT):
        some, part = codes[start : start + _EXACT], whole[start : start + _EXACT]
        n += np.bincount(some, minlength=count)
        high += np.bincount(some, part >> part.dtype.type(32), minlength=count).astype(np.int64)
        low += np.bincount(some, part & part.dtype.type(0xFFFFFFFF), minlength=count).astype(np.int64)
    return n, high, low


def _merged(
    table: pa.Table, codes: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The moments of the rows of each code."""
    n, means, rest, m2 = (table.column(name).to_numpy() for name in NAMES)
    total = np.bincount(codes, n, minlength=count)
    base = np.zeros(count)
    base[codes[::-1]] = means[::-1]  # the first mean of each: what lies around it is summed without loss
    apart = (means - base[codes]) + rest
    shift = np.bincount(codes, n * apart, minlength=count) / total
    apart -= shift[codes]
    spread = np.asarray(np.bincount(codes, m2 + n * apart * apart, minlength=count), np.float64)
    made = base + shift
    return total.astype(np.int64), made, (base - made) + shift, spread


def _table(
    values: Column,
    n: NDArray[np.int64],
    means: NDArray[np.float64],
    rest: NDArray[np.float64],
    m2: NDArray[np.float64],
) -> pa.Table:
    return pa.table([values, *map(_column, (n, means, rest, m2))], names=["value", *NAMES])


def _column(numbers: NDArray[Any]) -> Column:
    return column_of(pa.int64() if numbers.dtype == np.int64 else pa.float64(), numbers)
