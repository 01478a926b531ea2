"""Rows put in a global order within bounded memory: sorted runs in the stage, then files cut from all of them.

A part writes its rows as runs of bounded size, each in order (Arrow IPC, uncompressed, so that a reader maps what it
needs), and beside each its fences: the order bytes of every 1024th row. After all parts, the fences tell which rows of
which runs each file can hold; a task reads their order bytes, finds the file's rows among them, and copies these rows
alone. So a part holds one run, a task one file, whatever the size of the whole.
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from connectors.base import Finished, StagedFile
from etl.core.errors import Cancelled
from etl.tensors.ordering import (
    Ordering,
    Reach,
    chi_square_p,
    file_rows,
    logical_bytes,
    order_bytes,
    reaches,
    row_bytes,
    sorted_rows,
)
from etl.tensors.pack import ITEM_BYTES, tensor_specs
from etl.tensors.storage import failed
from etl.tensors.views import Column, column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.cast import CastCount
    from etl.tensors.pack import PackPlan
    from etl.tensors.places import Target

RUN_BYTES = 32 << 20
"""Arrow data of one run: what a part holds while it sorts, twice."""
FENCE_ROWS = 1024
PIECE_ROWS = 1 << 14
PIECE_BYTES = 16 << 20
"""Rows that a run is written in and a file is fed with at once end at the first of both."""
GROUP_ROWS = 1 << 20
GROUP_BYTES = 32 << 20
"""A row group of an ordered file ends at the first of both: by the average row, so that rows alone decide."""
MIX_ROWS = 4096
"""Rows of a block in which sources are counted."""


class Runs:
    """The rows of one part, of all its splits, as sorted runs.

    Args:
        folder: The stage.
        how: The order.
        plan: Which column goes where; other columns are not kept.
        end: What temporary names end in.
        place: What the rows are of, for messages.
        limit: Bytes of Arrow data that are held at most, before they are sorted.
    """

    def __init__(self, folder: Path, how: Ordering, plan: PackPlan, end: str, place: str, limit: int) -> None:
        self._folder = folder
        self._how = how
        self._ragged = {c.field.name: ITEM_BYTES[c.dtype] for c in plan.columns if c.kind == "ragged" and c.tensor}
        self._end = end
        self._place = place
        self._limit = min(limit, RUN_BYTES)
        self._parts: dict[str, RunPart] = {}

    def of(self, split: str, name: Callable[[int], str]) -> RunPart:
        """The writer of one split."""
        one = self._parts[split] = RunPart(self, split, name)
        return one

    def full(self) -> None:
        """Write the largest run when all together are too large."""
        if sum(p.held_bytes for p in self._parts.values()) >= self._limit:
            max(self._parts.values(), key=lambda p: p.held_bytes).flush()

    def make(self, held: list[pa.RecordBatch], split: str, stem: str) -> StagedFile:
        """One run of these rows, which are let go of as soon as they lie together."""
        table = pa.Table.from_batches(held).combine_chunks()
        held.clear()
        (batch,) = table.to_batches()
        del table
        order = order_bytes(self._how, batch, self._place)
        places = sorted_rows(order, lambda rows: row_bytes(self._how, _taken(batch, rows)))
        by = pa.field("", order.type, nullable=False)
        schema = pa.schema([*batch.schema, by])
        run, fences = (f"{stem}.{kind}{self._end}" for kind in ("run", "fences"))
        weight = sum(logical_bytes(c) for c in batch.columns)
        step = piece_rows(weight / batch.num_rows)
        with pa.OSFile(str(self._folder / run), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
            for start in range(0, batch.num_rows, step):
                rows = places[start : start + step]
                columns = [*_taken(batch, rows).columns, order.take(column_of(pa.int64(), rows))]
                out.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        few = order.take(column_of(pa.int64(), places[::FENCE_ROWS]))
        with pa.OSFile(str(self._folder / fences), "wb") as sink, pa.ipc.new_file(sink, pa.schema([by])) as out:
            out.write_batch(pa.RecordBatch.from_arrays([few], schema=pa.schema([by])))
        size = sum((self._folder / name).stat().st_size for name in (run, fences))
        items = 0
        for name, width in self._ragged.items():
            lists: Column = batch.column(batch.schema.get_field_index(name))
            items += width * len(lists.flatten())
        facts = {"fences": fences, "weight": weight, "items": items}
        return StagedFile(run, split, batch.num_rows, size, "", facts)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are written."""
        if batch.schema.names == list(self._how.written):
            return batch
        return batch.select(list(self._how.written))


class RunPart:
    """The runs of one split of a part."""

    def __init__(self, runs: Runs, split: str, name: Callable[[int], str]) -> None:
        self._runs = runs
        self._split = split
        self._name = name
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        self._done: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take the rows of one batch."""
        if batch.num_rows:
            kept = self._runs.kept(batch)
            self._held.append(kept)
            self.held_bytes += kept.nbytes
            self._runs.full()

    def close(self, *, empty: bool = False) -> list[StagedFile]:
        """Write the last run; without rows there is none."""
        del empty
        self.flush()
        return self._done

    def abandon(self) -> None:
        """Let go of the rows; files are removed by the stage's owner."""
        self._held.clear()

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            held, self._held, self.held_bytes = self._held, [], 0
            self._done.append(self._runs.make(held, self._split, self._name(len(self._done))))


def piece_rows(row_bytes: float, /) -> int:
    """Rows that are handled at once."""
    return max(64, min(PIECE_ROWS, int(PIECE_BYTES / max(row_bytes, 1.0))))


def _taken(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    return batch.take(column_of(pa.int64(), rows))


class ShardFiles(Protocol):
    """Writes one file from its rows in order."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take the next rows."""
        ...

    def close(self, *, empty: bool = False) -> list[StagedFile]:
        """Finish."""
        ...

    def abandon(self) -> None:
        """Let go of what is open."""
        ...


class Opener(Protocol):
    """What a shard needs of its session, to write a file of its format."""

    @property
    def folder(self) -> Path:
        """The stage."""
        ...

    @property
    def target(self) -> Target:
        """The dataset."""
        ...

    def shard_files(
        self, shard: Shard, token: str, schema: Sequence[str], casts: dict[str, CastCount], /
    ) -> ShardFiles:
        """The writer of one file that takes all rows it is given."""
        ...

    def unlink(self, token: str, /) -> None:
        """Remove what an attempt left."""
        ...


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where the rows of every file of a split can be: two files in the stage, since a table of files by runs is large.

    Attributes:
        runs: JSON: path, part and rows of the part in this split, for each run in the order of parts.
        spans: int64 [files, runs, 2]: the rows [start, stop) of each run.
        count: Number of runs.
    """

    runs: str
    spans: str
    count: int

    def write(self, folder: Path, runs: Sequence[tuple[str, int, int]], found: Iterable[Reach], /) -> list[int]:
        """Write both.

        Returns:
            For each file the rows before those that it is offered.
        """
        below: list[int] = []
        (folder / self.runs).write_text(json.dumps(runs), encoding="utf-8")
        with (folder / self.spans).open("wb") as file:
            for reach in found:
                below.append(reach.below)
                np.stack([reach.starts, reach.stops], axis=1).astype("<i8").tofile(file)
        return below

    def read(self, folder: Path, number: int, /) -> list[RunSlice]:
        """The rows of runs that one file can have."""
        runs = json.loads((folder / self.runs).read_text(encoding="utf-8"))
        spans = np.fromfile(folder / self.spans, "<i8", 2 * self.count, offset=16 * self.count * number).reshape(-1, 2)
        chosen = np.flatnonzero(spans[:, 1] > spans[:, 0]).tolist()
        return [RunSlice(runs[r][0], int(spans[r, 0]), int(spans[r, 1]), runs[r][1], runs[r][2]) for r in chosen]


@dataclass(frozen=True, slots=True)
class RunSlice:
    """Rows [start, stop) of a run, of the part `part`, which has `part_rows` rows in this split."""

    path: str
    start: int
    stop: int
    part: int
    part_rows: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the global order: a picklable value.

    Attributes:
        session: Writes the file.
        how: The order.
        split: The split of the rows.
        number: The file's place among those of the split.
        first: The place of its first row in the order of the split.
        rows: Its rows.
        below: Rows of the split before those that `cuts` offer.
        cuts: Where its rows can be.
        row_bytes: Arrow bytes of the average row of the dataset.
    """

    session: Opener
    how: Ordering
    split: str
    number: int
    first: int
    rows: int
    below: int
    cuts: Cuts
    row_bytes: float

    @property
    def title(self) -> str:
        """What it is, for messages."""
        side = "" if self.split == "all" else f" of split {self.split}"
        return f"file {self.number + 1}{side} of {self.session.target}, in order"

    def write(
        self, attempt: int, /, *, stopped: Callable[[], bool], passed: Callable[[pa.RecordBatch], None]
    ) -> Finished:
        """Find the file's rows and write them.

        Raises:
            Cancelled: `stopped` said so.
            CastError: A value that `--cast` refuses.
            DatasetError: The disk is full, or refused.
        """
        del attempt  # the token tells attempts apart
        token = secrets.token_hex(4)
        casts: dict[str, CastCount] = {}
        out: ShardFiles | None = None
        try:
            runs = self.cuts.read(self.session.folder, self.number)
            tables = [_mapped(self.session.folder / r.path).slice(r.start, r.stop - r.start) for r in runs]
            names = tables[0].schema.names[:-1]
            out = self.session.shard_files(self, token, names, casts)
            chosen = self._chosen(tables)
            payload = [t.select(list(range(len(names)))) for t in tables]
            starts = np.cumsum([0, *(t.num_rows for t in tables)])
            step = piece_rows(self.row_bytes)
            for start in range(0, len(chosen), step):
                if stopped():
                    raise Cancelled("the run was stopped")
                batch = _gathered(payload, starts, chosen[start : start + step])
                out.write(batch)
                passed(batch)
            (file,) = out.close()
        except OSError as error:
            self._undo(out, token)
            raise failed(f"cannot write {self.title}", error) from error
        except BaseException:
            self._undo(out, token)
            raise
        counted: Mapping[str, Mapping[str, object]] = {
            name: {"n_rounded": c.n_rounded, "n_saturated": c.n_saturated, "max_abs_error": c.max_abs_error}
            for name, c in casts.items()
        }
        return Finished(file, counted, _mix(runs, np.searchsorted(starts, chosen, side="right") - 1))

    def _undo(self, out: ShardFiles | None, token: str) -> None:
        if out is not None:
            out.abandon()
        self.session.unlink(token)

    def _chosen(self, tables: Sequence[pa.Table]) -> NDArray[np.int64]:
        """The file's rows in order, numbered through the tables."""
        columns: list[Any] = [t.columns[-1] for t in tables]
        order: Any = pa.chunked_array([c for column in columns for c in column.chunks], columns[0].type)
        starts = np.cumsum([0, *(t.num_rows for t in tables)])

        def packed(rows: NDArray[np.int64]) -> Column:
            # In the order of the tables, whatever order they are asked for in: neighbours are read together.
            pieces = [
                row_bytes(self.how, _gathered(tables, starts, rows[start : start + PIECE_ROWS]))
                for start in range(0, len(rows), PIECE_ROWS)
            ]
            return pa.concat_arrays(pieces)

        places = sorted_rows(order.combine_chunks(), packed)
        begin = self.first - self.below
        return places[begin : begin + self.rows]


def _mix(runs: Sequence[RunSlice], rows: NDArray[np.int64]) -> float:
    """A file's share of the chi-square sum: observed² / (rows of the block · rows of the part) over its cells.

    Args:
        runs: What was offered.
        rows: For each row in order, which of them it came from.
    """
    weights = {r.part: r.part_rows for r in runs}
    known, codes = np.unique(np.array([r.part for r in runs]), return_inverse=True)
    totals = np.array([weights[int(p)] for p in known], np.float64)
    total = 0.0
    for start in range(0, len(rows), MIX_ROWS):
        block = codes[rows[start : start + MIX_ROWS]]
        seen = np.bincount(block, minlength=len(known)).astype(np.float64)
        total += float((seen * seen / totals).sum()) / len(block)
    return total


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _gathered(tables: Sequence[pa.Table], starts: NDArray[np.int64], rows: NDArray[np.int64]) -> pa.RecordBatch:
    """These rows, numbered through the tables, as one batch; only what lies between them in each table is read."""
    ascending = np.sort(rows)
    bounds = np.searchsorted(ascending, starts)
    pieces: list[pa.Table] = []
    offsets = np.zeros(len(tables), np.int64)
    have = 0
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        first = int(ascending[bounds[number]])
        count = int(ascending[bounds[number + 1] - 1]) + 1 - first
        pieces.append(tables[number].slice(first - int(starts[number]), count))
        offsets[number] = have - first
        have += count
    table = pa.concat_tables(pieces).combine_chunks()
    (batch,) = table.to_batches()
    return _taken(batch, rows + offsets[np.searchsorted(starts, rows, side="right") - 1])


@dataclass(frozen=True, slots=True)
class Staging:
    """A run of a part, as it was staged."""

    part: int
    file: StagedFile


def shards(
    session: Opener, how: Ordering, plan: PackPlan, staged: Sequence[Staging], splits: Sequence[str], target: int, /
) -> tuple[Shard, ...]:
    """The files of all splits, cut from the sorted runs.

    Args:
        session: Writes them.
        how: The order.
        plan: Which column goes where.
        staged: The runs of all parts, in the order of parts.
        splits: Names in order.
        target: Bytes of a file.
    """
    everything = sum(s.file.rows for s in staged)
    if not everything:
        return ()
    arrow = sum(_number(s.file, "weight") for s in staged) / everything
    wide = arrow
    if plan.layout != "table":
        items = sum(_number(s.file, "items") for s in staged) / everything
        wide = sum(s.row_bytes for s in tensor_specs(plan) if s.part != "items") + items
    size = file_rows(wide, target)
    found: list[Shard] = []
    for split in splits:
        runs = [s for s in staged if s.file.split == split]
        if not runs:
            continue
        rows: dict[int, int] = {}
        for one in runs:
            rows[one.part] = rows.get(one.part, 0) + one.file.rows
        total = sum(rows.values())
        cuts = Cuts(f"order-{split}.runs.tmp", f"order-{split}.spans.tmp", len(runs))
        reach = _reaches(session.folder, how, runs, size)
        listed = [(r.file.path, r.part, rows[r.part]) for r in runs]
        for number, below in enumerate(cuts.write(session.folder, listed, reach)):
            first = number * size
            found.append(Shard(session, how, split, number, first, min(size, total - first), below, cuts, arrow))
    return tuple(found)


def _reaches(folder: Path, how: Ordering, runs: Sequence[Staging], size: int) -> Iterator[Reach]:
    columns: list[Column] = []
    for one in runs:
        (batch,) = _mapped(folder / str(one.file.facts["fences"])).to_batches()
        columns.append(batch.column(0))
    counts = np.array([len(c) for c in columns])
    run_of = np.repeat(np.arange(len(runs)), counts)
    begins = np.cumsum(counts) - counts

    def packed(places: NDArray[np.int64]) -> Column:
        # Only fences that tie ask for their rows.
        pieces: list[Column] = []
        for place in places.tolist():
            run = int(run_of[place])
            row = (place - int(begins[run])) * FENCE_ROWS
            (batch,) = _mapped(folder / runs[run].file.path).slice(row, 1).combine_chunks().to_batches()
            pieces.append(row_bytes(how, batch))
        return pa.concat_arrays(pieces)

    merged = sorted_rows(pa.concat_arrays(columns), packed)
    return reaches([r.file.rows for r in runs], run_of, merged, FENCE_ROWS, size)


def _number(file: StagedFile, name: str) -> int:
    value = file.facts[name]
    if not isinstance(value, int):
        raise TypeError(name)
    return value


def group_rows(row_bytes: float, /) -> int:
    """Rows of a row group of an ordered file."""
    return min(GROUP_ROWS, file_rows(row_bytes, GROUP_BYTES))


def mixing(staged: Sequence[Staging], finished: Sequence[Finished], /) -> float | None:
    """How likely blocks of 4096 rows would hold parts as unevenly as they do, or more, if rows were mixed by chance.

    The p-value of a chi-square test of parts per block, the splits together; None where there is nothing to compare:
    one part or one block in every split.
    """
    statistic, freedom = 0.0, 0
    for split in dict.fromkeys(s.file.split for s in staged):
        rows = sum(s.file.rows for s in staged if s.file.split == split)
        parts = len({s.part for s in staged if s.file.split == split})
        blocks = sum(-(-f.file.rows // MIX_ROWS) for f in finished if f.file.split == split)
        if parts > 1 and blocks > 1:
            freedom += (parts - 1) * (blocks - 1)
            statistic += rows * (math.fsum(f.mix for f in finished if f.file.split == split) - 1.0)
    return chi_square_p(statistic, freedom) if freedom else None
