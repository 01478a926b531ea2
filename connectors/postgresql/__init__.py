"""PostgreSQL: binary COPY in parallel parts of one exported snapshot."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.base import Connector

    CONNECTOR: Connector

__all__ = ["CONNECTOR"]


def __getattr__(name: str) -> Connector:
    """`CONNECTOR`, loaded when asked for: the decoder is used and tested without a driver."""
    if name == "CONNECTOR":
        found: Connector = importlib.import_module("connectors.postgresql.connector").CONNECTOR
        return found
    raise AttributeError(name)
