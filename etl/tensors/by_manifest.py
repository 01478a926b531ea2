"""How a version becomes visible where folders cannot be exchanged: data under final names, then the manifest.

A run writes a journal first (`_stage/<run id>.json`: whose it is, which files it brings). Files bear names that no
other file ever has; `_manifest.json` is the one file that is replaced, and that is the commit. Whoever reads the
manifest sees a version whole, at any moment; a plain listing may show files of two versions for a moment. What a run
that died left, and what it did not come to after its commit, is put right by the next one, from its journal.

One run at a time publishes: under `_lock`, a file that is made exclusively and holds who made it and when.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl.core.canonical import canonical_json
from etl.core.errors import CommitConflict, Damaged, DatasetError, EtlError
from etl.tensors.fits import STATE
from etl.tensors.manifest import CURRENT, RETIRED, TEXT, VERSIONS, Manifest
from etl.tensors.owners import is_dead, owner
from etl.tensors.versions import check_parent, current, history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from connectors.base import Mode
    from etl.tensors.places import Place

JOURNALS = "_stage"
"""Where journals lie."""
LOCK = "_lock"
LOCK_SECONDS = 120.0
"""A lock that was not touched for so long is a dead run's."""
TOUCH_SECONDS = 10.0
WAIT_SECONDS = 150.0
"""Longer than a dead run's lock is in the way."""
THREADS = 8
"""Files brought at a time."""
ONE_WRITER: Mapping[str, object] = {
    "code": "one_writer",
    "text": "this storage makes no file exclusively: two runs that publish to this dataset at the same time may lose "
    "one version, so let one run write to it at a time",
}


def begin(place: Place, run_id: str, /) -> None:
    """Put right what dead runs left, and write this run's journal: the place can be written to.

    Raises:
        OSError: It cannot.
    """
    with locked(place, run_id) as lock:
        recover(place, lock)
    place.storage.replace(place.at(_journal(run_id)), _journal_text(run_id, ()))


def deliver(place: Place, stage: Path, run_id: str, paths: Iterable[str], /) -> None:
    """Bring files of the stage to their final names, each compared by size, after the journal names all of `paths`.

    Files that are there already, of the same size, are not brought again: their names are this run's own. Those that
    are in no stage were brought before, or come out of the retired ones.

    Raises:
        DatasetError: The storage holds another size than was sent.
        OSError: It refused.
    """
    names = sorted(paths)
    wanted = {path: (stage / path).stat().st_size for path in names if (stage / path).is_file()}
    place.storage.replace(place.at(_journal(run_id)), _journal_text(run_id, names))

    def bring(path: str) -> None:
        if place.size(path) == wanted[path]:
            return
        place.storage.take(stage / path, place.at(path))
        have = place.size(path)
        if have != wanted[path]:
            raise DatasetError(
                f"{path} of {place} has {have} bytes in the storage, {wanted[path]} were sent",
                hint="Nothing was published. Run it again.",
                path=path,
            )

    with ThreadPoolExecutor(THREADS, "cuetl-deliver") as pool:
        # The pool starts a thread for each file at most, and none without files.
        list(pool.map(bring, sorted(wanted)))  # draining raises the first error


def publish(
    place: Place,
    stage: Path,
    run_id: str,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
    /,
) -> Manifest:
    """Make the stage's files a version, as `etl.tensors.publish.publish` does, by replacing the manifest.

    Raises:
        CommitConflict: Another run published first, or is publishing.
        Damaged: A file that the version lists is missing.
        DatasetError, OSError: The storage refused.
    """
    committed = False
    try:
        with locked(place, run_id) as lock:
            manifest, replaced = _committed(place, stage, run_id, mode, begun_at, make, lock)
            committed = True
            # What follows is done by the next run where this one cannot.
            with suppress(OSError, EtlError):
                _retire(place, manifest, replaced, lock)
                place.storage.remove(place.at(_journal(run_id)))
    finally:
        if not committed:
            withdraw(place, run_id)
    return manifest


def _committed(
    place: Place,
    stage: Path,
    run_id: str,
    mode: Mode,
    begun_at: int | None,
    make: Callable[[Manifest | None, int], Manifest],
    lock: Lock,
) -> tuple[Manifest, frozenset[str]]:
    """The manifest as published, and the files of the version before that are there still."""
    recover(place, lock, own=run_id)
    live = check_parent(place, mode, begun_at)
    _refuse_hdfs(place, live)
    manifest = _claim(place, live, make)
    listed, states = manifest.data_paths, frozenset(manifest.state_hashes)
    deliver(place, stage, run_id, (listed - (live.data_paths if live else frozenset())) | states)
    lock.touch()
    have = place.sizes()
    for path in sorted((listed | states) - have.keys()):
        retired = f"{RETIRED}/{path}.old"
        if retired not in have:
            raise Damaged(f"{path} of {place} is missing, so no version that lists it can be published", path=path)
        place.storage.move(place.at(retired), place.at(path))
        lock.touch()
    lock.hold()
    place.storage.replace(place.at(CURRENT), manifest.to_json())
    return manifest, (live.data_paths if live else frozenset()) & have.keys()


def withdraw(place: Place, run_id: str, /) -> None:
    """Remove what a run that ends without a version brought; after a commit, and a second time, it does nothing."""
    with suppress(OSError, DatasetError):
        journal = _read_journal(place, run_id)
        if journal is None:
            return
        _remove_brought(place, journal, _ours(place))
        place.storage.remove(place.at(_journal(run_id)))


def recover(place: Place, lock: Lock, /, *, own: str = "") -> None:
    """Finish what dead runs began, from their journals; call it under the lock.

    A version whose predecessor's files were not yet retired gets that done; files that were brought for a version
    that never was go.
    """
    journals = {run: _read_journal(place, run) for run in _journals(place) if run != own}
    dead = {run: one for run, one in journals.items() if one is not None and is_dead(one)}
    if not dead:
        return
    live, ours = current(place), _ours(place)
    if live is not None:
        have = place.sizes()
        _retire(place, live, {p for p in ours - live.data_paths if not p.startswith(f"{STATE}/")} & have.keys(), lock)
        for path in live.data_paths & have.keys():
            if f"{RETIRED}/{path}.old" in have:
                place.storage.remove(place.at(f"{RETIRED}/{path}.old"))
    for run, journal in dead.items():
        _remove_brought(place, journal, ours)
        place.storage.remove(place.at(_journal(run)))
        lock.touch()


def own_files(place: Place, names: Iterable[str], /) -> frozenset[str]:
    """Of the names in a folder, those that our runs left or are making, by their journals."""
    marks = (f"{JOURNALS}/", f"{VERSIONS}/")
    found = {name for name in names if name == LOCK or name.startswith(marks)}
    for run in _journals(place):
        journal = _read_journal(place, run)
        if journal is not None:
            found |= _listed(journal)
    return frozenset(found)


def _retire(place: Place, manifest: Manifest, paths: AbstractSet[str], lock: Lock) -> None:
    for path in sorted(paths - manifest.data_paths):
        place.storage.move(place.at(path), place.at(f"{RETIRED}/{path}.old"))
        lock.touch()


def _claim(place: Place, live: Manifest | None, make: Callable[[Manifest | None, int], Manifest]) -> Manifest:
    """The manifest under the next free version number; its file is made exclusively."""
    stems = [name.removesuffix(".json") for name in place.sizes(VERSIONS) if name.endswith(".json")]
    number = max([*(int(s) for s in stems if s.isdigit()), live.version if live else 0]) + 1
    while True:
        manifest = make(live, number)
        try:
            place.storage.create(place.at(f"{VERSIONS}/{number:06d}.json"), manifest.to_json())
        except FileExistsError:
            number += 1
        else:
            return manifest


def _refuse_hdfs(place: Place, live: Manifest | None) -> None:
    if live is not None and not place.storage.replaces:
        raise DatasetError(f"{place}: this storage cannot replace a manifest in one step", hint="Name a new folder.")


def _ours(place: Place) -> frozenset[str]:
    """Every file of every version, of their data and of their fits."""
    live = current(place)
    versions = history(place, live) if live else ()
    return frozenset[str]().union(*(v.data_paths | v.state_hashes.keys() for v in versions))


def _journal(run_id: str) -> str:
    return f"{JOURNALS}/{run_id}.json"


def _journal_text(run_id: str, files: Iterable[str]) -> bytes:
    return canonical_json({"run_id": run_id, "owner": owner(), "at": _now(), "files": list(files)})


def _journals(place: Place) -> list[str]:
    return sorted(n.removesuffix(".json") for n in place.sizes(JOURNALS) if n.endswith(".json"))


def _read_journal(place: Place, run_id: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(place.read(_journal(run_id)))
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    # One that was cut short names no file: files come after the journal that names them.
    return found if isinstance(found, dict) else {}


def _listed(journal: Mapping[str, object]) -> frozenset[str]:
    files = journal.get("files")
    return frozenset(str(one) for one in files) if isinstance(files, list) else frozenset()


def _remove_brought(place: Place, journal: Mapping[str, object], ours: frozenset[str]) -> None:
    for path in sorted(_listed(journal) - ours):
        first, *rest = path.split("/")
        if first and ".." not in (first, *rest) and (not first.startswith("_") or first in (TEXT, STATE)):
            place.storage.remove(place.at(path))


def _now() -> int:
    return int(time.time())


@dataclass(slots=True)
class Lock:
    """The lock as this run holds it."""

    place: Place
    text: dict[str, object]
    touched: float = field(default_factory=time.monotonic)

    def touch(self) -> None:
        """Say that this run lives, when it did not for a while."""
        if time.monotonic() - self.touched > TOUCH_SECONDS:
            self.hold()
            self.place.storage.replace(self.place.at(LOCK), canonical_json(self.text | {"at": _now()}))
            self.touched = time.monotonic()

    def hold(self) -> None:
        """Hold that the lock still is this run's.

        Raises:
            CommitConflict: Another run took it for a dead one's.
        """
        if _lock_of(self.place).get("token") != self.text["token"]:
            raise CommitConflict(
                f"another run took the lock of {self.place}; nothing of this run was published", hint="Run it again."
            )


@contextmanager
def locked(place: Place, run_id: str, /) -> Iterator[Lock]:
    """Hold the one lock under which a dataset is published and cleaned.

    Raises:
        CommitConflict: Another run holds it and goes on holding it.
        OSError: The storage refused.
    """
    token = secrets.token_hex(8)
    text: dict[str, object] = {"run_id": run_id, "owner": owner(), "token": token, "at": _now()}
    pause, deadline = threading.Event(), time.monotonic() + WAIT_SECONDS
    while True:
        try:
            place.storage.create(place.at(LOCK), canonical_json(text))
            break
        except FileExistsError:
            found = _lock_of(place)
            if found and (is_dead(found) or _now() - _at(found) > LOCK_SECONDS):
                place.storage.remove(place.at(LOCK))
            elif time.monotonic() > deadline:
                if not found:
                    place.storage.remove(place.at(LOCK))  # made and never filled: its maker died
                    continue
                raise CommitConflict(
                    f"the run {found.get('run_id')} is publishing to {place}", hint="Run it again when that is done."
                ) from None
            else:
                pause.wait(0.1)
    lock = Lock(place, text)
    try:
        yield lock
    finally:
        with suppress(OSError):
            if _lock_of(place).get("token") == token:
                place.storage.remove(place.at(LOCK))


def _lock_of(place: Place) -> Mapping[str, object]:
    try:
        found = json.loads(place.read(LOCK))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(found: Mapping[str, object]) -> int:
    at = found.get("at")
    return at if isinstance(at, int) else 0
