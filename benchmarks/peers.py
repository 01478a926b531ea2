"""One peer, as a whole process: `python benchmarks/peers.py PEER TABLE OUT`, with the database's URL in PGURL.

Each reads the whole table and writes it as its own documentation shows: Parquet with zstd, or (`-tensor`) safetensors.
Imports stand in the functions, since a process should pay for its own peer alone.
"""

# ruff: noqa: PLC0415 - a process imports one peer, not all of them

from __future__ import annotations

import itertools
import os
import subprocess
import sys

URL = os.environ["PGURL"]
SQLALCHEMY_URL = URL.replace("postgresql://", "postgresql+psycopg://")
KEY = {"lineitem": "l_orderkey", "features": "id"}
NOT_NUMBERS = {"features": ("mode",)}
"""Columns that a tensor cannot hold; the tensor runs leave them out."""


def duckdb(table: str, out: str) -> None:
    import duckdb
    from duckdb_extensions import import_extension

    con = duckdb.connect()
    import_extension("postgres_scanner", con=con)
    con.execute("load postgres_scanner")
    con.execute(f"attach '{URL}' as pg (type postgres, read_only)")
    con.execute(f"copy (select * from pg.{table}) to '{out}' (format parquet, compression zstd)")


def connectorx(table: str, out: str, *, parts: int = 1) -> None:
    import connectorx as cx
    import pyarrow.parquet as pq

    cut = {"partition_on": KEY[table], "partition_num": parts} if parts > 1 else {}
    pq.write_table(cx.read_sql(URL, f"select * from {table}", return_type="arrow", **cut), out, compression="zstd")


def connectorx_4(table: str, out: str) -> None:
    connectorx(table, out, parts=4)


def adbc(table: str, out: str) -> None:
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow.parquet as pq

    with driver.connect(URL) as connection, connection.cursor() as cursor:
        cursor.execute(f"select * from {table}")
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(out, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)


def pandas(table: str, out: str) -> None:
    import pandas as pd
    import sqlalchemy as sa

    pd.read_sql(f"select * from {table}", sa.create_engine(SQLALCHEMY_URL)).to_parquet(out, compression="zstd")


def pandas_tensor(table: str, out: str) -> None:
    import numpy as np
    import pandas as pd
    import sqlalchemy as sa
    from safetensors.numpy import save_file

    frame = pd.read_sql(f"select * from {table}", sa.create_engine(SQLALCHEMY_URL))
    tensors = {}
    for name in frame.columns.difference(NOT_NUMBERS.get(table, ())):
        column = frame[name]
        if column.dtype.kind == "M":
            column = column.dt.tz_convert("UTC").dt.as_unit("us").astype("int64")
        tensors[name] = np.ascontiguousarray(column.fillna(0).to_numpy())
    save_file(tensors, out)


def floor(table: str, connections: int) -> None:
    """The floor: so many connections COPY the table in page ranges, binary, to nowhere."""
    psql = os.environ["PSQL"]
    asked = subprocess.run(
        [psql, URL, "-Atc", f"select pg_relation_size('{table}') / 8192"], capture_output=True, text=True, check=True
    )
    pages = int(asked.stdout)
    edges = [pages * i // connections for i in range(connections)] + [2**32 - 1]
    ranges = [f"ctid >= '({low},0)' and ctid < '({high},0)'" for low, high in itertools.pairwise(edges)]
    readers = [
        subprocess.Popen(
            [psql, URL, "-c", f"copy (select * from {table} where {part}) to stdout (format binary)"],
            stdout=subprocess.DEVNULL,
        )
        for part in ranges
    ]
    codes = [reader.wait() for reader in readers]
    if any(codes):
        sys.exit(f"a floor connection failed: {codes}")


def main(peer: str, table: str, out: str) -> None:
    if peer.startswith("floor-"):
        floor(table, int(peer.partition("-")[2]))
        return
    known = {
        "duckdb": duckdb,
        "connectorx": connectorx,
        "connectorx-4": connectorx_4,
        "adbc": adbc,
        "pandas": pandas,
        "pandas-tensor": pandas_tensor,
    }
    known[peer](table, out)


if __name__ == "__main__":
    main(*sys.argv[1:4])
