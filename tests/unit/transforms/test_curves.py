"""Logarithms, powers, bounds, bins and quantiles against NumPy, scikit-learn and exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from etl.core.errors import CastError, ConfigError, DataError
from etl.transforms import Bucketize, Clip, FillNull, Log1p, Power, QuantileBins, Winsorize
from etl.transforms import quantiles as module
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from etl.transforms.quantiles import QuantilesOf, merged_quantiles, quantiles_of
from tests.preparing import fit, schema_of, through

reals = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)


def table(values: list[Any], kind: Any = None) -> pa.Table:
    return pa.table({"v": pa.array(values, kind or pa.float64())})


def column(steps: list[Any], values: pa.Table, parts: tuple[int, ...] = (), *, ulps: int = 0) -> list[Any]:
    found: list[Any] = through(steps, values, parts, ulps=ulps).column("v").to_pylist()
    return found


@settings(max_examples=25)
@given(st.lists(st.none() | st.floats(-0.999, 1e300), max_size=9))
def test_logarithms_are_numpys(values: list[float | None]) -> None:
    found = column([Log1p("v")], table(values), ulps=1)
    assert found == [None if one is None else np.float32(np.log1p(one)) for one in values]


def test_what_has_no_logarithm_is_refused_with_its_row() -> None:
    plan, states = fit([Log1p("v")], table([]))
    (batch,) = table([0.0, None, -1.0]).to_batches()
    with pytest.raises(CastError, match=r"column v, row 3: -1.0 has no logarithm"):
        applied(plan, states, Rows.of_batch(batch, plan.given))
    assert [*map(repr, column([Log1p("v")], table([math.inf, math.nan, -0.0])))] == ["inf", "nan", "-0.0"]


@pytest.mark.parametrize(("method", "low"), [("yeo-johnson", -5.0), ("box-cox", 0.1)])
@settings(max_examples=12)
@given(st.data())
def test_powers_are_the_likeliest(method: Any, low: float, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(1, 500).map(lambda i: low + i / 50), min_size=5, max_size=9, unique=True))
    cut = data.draw(st.integers(0, len(values)))
    _, states = fit([Power("v", method)], table(values), (cut,))
    figures = states[0]["v"]
    likely = stats.yeojohnson_llf if method == "yeo-johnson" else stats.boxcox_llf
    best = max(likely(power, np.array(values)) for power in np.arange(-80, 81) * 0.05)
    assert likely(figures["lambda"], np.array(values)) == pytest.approx(best, rel=1e-9, abs=1e-9)
    bent = (stats.yeojohnson if method == "yeo-johnson" else stats.boxcox)(np.array(values), figures["lambda"])
    expected = (bent - bent.mean()) / bent.std()
    assert column([Power("v", method)], table(values)) == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-4)


def test_box_cox_takes_only_what_is_above_zero() -> None:
    with pytest.raises(DataError, match="2 values of v are not above 0"):
        fit([Power("v", "box-cox")], table([1.0, 0.0, -1.0]))
    plan, states = fit([Power("v", "box-cox")], table([1.0, 2.0, 4.0]))
    (batch,) = table([1.0, -3.0]).to_batches()
    with pytest.raises(CastError, match=r"row 2: -3.0 is not above 0"):
        applied(plan, states, Rows.of_batch(batch, plan.given))
    assert column([Power("v")], table([2.0, 2.0, None])) == [0.0, 0.0, None]


@settings(max_examples=12)
@given(st.lists(st.none() | st.integers(-100, 100), max_size=9), st.integers(-50, 0), st.integers(1, 50))
def test_values_beyond_bounds_become_the_bounds(values: list[int | None], low: int, high: int) -> None:
    expected = [None if one is None else min(max(one, low), high) for one in values]
    for kind in (pa.int8(), pa.int64(), pa.float32(), pa.decimal128(9, 2)):
        given_values = [None if v is None else Decimal(v) for v in values] if pa.types.is_decimal(kind) else values
        made = through([Clip("v", low, high)], table(given_values, kind)).column("v")
        assert made.type == kind
        assert made.to_pylist() == expected
    plan, states = fit([Clip("v", low, high)], table(values, pa.int64()))
    for batch in table(values, pa.int64()).to_batches():
        rows = applied(plan, states, Rows.of_batch(batch, plan.given))
        beyond = sum(one is not None and not low <= one <= high for one in values)
        assert rows.tally == ({("v", "clipped"): beyond} if beyond else {})


def test_one_bound_is_enough_and_one_that_the_type_does_not_hold_is_refused() -> None:
    assert column([Clip("v", high=2)], table([1.0, math.nan, 3.0, math.inf]))[2:] == [2.0, 2.0]
    for low, kind in ((0.5, pa.int64()), (-1, pa.uint8()), (Decimal("0.001"), pa.decimal128(9, 2))):
        with pytest.raises(ConfigError, match="Clip"):
            fit([Clip("v", low)], table([], kind))
    for wrong in ({}, {"low": 2, "high": 1}, {"low": math.nan}, {"low": True}):
        with pytest.raises(ConfigError, match="Clip: low is"):
            Clip("v", **wrong)


@settings(max_examples=20)
@given(st.lists(reals, min_size=2, max_size=30), st.integers(0, 30))
def test_quantiles_are_numpys_whatever_the_parts(values: list[float], cut: int) -> None:
    _, states = fit([Winsorize("v", 0.1, 0.8)], table(values), (min(cut, len(values)),))
    low, high = np.quantile(values, [0.1, 0.8])
    assert states[0]["v"]["low"] == pytest.approx(low, rel=1e-12, abs=1e-9)
    assert states[0]["v"]["high"] == pytest.approx(high, rel=1e-12, abs=1e-9)
    found = column([Winsorize("v", 0.1, 0.8)], table(values))
    assert found == [min(max(one, states[0]["v"]["low"]), states[0]["v"]["high"]) for one in values]


@given(st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=9), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_quantiles_of_whole_numbers_are_exact(values: list[int], quantile: float) -> None:
    watching = QuantilesOf(schema_of(table([], pa.int64())), ["v"])
    for batch in table(values, pa.int64()).to_batches(max_chunksize=4):
        watching.take(batch)
    known = quantiles_of("x", "v", watching.state()["v"], pa.int64(), None, "skip")
    ordered = sorted(values)
    place = Fraction(quantile) * (len(values) - 1)
    low, rest = ordered[int(place)], place - int(place)
    assert known.at(quantile) == low + (ordered[min(int(place) + 1, len(values) - 1)] - low) * rest


def test_from_many_distinct_values_on_quantiles_are_close_whatever_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISTINCT", 1000)
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.lognormal(size=3000), -rng.lognormal(size=1000), [0.0, math.nan, math.inf]])
    found = []
    for cuts in ((), (10, 1500, 1501), (3999,)):
        states = []
        for part in np.split(values, cuts):
            watching = QuantilesOf(schema_of(table([])), ["v"])
            for batch in pa.table({"v": pa.array(part)}).to_batches(max_chunksize=400):
                watching.take(batch)
            states.append(watching.state()["v"])
        whole = states[0]
        for one in states[1:]:
            whole = merged_quantiles(whole, one)
        known = quantiles_of("x", "v", whole, pa.float64(), None, "skip")
        assert known.approximate
        assert (whole["nan"], whole["inf"]) == (1, 1)
        found.append([known.at(q) for q in (0.01, 0.2, 0.5, 0.9, 0.999)])
    assert found[0] == found[1] == found[2]
    expected = np.quantile(values[np.isfinite(values)], (0.01, 0.2, 0.5, 0.9, 0.999))
    np.testing.assert_allclose(found[0], expected, rtol=2**-8)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int32(), pa.decimal128(9, 1)])
def test_an_edge_is_in_the_bin_at_its_left(kind: Any) -> None:
    values: list[Any] = [0, 1, 2, 3, None]
    if pa.types.is_decimal(kind):
        values = [None if v is None else Decimal(v) for v in values]
    assert column([Bucketize("v", [1, 2])], table(values, kind)) == [0, 0, 1, 2, None]
    assert column([Bucketize("v", [1, 2], right=False)], table(values, kind)) == [0, 1, 2, 2, None]


def test_edges_are_compared_before_anything_is_rounded() -> None:
    assert column([Bucketize("v", [0.1])], table([0.1])) == [0]
    assert column([Bucketize("v", [0.1])], table([np.nextafter(0.1, 1)])) == [1]
    assert column([Bucketize("v", [2.5])], table([2, 3], pa.int64())) == [0, 1]
    big = (1 << 62) + 1
    assert column([Bucketize("v", [big])], table([big - 1, big, big + 1], pa.int64())) == [0, 0, 1]
    assert column([Bucketize("v", [1 << 70])], table([big], pa.int64())) == [0]
    assert column([Bucketize("v", [Decimal("1.15")])], table([Decimal("1.15")], pa.decimal128(38, 2))) == [0]
    with pytest.raises(CastError, match="row 1: NaN is in no bin"):
        column([Bucketize("v", [1])], table([math.nan]))


@given(st.lists(reals, min_size=4, max_size=40, unique=True), st.integers(2, 5))
def test_bins_between_quantiles_are_of_about_equal_size(values: list[float], bins: int) -> None:
    found = column([QuantileBins("v", bins)], table(values))
    edges = np.quantile(values, [at / bins for at in range(1, bins)])
    assert found == np.searchsorted(np.unique(edges), values).tolist() or max(found) < bins
    ordered = [found[at] for at in np.argsort(values)]
    assert ordered == sorted(ordered)
    counts = np.bincount(found, minlength=bins)
    assert counts.max() - counts.min() <= 2 + len(values) // bins


def test_equal_quantiles_are_one_edge_and_said() -> None:
    plan, states = fit([QuantileBins("v", 4)], table([1.0] * 9 + [2.0]))
    assert states[0]["v"]["edges"] == [1.0]
    assert plan.steps[0].warnings(states[0]) == ("v has 2 bins, since quantiles are equal",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("word", "values", "kind", "filled"),
    [
        ("median", [1, None, 2], pa.int64(), 2),
        ("median", [1, None, 3, 3, 1], pa.int64(), 2),
        ("median", [Decimal("0.1"), None, Decimal("0.4")], pa.decimal128(9, 1), Decimal("0.2")),
        ("median", [1.0, None, math.nan, 4.0], pa.float64(), 2.5),
        ("mode", ["b", None, "a", "b", "a"], pa.string(), "a"),
        ("mode", [3, None, 3, 1], pa.int8(), 3),
        ("mode", [True, None, True, False], pa.bool_(), True),
    ],
)
def test_nulls_are_filled_with_the_median_or_the_mode(word: str, values: Any, kind: Any, filled: Any) -> None:
    assert column([FillNull("v", word)], table(values, kind))[1] == filled
    assert column([FillNull("v", word)], table(values, kind), (1, 2))[1] == filled
