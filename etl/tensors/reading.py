"""The rows of one split, read whole, by index or by slice, as arrays of NumPy or of a framework, or as a table."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.core.errors import ConfigError, Damaged
from etl.tensors.batch import Batch
from etl.tensors.frameworks import framework_of, require_torch
from etl.tensors.loader import Loader, LoaderOptions
from etl.tensors.manifest import integer
from etl.tensors.page import split_fragment
from etl.tensors.shards import MOST_OPEN, row_numbers
from etl.tensors.showing import counted
from etl.tensors.torch_data import TorchBatches, TorchRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from etl.tensors.dataset import Dataset
    from etl.tensors.frameworks import Framework
    from etl.tensors.loader import As, Mode
    from etl.tensors.manifest import FileEntry
    from etl.tensors.shards import Io, Shards


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of one split.

    Every way in gives the same names and dtypes, whatever the values, rows and NULLs. Absent values are 0, and
    `<name>.valid` says which are present. A ragged list is `<tag>.values` [N] and `<tag>.offsets` [rows + 1] int64.

    Attributes:
        dataset: The dataset it is of.
        name: Its name; "all" where the dataset is not split.
    """

    dataset: Dataset
    name: str

    def __len__(self) -> int:
        return self.dataset.manifest.splits[self.name]

    def __getitem__(self, at: int | slice, /) -> Batch:
        """One row, each tensor in the shape of a row, or the rows of a slice, as NumPy arrays that the caller owns.

        Raises:
            IndexError: There is no such row.
            TypeError: It is neither a number nor a slice.
            ConfigError: The dataset holds no tensors.
            Damaged: A file is not what the manifest says.
        """
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return self._batch(self.shards.run(self.shards.names, start, max(start, stop)))
            return self.take(np.arange(start, stop, step))
        try:
            row = range(len(self))[at]
        except TypeError:
            raise TypeError(
                f"rows are named by a number or a slice, not by {at!r}: tensors()[name] is a tensor, take(indices) are "
                "several rows"
            ) from None
        except IndexError:
            raise IndexError(f"there is no row {at} among {len(self)}") from None
        shards = self.shards
        found = shards.run(shards.names, row, row + 1)
        lists = {f"{tag}.{part}" for tag in shards.tags for part in ("values", "offsets")}
        return self._batch({name: a if name in lists else a[0, ...] for name, a in found.items()})

    def __repr__(self) -> str:
        dataset = self.dataset
        return (
            f"<Split {self.name} of {dataset.place}, version {dataset.manifest.version}: {counted(len(self), 'row')}>"
        )

    def _repr_html_(self) -> str:
        """What notebooks show: the columns and their values in this split."""
        return split_fragment(self.dataset.place, self.dataset.manifest, self.name)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Its files in row order."""
        return tuple(f for f in self.dataset.manifest.files if f.split == self.name)

    @property
    def shards(self) -> Shards:
        """Its files, opened when asked for.

        Raises:
            ConfigError: The dataset holds no tensors.
            Damaged: The first file is not what the manifest says.
        """
        return self.dataset.shards(self.name)

    def take(self, indices: ArrayLike, /, *, framework: Framework | None = None, device: str | None = None) -> Batch:
        """The rows of these indices, in this order and as often as they are named; negative ones count from the end.

        Args:
            indices: Integers [N].
            framework: "numpy", "torch", "jax", "tensorflow" or "cupy"; None: NumPy without a device, torch with one.
            device: In the framework's words.

        Raises:
            IndexError: There is no such row.
            ConfigError: The indices are no integers, or as `tensors`.
            Damaged: A file is not what the manifest says.
        """
        rows = row_numbers(indices, len(self))
        return self._batch(self.shards.take(self.shards.names, rows), framework, device)

    def tensors(self, *, framework: Framework | None = None, device: str | None = None) -> Batch:
        """All tensors by name.

        A split of one file is mapped copy-on-write: nothing but the lengths of lists is read before it is looked at;
        several files are joined in memory. In NumPy, bfloat16 is `ml_dtypes.bfloat16` where that package is installed,
        else uint16 bits: `dtypes` of the result says what it is.

        Args:
            framework: "numpy", "torch", "jax", "tensorflow" or "cupy"; None: NumPy without a device, torch with one.
            device: In the framework's words.

        Raises:
            ConfigError: The dataset holds no tensors, or there is no such framework or device.
            MissingDriver: The framework is not installed.
            CastError: JAX without x64, and a value that 32 bits do not hold exactly.
            Damaged: A file is not what the manifest says.
        """
        return self._batch(self._whole(self.shards.names), framework, device)

    def arrays(self, *, framework: Framework | None = None, device: str | None = None) -> tuple[Any, Any]:
        """X and y of a packed dataset; y is None without a target.

        Absent values are 0 in them: a warning, once, names `tensors`, which has the masks.

        Raises:
            ConfigError: The dataset is not packed, and as `tensors`.
            MissingDriver, CastError, Damaged: As `tensors`.
        """
        names = self.shards.names
        if "x" not in names:
            raise ConfigError(
                f"{self.dataset.place} has no matrix x",
                hint="Export it with --features, or take the columns from tensors().",
            )
        framework_of(framework, device)
        self._warn_of_absent()
        found = self._batch(self._whole([n for n in ("x", "y") if n in names]), framework, device)
        return found["x"], found.get("y")

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a Parquet dataset, or the text columns that lie beside the tensors, row by row as they do.

        Args:
            columns: Names in the order wanted; None: all.

        Raises:
            ConfigError: There is no such column, or no text beside the tensors.
            Damaged: A file is missing.
        """
        dataset = self.dataset
        if dataset.manifest.format == "parquet":
            paths = [f.path for f in self.files]
        else:
            paths = [f.text_file.path for f in self.files if f.text_file is not None]
            if not paths:
                raise ConfigError(
                    f"{dataset.place} has no text beside its tensors", hint="Take the tensors: tensors(), loader()."
                )
        try:
            tables = [pq.ParquetFile(dataset.locate(path)).read() for path in paths]
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise Damaged(f"{dataset.place}: {error}", hint="Verify the dataset.", path=str(dataset.place)) from error
        if not tables:
            raise Damaged(f"{dataset.place} lists no file of the split {self.name}", path=str(dataset.place))
        whole = pa.concat_tables(tables)
        missing = [n for n in columns or () if n not in whole.column_names]
        if missing:
            raise ConfigError(
                f"{dataset.place} has no column {missing[0]} in its table",
                hint=f"It has {', '.join(whole.column_names)}.",
                column=missing[0],
            )
        return whole if columns is None else whole.select(list(columns))

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
        """Batches for training or evaluation, as `LoaderOptions` says of each argument.

        Raises:
            ConfigError: An argument is wrong, or the dataset holds no tensors.
            MissingDriver: The framework is not installed.
            Damaged: The first file is missing or not what the manifest says.
        """
        options = LoaderOptions(
            batch_size=batch_size,
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
        return Loader(self.shards, options)

    def torch_dataset(self) -> TorchRows:
        """The rows by index, for torch's DataLoader and its samplers (which share them among ranks).

        A row is a dict of tensors in the shape of a row; several indices give their rows as one batch.

        Raises:
            MissingDriver: torch is not installed.
            ConfigError, Damaged: As `tensors`.
        """
        require_torch()
        # Files of its own: a lock that a thread holds while workers are forked would stay locked in them.
        return TorchRows(replace(self.shards))

    def torch_iterable(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        mode: Mode = "train",
        columns: Sequence[str] | None = None,
        io: Io = "auto",
        window_rows: int | None = None,
    ) -> TorchBatches:
        """Whole batches for `torch.utils.data.DataLoader(it, batch_size=None, num_workers=…)`.

        They are the batches of `loader` on this rank, each once and in its order, for any number of workers. Without
        a need for torch's DataLoader, `loader(framework="torch")` does the same with threads and copies less.

        Raises:
            MissingDriver: torch is not installed.
            ConfigError, Damaged: As `loader`.
        """
        options = LoaderOptions(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            mode=mode,
            columns=columns,
            io=io,
            window_rows=window_rows,
        )
        return TorchBatches.of(self.shards, options)

    def _whole(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        shards = self.shards
        if len(self.files) > 1 or len(self.files[0].stored) > MOST_OPEN:
            return shards.run(names, 0, len(self))
        # Maps of their own: what a caller writes into them is seen by nobody else.
        return replace(shards).mapped(names)

    def _batch(
        self, arrays: dict[str, NDArray[Any]], framework: Framework | None = None, device: str | None = None
    ) -> Batch:
        return Batch.of(arrays, framework=framework, device=device, dtypes=self.shards.words)

    def _warn_of_absent(self) -> None:
        absent = sum(_absent(c, self.name) for c in self.dataset.columns if c.get("tensor") in {"x", "y"})
        if absent and self.name not in self.dataset.told:
            self.dataset.told.add(self.name)
            warnings.warn(
                f"{self.dataset.place}: {absent} absent values of {self.name} are 0 in arrays(); tensors() has their "
                "masks x.valid and y.valid",
                stacklevel=3,
            )


def _absent(column: object, split: str) -> int:
    """Absent values of a column in the split; in the whole dataset where the manifest does not count by split."""
    if not isinstance(column, dict):
        return 0
    stats, null = column.get("stats"), column.get("null")
    if not isinstance(null, dict) or null.get("valid_tensor") is None:
        return 0  # none can be absent, or a chosen value stands for them
    counted = stats.get(split) if isinstance(stats, dict) else None
    if isinstance(counted, dict) and counted.get("null") is not None:
        return integer(counted["null"])
    return integer(null["count"])
