"""`Lag` and `Rolling` against plain Python over every row's own window, on frames and collections of any cut."""

from __future__ import annotations

import math
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError, DataError, SchemaError
from etl.engine.whole import CONFIG
from etl.transforms import Lag, Rolling
from tests.preparing import PANDAS, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAY = datetime(2024, 1, 1)  # noqa: DTZ001 # as frames carry them
KINDS: dict[str, Any] = {
    "whole": pa.int64(),
    "small": pa.int8(),
    "large": pa.uint64(),
    "money": pa.decimal128(20, 2),
    "real": pa.float64(),
    "flag": pa.bool_(),
}
FIELDS: dict[str, Any] = {"id": pa.int64(), "user": pa.string(), "shop": pa.int32(), "at": pa.timestamp("us"), **KINDS}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.sampled_from(["a", "b", None]),
            "shop": st.sampled_from([1, 2, None]),
            "at": st.integers(0, 6).map(lambda n: DAY + timedelta(hours=12 * n)),
            "whole": st.none() | st.integers(-(2**59), 2**59),
            "small": st.none() | st.integers(-128, 127),
            "large": st.none() | st.integers(0, 2**59),
            "money": st.none() | st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-2)),
            "real": st.none() | st.floats(-1e9, 1e9) | st.just(math.nan),
            "flag": st.none() | st.booleans(),
        }
    ),
    max_size=14,
)


@pytest.fixture(autouse=True, scope="module")
def _as_a_run_does() -> Iterator[None]:
    with dask.config.set({**CONFIG, "scheduler": "synchronous"}):
        yield


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    fields = [pa.field(name, kind) for name, kind in FIELDS.items()]
    return pa.Table.from_pylist([{"id": at, **row} for at, row in enumerate(rows)], schema=pa.schema(fields))


def frame_of(table: pa.Table) -> Any:
    return PANDAS.from_arrow(table, schema_of(table))


def back(frame: Any) -> pa.Table:
    return PANDAS.to_arrow(frame, PANDAS.schema_of(frame, schema_of(table_of([])))).sort_by("id")


def done(step: Any, table: pa.Table, cut: int = 1) -> pa.Table:
    """What it gives for a frame, or for a collection of so many partitions; by id."""
    if cut == 1:
        return back(step(frame_of(table)))
    edges = [at * table.num_rows // cut for at in range(cut + 1)]
    pieces = [frame_of(table.slice(a, b - a)) for a, b in pairwise(edges)]
    made = step(dd.from_map(lambda at: pieces[at], range(cut), meta=pieces[0].iloc[:0]))
    parts = dask.compute(made.to_delayed())[0]
    for part in parts:
        assert (part.dtypes == made._meta.dtypes).all()
    return pa.concat_tables([PANDAS.to_arrow(p, PANDAS.schema_of(p, schema_of(table))) for p in parts]).sort_by("id")


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["at"], row["id"]


def earlier(rows: list[dict[str, Any]], row: dict[str, Any], by: Sequence[str]) -> list[dict[str, Any]]:
    """The rows before one in its group, in their order."""
    mine = [one for one in rows if all(one[name] == row[name] for name in by)]
    return sorted((one for one in mine if place(one) < place(row)), key=place)


def figure(stat: str, values: list[Any]) -> Any:
    """A figure of a window's values, in fractions."""
    if stat == "count":
        return len(values)
    if not values:
        return None
    if any(isinstance(v, float) and math.isnan(v) for v in values):
        return math.nan
    if stat in ("min", "max"):
        return min(values) if stat == "min" else max(values)
    exact = [Fraction(v) for v in values]
    total = sum(exact)
    if stat == "sum":
        return Decimal(total.numerator) / Decimal(total.denominator) if isinstance(values[0], Decimal) else total
    mean = total / len(exact)
    if stat == "mean":
        return float(mean)
    return math.sqrt(sum((one - mean) ** 2 for one in exact) / len(exact))


def same(got: Any, want: Any, size: float) -> bool:
    if want is None or got is None:
        return got is want
    if isinstance(got, float):
        if math.isnan(got) or math.isnan(want):
            return math.isnan(got) and math.isnan(want)
        return math.isclose(got, want, rel_tol=1e-12, abs_tol=1e-12 * size)
    return bool(got == want)


def in_window(one: dict[str, Any], row: dict[str, Any], length: timedelta, closed: str) -> bool:
    if closed == "left":
        return bool(row["at"] - length <= one["at"] < row["at"])
    return bool(row["at"] - length < one["at"] <= row["at"])


@settings(max_examples=40)
@given(ROWS, st.integers(1, 3), st.sampled_from([(), ("user",), ("user", "shop")]), st.randoms())
def test_a_lag_is_the_value_so_many_rows_before(rows: Any, n: int, by: Any, random: Any) -> None:
    table = table_of(rows)
    rows = table.to_pylist()
    order = list(range(len(rows)))
    random.shuffle(order)
    step = Lag(list(KINDS), n, by=by, sort="at", tie="id", into="{column}_before")
    made = done(step, table.take(pa.array(order, pa.int64())))
    for row, got in zip(rows, made.to_pylist(), strict=True):
        before = earlier(rows, row, by)
        for name in KINDS:
            want = before[-n][name] if len(before) >= n else None
            assert repr(got[f"{name}_before"]) == repr(want), (name, row)
    assert [made.schema.field(f"{name}_before").type for name in KINDS] == list(KINDS.values())


@settings(max_examples=40)
@given(
    ROWS,
    st.sampled_from([1, 2, 5, 100, "12h", "1d", "2d", "2w"]),
    st.sampled_from([(), ("user",), ("user", "shop")]),
    st.sampled_from(["left", "right"]),
    st.integers(1, 3),
    st.randoms(),
)
def test_a_figure_is_that_of_the_rows_of_its_window(
    rows: Any, window: Any, by: Any, closed: Any, least: int, random: Any
) -> None:
    table = table_of(rows)
    rows = table.to_pylist()
    order = list(range(len(rows)))
    random.shuffle(order)
    step = Rolling(list(KINDS), window, by=by, sort="at", tie="id", min_rows=least, closed=closed)
    made = done(step, table.take(pa.array(order, pa.int64())))
    length = {"12h": 12, "1d": 24, "2d": 48, "2w": 24 * 14}
    for row, got in zip(rows, made.to_pylist(), strict=True):
        if isinstance(window, int):
            inside = earlier(rows, row, by) + ([row] if closed == "right" else [])
            inside = inside[-window:]
        else:
            mine = [one for one in rows if all(one[name] == row[name] for name in by)]
            inside = [one for one in mine if in_window(one, row, timedelta(hours=length[window]), closed)]
        for name in KINDS:
            values = [one[name] for one in inside if one[name] is not None]
            size = max((abs(float(v)) for v in values), default=0.0) * max(1, len(values))
            for stat in step.stats:
                want = figure(stat, values) if len(values) >= least or stat == "count" else None
                found = got[f"{name}_{stat}_{window}"]
                assert same(found, want, size), (name, stat, row, found, want)


@settings(max_examples=4)
@given(ROWS, st.sampled_from([(), ("user",), ("user", "shop")]), st.sampled_from([2, "1d"]))
def test_a_collection_gives_what_a_frame_gives(rows: Any, by: Any, window: Any) -> None:
    table = table_of(rows)
    for step in (
        Rolling(["whole", "money", "real"], window, by=by, sort="at", tie="id"),
        Lag(["user", "money"], by=by, sort="at", tie="id"),
    ):
        once = done(step, table)
        for cut in (2, 7):
            again = done(step, table, cut)
            assert repr(again.to_pydict()) == repr(once.to_pydict())


def test_rows_and_index_stay_as_they_are() -> None:
    frame = frame_of(table_of([{"at": DAY + timedelta(days=n), "whole": n} for n in (2, 0, 1)]))
    frame.index = [7, 7, 3]
    before = repr(frame)
    made = Rolling("whole", 1, sort="at", tie="id", stats="sum")(frame)
    assert made["id"].tolist() == [0, 1, 2]
    assert made.index.tolist() == [7, 7, 3]
    assert made["whole_sum_1"].fillna(-1).tolist() == [1, -1, 0]
    assert repr(frame) == before


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"user": "a", "at": None}], r"column at, row 1: NULL has no place in an order; user a, shop 3"),
        ([{"user": "a", "at": DAY}, {"user": "a", "at": DAY}], "two rows have the same place in the order, user a"),
    ],
)
def test_an_order_that_is_none_is_refused(rows: Any, words: str) -> None:
    frame = frame_of(table_of([{"shop": 3, **row} for row in rows]))
    for step in (
        Lag("whole", by="user", sort="at", tie="shop"),
        Rolling("whole", 2, by="user", sort="at", tie="shop"),
    ):
        with pytest.raises(DataError, match=words):
            step(frame)


def test_two_rows_of_one_place_in_other_groups_are_none() -> None:
    frame = frame_of(table_of([{"user": user, "at": DAY, "shop": 1, "whole": 4} for user in ("a", "b", None)]))
    assert Lag("whole", by="user", sort="at", tie="shop")(frame)["whole_lag1"].isna().all()


@pytest.mark.parametrize(
    ("kind", "values", "fits"),
    [
        (pa.int64(), [2**63 - 1, 1], False),
        (pa.int64(), [2**63 - 1, -1], True),
        (pa.int64(), [-(2**63), 0], True),
        (pa.int64(), [-(2**63), -1], False),
        (pa.uint64(), [2**64 - 1, 1], False),
        (pa.uint64(), [2**64 - 2, 1], True),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)], False),
        (pa.decimal128(38, 0), [Decimal(10**38 - 2), Decimal(1)], True),
        (pa.decimal128(38, 0), [Decimal(1 - 10**38), Decimal(-1)], False),
        (pa.float64(), [1.7e308, 1.7e308], False),
        (pa.float64(), [math.inf, 1.0], True),
    ],
)
def test_a_sum_is_exact_or_refused(kind: Any, values: list[Any], fits: Any) -> None:
    table = pa.table({"id": [1, 2], "n": pa.array(values, kind)})
    step = Rolling("n", 2, sort="id", tie="id", stats="sum", closed="right")
    if not fits:
        with pytest.raises(CastError, match=r"a sum of n does not fit .*, for the row with id 2"):
            step(frame_of(table))
        return
    made = step(frame_of(table))
    (_, total) = PANDAS.to_arrow(made, PANDAS.schema_of(made, schema_of(table)))["n_sum_2"].to_pylist()
    assert total == (sum(values) if kind == pa.float64() else sum(int(one) for one in values))


def test_a_large_value_leaves_nothing_behind_in_later_windows() -> None:
    values = [1e300, 1.0, 2.0, math.inf, math.nan, 0.1, 0.2, 0.3]
    table = pa.table({"id": range(8), "x": values})
    made = Rolling("x", 2, sort="id", tie="id", stats=["sum", "mean", "std"], closed="right")(frame_of(table))
    assert made["x_sum_2"][2] == 3.0
    assert made["x_std_2"][2] == 0.5
    assert made["x_sum_2"][7] == 0.5
    assert made["x_mean_2"][6] == (0.1 + 0.2) / 2


def test_the_spread_of_large_whole_numbers_near_each_other_is_exact() -> None:
    table = pa.table({"id": range(3), "n": pa.array([2**62 + 1, 2**62 + 3, None], pa.int64())})
    made = Rolling("n", 2, sort="id", tie="id", stats="std", closed="right")(frame_of(table))
    assert made["n_std_2"][1] == 1.0


def test_days_and_moments_of_a_zone_are_times_too() -> None:
    days = pa.array([DAY.date(), (DAY + timedelta(days=3)).date(), (DAY + timedelta(days=4)).date()], pa.date32())
    for kind in (pa.date32(), pa.timestamp("us", "UTC")):
        table = pa.table({"id": range(3), "at": days.cast(kind), "n": [1, 2, 4]})
        made = Rolling("n", "3d", sort="at", tie="id", stats=["sum", "count"])(frame_of(table))
        with pytest.raises(ConfigError, match="at has days only") if kind == pa.date32() else nullcontext():
            Rolling("n", "12h", sort="at", tie="id")(frame_of(table))
        assert made["n_sum_3d"].fillna(-1).tolist() == [-1, 1, 2]
        assert made["n_count_3d"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Lag("x", 0, sort="at", tie="id"), "n is 0"),
        (lambda: Lag("x", 1.0, sort="at", tie="id"), "n is 1.0"),  # type: ignore[arg-type]
        (lambda: Lag("x", sort="", tie="id"), "sort is ''"),
        (lambda: Lag("x", sort="at", tie=[]), "names no column"),
        (lambda: Lag("x", sort="at", tie="id", into=""), "into is ''"),
        (lambda: Rolling("x", "7 days", sort="at", tie="id"), "the window is '7 days'"),
        (lambda: Rolling("x", 0, sort="at", tie="id"), "the window is 0"),
        (lambda: Rolling("x", timedelta(0), sort="at", tie="id"), "the window is"),
        (lambda: Rolling("x", 3, sort="at", tie="id", stats=["median"]), "no stat 'median'"),  # type: ignore[list-item]
        (lambda: Rolling("x", 3, sort="at", tie="id", stats=[]), "no stats"),
        (lambda: Rolling("x", 3, sort="at", tie="id", min_rows=0), "min_rows is 0"),
        (lambda: Rolling("x", 3, sort="at", tie="id", closed="both"), "closed is 'both'"),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_there_are_none_of_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (Lag("wohle", sort="at", tie="id"), SchemaError, "no column wohle"),
        (Lag("whole", by="real", sort="at", tie="id"), ConfigError, "groups are not made by floats"),
        (Lag("whole", sort="at", tie="id", into="shop"), ConfigError, "there is a column shop already"),
        (Lag(["whole", "shop"], sort="at", tie="id", into="one"), ConfigError, "there is a column one already"),
        (Rolling("user", 3, sort="at", tie="id"), ConfigError, "user is string, which has no mean"),
        (Rolling("whole", "7d", sort="id", tie="id"), ConfigError, "which is no time"),
    ],
)
def test_columns_that_do_not_fit_are_refused_without_a_row(step: Any, error: Any, words: str) -> None:
    empty = frame_of(table_of([]))
    for frame in (empty, dd.from_pandas(empty, npartitions=1)):
        with pytest.raises(error, match=words):
            step(frame)


def test_a_window_is_saved_as_it_was_said() -> None:
    assert Rolling("x", timedelta(days=7), sort="at", tie="id").window == "7d"
    assert Rolling("x", timedelta(minutes=90), sort="at", tie="id").window == "90min"
    assert Rolling("x", "2w", sort="at", tie="id").window == "2w"
