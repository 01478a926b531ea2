"""An existing Dask scheduler: its workers are compared with this process before they get a task."""

from __future__ import annotations

import logging
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from dask import config
from distributed import Client

from etl.core.errors import EngineError
from etl.engine.dask_client import DaskCluster

if TYPE_CHECKING:
    from etl.engine.base import EngineChoice

COMPARED = ("cuetl", "pyarrow", "numpy", "numba", "llvmlite", "dask", "distributed")
CONNECT_SECONDS = 10


def versions() -> dict[str, str]:
    """What must be equal between this process and every worker."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def start(choice: EngineChoice, /) -> DaskCluster:
    """Join the scheduler at `choice.address`.

    Raises:
        EngineError: No scheduler there, no workers, or a worker whose versions differ; it is named.
    """
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with config.set({"distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s"}):
            client = Client(choice.address, set_as_default=False, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answered at {choice.address} within {CONNECT_SECONDS} s",
            hint="Check the address, or leave --engine out to run on this machine.",
        ) from error
    try:
        _compare(client, choice.address)
    except BaseException:
        client.close()
        raise
    return DaskCluster(client, choice, _leave_running)


def _leave_running() -> None:
    """The scheduler is somebody else's."""


def _compare(client: Client, address: str) -> None:
    try:
        found: dict[str, dict[str, str]] = client.run(versions)
    except Exception as error:
        raise EngineError(
            f"the workers of {address} could not be asked for their versions: {error}",
            hint="Install the same cuetl there.",
        ) from error
    if not found:
        raise EngineError(f"the scheduler at {address} has no workers", hint="Start workers, then run again.")
    mine = versions()
    for worker, theirs in sorted(found.items()):
        differing = [name for name in mine if theirs.get(name, "none") != mine[name]]
        if differing:
            has, have = (", ".join(f"{name} {one.get(name, 'none')}" for name in differing) for one in (theirs, mine))
            raise EngineError(
                f"worker {worker} of {address} has {has}; this process has {have}",
                hint="Install equal versions on all workers.",
            )
