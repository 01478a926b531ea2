"""A real MariaDB for tests: the one named in the environment, or a private instance of the installed binaries."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from tests.servers import process

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "mariadb"
VARIABLE = "CUETL_TEST_MARIADB_URL"
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/libexec"


@dataclass(frozen=True, slots=True)
class MariaServer:
    """A server that listens on loopback (or the one of `CUETL_TEST_MARIADB_URL`); `user` may do everything."""

    host: str
    port: int
    user: str
    password: str

    def url_of(self, database: str) -> str:
        """The URL of a database of this server."""
        return f"mysql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def sql(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements, each committed; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with (
            contextlib.closing(self.connect(database)) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def connect(self, database: str | None = None) -> Any:
        """A PyMySQL connection that commits each statement."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            autocommit=True,
            charset="utf8mb4",
            client_flag=CLIENT.FOUND_ROWS,
        )

    def database(self, name: str) -> str:
        """Make a fresh database (dropped first when it is there) and return its URL."""
        self.sql(f"drop database if exists `{name}`", f"create database `{name}` character set utf8mb4")
        return self.url_of(name)


def given() -> MariaServer | None:
    """The server that the environment names, if it names one."""
    url = os.environ.get(VARIABLE)
    if not url:
        return None
    parts = urlsplit(url)
    return MariaServer(
        parts.hostname or "127.0.0.1", parts.port or 3306, parts.username or "root", unquote(parts.password or "")
    )


def installed() -> bool:
    """Whether the server's programs are here."""
    return all(shutil.which(program, path=PLACES) for program in ("mariadbd", "mariadb-install-db"))


@contextlib.contextmanager
def server() -> Iterator[MariaServer]:
    """Start one: a fresh data folder, nothing synced to disk.

    Raises:
        process.ServerError: It did not come up in time; the log is in the message.
    """
    user = process.as_user()
    with process.folder("maria") as home:
        data = home / "data"
        install = shutil.which("mariadb-install-db", path=PLACES) or "mariadb-install-db"
        process.tell(
            [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db"],
            home,
            user=user,
        )  # fmt: skip
        port = process.free_port()
        program = shutil.which("mariadbd", path=PLACES) or "mariadbd"
        made = MariaServer("127.0.0.1", port, "cuetl", secrets.token_hex(12))
        first = home / "first.sql"
        first.write_text(
            f"create user cuetl@'127.0.0.1' identified by '{made.password}';\n"
            "grant all on *.* to cuetl@'127.0.0.1' with grant option;\n"
        )
        first.chmod(0o644)

        def answers() -> bool:
            try:
                made.connect().close()
            except pymysql.OperationalError:
                return False
            return True

        running = process.start(
            [program, "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
             f"--socket={home}/s.sock", f"--pid-file={home}/pid", "--skip-log-bin", f"--init-file={first}",
             "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=128M", "--skip-name-resolve"],
            home,
            user=user,
            ready=answers,
        )  # fmt: skip
        try:
            yield made
        finally:
            running.stop(first=signal.SIGTERM)
