"""Whether a version's files are what its manifest says: looked at in parallel, named one by one, hashed once.

Hashes are remembered in this process alone: nothing on disk says of a file that it was whole, which somebody else
could have written, and a new process reads everything again.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow.parquet as pq

from etl.core.errors import Damaged, DatasetError, EtlError
from etl.tensors import by_manifest
from etl.tensors.encode import SUFFIXES, features_of, tensor_faults
from etl.tensors.fits import checked
from etl.tensors.formats import tfrecord
from etl.tensors.manifest import CURRENT, RETIRED, VERSIONS, FileEntry, Manifest, StoredFile, integer, sha256_hex
from etl.tensors.places import Place, as_place
from etl.tensors.storage import failed
from etl.tensors.versions import content, current, history, listing, located, missing, required, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from etl.tensors.places import Target

Verify: TypeAlias = Literal["none", "size", "sha256"]

THREADS = 8
"""Files hashed at a time; hashing and reading let other threads run."""
PIECE = 1 << 20
"""Bytes read at a time: large enough for a disk's speed, small enough to be hashed out of the cache."""
SETTLED_SECONDS = 2.0
"""A file changed later than so long before it was hashed is not remembered: a second change within one tick of the
file system's clock would not show."""
_MOST = 1 << 17
_KNOWN: dict[tuple[int, int, int, int], str] = {}
"""(device, inode, size, time of change in ns) → SHA-256; a file keeps it when it is retired or linked elsewhere."""


def check(folder: Target, manifest: Manifest, level: Verify, /, *, remember: bool = False) -> None:
    """Hold that the files of a version are what its manifest says.

    Args:
        folder: The dataset.
        manifest: The version.
        level: See `etl.tensors.dataset.Dataset.verify`.
        remember: Take the hash of a file that was hashed before in this process.

    Raises:
        Damaged: Names every bad file with both hashes.
    """
    if level == "none":
        return
    bad = list(_faults(folder, manifest, level, remember=remember))
    if bad:
        more = f" (and {len(bad) - 20} more)" if len(bad) > 20 else ""
        raise Damaged(
            f"{folder}, version {manifest.version}, is damaged: {'; '.join(bad[:20])}{more}",
            hint="Restore the files from a copy, or export again with --mode replace.",
            faults=len(bad),
        )


def opened_whole(folder: Target, version: int | None, level: Verify, /) -> Manifest:
    """The manifest of a version whose files were looked at.

    A version that is replaced or erased from between reading its manifest and looking at its files is read again.

    Raises:
        DatasetError: There is no dataset, no such version, or a vacuum took its data.
        Damaged: Files are missing or changed.
    """
    newest = required(folder)
    while True:
        manifest = version_of(folder, newest, version)
        try:
            check(folder, manifest, level, remember=True)
        except Damaged:
            before, newest = newest, required(folder)
            if newest.to_json() != before.to_json():
                continue
            if manifest.version != newest.version:
                _refuse_vacuumed(folder, manifest, newest)
            raise
        return manifest


def _refuse_vacuumed(folder: Target, manifest: Manifest, newest: Manifest) -> None:
    """An old version of which whole files are gone was taken by a vacuum: that is no damage."""
    gone = [path for path in missing(folder, manifest) if path not in newest.data_paths]
    if gone:
        raise DatasetError(
            f"the data of version {manifest.version} of {folder} are gone, as after a vacuum ({gone[0]})",
            hint="Open the current version, or export it again.",
            version=manifest.version,
        )


def hash_of(path: Path, /, *, remember: bool = False) -> str:
    """SHA-256 of a file, read once.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    piece = memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        mark = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if remember and (known := _KNOWN.get(mark)) is not None:
            return known
        settled = time.time() - about.st_mtime > SETTLED_SECONDS
        while count := file.readinto(piece):
            digest.update(piece[:count])
        after = os.fstat(file.fileno())
    found = digest.hexdigest()
    if settled and mark[2:] == (after.st_size, after.st_mtime_ns):
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[mark] = found
    return found


def _faults(folder: Target, manifest: Manifest, level: Verify, *, remember: bool) -> Iterator[str]:
    stored = [(file, one) for file in manifest.files for one in file.stored]
    # Elsewhere one listing tells the sizes of all files.
    have = listing(folder) if isinstance(folder, Place) else {}

    def look(pair: tuple[FileEntry, StoredFile]) -> list[str]:
        file, one = pair
        if isinstance(folder, Place):
            found = list(_placed_faults(folder, one, level, have, remember=remember))
        else:
            found = list(_file_faults(folder, one, level, remember=remember))
        if level == "sha256" and not found:
            found += _content_faults(folder, manifest, file, one.path)
        return found

    if level == "size" or len(stored) < 2:
        for pair in stored:
            yield from look(pair)
    else:
        with ThreadPoolExecutor(min(THREADS, len(stored)), "cuetl-verify") as pool:
            for found in pool.map(look, stored):
                yield from found
    yield from _state_faults(folder, manifest)
    if level == "sha256":
        yield from _document_faults(folder, manifest)
        yield from _stray_faults(folder, manifest)


def _state_faults(folder: Target, manifest: Manifest) -> Iterator[str]:
    """The saved state of the fit: small files, so that they are read whole at every level."""
    for path, digest in sorted(manifest.state_hashes.items()):
        try:
            checked(content(folder, path), path, digest)
        except FileNotFoundError:
            yield f"{path} is missing (sha256 {digest})"
        except Damaged as error:
            yield error.message
        except OSError as error:
            yield str(failed(f"{path} cannot be read", error))


def _file_faults(folder: Path, one: StoredFile, level: Verify, *, remember: bool) -> Iterator[str]:
    try:
        place = located(folder, one.path)
        have = place.stat().st_size
        if have != one.bytes:
            yield f"{one.path} has {have} bytes, not {one.bytes} (sha256 {hash_of(place)}, not {one.sha256})"
        elif level == "sha256" and (now := hash_of(place, remember=remember)) != one.sha256:
            yield f"{one.path} has sha256 {now}, not {one.sha256}"
    except FileNotFoundError:
        yield f"{one.path} is missing (sha256 {one.sha256})"
    except OSError as error:
        yield str(failed(f"{one.path} cannot be read", error))


def _placed_faults(
    folder: Place, one: StoredFile, level: Verify, have: Mapping[str, int], *, remember: bool
) -> Iterator[str]:
    """Of a file in another storage: the size there; its hash is of what is read from there now."""
    size = have.get(one.path, have.get(f"{RETIRED}/{one.path}.old"))
    try:
        if size is None:
            yield f"{one.path} is missing (sha256 {one.sha256})"
        elif size != one.bytes:
            digest = hash_of(located(folder, one.path, anew=True))
            yield f"{one.path} has {size} bytes, not {one.bytes} (sha256 {digest}, not {one.sha256})"
        elif level == "sha256":
            now = hash_of(located(folder, one.path, anew=not remember), remember=remember)
            if now != one.sha256:
                yield f"{one.path} has sha256 {now}, not {one.sha256}"
    except FileNotFoundError:
        yield f"{one.path} is missing (sha256 {one.sha256})"
    except OSError as error:
        yield str(failed(f"{one.path} cannot be read", error))


def _content_faults(folder: Target, manifest: Manifest, file: FileEntry, path: str) -> Iterator[str]:
    """A file whose hash is right holds what the manifest says of it."""
    try:
        place = located(folder, path)
        if path.endswith(".parquet"):
            rows = pq.read_metadata(place).num_rows
            if rows != file.rows:
                yield f"{path} holds {rows} rows, the manifest says {file.rows}"
        elif file.tensors is not None and path == file.stored[0].path:
            yield from tensor_faults(file, manifest.format, lambda name: located(folder, name))
        elif path == file.path and manifest.format == "tfrecord":
            tfrecord.check_first(place, file.rows, features_of(manifest))
    except (OSError, EtlError) as error:
        yield f"{path} cannot be read: {error}"


def _stray_faults(folder: Target, manifest: Manifest) -> Iterator[str]:
    """Data files in the folder that no manifest lists: readers that go by names would read them too."""
    newest = current(folder)
    listed = newest.data_paths if newest is not None else frozenset[str]()
    have = listing(folder)
    if newest is not None and (isinstance(folder, Place) or (folder / by_manifest.JOURNALS).is_dir()):
        # Where the manifest is the switch, files of a run that is writing, or that died, lie here for a while.
        listed |= by_manifest.own_files(as_place(folder), have)
        listed = listed.union(*(version.data_paths for version in history(folder, newest)))
    suffix = SUFFIXES.get(manifest.format, f".{manifest.format}")
    for path in sorted(have):
        hidden = any(name.startswith(("_", ".")) for name in path.split("/"))
        if path.endswith(suffix) and not hidden and path not in listed:
            yield f"{path} is not of this dataset, but its readers would take it for a part: move it elsewhere"


def _document_faults(folder: Target, manifest: Manifest) -> Iterator[str]:
    rows = dict.fromkeys(manifest.splits, 0)
    for file in manifest.files:
        if rows.get(file.split) != file.row_start:
            yield f"{file.path} begins at row {file.row_start} of {file.split}, after {rows.get(file.split)} rows"
        rows[file.split] = rows.get(file.split, 0) + file.rows
    if rows != dict(manifest.splits) or sum(rows.values()) != manifest.rows:
        yield f"the files hold {rows} rows, the manifest says {dict(manifest.splits)}"
    own = f"{VERSIONS}/{manifest.version:06d}.json"
    newest = current(folder)
    try:
        is_current = newest is not None and newest.version == manifest.version
        if is_current and content(folder, own) != content(folder, CURRENT):
            yield f"{CURRENT} differs from {own}"
        yield from _chain_faults(folder, manifest)
    except FileNotFoundError as error:
        yield f"{error.filename} is missing"
    except OSError as error:
        yield str(failed("a manifest cannot be read", error))


def _chain_faults(folder: Target, manifest: Manifest) -> Iterator[str]:
    """The first manifest on the way back to version 1 that is not the one its child was made from."""
    while (parent := manifest.document.get("parent")) is not None:
        name = f"{integer(parent):06d}.json"
        text = content(folder, f"{VERSIONS}/{name}")
        digest, wanted = sha256_hex(text), manifest.document.get("parent_sha256")
        if digest != wanted:
            yield f"{VERSIONS}/{name} has sha256 {digest}, not {wanted} as version {manifest.version} says"
            return
        manifest = Manifest.from_json(text, where=f"{folder}/{VERSIONS}/{name}")
