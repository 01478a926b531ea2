"""Ctrl-C in tests: a test run that was started in the background ignores it, and every process it starts would too."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT as a run in a terminal does, so that commands under test meet it as users send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
