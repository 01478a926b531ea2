"""What workers of these tests are asked to do; a module, so that they can load it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
from distributed import Worker, worker_client


def shown(dask_worker: Worker) -> dict[str, Any]:
    """What a worker sees of itself; Dask gives the worker to a parameter of this name."""
    worker = dask_worker
    listening = [c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {
        "pid": os.getpid(),
        "devices": os.environ["CUDA_VISIBLE_DEVICES"],
        "initialized": os.environ["RAPIDS_NO_INITIALIZE"],
        "pinned": os.environ["LIBCUDF_PINNED_POOL_SIZE"],
        "threads": worker.state.nthreads,
        "resources": dict(worker.state.total_resources),
        "cudf": "cudf" in sys.modules,
        "listening": sorted(set(listening)),
    }


def pid(_: object) -> int:
    """Which process runs this."""
    return os.getpid()


def driven(numbers: list[int]) -> int:
    """Sums squares by tasks of its own, each of which needs the device."""
    with worker_client() as client:
        made = client.map(lambda n: n * n, numbers, resources={"GPU": 1}, pure=False)
        return sum(client.gather(made))


def wait_for(path: str) -> str:
    """Ends when the file is there."""
    while not Path(path).exists():
        threading.Event().wait(0.02)
    return path
