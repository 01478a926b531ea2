"""`etl.frames`: what it refuses, its edges, and the same on Dask collections."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, SchemaError
from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.engine.backends import backend

pa: Any = arrow
PANDAS = backend("pandas")
WIDTHS: tuple[frames.Integer, ...] = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1))  # noqa: DTZ001


def series(values: Any, kind: Any) -> Any:
    table = pa.table({"x": pa.array(values, kind)})
    return PANDAS.from_arrow(table, Schema((Field("x", kind),)))["x"]


def listed(made: Any) -> list[Any]:
    return list(pa.array(made, from_pandas=True).to_pylist())


@given(st.lists(st.floats(allow_nan=False) | st.none(), max_size=6), st.sampled_from(WIDTHS))
def test_a_float_is_the_same_integer_or_refused_or_null(values: list[float | None], width: frames.Integer) -> None:
    bounds = np.iinfo(width)
    fit = [v is not None and v == np.floor(v) and bounds.min <= v <= bounds.max and abs(v) != np.inf for v in values]
    given_ = series(values, pa.float64())
    made = listed(frames.to_int(given_, width, cast="null"))
    assert made == [int(v) if ok and v is not None else None for v, ok in zip(values, fit, strict=True)]
    if all(ok or v is None for v, ok in zip(values, fit, strict=True)):
        assert listed(frames.to_int(given_, width)) == made
    else:
        with pytest.raises(CastError, match=f"column x holds .*, which is no {width}"):
            frames.to_int(given_, width)


@given(st.lists(st.floats(allow_nan=False) | st.none(), max_size=6), st.sampled_from(WIDTHS))
def test_saturating_takes_the_nearest_integer_there_is(values: list[float | None], width: frames.Integer) -> None:
    bounds = np.iinfo(width)
    made = listed(frames.to_int(series(values, pa.float64()), width, cast="saturate"))
    for value, got in zip(values, made, strict=True):
        if value is None:
            assert got is None
        else:
            assert got == (
                bounds.max if value >= bounds.max else bounds.min if value <= bounds.min else int(np.rint(value))
            )


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=6), st.sampled_from(WIDTHS))
def test_an_integer_of_another_width_is_the_same_or_null(values: list[int | None], width: frames.Integer) -> None:
    bounds = np.iinfo(width)
    made = listed(frames.to_int(series(values, pa.int64()), width, cast="null"))
    assert made == [v if v is not None and bounds.min <= v <= bounds.max else None for v in values]


def test_bools_are_integers_and_text_is_not() -> None:
    assert listed(frames.to_int(series([True, None, False], pa.bool_()), "int8")) == [1, None, 0]
    with pytest.raises(SchemaError, match=r"column x is str, not a number\. Read text with frames\.to_numeric"):
        frames.to_int(series(["1"], pa.string()), "int8")


def test_casts_and_widths_that_are_none_are_refused_by_name() -> None:
    word: Any = "saturated"
    with pytest.raises(SchemaError, match=r"cast='saturated' is unknown\. Did you mean saturate\?"):
        frames.to_int(series([1], pa.int64()), "int8", cast=word)
    word = "int"
    with pytest.raises(SchemaError, match="'int' is no integer dtype"):
        frames.to_int(series([1], pa.int64()), word)


@given(st.lists(MOMENTS | st.none(), max_size=5), st.sampled_from(["us", "ms", "s", "min", "7min", "15min", "h", "D"]))
def test_floors_are_those_of_pandas_where_pandas_has_them(values: list[Any], step: str) -> None:
    moments = series(values, pa.timestamp("us"))
    assert listed(frames.floor_time(moments, step)) == listed(moments.dt.floor(step))
    zoned = moments.dt.tz_localize("UTC")
    assert listed(frames.floor_time(zoned, step)) == listed(zoned.dt.floor(step))


@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_a_week_starts_on_the_monday_before(values: list[dt.datetime]) -> None:
    for moment, week in zip(values, listed(frames.floor_time(series(values, pa.timestamp("us")), "W")), strict=True):
        assert week.weekday() == 0
        assert dt.timedelta(0) <= moment - week < dt.timedelta(days=7)
        assert week == week.replace(hour=0, minute=0, second=0, microsecond=0)


def test_steps_and_zones_that_are_none_are_refused() -> None:
    moments = series([0], pa.timestamp("us"))
    with pytest.raises(SchemaError, match="'1 month' is no step of time"):
        frames.floor_time(moments, "1 month")
    with pytest.raises(SchemaError, match="does not go forward"):
        frames.floor_time(moments, dt.timedelta(0))
    with pytest.raises(SchemaError, match=r"the format '%Y%z' has a zone\. Strip the offset"):
        frames.parse_datetime(series(["2024+01"], pa.string()), "%Y%z")


@given(st.lists(st.integers(0, 3) | st.none(), max_size=6), st.lists(st.integers(0, 3) | st.none(), max_size=4))
def test_every_row_is_in_the_semi_join_or_in_the_anti_join(left: list[Any], right: list[Any]) -> None:
    one, other = (series(values, pa.int64()).to_frame() for values in (left, right))
    known = {value for value in right if value is not None}
    assert listed(frames.semi_join(one, other, "x")["x"]) == [v for v in left if v in known]
    assert listed(frames.anti_join(one, other, ["x"])["x"]) == [v for v in left if v not in known]


def test_frames_of_other_columns_or_dtypes_are_not_concatenated() -> None:
    one = pd.DataFrame({"a": pd.array([1], "Int64")})
    with pytest.raises(SchemaError, match="the first frame has the columns a, frame 2 has b"):
        frames.concat([one, one.rename(columns={"a": "b"})])
    with pytest.raises(SchemaError, match="column a is Int32 in frame 2 and Int64 in the first"):
        frames.concat([one, one.astype("Int32")])
    with pytest.raises(SchemaError, match="no frames"):
        frames.concat([])


def test_labels_are_never_taken_from_rows() -> None:
    frame = pd.DataFrame({"s": pd.array(["a"], "str"), "c": pd.Categorical(["y"], categories=["x", "y"])})
    assert list(frames.get_dummies(frame, ["c"]).columns) == ["s", "c_x", "c_y"]
    with pytest.raises(SchemaError, match="column s is str, so its labels are not known"):
        frames.get_dummies(frame, ["s"])


def test_what_is_no_series_is_refused() -> None:
    with pytest.raises(SchemaError, match="a list is no series or frame of pandas or cuDF"):
        frames.to_datetime(["2024"], format="%Y")


def test_an_offset_goes_to_moments_of_any_shape() -> None:
    assert pd.Timestamp("2024-01-31") + frames.DateOffset(months=1) == pd.Timestamp("2024-02-29")
    moments = series([dt.date(2024, 3, 31), None], pa.date32())
    assert listed(moments - frames.DateOffset(months=1, days=1)) == [dt.datetime(2024, 2, 28), None]  # noqa: DTZ001
    assert str((moments + frames.DateOffset(years=1)).dtype) == "datetime64[s]"


def test_collections_give_what_frames_give() -> None:
    import dask
    import dask.dataframe as dd

    table = pa.table(
        {
            "f": pa.array([1.0, None, float("nan"), -2.0], pa.float64()),
            "s": ["2024-01-31", None, "x", "2024-02-01"],
            "t": pa.array([0, None, 10**12, 5], pa.timestamp("us")),
        }
    )
    whole = PANDAS.from_arrow(table, Schema(tuple(Field(one.name, one.type) for one in table.schema)))
    with dask.config.set({"dataframe.convert-string": False}):
        collection = dd.from_pandas(whole, npartitions=2)

    def made(t: Any) -> Any:
        t = t.assign(nan=frames.is_nan(t["f"]), null=frames.is_null(t["f"]), zero=frames.fill_null(t["f"], 0.0))
        t = t.assign(n=frames.to_int(t["f"], "int8", cast="null"), at=frames.parse_datetime(t["s"], "%Y-%m-%d"))
        t = t.assign(h=frames.floor_time(t["t"], "15min"), next=t["t"] + frames.DateOffset(months=1))
        t = t.assign(size=frames.cut(t["f"], [-3.0, 0.0, 3.0], labels=["low", "high"]).astype("str"))
        t = frames.get_dummies(t, {"s": ["x"]})
        t = frames.concat([t, t])
        return frames.anti_join(t, t[(t["f"] == 1.0).fillna(value=False)][["f"]], "f")

    alone, spread = made(whole), made(collection).compute(scheduler="synchronous")
    assert list(alone.columns) == list(spread.columns)
    assert sorted(map(repr, pa.Table.from_pandas(alone, preserve_index=False).to_pylist())) == sorted(
        map(repr, pa.Table.from_pandas(spread, preserve_index=False).to_pylist())
    )


def test_a_group_of_nothing_but_null_sums_to_null_on_frames_and_collections() -> None:
    import dask
    import dask.dataframe as dd

    table = pa.table(
        {
            "s": ["a", "b", "b", "c"],
            "f": pa.array([1.0, None, None, float("nan")], pa.float64()),
            "i": pa.array([1, None, None, 2], pa.int64()),
            "m": pa.array([1, None, None, 2], pa.int64()).cast(pa.decimal128(21, 2)),
        }
    )
    whole = PANDAS.from_arrow(table, Schema(tuple(Field(one.name, one.type) for one in table.schema)))
    with dask.config.set({"dataframe.convert-string": False}):
        collection = dd.from_pandas(whole, npartitions=2)
    alone = frames.group_sum(whole, "s", ["f", "i", "m"])
    spread = frames.group_sum(collection, "s", ["f", "i", "m"]).compute(scheduler="synchronous")
    for made in (alone, spread):
        assert list(made["s"]) == ["a", "b", "c"]
        assert repr(pa.array(made["f"]).to_pylist()) == "[1.0, None, nan]"
        assert pa.array(made["i"]).to_pylist() == pa.array(made["m"]).to_pylist() == [1, None, 2]
        assert list(made.dtypes) == list(alone.dtypes)
