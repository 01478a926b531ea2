"""Ring 5: what only a device can show. `make gpu-test` runs it; at most ten minutes.

With cuDF and a device every check runs; with a device and CuPy alone the lower half; without either nothing, which is
said in one line. `CUETL_REQUIRE=gpu` makes anything less than every check a failure. The last line is the README's row.
Exit codes: 0 all that could run passed, 1 something failed or was required and is not here.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

os.environ.setdefault("RAPIDS_NO_INITIALIZE", "1")  # workers take their devices before any context is made

from etl.engine.devices import survey
from tests.device import checks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etl.engine.devices import Survey

BUDGET_S = 540.0
"""No check starts after so many seconds."""


@dataclass(slots=True)
class Outcome:
    """What was found: lines for people, and which checks failed or were not run."""

    lines: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)


def lacking(found: Survey, *, cupy: bool) -> tuple[str, str]:
    """How much can run, "whole", "lower half" or "nothing", and what is missing for the whole."""
    missing = found.missing()
    if not missing:
        return "whole", ""
    if found.driver and found.devices and cupy:
        return "lower half", missing
    return "nothing", missing


def carried_out(
    wanted: Sequence[Callable[[], str]], say: Callable[[str], None], clock: Callable[[], float], budget: float
) -> Outcome:
    """Run checks one after another; each gives a line of figures or raises."""
    outcome, begun = Outcome(), clock()
    for check in wanted:
        name = check.__name__.replace("_", " ")
        started = clock()
        if started - begun > budget:
            outcome.failed.append(name)
            say(f"NOT RUN  {name}: the {budget:.0f} s are over")
            continue
        try:
            figures = check()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a check that fails
            outcome.failed.append(name)
            say(f"FAILED   {name}: {type(error).__name__}: {error}")
            if not isinstance(error, AssertionError):
                say(traceback.format_exc())
            continue
        outcome.passed.append(name)
        say(f"passed   {name}: {figures} ({clock() - started:.1f} s)")
    return outcome


def row(found: Survey, extent: str, outcome: Outcome, day: str) -> str:
    """The README's row of ring 5."""
    device = found.devices[0] if found.devices else None
    machine = f"{device.name}, {device.memory >> 30} GiB, driver {found.driver}" if device else "no GPU"
    names = ("pandas", "pyarrow", "cudf", "dask-cuda")
    versions = ", ".join(f"{name} {said}" for name in names if (said := found.version_of(name) or _version(name)))
    result = "not run" if extent == "nothing" else f"{len(outcome.passed)} passed, {len(outcome.failed)} failed"
    what = f"5 device ({extent})" if extent == "lower half" else "5 device"
    return f"| {what} | {day} | {machine} | Python {platform.python_version()}, {versions} | {result} |"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def ring(
    found: Survey,
    whole: Sequence[Callable[[], str]],
    lower: Sequence[Callable[[], str]],
    say: Callable[[str], None],
    *,
    cupy: bool,
    required: bool,
    only: str = "",
) -> int:
    """Run what can run here; the exit code.

    Args:
        found: What the host has.
        whole, lower: All checks, and those that need no cuDF.
        say: Takes each line.
        cupy: CuPy is installed.
        required: Anything less than every check is a failure.
        only: Checks whose name contains this.
    """
    extent, missing = lacking(found, cupy=cupy)
    if extent == "nothing":
        say(f"ring 5 (device): not run: {missing}.{' CUETL_REQUIRE names gpu.' if required else ''}")
        return 1 if required else 0
    wanted = [one for one in (whole if extent == "whole" else lower) if only in one.__name__.replace("_", " ")]
    outcome = carried_out(wanted, say, time.monotonic, BUDGET_S)
    if missing:
        say(f"only the lower half: {missing}")
    say(row(found, extent, outcome, datetime.now(UTC).date().isoformat()))
    return 1 if outcome.failed or not outcome.passed or (required and extent != "whole") else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what can run; the exit code."""
    parser = argparse.ArgumentParser(prog="make gpu-test", description=__doc__)
    parser.add_argument("--only", default="", help="checks whose name contains this")
    only = parser.parse_args(arguments).only
    required = "gpu" in os.environ.get("CUETL_REQUIRE", "").split(",")
    cupy = bool(_version("cupy-cuda12x") or _version("cupy-cuda13x"))
    return ring(survey(), checks.WHOLE, checks.LOWER, _say, cupy=cupy, required=required, only=only)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
