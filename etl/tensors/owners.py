"""Whose a stage, a journal or a lock is, and whether that process still lives."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FOREIGN_SECONDS = 86_400
"""What belongs to a process of another machine is a dead one's when nothing was heard of it for this long."""


def owner() -> dict[str, object]:
    """This process, as its marks name it."""
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(mark: Mapping[str, object], /) -> bool:
    """Whether the process of a mark `{"owner": …, "at": seconds}` is gone; of another machine: by its age alone."""
    found, at = mark.get("owner"), mark.get("at")
    return owner_is_dead(found if isinstance(found, dict) else {}, float(at) if isinstance(at, int) else 0.0)


def owner_is_dead(found: Mapping[str, object], heard: float, /) -> bool:
    """Whether a process is gone.

    Args:
        found: As `owner` gave it; whatever else is taken for a process of another machine.
        heard: When something was last heard of it, in seconds since 1970.
    """
    try:
        host, pid, started = str(found["host"]), int(str(found["pid"])), str(found["started"])
    except (KeyError, ValueError):
        host, pid, started = "", 0, ""
    if host != _host():
        return time.time() - heard > FOREIGN_SECONDS
    if Path("/proc/self/stat").exists():
        return _started(pid) != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _host() -> str:
    """This machine, boot and process namespace: within it a process id means one process."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - not a path
    return " ".join(parts)


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" when it is gone or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]
