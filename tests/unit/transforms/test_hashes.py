"""Buckets of keys: SHA-256 of the text that splits use, so that anyone can compute them."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.transforms import Categorify, HashBucket, HashCross
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from etl.transforms.lookups import FEW
from tests.preparing import fit, through


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


KEYS: dict[str, tuple[Any, Any]] = {
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "uint64": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=3) | st.sampled_from(["\u00e9", "e\u0301", "\u212b"])),
    "decimal": (pa.decimal128(9, 3), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda i: Decimal(i).scaleb(-3))),
    "whole decimal": (pa.decimal128(9, -2), st.integers(-999, 999).map(lambda i: Decimal(i).scaleb(2))),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), st.datetimes()),
}


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_row_alone_has_the_bucket_that_it_has_among_many(kind: str, data: st.DataObject) -> None:
    arrow, value = KEYS[kind]
    values = data.draw(st.lists(st.none() | value, min_size=FEW + 1, max_size=FEW + 6))
    table = pa.table({"v": pa.array(values, arrow), "w": pa.array(values[::-1], arrow)})
    steps: list[Any] = [HashCross(["v", "w"], 1 << 24, into="x"), HashBucket("v", 1 << 24)]
    many = through(steps, table, batch_rows=100)
    assert through(steps, table, batch_rows=1).equals(many)


def test_days_and_moments_beyond_the_calendar_of_python_have_a_bucket() -> None:
    days = pa.array([-(10**6), 0, 5 * 10**6] * 4, pa.int32()).cast(pa.date32())
    moments = pa.array([-(1 << 62), 0, 1 << 62] * 4, pa.int64()).cast(pa.timestamp("us", "UTC"))
    for column in (days, moments):
        table = pa.table({"v": column})
        plan, states = fit([HashBucket("v", 1 << 24)], table)
        found = [
            np.concatenate(
                [
                    applied(plan, states, Rows.of_batch(batch, plan.given))["v"].data
                    for batch in table.to_batches(max_chunksize=rows)
                ]
            )
            for rows in (1, 100)
        ]
        np.testing.assert_array_equal(found[0], found[1])
        assert len({*found[0].tolist()}) == 3


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.time64("us")])
@pytest.mark.parametrize(
    "step", [HashBucket("v", 9), HashCross(["v", "k"], 9, into="x"), Categorify("v", oov_buckets=2)], ids=str
)
def test_spans_have_no_text_to_be_hashed(step: Any, kind: Any) -> None:
    table = pa.table({"v": pa.array([1, 2], pa.int64()).cast(kind), "k": [1, 2]})
    with pytest.raises(ConfigError, match="which has no key text to be hashed"):
        through([step], table)
    assert through([Categorify("v")], table).column("v").to_pylist() == [3, 4]
