"""Tests marked `gpuwheels` need cuDF's wheels, which the environment .gpu has; neither a device nor a driver."""

from __future__ import annotations

import importlib.util

import pytest

from tests.servers.process import unavailable


@pytest.fixture(autouse=True)
def _wheels_of_the_test(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpuwheels") and importlib.util.find_spec("cudf") is None:
        unavailable("gpuwheels", "cuDF is not installed in this environment: run 'make test-heavy'")
