"""How a version becomes visible: one switch, which every operation shares.

Publishing completes a stage with hard links to everything that stays, then exchanges it with the live folder: a reader
that lists the folder sees all of the old version or all of the new one. Where folders cannot be exchanged, and in other
storages, the manifest is the switch (`etl.tensors.by_manifest`).
"""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError, Damaged, DatasetError
from etl.tensors import by_manifest
from etl.tensors.fits import STATE
from etl.tensors.manifest import CURRENT, RETIRED, VERSIONS, Manifest
from etl.tensors.places import Place, as_place, place_of
from etl.tensors.stages import OWNER, sweep
from etl.tensors.storage import LocalStorage, exchange, failed, locked
from etl.tensors.versions import check_parent, current

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.base import Mode
    from etl.tensors.places import Target

_STORAGE = LocalStorage()


def check_target(target: Target, mode: Mode, /) -> Manifest | None:
    """Refuse, before anything is read, a target that could not be published to.

    Returns:
        The current manifest, None where there is no dataset yet.

    Raises:
        ConfigError: A file, a foreign folder, a mount point, a folder inside another dataset, an existing dataset
            (create), none (append), or a place that cannot be written to.
    """
    try:
        return _check_place(target, mode) if isinstance(target, Place) else _check_target(target, mode)
    except OSError as error:
        raise ConfigError(str(failed(f"cannot write to {target}", error))) from error


def _check_target(target: Path, mode: Mode) -> Manifest | None:
    above = target.parent
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise ConfigError(f"{above}, in the path of the target {target}, is a file", hint="Name a folder.")
    try:
        str(target).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the name of the target {target} is not UTF-8, and Arrow opens no file below it",
            hint="Name another folder.",
        ) from None
    if target.is_symlink():
        raise ConfigError(f"the target {target} is a symbolic link", hint=f"Name the folder itself: {target.resolve()}")
    if target.exists() and not target.is_dir():
        raise ConfigError(f"the target {target} is a file", hint="Name a folder.")
    if target.is_dir() and target.is_mount():
        raise ConfigError(
            f"the target {target} is a mount point, which cannot be exchanged in one step",
            hint=f"Use a folder inside it: {target / 'data'}",
        )
    _refuse_inside_another(target)
    manifest = current(target)
    if manifest is None and target.is_dir():
        _refuse_foreign(target, sorted(entry.name for entry in os.scandir(target)))
    _check_mode(target, manifest, mode)
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"the folder {above} may not be written to", hint="Choose a folder that you may write to.")
    return manifest


def _check_place(target: Place, mode: Mode) -> Manifest | None:
    inside = target.path.strip("/").split("/")
    for count in range(1, len(inside)):
        outer = target.path[: len(target.path) - len("/".join(inside[count:])) - 1]
        if target.storage.size(f"{outer}/{CURRENT}") is not None:
            raise ConfigError(
                f"the target {target} lies inside the dataset {outer}, whose readers would read its files too",
                hint="Name a folder beside it.",
            )
    manifest = current(target)
    if manifest is None:
        have = target.sizes()
        _refuse_foreign(target, sorted(have.keys() - by_manifest.own_files(target, have)) if have else [])
    _check_mode(target, manifest, mode)
    if manifest is not None and not target.storage.replaces:
        raise ConfigError(
            f"the storage of {target} cannot put one file in the place of another in one step, which --mode replace "
            "and append need",
            hint="Use --mode create with a new folder.",
        )
    return manifest


def _refuse_foreign(target: Target, foreign: Sequence[str]) -> None:
    if foreign:
        shown = ", ".join(foreign[:3]) + (" …" if len(foreign) > 3 else "")
        raise ConfigError(
            f"the target {target} holds files that are no cuETL dataset ({shown})",
            hint="Name a new or empty folder; cuETL never writes over files that are not its own.",
        )


def _check_mode(target: Target, manifest: Manifest | None, mode: Mode) -> None:
    if manifest is not None and mode == "create":
        raise ConfigError(
            f"the target {target} is a dataset already (version {manifest.version}, {manifest.rows} rows)",
            hint="Use --mode replace for a new version or --mode append to add to it, or name another folder.",
        )
    if manifest is None and mode == "append":
        raise ConfigError(f"there is no dataset at {target} to append to", hint="Make it first, with mode create.")
    if mode == "merge":
        raise ConfigError("a dataset cannot be merged into", hint="Use --mode replace or append.")


def _refuse_inside_another(target: Path) -> None:
    """A dataset within a dataset: readers of the outer one take the inner one's files for its own."""
    for above in target.parents:
        try:
            outer = current(above)
        except DatasetError:
            continue
        if outer is not None:
            raise ConfigError(
                f"the target {target} lies inside the dataset {above}, whose readers would read its files too",
                hint="Name a folder beside it.",
            )


def _exchanges(target: Path) -> bool:
    """Whether the file system exchanges two folders in one step; call it under the lock."""
    one, other = (target.parent / f".{target.name}.cuetl-probe-{os.getpid()}-{n}" for n in "ab")
    try:
        one.mkdir()
        other.mkdir()
        exchange(one, other)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV):
            raise
        return False
    finally:
        for folder in (one, other):
            with suppress(OSError):
                folder.rmdir()
    return True


def publish(
    target: Target,
    stage: Path,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
    /,
    *,
    instead: frozenset[str] = frozenset(),
    gone: frozenset[str] = frozenset(),
) -> Manifest:
    """Make the stage the current version in one switch. Only files that the new manifest lists may be in it.

    Args:
        target: The dataset.
        stage: Its stage, with all new data files under their final names.
        mode: create, replace or append.
        begun_at: The version that was current when the run began; None: there was none.
        make: Called under the lock with the parent manifest and the new version's number.
        instead: Further files of the stage, which the new manifest does not list: they come in the place of `gone`.
        gone: Files of the live folder that no version needs any more and that must not outlive this call. With any,
            old trees are removed at once too.

    Returns:
        The manifest as published.

    Raises:
        CommitConflict: Another run published first (append goes on, on top of it).
        DatasetError: The file system refused.
    """
    run_id = stage.name.rpartition(".cuetl-")[2]
    local = target.shadow if isinstance(target, Place) else target
    try:
        with locked(local.parent):
            if isinstance(target, Place):
                return by_manifest.publish(target, stage, run_id, mode, begun_at, make)
            if (target / CURRENT).exists() and not _exchanges(target):
                if gone:
                    raise ConfigError(
                        f"the file system of {target} cannot exchange two folders in one step, which this needs",
                        hint="Copy the dataset to a local disk (ext4, xfs, btrfs, tmpfs, APFS) and do it there.",
                    )
                return by_manifest.publish(as_place(target), stage, run_id, mode, begun_at, make)
            made = _publish(target, stage, mode, begun_at, make, instead, gone)
            if gone:
                sweep(target, trees=True)
            return made
    except OSError as error:
        raise failed(f"cannot publish {target}", error) from error


def commit_of(target: str | Place, /) -> dict[str, str]:
    """How a version becomes visible at a target, for `--plan`: `kind` is "folder" or "manifest"; `text` says more."""
    place = place_of(target)
    if not isinstance(place, Place):
        return {"kind": "folder", "text": ""}
    one = "" if place.storage.exclusive else " Let one run write to it at a time: this storage keeps no lock by itself."
    return {
        "kind": "manifest",
        "text": f"files are gathered in {place.shadow.parent} and then sent; {place} shows a version when its "
        "_manifest.json is put in place. Whoever reads the manifest never sees two versions mixed; a plain listing "
        f"may, for a moment.{one}",
    }


def _publish(
    target: Path,
    stage: Path,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
    instead: frozenset[str],
    gone: frozenset[str],
) -> Manifest:
    live = check_parent(target, mode, begun_at)
    number, manifest = _claim(target, live, make)
    versions = stage / VERSIONS
    versions.mkdir(exist_ok=True)
    listed, states = manifest.data_paths, frozenset(manifest.state_hashes)
    _drop_unlisted(stage, listed | states | instead)
    text = manifest.to_json()
    if live is None:
        _STORAGE.put(versions / f"{number:06d}.json", text)
    moves: Mapping[str, str | None] = {}
    if live is not None:
        moves = dict.fromkeys(gone, None) | _moves(target, live.data_paths, listed, gone)
        _carry(target, stage, moves)
        shutil.copymode(target, stage)
    _STORAGE.put(stage / CURRENT, text)
    for path in listed | states:
        if not (stage / path).is_file():
            raise Damaged(f"{path} of {target} is missing, so no version that lists it can be published", path=path)
    (stage / OWNER).unlink()
    _make_durable(stage, target, (listed - (live.data_paths if live else frozenset())) | states | instead)
    if _STORAGE.switch(stage, target):
        _after_switch(stage, target, moves)
    return manifest


def _moves(target: Path, live: frozenset[str], listed: frozenset[str], gone: frozenset[str]) -> dict[str, str | None]:
    """Where files of the live folder go: data that is replaced to `_retired`, data that is listed again out of it."""
    moves: dict[str, str | None] = {path: f"{RETIRED}/{path}.old" for path in live - listed - gone}
    for path in listed - live:
        retired = f"{RETIRED}/{path}.old"
        if not (target / path).exists() and (target / retired).is_file():
            moves[retired] = path
    return moves


def _claim(
    target: Path, live: Manifest | None, make: Callable[[Manifest | None, int], Manifest]
) -> tuple[int, Manifest]:
    """The next free version number; where a dataset is live, its manifest file is made there exclusively."""
    folder = target / VERSIONS
    taken = [int(p.stem) for p in folder.glob("*.json") if p.stem.isdigit()] if folder.is_dir() else []
    number = max([*taken, live.version if live else 0]) + 1
    if live is None:
        return number, make(live, number)
    while True:
        manifest = make(live, number)
        try:
            folder.mkdir(exist_ok=True)
            _STORAGE.put(folder / f"{number:06d}.json", manifest.to_json())
        except FileExistsError:
            number += 1
        else:
            return number, manifest


def _drop_unlisted(stage: Path, listed: frozenset[str]) -> None:
    """Files of attempts that were tried again are ours, in our stage, and in nobody's manifest."""
    for path in list(_STORAGE.list(stage)):
        if path not in listed and path != OWNER:
            (stage / path).unlink()


def _carry(target: Path, stage: Path, moves: Mapping[str, str | None]) -> None:
    """Link everything of the live folder into the stage, under its own name or the one that it moves to."""
    for path in _STORAGE.list(target):
        name = moves.get(path, path)
        # Equal fits share their files.
        shared = path.startswith(f"{STATE}/") and (stage / path).exists()
        if path != CURRENT and name is not None and not shared:
            _STORAGE.link(target / path, stage / name)
    for at, folders, _ in os.walk(target):
        for folder in folders:
            if not Path(at, folder).is_symlink():
                (stage / os.path.relpath(Path(at, folder), target)).mkdir(parents=True, exist_ok=True)


def _make_durable(stage: Path, target: Path, new: frozenset[str]) -> None:
    with ThreadPoolExecutor(8, "cuetl-fsync") as pool:
        # Draining raises the first error.
        list(pool.map(lambda path: _STORAGE.fsync(stage / path), sorted(new)))
    for at, _, _ in os.walk(stage):
        _STORAGE.fsync(Path(at))
    if (target / VERSIONS).is_dir():
        _STORAGE.fsync(target / VERSIONS)


def _after_switch(old: Path, target: Path, moves: Mapping[str, str | None]) -> None:
    """Files that came into the folder between listing and switch follow it; then the old tree's clock starts."""
    with suppress(OSError):
        for path in _STORAGE.list(old):
            name = moves.get(path, path)
            if path != CURRENT and name is not None and not os.path.lexists(target / name):
                _STORAGE.link(old / path, target / name)
        os.utime(old)
