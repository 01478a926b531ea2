"""Fixtures of real servers, one of each kind a session, and the header that says which are under test."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from tests.servers import postgresql
from tests.servers.postgresql import Installation, PostgresDatabase, PostgresServer
from tests.servers.process import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_POSTGRESQL = "no PostgreSQL is installed and .servers has none: run 'make test', or apt-get install postgresql"


@dataclass(frozen=True, slots=True)
class PostgresServers:
    """The servers of this session, each started when first asked for."""

    stack: contextlib.ExitStack
    found: tuple[Installation, ...]
    running: dict[tuple[int, bool], PostgresServer] = field(default_factory=dict)

    def get(self, major: int, *, tls: bool = False) -> PostgresServer:
        """The server of one major version."""
        if (major, tls) not in self.running:
            one = next(item for item in self.found if item.major == major)
            self.running[major, tls] = self.stack.enter_context(postgresql.server(one, tls=tls))
        return self.running[major, tls]


@pytest.fixture(scope="session")
def pg_servers() -> Iterator[PostgresServers]:
    """All PostgreSQL versions found, started on demand, stopped at the end of the session."""
    with contextlib.ExitStack() as stack:
        yield PostgresServers(stack, tuple(postgresql.installations()))


@pytest.fixture(scope="session")
def pg(pg_servers: PostgresServers) -> PostgresServer:
    """A real PostgreSQL: the one the environment names, else installed (newest), else from packages (newest)."""
    server = postgresql.given()
    if server is not None:
        return server
    if not pg_servers.found:
        unavailable("postgresql", NO_POSTGRESQL)
    best = max(pg_servers.found, key=lambda one: (not one.shipped, one.major))
    return pg_servers.get(best.major)


@pytest.fixture(scope="session")
def pg_all(request: pytest.FixtureRequest, pg_servers: PostgresServers) -> PostgresServer:
    """Each PostgreSQL major found here in turn; a test that takes it runs once per major."""
    major = cast("int | None", request.param)
    if major is None:
        unavailable("postgresql", NO_POSTGRESQL)
    return pg_servers.get(major)


@pytest.fixture(scope="session")
def pg_tls(pg_servers: PostgresServers) -> PostgresServer:
    """A PostgreSQL with TLS on `localhost`, its certificate signed by itself (`ca_file`); `url` verifies it."""
    able = [one for one in pg_servers.found if one.tls]
    if not able:
        unavailable("postgresql", "no PostgreSQL with TLS was found")
    if shutil.which("openssl") is None:
        unavailable("postgresql", "openssl is needed for a test certificate and is not installed")
    return pg_servers.get(able[0].major, tls=True)


@pytest.fixture
def pgdb(pg: PostgresServer) -> Iterator[PostgresDatabase]:
    """A fresh, empty database for one test."""
    with fresh(pg) as database:
        yield database


@pytest.fixture(scope="module")
def pgdb_module(pg: PostgresServer) -> Iterator[PostgresDatabase]:
    """A fresh database that the tests of one module share."""
    with fresh(pg) as database:
        yield database


@pytest.fixture
def pgdb_all(pg_all: PostgresServer) -> Iterator[PostgresDatabase]:
    """A fresh database for one test, on each PostgreSQL major in turn."""
    with fresh(pg_all) as database:
        yield database


@contextlib.contextmanager
def fresh(server: PostgresServer) -> Iterator[PostgresDatabase]:
    name = f"t_{secrets.token_hex(6)}"
    url = server.database(name)
    try:
        yield PostgresDatabase(server, name, url)
    finally:
        server.drop(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`pg_all` runs once per major; without any it runs once, to be skipped or failed by name."""
    if "pg_all" in metafunc.fixturenames:
        majors: list[int | None] = [one.major for one in postgresql.installations()]
        chosen = majors or [None]
        metafunc.parametrize("pg_all", chosen, ids=[f"pg{major}" for major in chosen], indirect=True, scope="session")


def pytest_report_header() -> list[str]:
    """The servers that tests can use here, with versions."""
    return [f"servers: {', '.join(_servers())}", f"required: {os.environ.get('CUETL_REQUIRE') or 'none'}"]


def _servers() -> list[str]:
    words = [
        f"PostgreSQL {one.version} ({'package' if one.shipped else 'installed'})" for one in postgresql.installations()
    ]
    if os.environ.get(postgresql.VARIABLE):
        words.insert(0, f"PostgreSQL of ${postgresql.VARIABLE}")
    words = words or ["no PostgreSQL"]
    mariadb = shutil.which("mariadbd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if mariadb is None:
        return [*words, "no MariaDB"]
    said = subprocess.run([mariadb, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    found = re.search(r"Ver (\d[\d.]*)", said)
    return [*words, f"MariaDB {found[1] if found else '(version unknown)'}"]
