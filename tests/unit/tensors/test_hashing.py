"""Many digests at once are hashlib's, whatever the lengths and the way they are computed."""

from __future__ import annotations

import datetime as dt
import hashlib
import unicodedata
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import CastError
from etl.tensors import hashing, sha256
from etl.tensors.hashing import compiled_words, first_words, words_of
from etl.tensors.split import SplitRecipe, cumulative_bounds, key_column, key_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns

ENDS = (0, 1, 54, 55, 56, 63, 64, 65, 118, 119, 120, 127, 128, 129, 4087, 4088, 5000)
"""Lengths at which the padding begins another block, and those of the last block that is compiled."""


def word(message: bytes) -> int:
    return int.from_bytes(hashlib.sha256(message).digest()[:8], "big")


def test_the_constants_are_those_of_the_standard() -> None:
    assert [f"{h:08x}" for h in sha256.START[:3]] == ["6a09e667", "bb67ae85", "3c6ef372"]
    assert [f"{k:08x}" for k in (*sha256.ROUND[:2], sha256.ROUND[63])] == ["428a2f98", "71374491", "c67178f2"]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64])
def test_the_compiled_loop_gives_hashlibs_digests_at_every_length(count: int) -> None:
    for length in (*range(140), *ENDS):
        messages = [bytes((i * 7 + j) % 256 for j in range(length)) for i in range(count)]
        found = compiled_words(sha256.load(), pa.array(messages, pa.large_binary()))
        assert found.tolist() == [word(m) for m in messages], length


@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([b"z" * n for n in ENDS])), max_size=40), st.data())
def test_any_messages_sliced_anywhere_have_hashlibs_digests(messages: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(messages)))
    column = pa.array(messages, pa.large_binary()).slice(start)
    want = [word(m) for m in messages[start:]]
    assert compiled_words(sha256.load(), column).tolist() == want
    assert words_of(column).tolist() == want
    assert first_words(messages[start:]).tolist() == want


def test_many_messages_are_hashed_by_the_compiled_loop_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = hashing._Spent()
    monkeypatch.setattr(hashing, "_spent", spent)
    words_of(pa.array([b"a"] * 1000, pa.large_binary()))
    assert spent.kernel(0) is None
    assert words_of(pa.array([b"a"] * hashing.MANY, pa.large_binary())).tolist() == [word(b"a")] * hashing.MANY
    assert spent.kernel(0) is not None


def test_without_a_compiler_the_digests_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> sha256.Kernel:
        raise RuntimeError("no memory may be made executable")

    monkeypatch.setattr(sha256, "load", refused)
    monkeypatch.setattr(hashing, "_spent", hashing._Spent())
    for _ in range(2):
        assert words_of(pa.array([b"a"] * hashing.MANY, pa.large_binary())).tolist() == [word(b"a")] * hashing.MANY


def texts_of(column: Any) -> list[Any]:
    found: list[Any] = key_column(column).to_pylist()
    return found


def text_of(value: Any) -> bytes:
    """The recipe's table, a value at a time."""
    match value:
        case bool():
            return b"true" if value else b"false"
        case int():
            return str(value).encode()
        case Decimal():
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return (text if text not in {"", "-0"} else "0").encode()
        case str():
            return unicodedata.normalize("NFC", value).encode()
        case uuid.UUID():
            return str(value).encode()
        case bytes():
            return value.hex().encode()
        case dt.datetime():
            return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z".encode()
        case dt.date():
            return value.isoformat().encode()
    raise TypeError(type(value))


INSTANTS = st.datetimes()
ZONED = st.datetimes().map(lambda t: t.replace(tzinfo=dt.UTC))
KEYS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    "decimal0": (pa.decimal128(20, 0), st.decimals(-(10**18), 10**18, places=0)),
    "fine": (pa.decimal128(38, 37), st.decimals(-9, 9, places=37)),
    "text": (pa.string(), st.text(max_size=12)),
    "large": (pa.large_string(), st.text("aé\u0301\u0300\u1e9b\u0323ﬁ가", max_size=6)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "three": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "date": (pa.date32(), st.dates()),
    "instant": (pa.timestamp("us"), INSTANTS),
    "zoned": (pa.timestamp("us", "UTC"), ZONED),
    "seconds": (pa.timestamp("s"), INSTANTS.map(lambda t: t.replace(microsecond=0))),
}


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=40)
@given(data=st.data())
def test_the_text_of_any_key_is_the_recipes(kind: str, data: st.DataObject) -> None:
    type_, values = KEYS[kind]
    drawn = data.draw(st.lists(values, max_size=12))
    start = data.draw(st.integers(0, len(drawn)))
    assert texts_of(pa.array(drawn, type_).slice(start)) == [text_of(v) for v in drawn[start:]]


@given(st.lists(st.uuids(), max_size=9))
def test_sixteen_bytes_are_a_uuid(values: list[uuid.UUID]) -> None:
    column = pa.array([v.bytes for v in values], pa.binary(16))
    assert texts_of(column) == [text_of(v) for v in values]


@pytest.mark.parametrize(
    ("days", "text"),
    [(-719528, b"0000-01-01"), (2932897, b"10000-01-01"), (2**31 - 1, b"5881580-07-11"), (-(2**31), b"-5877641-06-23")],
)
def test_dates_beyond_the_years_of_arrow(days: int, text: bytes) -> None:
    assert texts_of(pa.array([0, days], pa.int32()).view(pa.date32())) == [b"1970-01-01", text]
    assert texts_of(pa.array([days], pa.int32()).view(pa.date32())) == [text]


def test_instants_beyond_the_years_of_arrow() -> None:
    column = pa.array([0, 2**63 - 1, -(2**63)], pa.int64()).view(pa.timestamp("us"))
    assert texts_of(column) == [
        b"1970-01-01T00:00:00.000000Z", b"294247-01-10T04:00:54.775807Z", b"-290308-12-21T19:59:05.224192Z",
    ]  # fmt: skip


def test_milliseconds_as_dates_are_dates() -> None:
    assert texts_of(pa.array([86_400_000], pa.int64()).view(pa.date64())) == [b"1970-01-02"]


def test_an_instant_finer_than_a_microsecond_is_no_key() -> None:
    recipe = SplitRecipe(("a",), cumulative_bounds(("1",)), ("at",))
    column = pa.array([1], pa.int64()).view(pa.timestamp("ns"))
    with pytest.raises(CastError, match=r"the key at holds an instant in partition 2"):
        recipe.assign(pa.RecordBatch.from_arrays([column], names=["at"]), "partition 2")


def messages_of(columns: Sequence[Any], prefix: bytes) -> list[bytes]:
    rows = zip(*(c.to_pylist() for c in columns), strict=True)
    part = [[b"-1:" if v is None else b"%d:%s" % (len(text_of(v)), text_of(v)) for v in row] for row in rows]
    return [prefix + b"".join(p) for p in part]


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.text("aé", max_size=1100 // 100))),
        max_size=40,
    ),
    st.binary(max_size=9),
)
def test_messages_of_several_columns(rows: list[tuple[int | None, str | None]], prefix: bytes) -> None:
    columns = [pa.array([r[0] for r in rows], pa.int64()), pa.array([r[1] for r in rows], pa.string())]
    for chosen in (columns, columns[:1], columns[1:], columns[::-1]):
        found, codes = key_messages(chosen, prefix, ["k", "l"][: len(chosen)], "here")
        texts = found.to_pylist()
        assert [texts[c] for c in codes.tolist()] == messages_of(chosen, prefix)


def test_long_keys_and_keys_that_are_all_distinct() -> None:
    for values in (["a" * 5000, "", "b" * 1024, "a" * 5000], [f"k{i}" for i in range(5000)], ["same"] * 5000):
        column = pa.array(values)
        found, codes = key_messages([column], b"|", ["k"], "here")
        texts = found.to_pylist()
        assert [texts[c] for c in codes.tolist()] == messages_of([column], b"|")
        assert np.unique(codes).tolist() == list(range(len(texts)))
