"""What `etl.testing` gives users: the rows of a pipeline over tables, and a comparison that can fail."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import etl
from etl import SQL, Parquet, Tensors, errors, pipeline, testing

if TYPE_CHECKING:
    import pandas as pd

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "qty": pa.array([2, None, 4, 1], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("0.01")], pa.decimal128(10, 2)),
    }
)


@pipeline(
    sources={"orders": SQL("warehouse", "select * from orders where day = :day")},
    sink=Tensors("lake/{day}", features=["qty", "paid"], key="id", nulls="mask"),
    params={"day": date},
    rowwise=True,
)
def paid(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(paid=orders["qty"] * orders["price"].astype("float64"))


@pipeline(sources={"orders": SQL("warehouse", table="orders")}, sink=Parquet("lake/orders"), rowwise=True)
def by_place(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(place=range(len(orders)))


def test_the_rows_of_a_pipeline_over_tables() -> None:
    found = testing.run(paid, sources={"orders": ORDERS}, day=date(2024, 1, 1))
    assert found.column("paid").to_pylist() == [3.0, None, None, 0.01]
    assert found.select(["id", "qty", "price"]).equals(ORDERS)


def test_what_the_sink_refuses_is_refused() -> None:
    refusing = pipeline(
        name="refusing", sources={"orders": SQL("warehouse", table="orders")}, sink=Tensors("lake", nulls="error")
    )
    with pytest.raises(errors.CastError, match="qty"):
        testing.run(refusing, sources={"orders": ORDERS})


def test_sources_and_tables_are_the_same_names() -> None:
    with pytest.raises(errors.ConfigError, match=r"no source order\b.*orders"):
        testing.run(paid, sources={"order": ORDERS}, day=date(2024, 1, 1))
    with pytest.raises(errors.ConfigError, match="orders of pipeline paid has no table"):
        testing.run(paid, sources={}, day=date(2024, 1, 1))


def test_a_function_that_agrees_with_itself_in_parts() -> None:
    said = testing.assert_backends_agree(paid, sources={"orders": ORDERS}, day=date(2024, 1, 1))
    assert said.startswith("pandas, one part against 4") or said == "pandas against cuDF"


def test_a_function_that_counts_rows_of_its_part_is_found_out() -> None:
    with pytest.raises(AssertionError, match="column place is"):
        testing.assert_backends_agree(by_place, sources={"orders": ORDERS})


def test_testing_is_found_through_the_public_door() -> None:
    assert etl.testing is testing
