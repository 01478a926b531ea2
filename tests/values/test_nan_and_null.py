"""What pandas does with NaN and NULL in a frame of ours, pinned: a new pandas that changes a line shows here.

And what `etl.frames` makes of it, which is what cuDF does by itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest

from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.engine.backends import backend

pa: Any = arrow
PANDAS = backend("pandas")
NAN = math.nan


def frame(**columns: Any) -> Any:
    table = pa.table(columns)
    return PANDAS.from_arrow(table, Schema(tuple(Field(one.name, one.type) for one in table.schema)))


def four() -> Any:
    return frame(f=pa.array([1.0, None, NAN, -1.0], pa.float64()), g=["a", "a", "b", "b"])


def values(series: Any) -> str:
    """NULL is None, NaN is nan."""
    made = pa.array(series)
    return repr(made.to_pylist())


def test_nan_and_null_come_back_as_they_went_in() -> None:
    assert values(four()["f"]) == "[1.0, None, nan, -1.0]"


def test_comparisons_give_null_for_null_and_false_for_nan() -> None:
    mask = four()["f"] > 0
    assert values(mask) == "[True, None, False, False]"
    assert values(~mask) == "[False, None, True, True]"


def test_arithmetic_without_a_value_gives_nan_and_not_null() -> None:
    zero = frame(x=pa.array([0.0, None], pa.float64()))["x"]
    assert values(zero / zero) == "[nan, None]"
    with np.errstate(invalid="ignore", divide="ignore"):
        assert values(np.log(four()["f"])) == "[0.0, None, nan, nan]"


def test_a_group_with_nan_sums_to_nan() -> None:
    grouped = four().groupby("g", sort=True)["f"]
    assert values(grouped.sum(min_count=1)) == "[1.0, nan]"
    assert values(grouped.mean()) == "[1.0, nan]"


def test_null_and_nan_are_two_group_keys_and_only_null_is_dropped() -> None:
    keyed = frame(f=pa.array([1.0, None, NAN, NAN], pa.float64()), n=[1, 1, 1, 1])
    assert values(keyed.groupby("f", sort=True)["n"].sum().reset_index()["f"]) == "[1.0, nan]"
    whole = keyed.groupby("f", sort=True, dropna=False)["n"].sum().reset_index()
    assert sorted(repr(one) for one in pa.array(whole["f"]).to_pylist()) == ["1.0", "None", "nan"]


def test_sorting_puts_numbers_first_then_nan_then_null() -> None:
    assert values(four().sort_values("f", kind="stable")["f"]) == "[-1.0, 1.0, nan, None]"


def test_pandas_takes_nan_for_present_and_the_facade_for_what_it_is() -> None:
    f = four()["f"]
    assert list(f.isna()) == [False, True, False, False]
    assert values(f.fillna(0.0)) == "[1.0, 0.0, nan, -1.0]"
    assert len(f.dropna()) == 3
    assert list(frames.is_nan(f)) == [False, False, True, False]
    assert list(frames.is_null(f)) == [False, True, False, False]
    assert values(frames.nan_to_null(f)) == "[1.0, None, None, -1.0]"
    assert values(frames.fill_null(f, 9.0)) == "[1.0, 9.0, nan, -1.0]"


@pytest.mark.parametrize("reduction", ["sum", "mean", "max"])
def test_a_column_with_nan_reduces_to_null_unless_it_is_cleared(reduction: str) -> None:
    f = four()["f"]
    assert repr(getattr(f, reduction)()) == "<NA>"
    assert getattr(frames.nan_to_null(f), reduction)() == {"sum": 0.0, "mean": 0.0, "max": 1.0}[reduction]


def test_nan_becomes_a_wrong_integer_without_an_error_unless_the_facade_casts() -> None:
    f = frame(f=pa.array([NAN, 1.0], pa.float64()))["f"]
    assert f.astype("Int64")[0] == -(2**63)
    assert values(frames.to_int(f, "int64", cast="null")) == "[None, 1]"


def test_a_plain_float_made_of_null_has_no_nan() -> None:
    length = frame(s=["abc", None])["s"].str.len()
    assert str(length.dtype) == "float64"
    assert list(frames.is_nan(length)) == [False, False]
    assert list(frames.is_null(length)) == [False, True]
    assert values(frames.to_int(length, "int32")) == "[3, None]"
    with pytest.raises(ValueError, match="Cannot cast NaN"):
        length.astype("Int32")


@pytest.mark.parametrize("column", [["a", None], [True, None], [1, None], pa.array([0, None], pa.timestamp("us"))])
def test_what_is_no_float_is_never_nan(column: Any) -> None:
    series = frame(x=column)["x"]
    assert list(frames.is_nan(series)) == [False, False]
    assert list(frames.is_null(series)) == [False, True]


def test_the_wrong_mask_of_section_seven_is_that_of_plain_floats() -> None:
    plain = four()["f"].astype("float64")
    assert str(plain.dtype) == "float64"
    assert list(plain > 0) == [True, False, False, False]
    assert list(~(plain > 0)) == [False, True, True, True]
