"""Which engine runs a job, and why: said in every plan, never silent."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from etl.core.errors import ConfigError
from etl.engine import devices
from etl.engine.base import EngineChoice
from etl.engine.host_memory import borne
from etl.settings import settings

if TYPE_CHECKING:
    from etl.engine.base import BackendName, Cluster

WORTH_PROCESSES = 1 << 30
"""Arrow data below which frames are made by threads of the run process. A process takes two seconds of CPU until it has
its libraries, as much as a function of columns takes for half a GB, and columns are worked on outside of Python's lock;
a function that works row by row in Python asks for processes by a number of workers."""
MAX_READERS = 8
"""Reads at once on one store, whatever the number of workers: more of them slow a server down."""
READERS_PER_WORKER = 2
"""One reads while the other writes."""
FETCHERS_PER_GPU = 4
"""Threads of a GPU worker: one talks to the device, the others fetch. One connection would starve it."""
LEAST_GPU_BYTES = 256 << 20
"""Below this `auto` stays on the CPU: starting the cluster and the first kernels cost seconds. An estimate."""
REMOTE = ("tcp://", "tls://", "ucx://")
NAMES = ("auto", "cpu", "gpu")
ENGINES = "auto, cpu, gpu, tcp://HOST:PORT, tls://HOST:PORT and ucx://HOST:PORT"

_ADDRESS = re.compile(r"(?:tcp|tls|ucx)://[^/\s]+:\d{1,5}/?", re.ASCII)


def check(engine: str, /) -> None:
    """Whether such an engine exists, before anything is asked of it.

    Raises:
        ConfigError: It does not.
    """
    if engine not in NAMES and not _ADDRESS.fullmatch(engine):
        raise ConfigError(f"unknown engine {engine!r}", hint=f"Engines are {ENGINES}.")


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def readers(workers: int | None) -> int:
    """Reads at once for a wish of `workers`, before the number of parts and the store's limits are known."""
    return min(READERS_PER_WORKER * (workers or max(1, cores() // 2)), MAX_READERS)


def choose(
    engine: str,
    /,
    *,
    python_rows: bool,
    parts: int,
    workers: int | None,
    at_once: int | None,
    frames: bool = False,
    input_bytes: int | None = None,
    here: bool = False,
    without_cudf: str = "",
    exchange: bool = False,
    part_bytes: int = 0,
) -> EngineChoice:
    """The engine for `parts` parts of a source.

    Args:
        engine: "auto", "cpu", "gpu", or the address of a scheduler.
        python_rows: The source makes Python objects per row, so that threads would wait for one another.
        parts: How many parts there are.
        workers: The user's wish; None: by the cores of this machine. For "gpu": how many GPUs.
        at_once: The most reads the store bears; None: it does not say.
        frames: A function works on each part as a frame; its Python, too, would make threads wait.
        input_bytes: An estimate of all that is read; None: not known, which counts as large.
        here: The function is known to this process only (it has no file), so parts run in its threads.
        without_cudf: A built-in step that has no form in cuDF; "": none.
        exchange: Workers hand frames to one another, as in a function over whole data.
        part_bytes: An estimate of the largest part; 0: not known. Host memory of GPU workers bears so many at once.

    Raises:
        ConfigError: No such engine, or "gpu" where something for it is missing.
    """
    check(engine)
    limit = max(1, min(parts, readers(workers), at_once or MAX_READERS))
    if engine.startswith(REMOTE):
        if here:
            raise ConfigError(
                f"the workers of {engine} cannot load a function that has no file",
                hint="Write the pipeline in a file, or run it with engine auto.",
            )
        return EngineChoice("cpu", "remote", engine, workers or 0, limit, f"the scheduler at {engine} was asked for")
    if engine == "gpu":
        why = "gpu was asked for"
        chosen = _gpus(why, workers, parts, at_once, part_bytes, frames=frames, here=here, without_cudf=without_cudf)
        return replace(chosen, exchange=exchange)
    why = "cpu was asked for" if engine == "cpu" else "data passes straight through, so no frames are made"
    if engine == "auto" and frames:
        why = _why_cpu(input_bytes, here=here, without_cudf=without_cudf)
        if not why:
            known = "of unknown size" if input_bytes is None else f"of about {input_bytes >> 20} MiB"
            why = f"cuDF and a device are here and the input is {known}"
            return replace(_gpus(why, workers, parts, at_once, part_bytes, frames=True), exchange=exchange)
    if frames and not python_rows and workers is None and input_bytes is not None and input_bytes < WORTH_PROCESSES:
        size = f"{input_bytes >> 20} MiB" if input_bytes >> 20 else f"{input_bytes >> 10} KiB"
        return _cpu(
            f"{why}; about {size} are made into frames sooner by threads than processes start", limit, 1, rows=False
        )
    return _cpu(why, limit, workers, rows=python_rows, frames=frames, here=here)


def _cpu(
    why: str, limit: int, workers: int | None, *, rows: bool, frames: bool = False, here: bool = False
) -> EngineChoice:
    """Threads of this process, or processes where Python works on rows or frames."""
    if here and frames:
        why = f"{why}; the function has no file, so only this process can run it"
    elif (rows or frames) and limit > 1:
        number = min(limit, workers or cores())
        if number > 1:
            of = "the driver makes Python objects" if rows else "frames are Python's work"
            return EngineChoice(
                "cpu", "processes", "", number, number, f"{why}; {of}, so parts run in {number} processes"
            )
        limit = 1
    return EngineChoice(
        "cpu", "threads", "", 1, limit, f"{why}; {limit} reader thread{'s' * (limit > 1)} in this process"
    )


def _why_cpu(input_bytes: int | None, *, here: bool, without_cudf: str) -> str:
    """The first reason for which `auto` makes frames on the CPU; "" if there is none."""
    lacking = devices.survey().missing()
    if lacking:
        return f"frames are pandas': {lacking}"
    if here:
        return "frames are pandas': the function has no file, so GPU workers cannot load it"
    if input_bytes is not None and input_bytes < LEAST_GPU_BYTES:
        return f"frames are pandas': the input is about {input_bytes >> 20} MiB, under {LEAST_GPU_BYTES >> 20} MiB"
    return f"frames are pandas': {without_cudf} has no form in cuDF" if without_cudf else ""


def _gpus(
    why: str,
    workers: int | None,
    parts: int,
    at_once: int | None,
    part_bytes: int,
    *,
    frames: bool,
    here: bool = False,
    without_cudf: str = "",
) -> EngineChoice:
    found = devices.survey()
    lacking = found.missing()
    if here:
        lacking = "the function has no file, so GPU workers cannot load it"
    if without_cudf:
        lacking = f"{without_cudf} has no form in cuDF"
    if lacking:
        raise ConfigError(
            f"engine gpu cannot run: {lacking}", hint="`cuetl doctor` shows all; --engine cpu needs no GPU."
        )
    wanted = settings().engine
    listed = wanted.devices or tuple(str(one.index) for one in found.devices)
    if workers is not None and workers > len(listed):
        raise ConfigError(
            f"{workers} workers were asked for, one for each GPU, and {len(listed)} can be used",
            hint="Ask for fewer, or see devices in [engine] of cuetl.toml.",
        )
    number = workers or len(listed)
    slots = max(1, min(parts, FETCHERS_PER_GPU * number, at_once or MAX_READERS))
    held = ""
    if part_bytes:
        # Dask is imported for this, which a run on GPUs needs anyway.
        cuda = importlib.import_module("etl.engine.clusters.local_cuda")
        slots, held = borne(slots, number, part_bytes, cuda.host_memory(wanted.memory_limit, number))
    made: BackendName = "cudf" if frames else "pandas"
    text = f"{why}; {number} GPU{'s' * (number > 1)}, {slots} part{'s' * (slots > 1)} at once"
    text += f"; {held}" if held else ""
    return EngineChoice("gpu", "cuda", "", number, slots, text, made)


def open_cluster(choice: EngineChoice, /) -> Cluster:
    """Start the chosen cluster, or join it.

    Raises:
        EngineError: It cannot be reached, or its workers do not match.
    """
    name = {"remote": "remote", "cuda": "local_cuda"}.get(choice.kind, "local_cpu")
    return cast("Cluster", importlib.import_module(f"etl.engine.clusters.{name}").start(choice))
