"""Drift of two versions: every measure against plain Python on all values, and limits that are passed or not."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.core.schema import Field
from etl.tensors.drift import ColumnDrift, Limits, beyond, drift_of, incomparable
from etl.tensors.psi import psi, stability
from etl.tensors.stats import PartStats
from etl.tensors.summary import combined, summary

COUNTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=20)


def stats(column: Any, parts: int = 1) -> dict[str, Any]:
    """The statistics of a column, cut into so many parts."""
    found = []
    for part in range(parts):
        one = PartStats([Field("v", column.type, nullable=True)], part)
        rows = column.take(pa.array(np.arange(part, len(column), parts)))
        one.take(pa.RecordBatch.from_arrays([rows], names=["v"]))
        found.append(one.done()["v"])
    return summary(column.type, found)


def column(values: Any, *, kind: str, role: str = "feature", split: str = "all", **more: object) -> dict[str, Any]:
    return {"name": "v", "role": role, "kind": kind, "stats": {split: stats(values)}, **more}


def drifted(old: Any, new: Any, kind: str, role: str = "feature") -> ColumnDrift:
    (one,) = drift_of(
        {"columns": [column(old, kind=kind, role=role)]}, {"columns": [column(new, kind=kind, role=role)]}
    )
    return one


@given(COUNTS, st.data())
def test_the_index_is_what_its_formula_says(old: list[int], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.integers(0, 10_000), min_size=len(old), max_size=len(old)))
    found = psi(old, new)
    assert found >= 0
    assert found == pytest.approx(psi(new, old), rel=1e-12, abs=1e-15)
    assert psi(old, old) == 0
    if sum(old) and sum(new):
        plain = 0.0
        for a, b in zip(old, new, strict=True):
            if a + b:
                p, q = max(a, 0.5) / sum(old), max(b, 0.5) / sum(new)
                plain += (q - p) * (math.log(q) - math.log(p))
        assert found == pytest.approx(plain, rel=1e-9, abs=1e-12)


@given(st.integers(1, 500), st.integers(1, 20))
def test_more_rows_of_the_same_shares_are_no_change(rows: int, times: int) -> None:
    old = [rows, 2 * rows, 3 * rows]
    assert psi(old, [times * n for n in old]) == pytest.approx(0, abs=1e-12)


def test_the_index_grows_with_the_distance() -> None:
    found = [psi([50, 50], [50 + n, 50 - n]) for n in range(51)]
    assert found == sorted(found)
    assert len(set(found)) == 51


def test_joining_bins_never_raises_the_index() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        old, new = (rng.integers(1, 1000, 8).tolist() for _ in range(2))
        joined = [[side[0] + side[1], *side[2:]] for side in (old, new)]
        assert psi(*joined) <= psi(old, new) + 1e-12


@given(
    st.lists(st.floats(-50, 50).map(lambda v: round(v, 1)), min_size=30, max_size=90),
    st.lists(st.floats(-50, 50).map(lambda v: round(v, 1)), min_size=30, max_size=90),
)
def test_the_range_holds_the_index_of_all_values(old: list[float], new: list[float]) -> None:
    one, two = stats(pa.array(old, pa.float64())), stats(pa.array(new, pa.float64()))
    found = stability("continuous", one, two)
    assert found is not None
    assert 0 <= found.least <= found.value <= found.most
    same = stability("continuous", one, one)
    assert same is not None
    assert same.value == same.least == 0
    if len(set(old)) > 20 or len(set(new)) > 20:
        tenths = {one["quantiles"][f"{n / 10!r}"] for n in range(1, 10)}
        ends = sorted(tenths)
        true = psi(*(np.bincount(np.searchsorted(ends, side), minlength=len(ends) + 1).tolist() for side in (old, new)))
        assert found.least - 1e-9 <= true <= found.most + 1e-9
    else:
        counts = Counter(v + 0.0 for v in old), Counter(v + 0.0 for v in new)
        values = {*counts[0], *counts[1]}
        assert found.value == pytest.approx(psi(*([side[v] for v in values] for side in counts)))


def test_the_estimate_is_near_that_of_all_values() -> None:
    rng = np.random.default_rng(11)
    for shift, scale in ((0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (0.0, 2.0), (-2.0, 0.5)):
        old, new = rng.normal(size=40_000), rng.normal(shift, scale, 40_000)
        found = stability("continuous", stats(pa.array(old), 20), stats(pa.array(new), 20))
        ends = np.quantile(old, np.arange(1, 10) / 10)
        true = psi(*(np.bincount(np.searchsorted(ends, side), minlength=10).tolist() for side in (old, new)))
        assert found is not None
        assert found.value == pytest.approx(true, rel=0.15, abs=0.01)
        assert len(found.bins) == 10
        assert found.chance < 0.002


def test_values_that_are_listed_are_compared_one_by_one() -> None:
    old = pa.array(["a"] * 60 + ["b"] * 30 + ["c"] * 10 + [None] * 10)
    new = pa.array(["a"] * 30 + ["b"] * 30 + ["d"] * 40)
    one = drifted(old, new, "text")
    assert one.psi == pytest.approx(psi([60, 30, 10, 0], [30, 30, 0, 40]))
    assert (one.appeared, one.gone, one.new_categories, one.gone_categories) == (("d",), ("c",), 1, 1)
    assert one.null == (10 / 110, 0.0)
    assert one.mean is None
    assert one.stability is not None
    assert one.stability.least == one.stability.most == one.psi


def test_values_beyond_those_listed_are_one_bin() -> None:
    rng = np.random.default_rng(5)
    words = np.array([f"w{i:02}" for i in range(40)])
    old, new = (pa.array(words[rng.zipf(1.5, 900).clip(1, 40) - 1].tolist()) for _ in range(2))
    one = drifted(old, new, "text")
    assert one.stability is not None
    assert one.stability.bins[-1][0] == "every other value"
    assert one.stability.most == math.inf
    counts = Counter(old.to_pylist()), Counter(new.to_pylist())
    names = sorted({*counts[0], *counts[1]})
    assert one.stability.value <= psi(*([side[name] for name in names] for side in counts)) + 1e-9
    assert (one.new_categories, one.gone_categories) == (None, None)
    few = pa.array(["w00"] * 50 + ["w01"] * 50)
    grown = drifted(few, old, "text")
    assert grown.new_categories == len(counts[0]) - 2
    assert grown.appeared


def test_means_and_spreads_are_in_old_deviations() -> None:
    old, new = [1.0, 2.0, 3.0, 4.0], [3.0, 6.0, 9.0, 12.0]
    one = drifted(pa.array(old), pa.array(new), "continuous")
    assert one.mean == (2.5, 7.5)
    assert one.mean_shift == pytest.approx(5 / np.std(old))
    assert one.spread_ratio == pytest.approx(3)
    assert drifted(pa.array(new), pa.array(old), "continuous").spread_ratio == pytest.approx(3)
    still = drifted(pa.array([2.0] * 4), pa.array(old), "continuous")
    assert (still.mean_shift, still.spread_ratio) == (math.inf, math.inf)
    assert still.as_json()["mean_shift"] == "inf"
    equal = drifted(pa.array([2.0] * 4), pa.array([2.0] * 9), "continuous")
    assert (equal.mean_shift, equal.spread_ratio, equal.psi) == (0.0, 1.0, 0.0)


def test_absent_values_and_nan_have_their_own_measure() -> None:
    old = pa.array([1.0, 2.0, 3.0, 4.0])
    one = drifted(old, pa.array([1.0, 2.0, 3.0, math.nan]), "continuous")
    assert (one.null, one.nan, one.null_change) == ((0.0, 0.0), (0.0, 0.25), 0.25)
    none = drifted(old, pa.array([None] * 4, pa.float64()), "continuous")
    assert (none.null_change, none.psi, none.mean_shift) == (1.0, None, None)
    infinite = drifted(old, pa.array([1.0, math.inf, -math.inf, 4.0] * 30), "continuous")
    assert infinite.psi is not None
    assert math.isfinite(infinite.psi)


def test_limits_name_column_measure_value_and_limit() -> None:
    old, new = pa.array([float(i % 50) for i in range(500)]), pa.array([float(i % 50) + 40 for i in range(500)])
    one = drifted(old, new, "continuous")
    assert beyond([one], Limits()) == ()
    assert one.psi is not None
    assert beyond([one], Limits(psi=one.psi, mean_shift=one.mean_shift, null_change=0)) == ()
    psi_passed, shift = beyond([one], Limits(psi=0.2, mean_shift=0.5, spread_ratio=1.5))
    assert (psi_passed.column, psi_passed.split, psi_passed.measure, psi_passed.limit) == ("v", "all", "psi", 0.2)
    assert psi_passed.value == one.psi
    assert "column v: mean_shift 2.77" in str(shift)
    assert shift.as_json()["limit"] == 0.5


def test_new_keys_and_later_times_are_no_drift_unless_asked_for() -> None:
    old, new = pa.array(range(100)), pa.array(range(100, 200))
    limits = Limits(psi=0.1)
    for role, kind in (("key", "integer"), ("feature", "timestamp"), ("feature", "integer")):
        one = drifted(old, new, kind, role)
        assert beyond([one], limits) == ()
        assert len(beyond([one], limits, ["v"])) == 1
        with pytest.raises(ConfigError, match="nothing to compare of column w"):
            beyond([one], limits, ["w"])


@pytest.mark.parametrize("wrong", [{"psi": -0.1}, {"spread_ratio": 0.5}, {"psi": math.nan}, {"new_categories": -1}])
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the limit"):
        Limits(**wrong)


def test_versions_of_other_splits_are_compared_as_wholes() -> None:
    values = pa.array([1.0, 2.0, 3.0, 4.0])
    old, new = column(values, kind="continuous", split="train"), column(values, kind="continuous")
    old["stats"]["test"] = stats(pa.array([9.0] * 4))
    (one,) = drift_of({"columns": [old]}, {"columns": [new]})
    assert (one.split, one.rows) == ("all", (8, 4))
    both = combined("continuous", old["stats"]["train"], old["stats"]["test"])
    assert one.mean == (both["mean"], 2.5)


def test_columns_that_are_others_are_not_compared() -> None:
    values = pa.array([1.0, 2.0])
    one, two = column(values, kind="continuous"), column(pa.array(["1", "2"]), kind="text")
    for other, why in (
        ({"columns": [two]}, "was continuous and is text"),
        ({"columns": [{**one, "stats": {}}]}, "has no statistics to compare"),
        ({"columns": [{**one, "role": "target"}]}, "is not there any more"),
        ({}, "is not there any more"),
    ):
        assert drift_of({"columns": [one]}, other) == ()
        assert incomparable({"columns": [one]}, other, ()) == {"v": why}
    same = drift_of({"columns": [one]}, {"columns": [one]})
    assert incomparable({"columns": [one]}, {"columns": [one]}, same) == {}


def test_numbers_of_another_type_are_still_numbers() -> None:
    for values in (list(range(12)), list(range(300))):
        exact = pa.array([Decimal(v) / 4 for v in values], pa.decimal128(10, 2))
        sides = (
            column(exact, kind="decimal"),
            column(pa.array([v / 4 for v in values]), kind="continuous"),
            column(pa.array([v // 4 for v in values]), kind="integer"),
        )
        for old in sides:
            for new in sides:
                (one,) = drift_of({"columns": [old]}, {"columns": [new]})
                assert one.mean is not None
                assert one.psi is not None
                if "integer" not in (old["kind"], new["kind"]) or old is new:
                    assert (one.psi, one.mean_shift) == (0.0, 0.0)


def test_what_other_fits_made_is_compared_as_it_went_into_them() -> None:
    made = column(pa.array([-1.0, 1.0]), kind="continuous", transforms=["standardize"])
    other = column(pa.array([-1.0, 1.0, 9.0]), kind="continuous", transforms=["standardize"])
    before, after = (column(pa.array(v), kind="continuous") for v in ([10.0, 20.0], [30.0, 40.0]))
    old = {"columns": [made], "given": [before], "fit": {"fit_id": "a"}}
    (one,) = drift_of(old, {"columns": [other], "given": [after], "fit": {"fit_id": "b"}})
    assert (one.split, one.mean) == ("given", (15.0, 35.0))
    same = drift_of(old, {"columns": [other], "given": [after], "fit": {"fit_id": "a"}})
    assert [one.split for one in same] == ["all", "given"]
    part = {**made, "name": "v_part"}
    first = {**old, "columns": [made, part]}
    second = {**first, "columns": [other, part], "fit": {"fit_id": "b"}}
    assert incomparable(first, second, drift_of(first, second)) == {}
    assert list(incomparable({**first, "given": []}, second, ())) == ["v", "v_part"]


KINDS: dict[str, tuple[Any, Any]] = {
    "continuous": (st.floats(width=64), pa.float64()),
    "integer": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "decimal": (st.decimals(-(10**15), 10**15, places=2, allow_nan=False), pa.decimal128(18, 2)),
    "timestamp": (st.integers(-(2**60), 2**60), pa.timestamp("us")),
    "text": (st.text(max_size=3), pa.string()),
    "bool": (st.booleans(), pa.bool_()),
}


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_any_values_of_any_kind_have_measures_that_json_can_say(kind: str, data: st.DataObject) -> None:
    values, arrow = KINDS[kind]
    whole = pa.int64() if kind == "timestamp" else arrow  # Python has no moments before year 1
    sides = [pa.array(data.draw(st.lists(st.none() | values, max_size=60)), whole).cast(arrow) for _ in range(2)]
    one = drifted(sides[0], sides[1], kind)
    json.dumps(one.as_json(), allow_nan=False)
    if one.stability is not None:
        assert 0 <= one.stability.least <= one.stability.value <= one.stability.most
        assert sum(share for _, share, _ in one.stability.bins) == pytest.approx(1)
        assert sum(share for _, _, share in one.stability.bins) == pytest.approx(1)
    for split in drift_of({"columns": [column(sides[0], kind=kind)]}, {"columns": [column(sides[0], kind=kind)]}):
        assert split.psi in (None, 0.0)
        assert (split.null_change, split.new_categories in (None, 0), split.mean_shift in (None, 0.0)) == (
            0,
            True,
            True,
        )
