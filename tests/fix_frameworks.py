"""The frameworks that tensors are handed to: tests marked `framework(name)` need the package of that name, those marked
`gpu` a CUDA device."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.servers.process import unavailable

NO_FRAMEWORK = "it is not installed in this environment: run 'make test-all'"


@pytest.fixture(autouse=True)
def _frameworks_of_the_test(request: pytest.FixtureRequest) -> None:
    for mark in request.node.iter_markers("framework"):
        for name in mark.args:
            if importlib.util.find_spec(name) is None:
                unavailable(name, NO_FRAMEWORK)
    if request.node.get_closest_marker("gpu") and not list(Path("/dev").glob("nvidia[0-9]*")):
        unavailable("gpu", "this machine has no CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They come last: a process with a framework's threads in it must not be forked, and some tests fork."""
    items.sort(key=lambda item: any(item.iter_markers("framework")))
