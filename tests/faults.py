"""The real command while a test does something to it: started, watched on the server, signalled, waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.command import COMMAND, Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

READERS = "application_name like 'cuetl:%' and state = 'active' and query like 'copy%'"
"""Sessions that read a part now."""


@dataclass(frozen=True, slots=True)
class Command:
    """A `cuetl` that runs, in a process group of its own."""

    process: subprocess.Popen[str]

    def send(self, number: signal.Signals) -> None:
        """Signal the process alone, as `kill` does."""
        self.process.send_signal(number)

    def done(self, seconds: float = 120) -> Done:
        """How it ended."""
        out, err = self.process.communicate(timeout=seconds)
        return Done(self.process.returncode, out, err)

    def left(self) -> list[str]:
        """Processes of its group that still run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 0)
            listed = subprocess.run(
                ["ps", "-o", "pid=,stat=,args=", "-g", str(self.process.pid)],
                capture_output=True,
                text=True,
                check=False,
            )
            return [line for line in listed.stdout.splitlines() if " Z" not in line]
        return []


@contextlib.contextmanager
def running(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Command]:
    """Start the command; whatever is left of its process group at the end is killed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUETL_", "PG"))}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env={**clean, "PYTHONPATH": "", **(env or {})},
        start_new_session=True,
    )
    try:
        yield Command(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(happens: Callable[[], Any], seconds: float = 30) -> Any:
    """What `happens` gives as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = happens()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing of it within {seconds:g} s")


def sessions(db: PostgresDatabase, where: str = "application_name like 'cuetl%'") -> list[tuple[Any, ...]]:
    """Sessions of runs in this database: process, state, query."""
    return db.sql(f"select pid, state, query from pg_stat_activity where datname = '{db.name}' and {where}")


def end(db: PostgresDatabase, where: str) -> int:
    """Terminate sessions of this database; how many there were."""
    return len(
        db.sql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{db.name}' and {where}")
    )


@contextlib.contextmanager
def meanwhile(does: Callable[[], object], pause: float = 0.05) -> Iterator[None]:
    """Do something again and again until the end of the block."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(pause):
            does()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def manifest(dataset: Path) -> dict[str, Any]:
    """The manifest of the version that readers see."""
    found = json.loads((dataset / "_manifest.json").read_bytes())
    assert isinstance(found, dict)
    return found


def leftovers(folder: Path) -> list[str]:
    """Stages and datasets that lie in a folder."""
    return sorted(p.name for p in folder.iterdir())
