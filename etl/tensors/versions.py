"""The versions of a dataset: which is current, which there were, and where a version's files lie now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl.core.errors import Damaged, DatasetError
from etl.tensors.manifest import CURRENT, RETIRED, VERSIONS, Manifest, integer
from etl.tensors.storage import failed

if TYPE_CHECKING:
    from pathlib import Path


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


def required(target: Path, /) -> Manifest:
    """The manifest of the version that readers see.

    Raises:
        DatasetError: There is no dataset.
        Damaged: There is one that cannot be read.
    """
    manifest = current(target)
    if manifest is None:
        why = "is not there"
        if target.exists():
            why = "holds no dataset (no _manifest.json)" if target.is_dir() else "is a file, not a dataset's folder"
        raise DatasetError(f"{target} {why}", hint="Name the folder that was given as --to.")
    return manifest


def history(target: Path, newest: Manifest, /) -> list[Manifest]:
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


def version_of(target: Path, newest: Manifest, version: int | None, /) -> Manifest:
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


def located(folder: Path, path: str, /) -> Path:
    """Where a file of some version lies: `<path>`, then `_retired/<path>.old`, then `<path>` once more.

    The third look is for a rollback that moves it between the first two.

    Raises:
        FileNotFoundError: In neither place.
    """
    for place in (folder / path, folder / RETIRED / f"{path}.old", folder / path):
        if place.is_file():
            return place
    raise FileNotFoundError(str(folder / path))


def missing(folder: Path, manifest: Manifest, /) -> list[str]:
    """Data files of a version that are gone, sorted."""
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


def _numbered(target: Path, number: int) -> Manifest:
    path = target / VERSIONS / f"{number:06d}.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise Damaged(f"{path} is missing", path=str(path)) from error
    except OSError as error:
        raise failed(f"cannot read the dataset {target}", error) from error
    return Manifest.from_json(text, where=str(path))
