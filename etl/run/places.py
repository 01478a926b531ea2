"""Where something went wrong, and snapshots that nobody else joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.base import Source
    from etl.core.partition import Snapshot


def place(source: Source, message: str = "", /) -> str:
    """What is read and from which connection, which is left out where the message names it itself."""
    name = source.endpoint.name
    named = name == source.title or f"connection {name}" in message or ("://" in name and name in message)
    return source.title if named else f"{source.title}, connection {name}"


def attach_nobody(_: Snapshot) -> None:
    """A plan has no workers, and rows for Python are read here."""
