"""Workers of a scheduler: addresses that are refused before anything connects, and sets that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.core.errors import ConfigError, EngineError
from etl.engine import devices
from etl.engine.clusters.remote import security
from etl.engine.probe import Answer, agreed, probe
from etl.settings import Engine

GPU = replace(probe(), cudf="26.10.2", device="NVIDIA H200", driver="580.82")
CPU = replace(probe(), cudf="", device="", driver="")


def test_workers_that_can_do_the_same_decide_what_frames_are_made_of() -> None:
    assert agreed({"tcp://a:1": GPU, "tcp://b:1": GPU}, "tcp://head:1").backend() == "cudf"
    assert agreed({"tcp://a:1": CPU}, "tcp://head:1").backend() == "pandas"
    without_device = replace(GPU, device="")
    assert agreed({"tcp://a:1": CPU, "tcp://b:1": without_device}, "tcp://head:1").backend() == "pandas"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (CPU, "tcp://a:1 makes frames with cuDF 26.10.2 on a GPU, tcp://b:1 with pandas"),
        (replace(GPU, cudf="26.8.0"), "tcp://b:1 with cuDF 26.8.0 on a GPU"),
        (
            replace(GPU, versions={**GPU.versions, "pandas": "2.3.0"}),
            "worker tcp://b:1 of tcp://head:1 has pandas 2.3.0",
        ),
    ],
)
def test_a_mixed_set_is_refused_by_the_name_of_the_worker(other: Answer, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        agreed({"tcp://a:1": GPU, "tcp://b:1": other}, "tcp://head:1")


@pytest.mark.parametrize(
    ("address", "wanted", "said"),
    [
        ("ucx://head:1", Engine(require_tls=True), "UCX is not encrypted"),
        ("tcp://head:1", Engine(require_tls=True), "that address is not encrypted"),
        ("ucx://head:1", Engine(), "needs distributed-ucxx in this process"),
        ("tls://head:1", Engine(tls_ca_file="ca.pem"), "needs tls_client_cert and tls_client_key in"),
    ],
)
def test_an_address_is_refused_before_anything_connects(
    monkeypatch: pytest.MonkeyPatch, address: str, wanted: Engine, said: str
) -> None:
    monkeypatch.setattr(devices, "ucx", lambda: False)
    with pytest.raises(ConfigError, match=said):
        security(address, wanted)


def test_tls_takes_the_files_of_the_settings_and_tcp_none() -> None:
    made = security("tls://head:1", Engine(tls_ca_file="ca", tls_client_cert="cert", tls_client_key="key"))
    assert made is not None
    assert (made.tls_ca_file, made.tls_client_cert, made.tls_client_key) == ("ca", "cert", "key")
    assert made.require_encryption
    assert security("tcp://head:1", Engine()) is None
