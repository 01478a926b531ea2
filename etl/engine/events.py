"""What a running task tells the run process, through the worker that it runs in."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "cuetl-progress"


def teller(topic: str, /) -> Callable[[int, int], None]:
    """From a task's own thread: a function that tells the client of more rows and bytes, from any thread of the task.

    Dask is imported here, not with this module: whoever describes a task needs none, and in a worker it is loaded.
    """
    worker = importlib.import_module("distributed").get_worker()

    def tell(rows: int, count: int) -> None:
        worker.log_event(TOPIC, (topic, rows, count))

    return tell
