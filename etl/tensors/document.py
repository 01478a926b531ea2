"""The fields of a version's manifest, made of the plan, what was counted, and where the rows came from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from etl.core.canonical import canonical_json
from etl.tensors import manifest as documents
from etl.tensors.appended import drift, joined_columns
from etl.tensors.encode import MAPPED
from etl.tensors.formats import tfrecord
from etl.tensors.given import given_json, joined_given, met_in
from etl.tensors.leaks import leak_checks, leak_warnings
from etl.tensors.manifest import FileEntry, Manifest
from etl.tensors.stats import Stats
from etl.tensors.summary import summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.base import Mode, PartRecord, Requires, SourceRecord, Staged
    from etl.core.partition import Snapshot
    from etl.tensors.checking import Verdict
    from etl.tensors.fits import SavedFit
    from etl.tensors.options import Format, WriteOptions
    from etl.tensors.pack import ColumnPlan, PackPlan
    from etl.tensors.split import Splitting


@dataclass(frozen=True, slots=True)
class Making:
    """What a run knows of the version that it is about to publish.

    Attributes:
        run_id: Of the run.
        mode: create, replace or append.
        format: Of the data files.
        plan: Which column goes where.
        split: The split recipe; None: one split named "all".
        options: The writing flags.
        requires: What the source said.
        staged: The newest attempt of every part.
        order: The order of the rows: kind, keys, seed, source_mix_p.
        now: The moment, RFC 3339.
        fit: What its rows were prepared with; None: nothing was fitted.
        checked: What came of data checks.
    """

    run_id: str
    mode: Mode
    format: Format
    plan: PackPlan
    split: Splitting | None
    options: WriteOptions
    requires: Requires
    staged: Sequence[Staged]
    order: Mapping[str, object]
    now: str
    fit: SavedFit | None = None
    checked: tuple[Verdict, ...] = ()

    def columns(self) -> list[dict[str, object]]:
        """`columns[]` with what was counted of this run's rows."""
        found = _columns(self.plan, self.staged, self.requires, self.split.names if self.split else ("all",))
        said = {} if self.fit is None else self.fit.columns
        return [self._by_split({**one, **said.get(str(one["name"]), {})}) for one in found]

    def described(self) -> dict[str, object]:
        """Of the manifest what tells the values of this run's rows: `columns`, `given`, `fit`."""
        columns = self.columns()
        fit = None if self.fit is None else dict(self.fit.entry)
        return {"columns": columns, "given": given_json(self.requires.given, columns), "fit": fit}

    def _by_split(self, column: dict[str, object]) -> dict[str, object]:
        """The column, and how often its reserved ids are in each split."""
        category = column.get("category")
        reserved = category.get("reserved") if isinstance(category, dict) else None
        if not isinstance(reserved, dict) or self.split is None:
            return column
        counted = [s.columns[str(column["name"])] for s in self.staged if column["name"] in s.columns]
        found = {split: met_in(reserved, _of_split(counted, split)) for split in self.split.names}
        prepared = column.get("prepared")
        known = prepared if isinstance(prepared, dict) else {}
        return {**column, "prepared": {**known, **{split: met for split, met in found.items() if met is not None}}}

    @property
    def warnings(self) -> tuple[Mapping[str, object], ...]:
        """`warnings[]`."""
        return (*self.plan.warnings, *self.requires.warnings, *leak_warnings(self.staged))

    def manifest(
        self,
        live: Manifest | None,
        number: int,
        columns: Sequence[Mapping[str, object]],
        entries: Sequence[FileEntry],
        /,
    ) -> Manifest:
        """The manifest of version `number`, whose parent is `live` and which has these files.

        Args:
            live: The version that is current.
            number: The new one.
            columns: Those of this run; what the live version knew is added where rows are appended to it.
            entries: All files.
        """
        warnings = [*self.warnings, *_changes(self, columns)]
        if live is not None and self.mode == "append":
            warnings += drift(live.columns, columns)
            columns = joined_columns(live.columns, columns, live.splits)
        return Manifest.of(_document(self, live, number, columns, entries, warnings), entries)


def _document(
    making: Making,
    live: Manifest | None,
    number: int,
    columns: Sequence[Mapping[str, object]],
    entries: Sequence[FileEntry],
    warnings: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    requires, plan, split = making.requires, making.plan, making.split
    splits = dict.fromkeys(split.names if split else ("all",), 0)
    for entry in entries:
        splits[entry.split] = splits.get(entry.split, 0) + entry.rows
    total = sum(one.bytes for f in entries for one in f.stored)
    schema_hash = documents.schema_sha256(columns)
    given = given_json(requires.given, columns)
    if live is not None and making.mode == "append":
        given = joined_given(documents.sequence(live.document.get("given", [])), given)
    return {
        "kind": documents.KIND,
        "format_version": documents.FORMAT_VERSION,
        "min_reader": documents.READER,
        "format": making.format,
        "version": number,
        "dataset_id": str(live.document["dataset_id"]) if live else str(uuid4()),
        "parent": live.version if live else None,
        "parent_sha256": documents.sha256_hex(live.to_json()) if live else None,
        "operation": making.mode,
        "created_at": making.now,
        "tags": dict(making.options.tags),
        "rows": sum(splits.values()),
        "bytes": total,
        "splits": splits,
        "split_order": list(splits),
        "producer": {
            "tool": "cuetl",
            "tool_version": _version("cuetl"),
            "pipeline": making.options.pipeline,
            "pipeline_sha256": "",
            "run_id": making.run_id,
            "engine": requires.engine,
            "workers": requires.workers,
            "libs": {
                "python": python_version(),
                **{n: _version(n) for n in ("numpy", "pandas", "dask", "pyarrow")},
            },
        },
        "source": [_source_json(one, schema_hash) for one in requires.sources],
        "snapshots": {one.name: _snapshot_json(one.snapshot) for one in requires.sources},
        "partitions": [
            _part_json(p, p.source or requires.sources[0].name) for p in (*requires.origins, *requires.parts)
        ],
        "columns": list(columns),
        **({"given": given} if given else {}),
        "feature_order": list(plan.features),
        "feature_order_sha256": documents.names_sha256(plan.features),
        "schema_sha256": schema_hash,
        "tensors": tensors_json(plan),
        "split": split.as_json() if split else None,
        "fit": None if making.fit is None else dict(making.fit.entry),
        # Appended rows are in order among themselves, behind those of the versions before.
        "order": {**making.order, "scope": _scope(making)},
        "scores": [] if making.fit is None else [dict(one) for one in making.fit.scores],
        "content_sha256": documents.content_sha256(entries),
        "layout": layout_json(plan, making.options, making.format),
        **({"tfrecord_features": tfrecord.features_json(plan)} if making.format == "tfrecord" else {}),
        "checks": [*_checks(requires), *leak_checks(making.staged), *(one.as_json() for one in making.checked)],
        "warnings": [dict(w) for w in warnings],
        "signature": None,
    }


def _scope(making: Making) -> str:
    """Of the order: rows that were appended are ordered among themselves, behind the old ones."""
    return "version" if making.mode == "append" and making.order["kind"] != "source" else "dataset"


def joined_entries(kept: Sequence[FileEntry], new: Sequence[FileEntry], number: int) -> list[FileEntry]:
    """Old files, then new ones; rows go on counting per split."""
    ends: dict[str, int] = {}
    for file in kept:
        ends[file.split] = file.row_start + file.rows
    return [
        *kept,
        *(replace(f, row_start=f.row_start + ends.get(f.split, 0), added_in_version=number) for f in new),
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
        labels = list(one.vocabulary)
        entry["category"] = {
            "vocab": None,
            "vocab_sha256": documents.sha256_hex(canonical_json(labels)),
            "key_type": "text",
            "cardinality": len(labels),
            "reserved": None,
            "order": "declared",
            "min_count": None,
            "max_size": None,
            "values": labels,
        }
    if column.kind == "ragged" and column.tensor:
        entry["ragged"] = {
            "lengths": f"{column.tensor}.lengths",
            "values": f"{column.tensor}.values",
            "max_len": None,
            "truncated_rows": 0,
            "pad_value": 0,
        }
    return entry


def policies_json(column: ColumnPlan, /) -> dict[str, dict[str, object]]:
    """What the entry of `columns[]` says of NULL and of casts, before anything was counted."""
    valid = f"{column.tensor}.valid" if column.tensor and column.nullable else None
    policy, _, fill = column.nulls.partition("=")
    return {
        "null": {
            "policy": policy,
            "fill": fill or None,
            "valid_tensor": valid,
            "valid_index": column.index if valid else None,
        },
        "cast": {"policy": column.cast},
    }


def _columns(
    plan: PackPlan, staged: Sequence[Staged], requires: Requires, splits: Sequence[str]
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for column in plan.columns:
        name = column.field.name
        counted = [s.columns[name] for s in staged if name in s.columns]
        entry, policies = column_json(column), policies_json(column)
        entry["null"] = {**policies["null"], "count": _total(counted, "null")}
        entry["cast"] = {
            **policies["cast"],
            "n_rounded": _total(counted, "n_rounded") + requires.rounded.get(name, 0),
            "n_saturated": _total(counted, "n_saturated"),
            "max_abs_error": max((float(str(c.get("max_abs_error", 0.0))) for c in counted), default=0.0),
        }
        entry["special"] = dict(requires.special.get(name, {}))
        if name in requires.prepared:
            entry["prepared"] = {"all": dict(requires.prepared[name])}
        stats = {split: summary(column.field.type, _of_split(counted, split)) for split in splits}
        entry["stats"] = stats
        ragged = entry["ragged"]
        if isinstance(ragged, dict):
            longest = [one["max"] for one in stats.values() if isinstance(one["max"], int)]
            ragged["max_len"] = max(longest, default=None)
        found.append(entry)
    return found


def _of_split(counted: Sequence[Mapping[str, object]], split: str) -> list[Stats]:
    """What the parts found in a split, in their order; parts without a row of it are not there."""
    found = []
    for column in counted:
        stats = column.get("stats")
        if isinstance(stats, dict) and isinstance(stats.get(split), Stats):
            found.append(stats[split])
    return found


def _changes(making: Making, columns: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What a policy changed or left out, as warnings; what the source rounded is among its own."""
    found: list[dict[str, object]] = []
    for column in columns:
        name, cast = str(column["name"]), column["cast"]
        if not isinstance(cast, dict):
            continue
        rounded = documents.integer(cast["n_rounded"]) - making.requires.rounded.get(name, 0)
        for code, count in (("cast-rounded", rounded), ("cast-saturated", documents.integer(cast["n_saturated"]))):
            if count:
                error = f", by at most {cast['max_abs_error']:.6g}" if code == "cast-rounded" else ""
                text = f"column {name}: {count} values were {code.removeprefix('cast-')} to {column['dtype']}{error}"
                found.append({"code": code, "column": name, "count": count, "text": text})
    dropped: dict[str, int] = {}
    for one in making.staged:
        for reason, count in one.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    for reason, count in dropped.items():
        found.append({"code": "dropped", "reason": reason, "count": count, "text": f"{count} rows left out: {reason}"})
    return found


def _checks(requires: Requires) -> list[dict[str, object]]:
    """What was held before the switch; a run that fails one publishes nothing."""
    found: list[dict[str, object]] = [{"name": "rows of each part", "passed": True, "observed": len(requires.parts)}]
    if requires.rows is not None:
        found.append({"name": "rows of the snapshot", "passed": True, "observed": requires.rows})
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


def layout_json(plan: PackPlan, options: WriteOptions, format_: Format, /) -> dict[str, object]:
    """`layout` of the manifest; records and table rows are at no known place, so nothing is said of theirs."""
    layout: dict[str, object] = {"kind": plan.layout, "target_bytes": options.partition_bytes}
    if format_ in MAPPED:
        layout.update({"row_multiple": 4096, "header_align": 4096, "block_rows": 4096, "window_rows": 1 << 18})
    return layout


def _source_json(source: SourceRecord, schema_hash: str) -> dict[str, object]:
    return {
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
        **({"rows_added": source.rows_added} if source.rows_added else {}),
    }


def _snapshot_json(at: Snapshot) -> dict[str, object]:
    return {
        "kind": at.kind,
        "token": at.token,
        "taken_at": utc_text(at.taken_at.timestamp()),
        "position": at.position,
    }


def _part_json(record: PartRecord, source: str) -> dict[str, object]:
    return {
        "source": source,
        "index": record.index,
        "key": record.key,
        "slice": dict(record.slice),
        "predicate": record.predicate,
        "includes_null": record.includes_null,
        "rows_counted": record.rows_counted,
        "rows_read": record.rows_read,
        **({"rows_made": record.rows_made} if record.rows_made is not None else {}),
        "rows": record.rows,
        "bytes": record.bytes,
        "seconds": record.seconds,
        "attempts": record.attempts,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def utc_text(seconds: float, /) -> str:
    """Seconds since 1970 as RFC 3339 UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
