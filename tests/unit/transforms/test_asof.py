"""`AsOf` against plain Python over all right rows of every left row, on frames and collections of any cut."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError, DataError, SchemaError
from etl.engine.whole import CONFIG
from etl.transforms import AsOf
from etl.transforms.latest import last_known
from tests.preparing import PANDAS, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAY = datetime(2024, 1, 1)  # noqa: DTZ001 # as frames carry them
MOMENTS = st.none() | st.integers(0, 7).map(lambda n: DAY + timedelta(hours=n))
ITEMS = st.sampled_from(["a", "b", "", None])
SHOPS = st.sampled_from([1, 2, None])
LEFT: dict[str, Any] = {"id": pa.int64(), "item": pa.string(), "shop": pa.int32(), "at": pa.timestamp("us")}
RIGHT: dict[str, Any] = {
    "item": pa.string(),
    "shop": pa.int64(),
    "since": pa.timestamp("us"),
    "told": pa.timestamp("us"),
    "key": pa.int64(),
    "price": pa.decimal128(9, 2),
    "tags": pa.list_(pa.int32()),
}
LEFTS = st.lists(st.fixed_dictionaries({"item": ITEMS, "shop": SHOPS, "at": MOMENTS}), max_size=12)
RIGHTS = st.lists(st.fixed_dictionaries({"item": ITEMS, "shop": SHOPS, "since": MOMENTS, "told": MOMENTS}), max_size=14)
BYS = st.sampled_from([(), ("item",), ("item", "shop")])


@pytest.fixture(autouse=True, scope="module")
def _as_a_run_does() -> Iterator[None]:
    with dask.config.set({**CONFIG, "scheduler": "synchronous"}):
        yield


def left_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"id": at, **row} for at, row in enumerate(rows)], schema=pa.schema(LEFT))


def right_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    made = [{"key": at, "price": at if at % 5 else None, "tags": [at], **row} for at, row in enumerate(rows)]
    return pa.Table.from_pylist(made, schema=pa.schema(RIGHT))


def frame_of(table: pa.Table) -> Any:
    return PANDAS.from_arrow(table, schema_of(table))


def collection_of(table: pa.Table, cut: int) -> Any:
    edges = [at * table.num_rows // cut for at in range(cut + 1)]
    pieces = [frame_of(table.slice(a, b - a)) for a, b in pairwise(edges)]
    return dd.from_map(lambda at: pieces[at], range(cut), meta=pieces[0].iloc[:0])


def back(frame: Any) -> pa.Table:
    known = pa.schema({**LEFT, **{f"{name}_then": kind for name, kind in RIGHT.items()}})
    return PANDAS.to_arrow(frame, PANDAS.schema_of(frame, schema_of(known.empty_table())))


def expected(step: AsOf, left: pa.Table, right: pa.Table) -> list[Any]:
    """The key of the right row of each left row."""
    made = []
    for row in left.to_pylist():
        fit = [
            one
            for one in right.to_pylist()
            if all(row[name] is not None and one[name] == row[name] for name in step.by)
            and None not in (row["at"], one["since"], one["told"])
            and one["since"] <= row["at"]
            and one["told"] <= row["at"]
        ]
        best = max(fit, key=lambda one: (one["since"], one["told"], one["key"]), default=None)
        made.append(None if best is None else best["key"])
    return made


def then(by: Any = ("item",), **changed: Any) -> AsOf:
    given_ = {"on": "at", "event": "since", "known": "told", "columns": ["key", "price", "tags"], "tie": "key"}
    return AsOf(**{**given_, "by": by, "suffix": "_then", **changed})


@settings(max_examples=60)
@given(LEFTS, RIGHTS, BYS, st.randoms())
def test_a_row_gets_the_latest_event_that_was_known(lefts: Any, rights: Any, by: Any, random: Any) -> None:
    left, right = left_of(lefts), right_of(rights)
    order = list(range(len(rights)))
    random.shuffle(order)
    step = then(by)
    made = back(step(frame_of(left), frame_of(right.take(pa.array(order, pa.int64())))))
    keys = expected(step, left, right)
    assert made.select(left.column_names).equals(left)
    rows = right.to_pylist()
    for name in step.columns:
        assert made[f"{name}_then"].to_pylist() == [None if key is None else rows[key][name] for key in keys]
        assert made.schema.field(f"{name}_then").type == RIGHT[name]


@settings(max_examples=5)
@given(LEFTS, RIGHTS, BYS)
def test_collections_give_what_frames_give(lefts: Any, rights: Any, by: Any) -> None:
    left, right = left_of(lefts), right_of(rights)
    step = then(by)
    once = back(step(frame_of(left), frame_of(right)))
    for mine, theirs in ((1, 7), (7, 2), (3, 0), (3, 1)):
        other = collection_of(right, theirs) if theirs else frame_of(right)
        made = step(collection_of(left, mine), other)
        parts = dask.compute(made.to_delayed())[0]
        again = pa.concat_tables([back(part) for part in parts])
        if theirs > 1:
            again = again.sort_by("id")
        assert again.equals(once), (mine, theirs)


def test_a_fact_that_was_recorded_late_is_not_known_before() -> None:
    left = left_of([{"item": "a", "at": DAY + timedelta(hours=h)} for h in (0, 1, 2, 3)])
    right = right_of(
        [
            {"item": "a", "since": DAY, "told": DAY},
            {"item": "a", "since": DAY + timedelta(hours=1), "told": DAY + timedelta(hours=3)},
        ]
    )
    made = then()(frame_of(left), frame_of(right))
    assert made["key_then"].tolist() == [0, 0, 0, 1]


def test_rows_of_one_time_are_refused_unless_they_say_the_same() -> None:
    left = frame_of(left_of([{"item": "a", "at": DAY}]))
    twins = right_of([{"item": "a", "since": DAY, "told": DAY, "price": 3, "tags": [1]}] * 2)
    assert then(tie=(), columns=["price", "tags"])(left, frame_of(twins))["tags_then"].tolist()[0] == [1]
    with pytest.raises(DataError, match=r"two right rows have the same times, item a, since .*, and key 0 and 1"):
        then(tie=())(left, frame_of(twins))
    assert then()(left, frame_of(twins))["key_then"].tolist() == [1]


def test_whole_numbers_of_any_width_are_times_too() -> None:
    left = pa.table({"t": pa.array([5, -1], pa.int32())})
    right = pa.table({"t0": pa.array([0, 4], pa.int64()), "v": ["x", "y"]})
    made = AsOf(on="t", event="t0", known="t0", columns="v")(frame_of(left), frame_of(right))
    assert made["v"].fillna("-").tolist() == ["y", "-"]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"on": "when"}, SchemaError, "AsOf, left: no column when"),
        ({"known": "known"}, SchemaError, "AsOf, right: no column known"),
        ({"event": "day"}, SchemaError, "at is timestamp.* and day is date32"),
        ({"event": "key"}, SchemaError, "at of the left rows is .*, key of the right rows is int64"),
        ({"by": "price"}, SchemaError, "AsOf, left: no column price"),
        ({"by": "kind"}, SchemaError, "kind of the left rows is int64, kind of the right rows is string"),
        ({"columns": "item", "suffix": ""}, ConfigError, "there is a column item already"),
        ({"columns": ["item", "item"]}, ConfigError, "names item twice"),
        ({"on": ""}, ConfigError, "on is ''"),
        ({"suffix": 3}, ConfigError, "suffix is 3"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_row(changed: Any, error: Any, words: str) -> None:
    left = left_of([]).append_column("kind", pa.array([], pa.int64()))
    right = (
        right_of([]).append_column("day", pa.array([], pa.date32())).append_column("kind", pa.array([], pa.string()))
    )
    for pair in (
        (frame_of(left), frame_of(right)),
        (dd.from_pandas(frame_of(left), npartitions=1), dd.from_pandas(frame_of(right), npartitions=1)),
    ):
        with pytest.raises(error, match=words):
            then(**changed)(*pair)


def test_a_frame_beside_a_collection_is_refused() -> None:
    left, right = frame_of(left_of([])), dd.from_pandas(frame_of(right_of([])), npartitions=1)
    with pytest.raises(SchemaError, match="the left rows are a frame and the right rows a collection"):
        then()(left, right)
    with pytest.raises(SchemaError, match=r"AsOf, right: no column"):
        then()(frame_of(left_of([])), right_of([]))


@given(
    st.lists(st.integers(0, 9), max_size=70),
    st.lists(st.tuples(st.integers(0, 70), st.integers(-1, 10)), max_size=12),
)
def test_the_last_that_was_known_is_found(known: list[int], asked: list[tuple[int, int]]) -> None:
    stops = [min(stop, len(known)) for stop, _ in asked]
    moments = [moment for _, moment in asked]
    ints = np.int64
    got = last_known(np.array(known, ints), np.array(stops, ints), np.array(moments, ints))
    want = [
        max((at for at in range(stop) if known[at] <= moment), default=-1)
        for stop, moment in zip(stops, moments, strict=True)
    ]
    assert got.tolist() == want
