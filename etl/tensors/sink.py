"""The sink of a dataset: parts are staged on workers, then published together."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from connectors.base import Capabilities, Published, Staged, StagedFile
from etl.core.errors import ConfigError, CountMismatch, DatasetError
from etl.core.schema import nearest
from etl.tensors import by_manifest
from etl.tensors import manifest as documents
from etl.tensors.appending import check_append, check_fit, check_order
from etl.tensors.checking import Ending, told, verdicts
from etl.tensors.counts import Counts, check_counts
from etl.tensors.document import Making, joined_entries, utc_text
from etl.tensors.encode import ENCODERS, FORMATS, fitted
from etl.tensors.exchange import Runs, Shard, Staging, group_rows, mixing, shards
from etl.tensors.formats.parquet import SUFFIX as PARQUET
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.gather import TensorPart
from etl.tensors.join import groups, join_parquet, join_tensors
from etl.tensors.manifest import FileEntry, Manifest, StoredFile, prefix_of
from etl.tensors.options import WriteOptions
from etl.tensors.ordering import Ordering, ordering
from etl.tensors.pack import PackPlan, plan_columns
from etl.tensors.places import Place, place_of
from etl.tensors.publish import check_target, publish
from etl.tensors.split import LEFT_OUT, Splitting, splitting
from etl.tensors.stages import drop_stage, leave_stage, open_stage
from etl.tensors.storage import failed
from etl.tensors.versions import check_parent
from etl.tensors.views import mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.base import Finished, Mode, Requires
    from etl.core.partition import Partition
    from etl.core.schema import Schema
    from etl.tensors.cast import CastCount
    from etl.tensors.checking import RowChecks
    from etl.tensors.fits import SavedFit
    from etl.tensors.keeping import Contract
    from etl.tensors.options import Format
    from etl.tensors.places import Target

_TEMPORARY = re.compile(r"(\.[0-9a-f]{8})?\.tmp$")
"""What a file's name ends in until it is published: a token of the attempt, where there was one."""
_PIECE_BYTES = 16 << 20
"""A batch above this is worked on in pieces."""


class PartFiles(Protocol):
    """What a format must do: take batches of one part and one split, and end with finished files."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take the rows of one batch, in order; its buffers may be held until `close`."""
        ...

    def close(self, *, empty: bool = False) -> list[StagedFile]:
        """Finish. With `empty` there is a file even without rows."""
        ...

    def abandon(self) -> None:
        """Let go of what is open; may be called at any moment."""
        ...


@dataclass(frozen=True, slots=True)
class DatasetSink:
    """Writes one dataset to a folder.

    Attributes:
        target: A path or a URL: `file://`, `s3://BUCKET/FOLDER`, or another storage's.
        format: One of `FORMATS`.
        options: The writing flags.
        fit: What the rows were prepared with; None: nothing was fitted.
        checks: What must hold of the rows; None: nothing is asked.
        contract: Which columns may come after those of the version before; None: any.
    """

    target: str | Place
    format: Format = "safetensors"
    options: WriteOptions = field(default_factory=WriteOptions)
    fit: SavedFit | None = None
    checks: RowChecks | None = None
    contract: Contract | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError(f"unknown format {self.format!r}", hint=nearest(self.format, FORMATS, what="formats"))

    @property
    def capabilities(self) -> Capabilities:
        """A dataset can be created, replaced and appended to."""
        return Capabilities(modes=frozenset({"create", "replace", "append"}), python_rows=False)

    def check(self, schema: Schema, mode: Mode, /) -> None:
        """Refuse before anything is read what would fail at the end.

        Raises:
            ConfigError: The target, a column name or an option cannot be.
            SchemaError: Append, and the dataset has other columns.
        """
        self._checked(schema, mode)

    def plan(self, schema: Schema, /) -> PackPlan:
        """Which column goes where, for `--plan`.

        Raises:
            ConfigError: A column does not exist, or cannot be what it is asked to be.
        """
        return fitted(plan_columns(schema, self.options, self.format), self.format)

    def begin(self, run_id: str, schema: Schema, mode: Mode, /, *, taking: str = "") -> DatasetSession:
        """Clean up after dead runs and open a stage beside the target, or take that of the dead run `taking`.

        Raises:
            ConfigError: As `check`.
            DatasetError: The stage could not be made.
        """
        plan, split, live = self._checked(schema, mode)
        path = place_of(self.target)
        how = ordering(self.options, schema, written_columns(plan))
        return DatasetSession(
            target=path,
            folder=open_stage(path, run_id, taking=taking),
            run_id=run_id,
            mode=mode,
            begun_at=live.version if live else None,
            format=self.format,
            schema=schema,
            plan=plan,
            split=split,
            options=self.options,
            ordering=how,
            fit=self.fit,
            checks=self.checks,
        )

    def _checked(self, schema: Schema, mode: Mode) -> tuple[PackPlan, Splitting | None, Manifest | None]:
        path = place_of(self.target)
        plan = self.plan(schema)
        if self.checks is not None:
            self.checks.refuse(schema)
        options = self.options
        split = None
        if options.split:
            split = splitting(options, schema)
        how = ordering(options, schema, written_columns(plan))
        live = check_target(path, mode)
        if self.contract is not None:
            fields = list({c.field.name: c.field for c in plan.columns}.values())
            self.contract.hold(fields, None if live is None else live.columns, self.format, str(path))
        if live is not None and mode == "append":
            check_fit(live, self.fit, path)
            check_append(live, self.format, plan, split, options, path)
            check_order(live, how, path)
        return plan, split, live


def bounded(batches: Iterator[pa.RecordBatch], /) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most some 16 MiB: what is made of a batch on the way is as large as the batch."""
    for batch in batches:
        pieces = min(-(-batch.nbytes // _PIECE_BYTES), batch.num_rows)
        rows = -(-batch.num_rows // max(1, pieces))
        waiting = [batch.slice(i * rows, rows) for i in reversed(range(pieces))] if pieces > 1 else [batch]
        # The reader may use a batch's memory again only when nobody holds the batch, and this loop would.
        del batch
        while waiting:
            yield waiting.pop()


def written_columns(plan: PackPlan, /) -> tuple[str, ...]:
    """The source columns that are written, each once."""
    return tuple(dict.fromkeys(c.field.name for c in plan.columns))


@dataclass(frozen=True, slots=True)
class DatasetSession:
    """One run's write to one dataset; a picklable value.

    Attributes:
        target: The dataset's folder.
        folder: The stage: a hidden sibling of the target.
        run_id: In every file name.
        mode: create, replace or append.
        begun_at: The version that was current at the beginning.
        format: Of the data files.
        schema: Of the batches.
        plan: Which column goes where.
        split: The split recipe; None: one split named "all".
        options: The writing flags.
        ordering: The order of the rows; None: as the parts come.
        fit: What the rows were prepared with.
        checks: What must hold of the rows.
    """

    target: Target
    folder: Path
    run_id: str
    mode: Mode
    begun_at: int | None
    format: Format
    schema: Schema
    plan: PackPlan
    split: Splitting | None
    options: WriteOptions
    ordering: Ordering | None = None
    fit: SavedFit | None = None
    checks: RowChecks | None = None

    def stage(self, part: Partition, attempt: int, batches: Iterator[pa.RecordBatch], /) -> Staged:
        """Write one part's rows to names of this attempt: files, or sorted runs where rows are put in an order.

        Memory: one row group (Parquet) or one file (tensors) per split; one run twice.

        Raises:
            CastError: A value that `--cast` or `--nulls` refuses, or a NULL split key.
            DatasetError: The disk is full, or refused.
        """
        token = secrets.token_hex(4)
        stem = f"{self.run_id}-{part.index:05d}-{attempt}"
        files: dict[str, PartFiles] = {}
        counts = Counts(self.plan, part.index)
        watch = None if self.checks is None else self.checks.watch(self.schema, self.options.key, part.index)
        casts: dict[str, CastCount] = {}
        place = f"partition {part.index}"
        runs = None
        if self.ordering is not None:
            # What the readers of a process may gather is shared out as row groups; here it is sorted, and copied.
            limit = self.options.row_group_bytes // 2
            runs = Runs(self.folder, self.ordering, self.plan, f".{token}.tmp", place, limit)
        rows = 0
        try:
            for batch in bounded(batches):
                first = rows
                rows += batch.num_rows
                kept = counts.take(batch, place, first)
                if watch is not None and self.split is None:
                    watch.take(kept)
                if self.split is None:
                    self._open(files, runs, "all", stem, token, place, casts).write(kept)
                    counts.wrote("all", kept)
                elif kept.num_rows:
                    ids = self.split.assign(kept, place)
                    counts.left_out("time_cut", int((ids == LEFT_OUT).sum()))
                    if watch is not None:
                        watch.take(kept.filter(mask_of(ids != LEFT_OUT)) if (ids == LEFT_OUT).any() else kept)
                    for index, name in enumerate(self.split.names):
                        mask = ids == index
                        if mask.any():
                            side = kept if mask.all() else kept.filter(mask_of(mask))
                            self._open(files, runs, name, stem, token, place, casts).write(side)
                            counts.wrote(name, side)
                            del side
                # The reader may use a batch's memory again only when nobody holds the batch.
                del batch, kept
            done = [f for one in files.values() for f in one.close()]
        except OSError as error:
            self._undo(files, stem, token)
            if isinstance(self.target, Place) and not self.folder.is_dir():
                raise DatasetError(
                    f"cannot write partition {part.index} of {self.target}: this worker does not see {self.folder}, "
                    "where the run gathers files before they are sent",
                    hint="Leave --engine out, or set TMPDIR to a folder that all machines of the cluster share.",
                ) from error
            raise failed(f"cannot write partition {part.index} of {self.target}", error) from error
        except BaseException:
            self._undo(files, stem, token)
            raise
        return Staged(
            part=part,
            attempt=attempt,
            rows=sum(f.rows for f in done),
            dropped=counts.dropped,
            files=tuple(done),
            columns=counts.columns(casts),
            sketches=counts.sketches,
            checked={} if watch is None else watch.facts(),
        )

    def commit(self, staged: Sequence[Staged], /, *, requires: Requires) -> Published:
        """Publish all parts in one switch.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first.
            DatasetError: The disk is full, or refused.
        """
        pieces = [p.write(1, stopped=lambda: False, passed=lambda _: None) for p in self.exchange(staged)]
        return self.prepare(staged, requires=requires, finished=pieces)()

    def exchange(self, staged: Sequence[Staged], /) -> Sequence[Shard]:
        """The files of the whole order, each a task; none where the order is that of the parts.

        Raises:
            DatasetError: What was staged cannot be read.
        """
        if self.ordering is None:
            return ()
        runs = [Staging(one.part.index, file) for one in _newest(staged) for file in one.files]
        try:
            return shards(self, self.ordering, self.plan, runs, self._splits, self.options.partition_bytes)
        except OSError as error:
            raise failed(f"cannot put the rows of {self.target} in order", error) from error

    def shard_files(self, shard: Shard, token: str, schema: Sequence[str], casts: dict[str, CastCount], /) -> PartFiles:
        """The writer of one file of the order, which takes all rows it is given."""
        whole = 1 << 62
        options = replace(
            self.options,
            partition_bytes=whole,
            row_group_rows=group_rows(shard.row_bytes),
            row_group_bytes=whole,
        )
        alone = replace(self, schema=self.schema.select(schema), options=options)
        stem = self._merged_name(shard.split)(shard.number)
        return alone._format(shard.split, lambda _: stem, f".{token}.tmp", f"file {shard.number + 1} in order", casts)  # noqa: SLF001 - itself

    def unlink(self, token: str, /) -> None:
        """Remove what an attempt left under temporary names."""
        for path in self.folder.glob(f"**/*.{token}.tmp"):
            path.unlink(missing_ok=True)

    def prepare(
        self, staged: Sequence[Staged], /, *, requires: Requires, finished: Sequence[Finished] = ()
    ) -> Callable[[], Published]:
        """Check the counts and give every file its final name; what is returned publishes them in one switch.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first.
            DatasetError: The disk is full, or refused.
        """
        newest = _newest(staged)
        check_counts(newest, requires, str(self.target))
        live = check_parent(self.target, self.mode, self.begun_at)
        now = time.time()
        making = Making(
            run_id=self.run_id,
            mode=self.mode,
            format=self.format,
            plan=self.plan,
            split=self.split,
            options=self.options,
            requires=requires,
            staged=newest,
            order={},
            now=utc_text(now),
            fit=self.fit,
        )
        checked = verdicts(self.checks, newest, self._ending(making, live, now), str(self.target))
        requires = replace(requires, warnings=(*requires.warnings, *told(checked)))
        order: dict[str, object] = {"kind": "source", "source_mix_p": None}
        if self.ordering is not None:
            self._check_finished(newest, finished)
            runs = [Staging(one.part.index, file) for one in newest for file in one.files]
            order = self.ordering.as_json() | {"source_mix_p": mixing(runs, finished)}
        try:
            files = self._finish(newest, finished)
            if self.fit is not None:
                self.fit.write(self.folder)
            if isinstance(self.target, Place):
                # What takes long is done before the lock is held, and while the run still hears of a stop.
                brought = [one.path for file in files for one in file.stored]
                brought += self.fit.files if self.fit is not None else ()
                by_manifest.deliver(self.target, self.folder, self.run_id, brought)
                if not self.target.storage.exclusive:
                    requires = replace(requires, warnings=(*requires.warnings, by_manifest.ONE_WRITER))
        except OSError as error:
            raise failed(f"cannot publish {self.target}", error) from error
        making = replace(making, requires=requires, staged=_with_casts(newest, finished), order=order, checked=checked)
        columns = making.columns()

        def make(live: Manifest | None, number: int) -> Manifest:
            kept = live.files if live is not None and self.mode == "append" else ()
            if live is not None and self.mode == "append":
                check_fit(live, self.fit, self.target)
                check_append(live, self.format, self.plan, self.split, self.options, self.target)
                check_order(live, self.ordering, self.target)
            return making.manifest(live, number, columns, joined_entries(kept, files, number))

        def switch() -> Published:
            made = publish(self.target, self.folder, self.mode, self.begun_at, make)
            return Published(
                target=str(self.target),
                format=self.format,
                version=made.version,
                rows=made.rows,
                bytes=documents.integer(made.document["bytes"]),
                files=len(made.files),
                splits=made.splits,
                columns=made.columns,
                warnings=tuple(w for w in documents.sequence(made.document["warnings"]) if isinstance(w, dict)),
                checks=tuple(one.as_json() for one in checked),
            )

        return switch

    def _ending(self, making: Making, live: Manifest | None, now: float) -> Ending:
        """What checks are told when all rows are there."""
        rows = sum(one.rows for one in making.staged)
        document = making.described()
        moment = datetime.fromtimestamp(now, UTC)
        if live is None:
            return Ending(rows, None, moment, document)
        last = live.rows
        if self.mode == "append":
            last = sum(file.rows for file in live.files if file.added_in_version == live.version)
        return Ending(rows, last, moment, document, live.document)

    def leave(self) -> None:
        """Leave what was staged to a run that takes it up; may be called twice."""
        leave_stage(self.folder)

    def abort(self) -> None:
        """Remove what was staged; may be called twice, and after a commit does nothing."""
        drop_stage(self.folder, self.target)

    def _open(
        self,
        files: dict[str, PartFiles],
        runs: Runs | None,
        split: str,
        stem: str,
        token: str,
        place: str,
        casts: dict[str, CastCount],
    ) -> PartFiles:
        one = files.get(split)
        if one is None:
            prefix = f"{prefix_of(split)}-{stem}"
            end = f".{token}.tmp"
            if runs is not None:
                one = runs.of(split, lambda n: f"{prefix}-{n:03d}")
            else:
                one = self._format(split, lambda n: f"{prefix}-{n:03d}", end, place, casts)
            files[split] = one
        return one

    def _format(
        self, split: str, name: Callable[[int], str], end: str, place: str, casts: dict[str, CastCount]
    ) -> PartFiles:
        options = self.options
        if self.format in ENCODERS:
            encode = ENCODERS[self.format]
            return TensorPart(self.folder, self.schema, self.plan, split, name, end, options, place, casts, encode)
        return ParquetPart(
            self.folder,
            self.schema.to_arrow(),
            split,
            lambda n: f"{name(n)}{PARQUET}{end}",
            file_bytes=options.partition_bytes,
            group_rows=options.row_group_rows,
            group_bytes=min(options.row_group_bytes, options.partition_bytes),
        )

    def _undo(self, files: Mapping[str, PartFiles], stem: str, token: str) -> None:
        for one in files.values():
            one.abandon()
        for path in self.folder.glob(f"**/*-{stem}-*.{token}.tmp"):
            path.unlink(missing_ok=True)

    def _check_finished(self, staged: Sequence[Staged], finished: Sequence[Finished]) -> None:
        """Hold that putting rows in order lost and doubled none.

        Raises:
            CountMismatch: It did.
        """
        for split in self._splits:
            before = sum(f.rows for one in staged for f in one.files if f.split == split)
            after = sum(one.file.rows for one in finished if one.file.split == split)
            if before != after:
                raise CountMismatch(
                    f"split {split} of {self.target}: {before} rows were staged, {after} were put in order",
                    hint="Nothing was published. Run it again; report it if it happens twice.",
                )

    def _finish(self, staged: Sequence[Staged], finished: Sequence[Finished]) -> list[FileEntry]:
        """Give the listed files their final names, in the order: split, part, number."""
        found: dict[str, list[tuple[int, StagedFile]]] = {n: [] for n in self._splits}
        for one in staged if self.ordering is None else ():
            for file in one.files:
                found[file.split].append((one.part.index, file))
        for piece in finished:
            found[piece.file.split].append((-1, piece.file))
        entries: list[FileEntry] = []
        for split in self._splits:
            listed = found[split]
            if not listed and self.mode != "append":
                empty = self._format(split, self._merged_name(split), ".tmp", "no partition", {})
                listed = [(-1, f) for f in empty.close(empty=True)]
            start = 0
            together = [[i] for i in range(len(listed))]
            if self.ordering is None:
                together = groups([f for _, f in listed], self.format, self.options.partition_bytes)
            for number, members in enumerate(together):
                chosen = [listed[i] for i in members]
                file = chosen[0][1] if len(chosen) == 1 else self._joined(split, number, [f for _, f in chosen])
                indexes = tuple(dict.fromkeys(i for i, _ in chosen if i >= 0))
                entries.append(self._entry(indexes, file, start))
                start += file.rows
        return entries

    def _joined(self, split: str, number: int, files: Sequence[StagedFile]) -> StagedFile:
        name = self._merged_name(split)(number)
        schema = self.schema.to_arrow()
        if self.format == "parquet":
            paths = [f.path for f in files]
            return join_parquet(self.folder, paths, schema, split, f"{name}{PARQUET}.tmp", self.options)
        text = pa.schema([c.field.to_arrow() for c in self.plan.columns if not c.tensor])
        return join_tensors(self.folder, files, self.plan, text, name, self.options, self.format)

    def _merged_name(self, split: str) -> Callable[[int], str]:
        return lambda n: f"{prefix_of(split)}-{self.run_id}-m{n:05d}"

    def _entry(self, indexes: tuple[int, ...], file: StagedFile, row_start: int) -> FileEntry:
        start, tensors, text, members = (file.facts.get(k) for k in ("data_start", "tensors", "text_file", "members"))
        settled = {str(n): self._stored(m) for n, m in members.items()} if isinstance(members, dict) else None
        path = _TEMPORARY.sub("", file.path) if settled is not None else self._settle(file.path)
        return FileEntry(
            path=path,
            split=file.split,
            rows=file.rows,
            bytes=file.bytes,
            sha256=file.sha256,
            row_start=row_start,
            added_in_version=0,
            data_start=start if isinstance(start, int) else None,
            tensors={str(n): (int(v[0]), int(v[1])) for n, v in tensors.items()} if isinstance(tensors, dict) else None,
            partitions=indexes,
            text_file=self._stored(text) if isinstance(text, dict) else None,
            members=settled,
        )

    def _stored(self, one: Mapping[str, object]) -> StoredFile:
        return StoredFile(self._settle(str(one["path"])), documents.integer(one["bytes"]), str(one["sha256"]))

    def _settle(self, temporary: str) -> str:
        """`x.parquet.<token>.tmp` → `x.parquet`."""
        final = _TEMPORARY.sub("", temporary)
        (self.folder / temporary).rename(self.folder / final)
        return final

    @property
    def _splits(self) -> tuple[str, ...]:
        return self.split.names if self.split else ("all",)


def _with_casts(staged: Sequence[Staged], finished: Sequence[Finished]) -> list[Staged]:
    """The staged parts, with what casting changed while rows were put in order counted at the first."""
    if not finished or not staged:
        return list(staged)
    columns: dict[str, dict[str, object]] = {n: dict(c) for n, c in staged[0].columns.items()}
    for piece in finished:
        for name, counted in piece.columns.items():
            have = columns.setdefault(name, {})
            for what in ("n_rounded", "n_saturated"):
                have[what] = documents.integer(have.get(what, 0)) + documents.integer(counted.get(what, 0))
            errors = (float(str(c.get("max_abs_error", 0.0))) for c in (have, counted))
            have["max_abs_error"] = max(errors)
    return [replace(staged[0], columns=columns), *staged[1:]]


def _newest(staged: Sequence[Staged]) -> list[Staged]:
    newest: dict[int, Staged] = {}
    for one in staged:
        have = newest.get(one.part.index)
        if have is None or one.attempt > have.attempt:
            newest[one.part.index] = one
    return [newest[i] for i in sorted(newest)]
