"""Categorify: typed vocabularies in one order, and ids that NULL, rare, unseen and known values never share."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.transforms import Categorify, FillNull
from etl.transforms.base import is_framed
from etl.transforms.fit import applied, applied_to_frames
from etl.transforms.host import Rows
from tests.preparing import PANDAS, both, fit, schema_of, through


def column(values: list[Any], kind: Any = None) -> pa.Table:
    return pa.table({"v": pa.array(values, kind)})


def ids(step: Categorify, fitted: pa.Table, given_rows: pa.Table, parts: tuple[int, ...] = ()) -> list[int]:
    plan, states = fit([step], fitted, parts)
    (batch,) = given_rows.to_batches()
    found: list[Any] = both(plan, states, batch).column(0).to_pylist()
    assert found == [ids_of_one(plan, states, given_rows, at) for at in range(given_rows.num_rows)]
    return found


def ids_of_one(plan: Any, states: Any, table: pa.Table, at: int) -> int:
    (batch,) = table.slice(at, 1).to_batches()
    found: int = applied(plan, states, Rows.of_batch(batch, plan.given))["v"].data[0].item()
    return found


def test_values_between_above_and_below_known_ones_are_unseen() -> None:
    assert ids(Categorify("v"), column([1, 2, 3, 5, 6]), column([1, 2, 4, 7, 8, 0])) == [3, 4, 2, 2, 2, 2]
    wide = [10**15 * i for i in (1, 2, 3, 5, 6)]
    assert ids(Categorify("v"), column(wide), column([10**15, 2 * 10**15, 4 * 10**15, 0])) == [3, 4, 2, 2]


def test_reserved_ids_come_first() -> None:
    step = Categorify("v", oov_buckets=2)
    found = ids(step, column(["A", "C", "B", "E"]), column(["A", "B", "C", "E", None, "Z"]))
    assert found[:5] == [4, 5, 6, 7, 1]
    assert found[5] == 2 + int.from_bytes(hashlib.sha256(b"Z").digest()[:8], "big") % 2
    _, states = fit([step], column(["A", "C", "B", "E"]))
    assert states[0]["v"]["cardinality"] == 8


@pytest.mark.parametrize("kinds", [(pa.int64(), pa.int32()), (pa.int32(), pa.int64()), (pa.uint8(), pa.int16())])
def test_a_vocabulary_has_a_type_and_no_nulls_change_it(kinds: tuple[Any, Any]) -> None:
    for fitted, given_rows in (([1, 2, None], [1, 2]), ([1, 2], [1, 2, None])):
        found = ids(Categorify("v"), column(fitted, kinds[0]), column(given_rows, kinds[0]))
        assert found[:2] == [3, 4]
        assert found[2:] in ([], [1])
        _, states = fit([Categorify("v")], column(fitted, kinds[0]))
        assert states[0]["v"]["vocab"].schema.field("value").type == pa.int64()


def test_any_text_is_a_value_and_the_empty_one_is_not_null() -> None:
    _, states = fit([Categorify("v")], column(["a\nb", "", None, "x"]))
    vocab = states[0]["v"]["vocab"]
    assert dict(zip(vocab["value"].to_pylist(), vocab["id"].to_pylist(), strict=True)) == {"": 3, "a\nb": 4, "x": 5}
    assert states[0]["v"]["cardinality"] == 6
    assert ids(Categorify("v"), column(["a\nb", "", None, "x"]), column([None, "", "A"])) == [1, 3, 2]


KEYS: dict[str, tuple[Any, Any]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "uint64": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=3)),
    "decimal": (pa.decimal128(9, 2), st.integers(-999, 999).map(lambda i: Decimal(i) / 100)),
    "date": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "moment": (pa.timestamp("us"), st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1))),  # noqa: DTZ001
    "instant": (
        pa.timestamp("us", "Europe/Berlin"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    ),
}


def order_of(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=30)
@given(data=st.data())
def test_ids_are_those_of_counting_by_hand(kind: str, data: st.DataObject) -> None:
    arrow, value = KEYS[kind]
    values = data.draw(st.lists(st.none() | value, max_size=12))
    later = data.draw(st.lists(st.none() | value, min_size=1, max_size=4)) + values[:4]
    step = Categorify(
        "v",
        oov_buckets=data.draw(st.integers(1, 3)),
        min_count=data.draw(st.integers(1, 2)),
        max_size=data.draw(st.none() | st.integers(1, 4)),
        rare=data.draw(st.sampled_from(["own", "oov"])),
    )
    rare = step.rare == "own" and (step.min_count > 1 or step.max_size is not None)
    first = 2 + step.oov_buckets + rare
    counts = Counter(one for one in values if one is not None)
    ranked = sorted(counts, key=lambda one: (-counts[one], order_of(one)))
    own = [one for one in ranked if counts[one] >= step.min_count][: step.max_size]
    known = dict.fromkeys(ranked, first - 1) if rare else {}
    known |= {one: first + at for at, one in enumerate(own)}

    parts = tuple(sorted(data.draw(st.sets(st.integers(0, len(values))))))
    found = ids(step, column(values, arrow), column(later, arrow), parts)
    _, states = fit([step], column(values, arrow))
    assert states[0]["v"]["cardinality"] == first + len(own)
    for one, number in zip(later, found, strict=True):
        if one is None:
            assert number == 1
        elif one in known:
            assert number == known[one]
        else:
            assert 2 <= number < 2 + step.oov_buckets


def test_floats_are_keys_only_where_that_is_asked_for() -> None:
    values = column([0.0, -0.0, math.nan, float("nan"), 1.5, None])
    with pytest.raises(ConfigError, match=r"Categorify\('v'\): v is double"):
        fit([Categorify("v")], values)
    step = Categorify("v", allow_float=True)
    assert ids(step, values, values) == [3, 3, 4, 4, 5, 1]


def test_labels_are_text_and_filled_columns_have_no_null() -> None:
    labels = pa.table({"v": pa.array(["b", None, "b", "a"]).dictionary_encode()})
    assert through([Categorify("v")], labels).column(0).to_pylist() == [3, 1, 3, 4]
    filled = through([FillNull("v", "a"), Categorify("v")], column(["b", None, "b", "a"]))
    assert filled.column(0).to_pylist() == [4, 3, 4, 3]
    assert not filled.schema.field("v").nullable


def test_frames_of_a_device_look_up_what_merges_find_alike() -> None:
    for kind, framed in ((pa.string(), True), (pa.time64("us"), True), (pa.decimal128(5, 1), False)):
        table = pa.table({"v": pa.array([], kind)})
        assert is_framed(Categorify("v"), schema_of(table)) is framed
        assert not is_framed(Categorify("v", oov_buckets=2), schema_of(table))
    spans = pa.array([3, None, 5, 3], pa.int64()).cast(pa.time64("us"))
    assert through([Categorify("v")], pa.table({"v": spans})).column(0).to_pylist() == [3, 1, 4, 3]


def test_what_was_met_is_counted() -> None:
    plan, states = fit([Categorify("v", min_count=2)], column(["a", "a", "b"]))
    (batch,) = column(["a", "b", "z", None, "y"]).to_batches()
    rows = applied(plan, states, Rows.of_batch(batch, plan.given))
    assert rows["v"].data.tolist() == [4, 3, 2, 1, 2]
    assert rows.tally == {("v", "null"): 1, ("v", "unseen"): 2, ("v", "rare"): 1}
    framed = applied_to_frames(plan, states, Rows.of_batch(batch, plan.given), PANDAS)
    assert framed.tally == rows.tally


@pytest.mark.parametrize("wrong", [{"oov_buckets": 0}, {"min_count": True}, {"max_size": 0}, {"rare": "mine"}])
def test_an_option_that_there_is_not_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Categorify("v", **wrong)


def test_many_keys_are_found_as_few_are() -> None:
    values = np.arange(50_000, dtype=np.int64) * 1_000_003
    plan, states = fit([Categorify("v")], pa.table({"v": pa.array(values)}), batch_rows=20_000)
    (batch,) = pa.table({"v": pa.array(values[::-1])}).to_batches()
    found = applied(plan, states, Rows.of_batch(batch, plan.given))["v"].data
    np.testing.assert_array_equal(found, np.arange(50_000)[::-1] + 3)


@pytest.mark.parametrize(("kind", "near"), [(pa.int64(), -(1 << 63)), (pa.uint64(), (1 << 64) - 20), (pa.int8(), -128)])
def test_numbers_at_the_ends_of_their_type_are_found(kind: Any, near: int) -> None:
    known = list(range(near, near + 20, 2))
    far = 0 if abs(near) > 1 << 20 else 127
    plan, states = fit([Categorify("v")], column(known, kind))
    (batch,) = column([*range(near, near + 20), far, None], kind).to_batches()
    found = both(plan, states, batch).column(0).to_pylist()
    assert found == [2 if at % 2 else 3 + at // 2 for at in range(20)] + [2, 1]
