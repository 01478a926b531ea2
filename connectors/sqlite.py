"""SQLite files: rowid and key ranges of one snapshot, types by the declared names, storage classes held to them.

Built on the standard library's driver: SQLAlchemy's import costs more than a small read. Text arrives as bytearray and
blobs as bytes, so that storage classes stay apart and text is checked to be UTF-8 once a batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote as percent

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Capabilities, Facts, KeyFacts, KeyStep, Obstacle, TableInfo
from connectors.sqltext import Text, key_condition, literal, parse_table_name, prepare, quote_name, wrap
from etl.core.arrow_types import HEX, parse_type
from etl.core.buffers import booleans, decimals, fixed, short_decimals, variable
from etl.core.errors import (
    Cancelled,
    CastError,
    ConfigError,
    EtlError,
    SnapshotLost,
    StoreRejected,
    StoreUnavailable,
)
from etl.core.lookup import sql_text
from etl.core.partition import KeyRange, NullKeys, Partition, Snapshot, Whole
from etl.core.schema import Field, Schema, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.base import CutWish, Endpoint, Query, Source, Tally

DIALECT: Final = "sqlite"
COPY_ABOVE: Final = 256 << 20
"""A rollback-journal file larger than this is copied, since its writers would wait for the whole read."""
READERS: Final = 2
"""Readers that a worker opens while the snapshot is pinned: as many as it reads parts at once."""
BUSY_SECONDS: Final = 30.0
BUSY_SLICE: Final = 0.1
"""Seconds that SQLite itself waits for a lock, which it does without hearing Ctrl-C; then it is asked again."""
INTERRUPT_EVERY: Final = 0.05
"""Seconds between two interrupts of a statement that must end: one that comes before it has begun is lost."""
COPY_STEP: Final = 4096
"""Pages copied at once; Ctrl-C is heard between two steps."""
CHUNK_ROWS: Final = 8192
WALK_FROM: Final = 32 << 20
"""A key is walked for bounds from this size up (below it one part is read), or when parts were asked for."""
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "afs"})
"""File systems on which SQLite's locks cannot be relied on (sqlite.org, "File Locking And Concurrency", 6)."""
VOLATILE: Final = frozenset({"random", "randomblob", "changes", "total_changes", "last_insert_rowid"})
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: stored times have no zone
WIDE: Final = Context(prec=200)


# --- what is read and how it becomes Arrow ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """One output column: the expression that is selected, its Arrow type, and the storage classes it takes."""

    field: Field
    expression: str
    accepts: frozenset[type]


_CLASSES: Final[dict[type, str]] = {int: "integer", float: "real", bytearray: "text", bytes: "blob"}


def _accepts(kind: pa.DataType) -> frozenset[type]:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return frozenset({int})
    if pa.types.is_floating(kind):
        return frozenset({float, int})
    if pa.types.is_binary(kind):
        return frozenset({bytes, bytearray})
    if pa.types.is_decimal(kind):
        return frozenset({int, float, bytearray})
    return frozenset({bytearray})


_DECIMAL = re.compile(r"(?:DEC|DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def arrow_type(declared: str, /) -> pa.DataType | None:
    """The Arrow type of a declared type, matched without case; None where only the values can say."""
    words = declared.upper().strip()
    rules: tuple[tuple[tuple[str, ...], pa.DataType], ...] = (
        (("INT",), pa.int64()),
        (("BOOL",), pa.bool_()),
        (("CHAR", "CLOB", "TEXT", "JSON", "UUID"), pa.string()),
        (("BLOB",), pa.binary()),
        (("REAL", "FLOA", "DOUB"), pa.float64()),
    )
    for parts, kind in rules:
        if any(part in words for part in parts):
            return kind
    times: dict[str, pa.DataType] = {
        "DATE": pa.date32(),
        "DATETIME": pa.timestamp("us"),
        "TIMESTAMP": pa.timestamp("us"),
        "TIME": pa.time64("us"),
    }
    first = words.partition("(")[0].strip()
    if first in times:
        return times[first]
    if match := _DECIMAL.fullmatch(words):
        return _decimal(int(match[1]), int(match[2] or 0))
    return None


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    if not 1 <= precision <= 76 or scale > precision:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _wanted(words: str, column: str) -> pa.DataType:
    """An override's type, in the words of the command line."""
    kind = pa.string() if words == HEX else parse_type(words)
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or isinstance(kind, pa.BaseExtensionType):
        raise ConfigError(
            f"column {column} cannot be read as {words}",
            hint="SQLite holds numbers, text, blobs and times.",
            column=column,
        )
    return kind


def _expression(name: str, words: str) -> str:
    quoted = quote_name(name, DIALECT)
    if words == "string":
        # The cast of a real keeps 15 digits; quote() keeps them all.
        return f"case typeof({quoted}) when 'real' then quote({quoted}) else cast({quoted} as text) end"
    return f"lower(hex({quoted}))" if words == HEX else quoted


@dataclass(slots=True)
class _Block:
    """One batch being decoded: the policies, what names a row in messages, and the counts."""

    special: str
    cast: str
    row: Callable[[int], str]
    tally: Tally

    def refuse(self, column: _Column, index: int, value: object, why: str, hint: str) -> CastError:
        shown = bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else repr(value)
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        return CastError(
            f"column {column.field.name}, {self.row(index)}: {why}: {shown!r}"
            if isinstance(value, bytes | bytearray)
            else f"column {column.field.name}, {self.row(index)}: {why}: {shown}",
            hint=hint,
            column=column.field.name,
            value=shown,
        )

    def replaced(self, column: _Column, index: int, value: object, reason: str, why: str) -> None:
        """A value that becomes NULL under `--special null`; else an error."""
        if self.special != "null":
            name = column.field.name
            raise self.refuse(
                column, index, value, why, f"--special null makes it NULL; --types {name}=string reads the text."
            )
        self.tally.add_special(column.field.name, reason)


def _decode(values: list[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    """A column of one batch as Arrow of exactly the column's type."""
    classes = set(map(type, values)) - {type(None)}
    if not classes <= column.accepts:
        for i, value in enumerate(values):
            if value is not None and type(value) not in column.accepts:
                found = _CLASSES[type(value)]
                why = f"a value of storage class {found} in a column of {column.field.type}"
                block.replaced(column, i, value, "storage class", why)
                values[i] = None
    kind = column.field.type
    if pa.types.is_boolean(kind):
        return _booleans(values, column, block)
    if pa.types.is_integer(kind):
        return _fit(fixed(values, np.int64, pa.int64()), kind, values, column, block)
    if pa.types.is_floating(kind):
        return _fit(_floats(values, classes, column, block), kind, values, column, block)
    if pa.types.is_decimal(kind):
        return _decimals(values, classes, column, block)
    if pa.types.is_binary(kind):
        return variable(values, pa.binary())
    return _text(values, column, block)


def _fit(array: pa.Array[Any], kind: pa.DataType, values: list[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    if array.type == kind:
        return array
    try:
        return pc.cast(array, kind)
    except pa.ArrowInvalid:
        for i in range(len(array)):
            try:
                pc.cast(array.slice(i, 1), kind)
            except pa.ArrowInvalid as error:
                hint = f"Read it as {array.type}, or cast it in the SQL."
                raise block.refuse(column, i, values[i], f"does not fit {kind}", hint) from error
        raise


def _booleans(values: list[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    for i, value in enumerate(values):
        if value is not None and value not in (0, 1):
            block.replaced(column, i, value, "not a boolean", "neither 0 nor 1 in a boolean column")
            values[i] = None
    return booleans(values)


def _floats(values: list[Any], classes: set[type], column: _Column, block: _Block) -> pa.Array[Any]:
    if int in classes:
        for i, value in enumerate(values):
            if type(value) is int and abs(value) > 2**53 and int(float(value)) != value:
                block.replaced(column, i, value, "not a float", "an integer that no float holds exactly")
                values[i] = None
    return fixed(values, np.float64, pa.float64())


def _text(values: list[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    array = variable(values, pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for i, value in enumerate(values):
            with contextlib.suppress(UnicodeDecodeError):
                if value is not None:
                    value.decode("utf-8")
                continue
            if block.special == "clamp":
                block.tally.add_special(column.field.name, "not UTF-8")
                values[i] = value.decode("utf-8", "replace").encode()
            else:
                block.replaced(column, i, value, "not UTF-8", "bytes that are not UTF-8")
                values[i] = None
        array = variable(values, pa.string())
    kind = column.field.type
    if pa.types.is_string(kind):
        return array
    try:
        return pc.cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow has no cast from text to time64.
        return _times(values, column, block)


_FRACTION = re.compile(r"\.\d{6}\d*[1-9]")


def _times(values: list[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    """Dates and times one by one: for offsets, rarer ISO 8601 forms, and to find the one that is none."""
    kind = column.field.type
    out: list[int | None] = []
    for i, value in enumerate(values):
        number: int | None = None
        if value is not None:
            text = value.decode().strip()
            try:
                number = _time_number(text, kind, column, block)
            except ValueError:
                if pa.types.is_time(kind) and text.startswith("24:00:00") and block.special == "clamp":
                    block.tally.add_special(column.field.name, "24:00:00")
                    number = 86_400_000_000 - 1
                else:
                    block.replaced(column, i, value, "not ISO 8601", f"text that is no ISO 8601 {_word(kind)}")
        out.append(number)
    width: tuple[type[Any], pa.DataType] = (np.int32, pa.int32()) if pa.types.is_date(kind) else (np.int64, pa.int64())
    array = fixed(out, *width)
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return _fit(array.view(pa.timestamp("us", tz=kind.tz)), kind, values, column, block)
    return array.view(kind)


def _word(kind: pa.DataType) -> str:
    return "date" if pa.types.is_date(kind) else "time" if pa.types.is_time(kind) else "date and time"


def _time_number(text: str, kind: pa.DataType, column: _Column, block: _Block) -> int:
    if _FRACTION.search(text) or (pa.types.is_time(kind) and text.startswith("24")):
        raise ValueError(text)
    if pa.types.is_date(kind):
        return (date.fromisoformat(text) - EPOCH.date()).days
    # A time of day is a moment of the first day.
    moment = datetime.fromisoformat(f"1970-01-01T{text}" if pa.types.is_time(kind) else text)
    if moment.tzinfo is not None:
        if pa.types.is_time(kind):
            raise ValueError(text)
        moment = moment.astimezone(UTC).replace(tzinfo=None)
        note = f"column {column.field.name}: times with an offset were converted to UTC"
        if note not in block.tally.warnings:
            block.tally.warnings.append(note)
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _decimals(values: list[Any], classes: set[type], column: _Column, block: _Block) -> pa.Array[Any]:
    kind = column.field.type
    if not isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        raise TypeError(str(kind))
    if isinstance(kind, pa.Decimal128Type) and kind.precision <= 15 and classes <= {int, float}:
        short = _short_decimals(values, kind.precision, kind.scale)
        if short is not None:
            return short_decimals(short, values, kind)
    limit, unit = 10**kind.precision, 10**kind.scale
    out: list[int | None] = []
    for i, value in enumerate(values):
        found: int | None = None
        if value is not None:
            number = _number(value)
            if number is None:
                block.replaced(column, i, value, "not a number", "text that is no number in a decimal column")
            else:
                found = _scaled(number, value, unit, i, column, block)
                if found is None or abs(found) >= limit:
                    found = _too_wide(value, limit, i, column, block)
        out.append(found)
    return decimals(out, kind)


def _short_decimals(values: Sequence[Any], precision: int, scale: int) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Integers and reals as scaled int64; None when one of them is not exactly a decimal of that scale.

    Up to 15 digits a decimal is the shortest form of its nearest double, and 10^scale is exact in a double, so that
    `rint(x * 10^s) / 10^s == x` says that the shortest form of x has at most s fraction digits.
    """
    try:
        numbers = np.array([0 if v is None else v for v in values], dtype=np.float64)
    except OverflowError:
        return None
    power = float(10**scale)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(numbers * power)
        exact = (np.abs(scaled) < 10**precision) & (scaled / power == numbers)
    return scaled.astype(np.int64) if bool(exact.all()) else None


def _number(value: object) -> Decimal | None:
    """The value as a decimal, a real in its shortest form; None for text that is no number."""
    if isinstance(value, int):
        return Decimal(value)
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytearray) else repr(value)
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    return None if number.is_nan() else number


def _scaled(number: Decimal, value: object, unit: int, index: int, column: _Column, block: _Block) -> int | None:
    """The value times 10^s, rounded by `--cast`; None when it is far beyond any decimal type."""
    if not number.is_finite() or number.adjusted() > 80:
        return None
    exact = WIDE.multiply(number, unit)
    whole = exact.to_integral_value(ROUND_HALF_UP, WIDE)
    if whole != exact:
        if block.cast == "exact":
            raise block.refuse(
                column, index, value, f"more fraction digits than {column.field.type}", "--cast round rounds it."
            )
        name = column.field.name
        block.tally.rounded[name] = block.tally.rounded.get(name, 0) + 1
    return int(whole)


def _too_wide(value: object, limit: int, index: int, column: _Column, block: _Block) -> int | None:
    negative = str(value if not isinstance(value, bytearray) else value.decode("utf-8", "replace")).strip()[:1] == "-"
    if block.special == "clamp":
        block.tally.add_special(column.field.name, "too wide")
        return -(limit - 1) if negative else limit - 1
    block.replaced(column, index, value, "too wide", f"more integer digits than {column.field.type}")
    return None


# --- connections and snapshots ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Readers:
    """The open readers of one snapshot in this process."""

    free: list[sqlite3.Connection] = field(default_factory=list)
    busy: list[sqlite3.Connection] = field(default_factory=list)
    watch: sqlite3.Connection | None = None
    """WAL: a connection outside any transaction, opened at the snapshot's moment, that notices later commits."""
    version: int = 0
    condition: threading.Condition = field(default_factory=threading.Condition)


_open: dict[str, _Readers] = {}
_open_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Token:
    """How a snapshot is joined.

    `path` is the file to open, `holder` the process that holds the snapshot, `lease` a folder that lives as long as it
    does. `how`: "wal" (readers stay at the moment at which they were opened), "journal" (a held reader keeps writers
    out), "file" (a copy or a read-only medium, which nobody changes).
    """

    how: str
    path: str
    holder: int
    lease: str

    def text(self) -> str:
        return json.dumps([self.how, self.path, self.holder, self.lease])


def _token(at: Snapshot) -> _Token:
    return _Token(*json.loads(at.token))


def _connect(path: str, mode: str = "mode=ro", timeout: float = BUSY_SECONDS) -> sqlite3.Connection:
    uri = f"file:{percent(path)}?{mode}"
    try:
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=timeout)
    except sqlite3.Error as error:
        raise _mapped(error, f"SQLite file {path}") from error


def _mapped(error: sqlite3.Error, what: str) -> EtlError:
    """The driver's error as ours: busy may pass, the rest is refused."""
    name = getattr(error, "sqlite_errorname", "") or ""
    said = f"{what}: {error}" + (f" ({name})" if name else "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return StoreUnavailable(said, hint="Another connection holds the file; try again when it is done.")
    if name.startswith("SQLITE_INTERRUPT"):
        return Cancelled(said)
    if name.startswith("SQLITE_CANTOPEN"):
        return ConfigError(said, hint="Check that the file and its folder exist and may be read.")
    if isinstance(error, sqlite3.ProgrammingError) and "binding" in str(error):
        return ConfigError(said, hint="Declare every :name of the query with --param.")
    return StoreRejected(said)


def _begin(connection: sqlite3.Connection, path: str, seconds: float = 0.0) -> None:
    """Start a read transaction and take its moment, which only the first read does."""
    try:
        connection.execute("begin")
        _locking(connection, "select count(*) from sqlite_schema", seconds)
    except sqlite3.Error as error:
        connection.close()
        raise _mapped(error, f"SQLite file {path}") from error


def _position(path: str) -> str:
    """Size and time of the file and its WAL: what a resumed run compares.

    By stat only: closing any descriptor of the file would drop every lock that SQLite holds on it in this process
    (sqlite.org, "How To Corrupt An SQLite Database File", 2.2).
    """
    found = []
    for name in (path, f"{path}-wal"):
        with contextlib.suppress(OSError):
            seen = Path(name).stat()
            found.append(f"{seen.st_size}@{seen.st_mtime_ns}")
    return " ".join(found)


def _bytes_of(path: str) -> int | None:
    """The size of the file and its WAL, by stat only as above; None: there is no file."""
    sizes = []
    for name in (path, f"{path}-wal"):
        with contextlib.suppress(OSError):
            sizes.append(Path(name).stat().st_size)
    return sum(sizes) if sizes else None


def _version(connection: sqlite3.Connection) -> int:
    """A number that changes on this connection when any other one has committed."""
    return int(connection.execute("pragma data_version").fetchone()[0])


def _held(token: _Token) -> bool:
    """Whether the process that holds the snapshot still does."""
    try:
        os.kill(token.holder, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return Path(token.lease).exists()


def _join(token: _Token, readers: _Readers) -> sqlite3.Connection | None:
    """A reader at the snapshot's moment; None when that cannot be had (any more).

    WAL: nobody may have committed since this process was attached. Rollback journal: the holder's lock, which keeps
    writers out, must still be there after the reader has its own.
    """
    if token.how == "wal" and readers.watch is None:
        return None
    connection = _connect(token.path, "immutable=1" if token.how == "file" else "mode=ro")
    _begin(connection, token.path)
    still = True
    if token.how == "wal" and readers.watch is not None:
        still = _version(readers.watch) == readers.version
    elif token.how == "journal":
        still = _held(token)
    if not still:
        connection.close()
        return None
    return connection


def _readers(at: Snapshot) -> _Readers:
    with _open_lock:
        for text in [t for t in _open if t != at.token and not Path(_Token(*json.loads(t)).lease).exists()]:
            _close(_open.pop(text))
        return _open.setdefault(at.token, _Readers())


def _close(readers: _Readers) -> None:
    with readers.condition:
        for connection in readers.free:
            connection.close()
        readers.free.clear()
        if readers.watch is not None:
            readers.watch.close()
            readers.watch = None


@contextlib.contextmanager
def _reader(at: Snapshot) -> Iterator[sqlite3.Connection]:
    """A reader of the snapshot, given back at the end.

    Raises:
        SnapshotLost: The file has changed and no reader of the old moment is left in this process.
    """
    readers, token = _readers(at), _token(at)
    with readers.condition:
        connection = readers.free.pop() if readers.free else _join(token, readers)
        while connection is None:
            if not readers.busy:
                raise SnapshotLost(_why_lost(token, readers), hint="The run goes on with a new snapshot.")
            if not readers.condition.wait(BUSY_SECONDS * 2):
                raise StoreUnavailable(f"SQLite file {token.path}: all readers of the snapshot are in use")
            connection = readers.free.pop() if readers.free else None
        readers.busy.append(connection)
    try:
        yield connection
    finally:
        with readers.condition:
            readers.busy.remove(connection)
            with _open_lock:
                kept = _open.get(at.token) is readers
            # A rollback-journal reader would keep writers out for as long as it stays open.
            if kept and token.how != "journal":
                readers.free.append(connection)
            else:
                connection.close()
            readers.condition.notify()


def _why_lost(token: _Token, readers: _Readers) -> str:
    """Why this process has no reader of the snapshot."""
    if token.how == "wal" and readers.watch is None:
        return f"this worker began after the snapshot of SQLite file {token.path}, which it cannot join any more"
    if token.how == "wal":
        return f"SQLite file {token.path} has changed and this worker has no reader of the snapshot"
    return f"the process that held the snapshot of SQLite file {token.path} is gone"


def _remote(path: str) -> bool:
    """Whether the file lies on a network file system (Linux; elsewhere the answer is no)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    best, kind = "", ""
    for line in mounts:
        point, name = line.split(" ")[1:3]
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and Path(path).is_relative_to(point):
            best, kind = point, name
    return kind in REMOTE or kind.startswith("fuse.")


def _rows(connection: sqlite3.Connection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    connection.text_factory = str
    return _fetched(connection, sql, *values)


def _fetched(connection: sqlite3.Connection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a statement, which ends at once on Ctrl-C.

    Python hears signals between two steps of its main thread, and a statement of SQLite is one step, however long. So
    the main thread waits for another one, and interrupts the statement.
    """
    if threading.current_thread() is not threading.main_thread():
        return connection.execute(sql, values).fetchall()
    with ThreadPoolExecutor(1, thread_name_prefix="cuetl-sqlite") as pool:
        asked = pool.submit(lambda: connection.execute(sql, values).fetchall())
        try:
            return asked.result()
        except KeyboardInterrupt:
            while not asked.done():
                connection.interrupt()
                wait([asked], INTERRUPT_EVERY)
            raise


def _locking(connection: sqlite3.Connection, sql: str, seconds: float) -> list[tuple[Any, ...]]:
    """A statement that takes a lock, tried for so many seconds more than the connection's own timeout."""
    until = time.monotonic() + seconds
    while True:
        try:
            return _fetched(connection, sql)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        threading.Event().wait(BUSY_SLICE / 2)


# --- the source ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Relation:
    """What is read: a table's quoted name or a prepared text, its columns, and what names a row."""

    columns: tuple[_Column, ...]
    text: Text | None = None
    table: str = ""
    row: tuple[str, ...] = ()
    """Quoted columns that name a row; the first is the rowid where there is one."""
    key: str = ""
    """The column that a table is cut by when none is asked for; "" when there is none."""
    not_null: frozenset[str] = frozenset()

    def select(self, projection: str, where: str = "", limit: int | None = None) -> str:
        if self.text is not None:
            sql = wrap(self.text, projection, where or None)
        else:
            sql = f"select {projection} from {self.table}" + (f" where {where}" if where else "")  # noqa: S608 - quoted names
        return sql if limit is None else f"{sql} limit {limit}"


def _predicate(part: Partition) -> str:
    """The condition of a part; "" for all rows."""
    return key_condition(part.slice, DIALECT)


@dataclass(frozen=True, slots=True)
class SqliteSource:
    """One table or query of an SQLite file. `path` is absolute, so that workers find it from any folder."""

    endpoint: Endpoint
    query: Query
    path: str

    @property
    def capabilities(self) -> Capabilities:
        """Key ranges in one snapshot."""
        return Capabilities(
            cuts=frozenset({Whole, KeyRange, NullKeys}),
            snapshots=frozenset({"attached", "file"}),
            python_rows=True,
            position_proves=True,
            bytes=_bytes_of(self.path),
        )

    @property
    def title(self) -> str:
        """What is read, for messages."""
        return f"table {self.query.table}" if self.query.table else "query"

    @contextlib.contextmanager
    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> Iterator[Snapshot]:
        """Hold one moment of the file open. Siblings on the same file share it as it is.

        WAL: writers are held for the milliseconds in which every worker opens its readers. Rollback journal: writers
        wait until the end. Large rollback files, network file systems and files without write right: a copy.
        """
        del siblings
        lease = tempfile.mkdtemp(prefix="cuetl-sqlite-")
        held: list[sqlite3.Connection] = []
        at: Snapshot | None = None
        try:
            at = self._pinned(lease, held, attach_all)
            yield at
        finally:
            shutil.rmtree(lease, ignore_errors=True)
            if at is not None:
                with _open_lock:
                    readers = _open.pop(at.token, None)
                if readers is not None:
                    _close(readers)
            for connection in held:
                connection.close()

    def _pinned(self, lease: str, held: list[sqlite3.Connection], attach_all: Callable[[Snapshot], None]) -> Snapshot:
        first = self._first()
        held.append(first)
        try:
            wal = _locking(first, "pragma journal_mode", self._timeout())[0][0] == "wal"
            size = Path(self.path).stat().st_size
            still = not any(Path(self.path + end).exists() for end in ("-wal", "-journal"))
            if os.statvfs(self.path).f_flag & os.ST_RDONLY and still:
                return self._file(first, self.path, lease, attach_all)
            writable = os.access(self.path, os.W_OK) and os.access(Path(self.path).parent, os.W_OK)
            if _remote(self.path) or (wal and not writable) or (not wal and size > COPY_ABOVE):
                copy = str(Path(lease) / "copy.db")
                before = _position(self.path)
                _begin(first, self.path, self._timeout())
                with contextlib.closing(sqlite3.connect(copy)) as target:
                    first.backup(target, pages=COPY_STEP, progress=lambda *_: None)
                    first.execute("rollback")
                    target.execute("pragma journal_mode = delete")
                at = self._file(first, copy, lease, attach_all)
                # A commit during the copy is in the file and may not be in the copy: then nothing says what it holds.
                return at if at.position == before else replace(at, position="")
            return self._attached("wal" if wal else "journal", first, lease, attach_all)
        except sqlite3.Error as error:
            raise _mapped(error, f"connection {self.endpoint.name}, SQLite file {self.path}") from error

    def _first(self) -> sqlite3.Connection:
        return _connect(_there(self.path, self.endpoint), timeout=min(BUSY_SLICE, self._timeout()))

    def _timeout(self) -> float:
        return float(self.endpoint.query.get("timeout", BUSY_SECONDS))

    def _file(
        self, first: sqlite3.Connection, path: str, lease: str, attach_all: Callable[[Snapshot], None]
    ) -> Snapshot:
        at = self._snapshot("file", first, _Token("file", path, os.getpid(), lease))
        attach_all(at)
        return at

    def _attached(
        self, how: str, first: sqlite3.Connection, lease: str, attach_all: Callable[[Snapshot], None]
    ) -> Snapshot:
        if how == "journal":
            # One open reader keeps writers from committing, so every later reader sees the same rows.
            _begin(first, self.path, self._timeout())
            at = self._snapshot("attached", first, _Token(how, self.path, os.getpid(), lease))
            attach_all(at)
            return at
        with contextlib.closing(_connect(self.path, "mode=rw", min(BUSY_SLICE, self._timeout()))) as lock:
            _locking(lock, "begin immediate", self._timeout())
            _begin(first, self.path, self._timeout())
            at = self._snapshot("attached", first, _Token(how, self.path, os.getpid(), lease))
            self.attach(at)
            attach_all(at)
            lock.execute("rollback")
        return at

    def _snapshot(self, kind: str, first: sqlite3.Connection, token: _Token) -> Snapshot:
        now = _rows(first, "select strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')")[0][0]
        return Snapshot(
            kind="file" if kind == "file" else "attached",
            token=token.text(),
            taken_at=datetime.fromisoformat(now),
            position=_position(self.path),
        )

    def attach(self, at: Snapshot, /) -> None:
        """Open this process's readers at the snapshot's moment (WAL only: elsewhere they can join at any time)."""
        token = _token(at)
        if token.how != "wal":
            return
        readers = _readers(at)
        with readers.condition:
            if readers.watch is None:
                readers.watch = _connect(token.path)
                readers.version = _version(readers.watch)
            while len(readers.free) + len(readers.busy) < READERS:
                connection = _join(token, readers)
                if connection is None:
                    raise SnapshotLost(f"SQLite file {token.path} changed while readers were opened")
                readers.free.append(connection)

    def schema(self, at: Snapshot, /) -> Schema:
        """The columns, by declared type.

        Columns without one are decided by the storage classes of all their rows: one scan of the source.
        """
        with _reader(at) as connection, self._errors():
            return Schema(tuple(c.field for c in self._relation(connection, decide=True).columns))

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """Sizes, and the key's distribution by one walk of its index."""
        with _reader(at) as connection, self._errors():
            relation = self._relation(connection)
            notes = (
                ("writers of this file wait until it is read (rollback journal)",)
                if _token(at).how == "journal"
                else ()
            )
            pages, size = _rows(connection, "pragma page_count")[0][0], _rows(connection, "pragma page_size")[0][0]
            rows, volume = self._size(connection, relation, pages * size, sample=sample)
            key, obstacle = self._way(relation, wish)
            if obstacle is not None:
                return Facts(rows, volume, obstacle=obstacle, notes=notes)
            nullable = key not in relation.not_null
            walk = (wish.partitions or 0) > 1 or (wish.partitions is None and volume >= WALK_FROM)
            if not sample or not walk:
                return Facts(rows, volume, key=KeyFacts((key,), nullable=nullable, deferred=True), notes=notes)
            return Facts(rows, volume, key=_walk(connection, relation, key, rows, wish, nullable=nullable), notes=notes)

    def _size(
        self, connection: sqlite3.Connection, relation: _Relation, file_bytes: int, *, sample: bool
    ) -> tuple[float, int]:
        if not sample:
            if relation.table and _rows(connection, "select 1 from sqlite_schema where name = 'sqlite_stat1'"):
                name = parse_table_name(relation.table, DIALECT)[-1]
                found = _rows(connection, "select stat from sqlite_stat1 where tbl = ?", name)
                if found:
                    return float(str(found[0][0]).split()[0]), file_bytes
            return file_bytes / 100, file_bytes
        rows = _rows(connection, relation.select("count(*)"))[0][0]
        connection.text_factory = bytearray
        names = ", ".join(c.expression for c in relation.columns)
        some = _fetched(connection, relation.select(names, limit=200))
        size = sum(len(v) if isinstance(v, bytes | bytearray) else 8 for row in some for v in row)
        return float(rows), int(size / max(1, len(some)) * rows)

    def _way(self, relation: _Relation, wish: CutWish) -> tuple[str, Obstacle | None]:
        """The key to cut by, or why there is none."""
        if self.query.limit is not None:
            return "", Obstacle("limit", "The first rows are one part.")
        if relation.text is not None:
            top = relation.text.top_level
            if top.has_limit:
                return "", Obstacle("limit", "The query has a LIMIT, which must be evaluated once.")
            if top.functions & VOLATILE:
                named = ", ".join(sorted(top.functions & VOLATILE))
                return "", Obstacle(
                    "nondeterministic", f"The query calls {named}, so that parts would not fit together."
                )
            if top.has_order_by and not wish.column:
                return "", Obstacle("order-by", "The query has an ORDER BY.", "Give --partition-column to split it.")
        key = wish.column or relation.key
        if not key:
            return "", Obstacle("no-key", "There is no key to cut by.", "Give --partition-column.")
        names = [c.field.name for c in relation.columns]
        known = {n.lower(): n for n in names}
        if wish.column and relation.key.lower() != key.lower():
            if key.lower() not in known:
                raise ConfigError(f"{self.title} has no column {key}", hint=nearest(key, names), column=key)
            key = known[key.lower()]
        return key, None

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows of a part, counted in the snapshot."""
        with _reader(at) as connection, self._errors():
            return self._count(connection, self._relation(connection), part)

    def _count(self, connection: sqlite3.Connection, relation: _Relation, part: Partition) -> int:
        where = _predicate(part)
        if self.query.limit is not None:
            sql = f"select count(*) from ({relation.select('1', where, self.query.limit)}\n)"  # noqa: S608 - our own text
        else:
            sql = relation.select("count(*)", where)
        return int(_rows(connection, sql)[0][0])

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The statement of a part."""
        text, table = self._target()
        relation = _Relation((), text=text, table=".".join(quote_name(p, DIALECT) for p in table))
        names = ", ".join(quote_name(c, DIALECT) for c in columns) or "*"
        return relation.select(names, _predicate(part), self.query.limit)

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Closing the generator resets the statement and gives the reader back."""
        with _reader(at) as connection, self._errors(f"SQLite file {self.path}"):
            relation = self._relation(connection, fields=schema)
            tally.how = "cursor"
            columns = relation.columns
            extra = relation.row
            names = ", ".join([*(c.expression for c in columns), *extra])
            sql = relation.select(names, _predicate(part), self.query.limit)
            cursor = connection.cursor()
            try:
                connection.text_factory = bytearray
                cursor.execute(sql)
                for rows in _chunks(cursor, batch_bytes):
                    yield from self._batches(rows, columns, extra, schema, tally)
                tally.counted = self._count(connection, relation, part)
            finally:
                cursor.close()

    def _batches(
        self,
        rows: list[list[Any]],
        columns: Sequence[_Column],
        extra: Sequence[str],
        schema: Schema,
        tally: Tally,
    ) -> Iterator[pa.RecordBatch]:
        names = [parse_table_name(e, DIALECT)[-1] for e in extra]
        before = tally.rows

        def row(index: int) -> str:
            if not names:
                return f"row {before + index + 1} of the part"
            values = (rows[len(columns) + i][index] for i in range(len(names)))
            shown = (v.decode("utf-8", "replace") if isinstance(v, bytearray) else str(v) for v in values)
            return ", ".join(f"{n} {v}" for n, v in zip(names, shown, strict=True))

        block = _Block(self.query.special or "error", self.query.cast, row, tally)
        arrays = [_decode(rows[i], column, block) for i, column in enumerate(columns)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())
        tally.rows += batch.num_rows
        tally.received += batch.nbytes
        yield batch

    def widen(self, at: Snapshot, /) -> Self:
        """Nothing to widen: decimals here have a declared precision."""
        del at
        return self

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Interrupt the statements of this process on this file."""
        del keeping  # a transaction stays open when its statement is interrupted
        with _open_lock:
            pools = [r for text, r in _open.items() if _Token(*json.loads(text)).path == self.path]
        for readers in pools:
            for connection in list(readers.busy):
                connection.interrupt()

    @contextlib.contextmanager
    def _errors(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _mapped(error, what or f"{self.title} of connection {self.endpoint.name}") from error

    def _target(self) -> tuple[Text | None, tuple[str, ...]]:
        if self.query.sql is not None:
            text = prepare(
                self.query.sql,
                dialect=DIALECT,
                params=self.query.params,
                quote_literal=partial(literal, dialect=DIALECT),
            )
            return text, ()
        return None, parse_table_name(self.query.table or "", DIALECT)

    def _relation(
        self, connection: sqlite3.Connection, *, fields: Schema | None = None, decide: bool = False
    ) -> _Relation:
        """What is read. With `decide` the rows are scanned for types that nothing declares."""
        text, parts = self._target()
        bare = _of_text(connection, text) if text is not None else _of_table(connection, parts)
        relation, declared = bare
        names = [d[0] for d in declared]
        wanted = self.query.columns if fields is None else fields.names
        for name in (*(wanted or ()), *self.query.types, *self.query.key):
            if name not in names:
                raise ConfigError(f"{self.title} has no column {name}", hint=nearest(name, names), column=name)
        types = {n: (t, not_null) for n, t, not_null, _ in declared}
        chosen = wanted or [n for n, _, _, hidden in declared if not hidden]
        if fields is not None:
            known = list(fields)
        else:
            known = [self._field(n, types[n][0], nullable=relation.text is not None or not types[n][1]) for n in chosen]
            known = _decided(connection, relation, known, self.title) if decide else known
        row = tuple(quote_name(k, DIALECT) for k in self.query.key) or relation.row
        columns = tuple(
            _Column(f, _expression(f.name, self.query.types.get(f.name, "")), _accepts(f.type)) for f in known
        )
        return replace(relation, columns=columns, row=row)

    def _field(self, name: str, declared: str, *, nullable: bool) -> Field:
        words = self.query.types.get(name)
        kind = _wanted(words, name) if words else arrow_type(declared)
        meta = {"cuetl.type": "json"} if "JSON" in declared.upper() and not words else {}
        return Field(
            name=name,
            type=kind if kind is not None else pa.null(),
            nullable=nullable,
            source_type=declared,
            read_as="text" if words == "string" and arrow_type(declared) != pa.string() else "",
            metadata=meta,
        )


def _of_table(
    connection: sqlite3.Connection, parts: tuple[str, ...]
) -> tuple[_Relation, list[tuple[str, str, bool, bool]]]:
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != "main"):
        raise ConfigError(f"SQLite has no schema {parts[0]!r}", hint='Quote a name with dots: "a.b".')
    tables = {t[0]: t for t in _rows(connection, sql_text("catalogue/sqlite/tables.sql"))}
    name = next((t for t in tables if t.lower() == parts[-1].lower()), None)
    if name is None:
        raise StoreRejected(f"no such table: {parts[-1]}", hint=nearest(parts[-1], tables, what="tables"))
    found = _rows(connection, sql_text("catalogue/sqlite/columns.sql"), name)
    primary = [c for c in found if c[3]]
    has_rowid = tables[name][1] == "table" and not tables[name][2]
    alias = primary[0][0] if has_rowid and len(primary) == 1 and primary[0][1].upper() == "INTEGER" else ""
    taken = {c[0].lower() for c in found}
    rowid = alias or next((r for r in ("rowid", "_rowid_", "oid") if has_rowid and r not in taken), "")
    first = min(primary, key=lambda c: c[3])[0] if primary else ""
    key = rowid or ("" if tables[name][1] == "view" else first)
    not_null = {c[0] for c in found if c[2]} | ({rowid} if rowid else set())
    if tables[name][2]:
        not_null |= {c[0] for c in primary}
    relation = _Relation(
        (),
        table=f'"main".{quote_name(name, DIALECT)}',
        row=(quote_name(rowid, DIALECT),) if rowid else tuple(quote_name(c[0], DIALECT) for c in primary),
        key=key,
        not_null=frozenset(not_null),
    )
    return relation, [(c[0], c[1], c[0] in not_null, c[4] == 1) for c in found]


def _of_text(connection: sqlite3.Connection, text: Text) -> tuple[_Relation, list[tuple[str, str, bool, bool]]]:
    """Names by the statement's own description; declared types by a temporary view over it, which reads nothing."""
    empty = wrap(text, "*") + " limit 0" if text.top_level.has_limit else f"{text.sql}\nlimit 0"
    try:
        described = connection.execute(empty).description
    except sqlite3.OperationalError:
        described = connection.execute(wrap(text, "*") + " limit 0").description
    names = [d[0] for d in described]
    for i, name in enumerate(names):
        # A derived table calls the second of two equal names `a:1`.
        first = names.index(name) if names.index(name) < i else -1
        base, _, number = name.rpartition(":")
        if first < 0 and number.isdigit() and base in names[:i]:
            first = names.index(base)
        if first >= 0:
            both = f"columns {first + 1} and {i + 1} are both named {names[first]}"
            raise ConfigError(both, hint="Give one an alias.")
    connection.execute(f'create temp view "cuetl_describe" as {text.sql}')
    try:
        found = _rows(connection, "select type from pragma_table_info('cuetl_describe', 'temp')")
    finally:
        connection.execute('drop view temp."cuetl_describe"')
    # From 3.41 on a view names the affinity of an expression where nothing is declared; BLOB then says "none".
    types = ["" if t[0] == "BLOB" and sqlite3.sqlite_version_info >= (3, 41) else t[0] or "" for t in found]
    return _Relation((), text=text), [(n, t, False, False) for n, t in zip(names, types, strict=True)]


def _decided(connection: sqlite3.Connection, relation: _Relation, fields: list[Field], title: str) -> list[Field]:
    """Fields without a declared type, by the storage classes of all rows, in scans of up to 100 columns."""
    open_at = [i for i, f in enumerate(fields) if pa.types.is_null(f.type)]
    for start in range(0, len(open_at), 100):
        some = open_at[start : start + 100]
        names = [quote_name(fields[i].name, DIALECT) for i in some]
        sums = ", ".join(
            f"total(typeof({n}) = 'integer'), total(typeof({n}) = 'real'), total(typeof({n}) = 'text'), "
            f"total(typeof({n}) = 'blob'), max(case typeof({n}) when 'integer' then {n} end), "
            f"min(case typeof({n}) when 'integer' then {n} end)"
            for n in names
        )
        found = _rows(connection, relation.select(sums))[0]
        for k, i in enumerate(some):
            integer, real, text, blob, high, low = found[6 * k : 6 * k + 6]
            counts = {"integer": int(integer), "real": int(real), "text": int(text), "blob": int(blob)}
            there = tuple(name for name, count in counts.items() if count)
            exact = integer == 0 or max(abs(int(high)), abs(int(low))) <= 2**53
            kinds: dict[tuple[str, ...], pa.DataType | None] = {
                (): pa.string(),
                ("integer",): pa.int64(),
                ("real",): pa.float64(),
                ("integer", "real"): pa.float64() if exact else None,
                ("text",): pa.string(),
                ("blob",): pa.binary(),
            }
            kind = kinds.get(there)
            if kind is None:
                shown = ", ".join(f"{counts[n]} {n}" for n in there)
                raise CastError(
                    f"{title}, column {fields[i].name} has no declared type and no one type holds its values: {shown}",
                    hint=f"--types {fields[i].name}=string reads all as text.",
                    column=fields[i].name,
                )
            note = f"by the storage classes of all rows: {', '.join(there) or 'all NULL'}"
            fields[i] = replace(fields[i], type=kind, note=note)
    return fields


def _walk(
    connection: sqlite3.Connection, relation: _Relation, key: str, rows: float, wish: CutWish, *, nullable: bool
) -> KeyFacts:
    """The key's distribution in runs of equal numbers of rows; a value longer than a run stands alone."""
    asked = wish.partitions or 4 * wish.readers
    step = max(1, int(rows) // min(4096, max(64, 16 * asked)))
    name = quote_name(key, DIALECT)
    source = relation.select(name)
    sql = sql_text("catalogue/sqlite/steps.sql").replace("{key}", name).replace("{rows}", f"({source}\n)")
    runs: list[tuple[str, int]] = []
    heavy: set[str] = set()
    for bound, count in _rows(connection, sql, step):
        literal = {"Inf": "9e999", "-Inf": "-9e999"}.get(bound, bound)
        if runs and runs[-1][0] == literal:
            heavy.add(literal)
            runs[-1] = (literal, runs[-1][1] + count)
        else:
            runs.append((literal, count))
    steps: list[KeyStep] = []
    for i, (bound, count) in enumerate(runs):
        if bound not in heavy:
            steps.append(KeyStep((bound,), float(count)))
            continue
        alone = _rows(connection, relation.select("count(*)", f"{name} = {bound}"))[0][0]
        steps.append(KeyStep((bound,), float(alone), single=True))
        after = _rows(connection, relation.select(f"quote(min({name}))", f"{name} > {bound}"))[0][0]
        literal = {"Inf": "9e999", "-Inf": "-9e999"}.get(after, after)
        rest = count - alone
        if literal != "NULL" and rest > 0 and (i + 1 == len(runs) or runs[i + 1][0] != literal):
            steps.append(KeyStep((literal,), float(rest)))
    null_rows = rows - sum(r[1] for r in runs)
    origin = "a walk of the key" if relation.text is None else "the query, run once more"
    return KeyFacts((key,), tuple(steps), null_rows=max(0.0, null_rows), nullable=nullable, origin=origin)


def _chunks(cursor: sqlite3.Cursor, batch_bytes: int) -> Iterator[list[list[Any]]]:
    """Columns of about `batch_bytes` each time, once even without rows.

    The rows fetched at once follow from the size of those before, so that wide rows do not fill the memory.
    """
    columns: list[list[Any]] = [[] for _ in cursor.description]
    size, ask, sent = 0, 64, False
    while True:
        rows = cursor.fetchmany(ask)
        if not rows:
            break
        fresh = 0
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(values)
            first = next((v for v in values if v is not None), None)
            fresh += sum(map(len, filter(None, values))) if isinstance(first, bytes | bytearray) else 8 * len(values)
        size += fresh
        mean = max(1, fresh // len(rows))
        if size >= batch_bytes or len(columns[0]) >= 1 << 20:
            yield columns
            columns, size, sent = [[] for _ in columns], 0, True
        ask = max(1, min(CHUNK_ROWS, ask * 4, max(1, batch_bytes - size) // mean))
    if columns[0] or not sent:
        yield columns


@dataclass(frozen=True, slots=True)
class SqliteConnector:
    """`sqlite:///path`."""

    def source(self, at: Endpoint, query: Query, /) -> SqliteSource:
        """A table or query of the file.

        Raises:
            ConfigError: The URL names no file or an unknown option.
        """
        return SqliteSource(at, query, _path(at))

    def tables(self, at: Endpoint, /) -> Sequence[TableInfo]:
        """Tables and views, spelled as `--table` takes them, with row counts where ANALYZE left them."""
        connection = _connect(_there(_path(at), at))
        with contextlib.closing(connection):
            try:
                found = _rows(connection, sql_text("catalogue/sqlite/tables.sql"))
                has_stats = _rows(connection, "select 1 from sqlite_schema where name = 'sqlite_stat1'")
                stats = _rows(connection, "select tbl, stat from sqlite_stat1") if has_stats else []
            except sqlite3.Error as error:
                raise _mapped(error, f"connection {at.name}") from error
        rows = {t: int(str(s).split()[0]) for t, s in stats if s}
        return [TableInfo(_spelled(n), kind, rows.get(n), None) for n, kind, _ in found]

    def server(self, at: Endpoint, /) -> str:
        """SQLite's version, after a look into the file."""
        with contextlib.closing(_connect(_there(_path(at), at))) as connection:
            try:
                _rows(connection, "select count(*) from sqlite_schema")
            except sqlite3.Error as error:
                raise _mapped(error, f"connection {at.name}") from error
        return f"SQLite {sqlite3.sqlite_version}"


def _there(path: str, at: Endpoint) -> str:
    """The path of a file that is there.

    Raises:
        ConfigError: It is a folder, or nothing.
    """
    if Path(path).is_dir():
        raise ConfigError(
            f"connection {at.name}: {path} is a folder, not an SQLite file", hint="Name the file that lies in it."
        )
    if not Path(path).exists():
        raise ConfigError(f"connection {at.name}: there is no SQLite file {path}")
    return path


def _spelled(name: str) -> str:
    return quote_name(name, DIALECT) if "." in name or name[:1] in ('"', "`", "[") else name


def _path(at: Endpoint) -> str:
    for name in at.query:
        if name != "timeout":
            raise ConfigError(f"connection {at.name}: unknown option {name!r} for SQLite", hint="Known is timeout.")
    if not at.database or at.database == ":memory:" or at.host:
        raise ConfigError(f"connection {at.name} names no SQLite file", hint="Write sqlite:///path/to/file.db.")
    return str(Path(at.database).resolve())


CONNECTOR: Final = SqliteConnector()
