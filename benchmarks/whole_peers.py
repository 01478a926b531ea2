"""One peer of `benchmarks.pipelines`, as a whole process: `python benchmarks/whole_peers.py PEER FOLDER OUT`.

Each joins `orders` with `buyers`, groups by buyer, and writes Parquet with zstd. They read `FOLDER/orders.parquet` and
`buyers.parquet`, so that none of them pays for the database; `polars-sql` reads the database in PGURL by connector-x.
"""

# ruff: noqa: PLC0415 - a process imports one peer, not all of them

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def _lazy(orders: Any, buyers: Any, out: str) -> None:
    import polars as pl

    found = (
        orders.join(buyers, on="buyer")
        .group_by("buyer")
        .agg(
            pl.len().cast(pl.Int64).alias("orders"),
            pl.col("cents").sum(),
            pl.col("cents").max().alias("dearest"),
            (pl.col("cents") * pl.col("factor")).sum().alias("weighted"),
        )
    )
    found.collect(engine="streaming").write_parquet(out, compression="zstd")


def polars(folder: Path, out: str) -> None:
    import polars as pl

    _lazy(pl.scan_parquet(folder / "orders.parquet"), pl.scan_parquet(folder / "buyers.parquet"), out)


def polars_sql(folder: Path, out: str) -> None:
    import polars as pl

    del folder
    url = os.environ["PGURL"]
    orders, buyers = (pl.read_database_uri(f"select * from {name}", url) for name in ("orders", "buyers"))
    _lazy(orders.lazy(), buyers.lazy(), out)


def _frames(orders: Any, buyers: Any) -> Any:
    joined = orders.merge(buyers, on="buyer", how="inner")
    joined = joined.assign(weighted=joined["cents"] * joined["factor"], dearest=joined["cents"])
    sums = {"id": "count", "cents": "sum", "dearest": "max", "weighted": "sum"}
    return joined.groupby("buyer", sort=False).agg(sums).reset_index().rename(columns={"id": "orders"})


def pandas(folder: Path, out: str) -> None:
    import pandas as pd

    orders, buyers = (pd.read_parquet(folder / f"{name}.parquet") for name in ("orders", "buyers"))
    _frames(orders, buyers).to_parquet(out, compression="zstd", index=False)


def dask(folder: Path, out: str) -> None:
    import dask.dataframe as dd

    orders, buyers = (dd.read_parquet(folder / f"{name}.parquet") for name in ("orders", "buyers"))
    _frames(orders, buyers).to_parquet(out, compression="zstd", write_index=False)


def main(peer: str, folder: str, out: str) -> None:
    known = {"polars": polars, "polars-sql": polars_sql, "pandas": pandas, "dask": dask}
    known[peer](Path(folder), out)


if __name__ == "__main__":
    main(*sys.argv[1:4])
