"""What a process can do, told by itself: each worker is asked once, and the answers are compared."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from etl.core.errors import EngineError
from etl.engine import devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.engine.base import BackendName

COMPARED = ("cuetl", "pandas", "pyarrow", "numpy", "numba", "llvmlite", "dask", "distributed")


@dataclass(frozen=True, slots=True)
class Answer:
    """Versions that must be equal everywhere, and what is there for GPUs.

    Attributes:
        versions: Of Python and of each package of `COMPARED`; "none" where it is not installed.
        cudf: Its version; "" if it is not installed.
        device: Name of the first device that the process sees; "" if there is none.
        driver: Version of the NVIDIA driver; "" if there is none.
        ucx: Whether Dask can speak UCX there.
    """

    versions: Mapping[str, str]
    cudf: str
    device: str
    driver: str
    ucx: bool

    def can(self) -> str:
        """What this process makes frames with, in words; equal for workers that can do the same."""
        return f"cuDF {self.cudf} on a GPU" if self.backend() == "cudf" else "pandas"

    def backend(self) -> BackendName:
        """What frames can be made of there."""
        return "cudf" if self.cudf and self.device else "pandas"


def probe() -> Answer:
    """This process's answer."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in COMPARED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    found = devices.survey()
    device = found.devices[0].name if found.devices else ""
    return Answer(versions, found.version_of("cudf"), device, found.driver, devices.ucx())


def agreed(answers: Mapping[str, Answer], address: str, /) -> Answer:
    """What all workers can do, after each was compared with this process and with the others.

    Args:
        answers: Worker's address to its answer.
        address: Of the scheduler, for errors.

    Raises:
        EngineError: No workers; one whose versions differ from this process, or that cannot do what the others can;
            it is named.
    """
    if not answers:
        raise EngineError(f"the scheduler at {address} has no workers", hint="Start workers, then run again.")
    mine = probe().versions
    for worker, answer in sorted(answers.items()):
        theirs = answer.versions
        differing = [name for name in mine if theirs.get(name, "none") != mine[name]]
        if differing:
            has, have = (", ".join(f"{name} {one.get(name, 'none')}" for name in differing) for one in (theirs, mine))
            raise EngineError(
                f"worker {worker} of {address} has {has}; this process has {have}",
                hint="Install equal versions on all workers.",
            )
    first, *others = sorted(answers)
    for worker in others:
        one, other = answers[first], answers[worker]
        if one.can() != other.can():
            raise EngineError(
                f"the workers of {address} differ: {first} makes frames with {one.can()}, {worker} with {other.can()}",
                hint="Run workers of one kind, or one scheduler for each kind.",
            )
    return answers[first]
