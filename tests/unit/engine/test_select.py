"""Which engine is chosen, and that it is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError, EngineError
from etl.engine import devices, host_memory, select
from etl.engine.clusters import remote
from etl.engine.devices import Device, Survey
from etl.settings import Engine, Settings

if TYPE_CHECKING:
    from etl.engine.base import EngineChoice

PACKAGES = (("cudf-cu12", "26.10.2"), ("dask-cuda", "26.10.0"))


def test_data_that_passes_straight_through_is_read_by_threads() -> None:
    choice = select.choose("auto", python_rows=False, parts=8, workers=None, at_once=None)
    assert choice.kind == "threads"
    assert choice.slots == select.readers(None)
    assert "threads" in choice.why


def test_rows_as_python_objects_are_read_by_processes() -> None:
    choice = select.choose("auto", python_rows=True, parts=8, workers=3, at_once=None)
    assert (choice.kind, choice.workers, choice.slots) == ("processes", 3, 3)


def test_one_part_never_starts_processes() -> None:
    choice = select.choose("cpu", python_rows=True, parts=1, workers=None, at_once=None)
    assert (choice.kind, choice.slots) == ("threads", 1)


@pytest.mark.parametrize(("workers", "at_once", "slots"), [(1, None, 2), (2, None, 4), (9, None, 8), (4, 3, 3)])
def test_readers_follow_workers_and_what_the_store_bears(workers: int, at_once: int | None, slots: int) -> None:
    assert select.choose("auto", python_rows=False, parts=99, workers=workers, at_once=at_once).slots == slots


def test_frames_of_several_parts_run_in_processes_and_one_part_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "cores", lambda: 2)
    choice = select.choose("cpu", python_rows=False, parts=8, workers=None, at_once=None, frames=True)
    assert (choice.kind, choice.workers, choice.slots, choice.backend) == ("processes", 2, 2, "pandas")
    assert "2 processes" in choice.why
    one = select.choose("cpu", python_rows=False, parts=1, workers=None, at_once=None, frames=True)
    assert (one.kind, one.slots) == ("threads", 1)


def test_frames_of_little_data_are_made_by_threads_unless_workers_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(select, "cores", lambda: 4)

    def chosen(size: int, workers: int | None = None) -> EngineChoice:
        return select.choose(
            "cpu", python_rows=False, parts=8, workers=workers, at_once=None, frames=True, input_bytes=size
        )

    small = chosen(select.WORTH_PROCESSES - 1)
    assert (small.kind, small.workers, small.slots) == ("threads", 1, 4)
    assert "about 1023 MiB are made into frames sooner by threads" in small.why
    large, asked = chosen(select.WORTH_PROCESSES), chosen(1, workers=2)
    assert (large.kind, large.workers) == ("processes", 4)
    assert (asked.kind, asked.workers) == ("processes", 2)


def test_a_function_without_a_file_stays_in_this_process() -> None:
    choice = select.choose("auto", python_rows=False, parts=8, workers=2, at_once=None, frames=True, here=True)
    assert (choice.kind, choice.slots) == ("threads", 4)
    assert "the function has no file" in choice.why
    with pytest.raises(ConfigError, match="a function that has no file"):
        select.choose("tcp://head:1", python_rows=False, parts=8, workers=2, at_once=None, frames=True, here=True)


EQUIPPED = Survey("570.86", (12, 8), tuple(Device(i, "GPU", f"GPU-{i}", 1 << 36) for i in range(2)), PACKAGES)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Survey(), "cudf is not installed (extra gpu-cu12 or gpu-cu13)"),
        (Survey(cuda=(13, 0)), "cudf is not installed (extra gpu-cu13)"),
        (Survey(packages=PACKAGES[:1]), "dask-cuda is not installed"),
        (Survey(packages=PACKAGES), "no NVIDIA driver was found"),
        (Survey("570.86", (12, 8), (), PACKAGES), "shows no device"),
    ],
)
def test_what_a_gpu_lacks_is_named_and_auto_says_it_as_its_reason(
    monkeypatch: pytest.MonkeyPatch, found: Survey, said: str
) -> None:
    monkeypatch.setattr(devices, "survey", lambda: found)
    with pytest.raises(ConfigError, match=re.escape(said)):
        select.choose("gpu", python_rows=False, parts=8, workers=None, at_once=None)
    choice = select.choose("auto", python_rows=False, parts=8, workers=None, at_once=None, frames=True)
    assert choice.name == "cpu"
    assert said in choice.why


def test_auto_takes_the_gpu_for_large_frames_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "survey", lambda: EQUIPPED)

    def chosen(*, frames: bool, mib: int | None, without_cudf: str = "") -> EngineChoice:
        size = None if mib is None else mib << 20
        return select.choose(
            "auto",
            python_rows=False,
            parts=99,
            workers=None,
            at_once=None,
            frames=frames,
            input_bytes=size,
            without_cudf=without_cudf,
        )

    assert "data passes straight through" in chosen(frames=False, mib=9000).why
    small = chosen(frames=True, mib=255)
    assert (small.name, small.backend) == ("cpu", "pandas")
    assert "255 MiB, under 256 MiB" in small.why
    assert "text_case has no form in cuDF" in chosen(frames=True, mib=None, without_cudf="text_case").why
    large = chosen(frames=True, mib=256)
    assert (large.name, large.kind, large.workers, large.slots, large.backend) == ("gpu", "cuda", 2, 8, "cudf")
    assert "about 256 MiB" in large.why


@pytest.mark.parametrize(
    ("mib", "slots", "said"),
    [
        (0, 8, "8 parts at once"),
        (64, 8, "8 parts at once"),
        (65, 6, "4 copies of a part of 65 MiB, 1024 MiB of host memory for each worker: 6 at once"),
        (200, 2, "4 copies of a part of 200 MiB, 1024 MiB of host memory for each worker: 2 at once"),
        (
            300,
            2,
            "1024 MiB of host memory for each worker: one part may be too large, cut it smaller (partition_bytes)",
        ),
    ],
)
def test_host_memory_of_gpu_workers_bears_so_many_parts(
    mib: int, slots: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "survey", lambda: EQUIPPED)
    monkeypatch.setattr(select, "settings", lambda: Settings(engine=Engine(memory_limit="1 GiB")))
    size = {"frames": True, "part_bytes": mib << 20}
    choice = select.choose("gpu", python_rows=False, parts=99, workers=None, at_once=None, **size)  # type: ignore[arg-type]
    assert choice.slots == slots
    assert choice.why.endswith(said)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 1 << 34), st.integers(1, 1 << 36))
def test_no_worker_gets_more_parts_than_its_memory_bears(slots: int, workers: int, part: int, most: int) -> None:
    held, why = host_memory.borne(slots, workers, part, most)
    each = -(-held // workers)
    assert 1 <= held <= slots
    assert each == 1 or each * part * host_memory.COPIES <= most
    assert (held == slots and each * part * host_memory.COPIES <= most) == (not why)
    if held < slots:
        assert (held // workers + 1) * part * host_memory.COPIES > most, "no fewer than there must be"


def test_gpu_follows_workers_and_refuses_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "survey", lambda: EQUIPPED)
    choice = select.choose("gpu", python_rows=True, parts=99, workers=1, at_once=None)
    assert (choice.kind, choice.workers, choice.slots, choice.backend) == ("cuda", 1, 4, "pandas")
    with pytest.raises(ConfigError, match="3 workers were asked for, one for each GPU, and 2 can be used"):
        select.choose("gpu", python_rows=True, parts=99, workers=3, at_once=None)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpuu"):
        select.choose("gpuu", python_rows=False, parts=1, workers=None, at_once=None)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote.CONNECT_SECONDS == 10
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 1)
    choice = select.choose("tcp://127.0.0.1:9", python_rows=False, parts=1, workers=None, at_once=None)
    with pytest.raises(EngineError, match=r"tcp://127\.0\.0\.1:9 within 1 s"):
        select.open_cluster(choice)
