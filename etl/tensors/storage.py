"""Where a dataset's files lie: what is asked of a store of files, and the local file system's way of it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import unquote, urlsplit

from etl.core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Buffer

_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux's renameat2(2), RENAME_SWAP of macOS's renameatx_np(2): the same number."""
_AT_FDCWD = {"renameat2": -100, "renameatx_np": -2}
_WRITEBACK = 2
"""SYNC_FILE_RANGE_WRITE of sync_file_range(2): start writing back, wait for nothing."""


class Storage(Protocol):
    """A store of files, as readers and a publish by manifest ask of it; a picklable value without a secret.

    Paths are text with `/`, from the store's root.

    Attributes:
        exclusive: Whether `create` is refused by the store itself where the file exists: only then can two writers
            not take one another's version.
        replaces: Whether `replace` is one step for every reader.
    """

    @property
    def exclusive(self) -> bool: ...  # noqa: D102 - said above

    @property
    def replaces(self) -> bool: ...  # noqa: D102 - said above

    def read(self, path: str, /) -> bytes:
        """A file, whole.

        Raises:
            FileNotFoundError: There is none.
        """
        ...

    def sizes(self, folder: str, /) -> dict[str, int]:
        """Every file below a folder: relative path → bytes; empty where there is no such folder."""
        ...

    def size(self, path: str, /) -> int | None:
        """Bytes of a file; None: there is none."""
        ...

    def create(self, path: str, data: bytes, /) -> None:
        """Make a file that must not exist, whole and durable.

        Raises:
            FileExistsError: It exists.
        """
        ...

    def replace(self, path: str, data: bytes, /) -> None:
        """Make a file, or put another in its place: readers find all of the old one or all of the new one."""
        ...

    def take(self, source: Path, path: str, /) -> None:
        """Bring a local file here; `source` may be gone afterwards."""
        ...

    def fetch(self, path: str, into: Path, /) -> str:
        """Copy a file to a new local one; its SHA-256, made on the way.

        Raises:
            FileNotFoundError: There is none.
        """
        ...

    def move(self, path: str, to: str, /) -> None:
        """Another name for a file; a file of that name is replaced."""
        ...

    def remove(self, path: str, /) -> None:
        """Remove a file; none there is no error."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Local and mounted folders without an exchange of folders."""

    exclusive: ClassVar[bool] = True
    replaces: ClassVar[bool] = True

    def read(self, path: str, /) -> bytes:
        """As `Storage.read`."""
        return Path(path).read_bytes()

    def sizes(self, folder: str, /) -> dict[str, int]:
        """As `Storage.sizes`."""
        at = Path(folder)
        return {name: os.lstat(at / name).st_size for name in LocalStorage().list(at)}

    def size(self, path: str, /) -> int | None:
        """As `Storage.size`."""
        try:
            return os.stat(path).st_size  # noqa: PTH116 - text all along
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, path: str, data: bytes, /) -> None:
        """As `Storage.create`."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        LocalStorage().put(place, data)
        LocalStorage().fsync(place.parent)

    def replace(self, path: str, data: bytes, /) -> None:
        """As `Storage.replace`."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        whole = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        LocalStorage().put(whole, data)
        whole.replace(place)
        LocalStorage().fsync(place.parent)

    def take(self, source: Path, path: str, /) -> None:
        """As `Storage.take`: the file itself goes there."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        LocalStorage().fsync(source)
        source.rename(place)
        LocalStorage().fsync(place.parent)

    def fetch(self, path: str, into: Path, /) -> str:
        """As `Storage.fetch`."""
        return copied(Path(path).open("rb"), into)

    def move(self, path: str, to: str, /) -> None:
        """As `Storage.move`."""
        place = Path(to)
        place.parent.mkdir(parents=True, exist_ok=True)
        Path(path).replace(place)
        for folder in {place.parent, Path(path).parent}:
            LocalStorage().fsync(folder)

    def remove(self, path: str, /) -> None:
        """As `Storage.remove`."""
        Path(path).unlink(missing_ok=True)


_PIECE = 4 << 20


def copied(source: IO[bytes], into: Path, /) -> str:
    """Copy what is left of an open file to a new local one and close both; its SHA-256.

    Raises:
        OSError: Reading or writing failed; what was written is removed.
    """
    out = HashingFile(into)
    try:
        with source:
            while piece := source.read(_PIECE):
                out.write(piece)
    except BaseException:
        out.close()
        into.unlink(missing_ok=True)
        raise
    out.close()
    return out.hexdigest()


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A local file system with hard links and, for other modes than create, exchange of folders."""

    def put(self, path: Path, data: bytes, /) -> None:
        """Make a file that must not exist, whole and durable.

        Raises:
            FileExistsError: It exists.
        """
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def list(self, folder: Path, /) -> Iterator[str]:
        """Relative paths of all files below a folder, in no order; symbolic links are files."""
        for at, folders, names in os.walk(folder):
            here = os.path.relpath(at, folder)
            links = [n for n in folders if Path(at, n).is_symlink()]
            for name in (*names, *links):
                yield name if here == "." else f"{here}/{name}"

    def link(self, source: Path, target: Path, /) -> None:
        """A second name for the same file, without a copy."""
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target, follow_symlinks=False)

    def fsync(self, path: Path, /) -> None:
        """Wait until a file's data or a folder's names are durable."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def switch(self, stage: Path, target: Path, /) -> bool:
        """Put the stage in the target's place in one step; True when the old tree now bears the stage's name.

        The exchange is one step for every reader (renameat2(2), measured on ext4).
        """
        exchanged = target.exists()
        if exchanged and any(target.iterdir()):
            exchange(stage, target)
        else:
            # rename(2) takes the place of an empty folder, and fails when somebody filled it meanwhile.
            stage.rename(target)
            exchanged = False
        self.fsync(target.parent)
        return exchanged


def local_path(target: str, /) -> Path:
    """The absolute path of a target: a path, or a `file://` URL.

    Raises:
        ConfigError: It is the URL of another storage, which this version does not write.
    """
    parts = urlsplit(target)
    if not target.strip():
        raise ConfigError("the target is empty", hint="Name a folder.")
    if "://" not in target:
        return Path(os.path.abspath(os.path.expanduser(target)))  # noqa: PTH100, PTH111 - resolve() would follow links
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return Path(os.path.abspath(unquote(parts.path)))  # noqa: PTH100 - as above
    raise ConfigError(
        f"{parts.scheme}:// is not a storage that this version reads or writes",
        hint="Use a local folder, or one that is mounted.",
    )


@contextmanager
def locked(folder: Path, /) -> Iterator[None]:
    """Hold the one lock under which datasets in this folder are published and cleaned."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, other: Path, /) -> None:
    """Swap two names in one step.

    Raises:
        OSError: The file system cannot (EINVAL, ENOSYS, ENOTSUP), or refused.
    """
    for name, here in _AT_FDCWD.items():
        call = getattr(_libc(), name, None)
        if call is None:
            continue
        if call(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one), None, str(other))
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one), None, str(other))


def start_writeback(handle: int, /) -> None:
    """Ask the kernel to start writing a file's pages, without waiting: the fsync at commit then finds little left.

    A hint: where there is no such call the fsync does the whole work.
    """
    call = getattr(_libc(), "sync_file_range", None)
    if call is not None:
        call(handle, ctypes.c_int64(0), ctypes.c_int64(0), _WRITEBACK)


class HashingFile:
    """A new file that is hashed while it is written, front to back; `pyarrow` can write to it.

    Raises:
        FileExistsError: The file exists.
    """

    def __init__(self, path: Path, /) -> None:
        self.path = path
        self.size = 0
        self.closed = False
        self._hash = hashlib.sha256()
        self._file: IO[bytes] = path.open("xb", buffering=0)

    def write(self, data: Buffer, /) -> int:
        """Write all of the data."""
        view = memoryview(data)
        if not view.nbytes:
            return 0  # rows of no width have a shape that cannot be cast
        view = view.cast("B")
        self._hash.update(view)
        left = view
        while left:
            left = left[self._file.write(left) :]
        self.size += len(view)
        return len(view)

    def writable(self) -> bool:
        """True."""
        return True

    def readable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """False: what was written is hashed."""
        return False

    def tell(self) -> int:
        """Bytes written."""
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Start the write-back and close; may be called twice."""
        if not self.closed:
            self.closed = True
            start_writeback(self._file.fileno())
            self._file.close()

    def hexdigest(self) -> str:
        """SHA-256 of what was written."""
        return self._hash.hexdigest()


def failed(what: str, error: OSError, /) -> DatasetError:
    """The one mapping of file system errors: what failed, where, the system's words, what to do."""
    hints: Mapping[int | None, str] = {
        errno.ENOSPC: "Free some space, or choose a target on another disk. Nothing was published.",
        errno.EDQUOT: "The disk quota is used up. Nothing was published.",
        errno.EFBIG: "The file may not grow so large there (a file size limit). Nothing was published.",
        errno.EACCES: "Choose a folder that you may write to.",
        errno.EPERM: "Choose a folder that you may write to.",
        errno.EROFS: "The disk is mounted read-only.",
    }
    place = f" {error.filename}" if error.filename else ""
    words = error.strerror or str(error)
    return DatasetError(f"{what}:{place} {words}", hint=hints.get(error.errno, ""))
