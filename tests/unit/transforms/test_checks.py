"""Data checks on tables, against plain Python: the same however rows are cut into parts and batches."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import checks
from etl.core.errors import ConfigError, SchemaError
from etl.run.plain import from_json, to_json
from etl.tensors.checking import Ending
from etl.transforms import Filter
from etl.transforms.checking.base import Checks
from tests.preparing import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.tensors.checking import Verdict
    from etl.transforms.checking.base import Check

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def judged(
    check: Check,
    table: pa.Table,
    parts: Sequence[int] = (),
    *,
    keys: Sequence[str] = (),
    batch_rows: int = 3,
    last: int | None = None,
) -> Verdict:
    """What comes of one check, its facts written down and read again between the parts and the end."""
    schema = schema_of(table)
    all_of = pickle.loads(pickle.dumps(Checks((check,))))
    all_of.refuse(schema)
    facts = []
    for number, (start, stop) in enumerate(pairwise([0, *parts, table.num_rows])):
        watch = all_of.watch(schema, keys, number)
        for batch in table.slice(start, stop - start).to_batches(max_chunksize=batch_rows):
            watch.take(batch)
        facts.append(from_json(to_json(watch.facts())))
    (found,) = all_of.judged(facts, Ending(table.num_rows, last, NOW))
    made: Verdict = found
    return made


def both(check: Check, table: pa.Table, **more: Any) -> Verdict:
    """In one part and in several: equal but for the place of the sample."""
    one = judged(check, table, keys=["id"], **more)
    assert judged(check, table, [1, 4], keys=["id"], batch_rows=2, **more) == one
    return one


def table(**columns: Any) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.table({"id": pa.array(range(rows), pa.int64())} | columns)


def test_null_offends_not_null_and_counts_in_null_rate_alone() -> None:
    rows = table(a=pa.array([1.0, None, float("nan"), None, 5.0]))
    found = both(checks.not_null("a"), rows)
    assert (found.passed, found.rows, found.sample) == (False, 2, ({"id": 1}, {"id": 3}))
    assert both(checks.null_rate("a", 0.4), rows).passed
    assert both(checks.null_rate("a", 0.4), rows).observed == 0.4
    assert not both(checks.null_rate("a", 0.39), rows).passed
    assert both(checks.not_null(["id"]), rows).passed


def test_nan_and_what_lies_outside_are_not_in_range() -> None:
    rows = table(a=pa.array([0.0, 1.0, None, float("nan"), 1.5, -0.5]))
    assert [one["id"] for one in both(checks.in_range("a", 0, 1), rows).sample] == [3, 4, 5]
    assert [one["id"] for one in both(checks.in_range("a", max=1), rows).sample] == [3, 4]
    whens = table(t=pa.array([NOW, NOW + timedelta(days=1), None], pa.timestamp("us", "UTC")))
    assert both(checks.in_range("t", max=NOW), whens).sample == ({"id": 1},)
    prices = table(p=pa.array([Decimal("0.10"), Decimal("0.11"), None], pa.decimal128(10, 2)))
    assert both(checks.in_range("p", max=Decimal("0.10")), prices).sample == ({"id": 1},)


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=20),
    st.lists(st.integers(-3, 3), min_size=1, max_size=4),
    st.integers(-3, 3),
)
def test_as_plain_python_says_of_every_row(values: list[int | None], wanted: list[int], least: int) -> None:
    rows = table(a=pa.array(values, pa.int16()))
    present = [(i, v) for i, v in enumerate(values) if v is not None]
    among = [i for i, v in present if v not in wanted]
    counted = Counter(v for _, v in present)
    shared = [v for _, v in present if counted[v] > 1]
    cuts = sorted({len(values) // 3, len(values) // 2})
    for check, expected in (
        (checks.accepted_values("a", wanted), among),
        (checks.references("a", wanted), among),
        (checks.in_range("a", least), [i for i, v in present if v < least]),
        (checks.custom(Filter("a", ">=", least)), [i for i, v in present if v < least]),
    ):
        found = judged(check, rows, cuts, keys=["id"])
        assert (found.passed, found.rows) == (not expected, len(expected))
        assert [one["id"] for one in found.sample] == expected[:10]
    unique = judged(checks.unique("a"), rows, cuts)
    assert (unique.passed, unique.rows) == (not shared, len(shared))
    assert [one["a"] for one in unique.sample] == sorted(set(shared))
    total = sum(v for _, v in present)
    assert judged(checks.sum_matches("a", total), rows, cuts).passed
    assert not judged(checks.sum_matches("a", total + 1), rows, cuts).passed


def test_keys_are_unique_over_parts_and_columns_together() -> None:
    rows = table(day=["a", "a", "b", "b", None, None], n=pa.array([1, 2, 1, 1, 1, 1]))
    found = both(checks.unique(["day", "n"]), rows)
    assert (found.passed, found.rows, found.sample) == (False, 2, ({"day": "b", "n": 1},))
    assert both(checks.unique("id"), rows).passed
    labels = table(k=pa.array(["x", "y", "x"]).dictionary_encode())
    assert both(checks.unique("k"), labels).sample == ({"k": "x"},)


def test_a_pattern_is_of_all_of_the_text() -> None:
    texts = ["12345", "1234", "123456", "12345\n", None, ""]
    for column in (pa.array(texts), pa.array(texts).dictionary_encode(), pa.array(texts, pa.large_string())):
        found = both(checks.matches("zip", r"\d{5}|x"), table(zip=column))
        assert [one["id"] for one in found.sample] == [1, 2, 3, 5]


def test_without_keys_a_row_is_named_by_its_part_and_place() -> None:
    rows = table(a=pa.array([None, 1, None, 1, None], pa.int8()))
    found = judged(checks.not_null("a"), rows, [3], batch_rows=2)
    assert found.sample == ({"part": 0, "row": 1}, {"part": 0, "row": 3}, {"part": 1, "row": 2})


def test_a_sample_is_ten_keys_and_no_rows() -> None:
    rows = table(a=pa.nulls(50, pa.int8()), secret=["hidden"] * 50)
    found = judged(checks.not_null("a"), rows, [20, 21], keys=["id"])
    assert [one["id"] for one in found.sample] == list(range(10))
    assert "hidden" not in str(found.as_json())


def test_rows_are_counted_and_held_to_those_of_the_version_before() -> None:
    rows = table(a=[1, 2, 3, 4])
    assert both(checks.row_count(4, 4), rows).passed
    assert not both(checks.row_count(5), rows).passed
    assert not both(checks.row_count(max=3), rows).passed
    assert both(checks.row_count_vs_last(0.5, 2), rows).passed
    assert both(checks.row_count_vs_last(0.5, 2), rows, last=8).passed
    assert not both(checks.row_count_vs_last(0.5), rows, last=9).passed
    assert not both(checks.row_count_vs_last(max=2), rows, last=1).passed
    assert not both(checks.row_count_vs_last(max=2), rows, last=0).passed


def test_the_newest_moment_is_held_to_the_clock_that_is_given() -> None:
    day = timedelta(days=1)
    naive = (NOW - day).replace(tzinfo=None)
    for kind in (pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")):
        rows = table(t=pa.array([None, naive, naive - day], kind))
        assert both(checks.freshness("t", day), rows).passed
        assert not both(checks.freshness("t", day - timedelta(seconds=1)), rows).passed
        assert not both(checks.freshness("t", day, now=NOW + day), rows).passed
    zoned = table(t=pa.array([NOW - day], pa.timestamp("us", "Asia/Tokyo")))
    assert both(checks.freshness("t", day), zoned).observed == (NOW - day).isoformat()
    dates = table(t=pa.array([NOW.date()], pa.date32()))
    assert both(checks.freshness("t", timedelta(hours=12)), dates).passed
    assert not both(checks.freshness("t", day), table(t=pa.nulls(2, pa.date32()))).passed


def test_moments_that_python_has_not_are_compared_and_told() -> None:
    day = timedelta(days=1)
    for column in (
        pa.array([2**58, None, 5], pa.timestamp("us")),
        pa.array([2**58, None, 5], pa.timestamp("s")),
        pa.array([2**31 - 1, None, 5], pa.date32()),
    ):
        found = both(checks.freshness("t", day), table(t=column))
        assert found.passed
        assert str(found.observed).endswith(" microseconds after 1970")
    far = pa.array([2**58, 2**58, 5], pa.timestamp("us"))
    assert both(checks.unique("t"), table(t=far)).rows == 2
    found = judged(checks.not_null("a"), table(a=pa.nulls(3, pa.int8()), t=far), keys=["t"])
    expected = [str(np.datetime64(ticks, "us")).replace("T", " ") for ticks in (2**58, 2**58, 5)]
    assert [one["t"] for one in found.sample] == expected


def test_an_infinite_end_has_a_form_in_the_manifest() -> None:
    found = both(checks.in_range("a", -math.inf, 1.5), table(a=pa.array([1.0, 2.0])))
    assert found.rows == 1
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["limit"] == {"min": "-inf", "max": 1.5}


def test_sums_are_exact_where_int64_and_float64_are_not() -> None:
    most = 2**63 - 1
    rows = table(a=pa.array([most, most, most], pa.int64()), d=pa.array([Decimal("9" * 38)] * 3, pa.decimal128(38)))
    assert both(checks.sum_matches("a", 3 * most), rows).passed
    assert not both(checks.sum_matches("a", 3 * most - 1), rows).passed
    assert both(checks.sum_matches("d", Decimal(3 * int("9" * 38))), rows).passed
    assert not both(checks.sum_matches("a", "d"), rows).passed
    apart = table(f=pa.array([1e300, 1.0, -1e300, 5e-324, None, 1.0]))
    assert both(checks.sum_matches("f", 2, tolerance=1e-300), apart).passed
    assert not both(checks.sum_matches("f", 2, tolerance=Decimal("1e-330")), apart).passed
    floats = table(f=pa.array([0.1, 0.2, None]))
    assert both(checks.sum_matches("f", 0.3, tolerance=1e-9), floats).passed
    nan = table(f=pa.array([0.1, float("nan")]))
    assert not both(checks.sum_matches("f", 0.1, tolerance=1e9), nan).passed


def test_a_column_of_bools_is_a_check() -> None:
    found = both(checks.custom("ok"), table(ok=pa.array([True, None, False, True, False])))
    assert [one["id"] for one in found.sample] == [2, 4]
    found = both(checks.custom(Filter("ok", "not null")), table(ok=pa.array([True, None, False])))
    assert found.sample == ({"id": 1},)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (checks.not_null("b"), "b"),
        (checks.in_range("text", 0, 1), "text is string"),
        (checks.matches("a", "x"), "no text"),
        (checks.accepted_values("a", ["x"]), "'x'"),
        (checks.freshness("a", timedelta(1)), "no moment"),
        (checks.sum_matches("text", 1), "no sum"),
        (checks.sum_matches("f", 1), "tolerance"),
        (checks.custom("a"), "true or false"),
        (checks.unique("f"), "no categories"),
    ],
)
def test_columns_that_a_check_cannot_be_of_are_refused_by_the_schema(check: Check, said: str) -> None:
    schema = schema_of(table(a=[1], text=["x"], f=[0.5]))
    with pytest.raises((ConfigError, SchemaError), match=said):
        Checks((check,)).refuse(schema)


@pytest.mark.parametrize(
    "make",
    [
        lambda: checks.in_range("a"),
        checks.row_count,
        lambda: checks.row_count(2, 1),
        lambda: checks.row_count_vs_last(float("nan")),
        lambda: checks.null_rate("a", 2),
        lambda: checks.matches("a", "("),
        lambda: checks.matches("a", r"(a)\1"),
        lambda: checks.null_rate("a", "x"),  # type: ignore[arg-type]
        lambda: checks.freshness("a", -timedelta(1)),
        lambda: checks.freshness("a", 24),  # type: ignore[arg-type]
        lambda: checks.not_null([]),
        lambda: checks.not_null("a", severity="fatal"),  # type: ignore[arg-type]
        lambda: checks.accepted_values("a", [None]),
        checks.drift,
        lambda: checks.custom(lambda *given: given, "a"),
    ],
    ids=range(15),
)
def test_arguments_that_mean_nothing_are_refused_at_once(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
