"""What a plan says of a run before it: here, which of its steps may change a value."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--cast round", ["digits beyond a type's precision are rounded, and counted"]),
        ("--cast saturate", ["are rounded, values beyond its range become its least or greatest, and counted"]),
        ("--nulls error", []),
        ("--nulls fill=7", ["--nulls fill=7 in out"]),
    ],
)
def test_a_plan_names_every_step_that_may_change_a_value(tmp_path: Path, flags: str, words: list[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as store:
        store.execute("CREATE TABLE t (n integer, f real)")
    exports = Exports(tmp_path, f"sqlite:///{tmp_path}/a.db")
    lossy = exports.done("--table", "t", "--plan", *flags.split())["lossy"]
    assert len(lossy) == len(words)
    assert all(word in said for word, said in zip(words, lossy, strict=True))
