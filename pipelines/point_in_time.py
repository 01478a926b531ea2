"""What was known of a buyer before each order: a join of two sources that never looks ahead.

An order is known to have been fulfilled when it is shipped, days after it was placed. A join by user alone would give
each order the shipments that came after it, and a model would learn from the future. Here every row of `shipments`
carries the day from which it is known, and counts for the orders placed on later days only.

`cuetl run pipelines/point_in_time.py`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl import SQL, Tensors, frames, pipeline

if TYPE_CHECKING:
    import dask.dataframe as dd

SHIPMENTS = "select order_id, user_id, qty, price, shipped_on from orders where shipped_on is not null"


@pipeline(
    sources={
        "orders": SQL("shop", table="orders", columns=["order_id", "user_id", "ordered_at", "gift"]),
        "shipments": SQL("shop", SHIPMENTS, partition_column="order_id"),
    },
    sink=Tensors(
        "out/point_in_time",
        features=["shipped_before", "spent_before", "days_since_shipment"],
        target=["gift"],
        key=["order_id"],
        order="key",  # a join promises no order of its own
        dtype="float32",
        cast="round",
        split={"train": 0.8, "test": 0.2},
        split_key=["user_id"],
    ),
)
def point_in_time(orders: dd.DataFrame, shipments: dd.DataFrame) -> dd.DataFrame:
    """Every order with the shipments to its buyer that were known on the day before it."""
    placed = orders.assign(day=orders["ordered_at"].dt.floor("D"))
    known = shipments.assign(
        known_on=shipments["shipped_on"].astype("datetime64[us]"),
        # Whole cents: a sum of integers is the same in whatever order the parts come.
        cents=shipments["qty"] * frames.to_int((shipments["price"].astype("float64") * 100.0).round(), "int64"),
    )[["user_id", "known_on", "cents"]]
    pairs = placed[["order_id", "user_id", "day"]].merge(known, on="user_id", how="inner")
    pairs = pairs[(pairs["known_on"] < pairs["day"]).fillna(False)]  # noqa: FBT003 - the value, as pandas takes it
    before = (
        pairs.groupby("order_id", sort=False)
        .agg({"user_id": "count", "cents": "sum", "known_on": "max"})
        .reset_index()
        .rename(columns={"user_id": "shipped_before", "known_on": "latest"})
    )
    found = placed.merge(before, on="order_id", how="left")
    shipped = found["shipped_before"].fillna(0).astype("int64")
    spent = found["cents"].fillna(0).astype("float64") / 100.0
    since = (found["day"] - found["latest"]).dt.days.astype("float64")  # NULL for a buyer's first orders
    found = found.assign(shipped_before=shipped, spent_before=spent, days_since_shipment=since)
    return found[[*("order_id", "user_id", "shipped_before", "spent_before", "days_since_shipment", "gift")]]
