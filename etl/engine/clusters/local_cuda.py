"""A Dask-CUDA cluster on this host: one worker process for each GPU.

dask-cuda hands keywords that it does not know on to the worker's process and dies of them there, while its constructor
returns as if all were well. So every option is a field here, checked before anything starts, and the cluster counts
as started when each worker has answered.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, Nanny
from distributed.worker_memory import parse_memory_limit

from etl.core.errors import ConfigError, EngineError
from etl.engine import devices
from etl.engine.dask_client import QUIET, DaskCluster, without_main
from etl.engine.device import warm_up
from etl.engine.probe import agreed, probe
from etl.engine.select import FETCHERS_PER_GPU
from etl.settings import Engine, settings

if TYPE_CHECKING:
    from distributed import SpecCluster

    from etl.engine.base import EngineChoice
    from etl.engine.devices import Survey

READY_SECONDS = 60
LOOPBACK = "127.0.0.1"
POOL_FRACTION = 0.8
"""Of the device, taken at once for UCX, which maps one allocation once."""
MOST_FRACTION = 0.9
"""Of the device, for the asynchronous allocator: leaves room for the context, UCX and torch."""
PROTOCOLS = ("tcp", "ucx")
LEGACY = {
    "jit-unspill": "DASK_JIT_UNSPILL was removed from dask-cuda in 26.06; cuDF spills by itself",
    "explicit-comms": "explicit-comms was removed from dask-cuda in 26.06; shuffles are Dask's own",
    "distributed.comm.ucx": "distributed.comm.ucx is the configuration of UCX-Py; write distributed-ucxx",
}
"""Keys of Dask's configuration that somebody may still have, and why a run with them would not do what they say."""
WORKER_ENVIRONMENT = {
    "RAPIDS_NO_INITIALIZE": "1",
    "LIBCUDF_PINNED_POOL_SIZE": str(256 << 20),
    "KVIKIO_COMPAT_MODE": "AUTO",
    "KVIKIO_NTHREADS": "16",
    "DASK_LOGGING__DISTRIBUTED": "critical",
    "DASK_LOGGING__DASK_CUDA": "critical",
}
"""Given to a worker before its process starts: importing cuDF makes no context, cuDF's readers have a pinned pool,
local files may go straight to the device, and what a user should know comes back as an error, not on the terminal. A
variable that the user has set stays as it is."""

_UUID = re.compile(r"(GPU|MIG)-\S+")


@dataclass(frozen=True, slots=True)
class Options:
    """What LocalCUDACluster is given; its other arguments stay as they are by default.

    Attributes:
        devices: One worker each: indices or UUIDs.
        threads_per_worker: One thread talks to the device, the others fetch.
        protocol: "tcp", or "ucx" where workers exchange frames.
        rmm_async: The driver's pool, which does not fragment. Not with `rmm_pool_size`.
        rmm_maximum_pool_size: The most that the allocator gives.
        rmm_pool_size: A pool taken at once, for UCX.
        rmm_allocator_external_lib_list: Libraries that take their device memory from the same allocator.
        enable_cudf_spill: cuDF moves what it does not use to the host.
        device_memory_limit: Where Dask spills results; counts for whole-data graphs only.
        memory_limit: Host memory of a worker.
        pre_import: What a worker imports before its first task.
        enable_tcp_over_ucx: None: UCX finds out; so for the next three.
        enable_infiniband: As above.
        enable_nvlink: As above.
        enable_rdmacm: As above.
        local_directory: Where workers keep files.
    """

    devices: tuple[int | str, ...]
    threads_per_worker: int = FETCHERS_PER_GPU
    protocol: str = "tcp"
    rmm_async: bool = True
    rmm_maximum_pool_size: float | str | None = MOST_FRACTION
    rmm_pool_size: float | str | None = None
    rmm_allocator_external_lib_list: tuple[str, ...] = ("cupy",)
    enable_cudf_spill: bool = True
    device_memory_limit: float | str | None = "default"
    memory_limit: float | str = "auto"
    pre_import: tuple[str, ...] = ("cudf",)
    enable_tcp_over_ucx: bool | None = None
    enable_infiniband: bool | None = None
    enable_nvlink: bool | None = None
    enable_rdmacm: bool | None = None
    local_directory: str | None = None

    def keywords(self) -> dict[str, Any]:
        """The arguments of LocalCUDACluster, and of the LocalCluster below it: nothing else may be among them."""
        return {
            "CUDA_VISIBLE_DEVICES": list(self.devices),
            "threads_per_worker": self.threads_per_worker,
            "protocol": self.protocol,
            "rmm_async": self.rmm_async,
            "rmm_maximum_pool_size": self.rmm_maximum_pool_size,
            "rmm_pool_size": self.rmm_pool_size,
            "rmm_allocator_external_lib_list": list(self.rmm_allocator_external_lib_list),
            "rmm_managed_memory": False,
            "rmm_track_allocations": False,
            "enable_cudf_spill": self.enable_cudf_spill,
            "cudf_spill_stats": int(self.enable_cudf_spill),
            "device_memory_limit": self.device_memory_limit,
            "memory_limit": self.memory_limit,
            "pre_import": ",".join(self.pre_import),
            "enable_tcp_over_ucx": self.enable_tcp_over_ucx,
            "enable_infiniband": self.enable_infiniband,
            "enable_nvlink": self.enable_nvlink,
            "enable_rdmacm": self.enable_rdmacm,
            "local_directory": self.local_directory,
            # Of LocalCluster: nothing listens beyond this host, and nobody draws a dashboard.
            "host": LOOPBACK,
            "resources": {"GPU": 1, "DRIVER": 1},
            "dashboard_address": None,
            "scheduler_kwargs": {"dashboard_address": f"{LOOPBACK}:0"},
            "silence_logs": logging.CRITICAL,
        }


def options(choice: EngineChoice, wanted: Engine, found: Survey, /) -> Options:
    """The options of a cluster, from what was chosen, what the settings say and what was found on this host.

    Raises:
        ConfigError: Options that exclude one another, a device that is not there, or UCX where it cannot be; each with
            its reason. Nothing was started.
    """
    ucx = wanted.protocol == "ucx" or (wanted.protocol is None and _pays(choice, wanted))
    _check_transport(wanted, ucx=ucx)
    _check_memory(wanted, ucx=ucx)
    used = _devices(choice.workers, wanted, found)
    unified = any(not one.memory for one in found.devices)
    if unified and wanted.device_memory_limit not in (None, "default"):
        raise _refused("device_memory_limit", "a device here has no memory of its own", "Leave it out.")
    torch = ("torch",) if importlib.util.find_spec("torch") is not None else ()
    pool = wanted.rmm_pool_size if wanted.rmm_pool_size is not None else POOL_FRACTION if ucx else None
    most = wanted.rmm_maximum_pool_size if wanted.rmm_maximum_pool_size is not None else MOST_FRACTION
    return Options(
        devices=used,
        threads_per_worker=wanted.threads_per_worker or FETCHERS_PER_GPU,
        protocol="ucx" if ucx else "tcp",
        rmm_async=pool is None,
        rmm_maximum_pool_size=most,
        rmm_pool_size=pool,
        rmm_allocator_external_lib_list=("cupy", *torch),
        enable_cudf_spill=not unified,
        device_memory_limit="default" if wanted.device_memory_limit is None else wanted.device_memory_limit,
        memory_limit="auto" if wanted.memory_limit is None else wanted.memory_limit,
        pre_import=("cudf", *torch),
        enable_tcp_over_ucx=wanted.enable_tcp_over_ucx,
        enable_infiniband=wanted.enable_infiniband,
        enable_nvlink=wanted.enable_nvlink,
        enable_rdmacm=wanted.enable_rdmacm,
        local_directory=wanted.local_directory,
    )


def host_memory(wanted: float | str | None, workers: int, /) -> int | None:
    """Bytes that a worker may take, as Dask-CUDA understands the setting; None: no limit.

    Args:
        wanted: `memory_limit` of the settings; None: all of the host, shared evenly.
        workers: On this host.
    """
    asked = "auto" if wanted is None else wanted
    found: int | None = parse_memory_limit(asked, 1, workers, logger=logging.getLogger(__name__))
    return found


def _pays(choice: EngineChoice, wanted: Engine) -> bool:
    """Whether UCX is taken unasked: several devices exchange frames, and nothing that was set speaks against it."""
    free = not wanted.require_tls and not wanted.rmm_async
    return choice.exchange and choice.workers > 1 and free and devices.ucx()


def _refused(key: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"[engine] {key} is refused: {why}", hint=hint)


def _check_transport(wanted: Engine, *, ucx: bool) -> None:
    if wanted.protocol not in (None, *PROTOCOLS):
        raise _refused("protocol", f"{wanted.protocol!r} is unknown", 'It is "tcp" or "ucx".')
    if ucx and wanted.require_tls:
        raise _refused("protocol", "UCX is not encrypted, and require_tls is set", 'Leave one of them out: "tcp".')
    if ucx and not devices.ucx():
        raise _refused("protocol", "distributed-ucxx is not installed", "Install distributed-ucxx-cu12 or -cu13.")
    for key in ("enable_tcp_over_ucx", "enable_infiniband", "enable_nvlink", "enable_rdmacm"):
        if getattr(wanted, key) and not ucx:
            raise _refused(key, 'it is a transport of UCX, and protocol is "tcp"', 'Add protocol = "ucx".')
    if wanted.enable_rdmacm and wanted.enable_infiniband is False:
        raise _refused("enable_rdmacm", "it manages InfiniBand, which is switched off", "Leave one of them out.")


def _check_memory(wanted: Engine, *, ucx: bool) -> None:
    if wanted.rmm_pool_size is not None and wanted.rmm_async:
        raise _refused("rmm_pool_size", "it excludes rmm_async, which has a pool of its own", "Leave one of them out.")
    if ucx and wanted.rmm_async:
        raise _refused("rmm_async", "UCX needs one allocation taken at once", "Leave it out, or give rmm_pool_size.")
    if wanted.rmm_async is False and wanted.rmm_pool_size is None and not ucx:
        raise _refused(
            "rmm_async",
            "without it and without rmm_pool_size, every small allocation stops the device",
            "Give rmm_pool_size, or leave it out.",
        )
    for key in ("rmm_pool_size", "rmm_maximum_pool_size", "device_memory_limit"):
        value = getattr(wanted, key)
        if isinstance(value, (int, float)) and (value < 0 or (isinstance(value, float) and value > 1)):
            raise _refused(key, f"{value} is no part of a device", 'Give a fraction up to 1.0, or "70 GB".')
    pool, most = wanted.rmm_pool_size, wanted.rmm_maximum_pool_size
    if isinstance(pool, float) and isinstance(most, float) and pool > most:
        raise _refused("rmm_pool_size", f"{pool} is more than rmm_maximum_pool_size, {most}", "Give a smaller one.")


def _devices(workers: int, wanted: Engine, found: Survey) -> tuple[int | str, ...]:
    listed = wanted.devices or tuple(str(one.index) for one in found.devices)
    if not 0 < workers <= len(listed):
        raise ConfigError(
            f"{workers} workers were asked for, one for each GPU, and {len(listed)} can be used",
            hint="See devices in [engine] of cuetl.toml, and `cuetl doctor`.",
        )
    for one in listed:
        if not one.isdecimal() and not _UUID.fullmatch(one):
            raise _refused("devices", f"{one!r} is neither an index nor a UUID", 'Write [0, 1] or ["GPU-…"].')
        if one.isdecimal() and found.devices and int(one) >= len(found.devices):
            raise _refused("devices", f"there is no device {one}", f"There are {len(found.devices)}, from 0.")
    return tuple(int(one) if one.isdecimal() else one for one in listed[:workers])


def start(choice: EngineChoice, /) -> DaskCluster:
    """Start one worker for each of the first `choice.workers` devices, and wait until each has done its first work.

    Raises:
        ConfigError: As `options`, or Dask's configuration holds what dask-cuda no longer knows.
        EngineError: A worker did not come up, or cannot work; the first error it met is told.
    """
    for key, why in LEGACY.items():
        if dask.config.get(key, None):
            raise ConfigError(f"Dask's configuration has {key}: {why}", hint="Remove it, from the environment too.")
    if dask.config.get("dataframe.query-planning", None) is False:
        raise ConfigError(
            "Dask's configuration has dataframe.query-planning False: Dask has the other planner only",
            hint="Remove it, from the environment too.",
        )
    chosen = options(choice, settings().engine, devices.survey())
    # Before anything imports cuDF: a context made here would put all workers on one device.
    os.environ.setdefault("RAPIDS_NO_INITIALIZE", "1")  # noqa: TID251 # written for libraries, not read
    for name in ("distributed", "tornado", "asyncio", "dask_cuda"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    environment = {**dask.config.get("distributed.nanny.pre-spawn-environ", {}), **WORKER_ENVIRONMENT}
    with dask.config.set({**QUIET, "distributed.nanny.pre-spawn-environ": environment}):
        cluster = _made(chosen)
        client: Client | None = None
        try:
            client = Client(cluster, set_as_default=False)
            _ready(client, cluster, choice)
        except BaseException:
            if client is not None:
                client.close()
            cluster.close()
            raise
    return DaskCluster(client, choice, cluster.close)


def _made(chosen: Options) -> SpecCluster:
    try:
        from dask_cuda import LocalCUDACluster  # noqa: PLC0415 # of the extra for GPUs, where they are asked for
    except ImportError as error:
        raise ConfigError(
            f"engine gpu cannot run: dask-cuda cannot be loaded: {error}",
            hint="Install cuetl[gpu-cu12] or cuetl[gpu-cu13]; `cuetl doctor` shows what is there.",
        ) from error
    try:
        with without_main():
            return LocalCUDACluster(**chosen.keywords())
    except Exception as error:
        raise EngineError(
            f"the Dask-CUDA cluster could not start: {_words(error)}", hint="`cuetl doctor` shows what is there."
        ) from error


def _ready(client: Client, cluster: SpecCluster, choice: EngineChoice) -> None:
    """Hear every worker, compare what it has, and let it touch its device for the first time."""
    _raise_failed(cluster)
    try:
        client.wait_for_workers(choice.workers, timeout=READY_SECONDS)
    except TimeoutError as error:
        _raise_failed(cluster)
        here = len(client.scheduler_info()["workers"])
        raise EngineError(
            f"{here} of {choice.workers} GPU workers reported within {READY_SECONDS} s",
            hint="`cuetl doctor` shows the devices; see that no other process fills their memory.",
        ) from error
    answers = client.run(probe, on_error="return")
    _raise_first(answers, "did not answer")
    agreed(answers, "this host")
    if choice.backend == "cudf":
        _raise_first(client.run(warm_up, on_error="return"), "cannot work on its device")


def _raise_failed(cluster: SpecCluster) -> None:
    for name, worker in cluster.workers.items():
        if isinstance(worker, Nanny) and worker.status.name == "failed":
            try:
                cluster.sync(worker.start)  # a failed one only tells why
            except Exception as error:
                raise EngineError(
                    f"the worker of GPU {name} did not start: {_words(error)}",
                    hint="`cuetl doctor` shows what is there.",
                ) from error


def _raise_first(answers: dict[str, object], what: str) -> None:
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, BaseException):
            raise EngineError(
                f"GPU worker {worker} {what}: {_words(answer)}", hint="`cuetl doctor` shows what is there."
            ) from answer


def _words(error: BaseException) -> str:
    """The first line of what went wrong at the root of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
