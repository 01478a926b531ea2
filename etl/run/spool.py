"""Rows between two passes of a run: staged to spool files as to any sink, read from them as from any source."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from connectors.base import Capabilities, Endpoint, Facts, LeafFacts, Published, Query, Staged, StagedFile
from etl.core.errors import ConfigError, CountMismatch
from etl.core.partition import Child, Partition, Snapshot, Whole
from etl.engine.spool import SpoolFile, read_spool, write_spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from connectors.base import CutWish, Finish, Finished, Mode, Requires, Source, Tally
    from etl.core.schema import Schema


@dataclass(slots=True)
class Spooled:
    """What became of a source, once all its parts are whole; filled in the run process, empty anywhere else.

    Attributes:
        schema: Of its rows.
        files: In the order of the parts.
        requires: Counts, snapshot and warnings.
    """

    schema: Schema | None = None
    files: tuple[SpoolFile, ...] = ()
    requires: Requires | None = None

    def __reduce__(self) -> tuple[type[Spooled], tuple[()]]:
        """Nothing of it travels: workers stage, and know nothing of the whole."""
        return Spooled, ()


@dataclass(frozen=True, slots=True)
class SpoolSink:
    """Takes the rows of one source.

    Attributes:
        folder: Of this source alone, inside the run's hidden folder.
        spooled: Filled when all parts are there.
    """

    folder: Path
    spooled: Spooled = field(default_factory=Spooled, compare=False)

    @property
    def capabilities(self) -> Capabilities:
        """Made once."""
        return Capabilities(modes=frozenset({"create"}), python_rows=False)

    def check(self, schema: Schema, mode: Mode, /) -> None:
        """Any column can be spooled."""

    def begin(self, run_id: str, schema: Schema, mode: Mode, /) -> SpoolSession:
        """Make the folder."""
        del run_id, mode
        self.folder.mkdir(parents=True, exist_ok=True)
        return SpoolSession(self.folder, schema, self.spooled)


@dataclass(frozen=True, slots=True)
class SpoolSession:
    """One go at one source; a picklable value. What it wrote stays when it was prepared, and goes with the run."""

    folder: Path
    schema: Schema
    spooled: Spooled = field(compare=False)

    def stage(self, part: Partition, attempt: int, batches: Iterator[pa.RecordBatch], /) -> Staged:
        """Write the part to files of this attempt.

        Raises:
            DatasetError: The file system refused.
        """
        name = f"{part.index:06}-{attempt}"
        files = write_spool(self.folder, name, self.schema, batches, stopped=_never)
        staged = tuple(StagedFile(f.path, "all", f.rows, f.bytes, "") for f in files)
        return Staged(part, attempt, sum(f.rows for f in files), {}, staged)

    def exchange(self, staged: Sequence[Staged], /) -> Sequence[Finish]:
        """Nothing: the rows keep their places."""
        del staged
        return ()

    def prepare(
        self, staged: Sequence[Staged], /, *, requires: Requires, finished: Sequence[Finished] = ()
    ) -> Callable[[], Published]:
        """Hold the counts; the switch hands the files to the next pass.

        Raises:
            CountMismatch: Rows staged are not the rows required.
        """
        del finished
        ordered = sorted(staged, key=lambda one: one.part.index)
        files = tuple(SpoolFile(f.path, f.rows, f.bytes) for one in ordered for f in one.files)
        rows = sum(f.rows for f in files)
        if requires.rows is not None and rows != requires.rows:
            raise CountMismatch(f"the source has {requires.rows} rows, {rows} were kept for the next pass")

        def switch() -> Published:
            self.spooled.schema, self.spooled.files, self.spooled.requires = self.schema, files, requires
            size = sum(f.bytes for f in files)
            return Published(str(self.folder), "arrow", 0, rows, size, len(files), {"all": rows}, ())

        return switch

    def commit(self, staged: Sequence[Staged], /, *, requires: Requires) -> Published:
        """Prepare and hand on."""
        return self.prepare(staged, requires=requires)()

    def abort(self) -> None:
        """Remove what was staged, unless the next pass has it."""
        if self.spooled.requires is None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class SpoolSource:
    """Spool files as a source; each file is a part.

    Attributes:
        name: For messages.
        files: In order.
        fields: Of every file.
    """

    name: str
    files: tuple[SpoolFile, ...]
    fields: Schema

    @property
    def capabilities(self) -> Capabilities:
        """Files, which nobody changes."""
        return Capabilities(cuts=frozenset({Whole, Child}), snapshots=frozenset({"single"}), python_rows=False)

    @property
    def endpoint(self) -> Endpoint:
        """Nothing is connected to."""
        return Endpoint(self.name, "spool")

    @property
    def query(self) -> Query:
        """All rows."""
        return Query(table=self.name)

    @property
    def title(self) -> str:
        """What is read, for messages."""
        return self.name

    @contextlib.contextmanager
    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> Iterator[Snapshot]:
        """The files as they are."""
        del siblings, attach_all  # workers have nothing to attach to
        now = datetime.now(UTC)  # noqa: TID251 - the moment of this pass; those of the stores are in its lineage
        at = Snapshot("single", "spool", now)
        yield at

    def attach(self, at: Snapshot, /) -> None:
        """Nothing to open."""

    def schema(self, at: Snapshot, /) -> Schema:
        """As planned."""
        del at
        return self.fields

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """What was counted when the files were written."""
        del at, wish, sample
        leaves = tuple(LeafFacts(_leaf(i), f.bytes, float(f.rows)) for i, f in enumerate(self.files))
        return Facts(float(sum(f.rows for f in self.files)), sum(f.bytes for f in self.files), leaves=leaves)

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows that were written."""
        del at
        return sum(f.rows for f in self._files(part))

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The part in words."""
        return f"{', '.join(columns)} of {self.title}, {len(self._files(part))} files"

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part's files, as they were written.

        Raises:
            Damaged: A file is gone or not what was written.
        """
        del at, batch_bytes  # they were cut when they were written
        names, arrow = list(schema.names), schema.to_arrow()
        files = self._files(part)
        tally.how, tally.counted = "spool", sum(f.rows for f in files)
        for file in files:
            for batch in read_spool(file):
                rows = batch.select(names).cast(arrow)
                tally.rows += rows.num_rows
                tally.received += rows.nbytes
                yield rows
        if not tally.rows:
            yield pa.RecordBatch.from_pylist([], schema=arrow)

    def widen(self, at: Snapshot, /) -> Self:
        """Nothing is open."""
        del at
        return self

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Nothing runs anywhere."""
        del keeping

    def _files(self, part: Partition) -> list[SpoolFile]:
        match part.slice:
            case Whole():
                return list(self.files)
            case Child(leaf, Whole()):
                return [f for i, f in enumerate(self.files) if _leaf(i) == leaf]
            case _:
                raise ConfigError(f"{self.name} cannot be cut by {type(part.slice).__name__}")


def _leaf(index: int) -> str:
    """How a file is named in plans and manifests: the same in every run."""
    return f"piece {index + 1}"
