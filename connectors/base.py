"""The contracts between cuETL and a store.

A connector is a module (or folder) of `connectors/` named as its URL scheme that exports `CONNECTOR`. Sources and
sinks are picklable values: any method may run in any process, and connections stay where they were opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

from etl.core.partition import Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from etl.core.partition import Partition, Slice, Snapshot
    from etl.core.schema import Field, Schema
    from etl.core.secrets import SecretRef

CONTRACT = 1
"""Held by the registry: another distribution named `connectors` on the path is found by its absence."""

Special: TypeAlias = Literal["error", "null", "clamp"]
Cast: TypeAlias = Literal["exact", "round", "saturate"]
Mode: TypeAlias = Literal["create", "replace", "append", "merge"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a store is: a connection's name and its parts, with references in place of secrets.

    Attributes:
        name: The connection's name in `cuetl.toml`; for a URL typed by the user, the URL without user info.
        scheme: As the registry knows it: "postgresql", "sqlite", "mysql+pymysql".
        host, port, database, user: Decoded parts; None where not given, so that the driver's own defaults work.
        password: A reference, never a value.
        query: Decoded query parameters of the URL (`sslmode=verify-full`).
        options: The connection's other keys in `cuetl.toml` (`consistency`, `statement_timeout`, …).
    """

    name: str
    scheme: str
    host: str | None = None
    port: int | None = None
    database: str | None = None
    user: str | None = None
    password: SecretRef | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def display(self) -> str:
        """scheme://host:port/database: no user info, no parameters."""
        host = self.host or ""
        if ":" in host:
            host = f"[{host}]"
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{host}{port}/{self.database or ''}"


@dataclass(frozen=True, slots=True)
class Query:
    """What to read, and the policies that hold while values become Arrow. Exactly one of `table` and `sql` is set.

    Attributes:
        table: A table's name as the user wrote it (`a.b` is schema and name, `"a.b"` one name).
        sql: The user's own query text.
        columns: The columns wanted, in order; None for all.
        types: Column → Arrow type in the words of the command line ("decimal(38,18)", "string", "hex").
        params: Declared parameters: name → value (text from the command line, or a typed Python value).
        limit: The first N rows, as one part.
        key: Columns that name a row in messages; empty: the primary key, else the row's number in the part.
        special: What happens to a value that the Arrow type cannot hold; None: not given (the store's default).
        cast: What happens to fraction digits beyond a decimal's scale.
        run_id: Sessions on the store are named `cuetl:<run_id>`.
    """

    table: str | None = None
    sql: str | None = None
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, object] = field(default_factory=dict)
    limit: int | None = None
    key: tuple[str, ...] = ()
    special: Special | None = None
    cast: Cast = "exact"
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class CutWish:
    """How the user wants the source cut. `partitions` None: by size. `readers`: reads that go on at once."""

    column: str | None = None
    partitions: int | None = None
    partition_bytes: int = 128 << 20
    readers: int = 2


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a source cannot be cut (or not as wished). `reason` is a fixed code; why and remedy are sentences."""

    reason: str
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class KeyStep:
    """One step of a key's distribution: about `rows` rows lie in [bound, next step's bound).

    `bound` is the store's own text, one per key column. A step that is one single value that cannot be cut further
    says so in `single`.
    """

    bound: tuple[str, ...]
    rows: float
    single: bool = False


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key's distribution in the store's own order: ascending distinct steps, found without arithmetic on keys.

    `below`: rows below the first bound (0 when it is the smallest). `deferred`: bounds need a sample that a plan-only
    call does not take; steps are empty then.
    """

    columns: tuple[str, ...]
    steps: tuple[KeyStep, ...] = ()
    below: float = 0.0
    null_rows: float = 0.0
    nullable: bool = True
    origin: str = ""
    """Where the bounds are from, for the plan: "pg_stats", "a sample of 30 000 rows"."""
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """One leaf of a partitioned parent: its quoted name and what is known about it."""

    name: str
    bytes: int
    rows: float
    pages: int | None = None
    """Heap pages where the leaf may be read by page ranges; None: read it whole."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source knows about its size and how it may be cut; everything `planning.cut` needs, as values.

    Exactly the ways that are allowed are filled in; `planning.cut` takes the first of leaves, key, pages, hash.
    With a column asked for, the source fills `key` (or `hash_column`) and leaves `pages` and `leaves` empty.
    """

    rows: float
    bytes: int
    pages: int | None = None
    leaves: tuple[LeafFacts, ...] = ()
    key: KeyFacts | None = None
    hash_column: str | None = None
    obstacle: Obstacle | None = None
    """Set when the source must be read as one part, or when the way asked for was not possible."""
    notes: tuple[str, ...] = ()
    readers: int | None = None
    """How many reads at once the store can bear (half of its free connections); None: it does not say."""


@dataclass(slots=True)
class Tally:
    """What a reader counts while it reads one part; handed in by the task, filled by `Source.read`.

    Attributes:
        rows: Rows handed out.
        counted: Rows the server says the part has (the COPY tag, or a count in the same transaction); None before.
        special: Column → reason → how many values the policy replaced.
        rounded: Column → how many decimals lost fraction digits under `--cast round` or `saturate`.
        received: Bytes from the store.
        how: Which way the bytes came ("socket", "libpq", "cursor"), for the report.
        warnings: Sentences for the run report.
    """

    rows: int = 0
    counted: int | None = None
    special: dict[str, dict[str, int]] = field(default_factory=dict)
    rounded: dict[str, int] = field(default_factory=dict)
    received: int = 0
    how: str = ""
    warnings: list[str] = field(default_factory=list)

    def add_special(self, column: str, reason: str, count: int = 1) -> None:
        """Count values that a policy replaced."""
        reasons = self.special.setdefault(column, {})
        reasons[reason] = reasons.get(reason, 0) + count


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an endpoint promises; the conformance suite holds it to each promise and to nothing more.

    `python_rows`: reading makes Python objects per row, so parts belong into worker processes.
    `decimal_floats`: `read` takes a schema that has float64 where `Source.schema` has a decimal; each value is rounded
    once from its digits, under the query's cast policy, and NaN and infinities are kept.
    `position_proves`: two snapshots of equal `position`, which is not "", hold the same rows.
    `bytes`: the size of the whole store, where that is known before a snapshot is taken.
    """

    cuts: frozenset[type[Slice]] = frozenset({Whole})
    snapshots: frozenset[str] = frozenset({"none"})
    modes: frozenset[Mode] = frozenset()
    max_parallel: int | None = None
    python_rows: bool = True
    decimal_floats: bool = False
    position_proves: bool = False
    bytes: int | None = None


class Source(Protocol):
    """Reads one query, table, collection or index; a picklable value."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def query(self) -> Query: ...

    @property
    def title(self) -> str:
        """What is read, for messages: `table public.orders` or `query`."""
        ...

    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> AbstractContextManager[Snapshot]:
        """Hold one moment of the store open, for this source and its siblings on the same connection."""
        ...

    def attach(self, at: Snapshot, /) -> None:
        """Called on each worker before `snapshot()` lets go of its lock (MySQL, SQLite); else nothing."""
        ...

    def schema(self, at: Snapshot, /) -> Schema:
        """The columns, by catalogue or describe; reads no row."""
        ...

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """Sizes and ways to cut. With `sample` False only catalogues, statistics and EXPLAIN are read."""
        ...

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows of a part (or, for `Whole`, of all), counted by the store in the snapshot."""
        ...

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The SQL or filter of a part, as `--plan` prints it."""
        ...

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part in batches of exactly `schema`: a selection of `self.schema`, see `decimal_floats`.

        Memory stays within a few batches. Closing the generator stops the statement on the server.

        Raises:
            EtlError: Mapped by the connector; names column, key and value where there are any, and how far it came.
                What is read and from where is said by the caller, once.
        """
        ...

    def widen(self, at: Snapshot, /) -> Self:
        """After `DecimalTooNarrow`: the same source with the open numerics measured in the snapshot."""
        ...

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Stop all statements of this run on the store, whoever runs them; may be called from any thread.

        Args:
            keeping: A snapshot that this process holds and may go on with.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table for `inspect`: estimated rows and bytes, None where the store does not know."""

    name: str
    kind: str
    rows: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file written by a part, under its temporary name. `path` is relative to the session's stage."""

    path: str
    split: str
    rows: int
    bytes: int
    sha256: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """What the format adds: tensor offsets, column statistics."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt at one part wrote: a small picklable value that travels back to the run process."""

    part: Partition
    attempt: int
    rows: int
    dropped: Mapping[str, int]
    files: tuple[StagedFile, ...]
    columns: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Per column counts for the manifest: null, n_rounded, n_saturated, special …; summed over parts."""
    sketches: Mapping[str, bytes] = field(default_factory=dict)
    """Per split a sample of the hashes of its feature rows, which tells equal rows in two splits."""
    checked: Mapping[str, object] = field(default_factory=dict)
    """What data checks saw of the part's rows."""


@dataclass(frozen=True, slots=True)
class PartRecord:
    """One part as the manifest lists it; `source` "" is the one source that rows were read from."""

    index: int
    key: str
    slice: Mapping[str, object]
    predicate: str
    rows_counted: int | None
    rows_read: int
    rows: int
    bytes: int
    seconds: float
    attempts: int
    rows_made: int | None = None
    """Rows that a pipeline's function gave for those read; None where rows pass straight through."""
    includes_null: bool = True
    source: str = ""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One source as the manifest lists it, with the moment of its store that was read."""

    name: str
    connector: str
    dialect: str
    server_version: str
    url: str
    query: str
    tables: tuple[str, ...]
    cut: Mapping[str, object]
    rows_read: int
    rows_written: int
    rows_dropped: Mapping[str, int]
    """By policy of the dataset; "function": rows that a function gave fewer than it got, part by part."""
    started: str
    finished: str
    snapshot: Snapshot
    params_sha256: str = ""
    rows_added: int = 0
    """Rows that a function gave more than it got, part by part."""


@dataclass(frozen=True, slots=True)
class Requires:
    """What must still be true at commit, and what is recorded with it.

    `rows`: rows of the whole source in the snapshot; None when nobody counted the whole. `sources`: at least one.
    `warnings`: {"code", "text", "column"?, "count"?} each.
    """

    run_id: str
    rows: int | None
    sources: tuple[SourceRecord, ...]
    parts: tuple[PartRecord, ...]
    special: Mapping[str, Mapping[str, int]]
    rounded: Mapping[str, int]
    warnings: tuple[Mapping[str, object], ...]
    engine: str
    workers: int
    origins: tuple[PartRecord, ...] = ()
    """Parts of the sources, where `parts` are of what was made of them in between."""
    prepared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Column → what the steps of `prepare` met in it (NULL, never seen, clipped …) → how often."""
    given: tuple[tuple[Field, tuple[object, ...]], ...] = ()
    """Columns that the steps of `prepare` read, and the statistics that each part has of them before the first step."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version that readers can see."""

    target: str
    format: str
    version: int
    rows: int
    bytes: int
    files: int
    splits: Mapping[str, int]
    columns: tuple[Mapping[str, object], ...]
    warnings: tuple[Mapping[str, object], ...] = ()
    checks: tuple[Mapping[str, object], ...] = ()
    """What came of each data check, as the manifest lists it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What one attempt at a piece of the work after all parts made: a small picklable value.

    Attributes:
        file: The file, under its temporary name.
        columns: Per column counts, as in `Staged`.
        mix: Its share of the chi-square sum that tells how well the parts are mixed.
    """

    file: StagedFile
    columns: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    mix: float = 0.0


class Finish(Protocol):
    """One piece of the work that is left when all parts are staged; a picklable value, carried out on any worker."""

    @property
    def title(self) -> str:
        """What it makes, for messages."""
        ...

    @property
    def rows(self) -> int: ...

    def write(
        self, attempt: int, /, *, stopped: Callable[[], bool], passed: Callable[[pa.RecordBatch], None]
    ) -> Finished:
        """Do it, under names of this attempt.

        Args:
            attempt: From 1.
            stopped: Looked at again and again; True ends it with `Cancelled`.
            passed: Called with every batch that was written.
        """
        ...


class WriteSession(Protocol):
    """One run's write, picklable: `stage` on workers, the rest in the run process; invisible before `commit`."""

    def stage(self, part: Partition, attempt: int, batches: Iterator[pa.RecordBatch], /) -> Staged:
        """Write one part's rows to names of this attempt. A batch's buffers may be reused once it is let go."""
        ...

    def exchange(self, staged: Sequence[Staged], /) -> Sequence[Finish]:
        """What is left to do on workers when all parts are staged, in order: nothing, unless rows change places."""
        ...

    def prepare(
        self, staged: Sequence[Staged], /, *, requires: Requires, finished: Sequence[Finished] = ()
    ) -> Callable[[], Published]:
        """Do all of a commit that takes long or can be refused; what is returned makes it visible in one switch.

        A run with several datasets prepares all of them before it publishes the first. `finished` is what came of
        `exchange`, in its order.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first; also raised by the switch, should it happen in between.
        """
        ...

    def commit(self, staged: Sequence[Staged], /, *, requires: Requires) -> Published:
        """Prepare and publish all parts in one switch.

        Raises:
            CountMismatch: Rows staged are not the rows required.
            CommitConflict: Another run published first.
        """
        ...

    def abort(self) -> None:
        """Remove what was staged; may be called twice."""
        ...


class Sink(Protocol):
    """A place to write one dataset or table to."""

    @property
    def capabilities(self) -> Capabilities: ...

    def check(self, schema: Schema, mode: Mode, /) -> None:
        """Refuse before anything is read what would fail at the end: foreign folder, unfit schema, missing columns."""
        ...

    def begin(self, run_id: str, schema: Schema, mode: Mode, /) -> WriteSession:
        """First cleans up after dead runs, then opens a session."""
        ...


class Connector(Protocol):
    """What a module of `connectors/` exports as `CONNECTOR`."""

    def source(self, at: Endpoint, query: Query, /) -> Source: ...

    def tables(self, at: Endpoint, /) -> Sequence[TableInfo]:
        """All tables a user may read, for `inspect` and for patterns."""
        ...

    def server(self, at: Endpoint, /) -> str:
        """Connect and return the server's name and version, for `doctor`."""
        ...
