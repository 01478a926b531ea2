"""The rows of one part gathered column by column into the tensors of a file; a format's encoder then writes them.

Whatever the format, a file has the same tensors with the same bytes: here values are cast, absent ones filled, lists
taken apart, and text put beside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.canonical import canonical_json
from etl.core.errors import CastError
from etl.tensors import manifest as documents
from etl.tensors.cast import CastCount, Refused, into, parse_fill
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.pack import tensor_specs
from etl.tensors.segments import ROWS, Contents, Segment, held_dtype
from etl.tensors.views import Column, mask_of, shown, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from connectors.base import StagedFile
    from etl.core.schema import Schema
    from etl.tensors.options import WriteOptions
    from etl.tensors.pack import ColumnPlan, PackPlan, TensorSpec
    from etl.tensors.segments import Encode


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
        encode: Writes a file.
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
        encode: Encode,
    ) -> None:
        self._encode = encode
        self._folder = folder
        self._split = split
        self._name = name
        self._end = end
        self._options = options
        self._place = place
        self._casts = casts
        self._specs = tensor_specs(plan)
        self._metadata = file_metadata(plan, split)
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
        self._full: Segment | None = None
        self._open = Segment(self._specs)
        self._text: ParquetPart | None = None
        self._next_text: ParquetPart | None = None
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
                self._text, self._next_text = self._next_text, None
            ended = segment.rows >= self._limit_rows or (
                self._ragged and segment.rows % ROWS == 0 and segment.bytes >= self._limit_bytes
            )
            if ended and self._full is None:
                self._full, self._open = segment, Segment(self._specs)
                if self._text is not None:
                    self._text.end_group()  # of two files that are open one row group is in memory

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
        for text in (self._text, self._next_text):
            if text is not None:
                text.abandon()

    def _gather(self, batch: pa.RecordBatch, segment: Segment) -> None:
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

    def _fill(self, spec: TensorSpec, column: ColumnPlan, values: Column, out: NDArray[Any], segment: Segment) -> None:
        match spec.part:
            case "valid":
                if values.null_count:
                    out[:] = valid_of(values)
                else:
                    out[:] = True
            case "lengths":
                out[:] = _lengths(values)
            case "items":
                items = self._cast(column, _items(values), values)
                segment.items[spec.name].append(items)
                segment.bytes += items.nbytes
            case _ if column.kind == "embedding":
                out[:] = self._cast(column, _wide(values), values).reshape(out.shape)
                if values.null_count:
                    out[~valid_of(values)] = 0
            case _:
                fill = self._fills.get(column.field.name, 0)
                declared = column.field.type
                into(values, out, column.dtype, self._options.cast, self._count(column), fill=fill, declared=declared)

    def _cast(self, column: ColumnPlan, items: Column, lists: Column) -> NDArray[Any]:
        out = np.empty(len(items), held_dtype(column.dtype))
        try:
            into(items, out, column.dtype, self._options.cast, self._count(column))
        except Refused as refused:
            # Of the items: the row is that of their list.
            if column.kind == "embedding":
                row = refused.row // lists.type.list_size
            else:
                row = int(np.searchsorted(np.cumsum(_lengths(lists)), refused.row, side="right"))
            raise Refused(str(refused), row=row, mended_by=refused.mended_by) from None
        return out

    def _count(self, column: ColumnPlan) -> CastCount:
        return self._casts.setdefault(column.field.name, CastCount())

    def _refusal(self, batch: pa.RecordBatch, column: ColumnPlan, refused: Refused) -> CastError:
        name = column.field.name
        keys = [n for n in self._options.key if n in self._at]
        if keys and column.kind not in {"embedding", "ragged"}:
            named = ", ".join(f"{k} = {shown(batch.column(self._at[k]), refused.row)}" for k in keys)
        else:
            side = "" if self._split == "all" else f" of split {self._split}"
            named = f"{self._place}, row {self._taken + refused.row + 1}{side}"
        values: Column = batch.column(self._at[name])
        value = ""
        if column.kind not in {"embedding", "ragged"}:
            value = f" {shown(values, refused.row)}"
        policy = self._options.cast
        cast = f"--cast {refused.mended_by}, " if refused.mended_by else ""
        return CastError(
            f"column {name}: the value{value} ({named}) cannot be {column.dtype}: {refused} (--cast {policy})",
            hint=f"Use {cast}another --dtype, or leave the column out.",
            column=name,
        )

    def _take_text(self, piece: pa.RecordBatch) -> None:
        chosen = pa.RecordBatch.from_arrays(
            [piece.column(self._at[n]) for n in self._text_names], schema=self._text_schema
        )
        # While a full file waits to know whether it takes in the open one, the open one's text is a file of its own: it
        # has any size, and so is not held.
        if self._full is None:
            self._text = self._text or self._text_writer(0)
            self._text.write(chosen)
        else:
            self._next_text = self._next_text or self._text_writer(1)
            self._next_text.write(chosen)

    def _text_writer(self, ahead: int) -> ParquetPart:
        stem = self._name(len(self._done) + ahead)
        (self._folder / documents.TEXT).mkdir(exist_ok=True)
        return ParquetPart(
            self._folder,
            self._text_schema,
            self._split,
            lambda _: f"{documents.TEXT}/{stem}.parquet{self._end}",
            file_bytes=1 << 62,
            group_rows=self._options.row_group_rows,
            group_bytes=self._options.row_group_bytes,
        )

    def _emit(self, segment: Segment, tail: Segment | None) -> None:
        segments = [segment] if tail is None else [segment, tail]
        rows = sum(s.rows for s in segments)
        counts = [
            sum(len(a) for s in segments for a in s.items[spec.name]) if spec.part == "items" else rows
            for spec in self._specs
        ]

        def chunks(index: int) -> Iterator[NDArray[Any]]:
            for one in segments:
                yield from one.chunks(index)

        contents = Contents(self._split, rows, self._specs, counts, self._metadata, chunks)
        made = self._encode(self._folder, self._name(len(self._done)), self._end, contents)
        if self._text_names:
            made = replace(made, facts={**made.facts, "text_file": self._finished_text(joined=tail is not None)})
        for one in segments:
            one.release()
        self._done.append(made)

    def _finished_text(self, *, joined: bool) -> dict[str, object]:
        writer = self._text = self._text or self._text_writer(0)
        if joined and self._next_text is not None:
            (tail,) = self._next_text.close()
            writer.take(tail.path)
            (self._folder / tail.path).unlink()
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
    """The items of fixed-size lists; those of absent ones are NULL.

    Raises:
        Refused: An item of a list that is there is NULL.
    """
    size = column.type.list_size
    items = column.values.slice(column.offset * size, len(column) * size)
    if items.null_count:
        bad = ~valid_of(items).reshape(len(column), size).all(axis=1) & valid_of(column)
        if bad.any():
            raise Refused("a NULL inside a list", row=int(np.flatnonzero(bad)[0]))
    if column.null_count:
        # What lies under an absent list is no value, and nothing to refuse or to count.
        items = pc.if_else(mask_of(np.repeat(valid_of(column), size)), items, pa.scalar(None, items.type))
    return items
