"""Real PostgreSQL servers for tests: the one named in the environment, installed binaries, or those from packages."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg

from tests.servers import process

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "postgresql"
VARIABLE = "CUETL_TEST_POSTGRESQL_URL"


@dataclass(frozen=True, slots=True)
class Installation:
    """The programs of one PostgreSQL version. `tls`: it was built with OpenSSL."""

    version: str
    bin: Path
    shipped: bool

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def tls(self) -> bool:
        # Read from the program itself: it links libssl exactly when it can do TLS.
        return b"libssl" in (self.bin / "postgres").read_bytes()


def _version(binary: Path) -> str | None:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)*)", said)
    return found[1] if found else None


def installations() -> list[Installation]:
    """One per major, oldest first; where a major is both installed and shipped, the installed one."""
    places = [(path.parent, False) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if on_path:
        places.append((Path(on_path).resolve().parent, False))
    places += [(path.parent, True) for path in sorted(process.SHIPPED.glob("lib/*/site-packages/**/bin/initdb"))]
    found: dict[int, Installation] = {}
    for place, shipped in places:
        version = _version(place / "postgres") if (place / "postgres").exists() else None
        if version:
            one = Installation(version, place, shipped)
            found.setdefault(one.major, one)
    return [found[major] for major in sorted(found)]


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that listens on loopback (or the one of `CUETL_TEST_POSTGRESQL_URL`).

    Attributes:
        url: Of the superuser, to the database `postgres`, password included (percent-encoded).
        version: "15.18".
        data_dir: None when the server was not started here.
        bin: Folder of psql, pg_basebackup …; None when the server was not started here.
        ca_file: The certificate that signs the server's own, for a TLS server; host name `localhost`.
        pid: Of the postmaster, when it was started here.
        as_user: Words before a command that must run as the server's user.
    """

    url: str
    host: str
    port: int
    version: str
    password: str
    data_dir: Path | None = None
    bin: Path | None = None
    ca_file: Path | None = None
    pid: int | None = None
    as_user: tuple[str, ...] = field(default=())

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def admin(self) -> str:
        """The superuser's URL, the same as `url`."""
        return self.url

    def sql(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements as superuser, each in a transaction of its own; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.url_of(database) if database else self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def url_of(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """The URL of another database of this server, and of another user."""
        parts = urlsplit(self.url)
        netloc = parts.netloc if user is None else f"{user}:{password or ''}@{parts.netloc.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}"))

    def database(self, name: str, *, options: str = "") -> str:
        """Make a fresh database (dropped first when it is there) and return its superuser URL."""
        self.drop(name)
        self.sql(f'create database "{name}" template template0 {options}')
        return self.url_of(name)

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.sql(f'drop database if exists "{name}" with (force)')


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """One fresh database of a server; `url` and `sql` are of this database."""

    server: PostgresServer
    name: str
    url: str

    @property
    def version(self) -> str:
        return self.server.version

    @property
    def major(self) -> int:
        return self.server.major

    @property
    def password(self) -> str:
        return self.server.password

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in this database as superuser; the rows of the last one."""
        return self.server.sql(*statements, database=self.name)


def given() -> PostgresServer | None:
    """The server that the environment names, if it names one."""
    url = os.environ.get(VARIABLE)
    if not url:
        return None
    parts = urlsplit(url)
    with psycopg.connect(url) as connection:
        number = connection.info.server_version
    return PostgresServer(
        url=url,
        host=parts.hostname or "localhost",
        port=parts.port or 5432,
        version=f"{number // 10000}.{number % 10000}",
        password=unquote(parts.password or ""),
    )


def _certificate(home: Path, user: tuple[str, ...]) -> None:
    process.tell(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "server.key", "-out", "server.crt"],
        home,
        user=user,
    )  # fmt: skip
    (home / "server.key").chmod(0o600)
    (home / "server.crt").chmod(0o644)


def _readable(installation: Installation, home: Path, user: tuple[str, ...]) -> Path:
    """The folder of programs that `user` can run: a copy when the checkout lies in a folder closed to others."""
    try:
        # Asked by a program of its own: setpriv may still start a file that what it started then cannot see.
        process.tell(["test", "-x", str(installation.bin / "postgres")], home, user=user)
    except process.ServerError:
        # Wheels keep some libraries beside the package, found by relative path: NAME and NAME.libs travel together.
        packages = next(one for one in installation.bin.parents if one.name == "site-packages")
        inside = installation.bin.relative_to(packages)
        for package in packages.glob(f"{inside.parts[0]}*"):
            shutil.copytree(package, home / "server" / package.name, symlinks=True)
        return home / "server" / inside
    return installation.bin


@contextlib.contextmanager
def server(installation: Installation, *, tls: bool = False) -> Iterator[PostgresServer]:
    """Start one: scram passwords, 100 connections, nothing synced to disk, no autovacuum (tests analyze themselves).

    Raises:
        process.ServerError: It did not come up in time; the log is in the message.
    """
    user = process.as_user()
    with process.folder(f"pg{installation.major}") as home:
        programs = _readable(installation, home, user)
        password = secrets.token_hex(12)
        secret = home / "password"
        secret.write_text(password)
        secret.chmod(0o644)
        data = home / "data"
        process.tell(
            [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256",
             f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"],
            home,
            user=user,
        )  # fmt: skip
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(home),
            "max_connections": "100",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "autovacuum": "off",
        }
        if tls:
            _certificate(home, user)
            settings |= {
                "ssl": "on",
                "ssl_cert_file": str(home / "server.crt"),
                "ssl_key_file": str(home / "server.key"),
            }
        running, port = _up(programs, data, home, user, settings, password)
        host = "localhost" if tls else "127.0.0.1"
        url = f"postgresql://postgres:{password}@{host}:{port}/postgres"
        try:
            yield PostgresServer(
                url=f"{url}?sslmode=verify-full&sslrootcert={home / 'server.crt'}" if tls else url,
                host=host,
                port=port,
                version=installation.version,
                password=password,
                data_dir=data,
                bin=programs,
                ca_file=home / "server.crt" if tls else None,
                pid=running.pid,
                as_user=user,
            )
        finally:
            running.stop()


def _up(
    programs: Path, data: Path, home: Path, user: tuple[str, ...], settings: dict[str, str], password: str
) -> tuple[process.Running, int]:
    for attempt in range(3):
        port = process.free_port()
        url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres?connect_timeout=5"

        def answers(url: str = url) -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError:
                return False
            return True

        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        try:
            command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), *words]
            return process.start(command, home, user=user, ready=answers), port
        except process.ServerError as error:
            # Somebody else took the port between our look and the server's bind.
            if attempt == 2 or "Address already in use" not in str(error):
                raise
    raise AssertionError
