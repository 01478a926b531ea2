"""Data files made anew of published ones: several joined into one, or one without some of its rows.

Nothing is decoded and cast again: tensors are copied as they lie, text and Parquet rows as they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.core.errors import ConfigError, Damaged
from etl.core.schema import Field
from etl.tensors.encode import ENCODERS, MAPPED, SUFFIXES, mapped
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.gather import file_metadata
from etl.tensors.manifest import TEXT, FileEntry, StoredFile, integer, sequence
from etl.tensors.options import WriteOptions
from etl.tensors.pack import ColumnPlan, PackPlan, TensorSpec, tensor_specs
from etl.tensors.segments import BLOCK_ROWS, Contents
from etl.tensors.verify import hash_of
from etl.tensors.versions import located
from etl.tensors.views import mask_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from connectors.base import StagedFile
    from etl.tensors.manifest import Manifest
    from etl.tensors.places import Target


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one published file.

    Attributes:
        file: The file.
        keep: Which rows, [rows]; None: all.
    """

    file: FileEntry
    keep: NDArray[np.bool_] | None = None

    @property
    def rows(self) -> int:
        """How many are taken."""
        return self.file.rows if self.keep is None else int(np.count_nonzero(self.keep))


def check_format(manifest: Manifest, operation: str, /) -> None:
    """Hold that files of this format can be made anew.

    Raises:
        ConfigError: They cannot.
    """
    if manifest.format != "parquet" and manifest.format not in MAPPED:
        raise ConfigError(
            f"version {manifest.version} holds {manifest.format} files, which {operation} cannot make anew",
            hint="Export again with --mode replace; `cuetl dataset vacuum --keep 1` then takes older data away.",
        )


def check_whole(folder: Target, files: Sequence[FileEntry], /) -> None:
    """Hold that files are what the manifest says, before rows of them are written under new hashes.

    Raises:
        Damaged: One is missing, or has another hash.
    """
    for one in (one for file in files for one in file.stored):
        try:
            digest = hash_of(located(folder, one.path))
        except FileNotFoundError as error:
            raise Damaged(f"{one.path} of {folder} is missing", path=one.path) from error
        if digest != one.sha256:
            raise Damaged(
                f"{one.path} of {folder} has sha256 {digest}, not {one.sha256}",
                hint="Nothing was changed. Restore the file from a copy, or export again with --mode replace.",
                path=one.path,
            )


def made_anew(folder: Target, manifest: Manifest, pieces: Sequence[Piece], stage: Path, stem: str, /) -> FileEntry:
    """Write one file, and the text beside it, of the rows of several files of one split.

    Memory: one block of rows, or one row group.

    Args:
        folder: The dataset.
        manifest: A version that lists the files.
        pieces: Files and rows, in order.
        stage: Where to write.
        stem: The new file's stem.

    Returns:
        Its entry: `row_start` is 0, `added_in_version` that of the newest piece.

    Raises:
        Damaged: A file lacks a tensor, or has another number of rows; hold with `check_whole` that it is whole.
        OSError: The disk is full, or refused.
    """
    split = pieces[0].file.split
    rows = sum(p.rows for p in pieces)
    if manifest.format == "parquet":
        paths = [(p.file.path, p.keep) for p in pieces]
        file = _parquet(folder, paths, stage, f"{stem}{SUFFIXES['parquet']}", split)
    else:
        file = ENCODERS[manifest.format](stage, stem, "", _contents(folder, manifest, pieces, split, rows))
    texts = [(p.file.text_file.path, p.keep) for p in pieces if p.file.text_file is not None]
    text = None
    if texts:
        (stage / TEXT).mkdir(exist_ok=True)
        made = _parquet(folder, texts, stage, f"{TEXT}/{stem}.parquet", split)
        text = StoredFile(made.path, made.bytes, made.sha256)
        if made.rows != rows:
            raise Damaged(f"{texts[0][0]} of {folder} has other rows than the tensors beside it", path=texts[0][0])
    if file.rows != rows:
        raise Damaged(f"{pieces[0].file.path} of {folder} has other rows than the manifest says")
    tensors, members = file.facts.get("tensors"), file.facts.get("members")
    start = file.facts.get("data_start")
    return FileEntry(
        path=file.path,
        split=split,
        rows=rows,
        bytes=file.bytes,
        sha256=file.sha256,
        row_start=0,
        added_in_version=max(p.file.added_in_version for p in pieces),
        data_start=start if isinstance(start, int) else None,
        tensors={str(n): (int(v[0]), int(v[1])) for n, v in tensors.items()} if isinstance(tensors, dict) else None,
        partitions=tuple(sorted({index for p in pieces for index in p.file.partitions})),
        text_file=text,
        members={str(n): StoredFile.from_json(m) for n, m in members.items()} if isinstance(members, dict) else None,
    )


def plan_of(manifest: Manifest, /) -> PackPlan:
    """The plan by which a version's files were written, as far as their tensors and headers tell it."""
    columns: list[ColumnPlan] = []
    for one in manifest.columns:
        null = one.get("null")
        policy = str(null.get("policy", "mask")) if isinstance(null, dict) else "mask"
        index = one.get("index")
        columns.append(
            ColumnPlan(
                Field(str(one["name"]), pa.null(), bool(one.get("nullable"))),
                str(one.get("role")),
                str(one.get("kind")),
                str(one.get("dtype")),
                tensor=str(one.get("tensor") or ""),
                index=None if index is None else integer(index),
                shape=tuple(integer(n) for n in sequence(one.get("shape") or [])),
                nulls=policy,
            )
        )
    layout = manifest.document.get("layout")
    features = tuple(str(n) for n in sequence(manifest.document.get("feature_order") or []))
    return PackPlan(tuple(columns), str(layout.get("kind")) if isinstance(layout, dict) else "", features)


def _contents(folder: Target, manifest: Manifest, pieces: Sequence[Piece], split: str, rows: int) -> Contents:
    plan = plan_of(manifest)
    specs = tensor_specs(plan)
    sides = [_Side.of(folder, manifest.format, piece, specs) for piece in pieces]

    def chunks(index: int) -> Iterator[NDArray[Any]]:
        for side in sides:
            yield from side.chunks(specs[index])

    counts = [sum(side.items(s) for side in sides) if s.part == "items" else rows for s in specs]
    return Contents(split, rows, specs, counts, file_metadata(plan, split), chunks)


@dataclass(frozen=True, slots=True)
class _Side:
    """One piece with its tensors mapped; `ends`: ragged tag → items up to and with each row, [rows + 1]."""

    piece: Piece
    tensors: Mapping[str, NDArray[Any]]
    ends: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, folder: Target, format_: str, piece: Piece, specs: Sequence[TensorSpec]) -> _Side:
        tensors = mapped(piece.file, format_, lambda path: located(folder, path))
        ends = {}
        for spec in specs:
            if spec.name not in tensors:
                raise Damaged(f"{piece.file.path} of {folder} has no tensor {spec.name}", path=piece.file.path)
            if spec.part == "items":
                lengths = tensors[_lengths(spec)]
                ends[spec.name] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        return cls(piece, tensors, ends)

    def items(self, spec: TensorSpec, /) -> int:
        """Items of a ragged tensor that are taken."""
        if self.piece.keep is None:
            return len(self.tensors[spec.name])
        return int(np.diff(self.ends[spec.name])[self.piece.keep].sum())

    def chunks(self, spec: TensorSpec, /) -> Iterator[NDArray[Any]]:
        """The rows that are taken, block by block."""
        values, keep = self.tensors[spec.name], self.piece.keep
        for first in range(0, self.piece.file.rows, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, self.piece.file.rows)
            if spec.part != "items":
                yield values[first:last] if keep is None else values[first:last][keep[first:last]]
                continue
            ends = self.ends[spec.name]
            block = values[ends[first] : ends[last]]
            if keep is None:
                yield block
            else:
                yield block[np.repeat(keep[first:last], np.diff(ends[first : last + 1]))]


def _lengths(spec: TensorSpec) -> str:
    return f"{spec.name.removesuffix('.values')}.lengths"


def _parquet(
    folder: Target, paths: Sequence[tuple[str, NDArray[np.bool_] | None]], stage: Path, name: str, split: str
) -> StagedFile:
    options = WriteOptions()
    schema = pq.read_schema(located(folder, paths[0][0]))
    part = ParquetPart(
        stage,
        schema,
        split,
        lambda _: name,
        file_bytes=1 << 62,
        group_rows=options.row_group_rows,
        group_bytes=options.row_group_bytes,
    )
    try:
        for path, keep in paths:
            with pq.ParquetFile(located(folder, path)) as file:
                first = 0
                for index in range(file.num_row_groups):
                    group: Any = file.read_row_group(index)
                    rows = group.num_rows
                    if keep is not None:
                        group = group.filter(mask_of(keep[first : first + rows]))
                    first += rows
                    for batch in group.to_batches():
                        part.write_stored(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        (made,) = part.close(empty=True)
    except BaseException:
        part.abandon()
        raise
    return made
