"""Options of GPU workers: what is chosen unasked, and each wrong combination refused with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dask import config

from etl.core.errors import ConfigError
from etl.engine import devices
from etl.engine.base import EngineChoice
from etl.engine.clusters import local_cuda
from etl.engine.clusters.local_cuda import Options, options
from etl.engine.devices import Device, Survey
from etl.settings import Engine

TWO = EngineChoice("gpu", "cuda", "", 2, 8, "asked for", "cudf")
FOUND = Survey("570.86", (12, 8), tuple(Device(i, "GPU", f"GPU-{i}", 1 << 36) for i in range(4)))


def test_unasked_the_allocator_is_the_drivers_and_one_worker_has_four_fetchers() -> None:
    chosen = options(TWO, Engine(), FOUND)
    assert chosen.devices == (0, 1)
    assert (chosen.threads_per_worker, chosen.protocol) == (4, "tcp")
    assert (chosen.rmm_async, chosen.rmm_maximum_pool_size, chosen.rmm_pool_size) == (True, 0.9, None)
    assert (chosen.enable_cudf_spill, chosen.device_memory_limit) == (True, "default")
    assert "cupy" in chosen.rmm_allocator_external_lib_list
    assert chosen.pre_import[0] == "cudf"


def test_ucx_is_taken_for_an_exchange_between_several_devices_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = replace(TWO, exchange=True)
    assert options(exchange, Engine(), FOUND).protocol == "tcp"
    monkeypatch.setattr(devices, "ucx", lambda: True)
    taken = options(exchange, Engine(), FOUND)
    assert (taken.protocol, taken.rmm_async, taken.rmm_pool_size) == ("ucx", False, 0.8)
    for choice, wanted in (
        (TWO, Engine()),
        (replace(exchange, workers=1), Engine()),
        (exchange, Engine(require_tls=True)),
        (exchange, Engine(rmm_async=True)),
        (exchange, Engine(protocol="tcp")),
    ):
        assert options(choice, wanted, FOUND).protocol == "tcp"


def test_a_device_without_memory_of_its_own_does_not_spill() -> None:
    shared = replace(FOUND, devices=(Device(0, "SoC", "GPU-0", 0),))
    chosen = options(replace(TWO, workers=1), Engine(), shared)
    assert (chosen.enable_cudf_spill, chosen.keywords()["cudf_spill_stats"]) == (False, 0)
    with pytest.raises(ConfigError, match="has no memory of its own"):
        options(replace(TWO, workers=1), Engine(device_memory_limit=0.5), shared)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Engine(protocol="ucx"), "protocol is refused: distributed-ucxx is not installed"),
        (Engine(protocol="ucx", require_tls=True), "protocol is refused: UCX is not encrypted"),
        (Engine(protocol="tls"), "protocol is refused: 'tls' is unknown"),
        (Engine(enable_infiniband=True), "enable_infiniband is refused: it is a transport of UCX"),
        (Engine(enable_nvlink=True, protocol="tcp"), "enable_nvlink is refused"),
        (Engine(rmm_async=True, rmm_pool_size=0.5), "rmm_pool_size is refused: it excludes rmm_async"),
        (Engine(rmm_async=False), "rmm_async is refused: without it"),
        (Engine(rmm_pool_size=1.5), "rmm_pool_size is refused: 1.5 is no part of a device"),
        (Engine(rmm_maximum_pool_size=-1), "rmm_maximum_pool_size is refused: -1"),
        (Engine(rmm_pool_size=0.8, rmm_maximum_pool_size=0.5), "0.8 is more than rmm_maximum_pool_size, 0.5"),
        (Engine(devices=("0", "fast")), "'fast' is neither an index nor a UUID"),
        (Engine(devices=("0", "4")), "there is no device 4"),
        (Engine(devices=("GPU-8a56",)), "2 workers were asked for, one for each GPU, and 1 can be used"),
    ],
)
def test_a_wrong_combination_is_refused_before_anything_starts(wanted: Engine, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options(TWO, wanted, FOUND)


def test_ucx_excludes_the_asynchronous_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ucx", lambda: True)
    with pytest.raises(ConfigError, match="rmm_async is refused: UCX needs one allocation"):
        options(TWO, Engine(protocol="ucx", rmm_async=True), FOUND)


@pytest.mark.parametrize(
    ("key", "value"),
    [("jit-unspill", True), ("distributed.comm.ucx", {"nvlink": True}), ("dataframe.query-planning", False)],
)
def test_configuration_of_removed_options_is_refused_before_anything_starts(key: str, value: object) -> None:
    with config.set({key: value}), pytest.raises(ConfigError, match=key):
        local_cuda.start(TWO)


def test_no_removed_option_is_ever_passed() -> None:
    gone = {"jit_unspill", "explicit_comms", "shared_filesystem", "processes"}
    assert not gone & set(Options(devices=(0,)).keywords())
