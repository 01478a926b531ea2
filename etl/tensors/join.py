"""Small neighbouring files become one, in row order: a thousand parts of ten rows are not a thousand files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from connectors.base import StagedFile
from etl.tensors.encode import ENCODERS, SUFFIXES
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.gather import file_metadata
from etl.tensors.manifest import TEXT, integer
from etl.tensors.pack import tensor_specs
from etl.tensors.segments import Contents
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from etl.tensors.options import Format, WriteOptions
    from etl.tensors.pack import PackPlan

_MOST_PARQUET, _MOST_TENSORS = 1 << 20, 4 << 20
"""Files above are left alone: decoding and encoding (Parquet) or copying them again costs more than it brings."""
_PIECE = 1 << 20


def groups(files: Sequence[StagedFile], format_: str, target: int, /) -> list[list[int]]:
    """Positions that go together: neighbours under a quarter of the target, together at most the target.

    The text beside tensors counts: it is decoded and encoded as other Parquet is, however small its tensors are.
    """
    most = {True: min(target // 4, _MOST_PARQUET), False: min(target // 4, _MOST_TENSORS)}
    found: list[list[int]] = []
    size, small = 0, False
    for position, file in enumerate(files):
        text = _text_bytes(file)
        was, small = small, file.bytes < most[format_ == "parquet"] and text < most[True]
        if was and small and size + file.bytes + text <= target:
            found[-1].append(position)
            size += file.bytes + text
        else:
            found.append([position])
            size = file.bytes + text
    return found


def _text_bytes(file: StagedFile) -> int:
    text = file.facts.get("text_file")
    return integer(text["bytes"]) if isinstance(text, dict) else 0


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
    try:
        for path in paths:
            part.take(path)
        (made,) = part.close(empty=True)
    except BaseException:
        part.abandon()
        raise
    for path in paths:
        (folder / path).unlink()
    return made


def join_tensors(
    folder: Path,
    files: Sequence[StagedFile],
    plan: PackPlan,
    schema: pa.Schema,
    name: str,
    options: WriteOptions,
    format_: Format,
    /,
) -> StagedFile:
    """One tensor file of the rows of several, which are removed; text beside them is joined too.

    Args:
        folder: The stage.
        files: Neighbours in row order.
        plan: Their plan.
        schema: Of the text columns.
        name: The new file's stem.
        options: The writing flags.
        format_: Their format.
    """
    split = files[0].split
    rows = sum(f.rows for f in files)
    spans = [_spans(folder, f) for f in files] if format_ != "tfrecord" else []
    specs = tensor_specs(plan)
    counts = [sum(one[s.name].bytes for one in spans) // s.row_bytes if s.part == "items" else rows for s in specs]

    def chunks(index: int) -> Iterator[bytes]:
        for one in spans:
            yield from _pieces(one[specs[index].name])

    if format_ == "tfrecord":
        made = _joined_records(folder, files, name)
    else:
        contents = Contents(split, rows, specs, counts, file_metadata(plan, split), chunks)
        made = ENCODERS[format_](folder, name, ".tmp", contents)
    texts = [str(t["path"]) for t in (f.facts.get("text_file") for f in files) if isinstance(t, dict)]
    if texts:
        text = join_parquet(folder, texts, schema, split, f"{TEXT}/{name}.parquet.tmp", options)
        made = replace(made, facts={**made.facts, "text_file": _stored(text)})
    for path in {*(folder / f.path for f in files), *(span.path for one in spans for span in one.values())}:
        path.unlink(missing_ok=True)  # the path of an npy entry is no file
    return made


def _joined_records(folder: Path, files: Sequence[StagedFile], name: str) -> StagedFile:
    """Record files one after the other are a record file."""
    out = HashingFile(folder / f"{name}{SUFFIXES['tfrecord']}.tmp")
    try:
        for file in files:
            for piece in _pieces(_Span(folder / file.path, 0, file.bytes)):
                out.write(piece)
    finally:
        out.close()
    rows = sum(f.rows for f in files)
    return StagedFile(str(out.path.relative_to(folder)), files[0].split, rows, out.size, out.hexdigest())


def _stored(file: StagedFile) -> dict[str, object]:
    return {"path": file.path, "bytes": file.bytes, "sha256": file.sha256}


class _Span(NamedTuple):
    """Where one tensor of a file lies."""

    path: Path
    start: int
    bytes: int


def _spans(folder: Path, file: StagedFile) -> dict[str, _Span]:
    tensors, members = file.facts["tensors"], file.facts.get("members")
    if not isinstance(tensors, dict):
        raise TypeError(file.path)
    first = integer(file.facts["data_start"])
    paths = {n: str(m["path"]) for n, m in members.items()} if isinstance(members, dict) else {}
    return {
        str(n): _Span(folder / paths.get(n, file.path), first + int(start), int(size))
        for n, (start, size) in tensors.items()
    }


def _pieces(span: _Span) -> Iterator[bytes]:
    left = span.bytes
    with span.path.open("rb") as file:
        file.seek(span.start)
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise OSError(f"{span.path} ended early")
            yield piece
            left -= len(piece)
