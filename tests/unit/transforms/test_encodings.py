"""Counts and group figures of keys against plain Python."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError, DataError
from etl.transforms import CountEncode, GroupStats
from tests.preparing import both, fit, through

keys = st.none() | st.sampled_from("abc")


@given(st.lists(keys, min_size=1, max_size=12), st.booleans(), st.integers(0, 12))
def test_counts_are_those_of_counting(values: list[str | None], normalize: bool, cut: int) -> None:  # noqa: FBT001
    table = pa.table({"v": pa.array(values, pa.string())})
    counts: Any = Counter(values)
    made = through([CountEncode("v", normalize=normalize)], table, [min(cut, len(values))], batch_rows=4).column(0)
    scale = len(values) if normalize else 1
    assert made.to_pylist() == [np.float32(counts[one] / scale) if normalize else counts[one] for one in values]


def test_a_key_that_was_never_seen_has_no_count() -> None:
    plan, states = fit([CountEncode("v")], pa.table({"v": ["a", "b", "a", None]}))
    (batch,) = pa.table({"v": ["a", "z", None]}).to_batches()
    assert both(plan, states, batch).column(0).to_pylist() == [2, 0, 1]


rows = st.lists(st.tuples(keys, st.none() | st.integers(-50, 50)), min_size=1, max_size=14)


@given(rows, st.sets(st.integers(0, 14)))
def test_figures_of_groups_are_those_of_their_rows(given_rows: list[tuple[Any, Any]], cuts: set[int]) -> None:
    table = pa.table(
        {"k": pa.array([k for k, _ in given_rows], pa.string()), "v": pa.array([v for _, v in given_rows])}
    )
    step = GroupStats("v", by="k", stats=["mean", "std", "sum", "count"])
    groups: dict[Any, list[int]] = defaultdict(list)
    for key, value in given_rows:
        if value is not None:
            groups[key].append(value)
    table = table.set_column(1, "v", table.column("v").cast(pa.int64()))
    if not groups:
        with pytest.raises(DataError, match="has no value"):
            through([step], table)
        return
    everyone = [one for found in groups.values() for one in found]
    made = through([step], table, sorted(one for one in cuts if one <= len(given_rows)), batch_rows=5)
    for row, (key, _) in zip(made.to_pylist(), given_rows, strict=True):
        found = groups.get(key) or everyone
        assert row["v_count_by_k"] == len(found)
        assert row["v_mean_by_k"] == pytest.approx(statistics.fmean(found), rel=1e-6, abs=1e-6)
        assert row["v_std_by_k"] == pytest.approx(statistics.pstdev(found), rel=1e-6, abs=1e-5)
        assert row["v_sum_by_k"] == pytest.approx(sum(found), rel=1e-6, abs=1e-5)


def test_parts_do_not_change_figures_of_groups() -> None:
    rng = np.random.default_rng(3)
    table = pa.table({"k": pa.array(rng.integers(0, 50, 3000)), "v": pa.array(1e9 + rng.normal(size=3000))})
    step = GroupStats("v", by="k", stats=["mean", "std"])
    _, one = fit([step], table, batch_rows=3000)
    _, many = fit([step], table, [7, 1000, 2990], batch_rows=97)
    for name, within in (("n", 0.0), ("mean", 1e-12), ("m2", 1e-10)):
        left, right = (found[0]["v"]["groups"].column(name).to_numpy() for found in (one, many))
        np.testing.assert_allclose(left, right, rtol=within)


def test_figures_beyond_float32_are_refused() -> None:
    table = pa.table({"k": ["a", "a"], "v": [3e38, 3e38]})
    with pytest.raises(DataError, match="the sum of v of a k is beyond float32"):
        through([GroupStats("v", by="k", stats=["mean", "sum"])], table)
    made = through([GroupStats("v", by="k", stats=["mean", "std", "count"])], table)
    assert made.column("v_std_by_k").to_pylist() == [0.0, 0.0]


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="equal names"):
        GroupStats(["a", "b"], by="k", into="{stat}")
    with pytest.raises(ConfigError, match="stats has 'median'"):
        GroupStats("a", by="k", stats="median")
