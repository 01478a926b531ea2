"""A training script in small: what torch's DataLoader gives over a dataset, as JSON. Run as a process of its own, since
workers are forked, which a process with other frameworks' threads in it must not be."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from etl.tensors.dataset import open_dataset


def epochs(job: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Batches by epoch: each tensor as a list."""
    split = open_dataset(job["path"]).split(job.get("split", "all"))
    if job["kind"] == "iterable":
        data = split.torch_iterable(job["batch_size"], **job.get("options", {}))
        assert isinstance(data, torch.utils.data.IterableDataset)
        loader: Any = DataLoader(
            data, batch_size=None, num_workers=job["workers"], multiprocessing_context=job.get("context"),
            persistent_workers=job.get("persistent", False))  # fmt: skip
        assert len(loader) == len(data)
        if "set_epoch" in job:
            data.set_epoch(job["set_epoch"])
    else:
        rows = split.torch_dataset()
        assert len(rows) == len(split)
        sampler = None
        if "rank" in job:
            sampler = DistributedSampler(rows, job["world"], job["rank"], shuffle=False)
        if job["kind"] == "batches":
            order = RandomSampler(rows, generator=torch.Generator().manual_seed(1))
            loader = DataLoader(rows, sampler=BatchSampler(order, job["batch_size"], drop_last=False), batch_size=None,
                                num_workers=job["workers"])  # fmt: skip
        else:
            loader = DataLoader(rows, batch_size=job["batch_size"], sampler=sampler, num_workers=job["workers"])
    found = []
    for _ in range(job.get("epochs", 1)):
        batches = list(itertools.islice(loader, job.get("stop")))
        assert all(isinstance(value, torch.Tensor) for batch in batches for value in batch.values())
        found.append([{name: value.tolist() for name, value in batch.items()} for batch in batches])
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps([epochs(job) for job in json.loads(sys.argv[1])]))
