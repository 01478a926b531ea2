"""Figures of any step in a line for people."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from etl.transforms.plain import NamedTable
from etl.transforms.words import by_column, figure_words


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (2.5, "2.5"),
        ("at", "at"),
        ({"std": 2.0, "n": 9, "mean": 1 / 3}, "mean 0.333333, std 2"),
        ({"max": 3, "min": -1, "coarse": True}, "min -1, max 3"),
        ({"edges": [1.0, 2.0]}, "edges 1, 2"),
        ({"edges": [0.5, 1.0, 2.0, 4.0]}, "4 edges from 0.5 to 4"),
        ({"edges": []}, "0 edges"),
        ({"by": [["a", 1]], "rest": {}}, "1 by"),
        ({"vocab": pa.table({"value": ["a", "b"]}), "cardinality": 5}, "vocab of 2 rows, cardinality 5"),
        ({"vocab": NamedTable("vocab.c.table", 12345)}, "vocab of 12 345 rows"),
        ({"counts": NamedTable("counts.c.table", 1), "null": None}, "counts of 1 row"),
    ],
)
def test_figures_are_said_in_a_line(found: Any, words: str) -> None:
    assert figure_words(found) == words


def test_a_figure_is_called_what_it_is_in_its_step() -> None:
    assert figure_words({"mean": 2.0, "range": 4.0, "n": 9}, "robust") == "median 2, range 4"
    assert figure_words({"mean": 2.0, "min": 2.0, "max": 3.0, "width": 1.0}, "min_max") == "min 2, max 3"
    assert figure_words({"all": 0.5, "fold_0": 0.25, "rows": 9, "null": 1}, "target_encode") == "all 0.5, null 1"


def test_columns_without_figures_are_left_out() -> None:
    assert dict(by_column({"a": {"n": 3}, "b": 1.5})) == {"b": "1.5"}
