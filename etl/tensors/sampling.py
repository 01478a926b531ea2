"""A bounded sample of the rows of a part, chosen by position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from etl.tensors.views import column_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etl.tensors.views import Column

WIDE = 64
"""Bytes of a value in the sample, on average, at most: a column of longer ones is not sampled."""


class RowSample:
    """Of every 2^level rows one, where level is the smallest that keeps at most `most` rows.

    Which one of them is decided by a hash of the window's number, so rows that repeat with some period are not met in
    step. The row of a window is the row of one of its halves: raising the level only drops rows. While there are no
    more than `most` rows, the sample is all of them.

    Args:
        names: The columns to sample.
        most: Rows to keep, at least 2; the last window may be without its row, so there are at least half as many.
    """

    def __init__(self, names: Sequence[str], most: int) -> None:
        self._most = most
        self._level = 0
        self._rows = 0
        self._places = np.zeros(0, np.int64)
        self._names = list(dict.fromkeys(names))
        self._kept: list[pa.RecordBatch] = []

    def take(self, batch: pa.RecordBatch, /) -> None:
        """The next rows."""
        wide = [name for name in self._names if _width(batch.column(name)) > WIDE]
        if wide:
            self._names = [name for name in self._names if name not in wide]
            self._kept = [one.select(self._names) for one in self._kept]
        first, self._rows = self._rows, self._rows + batch.num_rows
        level = self._level
        while self._rows > self._most << level:
            level += 1
        if level > self._level:
            self._thin(level, first)
        at = _chosen(level, first, batch.num_rows)
        if len(at):
            self._places = np.concatenate([self._places, at])
            self._kept.append(batch.select(self._names).take(column_of(pa.int64(), at - first)))

    def _thin(self, level: int, rows: int) -> None:
        """Keep what a higher level keeps of the rows so far."""
        self._level = level
        stays = np.flatnonzero(np.isin(self._places, _chosen(level, 0, rows), assume_unique=True))
        self._places = self._places[stays]
        if self._kept:
            self._kept = [_together(self._kept).take(column_of(pa.int64(), stays))]

    @property
    def rows(self) -> int:
        """Rows in the sample."""
        return len(self._places)

    @property
    def columns(self) -> dict[str, Column]:
        """Column → its values in the sample; a column of long values is not there."""
        if not self._kept:
            return {}
        whole = _together(self._kept)
        return {name: whole.column(name) for name in self._names}


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole[0] if whole else batches[0]


def _chosen(level: int, first: int, rows: int) -> NDArray[np.int64]:
    """The positions from `first` on that are the ones of their windows."""
    if not rows:
        return np.zeros(0, np.int64)
    found = np.arange(first >> level, ((first + rows - 1) >> level) + 1, dtype=np.int64)
    for one in range(level, 0, -1):
        found = _lower(found, one)
    return found[(found >= first) & (found < first + rows)]


def _lower(windows: NDArray[np.int64], level: int) -> NDArray[np.int64]:
    """The half of each window of that level in which its row lies, as a window of the level below."""
    mixed = (windows.view(np.uint64) + np.uint64(level)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return 2 * windows + (mixed >> np.uint64(63)).view(np.int64)


def _width(values: Column) -> float:
    """Bytes of a value, on average."""
    if pa.types.is_primitive(values.type):
        return 16.0  # or less
    return float(values.nbytes) / max(1, len(values))
