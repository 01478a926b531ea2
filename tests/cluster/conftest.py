"""Dask-CUDA's own clusters on a machine without a device: its switch for that leaves out what would touch one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etl.engine import devices, select
from etl.engine.base import EngineChoice
from etl.engine.clusters import local_cuda
from etl.engine.devices import Device, Survey
from etl.settings import Engine, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etl.engine.dask_client import DaskCluster

DISABLED = {"DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}
"""Of dask-cuda, for its own tests: memory resources and affinity are left out, all else is as it is."""
TWO = EngineChoice("gpu", "cuda", "", 2, 8, "asked for", "pandas")
FOUND = Survey(
    "580.82", (13, 0), tuple(Device(i, "no GPU", f"GPU-{i}", 1 << 36) for i in range(2)), tuple(devices.packages())
)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices are said to be there; the limit is in bytes, since a fraction would ask the driver."""
    for name, value in DISABLED.items():
        monkeypatch.setenv(name, value)
    found = Settings(engine=Engine(devices=("0", "1"), device_memory_limit="1 GB"))
    monkeypatch.setattr(local_cuda, "settings", lambda: found)
    monkeypatch.setattr(select, "settings", lambda: found)
    monkeypatch.setattr(devices, "survey", lambda: FOUND)


@pytest.fixture
def cluster(no_device: None) -> Iterator[DaskCluster]:  # noqa: ARG001 # it comes first
    """Two workers, one for each device."""
    one = local_cuda.start(TWO)
    try:
        yield one
    finally:
        one.close()
