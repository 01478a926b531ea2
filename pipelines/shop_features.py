"""Features of every order of the demo shop, as tensors: one row in, one row out, so each part is worked on by itself.

What a model wants of the numbers is fitted after that, on the rows of the split `train` alone, and saved with the
dataset: an append is prepared with the same figures.

`cuetl run pipelines/shop_features.py`
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from etl import SQL, Tensors, pipeline
from etl.transforms import FillNull, Standardize

if TYPE_CHECKING:
    import pandas as pd

ORDERS = """
select o.order_id, o.user_id, o.qty, o.price, o.discount, o.ordered_at, o.gift, i.price as list_price, i.weight
from orders as o
join items as i on i.item_id = o.item_id
"""


@pipeline(
    sources={"orders": SQL("shop", ORDERS, partition_column="order_id")},
    sink=Tensors(
        "out/shop_features",
        features=["qty", "paid", "share_of_list", "discount", "weight", "hour", "weekday"],
        target=["gift"],
        key=["order_id"],
        dtype="float32",
        cast="round",
        split={"train": 0.8, "val": 0.1, "test": 0.1},
        split_key=["user_id"],  # all orders of a user are in one split
    ),
    prepare=[
        FillNull("weight", "mean"),
        Standardize(["qty", "paid", "share_of_list", "discount", "weight"]),
    ],
    rowwise=True,
)
def shop_features(orders: pd.DataFrame) -> pd.DataFrame:
    """What is known of an order when it is placed; no row needs another one."""
    price = orders["price"].astype("float64")
    discount = orders["discount"].fillna(Decimal("0.00")).astype("float64")
    return orders.assign(
        paid=orders["qty"].astype("float64") * price * (1.0 - discount),
        share_of_list=price / orders["list_price"].astype("float64"),
        discount=discount,
        hour=orders["ordered_at"].dt.hour.astype("int16"),
        weekday=orders["ordered_at"].dt.dayofweek.astype("int16"),
    )[[*("order_id", "user_id", "qty", "paid", "share_of_list", "discount", "weight", "hour", "weekday", "gift")]]
