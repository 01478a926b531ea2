"""Where a dataset's files lie: the few operations that publishing needs, and the local file system's way of them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol
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
    """What publishing asks of a store of files; paths are absolute."""

    def put(self, path: Path, data: bytes, /) -> None:
        """Make a file that must not exist, whole and durable.

        Raises:
            FileExistsError: It exists.
        """
        ...

    def list(self, folder: Path, /) -> Iterator[str]:
        """Relative paths of all files below a folder, in no order; symbolic links are files."""
        ...

    def link(self, source: Path, target: Path, /) -> None:
        """A second name for the same file, without a copy."""
        ...

    def fsync(self, path: Path, /) -> None:
        """Wait until a file's data or a folder's names are durable."""
        ...

    def switch(self, stage: Path, target: Path, /) -> bool:
        """Put the stage in the target's place in one step; True when the old tree now bears the stage's name."""
        ...


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A local file system with hard links and, for other modes than create, exchange of folders."""

    def put(self, path: Path, data: bytes, /) -> None:
        """As `Storage.put`."""
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def list(self, folder: Path, /) -> Iterator[str]:
        """As `Storage.list`."""
        for at, folders, names in os.walk(folder):
            here = os.path.relpath(at, folder)
            links = [n for n in folders if Path(at, n).is_symlink()]
            for name in (*names, *links):
                yield name if here == "." else f"{here}/{name}"

    def link(self, source: Path, target: Path, /) -> None:
        """As `Storage.link`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target, follow_symlinks=False)

    def fsync(self, path: Path, /) -> None:
        """As `Storage.fsync`."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def switch(self, stage: Path, target: Path, /) -> bool:
        """As `Storage.switch`; the exchange is one step for every reader (renameat2(2), measured on ext4)."""
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
