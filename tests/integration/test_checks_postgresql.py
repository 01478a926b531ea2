"""Checks of rows of PostgreSQL, in parts: what a store can hold and Python cannot, keys that come twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from etl import Parquet, Read, checks, pipeline
from etl.core.errors import CheckFailed

if TYPE_CHECKING:
    from pathlib import Path

    from etl.transforms.checking.base import Check
    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")
NOW = datetime(2024, 3, 1, tzinfo=UTC)


def test_checks_of_a_table_in_parts(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    pgdb.sql(
        "create table orders(id int primary key, code text, price numeric(10,2) not null, at timestamptz)",
        "insert into orders select g, 'k' || g % 1990, g * 0.01, timestamptz '2024-02-01 UTC' + g * interval '60s'"
        " from generate_series(1, 2000) g",
    )
    to = tmp_path / "out"

    def run(*asked: Check) -> Any:
        source = Read(pgdb.url, table="orders", partitions=4)
        return pipeline(name="p", sources={"orders": source}, sink=Parquet(str(to), key="id"), checks=asked).run()

    kept = run(
        checks.unique("id"),
        checks.matches("code", r"k\d+"),
        checks.sum_matches("price", Decimal("20010.00")),
        checks.freshness("at", timedelta(days=30), now=NOW),
        checks.in_range("price", Decimal("0.01"), Decimal("20.00")),
    )
    assert kept.partitions == 4
    assert [one["passed"] for one in kept.checks] == [True] * 5
    before = (to / "_manifest.json").read_bytes()
    with pytest.raises(CheckFailed) as told:
        run(checks.unique("code"), checks.freshness("at", timedelta(days=20), now=NOW), checks.row_count(2000))
    said = str(told.value)
    # Of g % 1990, 1 to 10 come twice: with g and with 1990 + g.
    assert "unique(code): 20 rows share 10 keys (code = k1; code = k10; code = k2; …)" in said
    assert "freshness(at): the newest is 2024-02-02T09:20:00+00:00" in said
    assert "2 checks of " in said
    assert (to / "_manifest.json").read_bytes() == before


def test_moments_beyond_those_of_python_are_checked(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    pgdb.sql(
        "create table far(id int primary key, at timestamp)",
        "insert into far values (1, '2024-01-01'), (2, '20000-01-01'), (3, '0044-03-15 BC')",
    )
    sink = Parquet(str(tmp_path / "out"), key="at")
    asked: list[Check] = [checks.freshness("at", timedelta(days=1), now=NOW), checks.in_range("id", max=0)]
    with pytest.raises(CheckFailed, match=r"in_range\(id\): 3 of 3 rows .*at = 20000-01-01 00:00:00") as told:
        pipeline(name="p", sources={"far": Read(pgdb.url, table="far")}, sink=sink, checks=asked).run()
    assert "freshness" not in str(told.value)
