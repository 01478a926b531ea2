"""How a version becomes visible: stages beside the dataset, one switch, and the cleaning up after dead runs.

A stage is a hidden sibling folder `.<name>.cuetl-<run id>` on the same file system. Publishing completes it with hard
links to everything that stays, then exchanges it with the live folder: a reader that lists the folder sees all of the
old version or all of the new one. The old tree then bears the stage's name until readers that listed it are done.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etl.core.canonical import canonical_json
from etl.core.errors import CommitConflict, ConfigError, Damaged, DatasetError, EtlError
from etl.tensors.manifest import CURRENT, RETIRED, VERSIONS, Manifest
from etl.tensors.storage import LocalStorage, exchange, failed, locked

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.base import Mode

OWNER = ".owner.json"
"""In a stage: which process makes it. Gone before the switch."""
OLD_TREE_SECONDS = 600
"""A listing that began before a switch may still be opening files of the old tree for this long."""
FOREIGN_STAGE_SECONDS = 86_400
"""A stage of another machine counts as dead when nothing in it changed for this long."""
_STORAGE = LocalStorage()


def current(target: Path, /) -> Manifest | None:
    """The manifest of the version that readers see; None where there is no dataset.

    Raises:
        Damaged: There is one that cannot be read.
    """
    path = target / CURRENT
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed(f"cannot read the dataset {target}", error) from error
    return Manifest.from_json(text, where=str(path))


def check_target(target: Path, mode: Mode, /) -> Manifest | None:
    """Refuse, before anything is read, a target that could not be published to.

    Returns:
        The current manifest, None where there is no dataset yet.

    Raises:
        ConfigError: A file, a foreign folder, a mount point, a folder inside another dataset, an existing dataset
            (create), none (append), or a place that cannot be written to.
    """
    try:
        return _check_target(target, mode)
    except OSError as error:
        raise ConfigError(str(failed(f"cannot write to {target}", error))) from error


def _check_target(target: Path, mode: Mode) -> Manifest | None:
    above = target.parent
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise ConfigError(f"{above}, in the path of the target {target}, is a file", hint="Name a folder.")
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
        foreign = sorted(entry.name for entry in os.scandir(target))
        if foreign:
            shown = ", ".join(foreign[:3]) + (" …" if len(foreign) > 3 else "")
            raise ConfigError(
                f"the target {target} holds files that are no cuETL dataset ({shown})",
                hint="Name a new or empty folder; cuETL never writes over files that are not its own.",
            )
    if manifest is not None and mode == "create":
        raise ConfigError(
            f"the target {target} is a dataset already (version {manifest.version}, {manifest.rows} rows)",
            hint="Use --mode replace for a new version or --mode append to add to it, or name another folder.",
        )
    if manifest is None and mode == "append":
        raise ConfigError(f"there is no dataset at {target} to append to", hint="Use --mode create first.")
    if mode == "merge":
        raise ConfigError("a dataset cannot be merged into", hint="Use --mode replace or append.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"the folder {above} may not be written to", hint="Choose a folder that you may write to.")
    if manifest is not None:
        _probe_exchange(target)
    return manifest


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


def _probe_exchange(target: Path) -> None:
    one, other = (target.parent / f".{target.name}.cuetl-probe-{os.getpid()}-{n}" for n in "ab")
    try:
        one.mkdir()
        other.mkdir()
        exchange(one, other)
    except OSError as error:
        raise ConfigError(
            f"the file system of {target} cannot exchange two folders in one step ({error.strerror}), which "
            "--mode replace and append need",
            hint="Use a target on a local disk (ext4, xfs, btrfs, tmpfs, APFS), or --mode create with a new folder.",
        ) from error
    finally:
        for folder in (one, other):
            with suppress(OSError):
                folder.rmdir()


def open_stage(target: Path, run_id: str, /) -> Path:
    """Clean up after dead runs, then make this run's stage.

    Raises:
        ConfigError: The run id cannot be part of a file name.
        DatasetError: The file system refused.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", run_id):
        raise ConfigError(f"run id {run_id!r} cannot be part of a file name", hint="Use letters, digits, _, . and -.")
    stage = target.parent / f".{target.name}.cuetl-{run_id}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            sweep(target)
            if stage.exists():
                raise ConfigError(f"another run named {run_id} is writing to {target}", hint="Use another run id.")
            stage.mkdir()
            _STORAGE.put(stage / OWNER, canonical_json(_owner()))
    except OSError as error:
        raise failed(f"cannot write beside {target}", error) from error
    return stage


def sweep(target: Path, /) -> None:
    """Remove stages of dead runs and old trees that nobody reads any more; call it under the lock.

    Only hidden siblings that bear our name and hold our marks are touched.
    """
    live = current(target)
    prefix = f".{target.name}.cuetl-"
    for entry in os.scandir(target.parent):
        if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
            continue
        stage = Path(entry.path)
        if (stage / OWNER).exists():
            dead = _owner_is_dead(stage)
        elif (stage / CURRENT).exists():
            # Without an owner it is the old tree of a switch, or a commit that died just before its switch.
            try:
                tree = current(stage)
            except EtlError:
                tree = None
            newer = tree is not None and (live is None or tree.version > live.version)
            about = entry.stat(follow_symlinks=False)
            dead = newer or time.time() - max(about.st_ctime, about.st_mtime) > OLD_TREE_SECONDS
        else:
            with suppress(OSError):
                stage.rmdir()
            continue
        if dead:
            shutil.rmtree(stage, ignore_errors=True)


def _owner() -> dict[str, object]:
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


def _host() -> str:
    """This machine, boot and process namespace: within it a process id means one process."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - not a path
    return " ".join(parts)


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" when it is gone or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _owner_is_dead(stage: Path) -> bool:
    try:
        owner = json.loads((stage / OWNER).read_bytes())
        host, pid, started = str(owner["host"]), int(owner["pid"]), str(owner["started"])
    except (OSError, ValueError, KeyError, TypeError):
        host, pid, started = "", 0, ""
    if host == _host():
        if Path("/proc/self/stat").exists():
            return _started(pid) != started
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False
    newest = max((os.lstat(stage / name).st_mtime for name in _STORAGE.list(stage)), default=stage.stat().st_mtime)
    return time.time() - newest > FOREIGN_STAGE_SECONDS


def drop_stage(stage: Path, /) -> None:
    """Remove a stage that was not published; may be called twice. An old tree under its name stays."""
    if (stage / OWNER).exists():
        shutil.rmtree(stage, ignore_errors=True)


def publish(
    target: Path,
    stage: Path,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
    /,
) -> Manifest:
    """Make the stage the current version in one switch. Only files that the new manifest lists may be in it.

    Args:
        target: The dataset.
        stage: Its stage, with all new data files under their final names.
        mode: create, replace or append.
        begun_at: The version that was current when the run began; None: there was none.
        make: Called under the lock with the parent manifest and the new version's number.

    Returns:
        The manifest as published.

    Raises:
        CommitConflict: Another run published first (append goes on, on top of it).
        DatasetError: The file system refused.
    """
    try:
        with locked(target.parent):
            return _publish(target, stage, mode, begun_at, make)
    except OSError as error:
        raise failed(f"cannot publish {target}", error) from error


def check_parent(target: Path, mode: Mode, begun_at: int | None, /) -> Manifest | None:
    """The current manifest, when the run may publish after it.

    Raises:
        CommitConflict: Another run published since this one began.
    """
    live = current(target)
    now_at = live.version if live else None
    if now_at != begun_at and not (mode == "append" and live is not None):
        raise CommitConflict(
            f"another run published version {now_at} of {target} while this one, begun at version {begun_at}, was "
            "writing; nothing of this run was published",
            hint="Run it again.",
        )
    return live


def _publish(
    target: Path,
    stage: Path,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
) -> Manifest:
    live = check_parent(target, mode, begun_at)
    number, manifest = _claim(target, live, make)
    versions = stage / VERSIONS
    versions.mkdir(exist_ok=True)
    listed = manifest.data_paths
    _drop_unlisted(stage, listed)
    text = manifest.to_json()
    if live is None:
        _STORAGE.put(versions / f"{number:06d}.json", text)
    retired = live.data_paths - listed if live else frozenset()
    if live is not None:
        _carry(target, stage, retired)
        shutil.copymode(target, stage)
    _STORAGE.put(stage / CURRENT, text)
    for path in listed:
        if not (stage / path).is_file():
            raise Damaged(f"{path} of {target} is missing, so no version that lists it can be published", path=path)
    (stage / OWNER).unlink()
    _make_durable(stage, target, listed - (live.data_paths if live else frozenset()))
    if _STORAGE.switch(stage, target):
        _after_switch(stage, target, retired)
    return manifest


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


def _carry(target: Path, stage: Path, retired: frozenset[str]) -> None:
    """Link everything of the live folder into the stage: data that is replaced under its name in `_retired`."""
    for path in _STORAGE.list(target):
        if path == CURRENT:
            continue
        name = f"{RETIRED}/{path}.old" if path in retired else path
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


def _after_switch(old: Path, target: Path, retired: frozenset[str]) -> None:
    """Files that came into the folder between listing and switch follow it; then the old tree's clock starts."""
    with suppress(OSError):
        for path in _STORAGE.list(old):
            name = f"{RETIRED}/{path}.old" if path in retired else path
            if path != CURRENT and not os.path.lexists(target / name):
                _STORAGE.link(old / path, target / name)
        os.utime(old)
