"""Sessions: how a connection is opened, what holds in every transaction, and statements with mapped errors."""

from __future__ import annotations

import contextlib
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq

from connectors.postgresql import errors
from connectors.sqltext import quote_text
from etl.core.lookup import sql_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.pq.abc import PGresult

    from connectors.base import Endpoint

Row = tuple[Any, ...]

NOT_OFFERED: Final = frozenset({"0A000", "42601"})
"""SQLSTATEs by which a server says that it has no such statement: not supported, or not even in its grammar."""
CONNECT_TIMEOUT: Final = 10
"""Seconds."""
LOCK_TIMEOUT: Final = "30s"
"""How long a part waits for its share lock: a queued TRUNCATE or ALTER stands before it and would never end."""
_ROOTS: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep their certificates; psycopg's own OpenSSL does not know the folder of this one."""


def literal(text: str, /) -> str:
    """A text literal; `standard_conforming_strings` is on in our sessions."""
    return quote_text(text, "postgresql")


def catalogue(name: str, values: Mapping[str, str], /) -> str:
    """The text of `sql/catalogue/postgresql/NAME.sql` with its `:words` replaced by SQL."""
    pattern = ":(" + "|".join(sorted(values, key=len, reverse=True)) + r")\b"
    text = re.sub(r"--[^\n]*", "", sql_text(f"catalogue/postgresql/{name}.sql"))
    return re.sub(pattern, lambda found: values[found[1]], text) if values else text


def is_local(host: str | None, /) -> bool:
    """Whether libpq reaches this host without a network: a Unix socket or loopback. Every host of a list must be."""
    if not host:
        return True
    return all(
        not one or one[0] in "/@" or one in ("localhost", "::1") or one.startswith("127.") for one in host.split(",")
    )


def parameters(endpoint: Endpoint, run_id: str, /) -> dict[str, str]:
    """Connection parameters for libpq, password left out: only what was given, so that libpq's own defaults work.

    Remote hosts are checked (`sslmode=verify-full` with the system's certificates) unless the URL or libpq's own
    environment says otherwise. GSS encryption, which libpq would prefer wherever there is a ticket, is taken only where
    one of them asks for it: the socket's bytes cannot be read under it.
    """
    given = {
        "host": endpoint.host,
        "port": str(endpoint.port) if endpoint.port else None,
        "dbname": endpoint.database,
        "user": endpoint.user,
    }
    found = {name: value for name, value in given.items() if value}
    found |= {
        "client_encoding": "UTF8",
        "connect_timeout": str(CONNECT_TIMEOUT),
        "keepalives": "1",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "tcp_user_timeout": "60000",
    }
    found |= endpoint.query
    found["application_name"] = f"cuetl:{run_id}" if run_id else "cuetl"
    defaults = {one.keyword.decode(): one for one in pq.Conninfo.get_defaults()}

    def set_elsewhere(name: str) -> str | None:
        one = defaults.get(name)
        if one is None or one.val is None or one.val == one.compiled:
            return None
        return one.val.decode()

    in_service = "service" in found or set_elsewhere("service")
    if "gssencmode" not in found and not set_elsewhere("gssencmode") and not in_service:
        found["gssencmode"] = "disable"
    host = found.get("hostaddr") or found.get("host") or set_elsewhere("host") or set_elsewhere("hostaddr")
    if not is_local(host) and "sslmode" not in found and not set_elsewhere("sslmode") and not in_service:
        found["sslmode"] = "verify-full"
        own = Path("~/.postgresql/root.crt").expanduser().exists()
        if "sslrootcert" not in found and not set_elsewhere("sslrootcert") and not own:
            found["sslrootcert"] = next((path for path in _ROOTS if Path(path).exists()), "system")
    return found


def network_note(endpoint: Endpoint, /) -> str:
    """A sentence when a password may cross a network unread by TLS checks, else ""."""
    mode = endpoint.query.get("sslmode", "")
    if is_local(endpoint.host) or mode in ("", "verify-full", "verify-ca"):
        return ""
    return f"sslmode={mode}: the connection to {endpoint.host} can be read or taken over on the network"


def connect(endpoint: Endpoint, run_id: str, /) -> psycopg.Connection[Row]:
    """An open connection in autocommit mode, named `cuetl:<run_id>` on the server.

    Raises:
        ConfigError: libpq refuses an option.
        StoreUnavailable: No answer.
        StoreRejected: The server refuses the user, the database or the way of connecting.
    """
    wanted: dict[str, str] = parameters(endpoint, run_id)
    if endpoint.password is not None:
        wanted["password"] = endpoint.password.resolve().reveal()
    try:
        conninfo = psycopg.conninfo.make_conninfo("", **wanted)
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise errors.from_connect(error, endpoint) from None


def settings(
    endpoint: Endpoint, version: int, /, *, lock_timeout: str = LOCK_TIMEOUT, encoding: str = "UTF8", jit: bool = False
) -> str:
    """The start of every transaction: read-only, one moment, stable text forms.

    All is SET LOCAL, so that transaction poolers work. `version` is libpq's number of the server's version.
    Compiling catalogue queries and plain scans costs more than it saves (0.35 s for the one of types); the user's own
    text keeps the server's setting for `jit`.
    """
    local = {
        "client_encoding": encoding,
        "standard_conforming_strings": "on",
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "IntervalStyle": "iso_8601",
        "extra_float_digits": "3",
        "bytea_output": "hex",
        "idle_in_transaction_session_timeout": "0",
        "lock_timeout": lock_timeout,
    }
    if version >= 110000 and not jit:
        local["jit"] = "off"
    if version >= 170000:
        local["transaction_timeout"] = "0"
    timeout = endpoint.options.get("statement_timeout")
    if timeout is not None:
        local["statement_timeout"] = str(timeout)
    sets = "; ".join(f"set local {name} = {literal(value)}" for name, value in local.items())
    return f"begin isolation level repeatable read read only; {sets}"


@dataclass(slots=True, eq=False)
class Session:
    """One connection in one transaction.

    Attributes:
        connection: Opened by `connect`.
        endpoint: Where it leads to.
        kept: The transaction must outlive a statement's error (it holds a snapshot), so each runs in a savepoint.
        trips: Round trips made for statements, for tests of how few there are.
    """

    connection: psycopg.Connection[Row]
    endpoint: Endpoint
    kept: bool = False
    trips: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def version(self) -> int:
        """The number of the server's version: 150018."""
        return self.connection.pgconn.server_version

    @property
    def server(self) -> str:
        """The server's name and version: "PostgreSQL 15.18"."""
        words = self.connection.pgconn.parameter_status(b"server_version") or b""
        return f"PostgreSQL {words.decode(errors='replace').partition(' ')[0]}"

    @property
    def unchecked(self) -> bool:
        """Whether the database keeps text in no encoding (SQL_ASCII), so that its bytes may be anything."""
        return self.connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"

    def run(self, sql: str, doing: str, /) -> list[list[Row]]:
        """The rows of each statement that has any, in one round trip.

        Raises:
            EtlError: Mapped; the transaction goes on when it is `kept`.
        """
        with self.lock:
            try:
                return self._results(f"savepoint cuetl; {sql}; release savepoint cuetl" if self.kept else sql)
            except psycopg.Error as error:
                mapped = errors.from_psycopg(error, self.endpoint, doing)
                self._recover()
                raise mapped from None

    def rows(self, sql: str, doing: str, /) -> list[Row]:
        """The rows of the last statement that has any."""
        found = self.run(sql, doing)
        return found[-1] if found else []

    def refusal(self, copy: str, doing: str, /) -> str:
        """Try a COPY statement without rows: the server's words where it offers no such thing, else "".

        Raises:
            EtlError: The server refuses it for another reason, or is lost.
        """
        with self.lock:
            try:
                self._results("savepoint cuetl")
                with self.connection.cursor().copy(copy) as rows:
                    for _ in rows:
                        pass
                self._results("release savepoint cuetl")
            except psycopg.Error as error:
                mapped = errors.from_psycopg(error, self.endpoint, doing)
                self._recover()
                if error.sqlstate not in NOT_OFFERED:
                    raise mapped from None
                return f"{error.diag.message_primary} (SQLSTATE {error.sqlstate})"
            return ""

    def describe(self, sql: str, doing: str, /) -> list[tuple[str, int, int, int, int]]:
        """Output columns of a query by the server's describe step: name, type, modifier, base table, base column.

        Nothing is executed. Modifiers are -1 and base tables 0 where there are none. An error ends the transaction:
        there is nothing to read then.

        Raises:
            EtlError: The server refuses the text.
        """
        with self.lock:
            try:
                link = self.connection.pgconn
                self.trips += 2
                _accepted(link.prepare(b"", sql.encode()))
                described = _accepted(link.describe_prepared(b""))
                found = [
                    (
                        (described.fname(i) or b"").decode(),
                        described.ftype(i),
                        described.fmod(i),
                        described.ftable(i),
                        described.ftablecol(i),
                    )
                    for i in range(described.nfields)
                ]
            except psycopg.Error as error:
                raise errors.from_psycopg(error, self.endpoint, doing) from None
            return found

    def _results(self, sql: str) -> list[list[Row]]:
        self.trips += 1
        cursor = self.connection.execute(sql)
        found: list[list[Row]] = []
        while True:
            if cursor.description is not None:
                found.append(cursor.fetchall())
            if not cursor.nextset():
                return found

    def _recover(self) -> None:
        if self.kept and not self.connection.closed:
            with contextlib.suppress(psycopg.Error):
                self._results("rollback to savepoint cuetl; release savepoint cuetl")

    def alive(self) -> bool:
        """Ask the server; False when the session is gone."""
        with self.lock:
            try:
                self._results("select 1")
            except psycopg.Error:
                return False
            return True

    def close(self) -> None:
        """Close the connection; the server ends its transaction."""
        with contextlib.suppress(psycopg.Error):
            self.connection.close()


def _accepted(result: PGresult) -> PGresult:
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
    return result


def open_session(endpoint: Endpoint, run_id: str, /) -> Session:
    """A session that is not in a transaction yet; errors as `connect`."""
    return Session(connect(endpoint, run_id), endpoint)


def stop(session: Session, /) -> None:
    """Cancel what the server is doing for a session, then close it."""
    connection = session.connection
    if not connection.closed:
        with contextlib.suppress(psycopg.Error, OSError):
            connection.cancel_safe(timeout=5)
    session.close()


def close_all(sessions: Sequence[Session], /) -> None:
    """Close every session."""
    for one in sessions:
        one.close()
