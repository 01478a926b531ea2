"""Erasing: rows of some keys leave every version of a dataset, and nothing that held them stays behind.

Files with such rows are written anew without them, in every version whose data are there; manifests are written anew
so that each still tells the truth about its files and the hash of its parent. All of it becomes visible in the one
switch of a publish; then everything that still bears the old bytes goes.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from etl.core.canonical import canonical_json
from etl.core.errors import CommitConflict, ConfigError, Damaged, DatasetError
from etl.tensors import manifest as documents
from etl.tensors.document import utc_text
from etl.tensors.encode import mapped
from etl.tensors.keys import check_columns, keys_of, rows_with
from etl.tensors.manifest import RETIRED, VERSIONS, FileEntry, Manifest, prefix_of, renumbered
from etl.tensors.operations import opened, operation_id, successor
from etl.tensors.places import Place
from etl.tensors.publish import publish
from etl.tensors.rewrite import Piece, check_format, check_whole, made_anew
from etl.tensors.stages import drop_stage, open_stage, siblings, sweep
from etl.tensors.storage import LocalStorage, failed, locked
from etl.tensors.versions import history, located, missing, required
from etl.tensors.views import mask_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.keys import Keys

_STORAGE = LocalStorage()


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure took, or would.

    Attributes:
        target: The dataset.
        version: The new version; None where no row has one of the keys, and in a dry run.
        keys: How many keys were looked for.
        rows: Version → rows taken out of it; only versions that lost any.
        files: Data files written anew, text files not counted.
        trees: Old trees beside the dataset that were removed at once.
        linked: Files with such rows that bear another name somewhere else: a hard link that only its owner can remove.
        dry_run: Whether nothing was changed.
    """

    target: Path
    version: int | None
    keys: int
    rows: Mapping[int, int]
    files: int
    trees: int
    linked: tuple[str, ...]
    dry_run: bool

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "target": str(self.target),
            "version": self.version,
            "keys": self.keys,
            "rows": {str(version): rows for version, rows in self.rows.items()},
            "files": self.files,
            "trees": self.trees,
            "linked": list(self.linked),
            "dry_run": self.dry_run,
        }


def erase(path: str | os.PathLike[str] | Place, keys: Sequence[str], /, *, dry_run: bool = False) -> Erased:
    """Take every row that has one of the keys out of every version whose data are there.

    A version published meanwhile, or a run that is writing, could bring the rows back: both end the erasure. When it
    was killed, the dataset is as it was or as it should be, and the same call again removes what is left.

    Args:
        path: The folder, or a `file://` URL.
        keys: VALUE of the one key column, or NAME=VALUE,NAME=VALUE of several; a row goes when it equals one of them
            in all columns that are named.
        dry_run: Only count.

    Returns:
        What was taken.

    Raises:
        ConfigError: A key is malformed, or a version cannot be searched by it.
        Damaged: A file is not what its manifest says; nothing was changed.
        CommitConflict: A run is writing to the dataset, or published meanwhile; nothing was changed.
        DatasetError: There is no dataset, or the file system refused.
    """
    target, live = opened(path)
    if isinstance(target, Place):
        raise ConfigError(
            f"{target} lies in another storage, where erase cannot take rows out of old versions in one step",
            hint="Export again without the rows (--mode replace), then `cuetl dataset vacuum --keep 1`.",
        )
    wanted = keys_of(keys, live)
    lost = missing(target, live)
    if lost:
        raise Damaged(
            f"{lost[0]} of {target} is missing, so the current version cannot be searched",
            hint="Restore the file from a copy, or export again with --mode replace.",
            path=lost[0],
        )
    try:
        trees = 0
        if not dry_run:
            with locked(target.parent):
                _refuse_writers(target, "")
                trees = _remove_remains(target)
        search = _search(target, wanted)
        rows = {v.version: n for v in search.whole if (n := search.rows_of(v))}
        if dry_run or not rows:
            files = len(search.found)
            return Erased(target, None, len(wanted.values), rows, files, trees, (), dry_run)
        linked = _linked_elsewhere(target, search)
        made = _erase(target, search, wanted)
    except OSError as error:
        raise failed(f"cannot erase rows of {target}", error) from error
    # One more tree: that of its own switch.
    return Erased(target, made.version, len(wanted.values), rows, len(search.found), trees + 1, linked, dry_run=False)


@dataclass(frozen=True, slots=True)
class _Search:
    """What was found: all versions and those whose data are there, newest first; path → rows that go, of which file."""

    versions: Sequence[Manifest]
    whole: Sequence[Manifest]
    found: Mapping[str, tuple[Manifest, FileEntry, NDArray[np.bool_]]]

    @property
    def live(self) -> Manifest:
        return self.versions[0]

    def rows_of(self, version: Manifest, /) -> int:
        """Rows that go out of a version."""
        return sum(int(self.found[f.path][2].sum()) for f in version.files if f.path in self.found)


def _search(target: Path, wanted: Keys) -> _Search:
    versions = history(target, required(target))
    whole = [v for v in versions if not missing(target, v)]
    for version in whole:
        check_format(version, "erase")
        check_columns(version, wanted)
    found: dict[str, tuple[Manifest, FileEntry, NDArray[np.bool_]]] = {}
    seen: set[str] = set()
    for version in whole:
        for file in version.files:
            if file.path in seen:
                continue
            seen.add(file.path)
            mask = rows_with(version, file, lambda name: located(target, name), wanted)
            if mask.any():
                found[file.path] = (version, file, mask)
    return _Search(versions, whole, found)


def _refuse_writers(target: Path, own: str) -> None:
    writers = [one.run_id for one in siblings(target) if one.kind == "living" and one.run_id != own]
    if writers:
        raise CommitConflict(
            f"the run {writers[0]} is writing to {target} and may hold rows that are to be erased",
            hint="Nothing was changed. Wait for its end, or stop it, and run this again.",
        )


def _remove_remains(target: Path) -> int:
    """Old trees of whatever age, and files of versions that a vacuum began to take: they may hold what must go."""
    versions = history(target, required(target))
    needed = frozenset[str]().union(*(v.data_paths for v in versions if not missing(target, v)))
    for path in sorted(frozenset[str]().union(*(v.data_paths for v in versions)) - needed):
        (target / RETIRED / f"{path}.old").unlink(missing_ok=True)
    return len(sweep(target, trees=True))


def _linked_elsewhere(target: Path, search: _Search) -> tuple[str, ...]:
    """Files of which there is a name beside the dataset's own, now that no old tree is left."""
    places = {one.path: located(target, one.path) for _, f, _ in search.found.values() for one in f.stored}
    return tuple(sorted(path for path, place in places.items() if place.stat().st_nlink > 1))


def _erase(target: Path, search: _Search, wanted: Keys) -> Manifest:
    run_id = operation_id("erase")
    stage = open_stage(target, run_id)
    try:
        now = utc_text(time.time())
        check_whole(target, [file for _, file, _ in search.found.values()])
        anew = _made_anew(target, search, stage, run_id)
        taken = _nulls_taken(target, search)
        said = {
            "at": now,
            "run_id": run_id,
            "columns": list(wanted.columns),
            "keys": len(wanted.values),
            "versions": {str(v.version): n for v in search.whole if (n := search.rows_of(v))},
        }
        manifests = _manifests(search, anew, taken, said, [t for one in wanted.values for t in one])
        for version, manifest in manifests.items():
            _STORAGE.put(_made(stage / VERSIONS) / f"{version:06d}.json", manifest.to_json())
        live = manifests.get(search.live.version, search.live)
        numbers = {f"{v.version:06d}.json" for v in search.versions}
        dead = {p.name for p in (target / VERSIONS).glob("*.json")} - numbers
        instead = frozenset(p for p in _STORAGE.list(stage) if not p.startswith(".")) - live.data_paths
        gone = frozenset(
            [
                str(located(target, one.path).relative_to(target))
                for _, f, _ in search.found.values()
                for one in f.stored
            ]
            + [f"{VERSIONS}/{v:06d}.json" for v in manifests]
            + [f"{VERSIONS}/{name}" for name in dead]
        )

        def make(parent: Manifest | None, number: int) -> Manifest:
            if parent is None:
                raise DatasetError(f"{target} was removed meanwhile")
            _refuse_writers(target, run_id)
            if [v.version for v in search.versions if not missing(target, v)] != [v.version for v in search.whole]:
                raise CommitConflict(f"a vacuum of {target} took data meanwhile", hint="Run this again.")
            rows = search.rows_of(search.live)
            earlier = [e for e in documents.sequence(live.document.get("erased", [])) if not _same(e, run_id)]
            also = {"operation": "replace", "erased": [*earlier, {**said, "rows": rows}]}
            return successor(live, live, number, run_id, live.files, also)

        return publish(target, stage, "replace", search.live.version, make, instead=instead, gone=gone)
    finally:
        drop_stage(stage)


def _same(entry: object, run_id: str) -> bool:
    return isinstance(entry, dict) and entry.get("run_id") == run_id


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _made_anew(target: Path, search: _Search, stage: Path, run_id: str) -> dict[str, FileEntry]:
    """Path → the file in its place; in the stage each lies where its versions look for it."""
    anew: dict[str, FileEntry] = {}
    current = {f.path for f in search.live.files}
    for number, (path, (version, file, mask)) in enumerate(search.found.items()):
        stem = f"{prefix_of(file.split)}-{run_id}-m{number:05d}"
        made = made_anew(target, version, [Piece(file, ~mask)], stage, stem)
        if path not in current:
            for one in made.stored:
                retired = stage / RETIRED / f"{one.path}.old"
                retired.parent.mkdir(parents=True, exist_ok=True)
                (stage / one.path).rename(retired)
        anew[path] = made
    return anew


def _nulls_taken(target: Path, search: _Search) -> dict[str, dict[tuple[str, str], int]]:
    """Path → (column, role) → NULLs among the rows that go."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for path, (version, file, mask) in search.found.items():
        tensors = {} if version.format == "parquet" else mapped(file, version.format, lambda p: located(target, p))
        text = file.path if version.format == "parquet" else file.text_file.path if file.text_file else None
        stored = {} if text is None else _stored_nulls(located(target, text), mask)
        counts: dict[tuple[str, str], int] = {}
        for column in version.columns:
            name, null = str(column["name"]), column.get("null")
            valid = null.get("valid_tensor") if isinstance(null, dict) else None
            count = 0 if column.get("tensor") else stored.get(name, 0)
            if isinstance(valid, str) and isinstance(null, dict):
                at = null.get("valid_index")
                values = tensors[valid] if at is None else tensors[valid][:, documents.integer(at)]
                count = int(np.count_nonzero(~values[mask]))
            counts[name, str(column.get("role"))] = count
        found[path] = counts
    return found


def _stored_nulls(path: Path, mask: NDArray[np.bool_]) -> Counter[str]:
    """Column → NULLs among these rows of a Parquet file."""
    found = Counter[str]()
    with pq.ParquetFile(path) as file:
        first = 0
        for index in range(file.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            chosen = mask[first : first + rows]
            first += rows
            if chosen.any():
                group: Any = file.read_row_group(index).filter(mask_of(chosen))
                found.update({name: group.column(name).null_count for name in group.column_names})
    return found


def _manifests(
    search: _Search,
    anew: Mapping[str, FileEntry],
    nulls: Mapping[str, Mapping[tuple[str, str], int]],
    said: Mapping[str, object],
    texts: Sequence[str],
) -> dict[int, Manifest]:
    """Version → its manifest, where it is no longer what it was; the oldest first, each with its parent's new hash."""
    found: dict[int, Manifest] = {}
    named = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, texts))})(?![\w.])")
    whole = {v.version for v in search.whole}
    for version in reversed(search.versions):
        document = dict(version.document)
        # Rows that steps left out are in its statistics too, and are in no file that could be searched.
        document.pop("given", None)
        files = list(version.files)
        lost = Counter[str]()
        for file in files:
            if file.path in search.found:
                lost[file.split] += int(search.found[file.path][2].sum())
        if version.version in whole and lost:
            files, _ = renumbered([_in_place(f, anew) for f in files], version.splits)
            rows = dict(version.splits)
            for split, count in lost.items():
                rows[split] -= count
            document |= {
                "rows": sum(rows.values()),
                "splits": rows,
                "bytes": sum(one.bytes for f in files for one in f.stored),
                "content_sha256": documents.content_sha256(files),
                "columns": [_column_after(c, version, nulls, lost) for c in version.columns],
                "erased": [
                    *documents.sequence(document.get("erased", [])),
                    {**said, "rows": sum(lost.values())},
                ],
                "signature": None,
            }
        elif version.version not in whole:
            # Its rows are gone, and whether its statistics speak of those keys can no longer be told.
            document["columns"] = [{**c, "stats": {}} for c in version.columns]
        parts = documents.sequence(document.get("partitions", []))
        document["partitions"] = [_without_bounds(p, named) for p in parts]
        parent = document.get("parent")
        if parent is not None and (before := found.get(documents.integer(parent))) is not None:
            document["parent_sha256"] = documents.sha256_hex(before.to_json())
        made = Manifest.of(document, files)
        if made.to_json() != version.to_json():
            found[version.version] = made
    return found


def _in_place(file: FileEntry, anew: Mapping[str, FileEntry]) -> FileEntry:
    made = anew.get(file.path)
    return file if made is None else replace(made, partitions=file.partitions, added_in_version=file.added_in_version)


def _column_after(
    column: Mapping[str, object],
    version: Manifest,
    nulls: Mapping[str, Mapping[tuple[str, str], int]],
    lost: Mapping[str, int],
) -> dict[str, object]:
    """A column's entry without the NULLs of the rows that went, and without statistics that these rows are in."""
    entry = dict(column)
    null, stats = column.get("null"), column.get("stats")
    if isinstance(null, dict):
        key = (str(column["name"]), str(column.get("role")))
        taken = sum(nulls[f.path].get(key, 0) for f in version.files if f.path in nulls)
        entry["null"] = {**null, "count": documents.integer(null["count"]) - taken}
    if isinstance(stats, dict):
        entry["stats"] = {split: one for split, one in stats.items() if not lost.get(split)}
    return entry


def _without_bounds(partition: object, named: re.Pattern[str]) -> object:
    """A partition's entry; its bounds are left out where one of the keys stands among them."""
    if not isinstance(partition, dict):
        return partition
    bounds = canonical_json([partition.get("slice"), partition.get("predicate")]).decode()
    if not named.search(bounds):
        return partition
    slice_ = partition.get("slice")
    kind = slice_.get("kind") if isinstance(slice_, dict) else None
    return {**partition, "predicate": "", "slice": {"kind": kind}}
