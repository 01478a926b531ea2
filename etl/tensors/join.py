"""Small neighbouring files become one, in row order: a thousand parts of ten rows are not a thousand files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.base import StagedFile
from etl.tensors.formats.parquet import ParquetPart, stored_schema
from etl.tensors.formats.safetensors import file_metadata, header_bytes
from etl.tensors.manifest import TEXT, integer
from etl.tensors.pack import tensor_specs
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etl.tensors.options import WriteOptions
    from etl.tensors.pack import PackPlan

_MOST = {"parquet": 1 << 20, "safetensors": 4 << 20}
"""Files above are left alone: decoding and encoding (Parquet) or copying them again costs more than it brings."""
_PIECE = 1 << 20


def groups(files: Sequence[StagedFile], format_: str, target: int, /) -> list[list[int]]:
    """Positions that go together: neighbours under a quarter of the target, together at most the target."""
    small = min(target // 4, _MOST[format_])
    found: list[list[int]] = []
    size = 0
    for position, file in enumerate(files):
        joins = found and file.bytes < small and size + file.bytes <= target and files[found[-1][-1]].bytes < small
        if joins:
            found[-1].append(position)
            size += file.bytes
        else:
            found.append([position])
            size = file.bytes
    return found


def join_parquet(
    folder: Path, paths: Sequence[str], schema: pa.Schema, split: str, name: str, options: WriteOptions, /
) -> StagedFile:
    """One Parquet file of the rows of several, which are removed."""
    part = ParquetPart(
        folder,
        schema,
        split,
        lambda _: name,
        file_bytes=1 << 62,
        group_rows=options.row_group_rows,
        group_bytes=options.row_group_bytes,
    )
    kept = stored_schema(schema)
    try:
        for path in paths:
            with pq.ParquetFile(folder / path) as file:
                for batch in file.read().to_batches():
                    part.write_stored(pa.RecordBatch.from_arrays(batch.columns, schema=kept))
        (made,) = part.close(empty=True)
    except BaseException:
        part.abandon()
        raise
    for path in paths:
        (folder / path).unlink()
    return made


def join_tensors(
    folder: Path, files: Sequence[StagedFile], plan: PackPlan, schema: pa.Schema, name: str, options: WriteOptions, /
) -> StagedFile:
    """One tensor file of the rows of several, which are removed; text beside them is joined too.

    Args:
        folder: The stage.
        files: Neighbours in row order.
        plan: Their plan.
        schema: Of the text columns.
        name: The new file's stem.
        options: The writing flags.
    """
    split = files[0].split
    rows = sum(f.rows for f in files)
    spans = [_spans(f) for f in files]
    tensors: list[tuple[str, str, tuple[int, ...]]] = []
    specs = tensor_specs(plan)
    for spec in specs:
        items = sum(s[spec.name][1] for s in spans) // spec.row_bytes if spec.part == "items" else rows
        tensors.append((spec.name, spec.dtype, (items, *spec.row_shape)))
    head, where = header_bytes(tensors, file_metadata(plan, split))
    out = HashingFile(folder / f"{name}.safetensors.tmp")
    try:
        out.write(head)
        for spec in specs:
            for file, span in zip(files, spans, strict=True):
                _copy(folder / file.path, integer(file.facts["data_start"]), span[spec.name], out)
    finally:
        out.close()
    facts: dict[str, object] = {"data_start": len(head), "tensors": {n: list(v) for n, v in where.items()}}
    texts = [str(t["path"]) for t in (f.facts.get("text_file") for f in files) if isinstance(t, dict)]
    if texts:
        text = join_parquet(folder, texts, schema, split, f"{TEXT}/{name}.parquet.tmp", options)
        facts["text_file"] = {"path": text.path, "bytes": text.bytes, "sha256": text.sha256}
    for file in files:
        (folder / file.path).unlink()
    return StagedFile(str(out.path.relative_to(folder)), split, rows, out.size, out.hexdigest(), facts)


def _spans(file: StagedFile) -> dict[str, tuple[int, int]]:
    tensors = file.facts["tensors"]
    if not isinstance(tensors, dict):
        raise TypeError(file.path)
    return {str(n): (int(v[0]), int(v[1])) for n, v in tensors.items()}


def _copy(path: Path, start: int, span: tuple[int, int], out: HashingFile) -> None:
    left = span[1]
    with path.open("rb") as file:
        file.seek(start + span[0])
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise OSError(f"{path} ended early")
            out.write(piece)
            left -= len(piece)
