"""Which engine runs a job, and why: said in every plan, never silent."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, cast

from etl.core.errors import ConfigError
from etl.engine.base import EngineChoice

if TYPE_CHECKING:
    from etl.engine.base import Cluster

MAX_READERS = 8
"""Reads at once on one store, whatever the number of workers: more of them slow a server down."""
READERS_PER_WORKER = 2
"""One reads while the other writes."""
REMOTE = ("tcp://", "tls://")


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def readers(workers: int | None) -> int:
    """Reads at once for a wish of `workers`, before the number of parts and the store's limits are known."""
    return min(READERS_PER_WORKER * (workers or max(1, cores() // 2)), MAX_READERS)


def choose(engine: str, /, *, python_rows: bool, parts: int, workers: int | None, at_once: int | None) -> EngineChoice:
    """The engine for `parts` parts of a source.

    Args:
        engine: "auto", "cpu", or the address of a scheduler.
        python_rows: The source makes Python objects per row, so that threads would wait for one another.
        parts: How many parts there are.
        workers: The user's wish; None: by the cores of this machine.
        at_once: The most reads the store bears; None: it does not say.

    Raises:
        ConfigError: No such engine.
    """
    limit = max(1, min(parts, readers(workers), at_once or MAX_READERS))
    if engine.startswith(REMOTE):
        return EngineChoice("cpu", "remote", engine, workers or 0, limit, f"the scheduler at {engine} was asked for")
    if engine not in ("auto", "cpu"):
        raise ConfigError(f"unknown engine {engine!r}", hint="Engines are auto, cpu and tcp://HOST:PORT.")
    asked = "cpu was asked for" if engine == "cpu" else "data passes straight through, so no frames are made"
    if python_rows and limit > 1:
        number = min(limit, workers or cores())
        if number > 1:
            why = f"{asked}; the driver makes Python objects, so parts run in {number} processes"
            return EngineChoice("cpu", "processes", "", number, number, why)
        limit = 1
    return EngineChoice(
        "cpu", "threads", "", 1, limit, f"{asked}; {limit} reader thread{'s' * (limit > 1)} in this process"
    )


def open_cluster(choice: EngineChoice, /) -> Cluster:
    """Start the chosen cluster, or join it.

    Raises:
        EngineError: It cannot be reached, or its workers do not match.
    """
    name = "remote" if choice.kind == "remote" else "local_cpu"
    return cast("Cluster", importlib.import_module(f"etl.engine.clusters.{name}").start(choice))
