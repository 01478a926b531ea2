"""An existing Dask scheduler: its workers are compared with this process before they get a task."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from dask import config
from distributed import Client, Security

from etl.core.errors import ConfigError, EngineError
from etl.engine import devices
from etl.engine.dask_client import DaskCluster
from etl.engine.probe import Answer, agreed, probe
from etl.settings import settings

if TYPE_CHECKING:
    from etl.engine.base import EngineChoice
    from etl.settings import Engine

CONNECT_SECONDS = 10


def start(choice: EngineChoice, /) -> DaskCluster:
    """Join the scheduler at `choice.address`. The cluster's own `choice` says what its workers make frames of.

    Raises:
        ConfigError: The address asks for what the settings forbid, or for a transport that is not installed.
        EngineError: No scheduler there, no workers, or workers that differ from this process or from one another; the
            worker is named.
    """
    client = connect(choice.address)
    try:
        found = agreed(answers(client, choice.address), choice.address)
    except BaseException:
        client.close()
        raise
    made = found.backend()
    name = "gpu" if made == "cudf" else "cpu"
    why = f"{choice.why}; its workers make frames with {found.can()}"
    return DaskCluster(client, replace(choice, name=name, backend=made, why=why), _leave_running)


def connect(address: str, /) -> Client:
    """A client of the scheduler at this address.

    Raises:
        ConfigError: As `security`.
        EngineError: Nothing answers there.
    """
    secured = security(address, settings().engine)
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with config.set({"distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s"}):
            return Client(address, set_as_default=False, timeout=CONNECT_SECONDS, security=secured)
    except (OSError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answered at {address} within {CONNECT_SECONDS} s",
            hint="Check the address, or leave --engine out to run on this machine.",
        ) from error


def security(address: str, wanted: Engine, /) -> Security | None:
    """Certificates for a `tls://` address; None for one without TLS.

    Raises:
        ConfigError: TLS is required and the address has none, its files are not said, or UCX is not installed.
    """
    scheme = address.partition("://")[0]
    if wanted.require_tls and scheme != "tls":
        told = "UCX is not encrypted" if scheme == "ucx" else "that address is not encrypted"
        raise ConfigError(
            f"{address} is refused: [engine] require_tls is set, and {told}", hint="Give a tls:// address."
        )
    if scheme == "ucx" and not devices.ucx():
        raise ConfigError(
            f"{address} needs distributed-ucxx in this process, which is not installed",
            hint="Install distributed-ucxx-cu12 or -cu13, as the workers have it, or give a tcp:// address.",
        )
    if scheme != "tls":
        return None
    files = {
        "tls_ca_file": wanted.tls_ca_file,
        "tls_client_cert": wanted.tls_client_cert,
        "tls_client_key": wanted.tls_client_key,
    }
    lacking = [name for name, path in files.items() if not path]
    if lacking:
        raise ConfigError(
            f"{address} needs {' and '.join(lacking)} in [engine] of cuetl.toml",
            hint="The scheduler's own authority, and a certificate of it for this client with its key.",
        )
    return Security(**files, require_encryption=True)


def answers(client: Client, address: str, /) -> dict[str, Answer]:
    """What each worker says of itself: one question each.

    Raises:
        EngineError: A worker cannot answer.
    """
    try:
        found: dict[str, Answer] = client.run(probe)
    except Exception as error:
        raise EngineError(
            f"the workers of {address} could not be asked for their versions: {error}",
            hint="Install the same cuetl there.",
        ) from error
    return found


def _leave_running() -> None:
    """The scheduler is somebody else's."""
