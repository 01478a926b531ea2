"""Bins against exact arithmetic: numbers of every type, few edges and many, one row and many."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import KBinsDiscretizer

from etl.core.errors import CastError
from etl.transforms import Bucketize, QuantileBins
from etl.transforms import bins as module
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from etl.transforms.reals import CHUNK
from tests.preparing import fit, through

LONG = Context(prec=60)
wholes = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 9)
edges = st.lists(
    st.integers(-(1 << 65), 1 << 65) | st.integers(-9, 9) | st.integers(-90, 90).map(lambda one: one / 10),
    min_size=1,
    max_size=8,
    unique_by=Fraction,
).map(lambda found: sorted(found, key=Fraction))


def binned(step: Any, values: list[Any], kind: pa.DataType, *, batch_rows: int = 100) -> list[int | None]:
    table = pa.table({"v": pa.array(values, kind)})
    found: list[int | None] = through([step], table, batch_rows=batch_rows).column("v").to_pylist()
    return found


@settings(max_examples=15)
@pytest.mark.parametrize("few", [64, 0], ids=["compared", "searched"])
@pytest.mark.parametrize("right", [True, False], ids=["right", "left"])
@given(values=st.lists(st.none() | wholes, max_size=12), known=edges)
def test_whole_numbers_and_decimals_are_compared_exactly(
    few: int, values: list[int | None], known: list[Any], right: Any
) -> None:
    kept, module.FEW = module.FEW, few  # type: ignore[misc] # both ways give the same
    try:
        side = bisect_left if right else bisect_right
        exact = [Fraction(one) for one in known]
        expected = [None if one is None else side(exact, Fraction(one)) for one in values]
        assert binned(Bucketize("v", known, right=right), values, pa.int64()) == expected
        assert binned(Bucketize("v", known, right=right), values, pa.int64(), batch_rows=1) == expected
        above = [None if one is None else one + (1 << 63) for one in values]
        expected = [None if one is None else side(exact, Fraction(one)) for one in above]
        assert binned(Bucketize("v", known, right=right), above, pa.uint64()) == expected
        for scale, factor in ((1, 1), (1, 10**15)):  # within 64 bits, and beyond
            digits = [None if one is None else Decimal(one * factor).scaleb(-scale, LONG) for one in values]
            shortest = [Fraction(str(one)) for one in known]
            expected = [None if one is None else side(shortest, Fraction(one)) for one in digits]
            assert binned(Bucketize("v", known, right=right), digits, pa.decimal128(38, scale)) == expected
    finally:
        module.FEW = kept  # type: ignore[misc]


@settings(max_examples=12)
@pytest.mark.parametrize("few", [64, 0], ids=["compared", "searched"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@given(values=st.lists(st.none() | st.floats(width=32, allow_nan=False), max_size=12), known=edges)
def test_floats_are_compared_as_float64(few: int, kind: pa.DataType, values: list[float | None], known: Any) -> None:
    kept, module.FEW = module.FEW, few  # type: ignore[misc]
    try:
        floats = sorted({float(one) for one in known})
        expected = [None if one is None else bisect_left(floats, one) for one in values]
        assert binned(Bucketize("v", floats), values, kind) == expected
        assert binned(Bucketize("v", floats), values, kind, batch_rows=1) == expected
    finally:
        module.FEW = kept  # type: ignore[misc]


def test_what_was_written_as_an_edge_counts_among_decimals() -> None:
    tenths = [Decimal("0.0"), Decimal("0.1"), Decimal("0.2")]
    assert binned(Bucketize("v", [0.1], right=False), tenths, pa.decimal128(5, 1)) == [0, 1, 1]
    assert binned(Bucketize("v", [0.1]), tenths, pa.decimal128(5, 1)) == [0, 0, 1]
    assert binned(QuantileBins("v", 2), tenths, pa.decimal128(5, 1)) == [0, 0, 1]


def test_nan_is_refused_with_its_row_in_any_piece() -> None:
    many = np.zeros(2 * CHUNK + 5)
    many[-2] = math.nan
    plan, _ = fit([Bucketize("v", [1.0])], pa.table({"v": [0.0]}))
    for values, row in ((many, len(many) - 1), (np.array([math.nan]), 1)):
        (batch,) = pa.table({"v": pa.array(values)}).to_batches()
        with pytest.raises(CastError, match=f"row {row}: NaN is in no bin"):
            applied(plan, {}, Rows.of_batch(batch, plan.given))


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=40, unique=True), st.integers(2, 5))
def test_bins_between_quantiles_are_scikit_learns(values: list[int], bins: int) -> None:
    scaler = KBinsDiscretizer(bins, encode="ordinal", strategy="quantile", quantile_method="linear")
    scaler.fit(np.array(values, np.float64)[:, None])
    _, states = fit([QuantileBins("v", bins)], pa.table({"v": values}), (3,))
    assert states[0]["v"]["edges"] == pytest.approx(scaler.bin_edges_[0][1:-1].tolist(), rel=1e-12, abs=1e-9)


def test_quantiles_of_large_integers_part_them_exactly() -> None:
    values = [(1 << 60) + at for at in range(8)]
    assert binned(QuantileBins("v", 4), values, pa.int64()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert binned(QuantileBins("v", 4), [*values[:4], None, *values[4:]], pa.int64())[4] is None
