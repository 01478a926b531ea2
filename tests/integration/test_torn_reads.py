"""Whole exports while rows trade, move, come and go under them: each is of one moment, and no row is there twice."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.cases.exporting import Exports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = [pytest.mark.server("postgresql"), pytest.mark.slow]
ROWS = 20_000
TRIALS = 20


def made(db: PostgresDatabase) -> None:
    """Pair n is the rows n and ROWS + 1 - n, which lie in different parts however the table is cut."""
    db.sql(
        "create table t(id int primary key, pair int not null, v int not null, filler text) with (fillfactor = 90)",
        f"insert into t select g, least(g, {ROWS} + 1 - g), 0, repeat('y', 200) from generate_series(1, {ROWS}) g",
        "create index on t(pair)",
        "analyze t",
    )


@contextlib.contextmanager
def moving(db: PostgresDatabase) -> Iterator[list[int]]:
    """Pairs trade values and grow out of their pages, new pairs come, some go, and their space is used again.

    At every moment each pair has two rows, and their values are 0 together. Gives the counts of what was done.
    """
    stop = threading.Event()
    done = [0, 0, 0, 0]

    def trade() -> str:
        one, size = random.randint(1, ROWS // 2), random.randint(100, 400)
        return (
            f"begin; update t set v = v - 1, filler = repeat('y', {size}) where id = {one};"
            f" update t set v = v + 1 where id = {ROWS + 1 - one}; commit"
        )

    def grow() -> str:
        pair, size = ROWS + done[1], random.randint(1, 9)
        return f"insert into t values ({pair + 1}, {pair}, {size}, 'new'), (-{pair}, {pair}, -{size}, 'new')"

    def shrink() -> str:
        return f"delete from t where pair = {random.randint(ROWS, ROWS + done[1])}"

    def vacuum() -> str:
        return "vacuum t"

    def loop(number: int) -> None:
        act = (trade, grow, shrink, vacuum)[number]
        with psycopg.connect(db.url, autocommit=True) as link:
            while not stop.wait(0.3 if act is vacuum else 0):
                link.execute(act())
                done[number] += 1

    workers = [threading.Thread(target=loop, args=(number,)) for number in range(len(done))]
    for one in workers:
        one.start()
    try:
        yield done
    finally:
        stop.set()
        for one in workers:
            one.join()


def torn(rows: Iterable[tuple[Any, ...]]) -> list[int]:
    """Pairs that are not whole among rows of (id, pair, v)."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    ids = set()
    for id_, pair, value in rows:
        assert id_ not in ids, f"row {id_} is there twice"
        ids.add(id_)
        found[pair].append(value)
    return [pair for pair, values in found.items() if len(values) != 2 or sum(values) != 0]


WAYS = [
    ("pages", ("--table", "t")),
    ("keys", ("--table", "t", "--partition-column", "id")),
    ("a query by keys", ("--sql", "select id, pair, v from t where filler <> ''", "--partition-column", "id")),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arguments", [words for _, words in WAYS], ids=[name for name, _ in WAYS])
def test_twenty_of_twenty_exports_are_of_one_moment(
    tmp_path: Path, pgdb: PostgresDatabase, arguments: tuple[str, ...]
) -> None:
    made(pgdb)
    exports = Exports(tmp_path, pgdb.url)
    with moving(pgdb) as done:
        for trial in range(TRIALS):
            before = list(done)
            wish = (*arguments, "--format", "parquet", "--partitions", "4")
            report = exports.done(*wish, to=f"out{trial}")
            assert report["partitions"] == 4
            assert all(now > then for now, then in zip(done[:3], before, strict=False)), "nothing moved meanwhile"
            table = pq.read_table(tmp_path / f"out{trial}", columns=["id", "pair", "v"])
            assert table.num_rows == report["rows"] >= ROWS
            assert torn(zip(*(column.to_pylist() for column in table.columns), strict=True)) == []
        assert done[3], "no vacuum"


def test_the_same_parts_read_one_by_one_are_torn(pgdb: PostgresDatabase) -> None:
    """What the trials above would find without one snapshot."""
    made(pgdb)
    with moving(pgdb), psycopg.connect(pgdb.url, autocommit=True) as link:
        for _ in range(TRIALS):
            bounds = ("id < -1000", "id between -1000 and 5000", "id between 5001 and 12000", "id > 12000")
            rows = [row for part in bounds for row in link.execute(f"select id, pair, v from t where {part}")]
            if torn(rows):
                return
    pytest.fail("the rows do not move enough for the trials to mean anything")
