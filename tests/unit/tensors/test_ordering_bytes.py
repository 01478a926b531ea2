"""What rows sort by: keys of every type as bytes, ties, bounds of files, and the chi-square test."""

from __future__ import annotations

import hashlib
import math
import uuid
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema
from etl.tensors.options import WriteOptions
from etl.tensors.ordering import (
    Ordering,
    chi_square_p,
    file_rows,
    order_bytes,
    ordering,
    reaches,
    row_bytes,
    sorted_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


def by(key: Sequence[str], written: Sequence[str], kind: str = "key", seed: int = 0) -> Ordering:
    return Ordering(kind, tuple(key), seed, tuple(written), frozenset(written))


def sort(how: Ordering, batch: Any) -> list[int]:
    def packed(rows: NDArray[np.int64]) -> Any:
        return row_bytes(how, batch.take(pa.array(rows)))

    return list(map(int, sorted_rows(order_bytes(how, batch, "a test"), packed)))


def plain(value: Any) -> Any:
    return value


def number(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "bool": (pa.bool_(), st.booleans(), plain),
    "int8": (pa.int8(), st.integers(-128, 127), plain),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), plain),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), plain),
    "float32": (pa.float32(), st.floats(width=32), number),
    "float64": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan]), number),
    "decimal": (pa.decimal128(20, 2), st.decimals("-99999", "99999", places=2), plain),
    "wide": (pa.decimal256(60, 0), st.integers(-(10**59), 10**59).map(Decimal), plain),
    "date": (pa.date32(), st.dates(), plain),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC)), plain),
    "time": (pa.time64("us"), st.times(), plain),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=24), str.encode),
    "binary": (pa.large_binary(), st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"\0\0", b"\0\xff"]), plain),
    "fixed": (pa.binary(16), st.uuids().map(lambda u: u.bytes), plain),
}


@st.composite
def keyed(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]]]:
    """A batch of one to three key columns, and what Python sorts its rows by."""
    rows = draw(st.integers(0, 30))
    columns: dict[str, Any] = {}
    marks: list[list[Any]] = []
    for name in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True)):
        kind, values, mark = KINDS[name]
        few = draw(st.lists(values, min_size=1, max_size=8))
        chosen = draw(st.lists(st.sampled_from([None, *few]), min_size=rows, max_size=rows))
        columns[name] = pa.array(chosen, kind)
        marks.append([(v is None, None if v is None else mark(v)) for v in chosen])
    return pa.record_batch(columns), list(zip(*marks, strict=True))


class Last:
    """Sorts as the mark of a row, NULL last."""

    def __init__(self, mark: tuple[Any, ...]) -> None:
        self.mark = mark

    def __lt__(self, other: Last) -> bool:
        for (none, value), (other_none, other_value) in zip(self.mark, other.mark, strict=True):
            if none != other_none:
                return bool(other_none)
            if not none and value != other_value:
                return bool(value < other_value)
        return False


@given(keyed())
def test_rows_ascend_by_every_type_of_key_and_null_is_last(case: tuple[Any, list[tuple[Any, ...]]]) -> None:
    batch, marks = case
    places = sort(by(batch.schema.names, batch.schema.names), batch)
    assert sorted(places) == list(range(len(marks)))
    got = [marks[i] for i in places]
    assert got == sorted(marks, key=Last)


@given(
    case=keyed(),
    random=st.randoms(use_true_random=False),
    kind=st.sampled_from(["key", "shuffle"]),
    whole=st.booleans(),
)
def test_the_order_does_not_depend_on_how_rows_came(
    case: tuple[Any, list[tuple[Any, ...]]], random: Any, kind: str, *, whole: bool
) -> None:
    batch, _ = case
    names = batch.schema.names
    how = by(names[:1] if kind == "key" or not whole else [], names, kind, 7)
    mixed = list(range(batch.num_rows))
    random.shuffle(mixed)
    other = batch.take(pa.array(mixed, pa.int64()))

    def text(rows: Any) -> str:
        return repr(rows.to_pylist())  # NaN is NaN, and -0.0 is not 0.0

    one = batch.take(pa.array(sort(how, batch), pa.int64()))
    assert text(one) == text(other.take(pa.array(sort(how, other), pa.int64())))


def test_a_sliced_batch_has_the_bytes_of_its_own_rows() -> None:
    entries = pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32()))
    batch = pa.record_batch(
        {
            "t": ["zero", None, "a\0b", ""],
            "b": [True, False, None, True],
            "l": pa.array([[1, None], None, [], [3]], pa.list_(pa.int16())),
            "f": pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, None]], pa.list_(pa.float32(), 2)),
            "s": pa.array([{"p": 1, "q": "x"}, None, {"p": None, "q": ""}, {"p": 4, "q": None}]),
            "m": entries,
            "d": pa.array([Decimal("1.10"), None, Decimal(-1), Decimal(0)], pa.decimal128(5, 2)),
            "u": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([uuid.UUID(int=i).bytes for i in range(4)], pa.binary(16))
            ),
        }
    )
    how = by([], batch.schema.names)
    whole = row_bytes(how, batch).to_pylist()
    assert len(set(whole)) == 4
    for start in range(4):
        assert row_bytes(how, batch.slice(start)).to_pylist() == whole[start:]
    assert row_bytes(how, batch.slice(0, 0)).to_pylist() == []


def test_the_shuffle_follows_the_digest_of_the_key_message() -> None:
    batch = pa.record_batch({"a": [12, 1, None], "b": ["3", "é", ""]})
    how = by(["a", "b"], ["a", "b"], "shuffle", 7)
    words = order_bytes(how, batch, "a test").to_pylist()
    messages = ["2:121:3", "1:12:é", "-1:0:"]
    assert words == [hashlib.sha256(f"cuetl-shuffle-1|7|{m}".encode()).digest()[:8] for m in messages]


def test_a_key_without_an_order_is_refused_by_name() -> None:
    schema = Schema((Field("k", pa.list_(pa.int32()), nullable=True),))
    with pytest.raises(ConfigError, match="column k is list"):
        ordering(WriteOptions(key=("k",), order="key"), schema, ("k",))


def test_declared_values_sort_as_declared() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1], pa.int32()), pa.array(["low", "mid", "high"]))
    batch = pa.record_batch({"level": column})
    declared = Ordering("key", ("level",), 0, ("level",), frozenset({"level"}), frozenset({"level"}))
    assert sort(declared, batch) == [1, 3, 0, 2]
    assert sort(by(["level"], ["level"]), batch) == [0, 1, 3, 2]


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=8), st.integers(1, 7), st.integers(1, 30))
def test_every_file_finds_its_rows_within_its_reach(runs: list[list[int]], every: int, size: int) -> None:
    runs = [sorted(r) for r in runs if r]
    fences = np.array([r[i] for r in runs for i in range(0, len(r), every)], np.int64)
    owner = np.array([n for n, r in enumerate(runs) for _ in range(0, len(r), every)], np.int64)
    whole = sorted(v for r in runs for v in r)
    found = list(reaches([len(r) for r in runs], owner, np.argsort(fences, kind="stable"), every, size))
    assert len(found) == -(-len(whole) // size)
    for number, reach in enumerate(found):
        offered = sorted(v for r, values in enumerate(runs) for v in values[reach.starts[r] : reach.stops[r]])
        first = number * size - reach.below
        assert first >= 0
        assert offered[first : first + size] == whole[number * size : (number + 1) * size]
        assert len(offered) <= size + 2 * every * (len(runs) + 1)


def test_files_have_a_multiple_of_4096_rows() -> None:
    assert [file_rows(b, 1 << 20) for b in (1, 8, 100, 1 << 20, 0)] == [1 << 20, 131072, 8192, 4096, 1 << 20]


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [
        (3.841458820694124, 1, 0.05),
        (5.991464547107979, 2, 0.05),
        (18.307038053275146, 10, 0.05),
        (124.34211340400407, 100, 0.05),
        (10.827566170662733, 1, 0.001),
        (0.0, 5, 1.0),
        (2.0, 2, math.exp(-1)),
        (1600.0, 2, 0.0),
        (1e6, 1_000_000, 0.4998119),
        (0.0157907740934312, 1, 0.9),
    ],
)
def test_chi_square_has_the_known_values(statistic: float, freedom: int, p: float) -> None:
    assert chi_square_p(statistic, freedom) == pytest.approx(p, rel=1e-6, abs=1e-300)
