"""What a run is called."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_run_id() -> str:
    """A name for a run: UTC time to the second, then 6 random hex digits, so that names sort by start."""
    now = datetime.now(UTC)  # noqa: TID251 - a run is named by the moment it is asked for
    return f"{now:%Y%m%d%H%M%S}{secrets.token_hex(3)}"
