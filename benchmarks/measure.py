"""One command as a whole process tree: wall seconds, CPU seconds and peak memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTERVAL = 0.05
"""Seconds between two looks at memory: reading it holds the process's memory lock for about a millisecond."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost. `cpu` counts the process and all that it waited for; the database server is not in it.

    `peak_mib` is the largest sum over the process tree of proportional set sizes (shared pages counted once), looked at
    every `INTERVAL`. (The kernel's own maximum, ru_maxrss, also counts this process before the command replaces it.)
    """

    wall: float
    cpu: float
    peak_mib: float


class RunFailedError(RuntimeError):
    """The command ended with an error; its last words."""


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it ended between two looks
    return found


def _memory_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(command: Sequence[str], *, env: Mapping[str, str], seconds: float) -> Cost:
    """Run a command to its end.

    Raises:
        RunFailedError: It ended with an error or took longer than `seconds`.
    """
    with tempfile.TemporaryFile() as said:
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **env}
        )
        done, peak = threading.Event(), 0

        def watch() -> None:
            nonlocal peak
            while not done.wait(INTERVAL):
                peak = max(peak, sum(map(_memory_kib, _tree(process.pid))))
                if time.monotonic() - start > seconds:
                    process.kill()

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        if process.returncode:
            said.seek(0)
            words = said.read()[-1500:].decode(errors="replace")
            raise RunFailedError(f"{' '.join(command)}: exit {process.returncode} after {wall:.0f} s: {words}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak / 1024)
