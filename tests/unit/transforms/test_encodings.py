"""Counts, group figures and target encodings against plain Python and scikit-learn; and that no target leaks."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import TargetEncoder

from etl.core.errors import ConfigError, DataError
from etl.transforms import CountEncode, GroupStats, TargetEncode
from etl.transforms.asking import inputs_of
from etl.transforms.fit import applied, served
from etl.transforms.host import Rows
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


def target_rows(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "k": pa.array([None if i == 4 else "abcd"[i] for i in rng.integers(0, 5, count)]),
            "y": pa.array(rng.integers(0, 2, count)),
        }
    )


def fold_of(number: int, folds: int) -> int:
    message = f"|{len(str(number))}:{number}"
    return int.from_bytes(hashlib.sha256(message.encode()).digest()[:8], "big") % folds


def expected(found: list[tuple[Any, Any]], key: Any, smoothing: float) -> float:
    prior = statistics.fmean(y for _, y in found)
    own = [y for k, y in found if k == key]
    return (sum(own) + smoothing * prior) / (len(own) + smoothing) if len(own) + smoothing else prior


@pytest.mark.parametrize("smoothing", [0.0, 10.0])
def test_train_rows_get_the_other_folds_and_all_others_everything(smoothing: float) -> None:
    table = target_rows(60, 1)
    step = TargetEncode("k", target="y", fold_key="id", folds=3, smoothing=smoothing)
    train = np.arange(60) % 4 != 0
    plan, states = fit([step], table, [20, 41], train=train)
    (batch,) = table.to_batches()
    made = both(plan, states, batch, train=train).column("k").to_pylist()
    seen = [
        (k, y, fold_of(i, 3))
        for i, (k, y) in enumerate(zip(table["k"].to_pylist(), table["y"].to_pylist(), strict=True))
        if train[i]
    ]
    for i, key in enumerate(table["k"].to_pylist()):
        mine = fold_of(i, 3) if train[i] else None
        others = [(k, y) for k, y, fold in seen if fold != mine]
        assert made[i] == pytest.approx(expected(others, key, smoothing), rel=1e-6), i
    served_rows = both(plan, states, batch).column("k").to_pylist()
    assert served_rows[1] == pytest.approx(expected([(k, y) for k, y, _ in seen], table["k"][1].as_py(), smoothing))


@given(st.integers(0, 39), st.integers(0, 2**31))
def test_a_row_does_not_see_its_own_target(row: int, seed: int) -> None:
    table = target_rows(40, seed)
    flipped = table["y"].to_numpy().copy()
    flipped[row] = 1 - flipped[row]
    step = TargetEncode("k", target="y", fold_key="id")
    made = []
    for one in (table, table.set_column(2, "y", pa.array(flipped))):
        plan, states = fit([step], one, batch_rows=40)
        train = np.ones(40, np.bool_)
        (batch,) = one.to_batches()
        made.append(applied(plan, states, Rows.of_batch(batch, plan.given, train=train))["k"].data[row])
    assert made[0] == made[1]


def test_the_global_encoding_is_scikit_learns() -> None:
    table = target_rows(200, 5).drop_null()
    encoder = TargetEncoder(smooth=10.0, target_type="continuous")
    encoder.fit(np.array(table["k"].to_pylist(), object)[:, None], table["y"].to_numpy().astype(float))
    plan, states = fit([TargetEncode("k", target="y", fold_key="id", smoothing=10)], table, batch_rows=64)
    encoding = states[0]["k"]["encoding"]
    np.testing.assert_allclose(encoding.column("all").to_numpy(), encoder.encodings_[0], rtol=1e-12)
    assert encoding.column("value").to_pylist() == encoder.categories_[0].tolist()
    assert plan.returns.field("k").type == pa.float32()


def test_keys_never_seen_and_rows_without_a_target() -> None:
    table = pa.table({"id": [1, 2, 3, 4], "k": ["a", "a", "b", None], "y": pa.array([1.0, None, 0.0, math.nan])})
    plan, states = fit([TargetEncode("k", target="y", fold_key="id", smoothing=0)], table)
    (batch,) = pa.table({"id": [5, 6, 7], "k": ["z", None, "a"], "y": pa.array([None] * 3, pa.float64())}).to_batches()
    rows_made = applied(plan, states, Rows.of_batch(batch, plan.given))
    assert rows_made["k"].data.tolist() == [0.5, 0.5, 1.0]
    assert rows_made.tally == {("k", "unseen"): 2}


def test_serving_asks_for_neither_target_nor_key() -> None:
    table = target_rows(30, 2)
    steps: list[Any] = [
        GroupStats("y", by="k"),
        TargetEncode("k", target="y", fold_key="id"),
    ]
    plan, states = fit(steps, table)
    kept, _ = served(plan, states, ["k", "y_mean_by_k"])
    assert [one.field.name for one in inputs_of(kept, ["k", "y_mean_by_k"])] == ["k"]


def test_what_there_is_not_is_refused() -> None:
    for wrong in ({"folds": 1}, {"smoothing": -1}, {"smoothing": math.inf}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            TargetEncode("k", target="y", fold_key="id", **wrong)
    with pytest.raises(ConfigError, match="would encode itself"):
        TargetEncode("y", target="y", fold_key="id")
    with pytest.raises(ConfigError, match="equal names"):
        GroupStats(["a", "b"], by="k", into="{stat}")
    with pytest.raises(ConfigError, match="stats has 'median'"):
        GroupStats("a", by="k", stats="median")
