"""What is done to a whole dataset after it was published: back to an older version, fewer files, away with old data."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from etl.core.errors import ConfigError, DatasetError
from etl.tensors import by_manifest
from etl.tensors import manifest as documents
from etl.tensors.document import utc_text
from etl.tensors.manifest import RETIRED, Manifest, prefix_of, renumbered
from etl.tensors.options import WriteOptions
from etl.tensors.places import Place, place_of
from etl.tensors.publish import check_target, publish
from etl.tensors.rewrite import Piece, check_format, check_whole, made_anew
from etl.tensors.segments import ROWS
from etl.tensors.stages import drop_stage, open_stage, siblings, sweep
from etl.tensors.storage import failed, locked
from etl.tensors.versions import history, missing, required, version_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.manifest import FileEntry
    from etl.tensors.places import Target

KEEP = 3
"""Versions whose data vacuum leaves, counted from the newest."""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum removed, or would.

    Attributes:
        target: The dataset.
        kept: Versions whose data are whole afterwards, newest first.
        taken: Versions that were whole before and are not afterwards.
        files: Data files removed.
        bytes: Their sizes.
        trees: Old trees and stages of dead runs removed beside the dataset.
        waiting: Old trees that stay, because a listing may still be reading them.
        dry_run: Whether nothing was removed.
    """

    target: Target
    kept: tuple[int, ...]
    taken: tuple[int, ...]
    files: int
    bytes: int
    trees: int
    waiting: int
    dry_run: bool

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "target": str(self.target),
            "kept": list(self.kept),
            "taken": list(self.taken),
            "files": self.files,
            "bytes": self.bytes,
            "trees": self.trees,
            "waiting": self.waiting,
            "dry_run": self.dry_run,
        }


def opened(path: str | os.PathLike[str] | Place, /) -> tuple[Target, Manifest]:
    """A dataset that is about to be changed: its folder and its current manifest.

    Raises:
        ConfigError: It is a place that cannot be published to.
        DatasetError: There is no dataset.
    """
    target = place_of(path)
    required(target)
    live = check_target(target, "replace")
    return target, required(target) if live is None else live


def rollback(path: str | os.PathLike[str] | Place, /, version: int | None = None) -> Manifest:
    """Publish a new version that is what an older one was: its files, columns and fit.

    Args:
        path: The folder, or a `file://` URL.
        version: The older version; None: the parent of the current one.

    Returns:
        The manifest of the new version.

    Raises:
        ConfigError: It is the current version, or there is no older one.
        DatasetError: There is no such version, or vacuum took its data.
        CommitConflict: Another run published meanwhile.
    """
    target, live = opened(path)
    if version is None and live.document.get("parent") is None:
        raise ConfigError(f"{target} has only version {live.version}", hint="There is none to go back to.")
    wanted = version_of(target, live, documents.integer(live.document["parent"]) if version is None else version)
    if wanted.version == live.version:
        raise ConfigError(f"version {wanted.version} of {target} is the current one", hint="Name an older version.")
    gone = missing(target, wanted)
    if gone:
        raise DatasetError(
            f"version {wanted.version} of {target} cannot come back: {gone[0]}"
            f"{f' and {len(gone) - 1} more of its files are' if len(gone) > 1 else ' is'} gone, as after a vacuum",
            hint=_whole_hint(target, history(target, live)),
            version=wanted.version,
        )
    run_id = operation_id("rollback")

    def make(parent: Manifest | None, number: int) -> Manifest:
        if parent is None:
            raise DatasetError(f"{target} was removed meanwhile")
        also: dict[str, object] = {"operation": "rollback", "restores": wanted.version}
        return successor(wanted, parent, number, run_id, wanted.files, also)

    stage = open_stage(target, run_id)
    try:
        return publish(target, stage, "replace", live.version, make)
    finally:
        drop_stage(stage, target)


def compact(path: str | os.PathLike[str] | Place, /) -> Manifest | None:
    """Publish a new version with the same rows in the same order, in which small files are joined.

    Neighbours that are each under half of the dataset's target size are cut anew: as few files as the target allows,
    of a multiple of 4096 rows each but the last. Text beside tensors is cut in the same way. The manifest calls it a
    `replace` that `compacts` its parent.

    Args:
        path: The folder, or a `file://` URL.

    Returns:
        The manifest of the new version; None where there is nothing to join.

    Raises:
        ConfigError: Files of this format cannot be joined.
        Damaged: A file is not what the manifest says; nothing was published.
        DatasetError: There is no dataset, or the file system refused.
        CommitConflict: Another run published meanwhile.
    """
    target, live = opened(path)
    check_format(live, "compact")
    runs = _runs(live)
    if all(len(run) == 1 for run in runs):
        return None
    run_id = operation_id("compact")
    stage = open_stage(target, run_id)
    try:
        files: list[tuple[FileEntry, bool]] = []
        for run in runs:
            if len(run) == 1:
                files.append((run[0], False))
                continue
            check_whole(target, run)
            for pieces in _cuts(run, _target_bytes(live)):
                stem = f"{prefix_of(run[0].split)}-{run_id}-m{len(files):05d}"
                files.append((made_anew(target, live, pieces, stage, stem), True))

        def make(parent: Manifest | None, number: int) -> Manifest:
            if parent is None:
                raise DatasetError(f"{target} was removed meanwhile")
            also: dict[str, object] = {"operation": "replace", "compacts": live.version}
            entries = [replace(f, added_in_version=number) if new else f for f, new in files]
            return successor(live, parent, number, run_id, entries, also)

        return publish(target, stage, "replace", live.version, make)
    except OSError as error:
        raise failed(f"cannot compact {target}", error) from error
    finally:
        drop_stage(stage, target)


def _target_bytes(manifest: Manifest) -> int:
    layout = manifest.document.get("layout")
    size = layout.get("target_bytes") if isinstance(layout, dict) else None
    return size if isinstance(size, int) and size > 0 else WriteOptions().partition_bytes


def _runs(manifest: Manifest) -> list[list[FileEntry]]:
    """Files in row order, split after split; those that are cut anew together stand together."""
    small = _target_bytes(manifest) // 2
    found: list[list[FileEntry]] = []
    for split in manifest.splits:
        listed = [f for f in manifest.files if f.split == split]
        for joins, together in groupby(listed, lambda f: f.bytes < small or not f.rows):
            run = list(together)
            found += [run] if joins else [[f] for f in run]
    return found


def _cuts(run: Sequence[FileEntry], target: int) -> list[list[Piece]]:
    """The rows of a run in as few files as the target allows, each of a multiple of `ROWS` but the last."""
    rows = sum(f.rows for f in run)
    count = max(1, -(-sum(f.bytes for f in run) // target))
    step = max(1, -(-rows // count // ROWS)) * ROWS
    found: list[list[Piece]] = []
    for low in range(0, max(rows, 1), step):
        high, first, pieces = min(low + step, rows), 0, []
        for file in run:
            start, stop = max(low - first, 0), min(high - first, file.rows)
            first += file.rows
            if start < stop or not rows:
                pieces.append(Piece(file, None if stop - start == file.rows else _between(file.rows, start, stop)))
        found.append(pieces)
    return found


def _between(rows: int, start: int, stop: int) -> NDArray[np.bool_]:
    keep = np.zeros(rows, np.bool_)
    keep[start:stop] = True
    return keep


def operation_id(operation: str, /) -> str:
    """A run id for an operation that reads no store."""
    return f"{operation}-{secrets.token_hex(6)}"


def successor(
    of: Manifest, parent: Manifest, number: int, run_id: str, files: Sequence[FileEntry], also: Mapping[str, object], /
) -> Manifest:
    """The manifest of a version that says of its rows what another one says.

    Args:
        of: The version whose rows they are.
        parent: The version that is current until now.
        number: Of the new version.
        run_id: Of the operation.
        files: Its files; where their rows begin is set here.
        also: Fields that are its own.
    """
    entries, ends = renumbered(files, of.splits)
    producer = of.document.get("producer")
    document = {k: v for k, v in of.document.items() if k not in {"restores", "compacts"}}
    document |= {
        "version": number,
        "dataset_id": parent.document["dataset_id"],
        "parent": parent.version,
        "parent_sha256": documents.sha256_hex(parent.to_json()),
        "created_at": utc_text(time.time()),
        "rows": sum(ends.values()),
        "bytes": sum(one.bytes for f in entries for one in f.stored),
        "splits": ends,
        "content_sha256": documents.content_sha256(entries),
        "producer": {**(producer if isinstance(producer, dict) else {}), "run_id": run_id},
        "signature": None,
        **also,
    }
    return Manifest.of(document, entries)


def vacuum(path: str | os.PathLike[str] | Place, /, *, keep: int = KEEP, dry_run: bool = False) -> Vacuumed:
    """Remove the data of old versions, the trees that switches left, and the stages of dead runs.

    Manifests stay, and so does every file that one of the kept versions lists. A job that holds an older version open
    goes on with the files that it has mapped, and finds the others missing.

    Args:
        path: The folder, or a `file://` URL.
        keep: How many versions stay whole, counted from the newest.
        dry_run: Only say what would go.

    Raises:
        ConfigError: `keep` is less than 1.
        DatasetError: There is no dataset, or the file system refused.
    """
    if keep < 1:
        raise ConfigError(f"--keep is {keep}; it must be at least 1", hint="The current version always stays.")
    target, _ = opened(path)
    try:
        if isinstance(target, Place):
            return _vacuum_place(target, keep, dry_run=dry_run)
        with locked(target.parent):
            return _vacuum(target, keep, dry_run=dry_run)
    except OSError as error:
        raise failed(f"cannot clean {target}", error) from error


def _vacuum(target: Path, keep: int, *, dry_run: bool) -> Vacuumed:
    versions = history(target, required(target))
    whole = [v.version for v in versions if not missing(target, v)]
    needed = frozenset[str]().union(*(v.data_paths for v in versions[:keep]))
    ours = frozenset[str]().union(*(v.data_paths for v in versions))
    going = [target / RETIRED / f"{path}.old" for path in sorted(ours - needed)]
    sizes = [path.stat().st_size for path in going if path.is_file()]
    found = list(siblings(target))
    due = sum(one.due for one in found)
    if not dry_run:
        for path in going:
            path.unlink(missing_ok=True)
        for folder in sorted({path.parent for path in going}, reverse=True):
            with suppress(OSError):
                folder.rmdir()
        sweep(target)
    stays = [v.version for v in versions if v.version in whole and v.data_paths <= needed]
    return Vacuumed(
        target=target,
        kept=tuple(stays),
        taken=tuple(v for v in whole if v not in stays),
        files=len(sizes),
        bytes=sum(sizes),
        trees=due,
        waiting=sum(one.kind == "tree" and not one.due for one in found),
        dry_run=dry_run,
    )


def _vacuum_place(target: Place, keep: int, *, dry_run: bool) -> Vacuumed:
    with by_manifest.locked(target, operation_id("vacuum")) as lock:
        if not dry_run:
            by_manifest.recover(target, lock)
        versions = history(target, required(target))
        have = target.sizes()
        whole = [v for v in versions if all(p in have or _retired(p) in have for p in v.data_paths)]
        needed = frozenset[str]().union(*(v.data_paths for v in versions[:keep]))
        ours = frozenset[str]().union(*(v.data_paths for v in versions))
        going = [_retired(path) for path in sorted(ours - needed) if _retired(path) in have]
        if not dry_run:
            for path in going:
                target.storage.remove(target.at(path))
                lock.touch()
    stays = [v.version for v in whole if v.data_paths <= needed]
    return Vacuumed(
        target=target,
        kept=tuple(stays),
        taken=tuple(v.version for v in whole if v.version not in stays),
        files=len(going),
        bytes=sum(have[path] for path in going),
        trees=0,
        waiting=0,
        dry_run=dry_run,
    )


def _retired(path: str) -> str:
    return f"{RETIRED}/{path}.old"


def _whole_hint(target: Target, versions: Sequence[Manifest]) -> str:
    whole = [str(v.version) for v in versions if not missing(target, v)]
    return f"Versions {', '.join(whole)} are whole." if len(whole) > 1 else "No older version is whole."
