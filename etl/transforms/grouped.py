"""Sums by key that merge: how many rows a key has, and the mean and spread of a number in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.tensors.views import column_of, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etl.tensors.views import Column

NAMES = ("n", "mean", "rest", "m2")
"""Of the numbers of a key: how many, their mean as the sum of two floats, and the sum of squared differences from it.

The rest keeps the digits that a mean far from 0 has no room for: without it, spreads would depend on how rows are cut.
"""

SUMS = ("n", "high", "low")
"""Of the whole numbers of a key: how many, and their sum in two halves."""


def grouped(keys: Column, numbers: NDArray[np.float64], /) -> pa.Table:
    """The moments of numbers by key: value, n, mean, rest, m2.

    Args:
        keys: Of their key type; NULL is a key of its own.
        numbers: Finite, shape (n,).
    """
    encoded = keys.dictionary_encode(null_encoding="encode")
    codes = values_of(encoded.indices, np.int32)
    count = len(encoded.dictionary)
    n = np.bincount(codes, minlength=count).astype(np.int64)
    means = np.asarray(np.bincount(codes, numbers, minlength=count) / n, np.float64)
    apart = numbers - means[codes]
    rest = np.bincount(codes, apart, minlength=count) / n
    apart -= rest[codes]
    m2 = np.asarray(np.bincount(codes, apart * apart, minlength=count), np.float64)
    return _table(encoded.dictionary, n, means, rest, m2)


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


def summed(keys: Column, whole: NDArray[Any], /) -> pa.Table:
    """The exact sums of whole numbers by key: value, n, high, low; a sum is 2^32 * high + low.

    Args:
        keys: Of their key type; NULL is a key of its own.
        whole: int64 or uint64, shape (n,).
    """
    high = (whole >> whole.dtype.type(32)).astype(np.int64)
    low = (whole & whole.dtype.type(0xFFFFFFFF)).astype(np.int64)
    ones = column_of(pa.int64(), np.ones(len(whole), np.int64))
    columns: list[Any] = [keys, ones, column_of(pa.int64(), high), column_of(pa.int64(), low)]
    return summed_together([pa.table(columns, names=["value", *SUMS])])


def summed_together(tables: Sequence[pa.Table], /) -> pa.Table:
    """The exact sums of all, by key: halves of 32 bits, so that 2^31 rows fit into 64."""
    found = pa.concat_tables(tables).group_by("value", use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return pa.table([found.column(name) for name in ("value", *(f"{n}_sum" for n in SUMS))], names=["value", *SUMS])


def none_summed(kind: pa.DataType, /) -> pa.Table:
    """No key, of exact sums."""
    none = pa.array([], pa.int64())
    return pa.table([pa.array([], kind), none, none, none], names=["value", *SUMS])


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
    columns = [values, column_of(pa.int64(), n), *(column_of(pa.float64(), one) for one in (means, rest, m2))]
    return pa.table(columns, names=["value", *NAMES])
