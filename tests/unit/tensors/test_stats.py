"""Statistics are of the rows, not of how they were cut: numpy and Python's own numbers are the oracle."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.canonical import canonical_json
from etl.core.schema import Field
from etl.tensors import running
from etl.tensors.sampling import RowSample
from etl.tensors.stats import PartStats, Stats
from etl.tensors.summary import combined, summary

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.integers(-(10**16), 10**16).map(lambda us: EPOCH + timedelta(microseconds=us))
KINDS: dict[str, tuple[Any, Any]] = {
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(9, 2), st.decimals(-(10**6), 10**6, places=2)),
    "wide": (pa.decimal128(38, 4), st.decimals(-(10**30), 10**30, places=4)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.timestamp("us", "UTC"), TIMES),
    "text": (pa.string(), st.text(max_size=4)),
}  # fmt: skip


LOOPS: list[Any] = []
"""Of the tests that run: none, or the compiled loops."""


@pytest.fixture(scope="module", params=["numpy", "compiled"], autouse=True)
def way(request: pytest.FixtureRequest) -> None:
    LOOPS[:] = [running.loaded(compiling=True)] if request.param == "compiled" else [None]


def stats_of(column: pa.Array[Any], cuts: list[int] | None = None, batch: int = 10_000) -> list[Stats]:
    """The statistics of the parts between the cuts."""
    edges = [0, *sorted(cuts or []), len(column)]
    one = Field("c", column.type)
    found = []
    for index, (first, last) in enumerate(pairwise(edges)):
        part = PartStats([one], index, loops=lambda _: LOOPS[0])
        for at in range(first, last, batch):
            piece = column.slice(at, min(batch, last - at))
            part.take(pa.RecordBatch.from_arrays([piece], names=["c"]))
        found.append(part.done()["c"])
    return found


def said(column: pa.Array[Any], cuts: list[int] | None = None, batch: int = 10_000) -> dict[str, Any]:
    made = summary(column.type, stats_of(column, cuts, batch))
    json.dumps(made, allow_nan=False)  # as --json prints it
    return made


def in_units(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, bool | int | float | Decimal | str) else (value - EPOCH.date()).days


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_any_cut_of_the_rows_gives_the_same_statistics(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    rows = data.draw(st.lists(st.none() | values, max_size=40))
    column: Any = pa.array(rows, kind)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=5))
    one, other = said(column), said(column, cuts, batch=data.draw(st.integers(1, 9)))
    for key in ("mean", "m2"):
        mine, its = one.pop(key), other.pop(key)
        if name == "wide" and key == "mean" and mine is not None:
            # Rounded to float64 one by one: the error is one of the values, not of a mean that may be near 0.
            assert mine == pytest.approx(its, abs=1e-12 * float(max(abs(v) for v in rows if v is not None)))
        elif name != "wide":
            assert name.startswith("float") or mine == its
    assert one == other


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_statistics_are_those_of_the_values(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    rows = data.draw(st.lists(st.none() | values, max_size=40))
    column: Any = pa.array(rows, kind)
    found = said(column)
    known = [in_units(v) for v in column.to_pylist() if v is not None]
    ordered = [v for v in known if isinstance(v, str) or not math.isnan(v)]
    finite = [v for v in ordered if isinstance(v, str) or math.isfinite(v)]
    assert (found["count"], found["null"]) == (len(known), len(rows) - len(known))
    assert (found["nan"], found["inf"]) == (len(known) - len(ordered), len(ordered) - len(finite))
    ends: list[Any] = [min(ordered), max(ordered)] if ordered else [None, None]
    if ordered and name in {"decimal", "wide"}:
        step = Decimal(1).scaleb(-kind.scale)
        ends = [format(v.quantize(step, context=Context(prec=60)), "f") for v in ends]
    if name.startswith("float") and ordered:
        ends = [v if math.isfinite(v) else str(v) for v in ends]
    assert [found["min"], found["max"]] == ends
    if name != "wide":
        assert found["distinct"] == len(set(ordered))
    if name == "text" or not finite:
        assert found["mean"] is None
        return
    exact = [Fraction(v) for v in finite]
    mean = sum(exact) / len(exact)
    m2 = sum((v - mean) ** 2 for v in exact)
    most = float(max(abs(v) for v in exact))
    assert float(found["mean"]) == pytest.approx(float(mean), rel=1e-12, abs=most * 1e-12)
    if m2 < Fraction(10) ** 300 and most < 1e150:
        assert float(found["m2"]) == pytest.approx(float(m2), rel=1e-9, abs=most * most * 1e-18)


def test_large_offsets_keep_their_spread() -> None:
    for base in (2**62, 1_700_000_000_000_000, -(2**63)):
        found = said(pa.array([base, base + 1, base + 2], pa.int64()), [1, 2])
        assert found["m2"] == 2.0
        assert found["mean"] == float(base + 1)


def test_quantiles_are_values_that_are_there() -> None:
    found = said(pa.array(range(1, 101), pa.int64()))
    twentieths = {f"{n / 100!r}": n for n in range(5, 100, 5)}
    assert found["quantiles"] == {"0.01": 1, **twentieths, "0.99": 99}
    assert sum(found["histogram"]) == 100
    assert "sampled" not in found


def test_small_ranges_bools_and_enums_are_counted_whatever_their_number() -> None:
    rows = 40_000
    found = said(pa.array(np.arange(rows) % 1000, pa.int64()), [7, 30_000])
    assert found["distinct"] == 1000
    assert found["quantiles"]["0.5"] == 499
    assert "sampled" not in found
    enum = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1] * 5000, pa.int32()), pa.array(["a", "b"]))
    labels = said(enum)
    assert (labels["top"], labels["null"], labels["distinct"]) == ([["b", 10_000], ["a", 5000]], 5000, 2)
    flags = said(pa.array([True, None, True, False] * 5000))
    assert (flags["top"], flags["mean"], flags["min"]) == ([[True, 10_000], [False, 5000]], 2 / 3, False)


def test_large_columns_are_estimated_and_say_so() -> None:
    rng = np.random.default_rng(1)
    rows = 300_000
    unique = said(pa.array(rng.permutation(rows)))
    assert unique["sampled"] < 2000
    assert unique["distinct"] == rows
    assert unique["quantiles"]["0.5"] == pytest.approx(rows / 2, rel=0.15)
    periodic = said(pa.array(np.arange(rows) % 4000 * 10_000))
    assert periodic["distinct"] == pytest.approx(4000, rel=0.5)
    skewed = said(pa.array(np.where(rng.random(rows) < 0.3, 0.0, rng.normal(size=rows))), [1000, 250_000])
    value, times = skewed["top"][0]
    assert (value, times) == (0.0, pytest.approx(0.3 * rows, rel=0.2))
    assert sum(skewed["histogram"]) == pytest.approx(rows, rel=0.001)


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(0, 700), max_size=12), most=st.integers(2, 64))
def test_a_sample_is_of_the_rows_alone(sizes: list[int], most: int) -> None:
    rows = pa.array(range(sum(sizes)), pa.int64())
    batched, at_once = RowSample(["c"], most), RowSample(["c"], most)
    start = 0
    for size in sizes:
        batched.take(pa.RecordBatch.from_arrays([rows.slice(start, size)], names=["c"]))
        start += size
    at_once.take(pa.RecordBatch.from_arrays([rows], names=["c"]))
    assert batched.rows <= most
    assert batched.rows >= min(len(rows), most) // 4
    if len(rows):
        one, other = batched.columns["c"].to_pylist(), at_once.columns["c"].to_pylist()
        assert one == other
        assert len(set(one)) == len(one)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_old_and_new_rows_together(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    old = data.draw(st.lists(st.none() | values, max_size=20))
    new = data.draw(st.lists(st.none() | values, max_size=20))
    word = {"wide": "decimal", "bool": "bool", "text": "text", "decimal": "decimal"}.get(name, "integer")
    found = combined(word, said(pa.array(old, kind)), said(pa.array(new, kind)))
    once = said(pa.array([*old, *new], kind))
    canonical_json(found)
    for key in ("count", "null", "nan", "inf", "min", "max"):
        assert found[key] == once[key], key
    if "sampled" not in found and once["distinct"] is not None and name != "wide":
        assert found["distinct"] == once["distinct"]


@given(distinct=st.integers(21, 300), times=st.integers(10, 200), more=st.integers(10, 200))
def test_values_that_come_again_and_again_are_not_counted_twice(distinct: int, times: int, more: int) -> None:
    once = np.arange(distinct, dtype=np.int64)
    old, new = (said(pa.array(np.tile(once, n))) for n in (times, more))
    assert old["distinct"] == new["distinct"] == distinct
    assert combined("integer", old, new)["distinct"] == distinct


def test_texts_of_many_rows_are_compared_by_their_bytes() -> None:
    rng = np.random.default_rng(5)
    words = ["", "a", "ab", "zz", "z" * 300, "é", "\U0001f600", "b\0", "b"]
    for missing in ([], [""], ["", "a", "ab"]):
        known = [w for w in words if w not in missing]
        rows: list[str | None] = [known[i] for i in rng.integers(0, len(known), 3000)]
        rows[::7] = [None] * len(rows[::7])
        found = said(pa.array(rows, pa.large_string()).slice(1), [500, 501], batch=400)
        there = [r for r in rows[1:] if r is not None]
        assert (found["min"], found["max"]) == (min(there)[:256], max(there)[:256])
    assert said(pa.array(["", None, ""] * 100))["max"] == ""
