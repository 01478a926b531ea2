"""Exports from a hot standby, and what the primary's cleaning does to them."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.command import cuetl, one_paragraph
from tests.faults import READERS, manifest, meanwhile, running, until
from tests.fix_proxy import Proxy
from tests.servers import process
from tests.servers.process import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")

ROWS = 12_000
BIG = f"create table big as select g id, 0 v, repeat('y', 2000) filler from generate_series(1, {ROWS}) g"
EXPORT = ("--table", "big", "--to", "out", "--format", "parquet", "--partitions", "4")


@contextlib.contextmanager
def standby(db: PostgresDatabase) -> Iterator[str]:
    """A hot standby of the database's server, which gives way to the primary after 200 ms; the database's URL on it."""
    server = db.server
    if server.bin is None:
        unavailable("postgresql", "a standby needs the programs of the server")
    with process.folder("standby") as home:
        data = home / "data"
        source = psycopg.conninfo.make_conninfo(server.url)
        process.tell(
            [str(server.bin / "pg_basebackup"), "-D", str(data), "-d", source, "-R", "-X", "stream", "-c", "fast"],
            home,
            user=server.as_user,
        )
        port = process.free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(home),
            "max_connections": "100",
            "fsync": "off",
            "max_standby_streaming_delay": "200ms",
        }
        url = db.url.replace(f":{server.port}/", f":{port}/")
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

        def answers() -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError:
                return False
            return True

        command = [str(server.bin / "postgres"), "-D", str(data), "-p", str(port), *words]
        one = process.start(command, home, user=server.as_user, ready=answers)
        try:
            yield url
        finally:
            one.stop()


def reading(url: str) -> bool:
    with psycopg.connect(url) as link:
        return link.execute(f"select 1 from pg_stat_activity where {READERS}").fetchone() is not None


@pytest.mark.slow
def test_a_standby_is_exported_in_parts_of_one_moment_or_names_the_settings(
    tmp_path: Path, pgdb: PostgresDatabase
) -> None:
    pgdb.sql(BIG)
    with standby(pgdb) as url:
        done = cuetl("export", url, *EXPORT, "--json", cwd=tmp_path)
        assert done.code == 0, done.err
        found = manifest(tmp_path / "out")
        assert (found["rows"], len(found["partitions"])) == (ROWS, 4)
        assert found["snapshots"]["big"]["kind"] == "exported"
        proxy = Proxy(("127.0.0.1", int(re.findall(r":(\d+)/", url)[0])))
        proxy.bytes_per_second = 4 << 20
        proxy.open()
        slow = proxy.url(url)
        try:
            # Rows that a snapshot still needs are cleaned away once: the run goes on with a new one.
            with running("export", slow, *EXPORT, "--mode", "replace", "--json", cwd=tmp_path) as run:
                until(lambda: reading(url))
                pgdb.sql("delete from big where id <= 2000", "vacuum big")
                once = run.done()
            assert once.code == 0, once.err
            ids = sorted(str(i) for i in pq.read_table(tmp_path / "out", columns=["id"]).column("id").to_pylist())
            assert ids == sorted(str(i) for i in range(2001, ROWS + 1))
            assert "new-snapshot" in [w["code"] for w in manifest(tmp_path / "out")["warnings"]]

            # And again and again: the run gives up, and says what to set.
            def clean() -> None:
                pgdb.sql("update big set v = v + 1 where id % 50 = 0", "vacuum big")

            with running("export", slow, *EXPORT, "--mode", "replace", cwd=tmp_path) as run, meanwhile(clean, 0.1):
                never = run.done()
            said = one_paragraph(never.err)
            assert never.code == 1
            assert "hot_standby_feedback" in said
            assert "max_standby_streaming_delay" in said
        finally:
            proxy.close()
    assert manifest(tmp_path / "out")["version"] == 2
    assert [one for one in tmp_path.glob(".out.cuetl-*") if not (one / "_manifest.json").exists()] == []
