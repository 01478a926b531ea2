"""Which engine is chosen, and that it is said."""

from __future__ import annotations

import pytest

from etl.core.errors import ConfigError, EngineError
from etl.engine import select
from etl.engine.clusters import remote


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


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpuu"):
        select.choose("gpuu", python_rows=False, parts=1, workers=None, at_once=None)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote.CONNECT_SECONDS == 10
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 1)
    choice = select.choose("tcp://127.0.0.1:9", python_rows=False, parts=1, workers=None, at_once=None)
    with pytest.raises(EngineError, match=r"tcp://127\.0\.0\.1:9 within 1 s"):
        select.open_cluster(choice)
