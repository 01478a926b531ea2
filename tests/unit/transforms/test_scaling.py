"""Standardize by key, MinMax, MaxAbs, Robust and Quantize against scikit-learn and exact arithmetic."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler

from etl.core.errors import CastError, ConfigError, DataError
from etl.transforms import FillNull, MaxAbs, MinMax, Power, Quantize, Robust, Standardize, Winsorize
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from etl.transforms.reals import CHUNK
from tests.preparing import both, fit, through

reals = st.integers(-(10**7), 10**7).map(lambda i: i / 64)
columns = st.lists(st.none() | reals, min_size=1, max_size=9).map(lambda found: [*found, 1.5])


def table(values: list[Any], kind: Any = None) -> pa.Table:
    return pa.table({"v": pa.array(values, kind or pa.float64())})


def column(steps: list[Any], values: pa.Table, parts: tuple[int, ...] = ()) -> list[Any]:
    found: list[Any] = through(steps, values, parts).column("v").to_pylist()
    return found


@settings(max_examples=15)
@pytest.mark.parametrize(
    ("step", "scaler"),
    [
        (MinMax("v"), MinMaxScaler()),
        (MinMax("v", low=-1.0, high=3.0), MinMaxScaler((-1, 3))),
        (MaxAbs("v"), MaxAbsScaler()),
        (Robust("v"), RobustScaler()),
        (Robust("v", quantiles=(0.1, 0.6)), RobustScaler(quantile_range=(10, 60))),
    ],
    ids=repr,
)
@given(columns, st.integers(0, 12))
def test_scales_are_scikit_learns(step: Any, scaler: Any, values: list[float | None], cut: int) -> None:
    found = column([step], table(values), (min(cut, len(values)),))
    known = np.array([one for one in values if one is not None])[:, None]
    expected = iter(scaler.fit(known).transform(known)[:, 0])
    spread = known.max() - known.min() if not isinstance(step, MaxAbs) else 1.0
    for one, made in zip(values, found, strict=True):
        if one is None:
            assert made is None
        elif spread and not (isinstance(step, Robust) and scaler.scale_[0] == 1.0):
            assert made == pytest.approx(next(expected), rel=1e-5, abs=1e-5)
        else:
            next(expected)
            assert made == pytest.approx(0.0 if not isinstance(step, MinMax) else made)


whole = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2, max_size=8, unique=True)


@settings(max_examples=20)
@given(whole, st.integers(0, 8))
def test_whole_numbers_of_any_size_keep_their_place(values: list[int], cut: int) -> None:
    least, most = min(values), max(values)
    found = column([MinMax("v")], table(values, pa.int64()), (min(cut, len(values)),))
    for one, made in zip(values, found, strict=True):
        assert made == pytest.approx(float(Fraction(one - least, most - least)), rel=1e-6, abs=1e-9)
    near = [(1 << 62) + at for at in (0, 1, 2)]
    assert column([MinMax("v")], table(near, pa.int64())) == [0.0, 0.5, 1.0]
    assert column([MinMax("v")], table([(1 << 63) + at for at in (0, 1, 2)], pa.uint64())) == [0.0, 0.5, 1.0]


def test_columns_without_a_spread_are_level_and_say_so() -> None:
    flat = table([2.0, 2.0, None, math.nan, math.inf])
    for step, value in ((MinMax("v", low=5.0, high=6.0), 5.0), (MaxAbs("v"), 1.0), (Robust("v"), 0.0)):
        plan, states = fit([step], flat)
        (batch,) = flat.to_batches()
        found = both(plan, states, batch).column(0).to_pylist()
        assert found[:3] == [value, value, None]
        assert str(found[3]) == "nan"
        assert found[4] == math.inf
        if not isinstance(step, MaxAbs):
            assert len(step.warnings(states[0])) == 1


def test_values_beyond_are_counted_and_clipped_where_that_is_asked_for() -> None:
    for clip, expected in ((False, [-1.0, 2.0, None]), (True, [0.0, 1.0, None])):
        plan, states = fit([MinMax("v", clip=clip)], table([0.0, 10.0]))
        (batch,) = table([-10.0, 20.0, None]).to_batches()
        assert both(plan, states, batch).column(0).to_pylist() == expected
        rows = applied(plan, states, Rows.of_batch(batch, plan.given))
        assert rows.tally == {("v", "out_of_range"): 2}


def test_decimals_and_filled_columns_are_exact() -> None:
    money = table([Decimal("1.10"), Decimal("3.30"), None], pa.decimal128(9, 2))
    assert column([MinMax("v")], money) == [0.0, 1.0, None]
    assert column([FillNull("v", Decimal("5.50")), MinMax("v")], money) == pytest.approx([0.0, 0.5, 1.0])
    assert column([FillNull("v", 9.0), Robust("v")], table([1.0, None, 3.0])) == pytest.approx([-0.5, 1.5, 0.0])


def test_a_key_has_its_own_scale_and_one_never_seen_that_of_all_rows() -> None:
    fitted = pa.table({"v": [1.0, 3.0, 10.0, 30.0, 7.0], "k": ["a", "a", "b", "b", None]})
    mean, std = statistics.fmean([1, 3, 10, 30, 7]), statistics.pstdev([1, 3, 10, 30, 7])
    given_rows = pa.table({"v": [3.0, 30.0, 9.0, 8.0, None], "k": ["a", "b", "new", None, "a"]})
    (batch,) = given_rows.to_batches()
    plan, states = fit([Standardize("v", by="k")], fitted, (2,))
    found = both(plan, states, batch).column("v").to_pylist()
    assert found == [1.0, 1.0, pytest.approx((9 - mean) / std), 0.0, None]
    rows = applied(plan, states, Rows.of_batch(batch, plan.given))
    assert rows.tally == {("k", "unseen"): 1}
    plan, states = fit([Standardize("v", by="k", unseen="error")], fitted)
    with pytest.raises(CastError, match="column k, row 3: its key was never seen"):
        applied(plan, states, Rows.of_batch(batch, plan.given))


def test_figures_of_keys_do_not_depend_on_parts() -> None:
    rng = np.random.default_rng(1)
    rows = pa.table({"v": pa.array(1e8 + rng.normal(size=2000)), "k": pa.array(rng.integers(0, 40, 2000))})
    one, many = (fit([Standardize("v", by="k")], rows, cut, batch_rows=317)[1][0]["v"] for cut in ((), (3, 900, 1500)))
    for name in ("mean", "std"):
        np.testing.assert_allclose(one["keys"][name].to_numpy(), many["keys"][name].to_numpy(), rtol=1e-10)


@given(columns)
def test_steps_are_the_nearest(values: list[float | None]) -> None:
    plan, states = fit([Quantize("v")], table(values))
    (batch,) = table(values).combine_chunks().to_batches()
    found = both(plan, states, batch).column(0).to_pylist()
    scale = states[0]["v"]["scale"]
    assert scale == max(abs(one) for one in values if one is not None) / 127
    for one, made in zip(values, found, strict=True):
        assert made is None if one is None else made == (round(one / scale) if scale else 0)


def test_steps_beyond_are_clipped_and_counted_and_the_scale_is_said() -> None:
    plan, states = fit([Quantize("v")], table([-1.0, 1.27]))
    (batch,) = table([2.0, -5.0, math.inf, 0.01, None]).to_batches()
    rows = applied(plan, states, Rows.of_batch(batch, plan.given))
    assert rows["v"].data.tolist()[:4] == [127, -127, 127, 1]
    assert rows.tally == {("v", "clipped"): 3}
    assert Quantize("v").describes("v", states[0], {}) == {"quant": {"scale": pytest.approx(0.01), "bits": 8}}
    with pytest.raises(CastError, match="row 1: NaN is no step"):
        through([Quantize("v")], table([math.nan, 1.0]))


@pytest.mark.parametrize("step", [MinMax("v", nan="error"), MaxAbs("v", nan="error"), Robust("v", nan="error")])
def test_nan_is_refused_where_that_is_asked_for(step: Any) -> None:
    with pytest.raises(DataError, match="1 values of v are NaN"):
        fit([step], table([1.0, math.nan]))


@pytest.mark.parametrize("step", [MinMax("v"), MaxAbs("v"), Robust("v"), Quantize("v")])
def test_a_column_without_values_cannot_be_fitted(step: Any) -> None:
    for rows in (table([None, math.nan, math.inf]), table([])):
        with pytest.raises(DataError, match="column v has no value"):
            fit([step], rows)


def test_what_there_is_not_is_refused() -> None:
    for make in (
        lambda: MinMax("v", low=1.0, high=1.0),
        lambda: MinMax("v", low=math.nan),
        lambda: Robust("v", quantiles=(0.9, 0.1)),
        lambda: Standardize("v", by="v"),
        lambda: Quantize("v", bits=4),
        lambda: MaxAbs("v", nan="maybe"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            make()
    with pytest.raises(ConfigError, match="v is string, not a number"):
        fit([MinMax("v")], table(["a"], pa.string()))


@pytest.mark.parametrize(
    "step",
    [Standardize("v"), MinMax("v"), MaxAbs("v"), Robust("v"), Quantize("v"), Winsorize("v"), Power("v")],
    ids=repr,
)
def test_what_was_skipped_is_counted_in_the_state(step: Any) -> None:
    values = table([1.0, None, math.nan, math.inf, -math.inf, 2.0, None])
    _, states = fit([step], values, (2, 4))
    assert states[0]["v"]["skipped"] == {"null": 2, "nan": 1, "inf": 2}
    _, states = fit([FillNull("v", "median"), step], values, (2, 4))
    assert states[1]["v"]["skipped"] == {"null": 0, "nan": 1, "inf": 2}
    refusing = replace(step, nan="error")
    with pytest.raises(DataError, match="1 values of v are NaN"):
        fit([refusing], values, (2, 4))


@pytest.mark.parametrize("kind", [pa.decimal128(5, 1), pa.decimal128(38, 10), pa.int64(), pa.uint64(), pa.float32()])
@given(st.lists(st.integers(0, 9999), min_size=2, max_size=20, unique=True))
def test_what_was_seen_is_in_range_and_reaches_both_ends(kind: Any, values: list[int]) -> None:
    made: list[Any] = [Decimal(v) / 10 for v in values] if pa.types.is_decimal(kind) else values
    if kind in (pa.int64(), pa.uint64()):
        made = [v + (1 << 62) for v in values]
    given_table = table(made, kind)
    plan, states = fit([MinMax("v", low=-1.0, high=1.0)], given_table)
    rows = Rows.of_batch(given_table.to_batches()[0], plan.given)
    found = applied(plan, states, rows)["v"].data
    assert rows.tally == {}
    assert (found.min(), found.max()) == (-1.0, 1.0)
    assert (found[values.index(min(values))], found[values.index(max(values))]) == (-1.0, 1.0)


def test_a_result_beyond_float64_is_refused_and_so_is_a_range() -> None:
    with pytest.raises(DataError, match="the range of v is beyond float64"):
        fit([MinMax("v")], table([-1e308, 1e308]))
    for step in (Standardize("v"), MinMax("v"), MaxAbs("v"), Robust("v")):
        plan, states = fit([step], table([0.0, 1e-120, 2e-120]))
        for way in (applied, None):
            (batch,) = table([1e300, 1.0]).to_batches()
            with pytest.raises(CastError, match=r"value of v is beyond float32|column v, row 1: .* inf is beyond"):
                both(plan, states, batch) if way is None else way(plan, states, Rows.of_batch(batch, plan.given))


def test_a_filled_column_has_its_figures_by_key() -> None:
    values = pa.table({"k": ["a", "a", "b", "b", None, "a"], "v": [1.0, 3.0, None, 10.0, 4.0, None]})
    plan, states = fit([FillNull("v", "mean"), Standardize("v", by="k")], values, (2, 4))
    full = values.set_column(1, "v", pa.array([1.0, 3.0, 4.5, 10.0, 4.0, 4.5]))
    _, apart = fit([Standardize("v", by="k")], full, (2, 4))
    assert plan.count == 2
    assert states[1]["v"]["keys"].equals(apart[0]["v"]["keys"])


def test_many_rows_are_scaled_piece_by_piece() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.normal(3, 2, 2 * CHUNK + 7)
    absent = rng.random(len(numbers)) < 0.1
    keys = pa.array(rng.integers(0, 5, len(numbers)))
    given_table = pa.table({"v": pa.array(numbers, mask=absent), "k": keys})
    for step in (Standardize("v"), MinMax("v", clip=True), Robust("v"), Standardize("v", by="k"), Quantize("v")):
        plan, states = fit([step], given_table, batch_rows=1 << 20)
        (whole,) = given_table.combine_chunks().to_batches()
        made = applied(plan, states, Rows.of_batch(whole, plan.given)).batch(plan.returns)
        pieces = [
            applied(plan, states, Rows.of_batch(one, plan.given)).batch(plan.returns)
            for one in given_table.to_batches(max_chunksize=1000)
        ]
        assert pa.Table.from_batches(pieces).combine_chunks().equals(pa.Table.from_batches([made]))
    plan, states = fit([Standardize("v")], given_table, batch_rows=1 << 20)
    numbers = np.append(numbers[:-1], 1e300)
    (whole,) = pa.table({"v": pa.array(numbers), "k": keys}).to_batches()
    with pytest.raises(CastError, match=f"column v, row {len(numbers)}: "):
        applied(plan, states, Rows.of_batch(whole, plan.given))


@settings(max_examples=15)
@pytest.mark.parametrize(
    ("kind", "offset"), [(pa.int64(), 0), (pa.int64(), -(1 << 62)), (pa.uint64(), (1 << 64) - 2000)]
)
@given(
    st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.integers(0, 1000)), min_size=1, max_size=20),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_large_integers_keep_their_spread_by_key(
    kind: Any, offset: int, pairs: list[tuple[int | None, int | None]], cuts: list[int]
) -> None:
    values = [None if v is None else v + offset for _, v in pairs]
    present = [v for v in values if v is not None]
    if not present:
        return
    given_table = pa.table({"k": pa.array([k for k, _ in pairs], pa.int8()), "v": pa.array(values, kind)})
    parts = sorted(min(c, len(pairs)) for c in cuts)
    out = through([Standardize("v", by="k")], given_table, parts).column("v").to_pylist()
    for (key, _), value, made in zip(pairs, values, out, strict=True):
        if value is None:
            assert made is None
            continue
        own = [v for (k, _), v in zip(pairs, values, strict=True) if k == key and v is not None]
        mean = Fraction(sum(own), len(own))
        spread = math.sqrt(sum((v - mean) ** 2 for v in own) / len(own))
        assert made == pytest.approx(float(value - mean) / spread if spread else 0.0, rel=1e-6, abs=1e-6)
    plan, states = fit([Standardize("v", by="k")], given_table, parts)
    (batch,) = pa.table({"k": pa.array([9], pa.int8()), "v": pa.array(present[:1], kind)}).to_batches()
    mean = Fraction(sum(present), len(present))
    spread = math.sqrt(sum((v - mean) ** 2 for v in present) / len(present))
    found = applied(plan, states, Rows.of_batch(batch, plan.given))["v"].data[0]
    assert found == pytest.approx(float(present[0] - mean) / spread if spread else 0.0, rel=1e-6, abs=1e-6)
