"""Places of whole numbers against a dict: any numbers, also such as were chosen to lie badly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.transforms.sparse import Sparse

MIX = 0x9E3779B97F4A7C15


def held(keys: list[int], data: list[int], dtype: Any) -> None:
    known = {key: at for at, key in enumerate(keys)}
    found = Sparse(np.array(keys, dtype)).places(np.array(data, dtype))
    assert found.dtype == np.int64
    assert found.tolist() == [known.get(one, -1) for one in data]


@pytest.mark.parametrize(("dtype", "least"), [(np.int64, -(1 << 63)), (np.uint64, 0)])
@given(data=st.data())
def test_places_are_those_of_a_dict(dtype: Any, least: int, data: st.DataObject) -> None:
    number = st.integers(least, least + (1 << 64) - 1) | st.sampled_from([0, 1, least, least + (1 << 64) - 1])
    keys = data.draw(st.lists(number, min_size=1, max_size=40, unique=True))
    held(keys, data.draw(st.lists(number | st.sampled_from(keys), max_size=30)), dtype)


@pytest.mark.parametrize("count", [3, 60, 200])
def test_keys_that_want_one_slot_are_found_all_the_same(count: int) -> None:
    """Numbers whose products with the mixer follow one another: the upper bits, which say the slot, are equal."""
    back = pow(MIX, -1, 1 << 64)
    keys = [i * back % (1 << 64) for i in range(count)]
    held(keys[1:], [*keys, *(key ^ 1 for key in keys)], np.uint64)


def test_many_keys_far_apart() -> None:
    rng = np.random.default_rng(5)
    keys = np.unique(rng.integers(-(1 << 62), 1 << 62, 5000))
    rng.shuffle(keys)
    data = np.concatenate([keys[::-1], keys + 1])
    order = np.argsort(keys)
    at = np.searchsorted(keys[order], data) % len(keys)
    expected = np.where(keys[order][at] == data, order[at], -1)
    np.testing.assert_array_equal(Sparse(keys).places(data), expected)
