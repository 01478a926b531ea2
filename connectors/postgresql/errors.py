"""From the server's and libpq's errors to the tree: the one place, so that the same fault reads the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import psycopg

from etl.core.errors import ConfigError, StoreRejected, StoreUnavailable

if TYPE_CHECKING:
    from connectors.base import Endpoint
    from etl.core.errors import EtlError

TRANSIENT: Final = frozenset(
    {"57P01", "57P02", "57P03", "57P05", "25P03", "40001", "40P01", "55P03", "53300", "57014", "55006"}
)
"""SQLSTATEs after which another try may pass; class 08 too."""

_HINTS: Final = {
    "53300": "Ask for fewer sessions (max_connections of the connection, --workers), or raise the limit that is named.",
    "55P03": "Another session holds or waits for a lock that excludes reading (TRUNCATE, ALTER, VACUUM FULL): "
    "wait for it, or end it.",
    "57P01": "The session was ended by an administrator.",
    "57P02": "The server crashed and is starting again.",
    "57P03": "The server is starting or stopping.",
    "42501": "Grant SELECT on what is named to this user.",
    "42P22": "Cut by another column, or give the column a COLLATE in the query.",
    "0A000": "The server does not offer this.",
}
_AUTHENTICATION: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied for database",
    "is not permitted to log in",
    "requires a valid client certificate",
    "pg_hba.conf rejects",
)
_STATEMENT_POOLING: Final = "statement pooling mode"
"""PgBouncer's words (client.c, server.c) where a pool hands its server on after every statement."""
_TLS_NONE: Final = ("server does not support SSL",)
_TLS_BAD: Final = ("certificate", "SSL error", "root certificate file", "tls")


class ServerWords(Protocol):
    """What the server said of an error, as the stream reader hands it on."""

    @property
    def sqlstate(self) -> str: ...  # noqa: D102 - a field of the protocol
    @property
    def message(self) -> str: ...  # noqa: D102 - a field of the protocol
    @property
    def detail(self) -> str: ...  # noqa: D102 - a field of the protocol


def from_psycopg(error: psycopg.Error, endpoint: Endpoint, doing: str) -> EtlError:
    """The error of a statement or a lost connection.

    Args:
        error: As psycopg raised it.
        endpoint: Whose name is given; its credentials are not.
        doing: What was tried: "reading table public.orders".
    """
    diag = error.diag
    if error.sqlstate is None:
        words = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailable(
                f"{doing} on {_located(endpoint)}: the connection was lost: {words}",
                connection=endpoint.name,
            )
        return StoreRejected(f"{doing} on connection {endpoint.name}: {words}", connection=endpoint.name)
    return from_words(
        error.sqlstate,
        diag.message_primary or " ".join(str(error).split()),
        endpoint,
        doing,
        detail=diag.message_detail or "",
        hint=diag.message_hint or "",
    )


def from_words(
    sqlstate: str, message: str, endpoint: Endpoint, doing: str, *, detail: str = "", hint: str = "", named: bool = True
) -> EtlError:
    """The error of what the server said, by its SQLSTATE (classes of PostgreSQL's appendix A).

    With `named` False the caller says which connection it is.
    """
    said = message
    if detail and endpoint.options.get("show_detail", True):
        said = f"{said} ({detail})"
    where = f" on connection {endpoint.name}" if named else ""
    text = f"{doing}{where}: {said} (SQLSTATE {sqlstate})"
    help_ = f"{hint.rstrip('.')}." if hint else _HINTS.get(sqlstate, "")
    if sqlstate == "42601" and 'near ":"' in message:
        help_ = "Declare every :name of the query with --param."
    if sqlstate == "57014":
        help_ = _timeout(message, endpoint)
    if "recovery" in message and sqlstate in ("40001", "40P01", "57014"):
        help_ = "On a standby: set hot_standby_feedback, or raise max_standby_streaming_delay."
    if _STATEMENT_POOLING in message:
        hint_ = "One snapshot needs a transaction: set pool_mode = transaction (or session) for this database there."
        return StoreRejected(text, hint=hint_, connection=endpoint.name, sqlstate=sqlstate)
    kind = StoreUnavailable if sqlstate in TRANSIENT or sqlstate.startswith("08") else StoreRejected
    return kind(text, hint=help_, connection=endpoint.name, sqlstate=sqlstate)


def _located(endpoint: Endpoint) -> str:
    """The server's address, and the connection's name where it has one of its own."""
    shown = endpoint.display()
    return shown if shown == endpoint.name else f"{shown} (connection {endpoint.name})"


def _timeout(message: str, endpoint: Endpoint) -> str:
    if "statement timeout" not in message:
        return "Someone cancelled the statement." if "user request" in message else ""
    ours = endpoint.options.get("statement_timeout")
    if ours is not None:
        return f"statement_timeout of connection {endpoint.name} is {ours}: raise it."
    return "statement_timeout of the server, database or role ended it: set statement_timeout of the connection."


def from_connect(error: psycopg.Error, endpoint: Endpoint) -> EtlError:
    """The error of opening a connection: libpq's own words, which carry no SQLSTATE before the session is up."""
    words = " ".join(str(error).split()).removeprefix("connection failed: ")
    where = f"cannot connect to {_located(endpoint)}"
    if isinstance(error, psycopg.ProgrammingError):
        return ConfigError(f"{where}: {words}", hint="Options in the URL are those of libpq.", connection=endpoint.name)
    low = words.lower()
    if any(one in words for one in _TLS_NONE):
        return StoreRejected(
            f"{where}: {words}",
            hint="Turn TLS on at the server, or write ?sslmode=disable into the URL for a network you trust.",
            connection=endpoint.name,
        )
    if "too many" in low or "remaining connection slots" in low or "connection limit" in low:
        return StoreUnavailable(f"{where}: {words}", hint=_HINTS["53300"], connection=endpoint.name, sqlstate="53300")
    if any(one in low for one in _AUTHENTICATION):
        return StoreRejected(
            f"{where}: {words}", hint="Check user, password, database and pg_hba.conf.", connection=endpoint.name
        )
    if any(one.lower() in low for one in _TLS_BAD):
        return StoreRejected(
            f"{where}: {words}",
            hint="Give the authority's certificate with ?sslrootcert=FILE and connect by the name in the "
            "server's certificate; ?sslmode=require encrypts without checking who answers.",
            connection=endpoint.name,
        )
    return StoreUnavailable(
        f"{where}: {words}", hint="Check host, port and that the server runs.", connection=endpoint.name
    )
