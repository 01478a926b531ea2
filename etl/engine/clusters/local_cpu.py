"""A Dask cluster on this host: threads of this process, or worker processes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker

from etl.engine.dask_client import HOLDING, QUIET, DaskCluster, without_main

if TYPE_CHECKING:
    from etl.engine.base import EngineChoice

LOOPBACK = "127.0.0.1:0"
SILENT = {"logging": {"distributed": "critical", "distributed.worker": "critical", "tornado": "critical"}}
"""For worker processes, which set up their own logging: what a user should know comes back as an error."""


def start(choice: EngineChoice, /) -> DaskCluster:
    """Start `choice.workers` workers, on loopback or inside the process only.

    Dask's own `LocalCluster` cannot be told where its HTTP servers listen without loading its dashboard; here they
    have no routes and listen on loopback.
    """
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    processes = choice.kind == "processes"
    place = {"protocol": "tcp://", "host": "127.0.0.1"} if processes else {"protocol": "inproc://"}
    plain = {"dashboard": False, "dashboard_address": LOOPBACK}
    worker = {
        "cls": Nanny if processes else Worker,
        "options": {
            "nthreads": max(1, choice.slots // choice.workers),
            "memory_limit": choice.memory,
            **({"silence_logs": logging.CRITICAL, "config": SILENT} if processes else {}),
            **place,
            **plain,
        },
    }
    with dask.config.set({**QUIET, **HOLDING} if choice.memory else QUIET), without_main():
        cluster = SpecCluster(
            scheduler={"cls": Scheduler, "options": {**place, **plain}},
            workers=dict.fromkeys(range(choice.workers), worker),
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster, set_as_default=False)
        client.wait_for_workers(choice.workers, timeout=60)
    return DaskCluster(client, choice, cluster.close)
