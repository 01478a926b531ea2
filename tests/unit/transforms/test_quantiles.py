"""Medians, modes and quantiles: of every type, exact, and within 2^-9 where there are too many values to count."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field, Schema
from etl.transforms import FillNull, Robust, Standardize, Winsorize
from etl.transforms import quantiles as module
from etl.transforms.fit import planned
from tests.preparing import fit, through

DAY = date(2024, 2, 28)
MOMENT = datetime(2024, 2, 28, 12, 0, 0)  # noqa: DTZ001 # a column without a zone


@pytest.mark.parametrize(
    ("kind", "values", "median"),
    [
        (pa.date32(), [DAY, date(2024, 3, 1)], date(2024, 2, 29)),
        (pa.date64(), [DAY, date(2024, 2, 29), date(2024, 2, 29)], date(2024, 2, 29)),
        (pa.timestamp("us"), [MOMENT, MOMENT + timedelta(microseconds=4)], MOMENT + timedelta(microseconds=2)),
        (pa.timestamp("s"), [MOMENT, MOMENT + timedelta(seconds=3)], MOMENT + timedelta(seconds=2)),
        (pa.timestamp("ms", "UTC"), [MOMENT.replace(tzinfo=UTC)], MOMENT.replace(tzinfo=UTC)),
        (pa.time64("us"), [time(1), time(3)], time(2)),
        (pa.duration("ms"), [timedelta(0), timedelta(milliseconds=5)], timedelta(milliseconds=2)),
    ],
    ids=str,
)
def test_moments_have_a_median_in_their_own_unit_and_a_mode(kind: Any, values: list[Any], median: Any) -> None:
    table = pa.table({"v": pa.array([None, *values], kind)})
    assert through([FillNull("v", "median")], table, (1, 2)).column("v").to_pylist() == [median, *values]
    mode = max(values, key=lambda one: (values.count(one), -values.index(one)))
    assert through([FillNull("v", "mode")], table, (2,)).column("v").to_pylist() == [mode, *values]


small = st.one_of(st.none(), st.integers(-3, 3))


@settings(max_examples=15)
@given(st.lists(small, min_size=1, max_size=25), st.lists(st.integers(0, 25), max_size=3))
@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.float32(), pa.decimal128(9, 0), pa.string()])
def test_the_mode_is_the_most_frequent_and_of_equals_the_smallest(
    kind: Any, values: list[int | None], cuts: list[int]
) -> None:
    known = [None if v is None else v + 3 for v in values]
    of: Any = str if kind == pa.string() else Decimal if pa.types.is_decimal(kind) else int
    table = pa.table({"v": pa.array([None if v is None else of(v) for v in known], kind)})
    present = Counter(v for v in known if v is not None)
    parts = sorted(min(c, len(values)) for c in cuts)
    if not present:
        with pytest.raises(DataError, match="column v has no value"):
            fit([FillNull("v", "mode")], table, parts)
        return
    mode = min(present, key=lambda one: (-present[one], one))
    out = through([FillNull("v", "mode")], table, parts).column("v").to_pylist()
    assert out == [of(mode if v is None else v) for v in known]


def test_neither_nan_nor_infinities_are_a_mode_or_a_median() -> None:
    table = pa.table({"v": [math.nan, math.nan, math.inf, math.inf, 1.0, 3.0, -0.0, 0.0, None]})
    assert through([FillNull("v", "mode")], table).column("v").to_pylist()[-1] == 0.0
    assert through([FillNull("v", "median")], table).column("v").to_pylist()[-1] == 0.5
    with pytest.raises(DataError, match="column v has no value"):
        fit([FillNull("v", "mode")], pa.table({"v": [math.nan, None]}))


def test_labels_have_a_mode_and_no_median() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    table = pa.table({"v": pa.array(["b", None, "a", "b"]).cast(kind)})
    assert through([FillNull("v", "mode")], table).column("v").cast(pa.string()).to_pylist() == ["b", "b", "a", "b"]
    for other, word in ((kind, "median"), (pa.string(), "median"), (pa.bool_(), "median"), (pa.binary(), "mode")):
        with pytest.raises(ConfigError, match=f"has no {word}"):
            planned([FillNull("v", word)], Schema((Field("v", other),)))


@settings(max_examples=12)
@given(
    st.lists(st.none() | st.integers(-1000, 1000), min_size=2, max_size=30),
    st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(9, 0)]),
    st.sampled_from(["median", "mean"]),
)
def test_a_filled_column_is_fitted_in_one_reading_as_in_two(values: list[int | None], kind: Any, word: str) -> None:
    if all(v is None for v in values):
        return
    whole = [None if v is None else Decimal(v) for v in values] if pa.types.is_decimal(kind) else values
    table = pa.table({"v": pa.array(whole, kind)})
    first = FillNull("v", word)
    steps: list[Any] = [Standardize("v"), Robust("v"), Winsorize("v", 0.2, 0.7)]
    full = through([first], table)
    for step in steps:
        plan, states = fit([first, step], table, (1,))
        assert plan.count == 1
        _, apart = fit([step], full)
        once, twice = dict(states[1]["v"]), dict(apart[0]["v"])
        for figures in (once, twice):
            figures.pop("skipped", None)
        assert once.keys() == twice.keys()
        for name, one in once.items():
            assert one == twice[name] if isinstance(one, str) else one == pytest.approx(twice[name], rel=1e-12)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60), st.floats(0, 1))
def test_a_histogram_is_within_two_to_the_minus_nine(values: list[float], quantile: float) -> None:
    numbers = np.array(values)
    whole = {"rows": 0, "null": 0, "nan": 0, "inf": 0, "bins": module._binned(numbers)}
    known = module.quantiles_of("x", "v", whole, pa.float64(), None, "skip")
    for at, one in enumerate(sorted(values)):
        found = known._nth(at)
        assert abs(found - one) <= max(abs(one) * 2**-9, 1e-300)
    assert known.at(0.0) <= known.at(quantile) <= known.at(1.0)


def test_zeros_stay_zero_in_a_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISTINCT", 10)
    values = [0.0] * 50 + [float(one) for one in range(1, 30)]
    _, states = fit([FillNull("v", "median")], pa.table({"v": [*values, None]}), (40, 60))
    assert states[0]["v"] == 0.0


@pytest.mark.parametrize("exact", [False, True])
def test_exact_keeps_every_value_and_the_switch_does_not_depend_on_parts(
    monkeypatch: pytest.MonkeyPatch,
    exact: Any,
) -> None:
    monkeypatch.setattr(module, "DISTINCT", 50)
    values = np.random.default_rng(0).permutation(np.arange(51) * 1.001)
    found = []
    for parts in ((), (10, 20), (50,), (1, 2, 3, 30)):
        _, states = fit([Winsorize("v", 0.25, 0.5, exact=exact)], pa.table({"v": pa.array(values)}), parts)
        found.append(states[0]["v"])
    assert all(one == found[0] for one in found)
    assert found[0]["approximate"] is not exact
    assert (found[0]["high"] == 25 * 1.001) is exact
    _, states = fit([Winsorize("v", 0.25, 0.5)], pa.table({"v": pa.array(np.append(values[:-1], values[0]))}), (9,))
    assert states[0]["v"]["approximate"] is False


def test_a_quantile_is_the_one_that_was_written() -> None:
    table = pa.table({"v": [(1 << 60) + one for one in range(11)]})
    _, states = fit([Winsorize("v", 0.1, 0.7)], table)
    assert (states[0]["v"]["low"], states[0]["v"]["high"]) == ((1 << 60) + 1, (1 << 60) + 7)
    known = module.Quantiles(2, approximate=False, values=np.array([-1e308, 1e308]), ends=np.array([1, 2]))
    assert known.at(0.75) == 5e307
    assert module.Quantiles(2, approximate=False, values=np.array([1, 2]), ends=np.array([1, 2])).at(0.1) == Fraction(
        11, 10
    )
