"""A run whose snapshot is lost begins again as it was asked for, not as the lost moment had shaped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.base import CutWish, Query
from etl.planning.jobs import Job, Reading, Write
from etl.run import runner
from etl.run.progress import Silent
from etl.tensors.options import WriteOptions
from tests.reading_postgresql import endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

RUN = "20260101000000abcdef"


class LosesTheSnapshot(Silent):
    """Ends the run's sessions when the parts are about to be read again after decimals were measured."""

    def __init__(self, db: PostgresDatabase) -> None:
        self.db = db
        self.seen: list[str] = []

    def stage(self, text: str) -> None:
        """Note it, and strike once."""
        self.seen.append(text)
        if self.seen[-3:] == ["measuring decimals", "planning", "reading"]:
            self.db.sql(
                f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cuetl:{RUN}'",
                "update t set n = 0.5",
            )


def test_a_new_snapshot_does_not_inherit_what_was_measured_in_the_lost_one(
    tmp_path: Path, pgdb: PostgresDatabase
) -> None:
    pgdb.sql(
        "create table t as select g id, (case g when 7 then 1e30 else 0.5 end)::numeric n "
        "from generate_series(1, 2000) g"
    )
    progress = LosesTheSnapshot(pgdb)
    job = Job(
        Reading(endpoint(pgdb.url), Query(table="t", run_id=RUN), CutWish(partitions=2)),
        (Write(str(tmp_path / "x"), "parquet", WriteOptions()),),
    )
    (result,) = runner.run([job], run_id=RUN, progress=progress)
    assert progress.seen.count("measuring decimals") == 1
    assert progress.seen.count("opening the snapshot") == 2
    codes = [one["code"] for one in result.warnings]
    assert "new-snapshot" in codes
    assert "decimal-widened" not in codes
    table = pq.read_table(tmp_path / "x")
    assert table.schema.field("n").type == pa.decimal128(38, 18)
    assert table.num_rows == 2000
