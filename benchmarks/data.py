"""Load the benchmark's two tables: TPC-H `lineitem` and the machine-learning table `features` made from it.

    python benchmarks/data.py URL SCALE

Runs in the peers' environment (DuckDB's TPC-H generator comes as a package). Scale 1 is 6,001,215 rows in each table.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb
import psycopg
from duckdb_extensions import import_extension

LINEITEM = """create table lineitem (l_orderkey bigint not null, l_partkey bigint not null, l_suppkey bigint not null,
 l_linenumber integer not null, l_quantity numeric(15,2) not null, l_extendedprice numeric(15,2) not null,
 l_discount numeric(15,2) not null, l_tax numeric(15,2) not null, l_returnflag char(1) not null,
 l_linestatus char(1) not null, l_shipdate date not null, l_commitdate date not null, l_receiptdate date not null,
 l_shipinstruct varchar(25) not null, l_shipmode varchar(10) not null, l_comment varchar(44) not null)"""
FEATURES = """create table features as select l_orderkey*8+l_linenumber as id, l_partkey::int as item,
 l_suppkey::int as seller, l_quantity::float8 as qty,
 case when l_partkey%17=0 then null else l_extendedprice::float8 end as price, l_discount::float4 as discount,
 l_tax>0.04 as taxed, l_shipdate::timestamptz as shipped, l_shipmode as mode, (l_returnflag='R')::int as label
 from lineitem"""
AFTER = (
    "alter table lineitem add primary key (l_orderkey, l_linenumber)",
    FEATURES,
    "alter table features add primary key (id)",
    "vacuum (freeze, analyze) lineitem",
    "vacuum (freeze, analyze) features",
)


def main(url: str, scale: float) -> None:
    with tempfile.TemporaryDirectory(prefix="cuetl-bench-") as folder:
        csv = Path(folder) / "lineitem.csv"
        with duckdb.connect(str(Path(folder) / "tpch.db")) as maker:
            import_extension("tpch", con=maker)
            maker.execute("load tpch")
            maker.execute(f"call dbgen(sf={scale})")
            maker.execute(f"copy lineitem to '{csv}' (format csv, header false)")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("set timezone to 'UTC'")
            connection.execute("drop table if exists features, lineitem")
            connection.execute(LINEITEM)
            with csv.open("rb") as source, connection.cursor().copy("copy lineitem from stdin (format csv)") as copy:
                while block := source.read(1 << 20):
                    copy.write(block)
            for statement in AFTER:
                connection.execute(statement)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
