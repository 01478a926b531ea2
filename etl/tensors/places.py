"""Where a dataset lies: a local folder, as a `Path`, or a folder of another storage, as a `Place`.

Local datasets are published and mapped as folders. Elsewhere files are made in a local stage, brought to their final
names and named by a manifest; a reader fetches each file once into a cache on this machine and maps it there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from etl.core.errors import ConfigError
from etl.tensors.storage import LocalFiles, local_path

if TYPE_CHECKING:
    from etl.tensors.storage import Storage

Target: TypeAlias = "Path | Place"
"""Of a dataset."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset's folder in a storage that is no local folder; a picklable value without a secret.

    Attributes:
        storage: What holds it.
        path: The folder, from the storage's root.
        url: As it is said to users.
    """

    storage: Storage
    path: str
    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.rpartition("/")[2]

    def at(self, name: str, /) -> str:
        """The path of a file of the dataset."""
        return f"{self.path}/{name}"

    def read(self, name: str, /) -> bytes:
        """A file of the dataset, whole.

        Raises:
            FileNotFoundError: There is none.
        """
        return self.storage.read(self.at(name))

    def sizes(self, folder: str = "", /) -> dict[str, int]:
        """Every file, or every one below a folder of the dataset: relative path → bytes."""
        return self.storage.sizes(self.at(folder) if folder else self.path)

    def size(self, name: str, /) -> int | None:
        """Bytes of a file; None: there is none."""
        return self.storage.size(self.at(name))

    @property
    def shadow(self) -> Path:
        """The local folder beside which stages are made; it never exists itself."""
        name = hashlib.sha256(self.url.encode()).hexdigest()[:32]
        return Path(tempfile.gettempdir()) / f"cuetl-stages-{os.getuid()}" / name

    def fetched(self, name: str, at: str, /, *, anew: bool = False) -> Path:
        """A file's copy in the cache of this machine; the storage is asked once, and never again.

        A data file's name holds the run that made it, so no other content ever bears it.

        Args:
            name: The file, as the manifest names it.
            at: Where it lies now: `name`, or retired.
            anew: Whether a copy that is there is replaced.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be read, or the cache not be written to.
        """
        from etl.settings import cache_folder  # noqa: PLC0415 # as in `_elsewhere`

        kept = cache_folder() / "files" / self.shadow.name / name
        if anew or not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            fresh = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}.tmp")
            self.storage.fetch(self.at(at), fresh)
            fresh.replace(kept)
        return kept


def as_place(target: Target, /) -> Place:
    """The place itself, or a local folder as one that is published to by its manifest."""
    return target if isinstance(target, Place) else Place(LocalFiles(), str(target), str(target))


def place_of(target: str | os.PathLike[str] | Place, /) -> Target:
    """The one reading of a target: a path or a `file://` URL is a local folder, any other URL that of a storage.

    Raises:
        ConfigError: It is empty, of an unknown scheme, or a URL that names a key, a query or no folder.
    """
    if isinstance(target, Place):
        return target
    text = os.fspath(target)
    scheme = urlsplit(text).scheme if "://" in text else ""
    return local_path(text) if scheme in ("", "file") else _elsewhere(text, scheme)


def _elsewhere(text: str, scheme: str) -> Place:
    # Settings and Arrow's file systems take some 50 ms to import, and a service that loads a fit waits for them.
    from etl.settings import storage_options  # noqa: PLC0415 # for URLs alone
    from etl.tensors.arrow_files import ArrowFiles, UrlOpening, known, parts_of  # noqa: PLC0415 # the same

    if not known(scheme):
        raise ConfigError(
            f"{scheme}:// is a storage that nothing installed here knows",
            hint="Use a local folder, s3://BUCKET/FOLDER, or a scheme of Arrow's or an installed fsspec's.",
        )
    scheme, server, path = parts_of(text)
    if "/" not in path.strip("/") and not path.startswith("/"):
        raise ConfigError(f"{text} names no folder", hint=f"Name a folder in it: {scheme}://{path or 'BUCKET'}/FOLDER.")
    if any(part in ("", ".", "..") for part in path.strip("/").split("/")):
        raise ConfigError(f"{text} names no folder", hint="Name a folder by its full path, without . and ...")
    storage = ArrowFiles(UrlOpening(scheme, server, storage_options(text)))
    inside = path.strip("/")
    return Place(storage, path, f"{scheme}://{f'{server}/' if server else '/' if path.startswith('/') else ''}{inside}")
