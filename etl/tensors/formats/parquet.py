"""Parquet data files: zstd, one row group at a time, encodings chosen once per part from its first rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.base import StagedFile
from etl.tensors.storage import HashingFile
from etl.tensors.views import Column, bitmap_of, buffer_of, column_of, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

SUFFIX = ".parquet"
_LEVEL = 1
"""zstd level: 3 costs a third more CPU for 2 % less (benchmarks/writers.py)."""
_FAST_LEVEL = -1
"""Of plain floats and packed differences, which have few repeats to look for: a seventh less CPU than at level 1, for
the same size (floats) or 2 % more (differences)."""
_SAMPLE = 8192
_ORDER_SAMPLE = 1024
_RUN = 32
"""Values that DELTA_BINARY_PACKED packs with one width."""
_BITS_FOR_HASHING = 2
"""Bits more per value than a dictionary index that packed differences may take: they cost half the time."""
_WRITE_BATCH = 8192
"""Values that pyarrow encodes per call: 1024, its default, costs 3 % more."""
_DICTIONARY_VALUES = 1 << 16
_DICTIONARY_BYTES = 1 << 20
"""Arrow gives a dictionary up at 1 MiB and encodes plainly from there on: the hashing until then is lost."""

INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
"""Parquet has no interval that pyarrow writes."""


def stored_type(kind: Any, /) -> pa.DataType:
    """The Arrow type that a column has in the file: intervals become a struct of three integers, at any depth."""
    types = pa.types
    if types.is_interval(kind):
        return INTERVAL
    if types.is_list(kind):
        return pa.list_(_stored_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_stored_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        sized: pa.DataType = pa.list_(_stored_field(kind.value_field), kind.list_size)
        return sized
    if types.is_struct(kind):
        return pa.struct([_stored_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        item: Any = _stored_field(kind.item_field)
        mapped: pa.DataType = pa.map_(stored_type(kind.key_type), item)
        return mapped
    kept: pa.DataType = kind
    return kept


def _stored_field(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    return field.with_type(stored_type(field.type))


def stored_schema(schema: pa.Schema, /) -> pa.Schema:
    """The schema of the files."""
    metadata: Any = schema.metadata
    return pa.schema([_stored_field(f) for f in schema], metadata=metadata)


def stored(array: Column, kind: Any, /) -> Column:
    """The column as `kind`, its stored type; what is stored as it is is not copied."""
    if array.type == kind:
        return array
    if pa.types.is_interval(array.type):
        return _interval(array)
    validity = bitmap_of(array)
    if pa.types.is_struct(kind):
        children = [stored(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [validity], children=children)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        return pa.Array.from_buffers(kind, len(array), [validity], children=[stored(items, kind.value_type)])
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    moved = values_of(offsets, f"i{offsets.type.bit_width // 8}") - first
    if pa.types.is_map(kind):
        keys = stored(array.keys.slice(first, last - first), kind.key_type)
        items = stored(array.items.slice(first, last - first), kind.item_type)
        entries = pa.Array.from_buffers(
            pa.struct([kind.key_field, kind.item_field]), last - first, [None], children=[keys, items]
        )
    else:
        entries = stored(array.values.slice(first, last - first), kind.value_type)
    return pa.Array.from_buffers(kind, len(array), [validity, buffer_of(moved)], children=[entries])


def _interval(array: Column) -> Column:
    fields = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    values = values_of(array, fields)
    children = [
        pa.Array.from_buffers(INTERVAL.field(i).type, len(array), [None, buffer_of(values[n])])
        for i, n in enumerate(("months", "days", "nanoseconds"))
    ]
    return pa.Array.from_buffers(INTERVAL, len(array), [bitmap_of(array)], children=children)


@dataclass(frozen=True, slots=True)
class Encodings:
    """How each column is stored; one that is in none of the first three is stored plainly.

    Attributes:
        dictionary: Columns with a dictionary.
        delta: Integers as packed differences.
        lengths: Text as all lengths, then all bytes: an eighth smaller after zstd than with a length before each value.
        statistics: Columns whose smallest and largest values are kept.
    """

    dictionary: tuple[str, ...]
    delta: tuple[str, ...]
    lengths: tuple[str, ...]
    statistics: tuple[str, ...]


def choose_encodings(table: pa.Table, /) -> Encodings:
    """What pays, from a sample of the first row group.

    A dictionary where few values repeat (its cost elsewhere: a quarter of all encoding time of a wide table, without
    smaller files); packed differences for integers where they need few bits, since packing them is cheaper than
    hashing every value, or than compressing the plain ones. Smallest and largest values for all but text that comes in
    no order: of such they are nearly the same in every row group, so nobody can skip one by them, and comparing every
    value took a sixth of the encoding of a wide table.
    """
    dictionary: list[str] = []
    delta: list[str] = []
    lengths: list[str] = []
    statistics: list[str] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = field.type
        values = _repeats(column, kind) if _flat(kind) else None
        if not _is_text(kind) or _in_order(column):
            statistics.append(field.name)
        integers = _integer_view(column)
        step_bits = _step_bits(integers) if integers is not None else None
        if step_bits is not None and step_bits <= (
            kind.bit_width // 2 if values is None else np.log2(max(values, 1)) + _BITS_FOR_HASHING
        ):
            delta.append(field.name)
        elif pa.types.is_dictionary(kind) or values is not None:
            dictionary.append(field.name)
        elif _is_text(kind):
            lengths.append(field.name)
    return Encodings(tuple(dictionary), tuple(delta), tuple(lengths), tuple(statistics))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)


def _in_order(column: Column) -> bool:
    """Whether nine in ten neighbours of a spread sample ascend, or descend."""
    sample = _spread(column, _ORDER_SAMPLE).drop_null()
    if len(sample) < 2:
        return True
    rises = pc.mean(pc.greater_equal(sample.slice(1), sample.slice(0, len(sample) - 1))).as_py()
    return not 0.1 < rises < 0.9


def _spread(column: Column, size: int) -> Column:
    """Every n-th value, about `size` of them, taken chunk by chunk: Arrow would join all chunks first and hold them."""
    step = max(1, len(column) // size)
    first, pieces = 0, []
    for chunk in column.chunks:
        picks = np.arange(first, len(chunk), step, dtype=np.int64)
        first += len(picks) * step - len(chunk)
        if len(picks):
            pieces.append(chunk.take(column_of(pa.int64(), picks)))
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, column.type)


def _flat(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_nested(kind) or types.is_boolean(kind) or types.is_null(kind) or types.is_dictionary(kind))


def _integer_view(column: Column) -> NDArray[np.int64] | None:
    """The first valid values of a column that Parquet stores as a 32- or 64-bit integer; None for other columns."""
    kind, types = column.type, pa.types
    if not (
        types.is_int32(kind)
        or types.is_int64(kind)
        or types.is_uint32(kind)
        or types.is_uint64(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_time64(kind)
        or types.is_duration(kind)
        or (types.is_decimal128(kind) and kind.precision <= 18)
    ):
        return None
    values: list[NDArray[np.int64]] = []
    have = 0
    for chunk in column.chunks:
        if not len(chunk):
            continue
        head = chunk.slice(0, _SAMPLE - have)
        if types.is_decimal(kind):
            part = values_of(head, "V16").view(np.int64)[0::2]
        else:
            part = values_of(head, f"i{kind.bit_width // 8}").astype(np.int64)
        if head.null_count:
            part = part[valid_of(head)]
        values.append(part)
        have += len(part)
        if have >= _SAMPLE:
            break
    return np.concatenate(values) if values else np.zeros(0, np.int64)


def _step_bits(values: NDArray[np.int64]) -> float | None:
    """Bits per value of DELTA_BINARY_PACKED: the spread of the differences within runs of 32 values; None: too few."""
    runs = (len(values) - 1) // _RUN
    if runs < 2:
        return None
    steps = np.diff(values.view(np.uint64)).view(np.int64)[: runs * _RUN].reshape(runs, _RUN)
    spread = (steps.max(axis=1).view(np.uint64) - steps.min(axis=1).view(np.uint64)).astype(np.float64)
    return float(np.ceil(np.log2(spread + 1)).mean())


def _repeats(column: Column, kind: Any) -> float | None:
    """How many values there are, estimated from a spread sample; None where a dictionary of them would not be small."""
    rows = len(column)
    if not rows:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return None
    sample = _spread(column, _SAMPLE)
    valid = len(sample) - sample.null_count
    if not valid:
        return 0.0
    seen = pc.count_distinct(sample).as_py()
    values = _distinct(valid, seen, rows)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        width = 4 + sample.nbytes / valid
    else:
        width = max(4, kind.bit_width // 8)
    small = values <= min(_DICTIONARY_VALUES, rows / 8) and values * width <= _DICTIONARY_BYTES
    return values if small else None


def _distinct(drawn: int, seen: int, rows: int) -> float:
    """How many values there are if `drawn` of them, drawn at random, showed `seen`: D(1 - e^(-drawn/D)) = seen."""
    if drawn >= rows or seen >= drawn:
        return float(seen if drawn >= rows else rows)
    low, high = float(seen), float(max(rows, seen))
    for _ in range(50):
        middle = (low + high) / 2
        if middle * -np.expm1(-drawn / middle) < seen:
            low = middle
        else:
            high = middle
    return high


class ParquetPart:
    """Writes the rows of one part (of one split) to one or more files.

    Batches are held until a row group is full and let go once it is written: at most one row group is in memory.

    Args:
        folder: The stage.
        schema: The Arrow schema of the batches.
        split: The split of the rows.
        name: The n-th file's name in the stage.
        file_bytes: A file ends when it has this size after a row group.
        group_rows: A row group ends at so many rows …
        group_bytes: … or so many bytes of Arrow data, whichever comes first.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        split: str,
        name: Callable[[int], str],
        *,
        file_bytes: int,
        group_rows: int = 1 << 20,
        group_bytes: int = 64 << 20,
    ) -> None:
        self._schema = stored_schema(schema)
        self._changed = [i for i, f in enumerate(schema) if f.type != self._schema.field(i).type]
        self._folder = folder
        self._split = split
        self._name = name
        self._file_bytes = file_bytes
        self._group_rows = group_rows
        self._group_bytes = group_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._encodings: Encodings | None = None
        self._file: HashingFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._done: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take the rows of one batch."""
        while batch.num_rows:
            room = self._group_rows - self._held_rows
            head = batch if batch.num_rows <= room else batch.slice(0, room)
            batch = batch.slice(head.num_rows)
            self._held.append(head)
            self._held_rows += head.num_rows
            self._held_bytes += head.nbytes
            if self._held_rows >= self._group_rows or self._held_bytes >= self._group_bytes:
                self._flush()

    def write_stored(self, batch: pa.RecordBatch, /) -> None:
        """Take a batch that is of the stored schema already."""
        self._changed = []
        self.write(batch)

    def end_group(self) -> None:
        """Write what is held, however little it is."""
        if self._held:
            self._flush()

    def take(self, path: str, /) -> None:
        """Take the rows of a file of the folder and of the same schema; what `write` took before is in ended groups."""
        with pq.ParquetFile(self._folder / path) as file:
            for batch in file.iter_batches():
                self.write_stored(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))

    def close(self, *, empty: bool = False) -> list[StagedFile]:
        """Finish the last file. With `empty`, a file without rows is written when there were none."""
        if self._held or (empty and not self._done and self._writer is None):
            self._flush()
        self._end_file()
        return self._done

    def abandon(self) -> None:
        """Close what is open without finishing it; the stage is removed by its owner."""
        self._held.clear()
        if self._writer is not None:
            # Else pyarrow would close it when it is collected, into a file that is gone.
            with suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
            self._writer = None
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        batches, self._held = self._held, []
        if self._changed:
            batches = [self._convert(b) for b in batches]
        table = pa.Table.from_batches(batches, self._schema)
        del batches
        rows, self._held_rows, self._held_bytes = self._held_rows, 0, 0
        if self._encodings is None:
            self._encodings = choose_encodings(table)
        if self._writer is None or self._file is None:
            self._file = HashingFile(self._folder / self._name(len(self._done)))
            self._writer = open_writer(self._file, self._schema, self._encodings)
        if rows:
            self._writer.write_table(table, row_group_size=rows)
        self._rows += rows
        if self._file.size >= self._file_bytes:
            self._end_file()

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = batch.columns
        for i in self._changed:
            columns[i] = stored(columns[i], self._schema.field(i).type)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _end_file(self) -> None:
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        self._file.close()
        self._done.append(
            StagedFile(
                str(self._file.path.relative_to(self._folder)),
                self._split,
                self._rows,
                self._file.size,
                self._file.hexdigest(),
            )
        )
        self._writer, self._file, self._rows = None, None, 0


def open_writer(file: HashingFile, schema: pa.Schema, encodings: Encodings, /) -> pq.ParquetWriter:
    """A writer with our settings. `store_schema` brings types back that Parquet lacks (durations, uuid, enums)."""
    where: Any = file  # the stubs want a file of io; pyarrow asks for write, flush, close and closed
    dictionary: Any = list(encodings.dictionary)  # the stubs know the flag only
    statistics: Any = list(encodings.statistics)  # as above
    fast = {*encodings.delta, *(f.name for f in schema if pa.types.is_floating(f.type))} - {*encodings.dictionary}
    levels: Any = {f.name: _FAST_LEVEL if f.name in fast else _LEVEL for f in schema}
    packed = dict.fromkeys(encodings.delta, "DELTA_BINARY_PACKED")
    packed |= dict.fromkeys(encodings.lengths, "DELTA_LENGTH_BYTE_ARRAY")
    return pq.ParquetWriter(
        where,
        schema,
        compression="zstd",
        compression_level=levels,
        use_dictionary=dictionary,
        column_encoding=packed or None,
        write_statistics=statistics,
        write_batch_size=_WRITE_BATCH,
        store_schema=True,
        store_decimal_as_integer=True,
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
    )
