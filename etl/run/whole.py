"""Pipelines of whole data: sources to spool files, a function over collections, its result to a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from etl.planning.binding import Bound
    from etl.run.progress import Progress
    from etl.run.result import RunResult


def run(bound: Bound, /, *, run_id: str, engine: str, workers: int | None, progress: Progress | None) -> RunResult:
    """Carry the three passes out."""
    del run_id, engine, workers, progress
    raise _unbuilt(bound)


def plan(bound: Bound, /, *, engine: str, workers: int | None) -> dict[str, object]:
    """What `--plan` shows."""
    del engine, workers
    raise _unbuilt(bound)


def _unbuilt(bound: Bound) -> ConfigError:
    return ConfigError(f"pipeline {bound.pipeline.name} works on whole data, which is not built yet")
