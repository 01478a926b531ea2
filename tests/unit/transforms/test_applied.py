"""A user's function as a step: named, whole, unchanged, and held to what was said of it."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError, UserCodeError
from etl.core.schema import Field, Schema
from etl.transforms import Apply, FillNull
from etl.transforms.applied import _found, _source_sha256
from etl.transforms.fit import planned
from etl.transforms.plain import to_plain, typed
from etl.transforms.preprocessor import arguments
from tests import applying
from tests.preparing import both, through

if TYPE_CHECKING:
    from pathlib import Path

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""


@given(st.lists(st.tuples(st.integers(-99, 99), st.one_of(st.none(), st.integers(-99, 99))), max_size=9))
def test_columns_are_those_that_the_function_makes(rows: list[tuple[int, int | None]]) -> None:
    a, b = [x for x, _ in rows], [y for _, y in rows]
    table = pa.table({"a": ARROW.array(a, pa.int32()), "b": ARROW.array(b, pa.float64())})
    step = Apply("tests.applying:ratio", ["a", "b"], {"ratio": "float32", "a": "int64"})
    out = through([step], table)
    assert out.schema.names == ["a", "b", "ratio"]
    assert out.column("a").to_pylist() == [x + 1 for x in a]
    assert out.column("ratio").to_pylist() == [None if not y else float(np.float32(x / y)) for x, y in rows]


def test_a_step_comes_back_with_its_source_and_imports_it_only_when_it_is_used() -> None:
    step = Apply(applying.ratio, ["a", "b"], {"ratio": "float32", "a": "int64"})
    assert step.function == "tests.applying:ratio"
    saved = json.loads(json.dumps(to_plain(arguments(step))))
    assert Apply(**typed(saved)) == step
    gone = Apply(**{**typed(saved), "function": "tests.no_such_module:ratio"})
    with pytest.raises(ConfigError, match="No module named"):
        planned([gone], Schema((Field("a", pa.int32()), Field("b", pa.float64()))))


def test_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "cuetl_changed.py"
    module.write_text("def twice(columns, valid):\n    return {'v': columns['v'] * 2}\n")
    given_schema = Schema((Field("v", pa.int64()),))
    step = Apply("cuetl_changed:twice", "v", {"v": "int64"})
    planned([step], given_schema)
    module.write_text("def twice(columns, valid):\n    return {'v': columns['v'] * 3}\n")
    importlib.reload(importlib.import_module("cuetl_changed"))
    _found.cache_clear()
    _source_sha256.cache_clear()
    with pytest.raises(ConfigError, match="it would give other values"):
        planned([step], given_schema)


def test_what_the_function_gets_are_arrays_of_numpys_kinds() -> None:
    table = pa.table(
        {
            "t": ARROW.array([datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "d": ARROW.array([date(2020, 1, 1), None], pa.date32()),
            "s": ARROW.array(["ü", None], pa.string()),
            "m": ARROW.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
            "p": ARROW.array([timedelta(1), None], pa.duration("us")),
            "b": ARROW.array([True, None], pa.bool_()),
        }
    )
    out = through([Apply(applying.told, table.column_names, {"told": "string"})], table)
    assert out.column("told").to_pylist() == [
        "2020-01-01T00:00:00.000000 2020-01-01 ü 1.5 86400000000 microseconds True",
        "NaT NaT None None NaT False",
    ]
    lists = Schema((Field("v", pa.list_(pa.int64())),))
    with pytest.raises(ConfigError, match="no place in an array"):
        planned([Apply(applying.told, "v", {"told": "string"})], lists)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests.applying:shorter", r"gave an array of shape \(1,\) for v, of 2 rows"),
        ("tests.applying:plain_list", "gave a list for v"),
        ("tests.applying:floats", "gave float64 for v, which is to be int64"),
        ("tests.applying:nothing", "gave a NoneType"),
        ("tests.applying:others", "lacks v and has w too"),
        ("tests.applying:failing", "ZeroDivisionError: not today"),
        ("tests.applying:writing", "read-only"),
        ("tests.applying:masked", "gave int64 for where v is present, not bool"),
    ],
)
def test_what_was_not_said_is_refused_by_name(name: str, words: str) -> None:
    table = pa.table({"v": [1, 2]})
    with pytest.raises(UserCodeError, match=words) as caught:
        through([Apply(name, "v", {"v": "int64"})], table)
    assert name in str(caught.value)
    assert table.column("v").to_pylist() == [1, 2]


def test_numbers_beyond_float32_and_what_is_no_text_are_refused() -> None:
    with pytest.raises(UserCodeError, match=r"gave 1e\+300 for v, which is beyond float32"):
        through([Apply("tests.applying:huge", "v", {"v": "float32"})], pa.table({"v": [1, 2]}))
    with pytest.raises(UserCodeError, match="gave no texts for v"):
        through([Apply("tests.applying:huge", "v", {"v": "string"})], pa.table({"v": [1, 2]}))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda columns, _: columns, "names no function of a module"),
        ("tests.applying:SHORT", "is a lambda"),
        ("tests.applying:CLOSED", "is a lambda, or defined within another"),
        ("tests.applying:absent", "no attribute 'absent'"),
        ("tests.applying:np", "is a module, not a function"),
        ("tests.applying", "names no function"),
        ("__main__:ratio", "names no function"),
        ("no.such.module:ratio", "No module named"),
        ("math:sin", "is a builtin_function_or_method, not a function"),
    ],
)
def test_functions_whose_source_does_not_say_all_are_refused(function: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Apply(function, "v", {"v": "int64"})
    with pytest.raises(ConfigError, match="is to be 'int31'"):
        Apply("tests.applying:ratio", "v", {"v": "int31"})


def test_rows_that_were_filled_before_are_what_it_gets() -> None:
    steps: list[Any] = [FillNull("b", 4.0), Apply(applying.ratio, ["a", "b"], {"ratio": "float64", "a": "int64"})]
    batch = ARROW.record_batch({"a": ARROW.array([2, 6], pa.int32()), "b": ARROW.array([None, 3.0])})
    given_schema = Schema((Field("a", pa.int32()), Field("b", pa.float64())))
    assert both(planned(steps, given_schema), {}, batch).column("ratio").to_pylist() == [0.5, 2.0]
