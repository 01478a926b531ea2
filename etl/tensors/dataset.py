"""A dataset opened at one version: what it holds, whether its files are what the manifest says, its arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from etl.core.errors import ConfigError, Damaged, EtlError
from etl.core.schema import nearest
from etl.tensors.encode import SUFFIXES, mapped, tensor_faults
from etl.tensors.manifest import CURRENT, VERSIONS, FileEntry, Manifest, integer, sequence, sha256_hex
from etl.tensors.storage import LocalStorage, failed, local_path, sha256_of
from etl.tensors.versions import current, located, required, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

Verify: TypeAlias = Literal["none", "size", "sha256"]


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of one split.

    Attributes:
        dataset: The dataset it is of.
        name: Its name; "all" where the dataset is not split.
    """

    dataset: Dataset
    name: str

    def __len__(self) -> int:
        return self.dataset.manifest.splits[self.name]

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Its files in row order."""
        return tuple(f for f in self.dataset.manifest.files if f.split == self.name)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All tensors by name, as NumPy arrays that the caller owns.

        A split of one file is mapped copy-on-write, so nothing is read before it is looked at; several are joined in
        memory. bfloat16 is handed out as uint16 bits.

        Raises:
            ConfigError: The dataset holds no tensors.
            Damaged: A file is not what the manifest says.
        """
        if self.dataset.manifest.format == "parquet":
            raise ConfigError(
                f"{self.dataset.path} holds {self.dataset.manifest.format}, which has no tensors",
                hint="Read it with a Parquet reader, or export it with --format safetensors.",
            )
        try:
            parts = [mapped(f, self.dataset.manifest.format, self.dataset.locate) for f in self.files]
        except FileNotFoundError as error:
            raise Damaged(f"{error} of version {self.dataset.manifest.version} is missing", path=str(error)) from error
        if not parts:
            raise Damaged(f"{self.dataset.path} lists no file of the split {self.name}")
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """X and y of a packed dataset; y is None without a target. Absent values are 0: see `tensors` for masks.

        Raises:
            ConfigError: The dataset is not packed.
        """
        found = self.tensors()
        if "x" not in found:
            raise ConfigError(
                f"{self.dataset.path} has no matrix x",
                hint="Export it with --features, or take the columns from tensors().",
            )
        return found["x"], found.get("y")


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version of a dataset, pinned when it was opened; a later publish does not change it.

    Attributes:
        path: The folder.
        manifest: The version's manifest.
    """

    path: Path
    manifest: Manifest

    def __len__(self) -> int:
        return self.manifest.rows

    @property
    def columns(self) -> tuple[Mapping[str, object], ...]:
        """The manifest's `columns[]`: name, dtype, role, null count and more."""
        return self.manifest.columns

    @property
    def splits(self) -> tuple[str, ...]:
        """Split names; ("all",) where the dataset is not split."""
        return tuple(self.manifest.splits)

    def split(self, name: str, /) -> Split:
        """The rows of one split.

        Raises:
            ConfigError: There is no such split.
        """
        if name not in self.splits:
            raise ConfigError(
                f"{self.path} has no split {name}", hint=nearest(name, self.splits, what="splits"), split=name
            )
        return Split(self, name)

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """X and y where there is one split.

        Raises:
            ConfigError: There are several: name one with `split`, so that nobody trains on test rows by accident.
        """
        return self._only().arrays()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All tensors where there is one split.

        Raises:
            ConfigError: There are several: name one with `split`.
        """
        return self._only().tensors()

    def _only(self) -> Split:
        if len(self.splits) != 1:
            raise ConfigError(
                f"{self.path} has the splits {', '.join(self.splits)}", hint="Name one: ds.split(name).arrays()."
            )
        return Split(self, self.splits[0])

    def locate(self, path: str, /) -> Path:
        """Where a file of this version lies now: in its place, or retired since.

        Raises:
            FileNotFoundError: In neither.
        """
        return located(self.path, path)

    def verify(self, level: Verify = "sha256", /) -> None:
        """Hold that the files are what the manifest says.

        "size": every file is there and has its size. "sha256": also its hash, its header or footer against the
        manifest, sums of rows, the chain to the parent version, and that no other data file lies among them.

        Raises:
            Damaged: Names every bad file with both hashes.
        """
        bad = list(_faults(self, level))
        if bad:
            more = f" (and {len(bad) - 20} more)" if len(bad) > 20 else ""
            raise Damaged(
                f"{self.path}, version {self.manifest.version}, is damaged: {'; '.join(bad[:20])}{more}",
                hint="Restore the files from a copy, or export again with --mode replace.",
                faults=len(bad),
            )

    def summary(self) -> dict[str, object]:
        """What `cuetl dataset show` prints, as JSON values."""
        document = self.manifest.document
        keys = ("format", "version", "dataset_id", "operation", "created_at", "rows", "bytes", "parent")
        return {
            "path": str(self.path),
            **{k: document.get(k) for k in keys},
            "splits": dict(self.manifest.splits),
            "files": len(self.manifest.files),
            "layout": document.get("layout"),
            "split": document.get("split"),
            "tensors": document.get("tensors"),
            "columns": [_column_summary(c, self.manifest.rows) for c in self.columns],
            "source": document.get("source"),
            "snapshots": document.get("snapshots"),
            "partitions": len(sequence(document.get("partitions", []))),
            "content_sha256": document.get("content_sha256"),
            "warnings": document.get("warnings"),
        }


def _column_summary(column: Mapping[str, object], rows: int) -> dict[str, object]:
    null = column.get("null")
    count = integer(null["count"]) if isinstance(null, dict) else 0
    kept = ("name", "role", "kind", "dtype", "shape", "tensor", "index", "nullable", "arrow_type", "source_type")
    return {**{k: column.get(k) for k in kept}, "nulls": count, "null_share": count / rows if rows else 0.0}


def open_dataset(path: str | Path, /, version: int | None = None, verify: Verify = "size") -> Dataset:
    """Open a dataset: one file is read, and with "size" each file's size is looked at.

    Args:
        path: The folder, or a `file://` URL.
        version: An older version; None: the current one.
        verify: "none", "size" or "sha256", see `Dataset.verify`.

    Raises:
        ConfigError: The words are wrong, or it is another storage.
        DatasetError: There is no dataset, or no such version.
        Damaged: Files are missing or changed.
    """
    if verify not in ("none", "size", "sha256"):
        raise ConfigError(f"unknown verify {verify!r}", hint="Use none, size or sha256.")
    folder = local_path(os.fspath(path))
    manifest = version_of(folder, required(folder), version)
    dataset = Dataset(folder, manifest)
    if verify != "none":
        dataset.verify(verify)
    return dataset


def _faults(dataset: Dataset, level: Verify) -> Iterator[str]:
    manifest = dataset.manifest
    for file in manifest.files:
        for one in file.stored:
            found = list(_file_faults(dataset.path, one.path, one.bytes, one.sha256, level))
            yield from found
            if level == "sha256" and not found:
                yield from _content_faults(dataset, file, one.path)
    if level == "sha256":
        yield from _document_faults(dataset)
        yield from _stray_faults(dataset)


def _file_faults(folder: Path, path: str, size: int, digest: str, level: Verify) -> Iterator[str]:
    try:
        place = located(folder, path)
        have = place.stat().st_size
        if have != size:
            yield f"{path} has {have} bytes, not {size} (sha256 {sha256_of(place)}, not {digest})"
        elif level == "sha256" and (now := sha256_of(place)) != digest:
            yield f"{path} has sha256 {now}, not {digest}"
    except FileNotFoundError:
        yield f"{path} is missing (sha256 {digest})"
    except OSError as error:
        yield str(failed(f"{path} cannot be read", error))


def _content_faults(dataset: Dataset, file: FileEntry, path: str) -> Iterator[str]:
    """A file whose hash is right holds what the manifest says of it."""
    try:
        place = located(dataset.path, path)
        if path.endswith(".parquet"):
            rows = pq.read_metadata(place).num_rows
            if rows != file.rows:
                yield f"{path} holds {rows} rows, the manifest says {file.rows}"
        elif file.tensors is not None and path == file.stored[0].path:
            yield from tensor_faults(file, dataset.manifest.format, dataset.locate)
    except (OSError, EtlError) as error:
        yield f"{path} cannot be read: {error}"


def _stray_faults(dataset: Dataset) -> Iterator[str]:
    """Data files in the folder that no manifest lists: readers that go by names would read them too."""
    newest = current(dataset.path)
    listed = newest.data_paths if newest is not None else frozenset[str]()
    suffix = SUFFIXES.get(dataset.manifest.format, f".{dataset.manifest.format}")
    for path in sorted(LocalStorage().list(dataset.path)):
        hidden = any(name.startswith(("_", ".")) for name in path.split("/"))
        if path.endswith(suffix) and not hidden and path not in listed:
            yield f"{path} is not of this dataset, but its readers would take it for a part: move it elsewhere"


def _document_faults(dataset: Dataset) -> Iterator[str]:
    manifest = dataset.manifest
    rows = dict.fromkeys(manifest.splits, 0)
    for file in manifest.files:
        if rows.get(file.split) != file.row_start:
            yield f"{file.path} begins at row {file.row_start} of {file.split}, after {rows.get(file.split)} rows"
        rows[file.split] = rows.get(file.split, 0) + file.rows
    if rows != dict(manifest.splits) or sum(rows.values()) != manifest.rows:
        yield f"the files hold {rows} rows, the manifest says {dict(manifest.splits)}"
    own = dataset.path / VERSIONS / f"{manifest.version:06d}.json"
    newest = current(dataset.path)
    try:
        is_current = newest is not None and newest.version == manifest.version
        if is_current and own.read_bytes() != (dataset.path / CURRENT).read_bytes():
            yield f"{CURRENT} differs from {VERSIONS}/{own.name}"
        parent = manifest.document.get("parent")
        if parent is not None:
            name = f"{integer(parent):06d}.json"
            digest = sha256_hex((dataset.path / VERSIONS / name).read_bytes())
            if digest != manifest.document.get("parent_sha256"):
                yield f"{VERSIONS}/{name} has sha256 {digest}, not {manifest.document.get('parent_sha256')}"
    except FileNotFoundError as error:
        yield f"{error.filename} is missing"
    except OSError as error:
        yield str(failed("a manifest cannot be read", error))
