"""One day of orders as a Parquet dataset of its own. There is no function: rows pass straight through.

`cuetl run pipelines/daily_parquet.py --param day=2024-03-01`
"""

from __future__ import annotations

from datetime import date

from etl import SQL, Parquet, cron, pipeline

ORDERS = """
select order_id, user_id, item_id, qty, price, discount, ordered_at, shipped_on, gift, note
from orders
where ordered_at >= :day and ordered_at < date(:day, '+1 day')
"""

daily_parquet = pipeline(
    name="daily_parquet",
    sources={"orders": SQL("shop", ORDERS, partition_column="order_id")},
    sink=Parquet("out/orders/{day}"),
    params={"day": date},
    schedule=cron("0 2 * * *", tz="UTC"),
)
