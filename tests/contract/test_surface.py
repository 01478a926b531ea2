"""What our code uses of cuDF, and what this release of cuDF lacks, are as the files say that were checked in."""

from __future__ import annotations

import json

import pytest

from tests.contract import reflection, surface

pytestmark = [pytest.mark.gpuwheels, pytest.mark.filterwarnings("ignore:GPU-accelerated stable")]


def test_the_used_surface_is_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.contract.twins import Contract, answer_for_twins

    contract = Contract()
    answer_for_twins(monkeypatch.setattr, contract)
    used = surface.used(contract)
    assert used == json.loads(surface.FILE.read_text()), "run: .gpu/bin/python -m tests.contract.surface"
    assert {step.outcome for step in contract.steps} == {"device", "host", "static"}


def test_every_function_of_the_pipelines_was_on_twins() -> None:
    named = {path.stem for path in (surface.ROOT / "pipelines").glob("*.py") if "def " in path.read_text()}
    assert {name for name, _, _ in surface.functions()} == named


def test_cudf_lacks_what_the_file_says() -> None:
    assert reflection.reflected() == json.loads(reflection.FILE.read_text()), (
        "a change is a line in the changelog; run: .gpu/bin/python -m tests.contract.reflection"
    )


def test_what_is_lacking_is_not_used() -> None:
    lacking = json.loads(reflection.FILE.read_text())["lacks"]
    used = json.loads(surface.FILE.read_text())
    known = {"DataFrame", "Series"}
    for path in used:
        kind, _, name = path.partition(".")
        if kind in known:
            assert name not in lacking[kind]["missing"] + lacking[kind]["raises"], path
    assert {"pivot", "merge_asof"} & set(lacking["module"]["missing"]) == {"merge_asof"}
