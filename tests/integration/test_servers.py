"""The server fixtures hold what other tests lean on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.servers.postgresql import PostgresDatabase, PostgresServer

ROOT = Path(__file__).resolve().parents[2]


def test_every_postgresql_version_answers_with_the_version_it_was_started_as(pg_all: PostgresServer) -> None:
    assert pg_all.sql("show server_version")[0][0].split()[0] == pg_all.version


def test_a_wrong_password_is_refused(pg: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(pg.url_of("postgres", user="postgres", password="wrong"))


def test_a_fresh_database_is_empty_and_its_own(pgdb: PostgresDatabase) -> None:
    assert pgdb.sql(
        "select current_database(), count(*) from pg_class where relnamespace = 'public'::regnamespace"
    ) == [(pgdb.name, 0)]


def test_the_tls_server_speaks_tls_and_its_certificate_verifies(pg_tls: PostgresServer) -> None:
    assert pg_tls.sql("select ssl from pg_stat_ssl where pid = pg_backend_pid()") == [(True,)]


def test_the_tls_server_is_refused_without_its_certificate(pg_tls: PostgresServer, tmp_path: Path) -> None:
    empty = tmp_path / "none.crt"
    with pytest.raises(psycopg.OperationalError, match=r"root certificate file .* does not exist"):
        psycopg.connect(pg_tls.url.replace(str(pg_tls.ca_file), str(empty)))


KILLED = """
import os, signal
def test_dies(pg):
    print(f"postmaster {pg.pid} {pg.data_dir}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_test_run_leaves_no_server_behind(pg: PostgresServer, tmp_path: Path) -> None:
    if pg.pid is None:
        pytest.skip("the server was not started here")
    (tmp_path / "test_dies.py").write_text(KILLED)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.fix_servers", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "test_dies.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    line = next(line for line in done.stdout.splitlines() if "postmaster" in line)
    pid, data = line.split("postmaster ")[1].split()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, f"postmaster {pid} still runs"
        threading.Event().wait(0.05)
    shutil.rmtree(Path(data).parent)
