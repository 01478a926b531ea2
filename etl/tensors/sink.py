"""The sink of a dataset: parts are staged on workers, then published together."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa

from connectors.base import Capabilities, Published, Staged, StagedFile
from etl.core.errors import CastError, ConfigError, CountMismatch, SchemaError
from etl.core.partition import KeyRange, NullKeys, Whole, slice_json
from etl.core.schema import nearest
from etl.tensors import manifest as documents
from etl.tensors.formats.parquet import SUFFIX as PARQUET
from etl.tensors.formats.parquet import ParquetPart
from etl.tensors.formats.safetensors import TensorPart
from etl.tensors.join import groups, join_parquet, join_tensors
from etl.tensors.manifest import FileEntry, Manifest, TextFile
from etl.tensors.options import WriteOptions
from etl.tensors.pack import PackPlan, plan_columns
from etl.tensors.publish import check_parent, check_target, drop_stage, open_stage, publish
from etl.tensors.split import SplitRecipe, recipe
from etl.tensors.storage import failed, local_path
from etl.tensors.views import mask_of, valid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.base import Mode, PartRecord, Requires
    from etl.core.partition import Partition, Slice
    from etl.core.schema import Schema
    from etl.tensors.cast import CastCount
    from etl.tensors.options import Format
    from etl.tensors.pack import ColumnPlan

FORMATS: tuple[Format, ...] = ("safetensors", "parquet")


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
        target: A path or a `file://` URL.
        format: "safetensors" or "parquet".
        options: The writing flags.
    """

    target: str
    format: Format = "safetensors"
    options: WriteOptions = field(default_factory=WriteOptions)

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
        return plan_columns(schema, self.options, self.format)

    def begin(self, run_id: str, schema: Schema, mode: Mode, /) -> DatasetSession:
        """Clean up after dead runs and open a stage beside the target.

        Raises:
            ConfigError: As `check`.
            DatasetError: The stage could not be made.
        """
        plan, split, live = self._checked(schema, mode)
        path = local_path(self.target)
        return DatasetSession(
            target=path,
            folder=open_stage(path, run_id),
            run_id=run_id,
            mode=mode,
            begun_at=live.version if live else None,
            format=self.format,
            schema=schema,
            plan=plan,
            split=split,
            options=self.options,
        )

    def _checked(self, schema: Schema, mode: Mode) -> tuple[PackPlan, SplitRecipe | None, Manifest | None]:
        path = local_path(self.target)
        plan = self.plan(schema)
        options = self.options
        split = None
        if options.split:
            split = recipe(
                options.split, options.split_key, options.split_salt, options.null_key, allow_float=options.allow_float
            )
            split.check(schema)
        live = check_target(path, mode)
        if live is not None and mode == "append":
            check_append(live, self.format, plan, split, options, path)
        return plan, split, live


def check_append(
    live: Manifest, format_: Format, plan: PackPlan, split: SplitRecipe | None, options: WriteOptions, target: Path, /
) -> None:
    """Hold that new rows fit the dataset: same format, columns, split and layout.

    Raises:
        ConfigError: Format, split or layout differ.
        SchemaError: Columns differ; each is named with both sides.
    """
    if live.format != format_:
        raise ConfigError(
            f"{target} holds {live.format} files and cannot take {format_} ones", hint=f"Use --format {live.format}."
        )
    have = live.document.get("layout")
    layout = layout_json(plan, options)
    if not isinstance(have, dict) or have.get("kind") != layout["kind"]:
        raise ConfigError(
            f"{target} has the layout {have.get('kind') if isinstance(have, dict) else have}, not {layout['kind']}",
            hint="Append with the options that made it, or use --mode replace.",
        )
    recipe_json = split.as_json() if split else None
    if live.document.get("split") != recipe_json:
        raise ConfigError(
            f"{target} has the split {live.document.get('split')}, not {recipe_json}",
            hint="Append with the same --split, --split-key and --split-salt, or use --mode replace.",
        )
    new = [column_json(c) for c in plan.columns]
    if documents.schema_sha256(new) == live.document["schema_sha256"]:
        return
    differences = _differences(live.columns, new)
    raise SchemaError(
        f"the columns differ from those of {target}: {'; '.join(differences)}",
        hint="Select the same columns and types, or use --mode replace.",
    )


def _differences(old: Sequence[Mapping[str, object]], new: Sequence[Mapping[str, object]]) -> list[str]:
    was = {str(c["name"]): c for c in old}
    now = {str(c["name"]): c for c in new}
    found = [f"{n} is missing" for n in was if n not in now]
    found += [f"{n} is new" for n in now if n not in was]
    for name, before in was.items():
        after = now.get(name, before)
        found += [
            f"{name} has {key} {after.get(key)}, the dataset {before.get(key)}"
            for key in ("dtype", "nullable", "role", "tensor", "index")
            if before.get(key) != after.get(key)
        ]
    return found or [f"their order is {', '.join(now)}, in the dataset {', '.join(was)}"]


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
    """

    target: Path
    folder: Path
    run_id: str
    mode: Mode
    begun_at: int | None
    format: Format
    schema: Schema
    plan: PackPlan
    split: SplitRecipe | None
    options: WriteOptions

    def stage(self, part: Partition, attempt: int, batches: Iterator[pa.RecordBatch], /) -> Staged:
        """Write one part's rows to names of this attempt.

        Memory: one row group (Parquet) or one file (tensors) per split.

        Raises:
            CastError: A value that `--cast` or `--nulls` refuses, or a NULL split key.
            DatasetError: The disk is full, or refused.
        """
        token = secrets.token_hex(4)
        stem = f"{self.run_id}-{part.index:05d}-{attempt}"
        files: dict[str, PartFiles] = {}
        counts = _Counts(self.plan)
        casts: dict[str, CastCount] = {}
        place = f"partition {part.index}"
        rows = 0
        try:
            for batch in batches:
                first = rows
                rows += batch.num_rows
                kept = counts.take(batch, place, first)
                if self.split is None:
                    self._open(files, "all", stem, token, place, casts).write(kept)
                elif kept.num_rows:
                    ids = self.split.assign(kept, place)
                    for index, name in enumerate(self.split.names):
                        mask = ids == index
                        if mask.any():
                            side = kept if mask.all() else kept.filter(mask_of(mask))
                            self._open(files, name, stem, token, place, casts).write(side)
                            del side
                # The reader may use a batch's memory again only when nobody holds the batch.
                del batch, kept
            done = [f for one in files.values() for f in one.close()]
        except OSError as error:
            self._undo(files, stem, token)
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
        )

    def commit(self, staged: Sequence[Staged], /, *, requires: Requires) -> Published:
        """Publish all parts in one switch.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first.
            DatasetError: The disk is full, or refused.
        """
        return self.prepare(staged, requires=requires)()

    def prepare(self, staged: Sequence[Staged], /, *, requires: Requires) -> Callable[[], Published]:
        """Check the counts and give every file its final name; what is returned publishes them in one switch.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first.
            DatasetError: The disk is full, or refused.
        """
        newest = _newest(staged)
        check_counts(newest, requires, str(self.target))
        check_parent(self.target, self.mode, self.begun_at)
        try:
            files = self._finish(newest)
        except OSError as error:
            raise failed(f"cannot publish {self.target}", error) from error
        columns = _columns(self.plan, newest, requires)
        warnings = (*self.plan.warnings, *requires.warnings)
        now = utc_text(time.time())

        def make(live: Manifest | None, number: int) -> Manifest:
            kept = live.files if live is not None and self.mode == "append" else ()
            if live is not None and self.mode == "append":
                check_append(live, self.format, self.plan, self.split, self.options, self.target)
            entries = _entries(kept, files, number)
            return Manifest.of(self._document(live, number, entries, columns, warnings, requires, newest, now), entries)

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
                columns=tuple(columns),
                warnings=tuple(warnings),
            )

        return switch

    def abort(self) -> None:
        """Remove what was staged; may be called twice, and after a commit does nothing."""
        drop_stage(self.folder)

    def _open(
        self,
        files: dict[str, PartFiles],
        split: str,
        stem: str,
        token: str,
        place: str,
        casts: dict[str, CastCount],
    ) -> PartFiles:
        one = files.get(split)
        if one is None:
            prefix = f"{_prefix(split)}-{stem}"
            one = files[split] = self._format(split, lambda n: f"{prefix}-{n:03d}", f".{token}.tmp", place, casts)
        return one

    def _format(
        self, split: str, name: Callable[[int], str], end: str, place: str, casts: dict[str, CastCount]
    ) -> PartFiles:
        options = self.options
        if self.format == "safetensors":
            return TensorPart(self.folder, self.schema, self.plan, split, name, end, options, place, casts)
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

    def _finish(self, staged: Sequence[Staged]) -> list[FileEntry]:
        """Give the listed files their final names, in the order: split, part, number."""
        found: dict[str, list[tuple[int, StagedFile]]] = {n: [] for n in self._splits}
        for one in staged:
            for file in one.files:
                found[file.split].append((one.part.index, file))
        entries: list[FileEntry] = []
        for split in self._splits:
            listed = found[split]
            if not listed and self.mode != "append":
                empty = self._format(split, self._merged_name(split), ".tmp", "no partition", {})
                listed = [(-1, f) for f in empty.close(empty=True)]
            start = 0
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
        return join_tensors(self.folder, files, self.plan, text, name, self.options)

    def _merged_name(self, split: str) -> Callable[[int], str]:
        return lambda n: f"{_prefix(split)}-{self.run_id}-m{n:05d}"

    def _entry(self, indexes: tuple[int, ...], file: StagedFile, row_start: int) -> FileEntry:
        path = self._settle(file.path)
        start, tensors, text = (file.facts.get(k) for k in ("data_start", "tensors", "text_file"))
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
            text_file=TextFile(self._settle(str(text["path"])), int(text["bytes"]), str(text["sha256"]))
            if isinstance(text, dict)
            else None,
        )

    def _settle(self, temporary: str) -> str:
        """`x.parquet.<token>.tmp` → `x.parquet`."""
        final = temporary.removesuffix(".tmp")
        if not final.endswith((".parquet", ".safetensors")):
            final = final.rpartition(".")[0]
        (self.folder / temporary).rename(self.folder / final)
        return final

    @property
    def _splits(self) -> tuple[str, ...]:
        return self.split.names if self.split else ("all",)

    def _document(
        self,
        live: Manifest | None,
        number: int,
        entries: Sequence[FileEntry],
        columns: Sequence[Mapping[str, object]],
        warnings: Sequence[Mapping[str, object]],
        requires: Requires,
        staged: Sequence[Staged],
        now: str,
    ) -> dict[str, object]:
        source = requires.source
        splits = dict.fromkeys(self._splits, 0)
        for entry in entries:
            splits[entry.split] = splits.get(entry.split, 0) + entry.rows
        total = sum(f.bytes + (f.text_file.bytes if f.text_file else 0) for f in entries)
        schema_hash = documents.schema_sha256(columns)
        return {
            "kind": documents.KIND,
            "format_version": documents.FORMAT_VERSION,
            "min_reader": documents.READER,
            "format": self.format,
            "version": number,
            "dataset_id": str(live.document["dataset_id"]) if live else str(uuid4()),
            "parent": live.version if live else None,
            "parent_sha256": documents.sha256_hex(live.to_json()) if live else None,
            "operation": self.mode,
            "created_at": now,
            "tags": dict(self.options.tags),
            "rows": sum(splits.values()),
            "bytes": total,
            "splits": splits,
            "split_order": list(splits),
            "producer": {
                "tool": "cuetl",
                "tool_version": _version("cuetl"),
                "pipeline": self.options.pipeline,
                "pipeline_sha256": "",
                "run_id": self.run_id,
                "engine": requires.engine,
                "workers": requires.workers,
                "libs": {
                    "python": python_version(),
                    **{n: _version(n) for n in ("numpy", "pandas", "dask", "pyarrow")},
                },
            },
            "source": [
                {
                    "name": source.name,
                    "connector": source.connector,
                    "dialect": source.dialect,
                    "server_version": source.server_version,
                    "url": source.url,
                    "query": source.query,
                    "query_sha256": documents.sha256_hex(source.query.encode()),
                    "params_sha256": source.params_sha256,
                    "tables": list(source.tables),
                    "schema_sha256": schema_hash,
                    "started": source.started,
                    "finished": source.finished,
                    "cut": dict(source.cut),
                    "watermark": None,
                    "rows_read": source.rows_read,
                    "rows_written": source.rows_written,
                    "rows_dropped": dict(source.rows_dropped),
                }
            ],
            "snapshots": {
                source.name: {
                    "kind": requires.snapshot.kind,
                    "token": requires.snapshot.token,
                    "taken_at": utc_text(requires.snapshot.taken_at.timestamp()),
                    "position": requires.snapshot.position,
                }
            },
            "partitions": [_part_json(p, source.name, staged) for p in requires.parts],
            "columns": list(columns),
            "feature_order": list(self.plan.features),
            "feature_order_sha256": documents.names_sha256(self.plan.features),
            "schema_sha256": schema_hash,
            "tensors": tensors_json(self.plan),
            "split": self.split.as_json() if self.split else None,
            "fit": None,
            "order": {"kind": "source", "source_mix_p": None},
            "scores": [],
            "content_sha256": documents.content_sha256(entries),
            "layout": layout_json(self.plan, self.options),
            "checks": [],
            "warnings": [dict(w) for w in warnings],
            "signature": None,
        }


class _Counts:
    """What the parts' rows were, per column, and the rows that null policies leave out or refuse."""

    def __init__(self, plan: PackPlan) -> None:
        self._plan = plan
        self._null = dict.fromkeys((c.field.name for c in plan.columns), 0)
        self._dropped = 0

    def take(self, batch: pa.RecordBatch, place: str, first: int) -> pa.RecordBatch:
        """Count a batch, whose first row is number `first` of the part; the rows that stay."""
        drop = None
        for column in self._plan.columns:
            array = batch.column(batch.schema.get_field_index(column.field.name))
            nulls = array.null_count
            if not nulls:
                continue
            if not column.field.nullable:
                raise SchemaError(
                    f"column {column.field.name} was declared NOT NULL and holds a NULL in {place}",
                    column=column.field.name,
                )
            if column.nulls == "error":
                row = int(np.flatnonzero(~valid_of(array))[0])
                raise CastError(
                    f"column {column.field.name} is NULL in {place}, row {first + row + 1}"
                    f"{self._key(batch, row)}, and --nulls error refuses it",
                    hint="Use --nulls mask to keep it, drop to leave the row out or fill=VALUE.",
                    column=column.field.name,
                )
            if column.nulls == "drop":
                valid = valid_of(array)
                drop = valid if drop is None else drop & valid
        kept = batch if drop is None else batch.filter(mask_of(drop))
        self._dropped += batch.num_rows - kept.num_rows
        for name in self._null:
            self._null[name] += kept.column(kept.schema.get_field_index(name)).null_count
        return kept

    def _key(self, batch: pa.RecordBatch, row: int) -> str:
        keys = [c.field.name for c in self._plan.columns if c.role == "key"]
        named = [f"{k} = {batch.column(batch.schema.get_field_index(k))[row].as_py()}" for k in keys]
        return f" ({', '.join(named)})" if named else ""

    @property
    def dropped(self) -> dict[str, int]:
        """Reason → rows left out."""
        return {"null": self._dropped} if self._dropped else {}

    def columns(self, casts: Mapping[str, CastCount]) -> dict[str, dict[str, object]]:
        """Column → what was counted."""
        found: dict[str, dict[str, object]] = {name: {"null": count} for name, count in self._null.items()}
        for name, cast in casts.items():
            found[name].update(n_rounded=cast.n_rounded, n_saturated=cast.n_saturated, max_abs_error=cast.max_abs_error)
        return found


def check_counts(staged: Sequence[Staged], requires: Requires, target: str, /) -> None:
    """Hold that rows counted, read and written agree, per part and in all.

    Raises:
        CountMismatch: They do not; the part and the numbers are named.
    """
    by_index = {s.part.index: s for s in staged}
    for record in requires.parts:
        one = by_index.pop(record.index, None)
        if one is None:
            raise CountMismatch(
                f"partition {record.index} of {target} was not written", hint="Nothing was published. Run it again."
            )
        dropped = sum(one.dropped.values())
        counted = record.rows_read if record.rows_counted is None else record.rows_counted
        if not (counted == record.rows_read == one.rows + dropped and record.rows == one.rows):
            raise CountMismatch(
                f"partition {record.index} of {target}: the store counted {record.rows_counted} rows, "
                f"{record.rows_read} were read, {one.rows} written and {dropped} left out by policy",
                hint="Nothing was published. Run it again.",
                partition=record.index,
            )
    if by_index:
        raise CountMismatch(f"partitions {sorted(by_index)} of {target} were written but not planned")
    read = sum(p.rows_read for p in requires.parts)
    if requires.rows is not None and requires.rows != read:
        raise CountMismatch(
            f"the store counted {requires.rows} rows in the snapshot, the partitions of {target} gave {read}",
            hint="Nothing was published. Run it again.",
        )


def _newest(staged: Sequence[Staged]) -> list[Staged]:
    newest: dict[int, Staged] = {}
    for one in staged:
        have = newest.get(one.part.index)
        if have is None or one.attempt > have.attempt:
            newest[one.part.index] = one
    return [newest[i] for i in sorted(newest)]


def _entries(kept: Sequence[FileEntry], new: Sequence[FileEntry], number: int) -> list[FileEntry]:
    """Old files, then new ones; rows go on counting per split."""
    ends: dict[str, int] = {}
    for file in kept:
        ends[file.split] = file.row_start + file.rows
    return [
        *kept,
        *(
            FileEntry(
                path=f.path,
                split=f.split,
                rows=f.rows,
                bytes=f.bytes,
                sha256=f.sha256,
                row_start=f.row_start + ends.get(f.split, 0),
                added_in_version=number,
                data_start=f.data_start,
                tensors=f.tensors,
                partitions=f.partitions,
                text_file=f.text_file,
            )
            for f in new
        ),
    ]


def column_json(column: ColumnPlan, /) -> dict[str, object]:
    """The entry of `columns[]` before anything was counted."""
    one = column.field
    entry: dict[str, object] = {
        "name": one.name,
        "source_column": one.name,
        "source_type": one.source_type,
        "arrow_type": str(one.type),
        "nullable": one.nullable,
        "role": column.role,
        "kind": column.kind,
        "tensor": column.tensor,
        "index": column.index,
        "dtype": column.dtype,
        "shape": list(column.shape),
        "decimal": None,
        "quant": None,
        "category": None,
        "ragged": None,
        "time": None,
        "stats": {},
        "transforms": [],
        "description": one.note,
    }
    if one.read_as:
        entry["read_as"] = one.read_as
    kind = one.type
    if pa.types.is_timestamp(kind):
        entry["time"] = {"unit": "us", "epoch": "1970-01-01T00:00:00", "zone": kind.tz}
    elif pa.types.is_date(kind):
        entry["time"] = {"unit": "d", "epoch": "1970-01-01", "zone": None}
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        entry["time"] = {"unit": "us", "epoch": None, "zone": None}
    if pa.types.is_decimal(kind):
        encoding = "scaled_int" if column.scale is not None else "decimal" if not column.tensor else "float"
        entry["decimal"] = {"precision": kind.precision, "scale": kind.scale, "encoding": encoding}
    if one.vocabulary is not None:
        entry["category"] = {"values": list(one.vocabulary), "cardinality": len(one.vocabulary), "order": "declared"}
    return entry


def _columns(plan: PackPlan, staged: Sequence[Staged], requires: Requires) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for column in plan.columns:
        name = column.field.name
        counted = [s.columns[name] for s in staged if name in s.columns]
        entry = column_json(column)
        valid = f"{column.tensor}.valid" if column.tensor and column.nullable else None
        policy, _, fill = column.nulls.partition("=")
        entry["null"] = {
            "policy": policy,
            "fill": fill or None,
            "valid_tensor": valid,
            "valid_index": column.index if valid else None,
            "count": _total(counted, "null"),
        }
        entry["cast"] = {
            "policy": column.cast,
            "n_rounded": _total(counted, "n_rounded") + requires.rounded.get(name, 0),
            "n_saturated": _total(counted, "n_saturated"),
            "max_abs_error": max((float(str(c.get("max_abs_error", 0.0))) for c in counted), default=0.0),
        }
        entry["special"] = dict(requires.special.get(name, {}))
        found.append(entry)
    return found


def _total(counted: Sequence[Mapping[str, object]], key: str) -> int:
    return sum(documents.integer(c.get(key, 0)) for c in counted)


def tensors_json(plan: PackPlan, /) -> list[dict[str, object]]:
    """`tensors[]`: name, dtype, shape of a row and the columns in it."""
    found: dict[str, dict[str, object]] = {}
    names: dict[str, list[str]] = {}
    for column in plan.columns:
        if column.tensor:
            names.setdefault(column.tensor, []).append(column.field.name)
            found[column.tensor] = {"name": column.tensor, "dtype": column.dtype, "order": "C"}
    for tensor, members in names.items():
        shape = next(c.shape for c in plan.columns if c.tensor == tensor)
        packed = any(c.index is not None for c in plan.columns if c.tensor == tensor)
        found[tensor]["row_shape"] = [len(members)] if packed else list(shape)
        found[tensor]["columns"] = members
    return list(found.values())


def layout_json(plan: PackPlan, options: WriteOptions, /) -> dict[str, object]:
    """`layout` of the manifest."""
    layout: dict[str, object] = {"kind": plan.layout, "target_bytes": options.partition_bytes}
    if plan.layout != "table":
        layout.update({"row_multiple": 4096, "header_align": 4096, "block_rows": 4096, "window_rows": 1 << 18})
    return layout


def _part_json(record: PartRecord, source: str, staged: Sequence[Staged]) -> dict[str, object]:
    part = next(s.part for s in staged if s.part.index == record.index)
    return {
        "source": source,
        "index": record.index,
        "key": record.key,
        "slice": slice_json(part.slice),
        "predicate": record.predicate,
        "includes_null": _includes_null(part.slice),
        "rows_counted": record.rows_counted,
        "rows_read": record.rows_read,
        "rows": record.rows,
        "bytes": record.bytes,
        "seconds": record.seconds,
        "attempts": record.attempts,
    }


def _includes_null(cut: Slice) -> bool:
    match cut:
        case KeyRange(nulls=nulls):
            return nulls
        case NullKeys() | Whole():
            return True
        case _:
            return False


def _prefix(split: str) -> str:
    return "part" if split == "all" else split


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def utc_text(seconds: float, /) -> str:
    """Seconds since 1970 as RFC 3339 UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
