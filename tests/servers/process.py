"""Private server processes for tests: a free port, an unprivileged user, a deadline, and an end by process id.

A server never is one that the machine already runs: data lie in a temporary folder, it listens on loopback only, and
it dies with the test process (SIGINT from the kernel when the parent is gone), also when that is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SHIPPED = Path(__file__).resolve().parents[2] / ".servers"
"""The environment of servers that come as packages, apart from the product's."""


class ServerError(RuntimeError):
    """A server did not come up or died; the message ends with its log."""


def unavailable(name: str, reason: str) -> NoReturn:
    """Skip for want of a server; a failure when `CUETL_REQUIRE` (names joined by commas) asks for it."""
    required = {word.strip() for word in os.environ.get("CUETL_REQUIRE", "").split(",")}
    if name in required:
        pytest.fail(f"CUETL_REQUIRE names {name}, and {reason}", pytrace=False)
    pytest.skip(f"needs {name}: {reason}")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_user(name: str = "nobody", group: str = "nogroup") -> tuple[str, ...]:
    """The words that go before a command: under root, run it as an unprivileged user; else as we are."""
    if os.getuid() != 0:
        return ()
    return ("setpriv", f"--reuid={name}", f"--regid={group}", "--clear-groups")


@contextlib.contextmanager
def folder(prefix: str, *, user: str = "nobody", group: str = "nogroup") -> Iterator[Path]:
    """A temporary folder (short: Unix sockets lie in it) that the server's user owns; removed at the end."""
    path = Path(tempfile.mkdtemp(prefix=f"cuetl-{prefix}-"))
    try:
        if os.getuid() == 0:
            shutil.chown(path, user, group)
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    """What a server's programs see: no settings of the user's own."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def tell(command: Sequence[str], home: Path, *, user: Sequence[str] = ()) -> str:
    """Run a server's own program to its end and return what it printed.

    Raises:
        ServerError: It failed; its words are in the message.
    """
    done = subprocess.run(
        [*user, *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment(home),
        cwd=home,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Running:
    """A server process that was started here."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, *, first: signal.Signals = signal.SIGINT, seconds: float = 20) -> None:
        """Ask it to end, then insist. May be called twice."""
        if self.process.poll() is None:
            self.process.send_signal(first)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start(
    command: Sequence[str],
    home: Path,
    *,
    user: Sequence[str] = (),
    ready: Callable[[], bool],
    seconds: float = 60,
) -> Running:
    """Start a server and wait until `ready` says so.

    Raises:
        ServerError: It died or was not ready in time; its log is in the message.
    """
    log = home / "server.log"
    # The kernel stops the server when the thread that started it ends: a killed test run leaves nothing behind.
    leash = ("setpriv", *user[1:], "--pdeathsig", "INT") if shutil.which("setpriv") else tuple(user)
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [*leash, *command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment(home),
            cwd=home,
            start_new_session=True,  # Ctrl-C in a terminal reaches pytest alone, which then stops the server itself
        )
    running = Running(process, log)
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    try:
        while not ready():
            if process.poll() is not None:
                raise ServerError(f"{command[0]} ended with {process.returncode}:\n{running.tail()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{command[0]} was not ready after {seconds:.0f} s:\n{running.tail()}")
            pause.wait(0.05)
    except BaseException:
        running.stop()
        raise
    return running
