"""`cuetl doctor`: whether this machine and the connections of `cuetl.toml` are fit for work."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from connectors import base, registry
from etl import settings
from etl.cli import output, process
from etl.core.errors import EtlError
from etl.engine import devices, select

if TYPE_CHECKING:
    from etl.engine.devices import Survey

Verdict: TypeAlias = Literal["ok", "absent", "bad"]

LEAST_DISK = 1 << 30
LEAST_MEMORY = 512 << 20
"""Below these even a small export may end half way."""
LEAST_LINKER = SpecifierSet(">=13.3,<14")
NOT_FOR_USERS = frozenset({"test", "dev"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. "absent" is told and is no fault; "bad" has to be mended."""

    what: str
    verdict: Verdict
    said: str


def doctor(*, as_json: bool, debug: bool, cluster: str | None = None) -> int:
    """Print what was found, of every worker of `cluster` too; 1 when something has to be mended, else 0."""
    process.prepare(None, debug=debug)
    findings = [*_installation(), _decoder(), *_machine(), *_gpu(), *_connections()]
    if cluster is not None:
        findings += _workers(cluster)
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
    """Driver and devices as the driver tells them, and the packages for GPUs; no context is made."""
    found = devices.survey()
    if found.driver:
        cuda = ".".join(str(one) for one in found.cuda)
        out = [Finding("GPU driver", "ok", f"{found.driver}, CUDA up to {cuda}")]
    elif found.fault:
        out = [Finding("GPU driver", "bad", found.fault)]
    else:
        out = [Finding("GPU driver", "absent", "none found; the CPU is used")]
    out += [
        Finding(f"GPU {one.index}", "ok", f"{one.name}, {output.bytes_text(one.memory)}, {one.uuid}")
        for one in found.devices
    ]
    if not found.devices:
        out.append(Finding("GPU", "absent", "none found; the CPU is used"))
    for package, name in (("cudf", "cuDF"), ("dask-cuda", "Dask-CUDA")):
        version = found.version_of(package)
        said = version or "not installed; the CPU engine is used"
        out.append(Finding(name, "ok" if version else "absent", said))
    ucx = found.version_of("distributed-ucxx")
    out.append(Finding("UCX", "ok" if ucx else "absent", ucx or "not installed; GPUs exchange frames over TCP"))
    twice = [name for name, _ in found.packages if name.endswith("-cu12") and _has(found, f"{name[:-1]}3")]
    for name in twice:
        said = (
            f"installed for CUDA 12 and 13 at once, which overwrite each other; run: pip uninstall {name[:-1]}3 {name}"
        )
        out.append(Finding(name[:-5], "bad", f"{said}, and install the one that fits"))
    return [*out, *_linker(found)]


def _has(found: Survey, package: str) -> bool:
    return any(name == package for name, _ in found.packages)


def _linker(found: Survey) -> list[Finding]:
    """For CUDA 13, libcudf needs a newer nvjitlink than torch brings; both load the one that is installed."""
    if not _has(found, "cudf-cu13"):
        return []
    try:
        version = metadata.version("nvidia-nvjitlink")
    except metadata.PackageNotFoundError:
        return []
    fits = LEAST_LINKER.contains(version, prereleases=True)
    said = version if fits else f"{version}, as torch has it, is outside {LEAST_LINKER}, which cuDF needs"
    return [Finding("nvjitlink", "ok" if fits else "bad", said)]


def _workers(address: str) -> list[Finding]:
    """What each worker of a scheduler says of itself, and whether a run would take them."""
    remote: Any = importlib.import_module("etl.engine.clusters.remote")
    probing: Any = importlib.import_module("etl.engine.probe")
    try:
        select.check(address)
        with contextlib.closing(remote.connect(address)) as client:
            answers = remote.answers(client, address)
            out = [
                Finding(
                    f"worker {name}",
                    "ok",
                    f"makes frames with {one.can()}; {one.device or 'no device'}, driver {one.driver or 'none'}, UCX "
                    f"{'yes' if one.ucx else 'no'}; {', '.join(f'{k} {v}' for k, v in one.versions.items())}",
                )
                for name, one in sorted(answers.items())
            ]
            probing.agreed(answers, address)
    except EtlError as error:
        return [Finding(f"cluster {address}", "bad", str(error))]
    return [Finding(f"cluster {address}", "ok", f"{len(out)} workers that are equal"), *out]


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
