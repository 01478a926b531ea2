"""The order in which a loader gives rows: a formula of (rows, seed, epoch, lanes, block, window), nothing stored.

Pure: no clock, no files, no state. Every rank computes the same order, whatever its threads, and any place in an epoch
is found without going through what came before.

The rows of a split, in blocks of `BLOCK_ROWS`, are put in a permuted order of blocks; that sequence is cut in lanes,
one per rank; each lane is cut in windows, and the rows inside a window are permuted. A loader so reads whole blocks and
holds a window. The permutation sorts the outputs of SplitMix64 (Steele, Lea, Flood 2014), which are distinct.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

BLOCK_ROWS = 4096
WINDOW_ROWS = 1 << 18
WINDOW_BYTES = 256 << 20
"""A window holds no more bytes of rows, but for its least: two blocks."""
_GAMMA = 0x9E3779B97F4A7C15
_PIECE = 1 << 14
"""Outputs made at a time: they stay in a core's cache."""
_MIX = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9), np.uint64(27), np.uint64(0x94D049BB133111EB), np.uint64(31))

Run: TypeAlias = tuple[int, int]
"""Rows [start, stop) of a split, as they were written."""


def order_key(seed: int, epoch: int, what: str, index: int, /) -> int:
    """The 64-bit start of one permutation."""
    text = f"cuetl-order-1|{seed}|{epoch}|{what}|{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def permutation(rows: int, key: int, /) -> NDArray[np.int64]:
    """The permutation of `rows` numbers that belongs to a key: int64 [rows]."""
    # Sorting numbers is several times faster than sorting their places: the place goes in the low bits. Where the high
    # bits alone do not tell two outputs apart, the outputs are sorted as they are.
    bits = np.uint64(max(1, rows - 1).bit_length())
    packed = np.empty(rows, np.uint64)
    for first in range(0, rows, _PIECE):
        piece = packed[first : first + _PIECE]
        _outputs(piece, first, key)
        piece >>= bits
        piece <<= bits
        piece |= np.arange(first, first + len(piece), dtype=np.uint64)
    packed.sort()
    high = packed >> bits
    if (high[1:] == high[:-1]).any():
        _outputs(packed, 0, key)
        return np.argsort(packed)
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    return packed.view(np.int64)


def _outputs(out: NDArray[np.uint64], skip: int, key: int) -> None:
    """The outputs of SplitMix64 that follow the first `skip`, all arithmetic mod 2^64."""
    first, by, second, again, last = _MIX
    out[:] = np.arange(skip + 1, skip + 1 + len(out), dtype=np.uint64)
    out *= np.uint64(_GAMMA)
    out += np.uint64(key)
    out ^= out >> first
    out *= by
    out ^= out >> second
    out *= again
    out ^= out >> last


def default_window(row_bytes: int, /) -> int:
    """Rows of a window where none are asked for: 2^18, or 256 MiB of rows if that is less; at least two blocks."""
    fits = WINDOW_BYTES // max(1, row_bytes) // BLOCK_ROWS * BLOCK_ROWS
    return max(2 * BLOCK_ROWS, min(WINDOW_ROWS, fits))


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one epoch.

    Attributes:
        rows: Of the split.
        seed: Chosen by the user.
        epoch: Counted from 0.
        lanes: The world's size when the epoch began.
        shuffle: False: the written order, in the same lanes.
        window: Rows of a window, a multiple of the block's.
        block: Rows of a block.
    """

    rows: int
    seed: int = 0
    epoch: int = 0
    lanes: int = 1
    shuffle: bool = True
    window: int = WINDOW_ROWS
    block: int = BLOCK_ROWS

    def bounds(self, lane: int, /) -> tuple[int, int]:
        """The places of a lane in the sequence of blocks."""
        return lane * self.rows // self.lanes, (lane + 1) * self.rows // self.lanes

    def lane_rows(self, lane: int, /) -> int:
        """Rows of a lane; two lanes differ by one at most."""
        first, end = self.bounds(lane)
        return end - first

    def runs(self, first: int, end: int, /) -> tuple[Run, ...]:
        """The places [first, end) of the sequence as runs of written rows, in order; neighbours are joined."""
        if first >= end:
            return ()
        if not self.shuffle:
            return ((first, end),)
        blocks, starts = _blocks(self.rows, self.block, order_key(self.seed, self.epoch, "blocks", 0))
        low = int(np.searchsorted(starts, first, side="right")) - 1
        high = int(np.searchsorted(starts, end, side="left"))
        found: list[Run] = []
        for at in range(low, high):
            begin = int(blocks[at]) * self.block
            skip, cut = max(0, first - int(starts[at])), min(int(starts[at + 1]), end) - int(starts[at])
            if found and found[-1][1] == begin + skip:
                found[-1] = (found[-1][0], begin + cut)
            else:
                found.append((begin + skip, begin + cut))
        return tuple(found)

    def window_runs(self, lane: int, window: int, /) -> tuple[Run, ...]:
        """What a window of a lane holds, in the order of the sequence."""
        first, end = self.bounds(lane)
        begin = first + window * self.window
        return self.runs(min(begin, end), min(begin + self.window, end))

    def window_rows(self, lane: int, window: int, /) -> int:
        """Rows of a window of a lane."""
        return max(0, min(self.window, self.lane_rows(lane) - window * self.window))

    def window_order(self, lane: int, window: int, /) -> NDArray[np.int64]:
        """The order in which a window's rows come: positions in `window_runs`, laid end to end."""
        rows = self.window_rows(lane, window)
        return permutation(rows, self.window_key(lane, window)) if self.shuffle else np.arange(rows)

    def window_key(self, lane: int, window: int, /) -> int:
        """The start of the permutation of a window's rows."""
        return order_key(self.seed, self.epoch, "rows", (lane << 32) + window)

    def sequence(self, lane: int, start: int, stop: int, /) -> NDArray[np.int64]:
        """The written rows at the positions [start, stop) of a lane: what the order is, spelled out.

        Positions behind the lane's end give its first row, those of an empty lane row 0.
        """
        have = self.lane_rows(lane)
        inside = min(stop, have)
        found = [
            rows_of(self.window_runs(lane, w))[self.window_order(lane, w)[low:high]]
            for w, low, high in self.windows(start, inside)
        ]
        short = stop - max(start, inside)
        if short > 0:
            first = int(self.sequence(lane, 0, 1)[0]) if have else 0
            found.append(np.full(short, first, np.int64))
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def windows(self, start: int, stop: int, /) -> Iterator[tuple[int, int, int]]:
        """Positions [start, stop) of a lane as (window, first position in it, end in it)."""
        while start < stop:
            window = start // self.window
            end = min(stop, (window + 1) * self.window)
            yield window, start - window * self.window, end - window * self.window
            start = end


def rows_of(runs: tuple[Run, ...], /) -> NDArray[np.int64]:
    """The rows of runs, laid end to end."""
    if not runs:
        return np.empty(0, np.int64)
    return np.concatenate([np.arange(start, stop) for start, stop in runs])


@lru_cache(maxsize=2)
def _blocks(rows: int, block: int, key: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The blocks in permuted order, and where each begins in the sequence, with its end: int64 [n], [n + 1]."""
    count = -(-rows // block)
    order = permutation(count, key)
    sizes = np.full(count, block, np.int64)
    if rows % block:
        sizes[np.flatnonzero(order == count - 1)] = rows % block
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return order, starts


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one lane that a rank takes for a batch.

    Attributes:
        lane: Whose rows.
        start: The first position in the lane.
        stop: The end; behind the lane's rows it is padding.
    """

    lane: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Steps:
    """How an epoch is dealt out: global batches over all lanes, a share of each to every rank.

    Attributes:
        order: The epoch's order.
        global_batch: Rows of a whole global batch, a multiple of the lanes and of the ranks.
        drop_last: Leave out rows that fill no whole batch of all lanes.
    """

    order: Order
    global_batch: int
    drop_last: bool = False

    @property
    def lane_batch(self) -> int:
        """Rows of a lane in a whole global batch."""
        return self.global_batch // self.order.lanes

    def __len__(self) -> int:
        """Batches of every rank in the epoch."""
        if not self.order.rows:
            return 0
        if self.drop_last:
            return self.order.rows // self.order.lanes // self.lane_batch
        return (self._longest + self.lane_batch - 1) // self.lane_batch

    @property
    def _longest(self) -> int:
        return -(-self.order.rows // self.order.lanes)

    def pieces(self, step: int, rank: int, world: int, /) -> tuple[Piece, ...]:
        """What a rank takes in a step, lane after lane.

        Where the ranks changed since the epoch began, the last batch may not divide: pieces then hold fewer rows than
        `share`, and the rest is padding.
        """
        batch = self.lane_batch
        first = step * batch
        each = min(batch, self._longest - first)
        whole = each * self.order.lanes
        share = -(-whole // world)
        begin, end = min(rank * share, whole), min((rank + 1) * share, whole)
        found: list[Piece] = []
        while begin < end:
            lane, skip = divmod(begin, each)
            stop = min(end, (lane + 1) * each)
            found.append(Piece(lane, first + skip, first + skip + stop - begin))
            begin = stop
        return tuple(found)

    def share(self, step: int, world: int, /) -> int:
        """Rows of every rank's batch in a step."""
        each = min(self.lane_batch, self._longest - step * self.lane_batch)
        return -(-each * self.order.lanes // world)

    def padding(self, world: int, /) -> int:
        """Rows that are given twice in the epoch, over all ranks; with `drop_last` the rows left out, as a negative."""
        steps = len(self)
        if not steps:
            return -self.order.rows if self.drop_last else 0
        if self.drop_last:
            return steps * self.global_batch - self.order.rows
        return (steps - 1) * self.global_batch + self.share(steps - 1, world) * world - self.order.rows
