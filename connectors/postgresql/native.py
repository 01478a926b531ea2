"""The decoder's compiled loops: which they are, and how they are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etl.core import native

if TYPE_CHECKING:
    from etl.core.native import Native

_HERE = Path(__file__).resolve().parent
LOOPS = native.Loops(
    "decoder",
    "connectors.postgresql.kernel",
    {
        "rows": 2,
        "cells": 4,
        "array_measure": 6,
        "array_fill": 7,
        "numeric_floats": 5,
        "list_measure": 4,
        "list_fill": 8,
        "ranges": 6,
        "attributes": 6,
        "vectors": 7,
        "sparse_measure": 4,
        "sparse_fill": 7,
    },
    (_HERE / "kernel.py", _HERE / "layout.py", native.MACHINE),
)


def load() -> Native:
    """The entry points, from the cache if it holds them whole, else compiled now.

    Raises:
        EtlError: The processor's code can neither be loaded nor compiled.
    """
    return native.load(LOOPS)


def warm() -> Path | None:
    """Compile the loops if their object code is not on disk (seconds).

    Returns:
        The file that holds the code, or None where no folder can be written.
    """
    return native.warm(LOOPS)
