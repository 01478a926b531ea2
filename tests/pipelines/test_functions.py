"""The functions of the examples give what plain Python gives for the same rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from etl import testing
from etl.core.schema import Field, Schema
from etl.engine.backends import backend
from etl.planning import loader
from tests.command import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.planning.definition import Pipeline

DAY = dt.date(2024, 3, 1)
DAYS = st.integers(0, 6).map(lambda n: DAY + dt.timedelta(n))
ORDERS = st.lists(st.tuples(st.integers(1, 3), DAYS, st.integers(0, 23)), max_size=8)
SHIPMENTS = st.lists(st.tuples(st.integers(1, 3), DAYS, st.integers(1, 3), st.integers(1, 10_000)), max_size=12)


def example(name: str) -> Pipeline:
    return loader.load(str(ROOT / "pipelines" / f"{name}.py"))


def called(name: str, sources: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """What an example's function makes of tables, as plain frames."""
    pipeline = example(name)
    pandas = backend("pandas")
    schemas = {n: Schema(tuple(Field(f.name, f.type) for f in t.schema)) for n, t in sources.items()}
    assert pipeline.function is not None
    frame = pipeline.function.load()(**{n: pandas.from_arrow(t, schemas[n]) for n, t in sources.items()})
    (first, *_) = schemas.values()
    found: list[dict[str, Any]] = pandas.to_arrow(frame, pandas.schema_of(frame.iloc[:0], first)).to_pylist()
    return found


@settings(max_examples=40, deadline=None)
@given(orders=ORDERS, shipments=SHIPMENTS)
def test_an_order_knows_the_shipments_of_earlier_days_and_no_others(
    orders: list[tuple[int, dt.date, int]], shipments: list[tuple[int, dt.date, int, int]]
) -> None:
    placed = pa.table(
        {
            "order_id": pa.array(range(len(orders)), pa.int64()),
            "user_id": pa.array([user for user, _, _ in orders], pa.int64()),
            "ordered_at": pa.array(
                [dt.datetime.combine(day, dt.time(hour)) for _, day, hour in orders], pa.timestamp("us")
            ),
            "gift": pa.array([None if user == 3 else True for user, _, _ in orders], pa.bool_()),
        }
    )
    shipped = pa.table(
        {
            "order_id": pa.array(range(len(shipments)), pa.int64()),
            "user_id": pa.array([user for user, _, _, _ in shipments], pa.int64()),
            "qty": pa.array([qty for _, _, qty, _ in shipments], pa.int64()),
            "price": pa.array([Decimal(cents) / 100 for _, _, _, cents in shipments], pa.decimal128(10, 2)),
            "shipped_on": pa.array([day for _, day, _, _ in shipments], pa.date32()),
        }
    )
    found = {row["order_id"]: row for row in called("point_in_time", {"orders": placed, "shipments": shipped})}
    assert found.keys() == set(range(len(orders)))
    for order, (user, day, _) in enumerate(orders):
        known = [one for one in shipments if one[0] == user and one[1] < day]
        row = found[order]
        assert row["shipped_before"] == len(known)
        assert row["spent_before"] == sum(qty * cents for _, _, qty, cents in known) / 100
        since = min(((day - one[1]).days for one in known), default=None)
        assert row["days_since_shipment"] == since
        assert row["gift"] is (None if user == 3 else True)


def test_features_of_an_order() -> None:
    orders = pa.table(
        {
            "order_id": [1, 2],
            "user_id": [7, 8],
            "qty": [2, 1],
            "price": pa.array([Decimal("10.00"), Decimal("0.50")], pa.decimal128(10, 2)),
            "discount": pa.array([Decimal("0.25"), None], pa.decimal128(4, 2)),
            "ordered_at": pa.array(["2024-03-03T23:59", "2024-03-04T00:00"]).cast(pa.timestamp("us")),
            "gift": [True, False],
            "list_price": pa.array([Decimal("20.00"), Decimal("0.50")], pa.decimal128(10, 2)),
            "weight": [None, 1.5],
        }
    )
    pipeline = example("shop_features")
    first, second = testing.run(replace(pipeline, prepare=()), sources={"orders": orders}).to_pylist()
    assert (first["paid"], first["share_of_list"], first["discount"], first["weight"]) == (15.0, 0.5, 0.25, None)
    assert (first["hour"], first["weekday"], second["hour"], second["weekday"]) == (23, 6, 0, 0)
    assert (second["paid"], second["discount"], second["gift"]) == (0.5, 0.0, False)
    for row, sign in zip(testing.run(pipeline, sources={"orders": orders}).to_pylist(), (1.0, -1.0), strict=True):
        # Of two rows each is one deviation from the mean; the weight that is missing is the one that is known.
        assert (row["qty"], row["paid"], row["share_of_list"], row["discount"]) == (sign, sign, -sign, sign)
        assert row["weight"] == 0.0
