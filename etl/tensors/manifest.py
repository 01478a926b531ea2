"""The manifest: one immutable JSON document per version that says what a dataset is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from etl.core.canonical import canonical_json
from etl.core.errors import Damaged, DatasetError
from etl.tensors.fits import hashes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KIND = "cuetl-dataset"
FORMAT_VERSION = 1
READER = 1
"""The highest `min_reader` that this code understands."""
CURRENT = "_manifest.json"
VERSIONS = "_manifests"
RETIRED = "_retired"
TEXT = "_text"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file on disk: its path relative to the dataset, its size, the SHA-256 of all of it."""

    path: str
    bytes: int
    sha256: str

    def as_json(self) -> dict[str, object]:
        """The object in a manifest."""
        return {"path": self.path, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, entry: Mapping[str, object], /) -> Self:
        """The object of a manifest; unknown fields are ignored."""
        return cls(_text(entry["path"]), integer(entry["bytes"]), _text(entry["sha256"]))


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file, as the manifest lists it in row order.

    Attributes:
        path: Relative to the dataset.
        split: The split its rows belong to.
        rows: Its rows.
        bytes: Its size.
        sha256: Of the whole file, 64 hex digits.
        row_start: Rows of the same split before it.
        added_in_version: The version that brought it.
        data_start: Where tensor data begin; None for formats without offsets.
        tensors: Name → (offset from `data_start` in its file, bytes).
        partitions: Indexes of the partitions whose rows it holds.
        text_file: The row-aligned Parquet file with the text beside it.
        members: Tensor → its file, in formats that give each tensor a file of its own; `path` then names their common
            stem, `bytes` is their sum and `sha256` the hash over their names and hashes.
    """

    path: str
    split: str
    rows: int
    bytes: int
    sha256: str
    row_start: int
    added_in_version: int
    data_start: int | None = None
    tensors: Mapping[str, tuple[int, int]] | None = None
    partitions: tuple[int, ...] = ()
    text_file: StoredFile | None = None
    members: Mapping[str, StoredFile] | None = None

    @property
    def stored(self) -> tuple[StoredFile, ...]:
        """Every file on disk that the entry stands for."""
        own = tuple(self.members.values()) if self.members else (StoredFile(self.path, self.bytes, self.sha256),)
        return own if self.text_file is None else (*own, self.text_file)

    def as_json(self) -> dict[str, object]:
        """The entry of `files[]`."""
        entry: dict[str, object] = {
            "path": self.path,
            "split": self.split,
            "rows": self.rows,
            "row_start": self.row_start,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "data_start": self.data_start,
            "tensors": {n: list(v) for n, v in (self.tensors or {}).items()},
            "partitions": list(self.partitions),
            "added_in_version": self.added_in_version,
        }
        if self.text_file is not None:
            entry["text_file"] = self.text_file.as_json()
        if self.members is not None:
            entry["members"] = {n: m.as_json() for n, m in self.members.items()}
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, object], /) -> Self:
        """The entry of a manifest; unknown fields are ignored."""
        tensors = entry.get("tensors")
        text, members = entry.get("text_file"), entry.get("members")
        start = entry.get("data_start")
        return cls(
            path=_text(entry["path"]),
            split=_text(entry["split"]),
            rows=integer(entry["rows"]),
            bytes=integer(entry["bytes"]),
            sha256=_text(entry["sha256"]),
            row_start=integer(entry["row_start"]),
            added_in_version=integer(entry["added_in_version"]),
            data_start=None if start is None else integer(start),
            tensors={_text(n): (integer(v[0]), integer(v[1])) for n, v in tensors.items()}
            if isinstance(tensors, dict) and tensors
            else None,
            partitions=tuple(integer(p) for p in sequence(entry.get("partitions", []))),
            text_file=StoredFile.from_json(text) if isinstance(text, dict) else None,
            members={_text(n): StoredFile.from_json(m) for n, m in members.items()}
            if isinstance(members, dict) and members
            else None,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a dataset.

    Attributes:
        document: All fields of the document as JSON values, unknown ones included.
        files: `files[]` in row order.
    """

    document: Mapping[str, object]
    files: tuple[FileEntry, ...]

    @classmethod
    def of(cls, document: Mapping[str, object], files: Sequence[FileEntry], /) -> Self:
        """The manifest of these fields and files."""
        return cls({**document, "files": [f.as_json() for f in files]}, tuple(files))

    @classmethod
    def from_json(cls, text: bytes, /, *, where: str = "the manifest") -> Self:
        """Read a document. Unknown fields are kept and ignored.

        Raises:
            Damaged: It is not the JSON of a manifest.
            DatasetError: It needs a newer reader.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise Damaged(f"{where} is not JSON: {error}", path=where) from error
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise Damaged(f"{where} is not the manifest of a cuETL dataset", path=where)
        try:
            needed = integer(document["min_reader"])
            if needed > READER:
                raise DatasetError(
                    f"{where} needs a cuETL that reads manifests of layout {needed}; this one reads up to {READER}",
                    hint="Install a newer cuETL.",
                )
            files = tuple(FileEntry.from_json(entry) for entry in document["files"])
            found = cls(document, files)
            found._check()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise Damaged(f"{where} lacks what a manifest must have: {error!r}", path=where) from error
        return found

    def _check(self) -> None:
        """Read all that readers rely on, so that a damaged document is found here and nowhere else."""
        parent = self.document.get("parent")
        for value in (self.version, self.rows, self.document["bytes"], 0 if parent is None else parent):
            _count(value)
        for value in (self.format, self.document["schema_sha256"], self.document["dataset_id"]):
            _text(value)
        sequence(self.document.get("partitions", []))
        if not {file.split for file in self.files} <= set(self.splits):
            raise ValueError("files of a split that is not listed")
        for name in ("columns", "tensors"):
            if not all(isinstance(one, dict) for one in sequence(self.document.get(name, []))):
                raise TypeError(f"{name} are not objects")
        for tensor in sequence(self.document.get("tensors", [])):
            if isinstance(tensor, dict):
                _text(tensor["name"])
                _text(tensor["dtype"])
        for column in self.columns:
            _text(column["name"])
            null = column.get("null")
            _count(null["count"] if isinstance(null, dict) else 0)
        hashes_of(self.document)
        for path in self.data_paths:
            if path.startswith("/") or ".." in path.split("/") or "\0" in path:
                raise ValueError(f"the path {path!r} leads out of the dataset")

    def to_json(self) -> bytes:
        """Canonical: equal manifests are equal bytes."""
        return canonical_json(dict(self.document))

    @property
    def version(self) -> int:
        """Counted from 1; gaps are legal."""
        return integer(self.document["version"])

    @property
    def format(self) -> str:
        """Of the data files: safetensors, parquet, npy, torch or tfrecord."""
        return _text(self.document["format"])

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return integer(self.document["rows"])

    @property
    def columns(self) -> tuple[Mapping[str, object], ...]:
        """`columns[]` in order."""
        return tuple(c for c in sequence(self.document["columns"]) if isinstance(c, dict))

    @property
    def splits(self) -> Mapping[str, int]:
        """Split → rows, in the order in which they were named."""
        order = [_text(s) for s in sequence(self.document.get("split_order", []))]
        rows = self.document["splits"]
        if not isinstance(rows, dict):
            return {}
        return {n: integer(rows[n]) for n in sorted(rows, key=lambda n: order.index(n) if n in order else len(order))}

    @property
    def data_paths(self) -> frozenset[str]:
        """Every data file's relative path, text files included."""
        return frozenset(one.path for f in self.files for one in f.stored)

    @property
    def fit_id(self) -> str | None:
        """The fit that its rows were prepared with."""
        fit = self.document.get("fit")
        return str(fit["fit_id"]) if isinstance(fit, dict) and "fit_id" in fit else None

    @property
    def state_hashes(self) -> Mapping[str, str]:
        """Every file of the fit's saved state → its SHA-256."""
        return hashes_of(self.document)


def integer(value: object, /) -> int:
    """An integer of a document: beyond ±2^53 it is written as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not an integer")
    return int(value)


def _count(value: object) -> None:
    if not 0 <= integer(value) < 1 << 63:
        raise ValueError(f"{value!r} is not a count")


def sequence(value: object, /) -> list[object]:
    """A list of a document."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def sha256_hex(data: bytes, /) -> str:
    """SHA-256 of a document."""
    return hashlib.sha256(data).hexdigest()


def content_sha256(files: Sequence[FileEntry], /) -> str:
    """Hash over (split, rows, sha256) of the files: equal for equal data, whatever the run."""
    return hashlib.sha256(canonical_json([[f.split, f.rows, f.sha256] for f in files])).hexdigest()


def schema_sha256(columns: Sequence[Mapping[str, object]], /) -> str:
    """Hash over name, dtype, nullable, role, tensor and index of all columns."""
    named = [[c.get(k) for k in ("name", "dtype", "nullable", "role", "tensor", "index")] for c in columns]
    return hashlib.sha256(canonical_json(named)).hexdigest()


def names_sha256(names: Sequence[str], /) -> str:
    """Hash of names joined by LF."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def prefix_of(split: str, /) -> str:
    """What the names of a split's files begin with."""
    return "part" if split == "all" else split


def renumbered(files: Sequence[FileEntry], splits: Iterable[str], /) -> tuple[list[FileEntry], dict[str, int]]:
    """Files with the places where their rows begin, split by split, and the rows of every split."""
    ends = dict.fromkeys(splits, 0)
    found: list[FileEntry] = []
    for file in files:
        found.append(replace(file, row_start=ends[file.split]))
        ends[file.split] += file.rows
    return found, ends
