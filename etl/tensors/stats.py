"""Statistics of every column and split, gathered on the way of an export and merged in the order of the parts.

Exact, however the rows were cut: count, null, nan, inf, min, max of every column that has an order; sum, squares and
so mean and m2 of integers, times, bools and decimals of up to 18 digits; distinct, quantiles, top and histogram of
bools, of enums and of integers within a range of 1024. Means and m2 of floats differ by rounding between cuts.
Elsewhere distinct, quantiles, top and histogram come from a bounded sample of rows (`sampled` says of how many), which
is all rows while there are few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Context
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from etl.core.late import Late
from etl.tensors.running import Reals, Wholes, new_block, seen, text_ends
from etl.tensors.sampling import RowSample
from etl.tensors.sums import CHUNK, RealSums, WholeSums, offsets_from
from etl.tensors.views import Column, bits_of, column_of, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from etl.core.earned import Calls
    from etl.core.schema import Field
else:
    pc = Late("pyarrow.compute")

SAMPLE_ROWS, LATER_ROWS, EARLY_PARTS = 1024, 128, 64
"""Sampled rows of one part and split; of the parts after the first 64 fewer, so that thousands of parts fit."""
TABLE = 1024
"""Integers within a range of so many are counted one by one."""
LONGEST = 256
"""Characters of a text in the statistics; longer least and greatest texts are cut there."""
MOST_LABELS = 4096
"""An enum with more labels is not counted by label."""
DIGITS = Context(prec=80)
"""Arrow's widest decimals have 76."""


@dataclass(slots=True)
class Stats:
    """What is known of one column in one split of one part; a picklable value of some kB.

    Attributes:
        rows: Rows, absent values among them.
        null: Absent values.
        nan: NaN among the present.
        inf: Infinities among the present.
        least, most: The extremes but for NaN: integers in the column's own unit (decimals: of the last digit),
            floats, text, bools; None where there are none or the type has no order here.
        whole: Sums of the integers.
        real: Sums of the finite floats, and of decimals beyond 64 bits.
        table: Value → how often, while all values are within `TABLE` or are labels; None where there are more.
        sample: Sampled values that are present.
        sampled: Rows that were looked at for `sample`, absent values among them; None: the column is not sampled.
        times: How often each integer is there, from `origin` on, until `settle` moves it to `table`.
    """

    rows: int = 0
    null: int = 0
    nan: int = 0
    inf: int = 0
    least: Any = None
    most: Any = None
    whole: WholeSums = field(default_factory=WholeSums)
    real: RealSums = field(default_factory=RealSums)
    table: dict[Any, int] | None = field(default_factory=dict)
    sample: Column = None
    sampled: int | None = None
    origin: int = 0
    times: NDArray[np.int64] | None = None

    def numbers(self, offsets: NDArray[np.uint64], least: int, /) -> NDArray[np.int64]:
        """Count `least + offset` for each offset, all within `TABLE` of every value before; how often each is there."""
        if self.times is None:
            self.origin, self.times = least - TABLE, np.zeros(2 * TABLE, np.int64)
        times = np.bincount(offsets.view(np.int64))
        start = least - self.origin
        self.times[start : start + len(times)] += times
        return times

    def settle(self) -> None:
        """No more rows will come."""
        if self.times is not None and self.table is not None:
            for place in np.flatnonzero(self.times).tolist():
                value = self.origin + place
                self.table[value] = self.table.get(value, 0) + int(self.times[place])
        self.times = None

    def reach(self, least: Any, most: Any, /) -> None:
        """Take in the extremes of other rows."""
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)


class PartStats:
    """Takes the rows of one split of a part, batch by batch.

    Args:
        fields: The columns that are written.
        part: The part's index.
        loops: The compiled loops, if so many more values make them worth while.
    """

    def __init__(
        self, fields: Sequence[Field], part: int, /, *, loops: Callable[[int], Calls | None] = seen.calls
    ) -> None:
        self._loops = loops
        self._fields = {one.name: one for one in fields}
        self._stats = {name: Stats() for name in self._fields}
        self._block = new_block()
        self._wholes: dict[str, Wholes] = {}
        self._reals: dict[str, Reals] = {}
        drawn = [one.name for one in fields if _is_sampled(one.type)]
        self._sample = RowSample(drawn, SAMPLE_ROWS if part < EARLY_PARTS else LATER_ROWS)

    def take(self, batch: pa.RecordBatch, /) -> None:
        """The next rows; nothing of the batch is held."""
        calls = self._loops(batch.num_rows * len(self._stats))
        for name, stats in self._stats.items():
            column: Column = batch.column(batch.schema.get_field_index(name))
            stats.rows += len(column)
            stats.null += column.null_count
            if calls is None or not self._run(calls, name, column):
                _take(stats, column, self._fields[name])
        self._sample.take(batch)

    def _run(self, calls: Calls, name: str, column: Column) -> bool:
        """Whether a compiled loop took the column in."""
        kind, types = column.type, pa.types
        if column.null_count == len(column):
            return True
        if types.is_integer(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
            unsigned = bool(types.is_unsigned_integer(kind))
            width = kind.bit_width // 8
            if name not in self._wholes:
                self._wholes[name] = Wholes(unsigned and width == 8)
            return self._wholes[name].take(calls, self._block, column, width, signed=not unsigned)
        if types.is_decimal128(kind):
            if name not in self._wholes:
                self._wholes[name] = Wholes(wide=False)
            return self._wholes[name].take(calls, self._block, column, 16, signed=True)
        if types.is_float32(kind) or types.is_float64(kind):
            if name not in self._reals:
                self._reals[name] = Reals()
            self._reals[name].take(calls, self._block, column, kind.bit_width // 8)
            return True
        if _is_text(kind):
            self._stats[name].table = None
            ends = text_ends(calls, column)
            if ends is not None:
                self._stats[name].reach(ends[0][:LONGEST], ends[1][:LONGEST])
            return True
        return False

    def done(self) -> dict[str, Stats]:
        """Column → what was found; to be asked for once."""
        for stats in self._stats.values():
            stats.settle()
        for name, wholes in self._wholes.items():
            stats = self._stats[name]
            if wholes.ends is not None:
                stats.reach(*wholes.ends)
                stats.whole.add(wholes.sums)
                table = wholes.table
                if table is None or stats.most - stats.least >= TABLE:
                    stats.table = None
                _count(stats, table or {})
        for name, reals in self._reals.items():
            stats = self._stats[name]
            stats.table = None
            stats.nan += int(reals.words[1])
            stats.inf += int(reals.words[2])
            if reals.ends is not None:
                stats.reach(*reals.ends)
            stats.real.add(reals.sums)
        for name, values in self._sample.columns.items():
            stats = self._stats[name]
            stats.sample, stats.sampled = values.drop_null(), self._sample.rows
        return self._stats


def merged(parts: Sequence[Stats], /) -> Stats:
    """The statistics of all rows, given those of the parts in their order; samples stay with the parts."""
    found = Stats()
    for one in parts:
        found.rows += one.rows
        found.null += one.null
        found.nan += one.nan
        found.inf += one.inf
        if one.least is not None:
            found.reach(one.least, one.most)
        found.whole.add(one.whole)
        found.real.add(one.real)
        if one.table is None:
            found.table = None
        elif found.table is not None:
            for value, count in one.table.items():
                found.table[value] = found.table.get(value, 0) + count
    if found.table is not None and type(found.least) is int and found.most - found.least >= TABLE:
        found.table = None
    return found


def _is_sampled(kind: Any) -> bool:
    types = pa.types
    return (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
        or _is_text(kind)
    ) and not types.is_interval(kind)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _take(stats: Stats, column: Column, one: Field) -> None:
    kind, types = column.type, pa.types
    if column.null_count == len(column):
        return
    if types.is_boolean(kind):
        _take_bools(stats, column)
    elif types.is_dictionary(kind):
        _take_labels(stats, column, one)
    elif types.is_floating(kind):
        for chunk in _chunks(column):
            _take_reals(stats, _present(chunk, f"f{kind.bit_width // 8}"))
    elif types.is_decimal(kind):
        for chunk in _chunks(column):
            _take_decimals(stats, chunk)
    elif types.is_integer(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        letter = "u" if types.is_unsigned_integer(kind) else "i"
        for chunk in _chunks(column):
            _take_wholes(stats, _present(chunk, f"{letter}{kind.bit_width // 8}"))
    else:
        stats.table = None
        if _is_text(kind):
            _take_text(stats, column)
        elif types.is_list(kind) or types.is_large_list(kind):
            # Of a list the statistics are those of its length.
            lengths = np.diff(values_of_offsets(column))
            _take_wholes(stats, lengths[valid_of(column)] if column.null_count else lengths)


def values_of_offsets(column: Column, /) -> NDArray[Any]:
    """The offsets of a list or text column, [rows + 1], shared."""
    kind, types = column.type, pa.types
    width = np.dtype(np.int64 if types.is_large_list(kind) or types.is_large_string(kind) else np.int32)
    return np.frombuffer(column.buffers()[1], width, count=len(column) + 1, offset=column.offset * width.itemsize)


def _chunks(column: Column) -> list[Column]:
    """Pieces of at most `CHUNK` rows."""
    if len(column) <= CHUNK:
        return [column]
    return [column.slice(start, CHUNK) for start in range(0, len(column), CHUNK)]


def _present(column: Column, dtype: str) -> NDArray[Any]:
    values = values_of(column, dtype)
    return values[valid_of(column)] if column.null_count else values


def _take_bools(stats: Stats, column: Column) -> None:
    bits = bits_of(column.buffers()[1], column.offset, len(column))
    present = len(column) - column.null_count
    true = int(np.count_nonzero(bits & valid_of(column) if column.null_count else bits))
    stats.whole.add(WholeSums(present, true, true))
    stats.reach(present == true, true > 0)
    _count(stats, {value: count for value, count in ((False, present - true), (True, true)) if count})


def _take_labels(stats: Stats, column: Column, one: Field) -> None:
    if stats.table is None:
        return
    labels = one.vocabulary
    if labels is None:
        if len(column.dictionary) > MOST_LABELS:
            stats.table = None
            return
        labels = tuple(map(str, column.dictionary.to_pylist()))
    indices = column.indices
    found = np.bincount(_present(indices, f"i{indices.type.bit_width // 8}"), minlength=len(labels))
    _count(stats, {label: int(count) for label, count in zip(labels, found.tolist(), strict=False) if count})


def _count(stats: Stats, found: Mapping[Any, int]) -> None:
    if stats.table is not None:
        for value, count in found.items():
            stats.table[value] = stats.table.get(value, 0) + count


def _take_wholes(stats: Stats, values: NDArray[Any]) -> None:
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        least, most = int(chunk.min()), int(chunk.max())
        stats.reach(least, most)
        offsets = offsets_from(chunk, least)
        if stats.table is not None and stats.most - stats.least >= TABLE:
            stats.table = stats.times = None
        if stats.table is None:
            stats.whole.take(offsets, least, most - least)
        else:
            stats.whole.take_counted(stats.numbers(offsets, least), least)


def _take_reals(stats: Stats, values: NDArray[Any]) -> None:
    stats.table = None
    if not len(values):
        return
    least, most = float(values.min()), float(values.max())
    if not (np.isfinite(least) and np.isfinite(most)):
        known = values[~np.isnan(values)]
        stats.nan += len(values) - len(known)
        values = known[np.isfinite(known)]
        stats.inf += len(known) - len(values)
        if not len(known):
            return
        least, most = float(known.min()), float(known.max())
    # -0.0 and 0.0 are one value; which of them comes first must not show.
    stats.reach(least + 0.0, most + 0.0)
    stats.real.take(values.astype(np.float64, copy=False))


def _take_decimals(stats: Stats, column: Column) -> None:
    kind = column.type
    if column.null_count == len(column):
        return
    if not pa.types.is_decimal128(kind) and kind.precision <= 38:
        # Arrow compares no decimal of 32 or 64 bits.
        column = pc.cast(column, pa.decimal128(kind.precision, kind.scale))
        kind = column.type
    if pa.types.is_decimal128(kind):
        halves = values_of(column, "V16").view(np.int64).reshape(-1, 2)
        if column.null_count:
            halves = halves[valid_of(column)]
        low = np.ascontiguousarray(halves[:, 0])
        if kind.precision <= 18 or bool((halves[:, 1] == low >> 63).all()):
            _take_wholes(stats, low)
            return
    stats.table = None
    ends = pc.min_max(column)
    least, most = (int(ends[key].as_py().scaleb(kind.scale, DIGITS)) for key in ("min", "max"))
    stats.reach(least, most)
    values = pc.cast(column.drop_null(), pa.float64(), safe=False)
    stats.real.take(values_of(values, np.float64))


def _take_text(stats: Stats, column: Column) -> None:
    offsets = values_of_offsets(column)
    lengths = np.diff(offsets)
    if column.null_count:
        column = column.drop_null()
        offsets = values_of_offsets(column)
        lengths = np.diff(offsets)
    data = column.buffers()[2]
    if data is None or not int(lengths.max()):
        stats.reach("", "")
        return
    text = _Bytes(np.frombuffer(data, np.uint8), offsets[:-1], lengths)
    # The first byte decides nearly all comparisons; an empty text comes before every other.
    filled = np.flatnonzero(lengths) if not int(lengths.min()) else None
    firsts = text.data.take(text.starts if filled is None else text.starts[filled])
    low, high = int(firsts.min()), int(firsts.max())
    if int(lengths.max()) == 1:
        stats.reach("" if filled is not None else chr(low), chr(high))
        return
    if low == high:
        # They begin alike: nothing is gained by looking at beginnings.
        ends: Any = pc.min_max(column)
        stats.reach(ends["min"].as_py()[:LONGEST], ends["max"].as_py()[:LONGEST])
        return
    least = "" if filled is not None else _extreme(column, text, firsts, None, stats.least, "min")
    most = _extreme(column, text, firsts, filled, stats.most, "max")
    for found in (least, most):
        if found is not None:
            stats.reach(found[:LONGEST], found[:LONGEST])


@dataclass(frozen=True, slots=True)
class _Bytes:
    """The bytes of a text column and where each text begins, [rows]."""

    data: NDArray[np.uint8]
    starts: NDArray[Any]
    lengths: NDArray[Any]

    def words(self, at: NDArray[Any]) -> NDArray[np.uint64]:
        """The eight bytes from each place on, the first the highest; zeros behind the data."""
        data = self.data if len(self.data) >= 8 else np.concatenate([self.data, np.zeros(8, np.uint8)])
        view: NDArray[np.uint64] = np.ndarray((len(data) - 7,), np.uint64, data, 0, (1,))
        inside = np.minimum(at, len(view) - 1)
        behind = (8 * (at - inside)).astype(np.uint64)
        found: NDArray[np.uint64] = view[inside].byteswap()
        return found << behind if behind.any() else found

    def heads(self, places: NDArray[Any]) -> NDArray[np.uint64]:
        """The first eight bytes of each text, zeros behind its end."""
        heads: NDArray[np.uint64] = self.words(self.starts[places]) & _MASKS.take(self.lengths[places], mode="clip")
        return heads

    def repeats(self, places: NDArray[Any], known: bytes) -> NDArray[np.bool_]:
        """Which texts, whose first eight bytes are those of `known`, are certainly the same."""
        if not 8 < len(known) <= 16:
            return np.zeros(len(places), np.bool_)
        tail = int.from_bytes(known[-8:], "big")
        same = self.lengths[places] == len(known)
        ends = self.starts[places] + np.maximum(self.lengths[places] - 8, 0)
        alike: NDArray[np.bool_] = same & (self.words(ends) == np.uint64(tail))
        return alike


_MASKS = np.array([0, *((1 << 64) - (1 << (64 - 8 * n)) for n in range(1, 9))], np.uint64)
"""By length: the bytes that are there."""


def _extreme(
    column: Column,
    text: _Bytes,
    firsts: NDArray[np.uint8],
    filled: NDArray[Any] | None,
    known: str | None,
    which: Literal["min", "max"],
) -> str | None:
    """The least or greatest text; None where it is not beyond what is known.

    Args:
        column: Without NULL.
        text: Its bytes.
        firsts: The first byte of each text that has one.
        filled: The places of those; None: all.
        known: The extreme of the rows before.
        which: The least, or the greatest.
    """
    low = which == "min"
    byte = int(firsts.min() if low else firsts.max())
    edge = known.encode() if known else b""
    if low and known == "":
        return None
    if edge and (byte > edge[0] if low else byte < edge[0]):
        return None
    places = np.flatnonzero(firsts == byte)
    places = places if filled is None else filled[places]
    heads = text.heads(places)
    best = int(heads.min() if low else heads.max())
    places = places[heads == np.uint64(best)]
    if edge:
        head = int.from_bytes(edge[:8].ljust(8, b"\0"), "big")
        if best > head if low else best < head:
            return None
        if best == head:
            # Most rows repeat what is known: those are left out before any is compared in full.
            if len(edge) <= 8:
                lengths = text.lengths[places]
                places = places[lengths < len(edge) if low else lengths > len(edge)]
            else:
                places = places[~text.repeats(places, edge)]
            if not len(places):
                return None
    chosen: Column = column if len(places) == len(column) else column.take(column_of(pa.int64(), places))
    ends: Any = pc.min_max(chosen)
    return str(ends[which].as_py())
