"""The rows of a split for torch's own DataLoader: by index, or as whole batches that its workers share.

Nothing here imports torch: what it needs of a dataset are methods. Both are values that cross to workers, forked or
spawned; each worker opens the files itself.
"""

from __future__ import annotations

import operator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from etl.core.errors import ConfigError
from etl.tensors.batch import Batch
from etl.tensors.frameworks import place, require_torch
from etl.tensors.loader import Loader
from etl.tensors.shards import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

    from etl.tensors.loader import LoaderOptions
    from etl.tensors.shards import Shards

_WORKERS = 1024
"""Places for the epochs that workers count; a loader of more workers is refused."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchRows:
    """A dataset of torch by index (map style): a row is a dict of tensors.

    Attributes:
        shards: The files.
    """

    shards: Shards

    def __len__(self) -> int:
        return self.shards.rows

    def __getitem__(self, at: Any, /) -> dict[str, Any]:
        """The row of an index, each tensor in the shape of a row; of several indices, their rows as one batch.

        A DataLoader with `sampler=BatchSampler(…)` and `batch_size=None` asks for whole batches, which is much faster.

        Raises:
            IndexError: There is no such row.
        """
        # A tensor or array of one index is not an index, although it can be used as one.
        if np.ndim(at) == 0:
            return self.__getitems__([operator.index(at)])[0]
        return dict(self._batch(at))

    def __getitems__(self, indices: Sequence[int], /) -> list[dict[str, Any]]:
        """Rows one by one, as torch's collation wants them: gathered at once, then told apart."""
        batch = self._batch(indices)
        offsets = {tag: batch[f"{tag}.offsets"].tolist() for tag in self.shards.tags}
        rows: list[dict[str, Any]] = []
        for i in range(len(indices)):
            row: dict[str, Any] = {}
            for name, tensor in batch.items():
                tag, _, part = name.rpartition(".")
                if tag not in offsets or part not in {"values", "offsets"}:
                    row[name] = tensor[i]
                elif part == "values":
                    row[name] = tensor[offsets[tag][i] : offsets[tag][i + 1]]
                else:
                    row[name] = tensor[i : i + 2] - tensor[i]
            rows.append(row)
        return rows

    def _batch(self, indices: ArrayLike) -> Batch:
        found = self.shards.take(self.shards.names, row_numbers(indices, len(self)))
        return Batch.of(found, framework="torch", dtypes=self.shards.words)


@dataclass(frozen=True, slots=True, eq=False)
class TorchBatches:
    """A dataset of torch that is iterated: whole batches as dicts of tensors, for `DataLoader(it, batch_size=None)`.

    Batches are those of `Split.loader`, in its order, each once, for any number of workers: worker w of W makes every
    W-th. Each iteration is one epoch and the next one the next epoch, with workers too.

    Attributes:
        shards: The files.
        options: How they are loaded; rank and world size are fixed when this is made, since workers know neither.
        epochs: Shared with the workers: the epoch that each of them, and this process, makes next.
    """

    shards: Shards
    options: LoaderOptions
    epochs: Any = field(repr=False)

    @classmethod
    def of(cls, shards: Shards, options: LoaderOptions, /) -> TorchBatches:
        """The dataset for the rank that this process has now.

        Raises:
            MissingDriver: torch is not installed.
            ConfigError: An option is wrong.
        """
        torch = require_torch()
        rank, world = options.rank, options.world_size
        if rank is None or world is None:
            rank, world = place()
        fixed = replace(options, rank=rank, world_size=world, framework="torch", device=None, as_="dict")
        Loader(shards, fixed)
        # Workers are made anew for each epoch from what this process holds, where nobody iterates: the count of epochs
        # must lie in memory that all of them see, or every epoch would be the first.
        return _known(shards, fixed, torch.zeros(_WORKERS + 1, dtype=torch.int64).share_memory_())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle so that it is known as a dataset of torch wherever it arrives."""
        return _known, (self.shards, self.options, self.epochs)

    def __len__(self) -> int:
        """Batches of one epoch on this rank."""
        return len(Loader(self.shards, self.options))

    def set_epoch(self, epoch: int, /) -> None:
        """Let the next iteration be this epoch.

        Raises:
            ConfigError: It is no whole number from 0.
        """
        loader = Loader(self.shards, self.options)
        loader.set_epoch(epoch)
        self.epochs.fill_(loader.epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = require_torch().utils.data.get_worker_info()
        index, workers, place_ = (0, 1, 0) if worker is None else (worker.id, worker.num_workers, worker.id + 1)
        if workers > _WORKERS:
            raise ConfigError(f"{workers} workers are more than {_WORKERS}", hint="Use fewer, or ds.split(…).loader().")
        # The DataLoader makes batches ahead by itself: a worker needs no threads of ours for it.
        options = self.options if worker is None else replace(self.options, host_prefetch=0, threads=1)
        loader = Loader(self.shards, options)
        loader.set_epoch(int(self.epochs[place_]))
        self.epochs[place_] += 1
        with closing(loader.every(index, workers)) as batches:
            for batch in batches:
                yield dict(batch)


def _known(shards: Shards, options: LoaderOptions, epochs: Any) -> TorchBatches:
    """The dataset, after this process's torch was told what it is."""
    # A DataLoader tells iterated datasets by this class; to inherit from it would want torch at import.
    require_torch().utils.data.IterableDataset.register(TorchBatches)
    return TorchBatches(shards, options, epochs)
