"""Tests marked `gpuwheels` need cuDF's wheels, which the environment .gpu has; neither a device nor a driver."""

from __future__ import annotations

import importlib.util
from importlib import metadata

import pytest

from tests.servers.process import unavailable


@pytest.fixture(autouse=True)
def _wheels_of_the_test(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpuwheels") and importlib.util.find_spec("cudf") is None:
        unavailable("gpuwheels", "cuDF is not installed in this environment: run 'make test-heavy'")


def pytest_report_header() -> list[str]:
    """Of what a green contract ring speaks."""
    found = [one for one in ("cudf-cu12", "cudf-cu13") if importlib.util.find_spec("cudf") and _version(one)]
    return [f"contract ring: accepted by cuDF {_version(one)} on green, never tested on a GPU" for one in found]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
