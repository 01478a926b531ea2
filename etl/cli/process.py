"""What a command does to its own process: quiet logs, and no password left in the process list."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from pathlib import Path

from etl import logs
from etl.core import secrets
from etl.core.urls import looks_like_url, parse_url

ARG_START, ARG_END = 47, 48
"""Fields of /proc/self/stat, counted from 0: where the arguments of the process lie (proc_pid_stat(5))."""

INTERRUPTED = 130
LAST_RESORT_SECONDS = 30.0
"""Longer than a run takes to stop its parts and close its cluster in good order (10 s each)."""


def prepare(source: str | None, /, *, debug: bool) -> None:
    """Send logs and warnings through the redactor, and hide a password that was typed as part of `source`.

    Raises:
        ConfigError: `source` is a malformed URL.
    """
    logs.install(sys.stderr, debug=debug)
    end_after_interrupt()
    if source is None or not looks_like_url(source):
        return
    password = source.partition("://")[2].rpartition("@")[0].partition(":")[2]
    hidden = [hide_argument(one) for one in (password, *_in_query(source)) if one]
    given = parse_url(source).password
    if given is None or secrets.is_reference(given):
        return
    seen = "was in the process list at the start" if all(hidden) else "is in the process list"
    sys.stderr.write(f"cuetl: warning: the password in the URL {seen}; use a connection of cuetl.toml instead\n")


def end_after_interrupt(seconds: float = LAST_RESORT_SECONDS, /) -> None:
    """Hold that Ctrl-C and SIGTERM end this process, even when its main thread is inside a call that cannot be stopped.

    Python runs signal handlers between two steps of the main thread; a driver in one long call makes no steps. The
    next run cleans what is left, as after any crash.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_last_resort, args=(reading, seconds), name="cuetl-signals", daemon=True).start()


def _last_resort(reading: int, seconds: float) -> None:
    while os.read(reading, 1)[0] not in (signal.SIGINT, signal.SIGTERM):
        pass
    select.select([], [], [], seconds)
    os.write(2, b"cuetl: interrupted: nothing was published, but the store did not stop in time.\n")
    os._exit(INTERRUPTED)


def hide_argument(text: str, /) -> bool:
    """Overwrite a text in this process's argument list with `*`; False where the system has no such list to write to.

    Linux keeps the arguments in the process's own memory, where `ps` reads them from.
    """
    needle = text.encode(errors="surrogateescape")
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces; the next field is number 2
        start, end = int(fields[ARG_START - 2]), int(fields[ARG_END - 2])
    except (OSError, ValueError, IndexError):
        return False
    if not needle or not 0 < end - start < 1 << 24:
        return False
    held = ctypes.string_at(start, end - start)
    at = held.find(needle)
    while at >= 0:
        ctypes.memset(start + at, ord("*"), len(needle))
        at = held.find(needle, at + len(needle))
    return needle not in ctypes.string_at(start, end - start)


def _in_query(source: str) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(ValueError):
        for pair in source.partition("?")[2].split("&"):
            name, _, value = pair.partition("=")
            if name == "password":
                found.append(value)
    return found
