"""The PostgreSQL source: ties snapshot, description, facts and the stream of a part together."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from connectors.base import Capabilities, TableInfo
from connectors.postgresql import errors, facts, statements, widen
from connectors.postgresql.describe import DIALECT, Description, describe, query_text, table_name
from connectors.postgresql.session import NOT_OFFERED, catalogue, literal, open_session, settings
from connectors.postgresql.snapshot import adopt, give_back, hold, leader, session_at, take_idle
from connectors.postgresql.types import as_float
from connectors.postgresql.wire import ServerError, stream
from connectors.sqltext import quote_name
from etl.core.arrow_types import HEX, parse_type
from etl.core.errors import ConfigError, EtlError, StoreError
from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from connectors.base import CutWish, Endpoint, Facts, Query, Source, Tally
    from connectors.postgresql.session import Session
    from etl.core.partition import Partition, Slice, Snapshot
    from etl.core.schema import Schema

_CUTS: Final = frozenset({Whole, Pages, KeyRange, NullKeys, Hash, Child})
_KINDS: Final = {
    "r": "table",
    "p": "partitioned table",
    "m": "materialized view",
    "v": "view",
    "f": "foreign table",
}
_CLOSED: Final = "the server closed it"
_CLOSED_HINT: Final = (
    "A server closes a session without a word in mid-stream when it is ended by an administrator (SQLSTATE 57P01) or "
    "when the server stops or crashes."
)
_KEPT: Final = 64
"""Descriptions kept per process: a worker describes a source once, not once per part."""
CANCEL_WAIT: Final = 2.0
"""Seconds that statements get to stop by themselves before their sessions are ended."""

_descriptions: OrderedDict[tuple[str, str], Description] = OrderedDict()
_descriptions_lock = threading.Lock()
_without_copy: dict[tuple[str, str], str] = {}
"""Servers that refuse COPY in binary, and their words, by connection."""


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """One table or query of a PostgreSQL database.

    Attributes:
        endpoint: Where the database is.
        query: What is read.
        widened: Columns whose open decimals were measured and made wider by `widen`.
    """

    endpoint: Endpoint
    query: Query
    widened: tuple[str, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """All cuts, in one exported snapshot; two of `max_connections` stay with the run process."""
        most = self.endpoint.options.get("max_connections")
        return Capabilities(
            cuts=_CUTS,
            snapshots=frozenset({"exported", "single", "none"}),
            max_parallel=max(1, int(most) - 2) if most is not None else None,
            python_rows=False,
            decimal_floats=True,
        )

    @property
    def title(self) -> str:
        """What is read, for messages."""
        return f"table {self.query.table}" if self.query.table is not None else "query"

    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> AbstractContextManager[Snapshot]:
        """Hold one moment open for this source and its siblings; see `connectors.postgresql.snapshot.hold`."""
        del attach_all  # parts adopt the snapshot whenever they begin
        return hold(self.endpoint, [self.query, *(s.query for s in siblings)], self.query.run_id)

    def attach(self, at: Snapshot, /) -> None:
        """Nothing to do: parts adopt the snapshot whenever they begin."""

    def schema(self, at: Snapshot, /) -> Schema:
        """The columns by catalogue or describe; nothing is executed.

        Raises:
            ConfigError: Columns or types asked for do not fit.
            StoreRejected: No such table, or the server refuses the text.
        """
        return self._described(at).schema

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """Sizes and ways to cut; see `connectors.postgresql.facts`."""
        described = self._described(at)
        with session_at(self.endpoint, at, self.query.run_id) as session:
            found = facts.facts(session, described, self.query, at, wish, sample=sample)
            if not sample and session.kept:
                # A run finds out by its first part, without asking.
                self._without_copy(session.refusal(statements.copy("select 1 where false"), "trying COPY"))
        if self._refused:
            found = replace(found, notes=(*found.notes, self._refused))
        held = leader(self.endpoint, at)
        if held is None:
            return found
        limits = [max(1, held.free // 2), self.capabilities.max_parallel]
        return replace(found, readers=min(one for one in limits if one is not None))

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows of a part, counted by the server in the snapshot, on a session of its own."""
        described = self._described(at)
        with self._session(at, self._locks(described, part.slice)) as session:
            statement = statements.count(described, self.query, part.slice)
            rows = session.rows(statement, f"counting {self.title}")
        return int(rows[0][0])

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The SELECT of a part. Bounds that are not known yet are named as such."""
        described = self._latest()
        sql = statements.select(described, self.query, part.slice, [described.column(c) for c in columns])
        match part.slice:
            case KeyRange(key, None, None, False):
                return f"{sql} /* {', '.join(key)}: (sampled at run) */"
        return sql

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Closing the generator early stops the statement and closes its session.

        Raises:
            SnapshotLost: The session that holds the snapshot is gone.
            EtlError: As the server or the decoder says, with the rows so far; the caller says what was read.
        """
        described = self._described(at)
        columns = [described.column(name) for name in schema.names]
        select = statements.select(described, self.query, part.slice, columns)
        plans = [
            c.plan if c.field.type == f.type else as_float(c.plan, f.type) for c, f in zip(columns, schema, strict=True)
        ]
        locks = self._locks(described, part.slice)
        key = [name for name in self._key(described) if name in schema.names]
        session = idle = take_idle(self.endpoint, at, locks)
        portal, refusal = bool(self._refused), ""
        while True:
            if session is None:
                session = adopt(self.endpoint, at, self.query.run_id, locks)
            well = False
            try:
                yield from stream(
                    session.connection,
                    select if portal else statements.copy(select),
                    plans,
                    schema.to_arrow(),
                    batch_bytes=batch_bytes,
                    tally=tally,
                    key_columns=key,
                    validate_utf8=session.unchecked,
                    keep=True,
                    portal=portal,
                )
                well = True
            except EtlError as error:
                if not portal and not tally.rows and isinstance(error, ServerError) and error.sqlstate in NOT_OFFERED:
                    portal, refusal = True, error.message
                    session, idle, tally.received = None, None, 0
                    continue
                said = self._said(error, tally)
                if idle is None or tally.rows or said.retry != "transient":
                    raise said from error.__cause__
                # It was ended while it waited: a new session tells whether the snapshot is still there.
                session, idle, tally.received = None, None, 0
            finally:
                if session is not None and not well:
                    session.close()
            if well and session is not None:
                self._without_copy(refusal)
                if portal:
                    tally.warnings.append(self._refused)
                give_back(self.endpoint, at, locks, session)
                return

    def widen(self, at: Snapshot, /) -> Self:
        """The same source with its open numerics measured in the snapshot, see `etl.core.errors.DecimalTooNarrow`."""
        described = self._described(at)
        with self._session(at, ()) as session:
            found = widen.measure(session, described, self.query)
        types = {**self.query.types, **found}
        return replace(self, query=replace(self.query, types=types), widened=tuple(found))

    @property
    def _refused(self) -> str:
        """A sentence where this process knows that the server refuses COPY in binary."""
        words = _without_copy.get((self.endpoint.name, self.endpoint.display()))
        return f"the server refuses COPY in binary ({words}): rows are read through a portal" if words else ""

    def _without_copy(self, words: str) -> None:
        if words:
            _without_copy[self.endpoint.name, self.endpoint.display()] = words

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Stop every statement of this run on the server; its sessions that are still there after 2 s are ended.

        Args:
            keeping: A snapshot whose sessions in this process stay.

        Raises:
            StoreUnavailable: The server cannot be reached.
        """
        name = literal(f"cuetl:{self.query.run_id}")
        ours = f"from pg_catalog.pg_stat_activity where application_name = {name} and pid <> pg_backend_pid()"
        held = leader(self.endpoint, keeping) if keeping is not None else None
        if held is not None:
            held.close_idle()
            ours += f" and pid not in ({', '.join(map(str, held.pids))})"
        with contextlib.closing(open_session(self.endpoint, self.query.run_id)) as session:
            session.run(f"select pg_cancel_backend(pid) {ours} and state = 'active'", "cancelling the run")
            waiting = threading.Event()
            for _ in range(int(CANCEL_WAIT * 10)):
                if not session.rows(f"select 1 {ours} and state = 'active'", "cancelling the run"):
                    break
                waiting.wait(0.1)
            session.run(f"select pg_terminate_backend(pid) {ours}", "ending the sessions of the run")

    def check(self) -> None:
        """Refuse what can be told without the server.

        Raises:
            ConfigError: The text is no single read, a name is malformed, or a type does not exist.
        """
        if self.query.table is not None:
            table_name(self.query.table)
        else:
            query_text(self.query)
        for word in self.query.types.values():
            if word != HEX:
                parse_type(word)
        if self.query.limit is not None and self.query.limit < 0:
            raise ConfigError(f"a limit of {self.query.limit} rows is below 0")

    @contextlib.contextmanager
    def _session(self, at: Snapshot, locks: tuple[str, ...]) -> Iterator[Session]:
        idle = take_idle(self.endpoint, at, locks)
        session = adopt(self.endpoint, at, self.query.run_id, locks) if idle is None else idle
        try:
            yield session
        except BaseException:
            session.close()
            raise
        give_back(self.endpoint, at, locks, session)

    def _locks(self, described: Description, part: Slice) -> tuple[str, ...]:
        if isinstance(part, Child):
            return (f"only {part.leaf}",)
        relation = described.relation
        return (relation.quoted,) if relation is not None and relation.kind in ("r", "p") else ()

    def _key(self, described: Description) -> tuple[str, ...]:
        return self.query.key or (described.relation.primary if described.relation is not None else ())

    def _said(self, error: EtlError, tally: Tally) -> EtlError:
        far = f"after {tally.rows:,} rows of the part".replace(",", " ") if tally.rows else "before its first row"
        if isinstance(error, ServerError):
            words = error.message.removesuffix(f" (SQLSTATE {error.sqlstate})").removesuffix(f" ({error.detail})")
            return errors.from_words(
                error.sqlstate, words, self.endpoint, far, detail=error.detail, hint=error.hint, named=False
            )
        if isinstance(error, StoreError):
            if error.message.endswith(_CLOSED):
                error.hint = f"{_CLOSED_HINT} {error.hint}"
            return error if "of the part" in error.message else error.at(far)
        return error

    def _identity(self) -> str:
        return f"{self.endpoint!r} {replace(self.query, run_id='')!r} {self.widened!r}"

    def _described(self, at: Snapshot) -> Description:
        key = (self._identity(), at.token)
        with _descriptions_lock:
            if key in _descriptions:
                return _descriptions[key]
        with session_at(self.endpoint, at, self.query.run_id) as session:
            return self._keep(key, describe(session, self.query))

    def _latest(self) -> Description:
        """The newest description in this process; without one, as the catalogue is now."""
        identity = self._identity()
        with _descriptions_lock:
            for key in reversed(_descriptions):
                if key[0] == identity:
                    return _descriptions[key]
        with contextlib.closing(open_session(self.endpoint, self.query.run_id)) as session:
            session.run(settings(self.endpoint, session.version), "opening a transaction")
            session.kept = True
            return describe(session, self.query)

    def _keep(self, key: tuple[str, str], found: Description) -> Description:
        if self.widened:
            found = widen.noted(found, self.widened)
        with _descriptions_lock:
            _descriptions[key] = found
            while len(_descriptions) > _KEPT:
                _descriptions.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class PostgresConnector:
    """Sources of `postgresql://`, its tables and its version."""

    def source(self, at: Endpoint, query: Query, /) -> PostgresSource:
        """A source; what can be told without the server is refused here.

        Raises:
            ConfigError: The text, a name or a type is wrong.
        """
        if (query.table is None) == (query.sql is None):
            raise ConfigError("a PostgreSQL source is either a table or a query", hint="Give --table or --sql.")
        found = PostgresSource(at, query)
        found.check()
        return found

    def tables(self, at: Endpoint, /) -> list[TableInfo]:
        """All tables and views that the user may read, as `schema.name`; those of the search path come first."""
        with contextlib.closing(open_session(at, "")) as session:
            rows = session.rows(catalogue("tables", {}), "listing tables")
        return [
            TableInfo(f"{_spelled(schema)}.{_spelled(name)}", _KINDS[kind], count, size)
            for schema, name, kind, count, size, _ in rows
        ]

    def server(self, at: Endpoint, /) -> str:
        """The server's name and version: "PostgreSQL 15.18"."""
        with contextlib.closing(open_session(at, "")) as session:
            words = str(session.rows("select version()", "asking for the version")[0][0])
        return " ".join(words.split()[:2])


def _spelled(name: str) -> str:
    return quote_name(name, DIALECT) if "." in name or '"' in name else name


CONNECTOR: Final = PostgresConnector()
