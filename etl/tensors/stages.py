"""Stages: the hidden siblings in which a version is made, and what is left of those of dead runs and of old switches.

A stage is `.<name>.cuetl-<run id>` beside the dataset, on the same file system. After a switch the old tree bears its
name until readers that listed it are done.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError, EtlError
from etl.tensors import by_manifest
from etl.tensors.manifest import CURRENT
from etl.tensors.owners import owner, owner_is_dead
from etl.tensors.places import Place
from etl.tensors.storage import LocalStorage, failed, locked
from etl.tensors.versions import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etl.tensors.places import Target

Kind: TypeAlias = Literal["living", "dead", "tree", "empty"]

OWNER = ".owner.json"
"""In a stage: which process makes it. Gone before the switch."""
OLD_TREE_SECONDS = 600
"""A listing that began before a switch may still be opening files of the old tree for this long."""
_STORAGE = LocalStorage()


@dataclass(frozen=True, slots=True)
class Sibling:
    """A hidden folder beside a dataset that bears our name and holds our marks.

    Attributes:
        path: Where it is.
        kind: "living" or "dead": the stage of a run; "tree": what a switch left; "empty": not yet a stage, or no more.
        due: Whether nobody can need it any more: a dead stage, or a tree that no reader can still be listing.
    """

    path: Path
    kind: Kind
    due: bool

    @property
    def run_id(self) -> str:
        """The run whose name it bears."""
        return self.path.name.rpartition(".cuetl-")[2]


def open_stage(target: Target, run_id: str, /, *, taking: str = "") -> Path:
    """Clean up after dead runs, then make this run's stage.

    The stage of a dataset in another storage lies in this machine's temporary folder.

    Args:
        target: The dataset.
        run_id: Names the stage.
        taking: A dead run whose stage becomes this one's, with all that is in it; where it left none, a new one is
            made.

    Raises:
        ConfigError: The run id cannot be part of a file name, or the run whose stage is to be taken still lives.
        DatasetError: The file system or the storage refused.
    """
    for name in (run_id, taking) if taking else (run_id,):
        _check_name(name)
    local, stage = _local(target), _stage_of(target, run_id)
    try:
        local.parent.mkdir(0o700 if local is not target else 0o777, parents=True, exist_ok=True)
        if local is not target and local.parent.stat().st_uid != os.getuid():
            # Its name can be guessed, and its files are the rows.
            raise ConfigError(f"{local.parent} belongs to another user", hint="Set TMPDIR to a folder of your own.")
        with locked(local.parent):
            taken = taking != "" and _take(_stage_of(target, taking), stage, taking, target)
            sweep(local)
            if not taken:
                if stage.exists():
                    raise ConfigError(f"another run named {run_id} is writing to {target}", hint="Use another run id.")
                stage.mkdir()
                _STORAGE.put(stage / OWNER, canonical_json(owner()))
    except OSError as error:
        raise failed(f"cannot write beside {target}", error) from error
    if isinstance(target, Place):
        try:
            by_manifest.begin(target, run_id)
        except BaseException as error:
            drop_stage(stage)
            if isinstance(error, OSError):
                raise failed(f"cannot write to {target}", error) from error
            raise
    return stage


def check_left(targets: Sequence[Target], run_id: str, /) -> None:
    """Refuse to take up a run that left no stage at any of these datasets.

    Raises:
        ConfigError: It left none: there never was one, it was published, or another run has cleaned up.
    """
    _check_name(run_id)
    if any((_stage_of(target, run_id) / OWNER).exists() for target in targets):
        return
    left = {one.run_id for target in targets for one in siblings(_local(target)) if one.kind == "dead"}
    raise ConfigError(
        f"run {run_id} left nothing beside {', '.join(map(str, targets))} that could be taken up",
        hint=f"The runs that did: {', '.join(sorted(left))}." if left else "Run it anew, without resume.",
    )


def _check_name(run_id: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", run_id):
        raise ConfigError(f"run id {run_id!r} cannot be part of a file name", hint="Use letters, digits, _, . and -.")


def _local(target: Target) -> Path:
    """The folder beside which the stages of a dataset lie."""
    return target.shadow if isinstance(target, Place) else target


def _stage_of(target: Target, run_id: str) -> Path:
    local = _local(target)
    return local.parent / f".{local.name}.cuetl-{run_id}"


def _take(old: Path, stage: Path, run_id: str, target: Target) -> bool:
    """Make the stage of a dead run this process's, under a new name; False: there is none."""
    if not (old / OWNER).exists():
        return False
    if not _owner_is_dead(old):
        raise ConfigError(f"run {run_id} still writes to {target}", hint="Wait until it ends, or stop it.")
    mine = old / f"{OWNER}.tmp"
    mine.unlink(missing_ok=True)
    _STORAGE.put(mine, canonical_json(owner()))
    mine.replace(old / OWNER)
    if old != stage:
        old.rename(stage)
    return True


def leave_stage(stage: Path, /) -> None:
    """Leave what was staged to a run that takes it; any other run on the target removes it. May be called twice."""
    if (stage / OWNER).exists():
        left = stage / f"{OWNER}.tmp"
        left.write_bytes(canonical_json({**owner(), "started": "left"}))
        left.replace(stage / OWNER)


def siblings(target: Path, /) -> Iterator[Sibling]:
    """The stages and old trees of a dataset; call it under the lock, else they change while one looks.

    Raises:
        Damaged: The dataset's manifest cannot be read.
    """
    live = current(target)
    prefix = f".{target.name}.cuetl-"
    if not target.parent.is_dir():
        return
    for entry in sorted(os.scandir(target.parent), key=lambda e: e.name):
        if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
            continue
        stage = Path(entry.path)
        if (stage / OWNER).exists():
            dead = _owner_is_dead(stage)
            yield Sibling(stage, "dead" if dead else "living", dead)
        elif (stage / CURRENT).exists():
            # Without an owner it is the old tree of a switch, or a commit that died just before its switch.
            try:
                tree = current(stage)
            except EtlError:
                tree = None
            newer = tree is not None and (live is None or tree.version > live.version)
            about = entry.stat(follow_symlinks=False)
            old = time.time() - max(about.st_ctime, about.st_mtime) > OLD_TREE_SECONDS
            yield Sibling(stage, "tree", newer or old)
        else:
            yield Sibling(stage, "empty", due=False)


def sweep(target: Path, /, *, trees: bool = False) -> list[Sibling]:
    """Remove stages of dead runs and old trees that nobody reads any more; call it under the lock.

    Args:
        target: The dataset.
        trees: Remove old trees of whatever age: a listing that is still being read then meets names that are gone.

    Returns:
        What was removed.
    """
    removed: list[Sibling] = []
    for one in siblings(target):
        if one.due or (trees and one.kind == "tree"):
            _remove(one.path)
            removed.append(one)
        elif one.kind == "empty":
            with suppress(OSError):
                one.path.rmdir()
    return removed


def _owner_of(stage: Path) -> dict[str, object]:
    try:
        found = json.loads((stage / OWNER).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _owner_is_dead(stage: Path) -> bool:
    newest = max((os.lstat(stage / name).st_mtime for name in _STORAGE.list(stage)), default=stage.stat().st_mtime)
    return owner_is_dead(_owner_of(stage), newest)


def drop_stage(stage: Path, /, target: Target | None = None) -> None:
    """Remove a stage that was not published; may be called twice. An old tree under its name stays.

    Args:
        stage: The stage.
        target: The dataset; where it lies in another storage, what was brought there for no version goes too.
    """
    if isinstance(target, Place):
        by_manifest.withdraw(target, stage.name.rpartition(".cuetl-")[2])
    if (stage / OWNER).exists():
        _remove(stage)


def _remove(stage: Path) -> None:
    """Its marks go last, so that whoever finds the rest of a removal that was cut short knows it for ours."""
    with suppress(OSError):
        rest = [entry for entry in list(os.scandir(stage)) if entry.name not in {OWNER, CURRENT}]
        for entry in rest:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
        shutil.rmtree(stage)
