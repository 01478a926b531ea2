"""Safetensors data files: aligned, deterministic, written front to back and hashed on the way.

The standard writer's metadata order varies from call to call and it wants whole tensors; this one takes chunks.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from connectors.base import StagedFile
from etl.core.canonical import canonical_json
from etl.core.errors import CastError, Damaged
from etl.tensors import manifest as documents
from etl.tensors.cast import CastCount, Refused, into, parse_fill
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.pack import ITEM_BYTES, tensor_specs
from etl.tensors.storage import HashingFile
from etl.tensors.views import Column, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.options import WriteOptions
    from etl.tensors.pack import ColumnPlan, PackPlan, TensorSpec

SUFFIX = ".safetensors"
ALIGN = 4096
"""Data begin at a multiple: direct I/O and GPUDirect need 4 KiB pages."""
ROWS = 4096
"""Rows per file are a multiple, so that every fixed-width tensor begins on a 4 KiB boundary too."""
BLOCK_ROWS = 16 * ROWS
_MOST = 100 << 20
"""The format's own limit for a header."""
_WORDS = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}
DTYPES = {word: name for name, word in _WORDS.items()}
"""The format's words → ours."""


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """One tensor of a file: safetensors dtype, shape, offset from the data's start, bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header: where data start, its tensors, its metadata."""

    data_start: int
    tensors: Mapping[str, TensorSpan]
    metadata: Mapping[str, str]


def read_header(path: Path, /) -> Header:
    """Read a file's header.

    Raises:
        Damaged: It is none.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST:
                raise Damaged(f"{path} has a header of {length} bytes", path=str(path))
            entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        spans = {
            name: TensorSpan(e["dtype"], tuple(e["shape"]), first, last - first)
            for name, e in entries.items()
            for first, last in [e["data_offsets"]]
        }
    except (ValueError, KeyError, TypeError, struct.error, AttributeError, IndexError) as error:
        raise Damaged(f"{path} has no safetensors header: {error!r}", path=str(path)) from error
    return Header(8 + length, spans, metadata)


def header_bytes(
    tensors: Sequence[tuple[str, str, tuple[int, ...]]], metadata: str, /
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The header of a file, padded so that data begin at a multiple of `ALIGN`.

    Args:
        tensors: Name, dtype in our words, shape; in file order.
        metadata: The text of the single metadata key `cuetl`. One key, since the order of several would vary.

    Returns:
        The bytes, and per tensor its offset from the data's start and its bytes.
    """
    entries: dict[str, object] = {"__metadata__": {"cuetl": metadata}}
    spans: dict[str, tuple[int, int]] = {}
    offset = 0
    for name, dtype, shape in tensors:
        size = ITEM_BYTES[dtype]
        for extent in shape:
            size *= extent
        spans[name] = (offset, size)
        entries[name] = {"dtype": _WORDS[dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    length = -(-(8 + len(text)) // ALIGN) * ALIGN - 8
    return struct.pack("<Q", length) + text.ljust(length), spans


class _Blocks:
    """Memory that is used again from file to file: fresh pages cost more than filling them.

    Attributes:
        keep: Most bytes kept free.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}
        self._bytes = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        """A block of that many bytes with any content."""
        try:
            block = self._free[size].pop()
        except (KeyError, IndexError):
            return np.empty(size, np.uint8)
        self._bytes -= size
        return block

    def give(self, block: NDArray[np.uint8]) -> None:
        """A block that nobody holds any more."""
        if self._bytes + block.nbytes <= self.keep:
            self._bytes += block.nbytes
            self._free.setdefault(block.nbytes, deque()).append(block)


_BLOCKS = _Blocks(96 << 20)


class _Segment:
    """The rows of one file to be, tensor after tensor, in blocks."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        self._blocks: list[list[NDArray[np.uint8]]] = [[] for _ in specs]
        self.items: dict[str, list[NDArray[Any]]] = {s.name: [] for s in specs if s.part == "items"}
        self.rows = 0
        self.bytes = 0

    def room(self, rows: int, /) -> int:
        """Rows up to the end of the block, at most so many."""
        return min(rows, BLOCK_ROWS - self.rows % BLOCK_ROWS)

    def slots(self, rows: int, /) -> list[NDArray[Any]]:
        """Where the next rows go, per tensor: [rows, …]; nothing for ragged items."""
        at = self.rows % BLOCK_ROWS
        found: list[NDArray[Any]] = []
        for spec, blocks in zip(self._specs, self._blocks, strict=True):
            if spec.part == "items":
                found.append(np.zeros(0))
                continue
            if not at:
                blocks.append(_BLOCKS.take(BLOCK_ROWS * spec.row_bytes))
            whole = blocks[-1].view(_numpy(spec.dtype)).reshape(BLOCK_ROWS, *spec.row_shape)
            found.append(whole[at : at + rows])
            self.bytes += rows * spec.row_bytes
        self.rows += rows
        return found

    def chunks(self, index: int, /) -> list[NDArray[Any]]:
        """The bytes of one tensor in order."""
        spec = self._specs[index]
        if spec.part == "items":
            return self.items[spec.name]
        left = self.rows * spec.row_bytes
        found: list[NDArray[Any]] = []
        for block in self._blocks[index]:
            found.append(block[: min(left, block.nbytes)])
            left -= block.nbytes
        return found

    def release(self) -> None:
        """Give the blocks back."""
        for blocks in self._blocks:
            for block in blocks:
                _BLOCKS.give(block)
            blocks.clear()
        self.items.clear()


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


class TensorPart:
    """Writes the rows of one part (of one split) to one or more files.

    Rows are gathered column by column. A file has the target's number of rows, a multiple of 4096; the last takes up
    to half as many again, so at most 1.5 times the target is in memory.

    Args:
        folder: The stage.
        schema: Of the batches.
        plan: Which column goes where.
        split: The split of the rows.
        name: The n-th file's stem in the stage.
        end: What its temporary name ends in.
        options: The writing flags.
        place: What the rows are of, for messages.
        casts: Column → what casting changed; shared by the splits of a part.
    """

    def __init__(
        self,
        folder: Path,
        schema: Schema,
        plan: PackPlan,
        split: str,
        name: Callable[[int], str],
        end: str,
        options: WriteOptions,
        place: str,
        casts: dict[str, CastCount],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._split = split
        self._name = name
        self._end = end
        self._options = options
        self._place = place
        self._casts = casts
        self._specs = tensor_specs(plan)
        self._ragged = any(s.part == "items" for s in self._specs)
        self._at = {f.name: i for i, f in enumerate(schema)}
        self._fills = {
            c.field.name: parse_fill(c.nulls.removeprefix("fill="), c.dtype, c.scale)
            for c in plan.columns
            if c.nulls.startswith("fill=")
        }
        texts = [c.field for c in plan.columns if not c.tensor]
        self._text_names = [f.name for f in texts]
        self._text_schema = pa.schema([f.to_arrow() for f in texts])
        row_bytes = sum(s.row_bytes for s in self._specs if s.part != "items")
        target = max(1, options.partition_bytes)
        self._limit_bytes = target
        self._limit_rows = max(ROWS, target // max(1, row_bytes) // ROWS * ROWS)
        self._full: _Segment | None = None
        self._open = _Segment(self._specs)
        self._text: ParquetPart | None = None
        self._later: list[pa.RecordBatch] = []
        self._taken = 0
        self._done: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take the rows of one batch.

        Raises:
            CastError: A value that `--cast` refuses, or a NULL inside a list.
        """
        start = 0
        while start < batch.num_rows:
            segment = self._open
            rows = min(segment.room(batch.num_rows - start), self._limit_rows - segment.rows)
            if self._ragged:
                # Items have any size: it is looked at every 4096 rows.
                rows = min(rows, ROWS - segment.rows % ROWS)
            piece = batch.slice(start, rows)
            self._gather(piece, segment)
            if self._text_names:
                self._take_text(piece)
            start += rows
            self._taken += rows
            if self._full is not None and (
                2 * self._open.rows >= self._limit_rows or 2 * self._open.bytes >= self._limit_bytes
            ):
                self._emit(self._full, None)
                self._full = None
                self._end_text()
            ended = segment.rows >= self._limit_rows or (
                self._ragged and segment.rows % ROWS == 0 and segment.bytes >= self._limit_bytes
            )
            if ended and self._full is None:
                self._full, self._open = segment, _Segment(self._specs)

    def close(self, *, empty: bool = False) -> list[StagedFile]:
        """Finish the last file. With `empty`, a file without rows is written when there were none."""
        if self._full is not None:
            self._emit(self._full, self._open if self._open.rows else None)
        elif self._open.rows or (empty and not self._done):
            self._emit(self._open, None)
        self._full = None
        return self._done

    def abandon(self) -> None:
        """Let go of memory and of the text file that is open."""
        for segment in (self._full, self._open):
            if segment is not None:
                segment.release()
        if self._text is not None:
            self._text.abandon()

    def _gather(self, batch: pa.RecordBatch, segment: _Segment) -> None:
        first = segment.rows
        for spec, out in zip(self._specs, segment.slots(batch.num_rows), strict=True):
            for number, column in enumerate(spec.columns):
                values = batch.column(self._at[column.field.name])
                target = out[:, number] if column.index is not None and spec.part != "items" else out
                try:
                    self._fill(spec, column, values, target, segment)
                except Refused as refused:
                    segment.rows = first
                    raise self._refusal(batch, column, refused) from None

    def _fill(self, spec: TensorSpec, column: ColumnPlan, values: Column, out: NDArray[Any], segment: _Segment) -> None:
        match spec.part:
            case "valid":
                if values.null_count:
                    out[:] = valid_of(values)
                else:
                    out[:] = True
            case "lengths":
                out[:] = _lengths(values)
            case "items":
                items = self._cast(column, _items(values))
                segment.items[spec.name].append(items)
                segment.bytes += items.nbytes
            case _ if column.kind == "embedding":
                out[:] = self._cast(column, _wide(values)).reshape(out.shape)
                if values.null_count:
                    out[~valid_of(values)] = 0
            case _:
                fill = self._fills.get(column.field.name, 0)
                declared = column.field.type
                into(values, out, column.dtype, self._options.cast, self._count(column), fill=fill, declared=declared)

    def _cast(self, column: ColumnPlan, items: Column) -> NDArray[Any]:
        out = np.empty(len(items), _numpy(column.dtype))
        into(items, out, column.dtype, self._options.cast, self._count(column))
        return out

    def _count(self, column: ColumnPlan) -> CastCount:
        return self._casts.setdefault(column.field.name, CastCount())

    def _refusal(self, batch: pa.RecordBatch, column: ColumnPlan, refused: Refused) -> CastError:
        name = column.field.name
        keys = [n for n in self._options.key if n in self._at]
        if keys and column.kind not in {"embedding", "ragged"}:
            named = ", ".join(f"{k} = {batch.column(self._at[k])[refused.row].as_py()}" for k in keys)
        else:
            side = "" if self._split == "all" else f" of split {self._split}"
            named = f"{self._place}, row {self._taken + refused.row + 1}{side}"
        values: Column = batch.column(self._at[name])
        value = ""
        if column.kind not in {"embedding", "ragged"}:
            value = f" {values[refused.row].as_py()}"
        policy = self._options.cast
        return CastError(
            f"column {name}: the value{value} ({named}) cannot be {column.dtype}: {refused} (--cast {policy})",
            hint=f"Use --cast {'round or saturate' if policy == 'exact' else 'saturate'}, another --dtype, or leave "
            "the column out.",
            column=name,
        )

    def _take_text(self, piece: pa.RecordBatch) -> None:
        chosen = pa.RecordBatch.from_arrays(
            [piece.column(self._at[n]) for n in self._text_names], schema=self._text_schema
        )
        # Text of the open file waits until it is known whether the file before takes it in.
        if self._full is not None:
            self._later.append(chosen)
        else:
            self._text_writer().write(chosen)

    def _text_writer(self) -> ParquetPart:
        if self._text is None:
            stem = self._name(len(self._done))
            (self._folder / documents.TEXT).mkdir(exist_ok=True)
            self._text = ParquetPart(
                self._folder,
                self._text_schema,
                self._split,
                lambda _: f"{documents.TEXT}/{stem}.parquet{self._end}",
                file_bytes=1 << 62,
                group_rows=self._options.row_group_rows,
                group_bytes=self._options.row_group_bytes,
            )
        return self._text

    def _end_text(self) -> None:
        """After a file: the text that waited belongs to the next one."""
        self._text = None
        later, self._later = self._later, []
        for one in later:
            self._text_writer().write(one)

    def _emit(self, segment: _Segment, tail: _Segment | None) -> None:
        segments = [segment] if tail is None else [segment, tail]
        rows = sum(s.rows for s in segments)
        tensors: list[tuple[str, str, tuple[int, ...]]] = []
        for spec in self._specs:
            count = sum(len(a) for s in segments for a in s.items[spec.name]) if spec.part == "items" else rows
            tensors.append((spec.name, spec.dtype, (count, *spec.row_shape)))
        head, spans = header_bytes(tensors, file_metadata(self._plan, self._split))
        stem = self._name(len(self._done))
        file = HashingFile(self._folder / f"{stem}{SUFFIX}{self._end}")
        try:
            file.write(head)
            for index in range(len(self._specs)):
                for one in segments:
                    for chunk in one.chunks(index):
                        data: Any = chunk  # the stubs know no buffer protocol
                        if len(chunk):
                            file.write(data)
        finally:
            file.close()
        facts: dict[str, object] = {"data_start": len(head), "tensors": {n: list(v) for n, v in spans.items()}}
        if self._text_names:
            facts["text_file"] = self._finished_text(tail)
        for one in segments:
            one.release()
        path = str(file.path.relative_to(self._folder))
        self._done.append(StagedFile(path, self._split, rows, file.size, file.hexdigest(), facts))

    def _finished_text(self, tail: _Segment | None) -> dict[str, object]:
        writer = self._text_writer()
        if tail is not None:
            later, self._later = self._later, []
            for one in later:
                writer.write(one)
        (text,) = writer.close(empty=True)
        return {"path": text.path, "bytes": text.bytes, "sha256": text.sha256}


def file_metadata(plan: PackPlan, split: str, /) -> str:
    """What a file says of itself: no run, time or host, so that equal rows are equal bytes."""
    columns = [
        {
            "name": c.field.name,
            "dtype": c.dtype,
            "nullable": c.field.nullable,
            "role": c.role,
            "tensor": c.tensor,
            "index": c.index,
        }
        for c in plan.columns
    ]
    return (
        canonical_json(
            {
                "format_version": documents.FORMAT_VERSION,
                "split": split,
                "columns": columns,
                "feature_order_sha256": documents.names_sha256(plan.features),
                "schema_sha256": documents.schema_sha256(columns),
            }
        )
        .decode()
        .rstrip("\n")
    )


def _lengths(column: Column) -> NDArray[np.int64]:
    """Items per list; 0 where there is none."""
    offsets = values_of(column.offsets, f"i{column.offsets.type.bit_width // 8}").astype(np.int64)
    lengths: NDArray[np.int64] = np.diff(offsets)
    if column.null_count:
        lengths = np.where(valid_of(column), lengths, 0)
    if len(lengths) and int(lengths.max()) > np.iinfo(np.int32).max:
        raise Refused("a list of more than 2^31 items", row=int(lengths.argmax()))
    return lengths


def _items(column: Column) -> Column:
    """The items of all lists in order.

    Raises:
        Refused: One is NULL.
    """
    items = column.flatten()
    if items.null_count:
        at = int(np.flatnonzero(~valid_of(items))[0])
        raise Refused("a NULL inside a list", row=int(np.searchsorted(np.cumsum(_lengths(column)), at, side="right")))
    return items


def _wide(column: Column) -> Column:
    """The items of fixed-size lists, also of absent ones.

    Raises:
        Refused: An item of a list that is there is NULL.
    """
    size = column.type.list_size
    items = column.values.slice(column.offset * size, len(column) * size)
    if items.null_count:
        bad = ~valid_of(items).reshape(len(column), size).all(axis=1) & valid_of(column)
        if bad.any():
            raise Refused("a NULL inside a list", row=int(np.flatnonzero(bad)[0]))
    return items
