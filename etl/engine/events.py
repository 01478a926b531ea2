"""What a running task tells the run process, through the worker that it runs in."""

from __future__ import annotations

import importlib

TOPIC = "cuetl-progress"


def tell(topic: str, rows: int, count: int, /) -> None:
    """From inside a task: report progress to the client.

    Dask is imported here, not with this module: whoever describes a task needs none, and in a worker it is loaded.
    """
    importlib.import_module("distributed").get_worker().log_event(TOPIC, (topic, rows, count))
