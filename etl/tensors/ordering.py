"""The order of rows as bytes: what a row sorts by, where ties stop, how sorted runs are cut, how well sources mix.

Everything here is a function of rows and options: equal rows give equal order, whatever the parts, batches, threads or
processes they came in. Nothing touches a file.

The **order bytes** of a row compare as the rows do: for `key`, each key column ascending, NULL last, numbers by value
(NaN above infinity), text by its UTF-8 bytes; for `shuffle`, the first 8 bytes of SHA-256(`cuetl-shuffle-1|seed|` + key
message), where the key message is that of the split recipe, or the packed bytes of the row without `--key`. Rows with
equal order bytes follow by their **packed bytes**: every written column in order, validity byte first, fixed-width
values as stored (little-endian, zero where absent), lengths as 8 bytes before text, bytes and items. Rows that are
equal in both are equal in the files too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.tensors.hashing import words_of
from etl.tensors.split import key_messages
from etl.tensors.views import Column, bits_of, buffer_of, column_of, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.options import WriteOptions

WORD = 8
"""Bytes of the words that are compared first."""
_PREFIX_WORDS = 2
"""Words of a key of any length that are compared before its bytes are."""
_PIECE = 1 << 16
"""Rows whose bytes are laid out at once: index arrays take 8 bytes for each byte laid out."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """In which order the rows of a dataset are written.

    Attributes:
        kind: "key" or "shuffle".
        key: The key columns; empty for a shuffle by whole rows.
        seed: Of the shuffle.
        written: The columns that are written, in order: the packed bytes of a row.
        nullable: Which of `written` can hold NULLs.
        declared: Key columns with declared values, which compare in the order of their declaration.
    """

    kind: str
    key: tuple[str, ...]
    seed: int
    written: tuple[str, ...]
    nullable: frozenset[str]
    declared: frozenset[str] = frozenset()

    def as_json(self) -> dict[str, object]:
        """What a manifest says of it."""
        found: dict[str, object] = {"kind": self.kind}
        if self.key:
            found["keys"] = list(self.key)
        if self.kind == "shuffle":
            found["seed"] = self.seed
        return found


def ordering(options: WriteOptions, schema: Schema, written: Sequence[str], /) -> Ordering | None:
    """The order that the options ask for; None: as the parts come.

    Raises:
        ConfigError: A key column's type has no order, or a column's bytes cannot be told.
    """
    if options.order == "source":
        return None
    for name in options.key:
        kind = schema.field(name).type
        if not _has_order(kind):
            raise ConfigError(
                f"column {name} is {kind}, by which rows cannot be put in order",
                hint="Use another --key, or leave --order and --shuffle out.",
                column=name,
            )
    return Ordering(
        options.order,
        options.key,
        options.seed or 0,
        tuple(written),
        frozenset(n for n in written if schema.field(n).nullable),
        frozenset(n for n in options.key if schema.field(n).vocabulary is not None),
    )


def _has_order(kind: Any) -> bool:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
        or types.is_duration(kind)
        or types.is_fixed_size_binary(kind)
        or _is_bytes(kind)
    )


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)


def order_bytes(how: Ordering, batch: pa.RecordBatch, place: str, /) -> Column:
    """The order bytes of every row of a batch, which is part of `place`.

    Returns:
        Fixed-size binary of a multiple of 8 bytes, or large binary where a key has any length. Which of both follows
        from the types alone.
    """
    if how.kind == "shuffle":
        words = _shuffle_words(how, batch, place)
        return column_of(pa.binary(WORD), words.astype(">u8"))
    parts: list[Column | NDArray[np.uint8]] = []
    for name in how.key:
        column = batch.column(batch.schema.get_field_index(name))
        parts += _ascending(column, nullable=name in how.nullable, declared=name in how.declared)
    if all(isinstance(p, np.ndarray) for p in parts):
        width = sum(p.shape[1] for p in parts)
        padding = np.zeros((batch.num_rows, -width % WORD), np.uint8)
        matrix = np.concatenate([*parts, padding], axis=1)
        return column_of(pa.binary(matrix.shape[1]), matrix)
    return _joined(parts)


def _ascending(column: Column, *, nullable: bool, declared: bool) -> list[Column | NDArray[np.uint8]]:
    """A key column as pieces whose bytes ascend with it: a matrix [rows, width], or bytes that end themselves."""
    column = _plain(column, by_index=declared)
    valid = valid_of(column) if column.null_count else None
    pieces: list[Column | NDArray[np.uint8]] = []
    if nullable or valid is not None:
        absent = np.zeros((len(column), 1), np.uint8) if valid is None else (~valid).view(np.uint8).reshape(-1, 1)
        pieces.append(absent)
    kind = column.type
    if _is_bytes(kind):
        pieces += [_escaped(column), np.zeros((len(column), 2), np.uint8)]
        return pieces
    matrix = _big_endian(column)
    if valid is not None:
        matrix[~valid] = 0
    pieces.append(matrix)
    return pieces


def _plain(column: Column, *, by_index: bool = False) -> Column:
    """Without extension and dictionary: values, or the indices of declared ones."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column = column.indices if by_index else column.dictionary_decode()
    return column


def _big_endian(column: Column) -> NDArray[np.uint8]:
    """Fixed-width values as bytes that compare as the values do, [rows, width]; a copy."""
    kind, types, rows = column.type, pa.types, len(column)
    if types.is_boolean(kind):
        return bits_of(column.buffers()[1], column.offset, rows).astype(np.uint8).reshape(rows, 1)
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return _raw(column).copy()
    if types.is_floating(kind):
        values = values_of(column, f"f{kind.bit_width // 8}")
        bits = (values + values.dtype.type(0)).view(f"u{kind.bit_width // 8}")  # -0.0 + 0.0 is 0.0
        sign = bits.dtype.type(1 << (kind.bit_width - 1))
        bits = np.where(bits & sign, ~bits, bits | sign)
        bits[np.isnan(values)] = ~bits.dtype.type(0)
        return (
            np.ascontiguousarray(bits, bits.dtype.newbyteorder(">")).view(np.uint8).reshape(rows, kind.bit_width // 8)
        )
    matrix = np.ascontiguousarray(_raw(column)[:, ::-1])
    if not types.is_unsigned_integer(kind):
        matrix[:, 0] ^= 0x80
    return matrix


def _raw(column: Column) -> NDArray[np.uint8]:
    """The stored bytes of a fixed-width column, [rows, width], shared; NULL slots hold anything."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return bits_of(column.buffers()[1], column.offset, len(column)).view(np.uint8).reshape(-1, 1)
    width = kind.byte_width
    return values_of(column, f"V{width}").view(np.uint8).reshape(len(column), width) if width else _nothing(len(column))


def _nothing(rows: int) -> NDArray[np.uint8]:
    return np.zeros((rows, 0), np.uint8)


def _bytes_and_offsets(column: Column) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a text or binary column from its first value to its last, and where each begins; NULL is empty."""
    kind = column.type
    width = 8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 4
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(0, np.uint8), np.zeros(len(column) + 1, np.int64)
    where = np.frombuffer(offsets, f"i{width}", len(column) + 1, column.offset * width).astype(np.int64)
    if column.null_count:
        lengths = np.where(valid_of(column), np.diff(where), 0)
        if int(lengths.sum()) != int(where[-1] - where[0]):
            # A NULL may lie over bytes: the values that are there, moved together.
            return _bytes_and_offsets(pc.fill_null(column.cast(pa.large_binary()), _constant(b"")))
    if data is None:
        return np.zeros(0, np.uint8), where - where[0]
    return np.frombuffer(data, np.uint8)[where[0] : where[-1]], where - where[0]


def _escaped(column: Column) -> Column:
    """Text or bytes in which 00 is 00 FF, so that 00 00 after them ends them below every longer value."""
    data, offsets = _bytes_and_offsets(column)
    zeros = np.flatnonzero(data == 0)
    if len(zeros):
        data = np.insert(data, zeros + 1, 0xFF)
        offsets = offsets + np.searchsorted(zeros, offsets)
    return _large(data, offsets)


def _large(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Column:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, buffer_of(offsets.astype(np.int64)), buffer_of(data)]
    )


def _joined(parts: Sequence[Column | NDArray[np.uint8]]) -> Column:
    """The pieces of every row, one after the other: large binary [rows]."""
    columns: list[Column] = []
    fixed: list[NDArray[np.uint8]] = []

    def settle() -> None:
        if fixed:
            matrix = np.concatenate(fixed, axis=1)
            rows, width = matrix.shape
            columns.append(_large(matrix.reshape(-1), np.arange(rows + 1, dtype=np.int64) * width))
            fixed.clear()

    for part in parts:
        if isinstance(part, np.ndarray):
            fixed.append(part)
        else:
            settle()
            columns.append(part)
    settle()
    if len(columns) == 1:
        return columns[0]
    return _one_after_another(*columns)


def _one_after_another(*columns: Column) -> Column:
    join: Any = pc.binary_join_element_wise  # the stubs know text only
    return join(*columns, _constant(b""))


def _constant(value: bytes) -> Any:
    """A large binary scalar; `pa.scalar` would import pandas to see whether the value is one of its."""
    return _large(np.frombuffer(value, np.uint8), np.array([0, len(value)]))[0]


def row_bytes(how: Ordering, batch: pa.RecordBatch, /) -> Column:
    """The packed bytes of every row: large binary [rows]."""
    if not how.written:
        return _large(np.zeros(0, np.uint8), np.zeros(batch.num_rows + 1, np.int64))
    parts: list[Column | NDArray[np.uint8]] = []
    for name in how.written:
        column = batch.column(batch.schema.get_field_index(name))
        parts += _packed(column, nullable=name in how.nullable)
    return _joined(parts)


def _packed(column: Column, *, nullable: bool = True) -> list[Column | NDArray[np.uint8]]:
    """The bytes of a column's values, in pieces."""
    column = _plain(column)
    kind, types, rows = column.type, pa.types, len(column)
    valid = valid_of(column) if column.null_count else np.ones(rows, np.bool_)
    pieces: list[Column | NDArray[np.uint8]] = [valid.view(np.uint8).reshape(-1, 1)] if nullable else []
    if types.is_null(kind):
        return [_nothing(rows)]
    if _is_bytes(kind):
        data, offsets = _bytes_and_offsets(column)
        return [*pieces, _counted(np.diff(offsets)), _large(data, offsets)]
    if types.is_struct(kind):
        for child in column.flatten():
            pieces += _packed(child)
        return pieces
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_map(kind):
        return [*pieces, *_items(column, valid)]
    matrix = _raw(column)
    if column.null_count:
        matrix = np.where(valid.reshape(-1, 1), matrix, np.uint8(0))
    return [*pieces, matrix]


def _counted(lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(lengths, "<i8").view(np.uint8).reshape(-1, 8)


def _items(column: Column, valid: NDArray[np.bool_]) -> list[Column | NDArray[np.uint8]]:
    """How many items each list has, and their bytes."""
    kind, types = column.type, pa.types
    if types.is_map(kind):
        entries = pa.StructArray.from_arrays([column.keys, column.items], fields=[kind.key_field, kind.item_field])
        column = pa.Array.from_buffers(
            pa.list_(entries.type), len(column), column.buffers()[:2], offset=column.offset, children=[entries]
        )
    if types.is_fixed_size_list(kind):
        lengths = np.where(valid, kind.list_size, 0).astype(np.int64)
    else:
        width = 8 if types.is_large_list(kind) else 4
        buffer = column.buffers()[1]
        where = np.frombuffer(buffer, f"i{width}", len(column) + 1, column.offset * width) if len(column) else [0]
        lengths = np.where(valid, np.diff(where), 0).astype(np.int64)
    items = column.flatten()
    joined = _joined(_packed(items))
    data, offsets = _bytes_and_offsets(joined)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return [_counted(lengths), _large(data, offsets[ends])]


def _shuffle_words(how: Ordering, batch: pa.RecordBatch, place: str) -> NDArray[np.uint64]:
    prefix = f"cuetl-shuffle-1|{how.seed}|".encode()
    if how.key:
        columns = [_as_key(batch.column(batch.schema.get_field_index(name))) for name in how.key]
        messages, codes = key_messages(columns, prefix, how.key, place)
        return words_of(messages)[codes]
    words = np.empty(batch.num_rows, np.uint64)
    for start in range(0, batch.num_rows, _PIECE):
        piece = batch.slice(start, _PIECE)
        rows = _one_after_another(_constant(prefix), row_bytes(how, piece))
        words[start : start + piece.num_rows] = words_of(rows)
    return words


def _as_key(column: Column) -> Column:
    """A key column as a type that has a key text: times and durations by their number."""
    column = _plain(column)
    kind = column.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column


def _words(order: Column) -> NDArray[np.uint64]:
    """The first words of order bytes, [rows, words]; all of them for fixed widths."""
    if pa.types.is_fixed_size_binary(order.type):
        width = order.type.byte_width
        return values_of(order, f"V{width}").view(">u8").reshape(len(order), width // WORD).astype(np.uint64)
    data, offsets = _bytes_and_offsets(order)
    out = np.zeros((len(order), _PREFIX_WORDS * WORD), np.uint8)
    if len(data):
        steps = np.arange(_PREFIX_WORDS * WORD)
        for start in range(0, len(order), _PIECE):
            where = offsets[start : start + _PIECE + 1]
            at = where[:-1, None] + steps
            out[start : start + _PIECE] = np.where(at < where[1:, None], data[np.minimum(at, len(data) - 1)], 0)
    return out.view(">u8").astype(np.uint64)


def sorted_rows(order: Column, packed: Callable[[NDArray[np.int64]], Column], /) -> NDArray[np.int64]:
    """The places of the rows in ascending order; equal rows stay as they come.

    Args:
        order: The order bytes of every row.
        packed: Called with the places of rows that tie, int64 ascending by order bytes; their packed bytes.

    Returns:
        int64 [rows].
    """
    words = _words(order)
    rows = len(order)
    places: NDArray[np.int64] = np.lexsort(words.T[::-1]) if words.shape[1] else np.arange(rows)
    ranked = words[places]
    same = (ranked[1:] == ranked[:-1]).all(axis=1)
    if pa.types.is_large_binary(order.type):
        places = _by_bytes(order, places, same)
        ranked_bytes = order.take(column_of(pa.int64(), places))
        same = _bools(pc.equal(ranked_bytes.slice(1), ranked_bytes.slice(0, max(0, rows - 1))))
    return _settled(places, same, packed)


def _ranked(indices: Column) -> NDArray[np.int64]:
    """Arrow's sort indices; NumPy's own way to them would import pandas."""
    return values_of(indices, np.uint64).astype(np.int64)


def _bools(column: Column) -> NDArray[np.bool_]:
    """A bool column without NULLs, [rows]."""
    return bits_of(column.buffers()[1], column.offset, len(column))


def _groups(same: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions that are not alone in their group, and the number of the group of each."""
    alone = np.concatenate([[True], ~same])
    group = np.cumsum(alone) - 1
    tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
    return tied, group[tied]


def _by_bytes(order: Column, places: NDArray[np.int64], same: NDArray[np.bool_]) -> NDArray[np.int64]:
    if not same.any():
        return places
    tied, _ = _groups(same)
    chosen = places[tied]
    # Words are the first bytes: among those that tie, groups keep their order.
    within = _ranked(pc.sort_indices(order.take(column_of(pa.int64(), chosen))))
    out = places.copy()
    out[tied] = chosen[within]
    return out


def _settled(
    places: NDArray[np.int64], same: NDArray[np.bool_], packed: Callable[[NDArray[np.int64]], Column]
) -> NDArray[np.int64]:
    """Ties put in the order of their packed bytes."""
    if not same.any():
        return places
    tied, group = _groups(same)
    chosen = places[tied]
    table = pa.Table.from_arrays([column_of(pa.int64(), group), packed(chosen)], names=["group", "bytes"])
    ranked = pc.sort_indices(table, sort_keys=[("group", "ascending"), ("bytes", "ascending")])
    out = places.copy()
    out[tied] = chosen[_ranked(ranked)]
    return out


def logical_bytes(column: Column, /) -> int:
    """The bytes of a column's values, from rows and values alone: no padding, no bitmap, whatever the batches were."""
    column = _plain(column)
    kind, types, rows = column.type, pa.types, len(column)
    if types.is_null(kind):
        return 0
    if _is_bytes(kind):
        return 4 * rows + int(_bytes_and_offsets(column)[1][-1])
    if types.is_struct(kind):
        return sum(logical_bytes(child) for child in column.flatten())
    if types.is_map(kind):
        data, _ = _bytes_and_offsets(_joined(_packed(column)))
        return len(data)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 4 * rows + logical_bytes(column.flatten())
    return rows if types.is_boolean(kind) else rows * int(kind.byte_width)


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the rows of one file can be: rows [start, stop) of each run, and the rows before them in all runs.

    Attributes:
        below: Rows of all runs before the starts; each of them comes before the file's rows in the whole order.
        starts, stops: Per run.
    """

    below: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


def reaches(
    rows: Sequence[int], runs: NDArray[np.int64], merged: NDArray[np.int64], every: int, size: int, /
) -> Iterator[Reach]:
    """For each file of `size` rows of the merged sequence of sorted runs: what must be read to find its rows.

    Every run is known by its fences: the rows 0, `every`, 2·`every`, … From fences in merged order follow bounds: rows
    up to a fence are at most those of the intervals begun so far, and at least those of the intervals that ended. So a
    file's rows are found within about `every` rows of each run on either side, and where they begin among those is
    known exactly.

    Args:
        rows: Rows per run.
        runs: For each fence, its run; the fences of a run in order.
        merged: The places of the fences in ascending order.
        every: Rows from fence to fence.
        size: Rows per file; the last has the rest.
    """
    counts = np.asarray(rows, np.int64)
    fences = np.bincount(runs, minlength=len(counts))
    nth = np.arange(len(runs)) - np.repeat(np.cumsum(fences) - fences, fences)
    interval = np.minimum(counts[runs] - nth * every, every)
    begun = np.cumsum(interval[merged])
    ended = np.cumsum(np.where(nth[merged] > 0, every, 0))
    order = runs[merged]
    total = int(counts.sum())
    starts, stops = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
    at_start = at_stop = 0
    for first in range(0, total, size):
        low = int(np.searchsorted(begun, first, side="right"))
        high = min(len(merged), int(np.searchsorted(ended, min(first + size, total), side="left")) + 1)
        starts += np.bincount(order[at_start:low], minlength=len(counts))
        stops += np.bincount(order[at_stop:high], minlength=len(counts))
        at_start, at_stop = low, high
        begin = np.maximum(starts - 1, 0) * every
        end = np.minimum(stops * every, counts)
        yield Reach(int(begin.sum()), begin, end)


def file_rows(row_bytes: float, target: int, /) -> int:
    """Rows of a file: as many as the target holds, in steps of 4096, at least 4096."""
    return max(4096, int(target / max(row_bytes, 1.0)) // 4096 * 4096)


def chi_square_p(statistic: float, freedom: int, /) -> float:
    """The probability that a chi-square variable with `freedom` degrees of freedom is at least `statistic`.

    The upper regularised incomplete gamma function Q(freedom / 2, statistic / 2): its series below freedom / 2 + 1, its
    continued fraction (by Lentz's method) above; DLMF 8.11.4 and 8.9.2.
    """
    a, x = freedom / 2.0, statistic / 2.0
    if x <= 0.0:
        return 1.0
    log_scale = a * math.log(x) - x - math.lgamma(a)
    tiny, enough = 1e-300, 1e-16
    if x < a + 1.0:
        term = total = 1.0 / a
        step = a
        while term > total * enough:
            step += 1.0
            term *= x / step
            total += term
        return min(1.0, max(0.0, 1.0 - total * math.exp(log_scale)))
    b = x + 1.0 - a
    c, d = 1.0 / tiny, 1.0 / b
    fraction = d
    for i in range(1, 10_000_000):
        factor = -i * (i - a)
        b += 2.0
        d = 1.0 / (factor * d + b or tiny)
        c = b + factor / c or tiny
        change = c * d
        fraction *= change
        if abs(change - 1.0) < enough * 4:
            break
    return min(1.0, fraction * math.exp(log_scale)) if log_scale > -745.0 else 0.0
