"""One moment of the server held open: an exporter session, a guard for query text, and sessions that adopt it.

`LOCK TABLE` comes before the first query of the exporter, so that the snapshot is taken after the lock; for query text
a guard session plans it first, which takes share locks on every relation that it touches.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from connectors.postgresql.describe import no_table, query_text, table_name
from connectors.postgresql.session import Session, close_all, literal, open_session, settings, stop
from etl.core.errors import EtlError, SnapshotLost, StoreError, StoreRejected, StoreUnavailable
from etl.core.partition import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from connectors.base import Endpoint, Query
    from etl.core.partition import SnapshotKind

KEEP_ALIVE: Final = 30.0
"""Seconds between questions on the sessions that only wait, for what lies between them and the server."""
LOCK_TRIES: Final = 3
_LOCK_WAIT: Final = "5s"

_OPENING: Final = """
select pg_catalog.{export}, pg_catalog.clock_timestamp(),
    {position},
    (select s.setting::int8 from pg_catalog.pg_settings s where s.name = 'max_connections')
        - (select count(*) from pg_catalog.pg_stat_activity a where a.backend_type = 'client backend'),
    (select r.rolconnlimit - (select count(*) from pg_catalog.pg_stat_activity a where a.usesysid = r.oid)
     from pg_catalog.pg_roles r where r.rolname = current_user and r.rolconnlimit >= 0)
"""
_LSN: Final = (
    "(case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()"
    " else pg_catalog.pg_current_wal_lsn() end)::text"
)
_OPENINGS: Final = (("pg_export_snapshot()", _LSN), ("pg_export_snapshot()", "''"))
"""The second for services that have no log position to tell."""
_WATCH: Final = """
select pg_catalog.set_config('client_connection_check_interval', '10s', true)
where pg_catalog.current_setting('client_connection_check_interval', true) = '0' and pg_catalog.version() ~ 'linux'
"""
"""A long statement ends when its client is gone (since version 14, where the server's system can tell)."""
_REFUSED: Final = frozenset({"0A000", "42883", "42501", "25001", "55000", "42703", "42P01"})
"""SQLSTATEs by which a server says that it has no such function for us."""
_NO_LOCK: Final = frozenset({"42809", "42501", "0A000", "42601"})
_LOST: Final = "The session that held it was ended: only a new snapshot can go on."
_LOST_STANDBY: Final = (
    f"{_LOST} On a standby, rows that the primary cleans away end it: set hot_standby_feedback, or raise "
    "max_standby_streaming_delay."
)


_Opened: TypeAlias = "tuple[str, datetime, str, int, int | None]"


@dataclass(slots=True, eq=False)
class Leader:
    """The sessions that hold a snapshot open in this process.

    Attributes:
        session: The exporter; catalogue queries of the run process use it too, each in a savepoint.
        guard: The session that holds the locks of query text.
        free: Connections that the server has left for this user.
        idle: Sessions in the snapshot whose part has ended, with their locks, for the next part: opening one and
            adopting the snapshot takes as long as reading some MiB.
    """

    session: Session
    guard: Session | None
    free: int
    done: threading.Event = field(default_factory=threading.Event)
    idle: deque[tuple[tuple[str, ...], Session]] = field(default_factory=deque)
    choosing: threading.Lock = field(default_factory=threading.Lock)

    def take(self, locks: tuple[str, ...]) -> Session | None:
        """An idle session with these locks. Without one, another idle one is closed: no more are open than read."""
        with self.choosing:
            for index, (held, session) in enumerate(self.idle):
                if held == locks:
                    del self.idle[index]
                    return session
            if self.idle:
                self.idle.popleft()[1].close()
        return None

    def give(self, locks: tuple[str, ...], session: Session) -> None:
        """Keep a session for the next part, or close it when the snapshot is let go."""
        with self.choosing:
            self.idle.append((locks, session))
        if self.done.is_set():
            self.close_idle()

    def close_idle(self) -> None:
        """Close the sessions that wait for a part."""
        with self.choosing:
            while self.idle:
                self.idle.pop()[1].close()

    @property
    def pids(self) -> list[int]:
        """The server's processes of these sessions."""
        held = (self.session, self.guard)
        return [one.connection.info.backend_pid for one in held if one is not None]

    def keep_alive(self) -> None:
        """Ask each session every 30 s until done; a session that is lost is found by those who need it."""
        held = [one for one in (self.session, self.guard) if one is not None]
        while not self.done.wait(KEEP_ALIVE):
            for one in held:
                one.alive()


_leaders: dict[tuple[str, str, str], Leader] = {}
"""Snapshots held by this process, by connection and token."""


def _key(endpoint: Endpoint, token: str) -> tuple[str, str, str]:
    return endpoint.name, endpoint.display(), token


def leader(endpoint: Endpoint, at: Snapshot, /) -> Leader | None:
    """The sessions that hold this snapshot, when this process does."""
    return _leaders.get(_key(endpoint, at.token))


@contextlib.contextmanager
def hold(endpoint: Endpoint, queries: Sequence[Query], run_id: str, /) -> Iterator[Snapshot]:
    """Hold one moment open over all tables and queries.

    Where the server cannot export a snapshot the kind is `single`: one part, one statement.

    Raises:
        StoreRejected: A table is missing, a right is missing, or a text is refused.
        StoreUnavailable: No answer, or another session kept the lock for three times 5 s.
    """
    opened: list[Session] = []
    try:
        held, snapshot = _open(endpoint, queries, run_id, opened)
    except BaseException:
        close_all(opened)
        raise
    key = _key(endpoint, snapshot.token)
    _leaders[key] = held
    thread = threading.Thread(target=held.keep_alive, name=f"cuetl keep-alive {snapshot.token}", daemon=True)
    thread.start()
    try:
        yield snapshot
    finally:
        held.done.set()
        _leaders.pop(key, None)
        held.close_idle()
        close_all(opened)
        thread.join(timeout=5)


def _open(endpoint: Endpoint, queries: Sequence[Query], run_id: str, opened: list[Session]) -> tuple[Leader, Snapshot]:
    tables = [q.table for q in queries if q.table is not None]
    texts = [query_text(q).sql for q in queries if q.table is None]
    session = open_session(endpoint, run_id)
    opened.append(session)
    guard: Session | None = None
    begin = settings(endpoint, session.version, lock_timeout=_LOCK_WAIT)
    lockable = _lock(session, begin, tables) if tables else False
    if not lockable:
        texts += [f"select 1 from {table_name(t)}" for t in tables]  # noqa: S608 - a quoted name
        guard = open_session(endpoint, run_id)
        opened.append(guard)
    elif texts:
        guard = open_session(endpoint, run_id)
        opened.append(guard)
    if guard is not None:
        _guard(guard, endpoint, texts)
    row, exported = _export(session, begin, tables if lockable else [])
    kind: SnapshotKind = "exported" if exported else _without(endpoint, len(queries))
    session.kept = True
    if guard is not None:
        guard.kept = True
    token, taken_at, position, free, role_free = row
    free = int(free) if role_free is None else min(int(free), int(role_free))
    return Leader(session, guard, free), Snapshot(kind, token, taken_at, position=position, server=session.server)


def _without(endpoint: Endpoint, sources: int) -> SnapshotKind:
    wish = endpoint.options.get("consistency")
    if wish == "snapshot":
        raise StoreRejected(
            f'connection {endpoint.name} asks for one snapshot (consistency = "snapshot"), '
            "and its server does not export one",
            hint='Grant EXECUTE on pg_export_snapshot(), or set consistency = "per-part".',
            connection=endpoint.name,
        )
    return "none" if wish == "per-part" or sources > 1 else "single"


def _lock(session: Session, begin: str, tables: Sequence[str]) -> bool:
    """Lock the tables in the exporter's transaction; False when their kind, or the right to it, does not allow that."""
    statement = f"{begin}; lock table {', '.join(table_name(t) for t in tables)} in access share mode"
    for tries in range(LOCK_TRIES):
        try:
            session.run(statement, f"locking {', '.join(tables)} for reading")
        except StoreError as error:
            if session.connection.closed:
                raise
            session.rows("rollback", "locking")
            state = error.context.get("sqlstate")
            if state == "55P03" and tries + 1 < LOCK_TRIES:
                continue
            if state == "55P03":
                raise StoreUnavailable(
                    f"{error.message}, {LOCK_TRIES} times {_LOCK_WAIT}", hint=error.hint, **error.context
                ) from None
            if state == "42P01":
                raise _missing(session, tables, error) from None
            # Materialized views and foreign tables take no LOCK; rights on single columns do not suffice for it.
            if state in _NO_LOCK:
                return False
            raise
        return True
    return False


def _missing(session: Session, tables: Sequence[str], error: StoreError) -> EtlError:
    for table in tables:
        there = session.rows(f"select pg_catalog.to_regclass({literal(table_name(table))}) is not null", "looking up")
        if not there[0][0]:
            return no_table(session, table)
    return error


def _guard(guard: Session, endpoint: Endpoint, texts: Sequence[str]) -> None:
    begin = settings(endpoint, guard.version, lock_timeout="15s")
    for number, text in enumerate(texts):
        guard.run(f"explain {text}" if number else f"{begin}; explain {text}", "planning the query")


def _export(session: Session, begin: str, tables: Sequence[str]) -> tuple[_Opened, bool]:
    """Export the snapshot in the transaction that is open, or open it; False where the server cannot."""
    in_transaction = bool(tables)
    for export, position in _OPENINGS:
        opening = _OPENING.format(export=export, position=position)
        try:
            if in_transaction:
                row = session.rows(opening, "exporting a snapshot")[0]
            else:
                row = session.rows(f"{begin}; {opening}", "exporting a snapshot")[0]
        except StoreError as error:
            if error.context.get("sqlstate") not in _REFUSED:
                raise
            session.rows("rollback", "exporting a snapshot")
            in_transaction = False
            if tables:
                _lock(session, begin, tables)
                in_transaction = True
            continue
        return (row[0], row[1], row[2], row[3], row[4]), True
    if not in_transaction:
        session.run(begin, "opening a transaction")
    pid, now = session.rows("select pg_catalog.pg_backend_pid(), pg_catalog.clock_timestamp()", "opening")[0]
    return (f"single-{pid}-{now.timestamp():.6f}", now, "", 4, None), False


def adopt(endpoint: Endpoint, at: Snapshot, run_id: str, tables: Sequence[str], /) -> Session:
    """A new session in the snapshot, with share locks on the tables (quoted names).

    The lock comes before the snapshot is adopted: adopting proves that the exporter, which keeps the same lock, was
    there all the while, so nobody can have emptied the table in between.

    Raises:
        SnapshotLost: The exporter is gone.
        StoreUnavailable: No answer, or a lock was not given.
    """
    session = open_session(endpoint, run_id)
    try:
        # The server refuses to call such bytes UTF-8; the decoder looks at each value instead.
        encoding = "SQL_ASCII" if session.unchecked else "UTF8"
        begin = settings(endpoint, session.version, encoding=encoding, jit=not tables)
        token = f"; set transaction snapshot {literal(at.token)}" if at.kind == "exported" else ""
        lock = f"; lock table {', '.join(tables)} in access share mode" if tables else ""
        try:
            _adopt(session, f"{begin}{lock}{token}; {_WATCH}", at)
        except StoreError as error:
            if not lock or error.context.get("sqlstate") not in _NO_LOCK:
                raise
            session.rows("rollback", "adopting the snapshot")
            _adopt(session, f"{begin}{token}; {_WATCH}", at)
    except BaseException:
        session.close()
        raise
    return session


def take_idle(endpoint: Endpoint, at: Snapshot, locks: tuple[str, ...], /) -> Session | None:
    """A session in the snapshot, with these locks, whose part has ended, where this process holds the snapshot."""
    held = leader(endpoint, at) if at.kind == "exported" else None
    return held.take(locks) if held is not None else None


def give_back(endpoint: Endpoint, at: Snapshot, locks: tuple[str, ...], session: Session, /) -> None:
    """After a statement that ended well: keep the session for the next part where this process holds the snapshot."""
    held = leader(endpoint, at) if at.kind == "exported" else None
    if held is None:
        session.close()
    else:
        held.give(locks, session)


def _adopt(session: Session, begin: str, at: Snapshot) -> None:
    try:
        session.run(begin, "adopting the snapshot")
    except StoreError as error:
        # 22023, 42704, 55000: the ways in which servers say that the exporter's transaction has ended.
        if at.kind == "exported" and error.context.get("sqlstate") in ("22023", "42704", "55000"):
            raise SnapshotLost(
                f"the snapshot {at.token} is gone: {error.message}",
                hint=_LOST_STANDBY if _is_standby(session) else _LOST,
                connection=session.endpoint.name,
            ) from None
        raise


def _is_standby(session: Session) -> bool:
    """Whether the server is one, as far as a session in a failed transaction can still be told."""
    try:
        session.run("rollback", "asking the server")
        return bool(session.rows("select pg_catalog.pg_is_in_recovery()", "asking the server")[0][0])
    except EtlError:
        return False


@contextlib.contextmanager
def session_at(endpoint: Endpoint, at: Snapshot, run_id: str, /) -> Iterator[Session]:
    """A session in the snapshot for catalogue queries: the exporter's own in the process that holds it.

    Raises:
        SnapshotLost: The exporter is gone.
    """
    held = leader(endpoint, at)
    if held is None:
        session = adopt(endpoint, at, run_id, ())
        try:
            yield session
        except BaseException:
            stop(session)
            raise
        session.close()
        return
    try:
        yield held.session
    except StoreUnavailable as error:
        if held.session.connection.closed or held.session.connection.broken:
            raise SnapshotLost(
                f"the snapshot {at.token} is gone: {error.message}",
                hint=_LOST_STANDBY if "recovery" in error.message else _LOST,
                connection=endpoint.name,
            ) from None
        raise
