"""cuETL: one consistent snapshot of a store, read in parallel, published as tensors or Parquet in one atomic step."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl import testing
    from etl.api import pipeline, read_sql
    from etl.core import errors
    from etl.core.errors import Retry
    from etl.engine import frames
    from etl.planning.endpoints import SQL, Parquet, Read, Tensors
    from etl.planning.schedule import after, cron, every
    from etl.tensors.dataset import open_dataset
    from etl.tensors.difference import diff
    from etl.tensors.drift import Limits
    from etl.transforms import checks
    from etl.transforms.serving import load_preprocessor

__version__ = "0.1.0.dev0"

__all__ = [
    "SQL",
    "Limits",
    "Parquet",
    "Read",
    "Retry",
    "Tensors",
    "after",
    "checks",
    "cron",
    "diff",
    "errors",
    "every",
    "frames",
    "load_preprocessor",
    "open_dataset",
    "pipeline",
    "read_sql",
    "testing",
]

_DOOR = {
    "Limits": ("etl.tensors.drift", "Limits"),
    "SQL": ("etl.planning.endpoints", "SQL"),
    "Parquet": ("etl.planning.endpoints", "Parquet"),
    "Read": ("etl.planning.endpoints", "Read"),
    "Retry": ("etl.core.errors", "Retry"),
    "Tensors": ("etl.planning.endpoints", "Tensors"),
    "after": ("etl.planning.schedule", "after"),
    "checks": ("etl.transforms.checks", None),
    "cron": ("etl.planning.schedule", "cron"),
    "diff": ("etl.tensors.difference", "diff"),
    "errors": ("etl.core.errors", None),
    "every": ("etl.planning.schedule", "every"),
    "frames": ("etl.engine.frames", None),
    "load_preprocessor": ("etl.transforms.serving", "load_preprocessor"),
    "open_dataset": ("etl.tensors.dataset", "open_dataset"),
    "pipeline": ("etl.api", "pipeline"),
    "read_sql": ("etl.api", "read_sql"),
    "testing": ("etl.testing", None),
}
"""Public name → its module and its name there (None: the module itself), imported when first asked for."""


def __getattr__(name: str) -> object:
    """The public names, each from its module, so that `import etl` starts nothing.

    Raises:
        AttributeError: There is no such public name.
    """
    if name not in _DOOR:
        raise AttributeError(f"module 'etl' has no attribute {name!r}")
    module_name, inner = _DOOR[name]
    module = importlib.import_module(module_name)
    found: object = module if inner is None else getattr(module, inner)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names and those Python adds."""
    return sorted({*globals(), *__all__})
