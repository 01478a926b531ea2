"""Buckets of keys: SHA-256 of the text that splits use, so that anyone can compute them."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.transforms import HashBucket, HashCross
from tests.preparing import through


def bucket(parts: list[str | None], buckets: int, salt: str = "") -> int:
    text = "".join("-1:" if one is None else f"{len(one.encode())}:{one}" for one in parts)
    return 1 + int.from_bytes(hashlib.sha256(f"{salt}|{text}".encode()).digest()[:8], "big") % buckets


words = st.lists(st.none() | st.text(st.characters(codec="ascii"), max_size=4), min_size=1, max_size=9)


@given(words, st.integers(1, 50), st.sampled_from(["", "s"]))
def test_a_bucket_is_the_digest_of_the_key(values: list[str | None], buckets: int, salt: str) -> None:
    table = pa.table({"v": pa.array(values, pa.string())})
    found = through([HashBucket("v", buckets, salt=salt)], table, batch_rows=4).column(0)
    assert found.to_pylist() == [0 if one is None else bucket([one], buckets, salt) for one in values]
    assert found.type == pa.int32()


@given(words, st.integers(2, 50))
def test_crossed_columns_are_one_key(values: list[str | None], buckets: int) -> None:
    numbers = [None if at % 3 == 2 else at % 5 for at in range(len(values))]
    table = pa.table({"a": pa.array(values, pa.string()), "b": pa.array(numbers, pa.int16())})
    made = through([HashCross(["a", "b"], buckets, into="ab")], table, batch_rows=4)
    pairs = zip(values, numbers, strict=True)
    assert made.column("ab").to_pylist() == [bucket([a, None if b is None else str(b)], buckets) for a, b in pairs]
    assert made.select(["a", "b"]).equals(table)


def test_equal_keys_of_other_widths_share_a_bucket() -> None:
    kinds: list[Any] = [pa.int8(), pa.int64(), pa.uint64()]
    found = [through([HashBucket("v", 1000)], pa.table({"v": pa.array([42], kind)})).column(0)[0] for kind in kinds]
    assert len({*found}) == 1
    assert found[0].as_py() == bucket(["42"], 1000)


@pytest.mark.parametrize("buckets", [0, -1, True, 1.5, (1 << 24) + 1])
def test_a_number_of_buckets_that_there_is_not_is_refused(buckets: Any) -> None:
    with pytest.raises(ConfigError, match="buckets is"):
        HashBucket("v", buckets)


def test_what_cannot_be_crossed_is_refused() -> None:
    with pytest.raises(ConfigError, match="crosses a with nothing"):
        HashCross(["a"], 9, into="x")
    with pytest.raises(ConfigError, match="there is a column b already"):
        through([HashCross(["a", "b"], 9, into="b")], pa.table({"a": [1], "b": [2]}))
    with pytest.raises(ConfigError, match=r"HashBucket\('a'\): a is double"):
        through([HashBucket("a", 9)], pa.table({"a": [1.0]}))
