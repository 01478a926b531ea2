"""The versions of a dataset: which is current, which there were, and where a version's files lie now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from etl.core.errors import CommitConflict, Damaged, DatasetError
from etl.tensors.manifest import CURRENT, RETIRED, VERSIONS, Manifest, integer
from etl.tensors.places import Place
from etl.tensors.storage import LocalStorage, failed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from connectors.base import Mode
    from etl.tensors.places import Target


def content(target: Target, name: str, /) -> bytes:
    """A file of a dataset's folder, whole.

    Raises:
        FileNotFoundError: There is none.
        OSError: It cannot be read.
    """
    return target.read(name) if isinstance(target, Place) else (target / name).read_bytes()


def listing(target: Target, /) -> Mapping[str, int]:
    """Every file of a dataset's folder: relative path → bytes."""
    if isinstance(target, Place):
        return target.sizes()
    return {name: (target / name).lstat().st_size for name in LocalStorage().list(target)}


def current(target: Target, /) -> Manifest | None:
    """The manifest of the version that readers see; None where there is no dataset.

    Raises:
        Damaged: There is one that cannot be read.
    """
    try:
        text = content(target, CURRENT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed(f"cannot read the dataset {target}", error) from error
    return Manifest.from_json(text, where=f"{target}/{CURRENT}")


def check_parent(target: Target, mode: Mode, begun_at: int | None, /) -> Manifest | None:
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


def required(target: Target, /) -> Manifest:
    """The manifest of the version that readers see.

    Raises:
        DatasetError: There is no dataset.
        Damaged: There is one that cannot be read.
    """
    manifest = current(target)
    if manifest is None:
        why = "is not there"
        if isinstance(target, Place):
            why = "holds no dataset (no _manifest.json)"
        elif target.exists():
            why = "holds no dataset (no _manifest.json)" if target.is_dir() else "is a file, not a dataset's folder"
        raise DatasetError(f"{target} {why}", hint="Name the folder that was given as --to.")
    return manifest


def history(target: Target, newest: Manifest, /) -> list[Manifest]:
    """All versions from the newest back to the first.

    A commit that died before its switch leaves a number that never was a version: those are on no chain of parents.

    Raises:
        Damaged: A manifest of the chain is missing or cannot be read.
    """
    found = [newest]
    while (number := _parent(found[-1])) is not None:
        if number >= found[-1].version:
            raise Damaged(f"version {found[-1].version} of {target} names {number} as its parent")
        found.append(_numbered(target, number))
    return found


def version_of(target: Target, newest: Manifest, version: int | None, /) -> Manifest:
    """The manifest of one version; None: the newest.

    Raises:
        DatasetError: There is no such version; those that there are are named.
        Damaged: A manifest of the chain is missing or cannot be read.
    """
    if version is None or version == newest.version:
        return newest
    versions = history(target, newest)
    for one in versions:
        if one.version == version:
            return one
    shown = ", ".join(str(one.version) for one in reversed(versions))
    raise DatasetError(f"{target} has no version {version}", hint=f"It has {shown}.", version=version)


def located(folder: Target, path: str, /, *, anew: bool = False) -> Path:
    """Where a file of some version lies: `<path>`, then `_retired/<path>.old`, then `<path>` once more.

    The third look is for a rollback that moves it between the first two. A file of another storage lies in the cache
    of this machine, where it is fetched once.

    Args:
        folder: The dataset.
        path: The file, as the manifest names it.
        anew: Whether a cached copy is fetched once more.

    Raises:
        FileNotFoundError: In neither place.
    """
    if isinstance(folder, Place):
        for name in (path, f"{RETIRED}/{path}.old"):
            with suppress(FileNotFoundError):
                return folder.fetched(path, name, anew=anew)
        return folder.fetched(path, path, anew=anew)
    for place in (folder / path, folder / RETIRED / f"{path}.old", folder / path):
        if place.is_file():
            return place
    raise FileNotFoundError(str(folder / path))


def missing(folder: Target, manifest: Manifest, /) -> list[str]:
    """Data files of a version that are gone, sorted."""
    if isinstance(folder, Place):
        have = folder.sizes()
        return sorted(p for p in manifest.data_paths if p not in have and f"{RETIRED}/{p}.old" not in have)
    found: list[str] = []
    for path in sorted(manifest.data_paths):
        try:
            located(folder, path)
        except FileNotFoundError:
            found.append(path)
    return found


def _parent(manifest: Manifest) -> int | None:
    parent = manifest.document.get("parent")
    return None if parent is None else integer(parent)


def _numbered(target: Target, number: int) -> Manifest:
    name = f"{VERSIONS}/{number:06d}.json"
    path = f"{target}/{name}"
    try:
        text = content(target, name)
    except FileNotFoundError as error:
        raise Damaged(f"{path} is missing", path=path) from error
    except OSError as error:
        raise failed(f"cannot read the dataset {target}", error) from error
    return Manifest.from_json(text, where=path)
