"""What `cuetl doctor` says of GPUs, for hosts of several kinds."""

from __future__ import annotations

from importlib import metadata

import pytest

from etl.cli import doctor
from etl.engine import devices
from etl.engine.devices import Device, Survey

PACKAGES = (("cudf-cu13", "26.10.2"), ("dask-cuda", "26.10.0"))
HOST = Survey("580.82", (13, 0), (Device(0, "NVIDIA H200", "GPU-8a56", 141 << 30),), PACKAGES)


def told(monkeypatch: pytest.MonkeyPatch, found: Survey) -> dict[str, tuple[str, str]]:
    monkeypatch.setattr(devices, "survey", lambda: found)
    return {one.what: (one.verdict, one.said) for one in doctor._gpu()}


def test_a_host_with_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, HOST)
    assert said["GPU driver"] == ("ok", "580.82, CUDA up to 13.0")
    assert said["GPU 0"][1].startswith("NVIDIA H200, ")
    assert said["cuDF"] == ("ok", "26.10.2")
    assert said["UCX"] == ("absent", "not installed; GPUs exchange frames over TCP")
    assert all(verdict != "bad" for verdict, _ in said.values())


def test_a_host_without_any_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, Survey())
    assert {verdict for verdict, _ in said.values()} == {"absent"}
    assert set(said) == {"GPU driver", "GPU", "cuDF", "Dask-CUDA", "UCX"}


def test_a_driver_that_answers_with_an_error_has_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, Survey(fault="NVML: Driver/library version mismatch"))
    assert said["GPU driver"] == ("bad", "NVML: Driver/library version mismatch")


def test_wheels_of_both_cudas_have_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Survey("580.82", (13, 0), HOST.devices, (("cudf-cu12", "26.10.2"), *PACKAGES))
    verdict, said = told(monkeypatch, both)["cudf"]
    assert verdict == "bad"
    assert "pip uninstall cudf-cu13 cudf-cu12" in said


@pytest.mark.parametrize(("version", "verdict"), [("13.0.88", "bad"), ("13.3.33", "ok")])
def test_the_linker_that_torch_brings_is_compared_with_what_cudf_needs(
    monkeypatch: pytest.MonkeyPatch, version: str, verdict: str
) -> None:
    known = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "nvidia-nvjitlink" else known(name))
    assert told(monkeypatch, HOST)["nvjitlink"][0] == verdict
