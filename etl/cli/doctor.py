"""`cuetl doctor`: whether this machine and the connections of `cuetl.toml` are fit for work."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

import psutil
from packaging.requirements import Requirement

from connectors import base, registry
from etl import settings
from etl.cli import output, process
from etl.core.errors import EtlError

Verdict: TypeAlias = Literal["ok", "absent", "bad"]

LEAST_DISK = 1 << 30
LEAST_MEMORY = 512 << 20
"""Below these even a small export may end half way."""
GPU_FILES = Path("/proc/driver/nvidia/gpus")
NOT_FOR_USERS = frozenset({"test", "dev"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. "absent" is told and is no fault; "bad" has to be mended."""

    what: str
    verdict: Verdict
    said: str


def doctor(*, as_json: bool, debug: bool) -> int:
    """Print what was found; 1 when something has to be mended, else 0."""
    process.prepare(None, debug=debug)
    findings = [*_installation(), _decoder(), *_machine(), *_gpu(), *_connections()]
    bad = sum(one.verdict == "bad" for one in findings)
    if as_json:
        output.emit_json({"status": "bad" if bad else "ok", "findings": [asdict(one) for one in findings]})
    else:
        output.table(("", "what", "found"), [(one.verdict, one.what, one.said) for one in findings])
        for one in findings:
            if one.verdict == "bad":
                output.note(f"{one.what}: {one.said}")
    return 1 if bad else 0


def _installation() -> list[Finding]:
    distribution = metadata.distribution("cuetl")
    wanted = Requirement(f"python{distribution.metadata['Requires-Python']}").specifier
    python = platform.python_version()
    found = [
        Finding("cuetl", "ok", distribution.version),
        Finding("Python", "ok" if wanted.contains(python, prereleases=True) else "bad", f"{python} (needs {wanted})"),
    ]
    if getattr(base, "CONTRACT", None) != 1:
        said = "another distribution of that name hides cuETL's; run: pip uninstall connectors"
        found.append(Finding("connectors", "bad", said))
    for line in distribution.requires or ():
        need = Requirement(line)
        if need.name == "cuetl":
            continue
        extras = [e for e in distribution.metadata.get_all("Provides-Extra", []) if e not in NOT_FOR_USERS]
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            found.append(_package(need, None))
        else:
            of = next((e for e in extras if need.marker.evaluate({"extra": e})), None)
            if of is not None:
                found.append(_package(need, of))
    return found


def _package(need: Requirement, extra: str | None) -> Finding:
    try:
        version = metadata.version(need.name)
    except metadata.PackageNotFoundError:
        if extra is None:
            return Finding(need.name, "bad", f"not installed (needs {need.specifier or 'any version'})")
        return Finding(need.name, "absent", f"not installed; it comes with: pip install 'cuetl[{extra}]'")
    fits = need.specifier.contains(version, prereleases=True)
    return Finding(need.name, "ok" if fits else "bad", version if fits else f"{version} is outside {need.specifier}")


def _decoder() -> Finding:
    """PostgreSQL's decoder, the loops of statistics and of shuffling, compiled now if they are not on disk yet."""
    begun = time.monotonic()
    try:
        # By name: without its compiler the command must still say what is missing.
        native: Any = importlib.import_module("etl.core.native")
        loops = importlib.import_module("connectors.postgresql.native").LOOPS
        path, fresh = native.warm(loops), native.load(loops).compiled
        for name in ("running", "shuffling"):
            importlib.import_module(f"etl.tensors.{name}").loaded(compiling=True)
    except (ImportError, EtlError) as error:
        return Finding("decoder", "bad", f"cannot be compiled: {error}")
    if path is None:
        tried = " and ".join(str(one) for one in native.folders(loops))
        return Finding("decoder", "absent", f"not kept, so that every start compiles it: {tried} cannot be written to")
    return Finding("decoder", "ok", f"compiled now in {time.monotonic() - begun:.1f} s" if fresh else "compiled")


def _machine() -> list[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    memory = psutil.virtual_memory().available
    return [
        Finding("cores", "ok", str(len(os.sched_getaffinity(0)))),
        Finding("memory", "ok" if memory >= LEAST_MEMORY else "bad", f"{output.bytes_text(memory)} available"),
        Finding("disk", "ok" if free >= LEAST_DISK else "bad", f"{output.bytes_text(free)} free in {Path.cwd()}"),
    ]


def _gpu() -> list[Finding]:
    devices = len(list(GPU_FILES.iterdir())) if GPU_FILES.is_dir() else 0
    gpu = (
        Finding("GPU", "ok", f"{devices} found") if devices else Finding("GPU", "absent", "none found; the CPU is used")
    )
    if importlib.util.find_spec("cudf") is None:
        return [gpu, Finding("cuDF", "absent", "not installed; the CPU engine is used")]
    return [gpu, Finding("cuDF", "ok", "installed")]


def _connections() -> list[Finding]:
    try:
        at = settings.settings()
    except EtlError as error:
        return [Finding(settings.FILE, "bad", str(error))]
    if at.path is None:
        return [Finding(settings.FILE, "absent", f"no {at.looked}; `cuetl init` makes one")]
    found = [Finding(settings.FILE, "ok", f"{at.path}")]
    for name in at.connections:
        try:
            endpoint = settings.endpoint(name, at=at)
            said = registry.connector(endpoint.scheme).server(endpoint)
        except EtlError as error:
            found.append(Finding(f"connection {name}", "bad", str(error)))
        else:
            found.append(Finding(f"connection {name}", "ok", said))
    return found
