"""Rows appended to a dataset: one set of columns, and a word where the new rows are not like the old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl import open_dataset
from etl.tensors.manifest import integer
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 400


def table(*, shift: float = 0.0, words: str = "ab", nulls: int = 20, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(1)
    values = rng.normal(shift, 1.0, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(start, start + ROWS)),
            "value": pa.array([None if i % nulls == 0 else float(v) for i, v in enumerate(values)]),
            "word": pa.array([words[i % len(words)] for i in range(ROWS)]),
            "tags": pa.array([[1] * (i % 4) for i in range(ROWS)]),
        }
    )


def appended(folder: Path, first: pa.Table, *more: pa.Table) -> list[dict[str, Any]]:
    """The warnings on drift of the last of several exports."""
    options = WriteOptions(key=("id",))
    published = export(folder, first, 2, fmt="safetensors", options=options)
    for number, one in enumerate(more):
        published = export(folder, one, 2, fmt="safetensors", options=options, mode="append", run_id=f"a{number}")
    assert list(published.warnings) == open_dataset(folder).manifest.document["warnings"]
    return [dict(w) for w in published.warnings if w["code"] == "drift"]


def test_appended_rows_are_counted_with_the_old_ones(tmp_path: Path) -> None:
    assert appended(tmp_path / "two", table(), table(start=ROWS, nulls=25)) == []
    export(tmp_path / "one", pa.concat_tables([table(), table(start=ROWS, nulls=25)]), 2, fmt="safetensors",
           options=WriteOptions(key=("id",)))  # fmt: skip
    two, one = (open_dataset(tmp_path / name).manifest for name in ("two", "one"))
    for mine, its in zip(two.columns, one.columns, strict=True):
        assert mine["null"] == its["null"]
        assert mine["ragged"] == its["ragged"]
        (stats,), (other,) = mine["stats"].values(), its["stats"].values()  # type: ignore[attr-defined]
        for key in ("count", "null", "nan", "inf", "min", "max"):
            assert stats[key] == other[key], (mine["name"], key)
        if mine["name"] == "word":
            assert stats["top"] == other["top"]
    null: Any = two.columns[1]["null"]
    assert integer(null["count"]) == 20 + 16
    tags: Any = two.columns[3]["ragged"]
    assert tags["max_len"] == 3


def test_rows_that_are_not_like_the_old_are_told(tmp_path: Path) -> None:
    (moved,) = appended(tmp_path / "mean", table(), table(shift=2.0, start=ROWS))
    assert moved["column"] == "value"
    assert "mean" in str(moved["text"])
    (absent,) = appended(tmp_path / "null", table(), table(nulls=2, start=ROWS))
    assert "50.0% NULL, 5.0% before" in str(absent["text"])
    (other,) = appended(tmp_path / "word", table(), table(words="bc", start=ROWS))
    assert (other["column"], "distance 0.50" in str(other["text"])) == ("word", True)


def test_more_rows_of_the_same_source_are_no_drift(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)

    def drawn(rows: int, first: int) -> pa.Table:
        return pa.table(
            {
                "id": pa.array(np.arange(rows)),
                "number": pa.array(np.arange(first, first + rows)),
                "price": pa.array(np.exp(2 * rng.normal(size=rows))),
                "visits": pa.array(np.minimum(rng.zipf(2.0, rows), 1_000_000)),
                "rare": pa.array((rng.random(rows) < 0.01).astype(np.float64)),
                "town": pa.array([f"t{i}" for i in rng.integers(0, 20, rows)]),
                "note": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.5),
            }
        )

    for old, new in ((100, 100), (1000, 150), (10_000, 1000)):
        for number in range(3):
            folder = tmp_path / f"{old}-{new}-{number}"
            assert appended(folder, drawn(old, 0), drawn(new, old)) == []


def test_a_wider_spread_is_told(tmp_path: Path) -> None:
    wide = table(start=ROWS)
    wide = wide.set_column(1, "value", pa.array(4 * np.random.default_rng(2).normal(size=ROWS)))
    (spread,) = appended(tmp_path / "out", table(nulls=ROWS + 1), wide)
    assert (spread["column"], "standard deviation" in str(spread["text"])) == ("value", True)


def test_few_rows_say_nothing(tmp_path: Path) -> None:
    assert appended(tmp_path / "few", table(), table(shift=9.0, words="x").slice(0, 50)) == []


def test_the_manifest_has_every_field_of_a_column(tmp_path: Path) -> None:
    appended(tmp_path / "out", table())
    manifest = open_dataset(tmp_path / "out").manifest
    fields = {"name", "source_column", "source_type", "arrow_type", "nullable", "role", "kind", "tensor", "index"}
    fields |= {"dtype", "shape", "null", "cast", "special", "time", "decimal", "quant", "category", "ragged", "stats"}
    fields |= {"transforms", "description"}
    for column in manifest.columns:
        assert fields <= set(column)
    checks: Any = manifest.document["checks"]
    assert all(one["passed"] for one in checks)
    assert [one["name"] for one in checks] == ["rows of each part", "rows of the snapshot"]


def test_what_policies_changed_is_told_with_its_count(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([0.1, 1e300, 0.5, None]), "b": pa.array([1, None, 3, 4])})
    options = WriteOptions(features=("a",), key=("b",), dtype="float32", cast="saturate", column_nulls={"b": "drop"})
    published = export(tmp_path / "out", rows, fmt="safetensors", options=options)
    said = {str(w["code"]): w.get("count") for w in published.warnings}
    assert said == {"cast-rounded": 1, "dropped": 1}
    again = WriteOptions(features=("a",), dtype="float32", cast="saturate")
    published = export(tmp_path / "all", rows, fmt="safetensors", options=again)
    assert {str(w["code"]): w["count"] for w in published.warnings} == {"cast-rounded": 1, "cast-saturated": 1}
