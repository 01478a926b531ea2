"""The files of one split, opened when they are asked for: rows by runs and by indices, across the borders of files.

Runs are read into memory that the caller owns, by pread(2) or out of a private map; a file that was changed, cut short
or taken away since it was opened is named, so that rows are never those of another version.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from etl.core.errors import ConfigError, Damaged
from etl.core.schema import nearest
from etl.tensors.encode import MAPPED, spans
from etl.tensors.manifest import sequence
from etl.tensors.pack import ITEM_BYTES
from etl.tensors.segments import held_dtype
from etl.tensors.storage import failed
from etl.tensors.versions import located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from etl.tensors.manifest import FileEntry, Manifest
    from etl.tensors.order import Run
    from etl.tensors.places import Target

Io: TypeAlias = Literal["auto", "mmap", "pread"]

MOST_OPEN = 128
"""Files held open at a time: each costs a descriptor, and its map another, of which a process has 1024 by default; and
entries of the manifest of which is remembered where their tensors lie."""
_PART = 16 << 20
"""Bytes of one pread: large enough for a disk's speed, small enough that threads share a long run."""
_SCAN = 1 << 18
"""Lengths of lists looked at in one piece."""
_STRIDE = 4096
"""Rows between two places whose items are known; the lengths between are summed when asked."""
ALIGN = 64
"""Batches begin at a multiple: JAX takes memory of the host as it is from there on, and a cache line begins."""


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What one tensor is in every file of the split.

    Attributes:
        dtype: As NumPy holds it; bfloat16 as uint16 bits.
        word: The dtype in the schema's words.
        row_shape: Of one row.
    """

    dtype: np.dtype[Any]
    word: str
    row_shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * prod(self.row_shape)

    def fresh(self, rows: int, /) -> NDArray[Any]:
        """Memory of its own for so many rows, not yet set."""
        return self.within(*_room(rows * self.row_bytes), rows)

    def within(self, room: NDArray[np.uint8], skip: int, rows: int, /) -> NDArray[Any]:
        """So many rows in memory from a byte on."""
        return room[skip : skip + rows * self.row_bytes].view(self.dtype).reshape(rows, *self.row_shape)


class Rooms:
    """Memory for batches of one iterator, used again once nobody refers to it: fresh pages cost more than filling them.

    Whoever has an array, a view of one, or another library's tensor over it, refers to the memory below; where nothing
    but this list does, nobody can read it any more. For one thread.

    Args:
        most: Pieces of one size to keep.
    """

    def __init__(self, most: int, /) -> None:
        # Without the interpreter's lock a count of references is not to be relied on.
        self._most = most if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
        self._rooms: dict[int, list[tuple[NDArray[np.uint8], int]]] = {}

    def fresh(self, kind: TensorKind, rows: int, /) -> NDArray[Any]:
        """Memory for so many rows that nobody else has."""
        size = rows * kind.row_bytes
        rooms = self._rooms.setdefault(size, [])
        for room in rooms:
            if sys.getrefcount(room[0]) == _ONLY_HERE:
                return kind.within(*room, rows)
        made = _room(size)
        if len(rooms) < self._most:
            rooms.append(made)
        return kind.within(*made, rows)


_ONLY_HERE = 2
"""What `sys.getrefcount` says of an object in one tuple: the tuple's reference and its own argument's."""


def _room(size: int) -> tuple[NDArray[np.uint8], int]:
    """Memory for so many bytes, and where in it they begin."""
    room = np.empty(size + ALIGN, np.uint8)
    return room, -int(room.__array_interface__["data"][0]) % ALIGN


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies: a file, the byte at which it begins, its kind and how long it is."""

    path: str
    offset: int
    kind: TensorKind
    length: int


class _File:
    """One file on disk, open; closed when nobody refers to it any more."""

    def __init__(self, path: str, handle: int) -> None:
        self._path = path
        self._handle = handle
        self._map: mmap.mmap | None = None

    @property
    def facts(self) -> _Facts:
        return _facts(os.fstat(self._handle))

    def __del__(self) -> None:
        os.close(self._handle)

    def read(self, out: NDArray[Any], offset: int) -> None:
        """Fill an array from a byte on.

        Raises:
            Damaged: The file ends before.
        """
        room: Any = out.reshape(-1).view(np.uint8)  # the stubs know no buffer protocol
        left = memoryview(room)
        try:
            while left:
                count = os.preadv(self._handle, [left[:_PART]], offset)
                if not count:
                    raise Damaged(f"{self._path} was cut short while it was read", hint=_RESTORE, path=self._path)
                left, offset = left[count:], offset + count
        except OSError as error:
            raise failed(f"{self._path} cannot be read", error) from error

    def mapped(self) -> mmap.mmap:
        """The whole file as private, writable memory: what is written to it never reaches the disk."""
        if self._map is None:
            try:
                self._map = mmap.mmap(self._handle, 0, access=mmap.ACCESS_COPY)
            except OSError as error:
                raise failed(f"{self._path} cannot be mapped", error) from error
        return self._map


class _Files:
    """The files that are open, the longest unused closed first, and what each was at first; for any number of threads.

    Whoever reads many files asks for each anew and keeps none: so few are open, however many a window takes in.
    """

    def __init__(self, folder: Target) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _File] = OrderedDict()
        self._seen: dict[str, tuple[Path, _Facts]] = {}

    def get(self, path: str, /) -> _File:
        """A file that was located, open.

        Raises:
            Damaged: It is missing, or another than it was at first.
        """
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = self._opened(path)
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(path)
        return found

    def locate(self, path: str, size: int, /) -> Path:
        """Where a file lies; what it is now is what it must stay.

        Raises:
            FileNotFoundError: It is missing.
            Damaged: It has another size, or is another than it was at first.
        """
        place = located(self._folder, path)
        facts = _facts(place.stat())
        if facts[1] != size:
            raise Damaged(f"{path} has {facts[1]} bytes, not {size} as the manifest says", hint=_RESTORE, path=path)
        if self._seen.setdefault(path, (place, facts))[1] != facts:
            raise _changed(path)
        return place

    def check(self, path: str, /) -> None:
        """Hold that a file is still what it was at first.

        Raises:
            Damaged: It was changed, replaced or taken away.
        """
        place, facts = self._seen[path]
        try:
            try:
                now = _facts(place.stat())
            except FileNotFoundError:
                place = located(self._folder, path)  # retired by a newer version, which harms nobody
                now = _facts(place.stat())
                self._seen[path] = place, facts
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise failed(f"{path} cannot be read", error) from error
        if now != facts:
            raise _changed(path)

    def _opened(self, path: str) -> _File:
        try:
            file = _File(path, os.open(located(self._folder, path), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise failed(f"{path} cannot be read", error) from error
        if file.facts != self._seen[path][1]:
            raise _changed(path)
        return file


_Facts: TypeAlias = tuple[int, int, int]


def _facts(found: os.stat_result) -> _Facts:
    """What tells a file from another one: inode, size, time of change."""
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Shard:
    """One entry of the manifest: where its tensors lie, and what is known of its lists."""

    def __init__(self, shards: Shards, entry: FileEntry, files: _Files) -> None:
        self._by_map = shards.io == "mmap"
        self.rows = entry.rows
        self.places = _places(shards.path, entry, shards.manifest, files)
        self._files = files
        self._starts: dict[str, NDArray[np.int64]] = {}
        self._offsets: dict[str, NDArray[np.int64]] = {}
        self._lock = threading.Lock()

    def check(self, names: Iterable[str]) -> None:
        """Hold that the files of these tensors are what they were."""
        for path in {self.places[name].path for name in names}:
            self._files.check(path)

    def array(self, name: str) -> NDArray[Any]:
        """A tensor of the file, mapped; a file is open as long as an array of its map lives."""
        place = self.places[name]
        shape = (place.length, *place.kind.row_shape)
        if 0 in shape:
            return np.zeros(shape, place.kind.dtype)
        room = self._files.get(place.path).mapped()
        return np.frombuffer(room, place.kind.dtype, prod(shape), place.offset).reshape(shape)

    def read(self, name: str, start: int, out: NDArray[Any]) -> None:
        """Rows (of `.values`: items) of one tensor from `start` on, as many as `out` holds."""
        if not out.size:
            return
        place = self.places[name]
        if self._by_map:
            np.copyto(out, self.array(name)[start : start + len(out)])
        else:
            self._files.get(place.path).read(out, place.offset + start * place.kind.row_bytes)

    def lengths(self, tag: str, start: int, stop: int) -> NDArray[np.int32]:
        """Items of each list of the rows [start, stop)."""
        found = np.empty(stop - start, np.int32)
        self.read(f"{tag}.lengths", start, found)
        return found

    def item(self, tag: str, row: int) -> int:
        """The place of a row's first item."""
        starts = self._item_starts(tag)
        block = row // _STRIDE
        return int(starts[block]) + int(self.lengths(tag, block * _STRIDE, row).sum(dtype=np.int64))

    def offsets(self, tag: str) -> NDArray[np.int64]:
        """The place of every row's first item and the end: int64 [rows + 1], kept while the file is open."""
        found = self._offsets.get(tag)
        if found is None:
            found = _summed(self.lengths(tag, 0, self.rows))
            self._hold(tag, int(found[-1]))
            self._offsets[tag] = found
        return found

    def _item_starts(self, tag: str) -> NDArray[np.int64]:
        with self._lock:
            found = self._starts.get(tag)
            if found is None:
                sums = [0]
                for start in range(0, self.rows, _SCAN):
                    piece = self.lengths(tag, start, min(start + _SCAN, self.rows))
                    sums += np.add.reduceat(piece, np.arange(0, len(piece), _STRIDE), dtype=np.int64).tolist()
                found = np.cumsum(np.array(sums, np.int64))
                self._hold(tag, int(found[-1]))
                self._starts[tag] = found
            return found

    def _hold(self, tag: str, items: int) -> None:
        place = self.places[f"{tag}.values"]
        if items != place.length:
            raise Damaged(
                f"{place.path} holds {place.length} items of {tag}, its lengths say {items}",
                hint=_RESTORE,
                path=place.path,
            )


class _Opened:
    """The entries that were looked at, the longest unused forgotten first; for any number of threads."""

    def __init__(self, folder: Target) -> None:
        self._files = _Files(folder)
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, _Shard] = OrderedDict()

    def get(self, position: int, shards: Shards) -> _Shard:
        with self._lock:
            found = self._shards.get(position)
            if found is None:
                found = self._shards[position] = _Shard(shards, shards.files[position], self._files)
                if len(self._shards) > MOST_OPEN:
                    self._shards.popitem(last=False)
            else:
                self._shards.move_to_end(position)
        return found


@dataclass(frozen=True, slots=True)
class Shards:
    """The rows of one split in its files. A value that pickles; files are opened where they are asked for.

    A ragged list is offered as `<tag>.values` [N] and `<tag>.offsets` [rows + 1] int64, whatever the files hold.

    Attributes:
        path: The dataset's folder.
        manifest: Of the version.
        split: The split's name.
        io: How runs are read: "mmap", "pread", or "auto": pread, which a file that is cut short cannot kill. Single
            rows always come out of the map.

    Raises:
        ConfigError: The files hold no tensors.
    """

    path: Target
    manifest: Manifest
    split: str
    io: Io = "auto"
    files: tuple[FileEntry, ...] = field(init=False, repr=False, compare=False)
    kinds: Mapping[str, TensorKind] = field(init=False, repr=False, compare=False)
    """Every tensor that is offered but `.offsets`: what it is."""
    tags: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The ragged lists."""
    rows: int = field(init=False, repr=False, compare=False)
    """Rows of the split."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _opened: _Opened = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.manifest.format not in MAPPED:
            records = self.manifest.format == "tfrecord"
            what = "whose rows are at no known place" if records else "which has no tensors"
            how = "with TensorFlow (cuetl dataset show prints how)" if records else "as a table"
            raise ConfigError(
                f"{self.path} holds {self.manifest.format}, {what}",
                hint=f"Read it {how}, or export it with --format safetensors.",
            )
        if self.io not in ("auto", "mmap", "pread"):
            raise ConfigError(f"unknown io {self.io!r}", hint="Use auto, mmap or pread.")
        files = tuple(f for f in self.manifest.files if f.split == self.split)
        if not files:
            raise Damaged(f"{self.path} lists no file of the split {self.split}", path=str(self.path))
        given: list[tuple[str, Any]] = [
            ("files", files),
            ("rows", self.manifest.splits[self.split]),
            ("_starts", tuple(f.row_start for f in files)),
            ("_opened", _Opened(self.path)),
        ]
        for name, value in given:
            object.__setattr__(self, name, value)
        stored = self._shard(0).places
        tags = tuple(str(c["tensor"]) for c in self.manifest.columns if c.get("kind") == "ragged" and c.get("tensor"))
        kinds = {n: stored[n].kind for n in _order(self.manifest, tags) if n in stored}
        if not kinds:
            raise ConfigError(
                f"{self.path} holds no tensors: all its columns are text", hint="Read it as a table: ds.table()."
            )
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "tags", tags)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without open files."""
        return Shards, (self.path, self.manifest, self.split, self.io)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors offered: x, y, w, the others in the order of their columns, then the masks in that order.

        The same for every format. The offsets of a list follow its values.
        """
        found: list[str] = []
        for name in self.kinds:
            found.append(name)
            if (tag := self._tag_of(name)) is not None:
                found.append(f"{tag}.offsets")
        return tuple(found)

    @property
    def words(self) -> Mapping[str, str]:
        """Tensor → dtype in the schema's words."""
        return {n: "int64" if n not in self.kinds else self.kinds[n].word for n in self.names}

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all tensors, of lists on average and rounded up: the same wherever the dataset lies."""
        total = sum(size for f in self.files for _, size in (f.tensors or {}).values())
        return -(-total // max(1, self.rows)) if total else sum(k.row_bytes for k in self.kinds.values())

    def select(self, names: Sequence[str] | None, /) -> tuple[str, ...]:
        """Names of tensors and lists as the tensors that they stand for; None: all.

        Raises:
            ConfigError: There is none of that name.
        """
        if names is None:
            return self.names
        have = self.names
        found: list[str] = []
        for name in names:
            members = [name] if name in have else [f"{name}.values", f"{name}.offsets"] if name in self.tags else []
            if not members:
                raise ConfigError(
                    f"{self.path} has no tensor {name}{self._inside(name)}",
                    hint=nearest(name, (*have, *self.tags), what="tensors"),
                    column=name,
                )
            found += [one for one in members if one not in found]
        return tuple(found)

    def mapped(self, names: Sequence[str], /) -> dict[str, NDArray[Any]]:
        """The tensors of a split of one file, mapped copy-on-write: nothing but lengths is read before it is looked at.

        Raises:
            Damaged: The file is missing or not what the manifest says.
        """
        shard = self._shard(0)
        shard.check(self._stored(names))
        return {n: shard.array(n) if n in self.kinds else shard.offsets(n.removesuffix(".offsets")) for n in names}

    def run(self, names: Sequence[str], start: int, stop: int, /) -> dict[str, NDArray[Any]]:
        """The rows [start, stop) as arrays that the caller owns.

        Raises:
            Damaged: A file is missing or not what the manifest says.
        """
        return self.gather(names, ((start, stop),))

    def gather(
        self, names: Sequence[str], runs: Sequence[Run], /, rooms: Rooms | None = None
    ) -> dict[str, NDArray[Any]]:
        """The rows of runs laid end to end, as arrays that the caller owns.

        Args:
            names: The tensors.
            runs: Of rows.
            rooms: Where memory for tensors of one row per row comes from; None: it is made.

        Raises:
            Damaged: A file is missing or not what the manifest says.
        """
        rows = sum(stop - start for start, stop in runs)
        fixed = {n: rooms.fresh(self.kinds[n], rows) if rooms else self.kinds[n].fresh(rows) for n in self.fixed(names)}
        self.fill(fixed, runs)
        lists = {tag: self.lists(tag, runs) for tag in self.listed(names)}
        return _named(names, fixed, lists)

    def take(self, names: Sequence[str], indices: NDArray[np.int64], /) -> dict[str, NDArray[Any]]:
        """Rows by index, in the order asked for and as often, as arrays that the caller owns.

        Raises:
            IndexError: An index is below 0 or not below the rows.
            Damaged: A file is missing or not what the manifest says.
        """
        wanted = np.asarray(indices, np.int64)
        if len(wanted) and (int(wanted.min()) < 0 or int(wanted.max()) >= self.rows):
            raise IndexError(f"an index is not in [0, {self.rows}), the rows of {self.split}")
        fixed = {n: self.kinds[n].fresh(len(wanted)) for n in self.fixed(names)}
        groups = list(self._by_file(wanted))
        stored = self._stored(names)
        for shard, local, at in groups:
            shard.check(stored)
            for name, out in fixed.items():
                if at is None:
                    np.take(shard.array(name), local, axis=0, out=out, mode="clip")
                else:
                    out[at] = np.take(shard.array(name), local, axis=0, mode="clip")
        lists = {tag: self._take_lists(tag, groups, len(wanted)) for tag in self.listed(names)}
        return _named(names, fixed, lists)

    def fill(self, outs: Mapping[str, NDArray[Any]], runs: Sequence[Run], /) -> None:
        """The rows of runs laid end to end into arrays [rows, …], one per tensor; not for lists.

        Raises:
            Damaged: A file is missing or not what the manifest says.
        """
        if not outs:
            return
        at = 0
        used: dict[int, _Shard] = {}
        for position, start, stop in self._pieces(runs):
            shard = used.get(position)
            if shard is None:
                shard = used[position] = self._shard(position)
                if self.io == "mmap":
                    shard.check(outs)  # a map of a file that was cut short kills the process
            for name, out in outs.items():
                shard.read(name, start, out[at : at + stop - start])
            at += stop - start
        for shard in used.values():
            shard.check(outs)

    def lists(self, tag: str, runs: Sequence[Run], /) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The lists of runs laid end to end: their items, and where each row's begin, int64 [rows + 1]."""
        stored = (f"{tag}.lengths", f"{tag}.values")
        pieces = [(self._shard(position), start, stop) for position, start, stop in self._pieces(runs)]
        used = {id(shard): shard for shard, _, _ in pieces}.values()
        if self.io == "mmap":
            for shard in used:
                shard.check(stored)
        lengths = [shard.lengths(tag, start, stop) for shard, start, stop in pieces]
        offsets = _summed(np.concatenate(lengths) if lengths else np.empty(0, np.int32))
        values = self.kinds[f"{tag}.values"].fresh(int(offsets[-1]))
        at = 0
        for shard, start, stop in pieces:
            first, end = int(offsets[at]), int(offsets[at + stop - start])
            shard.read(f"{tag}.values", shard.item(tag, start), values[first:end])
            at += stop - start
        for shard in used:
            shard.check(stored)
        return values, offsets

    def fixed(self, names: Sequence[str], /) -> tuple[str, ...]:
        """Those of the tensors that have one row per row."""
        return tuple(n for n in names if n in self.kinds and self._tag_of(n) is None)

    def listed(self, names: Sequence[str], /) -> tuple[str, ...]:
        """The lists of which a tensor is among the names."""
        return tuple(t for t in self.tags if f"{t}.values" in names or f"{t}.offsets" in names)

    def _take_lists(
        self, tag: str, groups: Sequence[tuple[_Shard, NDArray[np.int64], NDArray[np.int64] | None]], rows: int
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        lengths = np.zeros(rows, np.int64)
        for shard, local, at in groups:
            offsets = shard.offsets(tag)
            lengths[slice(None) if at is None else at] = offsets[local + 1] - offsets[local]
        ends = _summed(lengths)
        values = self.kinds[f"{tag}.values"].fresh(int(ends[-1]))
        for shard, local, at in groups:
            first = shard.offsets(tag)[local]
            place = ends[:-1] if at is None else ends[at]
            count = lengths if at is None else lengths[at]
            values[items_of(place, count)] = shard.array(f"{tag}.values")[items_of(first, count)]
        return values, ends

    def _by_file(
        self, indices: NDArray[np.int64]
    ) -> Iterator[tuple[_Shard, NDArray[np.int64], NDArray[np.int64] | None]]:
        """Indices by file: the file, its rows, and where they belong; None: in the order given."""
        if not len(indices):
            return
        owner = np.searchsorted(np.array(self._starts), indices, side="right") - 1
        if int(owner.min()) == int(owner.max()):
            position = int(owner[0])
            yield self._shard(position), indices - self._starts[position], None
            return
        order = np.argsort(owner, kind="stable")
        found, first = np.unique(owner[order], return_index=True)
        for position, at in zip(found.tolist(), np.split(order, first[1:]), strict=True):
            yield self._shard(position), indices[at] - self._starts[position], at

    def _pieces(self, runs: Sequence[Run]) -> Iterator[tuple[int, int, int]]:
        """Runs as (file, first row in it, end in it)."""
        for run_start, stop in runs:
            start = run_start
            if not 0 <= start <= stop <= self.rows:
                raise IndexError(f"[{start}, {stop}) is not within the {self.rows} rows of {self.split}")
            while start < stop:
                position = bisect_right(self._starts, start) - 1
                entry = self.files[position]
                end = min(stop, entry.row_start + entry.rows)
                if end <= start:
                    raise Damaged(f"{self.path} lists no file with row {start} of {self.split}", path=entry.path)
                yield position, start - entry.row_start, end - entry.row_start
                start = end

    def _stored(self, names: Sequence[str]) -> tuple[str, ...]:
        """The tensors in the files that these are made of."""
        lists = [f"{tag}.{part}" for tag in self.listed(names) for part in ("lengths", "values")]
        return (*self.fixed(names), *lists)

    def _shard(self, position: int) -> _Shard:
        return self._opened.get(position, self)

    def _tag_of(self, name: str) -> str | None:
        tag = name.removesuffix(".values")
        return tag if tag != name and tag in self.tags else None

    def _inside(self, name: str) -> str:
        for column in self.manifest.columns:
            if column.get("name") == name and column.get("tensor"):
                return f"; it is column {column.get('index')} of {column['tensor']}"
        return ""


_RESTORE = "Restore the file from a copy, or export again with --mode replace."


def row_numbers(indices: ArrayLike, rows: int, /) -> NDArray[np.int64]:
    """Indices [N] as the numbers of rows, int64 [N]; negative ones count from the end.

    Raises:
        IndexError: There is no such row.
        ConfigError: They are no integers [N].
    """
    wanted = np.asarray(indices)
    if wanted.ndim != 1 or (wanted.dtype.kind not in "iu" and wanted.size):
        raise ConfigError(
            f"rows are named by integers [N], not by {wanted.dtype} {list(wanted.shape)}",
            hint="Use np.flatnonzero for a mask.",
        )
    if wanted.size and (int(wanted.max()) >= rows or int(wanted.min()) < -rows):
        bad = next(int(i) for i in (wanted.max(), wanted.min()) if not -rows <= int(i) < rows)
        raise IndexError(f"there is no row {bad} among {rows}")
    found = wanted.astype(np.int64)
    found[found < 0] += rows
    return found


def items_of(first: NDArray[np.int64], count: NDArray[np.int64], /) -> NDArray[np.int64]:
    """first[0], first[0] + 1, … (count[0] of them), then those of the next: int64 [sum of count]."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    found: NDArray[np.int64] = np.arange(total) + np.repeat(first - (ends - count), count)
    return found


def _summed(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """0 and the running sums: int64 [rows + 1]."""
    found = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def _named(
    names: Sequence[str],
    fixed: Mapping[str, NDArray[Any]],
    lists: Mapping[str, tuple[NDArray[Any], NDArray[np.int64]]],
) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name in names:
        if name in fixed:
            found[name] = fixed[name]
        elif name.endswith(".values"):
            found[name] = lists[name.removesuffix(".values")][0]
        else:
            found[name] = lists[name.removesuffix(".offsets")][1]
    return found


def _words(manifest: Manifest) -> dict[str, str]:
    """Tensor in the files → dtype in words."""
    found: dict[str, str] = {}
    for one in sequence(manifest.document.get("tensors", [])):
        if isinstance(one, dict):
            found[str(one["name"])] = str(one["dtype"])
    for column in manifest.columns:
        tensor = str(column.get("tensor"))
        if column.get("kind") == "ragged" and tensor in found:
            found[f"{tensor}.values"], found[f"{tensor}.lengths"] = found.pop(tensor), "int32"
    return found


def _order(manifest: Manifest, tags: Sequence[str]) -> list[str]:
    """Tensors in the order in which they are offered; a list by its values."""
    bases = [str(t["name"]) for t in sequence(manifest.document.get("tensors", [])) if isinstance(t, dict)]
    layout = manifest.document.get("layout")
    first = ("x", "y", "w") if isinstance(layout, dict) and layout.get("kind") == "packed" else ()
    bases.sort(key=lambda n: first.index(n) if n in first else len(first))
    return [f"{n}.values" if n in tags else n for n in bases] + [f"{n}.valid" for n in bases]


def _places(folder: Target, entry: FileEntry, manifest: Manifest, files: _Files) -> dict[str, TensorPlace]:
    """Where the tensors of an entry lie, held against the manifest.

    Raises:
        Damaged: A file is missing, or its header is another than the manifest says.
    """
    places: dict[Path, str] = {}
    sizes = {one.path: one.bytes for one in entry.stored}

    def locate(path: str) -> Path:
        place = files.locate(path, sizes[path])
        places[place] = path
        return place

    try:
        found = spans(entry, manifest.format, locate)
    except FileNotFoundError as error:
        raise _missing(_lost(folder, entry)) from error
    except OSError as error:
        raise failed(f"{entry.path} cannot be read", error) from error
    words = _words(manifest)
    have = {
        name: (start - (entry.data_start or 0), dtype.itemsize * prod(shape))
        for name, (_, dtype, shape, start) in found.items()
    }
    if have != dict(entry.tensors or {}):
        raise Damaged(f"{entry.path} holds other tensors than the manifest says", hint=_RESTORE, path=entry.path)
    result: dict[str, TensorPlace] = {}
    for name, (place, dtype, shape, start) in found.items():
        word = words.get(name, "bool" if name.endswith(".valid") else dtype.name)
        if word not in ITEM_BYTES or dtype != held_dtype(word) or not shape:
            raise Damaged(
                f"{places[place]} holds {name} as {dtype} {list(shape)}, the manifest says {word}",
                hint=_RESTORE,
                path=places[place],
            )
        items = words.get(f"{name.removesuffix('.values')}.lengths") is not None and name.endswith(".values")
        if shape[0] != entry.rows and not items:
            raise Damaged(
                f"{places[place]} holds {shape[0]} rows of {name}, not {entry.rows}", hint=_RESTORE, path=places[place]
            )
        result[name] = TensorPlace(places[place], start, TensorKind(dtype, word, shape[1:]), shape[0])
    return result


def _lost(folder: Target, entry: FileEntry) -> str:
    """Which file of an entry is missing."""
    for one in entry.stored:
        try:
            located(folder, one.path)
        except FileNotFoundError:
            return one.path
    return entry.path


def _changed(path: str) -> Damaged:
    return Damaged(f"{path} was changed while it was read", hint=_RESTORE, path=path)


def _missing(path: str) -> Damaged:
    return Damaged(f"{path} is missing", hint=_RESTORE, path=path)
