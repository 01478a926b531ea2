"""Equal feature rows in two splits: found in a sample of row hashes that is the same in every part and split.

Each part keeps, for every split, the least hashes of its distinct feature rows. Up to the least of the greatest kept
ones, the sample of every split is complete, so rows of two splits that are equal there are all found: with up to
`KEEP` distinct rows in each part and split that is every one. A part holds 8 KiB for each split.

Keys need no look: the split of a key follows from the key alone.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.tensors.hashing import words_of
from etl.tensors.views import Column, bits_of, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from connectors.base import Staged
    from etl.tensors.pack import PackPlan

KEEP = 1024
REPEATS = 4.0
"""Rows for each distinct feature row, above which features have few values: then every split has all of them."""
_SLICE = 1 << 14
_ONE = np.uint64(0x9E3779B97F4A7C15)
_TWO = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)
_ABSENT = np.uint64(0xD1B54A32D192ED03)
_NAN = np.uint64(0x7FF8000000000000)


def compared(plan: PackPlan, /) -> list[str]:
    """The columns whose values make rows equal: the features, where it is known which columns they are."""
    if plan.layout == "table" and len(plan.features) == len(plan.columns):
        return []
    return [
        c.field.name for c in plan.columns if c.field.name in plan.features and (c.tensor or plan.layout == "table")
    ]


class RowSketches:
    """The least row hashes of each split of one part.

    Args:
        columns: The feature columns.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._least: dict[str, NDArray[np.uint64]] = {}

    def take(self, split: str, batch: pa.RecordBatch, /) -> None:
        """Rows that went to a split."""
        if not self._columns:
            return
        for start in range(0, batch.num_rows, _SLICE):
            self._take(split, row_hashes(batch.slice(start, _SLICE), self._columns))

    def _take(self, split: str, found: NDArray[np.uint64]) -> None:
        have = self._least.get(split)
        if have is not None and len(have) == KEEP:
            found = found[found < have[-1]]
        if len(found):
            self._least[split] = np.unique(found if have is None else np.concatenate([have, found]))[:KEEP]

    def as_bytes(self) -> dict[str, bytes]:
        """Split → its least hashes, ascending, as bytes that travel."""
        return {split: least.tobytes() for split, least in self._least.items()}


def shared_rows(sketches: Iterable[Mapping[str, bytes]], /) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """What the parts' sketches say: distinct rows looked at per split, and how many of them two splits share."""
    distinct, _ = _sampled(sketches)
    shared = {
        (a, b): len(np.intersect1d(distinct[a], distinct[b], assume_unique=True)) for a, b in combinations(distinct, 2)
    }
    return {split: len(found) for split, found in distinct.items()}, {pair: n for pair, n in shared.items() if n}


def _sampled(sketches: Iterable[Mapping[str, bytes]]) -> tuple[dict[str, NDArray[np.uint64]], float]:
    """The hashes of each split up to the least of the greatest kept ones, and the share of all hashes that are."""
    parts = [{split: np.frombuffer(b, np.uint64) for split, b in one.items()} for one in sketches]
    full = [least[-1] for one in parts for least in one.values() if len(least) == KEEP]
    most = min(full, default=np.uint64(2**64 - 1))
    gathered: dict[str, list[NDArray[np.uint64]]] = {}
    for one in parts:
        for split, least in one.items():
            gathered.setdefault(split, []).append(least[least <= most])
    found = {split: np.unique(np.concatenate(several)) for split, several in gathered.items()}
    return found, (int(most) + 1) / 2**64


def _repeats(staged: Sequence[Staged]) -> float:
    """About how many rows there are for each distinct feature row, in all splits together."""
    found, share = _sampled(one.sketches for one in staged)
    distinct = len(np.unique(np.concatenate([*found.values(), np.zeros(0, np.uint64)]))) / share
    return sum(one.rows for one in staged) / max(1.0, distinct)


def leak_warnings(staged: Sequence[Staged], /) -> list[dict[str, object]]:
    """`warnings[]`: equal feature rows in two splits, where they are not equal for want of values."""
    looked, shared = shared_rows(one.sketches for one in staged)
    if not shared or _repeats(staged) > REPEATS:
        return []
    return [
        {
            "code": "equal_rows",
            "count": count,
            "text": f"{count} of {looked[b]} distinct feature rows of {b} that were looked at are also in {a}: what is "
            "learnt from one is known in the other. Split by a key that such rows share",
        }
        for (a, b), count in shared.items()
    ]


def leak_checks(staged: Sequence[Staged], /) -> list[dict[str, object]]:
    """`checks[]`: how many distinct feature rows of each split were looked at, and which are in two."""
    looked, shared = shared_rows(one.sketches for one in staged)
    if len(looked) < 2:
        return []
    both = {f"{a},{b}": count for (a, b), count in shared.items()}
    return [{"name": "feature rows in one split", "passed": not both, "observed": {"rows": looked, "shared": both}}]


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str], /) -> NDArray[np.uint64]:
    """A hash of each row's values in these columns: equal for equal rows, in every batch and process.

    -0.0 equals 0.0, any NaN another, and NULL nothing but NULL.

    Returns:
        uint64 [rows].
    """
    rows = np.zeros(batch.num_rows, np.uint64)
    high = np.empty_like(rows)
    for name in columns:
        rows ^= _words(batch.column(batch.schema.get_field_index(name)))
        rows *= _ONE
        np.right_shift(rows, _HALF, out=high)
        rows ^= high
    _mix(rows)
    return rows


def _mix(words: NDArray[np.uint64]) -> None:
    words *= _ONE
    words ^= words >> _HALF
    words *= _TWO
    words ^= words >> _HALF


def _words(column: Column) -> NDArray[np.uint64]:
    """One word for each value, uint64 [rows], writable or not."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    words = _values(column)
    return np.where(valid_of(column), words, _ABSENT) if column.null_count else words


def _values(column: Column) -> NDArray[np.uint64]:
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return _values(column.indices)
    if types.is_boolean(kind):
        return bits_of(column.buffers()[1], column.offset, len(column)).astype(np.uint64)
    if types.is_floating(kind):
        wide = values_of(column, f"f{kind.bit_width // 8}").astype(np.float64) + 0.0
        return np.where(np.isnan(wide), _NAN, wide.view(np.uint64))
    if types.is_decimal(kind) or types.is_fixed_size_binary(kind) or types.is_interval(kind):
        return _of_bytes(column, kind.bit_width // 8)
    if types.is_integer(kind) or types.is_temporal(kind):
        letter = "u" if types.is_unsigned_integer(kind) else "i"
        return values_of(column, f"{letter}{kind.bit_width // 8}").astype(np.int64, casting="unsafe").view(np.uint64)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        return _of_items(column.values.slice(column.offset * size, len(column) * size), np.full(len(column), size))
    if types.is_list(kind) or types.is_large_list(kind):
        counted: Column = pc.list_value_length(column)
        counted = pc.fill_null(counted, 0)
        lengths = values_of(counted, f"i{column.offsets.type.bit_width // 8}")
        return _of_items(column.flatten(), lengths.astype(np.int64))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        present: Column = pc.cast(column.drop_null(), pa.large_binary())
        encoded = present.dictionary_encode()
        words = np.full(len(column), _ABSENT)
        words[valid_of(column)] = words_of(encoded.dictionary)[values_of(encoded.indices, np.int32)]
        return words
    # No tensor and no text: nested columns of Parquet are left out of the comparison.
    return np.zeros(len(column), np.uint64)


def _of_bytes(column: Column, width: int) -> NDArray[np.uint64]:
    data = values_of(column, f"V{width}").view(np.uint8).reshape(len(column), width)
    words = np.zeros(len(column), np.uint64)
    for start in range(0, width, 8):
        piece = np.zeros((len(column), 8), np.uint8)
        piece[:, : min(8, width - start)] = data[:, start : start + 8]
        words ^= piece.view(np.uint64)[:, 0]
        _mix(words)
    return words


def _of_items(items: Column, lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A word for each list: its length and a sum over its items, each mixed with its place."""
    ends = np.cumsum(lengths)
    place = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
    words = _words(items) ^ (place.astype(np.uint64) * _TWO)
    _mix(words)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    found: NDArray[np.uint64] = sums[ends] - sums[ends - lengths]
    return found ^ lengths.astype(np.uint64)
