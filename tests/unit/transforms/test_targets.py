"""Target encodings against plain Python and scikit-learn; and that no target leaks."""

from __future__ import annotations

import hashlib
import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import TargetEncoder

from etl.core.errors import ConfigError, DataError
from etl.transforms import GroupStats, TargetEncode
from etl.transforms.asking import inputs_of
from etl.transforms.fit import applied, served
from etl.transforms.host import Rows
from tests.preparing import both, fit


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


def encoded(table: pa.Table, row: int, step: TargetEncode) -> float | str:
    """What a train row becomes; where nothing can be fitted, the error's first words."""
    try:
        plan, states = fit([step], table, batch_rows=3)
    except DataError as error:
        return str(error).split(":")[0]
    (batch,) = table.to_batches()
    train = np.ones(table.num_rows, np.bool_)
    found: float = applied(plan, states, Rows.of_batch(batch, plan.given, train=train))["k"].data[row].item()
    return found


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(30, 2)])
@settings(max_examples=40)
@given(data=st.data())
def test_a_row_does_not_see_its_own_target(kind: Any, data: st.DataObject) -> None:
    target = st.integers(-3, 3)
    rows = data.draw(st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.none() | target), min_size=1, max_size=7))
    row = data.draw(st.integers(0, len(rows) - 1))
    step = TargetEncode("k", target="y", fold_key="id", folds=2, smoothing=data.draw(st.sampled_from([0.0, 2.0])))
    found = []
    for own in (rows[row][1], data.draw(target)):
        targets = [own if at == row else y for at, (_, y) in enumerate(rows)]
        ys: Any = pa.array(targets, pa.int64())
        ys = ys.cast(pa.decimal128(36, 0)).cast(kind) if pa.types.is_decimal(kind) else ys.cast(kind)
        keys = pa.array([k for k, _ in rows], pa.string())
        found.append(encoded(pa.table({"id": pa.array(range(len(rows))), "k": keys, "y": ys}), row, step))
    # A row that alone has a target decides whether anything can be fitted, and no more.
    assert found[0] == found[1] or any(isinstance(one, str) for one in found)
    if rows[row][1] is not None:
        assert found[0] == found[1]


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_one_fold_with_all_rows_encodes_nothing(target: float) -> None:
    table = pa.table({"id": [7, 7, 7], "k": ["a", "b", "a"], "y": [target, target, 0.5]})
    with pytest.raises(DataError, match=f"all rows that have a y are in fold {fold_of(7, 2)} of 2") as raised:
        fit([TargetEncode("k", target="y", fold_key="id", folds=2)], table)
    assert "fold_key" in raised.value.hint


EXACT: dict[str, tuple[Any, Any]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "uint64": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "decimal": (pa.decimal128(18, 3), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda i: Decimal(i).scaleb(-3))),
}


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=30)
@given(data=st.data())
def test_sums_of_whole_targets_are_exact(kind: str, data: st.DataObject) -> None:
    arrow, value = EXACT[kind]
    targets = data.draw(st.lists(value, min_size=6, max_size=14))
    keys = ["ab"[i % 2] for i in range(len(targets))]
    table = pa.table({"id": pa.array(range(len(targets))), "k": keys, "y": pa.array(targets, arrow)})
    cuts = sorted(data.draw(st.sets(st.integers(0, len(targets)))))
    step = TargetEncode("k", target="y", fold_key="id", folds=2, smoothing=0)
    _, states = fit([step], table, cuts, batch_rows=3)
    _, whole = fit([step], table, batch_rows=100)
    assert states[0]["k"]["encoding"].equals(whole[0]["k"]["encoding"])
    exact = [Fraction(one) for one in targets]
    assert states[0]["k"]["all"] == float(sum(exact) / len(exact))
    for at, mean in enumerate(states[0]["k"]["encoding"].column("all").to_pylist()):
        own = exact[at::2]
        assert mean == pytest.approx(float(sum(own) / len(own)), rel=1e-15, abs=0)


def test_a_mean_beyond_float32_is_refused() -> None:
    table = pa.table({"id": pa.array(range(9)), "k": ["a"] * 9, "y": [1e300] * 9})
    with pytest.raises(DataError, match="a mean of y is beyond float32"):
        fit([TargetEncode("k", target="y", fold_key="id")], table)


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
