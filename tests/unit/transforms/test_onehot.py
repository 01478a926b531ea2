"""OneHot and MultiHot against scikit-learn and by hand: places by frequency, unseen and NULL without one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from etl.core.errors import CastError, ConfigError, DataError
from etl.transforms import MultiHot, OneHot
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from tests.preparing import both, fit, schema_of, through


def ranked(values: list[Any]) -> list[Any]:
    counts = Counter(one for one in values if one is not None)
    return sorted(counts, key=lambda one: (-counts[one], one.encode()))


words = st.lists(st.none() | st.text("abc", max_size=2), max_size=12).filter(
    lambda found: any(w is not None for w in found)
)


@given(words, st.sampled_from([None, "first"]))
def test_places_are_scikit_learns_for_values_in_our_order(values: list[str | None], drop: Any) -> None:
    places = ranked(values)
    table = pa.table({"v": pa.array([*values, None], pa.string())})
    if drop and len(places) == 1:
        with pytest.raises(DataError, match="has 1 values"):
            through([OneHot("v", drop=drop)], table)
        return
    made = through([OneHot("v", drop=drop)], table, batch_rows=5)
    found = np.array(made.column(0).to_pylist(), np.uint8)
    encoder = OneHotEncoder(categories=[places], handle_unknown="ignore", sparse_output=False, dtype=np.uint8)
    encoder.fit(np.array([[one] for one in places], object))
    expected = encoder.transform(np.array([[one if one is not None else "zz"] for one in [*values, None]], object))
    np.testing.assert_array_equal(found, expected[:, 1:] if drop else expected)
    assert made.schema.field("v").type == pa.list_(pa.uint8(), len(places) - (1 if drop else 0))


def test_a_value_that_was_never_seen_is_zeros_or_refused() -> None:
    table = pa.table({"v": ["a", "b", "a"]})
    (batch,) = pa.table({"v": ["b", "c", None]}).to_batches()
    plan, states = fit([OneHot("v")], table)
    assert both(plan, states, batch).column(0).to_pylist() == [[0, 1], [0, 0], [0, 0]]
    plan, states = fit([OneHot("v", unseen="error")], table)
    with pytest.raises(CastError, match="column v, row 2: its value was never seen"):
        applied(plan, states, Rows.of_batch(batch, plan.given))


lists = st.lists(st.none() | st.lists(st.sampled_from("abcd"), max_size=4), min_size=1, max_size=9)


@given(lists)
def test_each_value_of_a_list_is_a_one_however_often(values: list[list[str] | None]) -> None:
    items = [item for one in values for item in one or ()]
    table = pa.table({"v": pa.array(values, pa.list_(pa.string()))})
    if not items:
        with pytest.raises(DataError, match="has 0 values"):
            through([MultiHot("v")], table)
        return
    places = ranked(items)
    made = through([MultiHot("v")], table, batch_rows=4)
    assert made.column(0).to_pylist() == [[int(place in (one or ())) for place in places] for one in values]


def test_rare_and_further_values_have_no_place() -> None:
    table = pa.table({"v": [3, 3, 1, 1, 1, 2]})
    assert through([OneHot("v", min_count=2)], table).column(0).to_pylist()[-1] == [0, 0]
    assert through([OneHot("v", max_size=1)], table).column(0).to_pylist() == [[0], [0], [1], [1], [1], [0]]


def test_wide_vectors_must_be_asked_for() -> None:
    table = pa.table({"v": pa.array(np.arange(5000))})
    with pytest.raises(DataError, match="v has 5000 values, which would be vectors of 5000 bytes"):
        fit([OneHot("v")], table, batch_rows=5000)
    plan, _ = fit([OneHot("v", max_size=4999)], table, batch_rows=5000)
    assert plan.returns.field("v").type == pa.list_(pa.uint8(), 4999)


def test_a_width_is_known_only_when_it_is_fitted() -> None:
    given_rows = schema_of(pa.table({"v": ["a"]}))
    assert "known when it is fitted" in OneHot("v").output_schema(given_rows).field("v").note
    with pytest.raises(ConfigError, match="not a list"):
        MultiHot("v").output_schema(given_rows)
