"""A dataset opened at one version: what it holds, whether its files are what the manifest says, its arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.tensors.contract import require
from etl.tensors.encode import reading
from etl.tensors.manifest import Manifest, integer, sequence
from etl.tensors.page import fragment, page
from etl.tensors.places import Place, place_of
from etl.tensors.reading import Split
from etl.tensors.shards import Shards
from etl.tensors.showing import UNSAID, one_line
from etl.tensors.verify import check, opened_whole
from etl.tensors.versions import history, located

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from etl.tensors.batch import Batch
    from etl.tensors.frameworks import Framework
    from etl.tensors.loader import As, Loader, Mode
    from etl.tensors.places import Target
    from etl.tensors.shards import Io
    from etl.tensors.showing import Prepared
    from etl.tensors.verify import Verify


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version of a dataset, pinned when it was opened; a later publish does not change it.

    Attributes:
        place: The folder, or the place in another storage.
        manifest: The version's manifest.
    """

    place: Target
    manifest: Manifest
    told: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    """Splits of which it was said that absent values are 0."""
    _opened: dict[str, Shards] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return self.manifest.rows

    @property
    def path(self) -> Path:
        """The folder.

        Raises:
            ConfigError: The dataset lies in another storage.
        """
        if isinstance(self.place, Place):
            raise ConfigError(
                f"{self.place} is no local folder", hint="Dataset.locate(FILE) gives a file's local copy."
            )
        return self.place

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
                f"{self.place} has no split {name}", hint=nearest(name, self.splits, what="splits"), split=name
            )
        return Split(self, name)

    def arrays(self, *, framework: Framework | None = None, device: str | None = None) -> tuple[Any, Any]:
        """X and y where there is one split, as `Split.arrays`.

        Raises:
            ConfigError: There are several: name one with `split`, so that nobody trains on test rows by accident.
        """
        return self._only("arrays()").arrays(framework=framework, device=device)

    def tensors(self, *, framework: Framework | None = None, device: str | None = None) -> Batch:
        """All tensors where there is one split, as `Split.tensors`.

        Raises:
            ConfigError: There are several: name one with `split`.
        """
        return self._only("tensors()").tensors(framework=framework, device=device)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The Parquet rows, or the text beside tensors, where there is one split, as `Split.table`.

        Raises:
            ConfigError: There are several: name one with `split`.
        """
        return self._only("table()").table(columns)

    def loader(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        device: str | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        mode: Mode = "train",
        framework: Framework | None = None,
        as_: As = "dict",
        columns: Sequence[str] | None = None,
        host_prefetch: int = 4,
        device_prefetch: int = 2,
        threads: int = 4,
        io: Io = "auto",
        window_rows: int | None = None,
    ) -> Loader:
        """Batches where there is one split, as `Split.loader`.

        Raises:
            ConfigError: There are several: name one with `split`.
        """
        return self._only("loader(…)").loader(
            batch_size,
            shuffle=shuffle,
            seed=seed,
            device=device,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            mode=mode,
            framework=framework,
            as_=as_,
            columns=columns,
            host_prefetch=host_prefetch,
            device_prefetch=device_prefetch,
            threads=threads,
            io=io,
            window_rows=window_rows,
        )

    def _only(self, asked: str) -> Split:
        if len(self.splits) != 1:
            raise ConfigError(
                f"{self.place} has the splits {', '.join(self.splits)}", hint=f"Name one: ds.split(name).{asked}."
            )
        return Split(self, self.splits[0])

    def shards(self, split: str, /) -> Shards:
        """The files of a split, opened when asked for and kept open.

        Raises:
            ConfigError: The dataset holds no tensors.
            Damaged: The first file is not what the manifest says.
        """
        found = self._opened.get(split)
        if found is None:
            found = self._opened.setdefault(split, Shards(self.place, self.manifest, split))
        return found

    def locate(self, path: str, /) -> Path:
        """Where a file of this version lies now: in its place, or retired since.

        Raises:
            FileNotFoundError: In neither.
        """
        return located(self.place, path)

    def require(self, *, feature_order_sha256: str | None = None, fit_id: str | None = None) -> None:
        """Hold that a model that was made with this feature order and this fit can be given these rows.

        Raises:
            SchemaError: They are others; missing, extra and moved features are named.
        """
        require(self.place, self.manifest, feature_order_sha256=feature_order_sha256, fit_id=fit_id)

    def verify(self, level: Verify = "sha256", /) -> None:
        """Hold that the files are what the manifest says.

        "size": every file is there and has its size. "sha256": also its hash, its header or footer against the
        manifest, sums of rows, the chain to the parent version, and that no other data file lies among them.

        Every file is read, whatever is known of it from before.

        Raises:
            Damaged: Names every bad file with both hashes.
        """
        check(self.place, self.manifest, level)

    def history(self) -> list[Manifest]:
        """This version and the ones that it was made from, the newest first.

        Raises:
            Damaged: A manifest of the chain is missing or cannot be read.
        """
        return history(self.place, self.manifest)

    def page(self, prepared: Prepared = UNSAID, /) -> str:
        """The version as one self-contained HTML page: columns with plots, splits, lineage, versions, files.

        Args:
            prepared: Its fit in words.

        Raises:
            Damaged: A manifest of an older version is missing or cannot be read.
        """
        return page(self.place, self.manifest, self.history(), prepared)

    def __repr__(self) -> str:
        return f"<Dataset {self.place}, version {self.manifest.version}: {one_line(self.manifest)}>"

    def _repr_html_(self) -> str:
        """What notebooks show: the page without its head."""
        return fragment(self.place, self.manifest, [self.manifest])

    def summary(self) -> dict[str, object]:
        """What `cuetl dataset show` prints, as JSON values."""
        document = self.manifest.document
        keys = ("format", "version", "dataset_id", "operation", "created_at", "rows", "bytes", "parent")
        return {
            "path": str(self.place),
            **{k: document.get(k) for k in keys},
            "splits": dict(self.manifest.splits),
            "files": len(self.manifest.files),
            "layout": document.get("layout"),
            "split": document.get("split"),
            "fit": document.get("fit"),
            "tensors": document.get("tensors"),
            "columns": [_column_summary(c, self.manifest.rows) for c in self.columns],
            **({"given": document["given"]} if "given" in document else {}),
            "source": document.get("source"),
            "snapshots": document.get("snapshots"),
            "partitions": len(sequence(document.get("partitions", []))),
            "content_sha256": document.get("content_sha256"),
            "warnings": document.get("warnings"),
            **({"reading": reading(self.manifest, self.place)} if self.manifest.format == "tfrecord" else {}),
        }


def _column_summary(column: Mapping[str, object], rows: int) -> dict[str, object]:
    null = column.get("null")
    count = integer(null["count"]) if isinstance(null, dict) else 0
    kept = ("name", "role", "kind", "dtype", "shape", "tensor", "index", "nullable", "arrow_type", "source_type")
    return {**{k: column.get(k) for k in kept}, "nulls": count, "null_share": count / rows if rows else 0.0}


def open_dataset(
    path: str | os.PathLike[str] | Place, /, version: int | None = None, verify: Verify = "size"
) -> Dataset:
    """Open a dataset: one file is read, and with "size" each file's size is looked at.

    Args:
        path: The folder, or a URL. Files of another storage than this machine's folders are fetched once, when they
            are first asked for, into `$CUETL_CACHE` (else `~/.cache/cuetl`), and mapped there.
        version: An older version; None: the current one.
        verify: "none", "size" or "sha256", see `Dataset.verify`. A file that this process has hashed before is not
            read again while it is the same file with the same size and time of change.

    Raises:
        ConfigError: The words are wrong, or it is an unknown storage.
        DatasetError: There is no dataset, no such version, or a vacuum took its data.
        Damaged: Files are missing or changed.
    """
    if verify not in ("none", "size", "sha256"):
        raise ConfigError(f"unknown verify {verify!r}", hint="Use none, size or sha256.")
    folder = place_of(path)
    return Dataset(folder, opened_whole(folder, version, verify))
