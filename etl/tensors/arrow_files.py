"""Stores of files that Arrow reaches: S3, GCS, Azure and HDFS by its own file systems, others by fsspec's.

What is asked of them is the same; what they promise differs, and `exclusive` and `replaces` say so.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from etl.core.errors import ConfigError
from etl.core.secrets import SecretRef
from etl.tensors.storage import copied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OBJECTS = frozenset({"s3", "gcs", "abfs"})
"""Arrow's own stores in which a file is there when it is whole, and folders are not made."""
OBJECT_PROTOCOLS = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oci", "oss", "tos", "hf"})
"""The same of fsspec's."""
EXCLUSIVE_PROTOCOLS = frozenset({"file", "local", "s3", "s3a"})
"""fsspec's that refuse by themselves to make a file that exists."""
_NATIVE = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "abfs", "abfss": "abfs", "hdfs": "hdfs", "viewfs": "hdfs"}
_COPY = 4 << 20
_CONNECT_SECONDS = 10.0
_REQUEST_SECONDS = 60.0


class Opening(Protocol):
    """How a file system is opened: a picklable value without a secret, equal where the file system is the same."""

    def filesystem(self) -> fs.FileSystem:
        """The file system, opened in this process."""
        ...


@dataclass(frozen=True, slots=True)
class UrlOpening:
    """A file system named by the scheme of a URL.

    Attributes:
        scheme: Of the URL.
        authority: Host and port, where the scheme has a server; the bucket of a store is part of the path.
        options: Of `[storage.NAME]`: endpoint, region, access_key, secret_key, anonymous.
    """

    scheme: str
    authority: str = ""
    options: tuple[tuple[str, str | bool | SecretRef], ...] = field(default=(), repr=False)

    def filesystem(self) -> fs.FileSystem:
        """The file system, opened once in this process.

        Raises:
            ConfigError: Nothing that is installed opens it, or a reference to a secret cannot be resolved.
        """
        return _opened(self)


def known(scheme: str, /) -> bool:
    """Whether Arrow or an installed fsspec knows a scheme."""
    if scheme in _NATIVE:
        return True
    # fsspec is optional, and asked only for schemes that Arrow does not know.
    if find_spec("fsspec") is None:
        return False
    return bool(scheme in import_module("fsspec").available_protocols())


@cache
def _opened(how: UrlOpening) -> fs.FileSystem:
    options = {k: v.resolve().reveal() if isinstance(v, SecretRef) else v for k, v in how.options}
    try:
        match _NATIVE.get(how.scheme):
            case "s3":
                return _s3(options)
            case "gcs":
                return fs.GcsFileSystem(anonymous=bool(options.get("anonymous")))
            case "abfs" | "hdfs":
                found: fs.FileSystem = fs.FileSystem.from_uri(f"{how.scheme}://{how.authority}/")[0]
                return found
            case _:
                handler: Any = fs.FSSpecHandler  # the stubs take it for abstract
                return fs.PyFileSystem(handler(import_module("fsspec").filesystem(how.scheme, **options)))
    except (OSError, ImportError, ValueError, TypeError, pa.ArrowException, AttributeError) as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{how.scheme}:// cannot be opened here: {words[0]}",
            hint="Check [storage.NAME] of cuetl.toml, and that what this storage needs is installed.",
        ) from error


def _s3(options: dict[str, str | bool]) -> fs.FileSystem:
    given: dict[str, Any] = {
        # A small file is one request then, not three; that the bucket is not there is told when the file is closed.
        "allow_delayed_open": True,
    }
    given |= {
        name: options[name] for name in ("access_key", "secret_key", "session_token", "region") if name in options
    }
    endpoint = str(options.get("endpoint", ""))
    if endpoint:
        scheme, found, host = endpoint.partition("://")
        given |= {
            "scheme": scheme if found else "https",
            "endpoint_override": (host if found else endpoint).rstrip("/"),
        }
        # Servers other than AWS have no regions, and AWS's words for one are taken by all of them.
        given.setdefault("region", "us-east-1")
    return fs.S3FileSystem(
        anonymous=bool(options.get("anonymous")),
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        **given,
    )


@dataclass(frozen=True, slots=True)
class ArrowFiles:
    """Any file system of Arrow's, as `etl.tensors.storage.Storage` asks.

    Attributes:
        opening: How it is opened.
    """

    opening: Opening

    @property
    def exclusive(self) -> bool:
        """True where fsspec's own way of making a new file is exclusive; Arrow's S3 has no conditional put."""
        return _protocol(self._fs) in EXCLUSIVE_PROTOCOLS

    @property
    def replaces(self) -> bool:
        """False for HDFS, whose rename takes no existing file's place."""
        return str(self._fs.type_name) != "hdfs"

    def read(self, path: str, /) -> bytes:
        """As `Storage.read`."""
        with _asked(path), self._fs.open_input_stream(path) as file:
            return bytes(file.read())

    def sizes(self, folder: str, /) -> dict[str, int]:
        """As `Storage.sizes`."""
        with _asked(folder):
            found = self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        # fsspec's local paths come back absolute whatever was asked for; what ends the name is the same.
        first = len(folder.strip("/")) + 1
        return {one.path.strip("/")[first:]: one.size for one in found if one.type == fs.FileType.File}

    def size(self, path: str, /) -> int | None:
        """As `Storage.size`."""
        with _asked(path):
            found = self._fs.get_file_info(path)
        return found.size if found.type == fs.FileType.File else None

    def create(self, path: str, data: bytes, /) -> None:
        """As `Storage.create`; where not `exclusive`, it is looked whether the file is there, then made."""
        with _asked(path):
            if self.exclusive:
                self._folder(path)
                self._fs.handler.fs.pipe_file(path, data, mode="create")
                return
        if self.size(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.replace(path, data)

    def replace(self, path: str, data: bytes, /) -> None:
        """As `Storage.replace`."""
        with _asked(path):
            if self._objects:
                self._write(path, data)
                return
            whole = f"{path}.{secrets.token_hex(4)}.tmp"
            self._write(whole, data)
            self._fs.move(whole, path)

    def take(self, source: Path, path: str, /) -> None:
        """As `Storage.take`: the file is copied, under its own name at once, since no other file ever bears it."""
        with _asked(path):
            self._folder(path)
            with source.open("rb", buffering=0) as file, self._fs.open_output_stream(path) as out:
                while piece := file.read(_COPY):
                    out.write(piece)

    def fetch(self, path: str, into: Path, /) -> str:
        """As `Storage.fetch`."""
        with _asked(path):
            return copied(self._fs.open_input_stream(path), into)

    def move(self, path: str, to: str, /) -> None:
        """As `Storage.move`; in a store of objects a copy there, then a deletion."""
        with _asked(path):
            self._folder(to)
            if self._fs.type_name == "hdfs" and self._fs.get_file_info(to).type == fs.FileType.File:
                self._fs.delete_file(to)
            self._fs.move(path, to)

    def remove(self, path: str, /) -> None:
        """As `Storage.remove`."""
        with suppress(FileNotFoundError), _asked(path):
            if self._fs.get_file_info(path).type == fs.FileType.File:
                self._fs.delete_file(path)

    @property
    def _fs(self) -> Any:  # the stubs know no handler
        return self.opening.filesystem()

    @property
    def _objects(self) -> bool:
        found = self._fs
        return found.type_name in OBJECTS or _protocol(found) in OBJECT_PROTOCOLS

    def _folder(self, path: str) -> None:
        if not self._objects:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)

    def _write(self, path: str, data: bytes) -> None:
        self._folder(path)
        with self._fs.open_output_stream(path) as out:
            out.write(data)


def _protocol(found: Any) -> str:
    """The protocol of a file system of fsspec; "" of Arrow's own."""
    inner = getattr(getattr(found, "handler", None), "fs", None)
    protocol = getattr(inner, "protocol", "")
    return str(protocol if isinstance(protocol, str) else protocol[0])


@contextmanager
def _asked(path: str) -> Iterator[None]:
    """Errors of Arrow's and of fsspec's file systems as `OSError`; of a missing file with its path."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    except (pa.ArrowException, RuntimeError) as error:
        raise OSError(f"{path}: {error}") from error


def parts_of(url: str, /) -> tuple[str, str, str]:
    """Scheme, server and path of a URL: the bucket of a store is the path's first name.

    Raises:
        ConfigError: It names a password, a query or no path.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc and parts.scheme not in ("abfs", "abfss"):
        raise ConfigError(
            f"the {parts.scheme}:// URL of a target names a user or a key",
            hint="Put keys into [storage.NAME] of cuetl.toml as ${env:NAME} or ${file:PATH}, or into the environment.",
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"the {parts.scheme}:// URL of a target has a query", hint="Put options into [storage.NAME] of cuetl.toml."
        )
    path = parts.path.strip("/")
    server = parts.scheme in ("hdfs", "viewfs", "webhdfs", "sftp", "ssh", "ftp", "smb", "abfs", "abfss")
    if server:
        return parts.scheme, parts.netloc, f"/{path}"
    if parts.scheme in ("file", "local"):
        return parts.scheme, "", f"/{path}"
    return parts.scheme, "", "/".join(one for one in (parts.netloc, path) if one)
