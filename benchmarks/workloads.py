"""The pipelines that `benchmarks.pipelines` runs. Source and target come from BENCH_URL and BENCH_OUT.

`passed` and `derived` read the same rows; `derived` filters them and adds two columns, so that their difference is what
frames cost. `in_sql` has the server do the same. `spending` joins two tables and groups by the key.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from etl import SQL, Parquet, Tensors, pipeline
from etl.transforms import Categorify, FillNull, Standardize

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

URL = os.environ["BENCH_URL"]
OUT = os.environ["BENCH_OUT"]
FEATURES = SQL(URL, table="features")
IN_SQL = """
select id, item, seller, qty, price, discount, taxed, shipped, mode, label,
 qty * price * (1 - discount::float8) as paid, extract(dow from shipped at time zone 'UTC')::int2 as weekday
from features where qty > 2
"""

passed = pipeline(name="passed", sources={"features": FEATURES}, sink=Parquet(OUT))
in_sql = pipeline(name="in_sql", sources={"features": SQL(URL, IN_SQL, partition_column="id")}, sink=Parquet(OUT))


@pipeline(sources={"features": FEATURES}, sink=Parquet(OUT), rowwise=True)
def derived(features: pd.DataFrame) -> pd.DataFrame:
    """A filter and two columns."""
    kept = features[features["qty"] > 2]
    return kept.assign(
        paid=kept["qty"] * kept["price"] * (1.0 - kept["discount"].astype("Float64")),
        # Weeks of both engines begin on Mondays, those of the server on Sundays.
        weekday=((kept["shipped"].dt.dayofweek + 1) % 7).astype("int16"),
    )


@pipeline(sources={"orders": SQL(URL, table="orders"), "buyers": SQL(URL, table="buyers")}, sink=Parquet(OUT))
def spending(orders: dd.DataFrame, buyers: dd.DataFrame) -> dd.DataFrame:
    """For each buyer: orders, cents, the dearest order, and cents weighted by the buyer's own factor."""
    joined = orders.merge(buyers, on="buyer", how="inner")
    joined = joined.assign(weighted=joined["cents"] * joined["factor"], dearest=joined["cents"])
    sums = {"id": "count", "cents": "sum", "dearest": "max", "weighted": "sum"}
    found = joined.groupby("buyer", sort=False).agg(sums).reset_index()
    return found.rename(columns={"id": "orders"})


NUMBERS = ["qty", "price", "discount", "seller", "item"]
LEARNED = ["qty", "price", "discount", "seller", "mode"]
"""As many columns each: `plain` writes what the store has, `prepared` what was fitted on it."""


def _read(columns: list[str]) -> SQL:
    return SQL(URL, table="features", columns=["id", *columns, "label"], partition_column="id")


def _tensors(features: list[str]) -> Tensors:
    return Tensors(OUT, features=features, target="label", key="id", dtype="float32", cast="round")


plain = pipeline(name="plain", sources={"features": _read(NUMBERS)}, sink=_tensors(NUMBERS))
prepared = pipeline(
    name="prepared",
    sources={"features": _read(LEARNED)},
    sink=_tensors(LEARNED),
    prepare=[FillNull("discount", "mean"), Standardize(["qty", "price", "discount"]), Categorify(["mode", "seller"])],
)
