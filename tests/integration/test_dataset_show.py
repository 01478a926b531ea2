"""`cuetl dataset show`, in this process: the terminal, an older version, the page."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from etl import Parquet, checks, pipeline
from etl.cli import main
from tests.command import Done, one_paragraph
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

    from etl.transforms.checking.base import Check


@pytest.fixture
def home(tmp_path: Path) -> Path:
    table = pa.table({"n": pa.array([1, 2, None, 40]), "word": pa.array(["a", "a", "b", None])})
    export(tmp_path / "out", table)
    export(tmp_path / "out", table, mode="append", run_id="r2")
    return tmp_path


def show(home: Path, *flags: str, path: str = "out") -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(home), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(["dataset", "show", path, *flags])
    return Done(code, out.getvalue(), err.getvalue())


def test_values_lineage_and_versions_are_shown(home: Path) -> None:
    done = show(home)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    (seen,) = [line.split() for line in lines if line.startswith("n ") and "%" in line]
    assert seen[:4] == ["n", "25.0%", "1", "40"]
    assert any(line.startswith("word ") and "a 50%" in line for line in lines)
    for said in ("query: select 1", "snapshot: exported, taken 2026-01-02", "versions: 2 (append), 1 (create)"):
        assert any(line.startswith(said) for line in lines), said


def test_an_older_version_is_shown(home: Path) -> None:
    assert "rows: 4" in show(home, "--version", "1").out.splitlines()
    assert "version 9" in one_paragraph(show(home, "--version", "9").err)


def test_data_checks_are_shown(home: Path) -> None:
    asked: list[Check] = [checks.row_count(3), checks.not_null("n", severity="warn")]
    rows = pa.table({"n": pa.array([1, None, 3])})
    pipeline(name="made", sources={"rows": rows}, sink=Parquet(str(home / "made")), checks=asked).run()
    lines = show(home, path="made").out.splitlines()
    assert [line for line in lines if line.startswith("check ")] == [
        'check row_count {"max": null, "min": 3}, ends the run: passed',
        "check not_null(n), warns: failed",
    ]
    assert not [line for line in show(home).out.splitlines() if line.startswith("check ")]


def test_the_page_is_written(home: Path) -> None:
    done = show(home, "--html", "page.html", "--json")
    assert done.json == {"target": "out", "version": 2, "html": "page.html"}
    text = (home / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "select 1" in text
    refused = show(home, "--html", "out/_manifest.json")
    assert refused.code == 2
    assert "is not a page of cuetl" in one_paragraph(refused.err)
