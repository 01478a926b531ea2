"""A Dask cluster on this host: threads of this process, or worker processes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dask
from distributed import Client, LocalCluster

from etl.engine.dask_client import QUIET, DaskCluster

if TYPE_CHECKING:
    from etl.engine.base import EngineChoice


def start(choice: EngineChoice, /) -> DaskCluster:
    """Start `choice.workers` workers; without a dashboard, on loopback or inside the process only."""
    processes = choice.kind == "processes"
    with dask.config.set(QUIET):
        cluster = LocalCluster(
            n_workers=choice.workers,
            threads_per_worker=max(1, choice.slots // choice.workers),
            processes=processes,
            protocol="tcp://" if processes else "inproc://",
            host="127.0.0.1" if processes else None,
            dashboard_address=None,
            worker_dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster, set_as_default=False)
    return DaskCluster(client, choice, cluster.close)
