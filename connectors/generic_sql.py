"""Any SQLAlchemy dialect: portable and slower, one part in one transaction; MySQL and MariaDB through PyMySQL.

Rows arrive as the driver's Python objects from a streaming cursor and become Arrow column by column. Types come from
the catalogue (tables) or from the cursor's description (queries); what has no certain type is read as text.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import threading
import time
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc, types
from sqlalchemy.dialects import registry as dialects

from connectors.base import Capabilities, Facts, KeyFacts, KeyStep, Obstacle, TableInfo
from connectors.sqltext import Text, key_condition, literal, parse_table_name, prepare, quote_name, quote_text, wrap
from etl.core.arrow_types import HEX, parse_type
from etl.core.buffers import booleans, decimals, fixed, variable
from etl.core.errors import (
    CastError,
    ConfigError,
    EtlError,
    MissingDriver,
    StoreRejected,
    StoreUnavailable,
)
from etl.core.partition import KeyRange, NullKeys, Partition, Snapshot, Whole
from etl.core.schema import Field, Schema, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from connectors.base import CutWish, Endpoint, Query, Source, Tally

DRIVERS: Final[Mapping[str, str]] = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
"""The driver of a scheme that names none."""
EXTRAS: Final[Mapping[str, str]] = {
    "pymysql": "mysql",
    "duckdb_engine": "duckdb",
    "pyodbc": "mssql",
    "oracledb": "oracle",
}
ISOLATION: Final = ("REPEATABLE READ", "SNAPSHOT", "SERIALIZABLE")
"""The first that the dialect has. MySQL's and SQL Server's SERIALIZABLE would lock what is read."""
TRANSIENT: Final = frozenset({1040, 1205, 1213, 2002, 2003, 2006, 2013, 3024, 1969})
"""MySQL and MariaDB error numbers after which another try may pass."""
CANCEL_SECONDS: Final = 2.0
"""How long statements of a run are looked for when it is stopped."""
CHUNK_ROWS: Final = 8192
EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: stored times have no zone
WIDE: Final = Context(prec=200)


def knows(scheme: str, /) -> bool:
    """Whether SQLAlchemy has a dialect of that name; its driver need not be installed."""
    name = DRIVERS.get(scheme, scheme)
    try:
        dialects.load(name.replace("+", "."))
    except exc.NoSuchModuleError:
        return False
    except ImportError:
        return True
    return True


# --- connections -----------------------------------------------------------------------------------------------------


def _url(at: Endpoint) -> sa.URL:
    return sa.URL.create(
        DRIVERS.get(at.scheme, at.scheme),
        username=at.user,
        password=at.password.resolve().reveal() if at.password else None,
        host=at.host,
        port=at.port,
        database=at.database,
        query=dict(at.query),
    )


def _family(at: Endpoint) -> str:
    """The dialect in sqltext's words."""
    name = at.scheme.partition("+")[0]
    return "mysql" if name == "mariadb" else name


@contextlib.contextmanager
def _connection(at: Endpoint) -> Iterator[sa.Connection]:
    """One connection, read only, in the strictest isolation that reads without locking; rolled back at the end."""
    mysql = _family(at) == "mysql"
    arguments: dict[str, Any] = {"charset": "utf8mb4", "connect_timeout": 10} if mysql else {}
    try:
        engine = sa.create_engine(_url(at), poolclass=sa.NullPool, connect_args=arguments)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        how = f"pip install 'cuetl[{extra}]'" if extra else f"pip install {error.name}"
        raise MissingDriver(f"{at.scheme} needs the driver {error.name}", hint=how) from error
    except (exc.ArgumentError, exc.NoSuchModuleError) as error:
        raise ConfigError(f"connection {at.name}: {error}") from error
    try:
        with engine.connect() as connection:
            levels = _levels(engine.dialect, connection)
            level = next((i for i in ISOLATION if i in levels), None)
            if level:
                connection = connection.execution_options(isolation_level=level)  # noqa: PLW2901 - the same connection
            for statement in _session(at):
                connection.execution_options(no_parameters=True).exec_driver_sql(statement)
            with _ended(at, connection.connection.dbapi_connection):
                yield connection
    except exc.SQLAlchemyError as error:
        raise _mapped(error, at) from error
    finally:
        engine.dispose()


@contextlib.contextmanager
def _ended(at: Endpoint, driver: Any) -> Iterator[None]:
    """End the session on the server when it is left in mid-statement: one that sorts or counts hears no hang-up."""
    number = driver.thread_id() if _family(at) == "mysql" and hasattr(driver, "thread_id") else None
    try:
        yield
    except Exception:
        raise
    except BaseException:
        if number is not None:
            with contextlib.suppress(EtlError), _connection(at) as other:
                _kill(other, number)
        raise


def _kill(connection: sa.Connection, number: int) -> None:
    """End another session of this user; one that has ended meanwhile is no news."""
    with contextlib.suppress(exc.DBAPIError):
        _run(connection, f"kill {number}")


def _levels(dialect: sa.Dialect, connection: sa.Connection) -> Sequence[str]:
    driver = connection.connection.dbapi_connection
    try:
        return () if driver is None else dialect.get_isolation_level_values(driver)
    except NotImplementedError:
        return ()


def _abandon(connection: sa.Connection, driver: Any) -> None:
    """End a session whose result is not read to its end: PyMySQL would read the rest to throw it away."""
    result = getattr(driver, "_result", None)
    if result is not None and getattr(result, "unbuffered_active", False):
        result.unbuffered_active = False
        driver._force_close()  # noqa: SLF001 - the only close that neither drains nor waits
    if not connection.invalidated:
        connection.invalidate()


_reading: dict[str, list[Any]] = {}
"""The driver's connections of this process that run statements, by run."""
_reading_lock = threading.Lock()


@contextlib.contextmanager
def _listed(connection: sa.Connection, run_id: str) -> Iterator[None]:
    """While statements of the run go on, `cancel` finds the connection."""
    driver = connection.connection.dbapi_connection
    with _reading_lock:
        _reading.setdefault(run_id, []).append(driver)
    try:
        yield
    finally:
        with _reading_lock:
            _reading[run_id].remove(driver)
            if not _reading[run_id]:
                del _reading[run_id]


def _interrupt(run_id: str) -> None:
    """Stop statements of this process, where the driver can."""
    with _reading_lock:
        drivers = list(_reading.get(run_id, ()))
    for driver in drivers:
        for name in ("interrupt", "cancel"):
            stop = getattr(driver, name, None)
            if callable(stop):
                with contextlib.suppress(Exception):  # it may have ended meanwhile, each driver with its own error
                    stop()
                break


def _kill_all(at: Endpoint, run_id: str) -> None:
    """End the sessions of MySQL or MariaDB that run statements of the run, wherever their clients are."""
    theirs = quote_text(f"%{_mark(run_id)}%", "mysql")
    running = f"select id from information_schema.processlist where info like {theirs} and id <> connection_id()"  # noqa: S608 - quoted
    waiting = threading.Event()
    until = time.monotonic() + CANCEL_SECONDS
    with _connection(at) as connection:
        idle = 0
        # A session may be between two statements when it is looked for.
        while idle < 2 and time.monotonic() < until:
            found = _run(connection, running).all()
            idle = 0 if found else idle + 1
            for (number,) in found:
                _kill(connection, int(number))
            waiting.wait(0.1)


def _mark(run_id: str) -> str:
    """A comment by which the statements of a run are known on the server; "" where they need no name."""
    return f"/* cuetl:{run_id} */" if re.fullmatch(r"[\w.-]+", run_id) else ""


def _session(at: Endpoint) -> tuple[str, ...]:
    match _family(at):
        case "mysql":
            return ("set time_zone = '+00:00'", "start transaction with consistent snapshot, read only")
        case "sqlite":
            return ("pragma query_only = on", "begin")
        case "oracle":
            return ("set transaction read only",)
    return ()


def _mapped(error: exc.SQLAlchemyError, at: Endpoint) -> EtlError:
    """The driver's error as ours: lost or busy may pass, the rest is refused."""
    original = getattr(error, "orig", None)
    number = original.args[0] if original is not None and original.args else None
    said = original.args[1] if original is not None and len(original.args) > 1 else original or error
    what = f"connection {at.name}: {said}" + (f" (error {number})" if isinstance(number, int) else "")
    if number in (1044, 1045, 1049, 1698):
        return ConfigError(what, hint="Check user, password and database of the connection.")
    if number in TRANSIENT or getattr(error, "connection_invalidated", False):
        return StoreUnavailable(what)
    if isinstance(error, exc.OperationalError) and not isinstance(number, int) and "locked" in str(said):
        return StoreUnavailable(what)
    return StoreRejected(what)


def _run(connection: sa.Connection, sql: str, *, stream: int = 0) -> sa.CursorResult[Any]:
    """Run a text as it is: no parameter processing, so that `%` and `:` mean nothing."""
    options: dict[str, Any] = {"no_parameters": True}
    if stream:
        options |= {"stream_results": True, "max_row_buffer": stream}
    return connection.execution_options(**options).exec_driver_sql(sql)


# --- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """One output column: what is selected for it, and how its values become Arrow."""

    field: Field
    expression: str
    plain: bool = True
    """Whether the expression is the column itself."""


_INTS: Final[Mapping[int, tuple[pa.DataType, pa.DataType]]] = {
    1: (pa.int8(), pa.uint8()),
    2: (pa.int16(), pa.uint16()),
    9: (pa.int32(), pa.uint32()),
    3: (pa.int32(), pa.uint32()),
    8: (pa.int64(), pa.uint64()),
}
"""MySQL's protocol type numbers of integers: signed, unsigned."""


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _mysql_type(code: int, flags: int, charset: int, length: int, scale: int) -> tuple[pa.DataType, str]:
    """Arrow type and the store's word of one column of a MySQL result (protocol: column definition packet)."""
    unsigned = bool(flags & 32)
    if code in _INTS:
        kind = _INTS[code][unsigned]
        return kind, str(kind)
    if code in (0, 246):
        precision = max(1, length - (scale > 0) - (not unsigned))
        return _decimal(min(precision, 65), scale), f"decimal({precision},{scale})"
    words: dict[int, tuple[pa.DataType, str]] = {
        4: (pa.float32(), "float"),
        5: (pa.float64(), "double"),
        6: (pa.string(), "null"),
        7: (pa.timestamp("us", "UTC"), "timestamp"),
        10: (pa.date32(), "date"),
        11: (pa.duration("us"), "time"),
        12: (pa.timestamp("us"), "datetime"),
        13: (pa.int16(), "year"),
        14: (pa.date32(), "date"),
        16: (pa.bool_() if length == 1 else pa.uint64(), f"bit({length})"),
        245: (pa.string(), "json"),
        255: (pa.binary(), "geometry"),
    }
    if code in words:
        return words[code]
    return (pa.binary(), "binary") if charset == 63 else (pa.string(), "text")


def _sqlalchemy_type(kind: types.TypeEngine[Any]) -> pa.DataType | None:
    """Arrow type of a column of the catalogue; None: read as text."""
    match kind:
        case types.Boolean():
            return pa.bool_()
        case types.Integer():
            return pa.int64()
        case types.Float():
            return pa.float64()
        case types.Numeric():
            known = kind.precision is not None and 0 <= (kind.scale or 0) <= kind.precision <= 76
            return _decimal(kind.precision or 38, kind.scale or 0) if known else None
        case types.DateTime():
            return pa.timestamp("us", "UTC" if kind.timezone else None)
        case types.Date():
            return pa.date32()
        case types.Time():
            return pa.time64("us")
        case types.LargeBinary() | types.BINARY() | types.VARBINARY():
            return pa.binary()
        case types.String() | types.JSON():
            return pa.string()
    return None


def _described(cursor: Any, dialect: sa.Dialect) -> list[tuple[str, pa.DataType | None, str]]:
    """Name, Arrow type (None: not certain) and the store's word for each column of an open result."""
    packets = getattr(getattr(cursor, "_result", None), "fields", None)
    if packets is not None:
        found: list[tuple[str, pa.DataType | None, str]] = []
        for d, p in zip(cursor.description, packets, strict=True):
            kind, word = _mysql_type(p.type_code, p.flags, p.charsetnr, p.length, p.scale)
            found.append((d[0], kind, word))
        return found
    return [(d[0], _dbapi_type(d, dialect.dbapi), str(d[1] or "")) for d in cursor.description]


def _dbapi_type(description: Sequence[Any], driver: Any) -> pa.DataType | None:
    code, precision, scale = description[1], description[4], description[5]
    if code is None or driver is None:
        return None
    if code == getattr(driver, "NUMBER", object()) and precision and 0 <= (scale or 0) <= precision <= 76:
        return _decimal(precision, scale or 0)
    if code == getattr(driver, "BINARY", object()):
        return pa.binary()
    if code == getattr(driver, "DATETIME", object()):
        return pa.timestamp("us")
    return None


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """One batch being decoded: policies, what names a row, and the counts."""

    query: Query
    row: Callable[[int], str]
    tally: Tally

    def refuse(self, column: _Column, index: int, value: object, why: str, hint: str) -> CastError:
        name, shown = column.field.name, repr(value)[:80]
        return CastError(f"column {name}, {self.row(index)}: {why}: {shown}", hint=hint, column=name, value=shown)

    def replaced(self, column: _Column, index: int, value: object, reason: str, why: str) -> None:
        """A value that becomes NULL where the policy (or, for MySQL's zero dates, no policy) says so; else an error."""
        special = self.query.special
        if special == "null" or (reason == "zero date" and special in (None, "clamp")):
            self.tally.add_special(column.field.name, reason)
            return
        name = column.field.name
        raise self.refuse(column, index, value, why, f"--special null makes it NULL; --types {name}=string reads text.")


_ZERO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.]+)?")


def _array(values: Sequence[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    kind = column.field.type
    if isinstance(kind, pa.DictionaryType):
        return _enum(values, column, block)
    convert = _converter(kind)
    out: list[Any] = []
    for i, value in enumerate(values):
        try:
            got = None if value is None else convert(value)
        except (ValueError, ArithmeticError, TypeError):
            zero = isinstance(value, str) and pa.types.is_temporal(kind) and _ZERO_DATE.fullmatch(value)
            reason = "zero date" if zero else "does not fit"
            block.replaced(column, i, value, reason, f"a value that {kind} cannot hold")
            got = None
        if isinstance(got, _Rounded):
            got = _rounded(got, value, i, column, block)
        out.append(got)
    if pa.types.is_boolean(kind):
        return booleans(out)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return variable(out, kind)
    if isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        return decimals(out, kind)
    return fixed(out, _MEMORY[kind.bit_width] if not _numeric(kind) else kind.to_pandas_dtype(), kind)


def _rounded(got: _Rounded, value: object, index: int, column: _Column, block: _Block) -> int:
    """The rounded number, counted, where `--cast` allows it."""
    if block.query.cast == "exact":
        raise block.refuse(column, index, value, f"more digits than {column.field.type}", "--cast round rounds it.")
    name = column.field.name
    block.tally.rounded[name] = block.tally.rounded.get(name, 0) + 1
    return got.value


_MEMORY: Final[Mapping[int, type[Any]]] = {32: np.int32, 64: np.int64}


def _numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


@dataclass(frozen=True, slots=True)
class _Rounded:
    """A decimal that lost fraction digits, scaled by 10^s."""

    value: int


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """From a driver's Python value to the number or bytes that Arrow holds; raises where it cannot be held."""
    if pa.types.is_boolean(kind):
        return _truth
    if pa.types.is_integer(kind):
        low, high = (0, 2**kind.bit_width - 1)
        if pa.types.is_signed_integer(kind):
            low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        return lambda value: _integer(value, low, high)
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_string(kind):
        return _characters
    if pa.types.is_binary(kind):
        return lambda value: value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        limit, unit = 10**kind.precision, 10**kind.scale
        return lambda value: _scaled(value, limit, unit)
    if pa.types.is_date(kind):
        return _days
    if pa.types.is_duration(kind):
        return lambda value: _micros(value if isinstance(value, dt.timedelta) else _span(str(value)))
    if pa.types.is_time(kind):
        return _time_of_day
    return _instant


def _truth(value: Any) -> bool:
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _integer(value: Any, low: int, high: int) -> int:
    number = int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)
    if not low <= number <= high or (not isinstance(value, bytes | str) and number != value):
        raise ValueError(value)
    return number


def _characters(value: Any) -> bytes:
    """Text as UTF-8; what is no text in its plainest form."""
    match value:
        case str():
            return value.encode()
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode().encode()
        case bool():
            return b"true" if value else b"false"
        case Decimal():
            return format(value, "f").encode()
        case dt.datetime():
            return value.isoformat(sep=" ").encode()
        case dict() | list():
            return json.dumps(value, ensure_ascii=False).encode()
    return str(value).encode()


def _scaled(value: Any, limit: int, unit: int) -> int | _Rounded:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or number.adjusted() > 80:
        raise ValueError(value)
    exact = WIDE.multiply(number, unit)
    whole = int(exact.to_integral_value(ROUND_HALF_UP, WIDE))
    if abs(whole) >= limit:
        raise ValueError(value)
    return whole if whole == exact else _Rounded(whole)


def _days(value: Any) -> int:
    if isinstance(value, dt.datetime):
        if value.time() != dt.time():
            raise ValueError(value)
        value = value.date()
    if not isinstance(value, dt.date):
        value = dt.date.fromisoformat(str(value))
    return int((value - EPOCH.date()).days)


def _instant(value: Any) -> int:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return _micros(moment - EPOCH)


def _micros(since: dt.timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _time_of_day(value: Any) -> int:
    if isinstance(value, dt.timedelta):
        return _micros(value)
    moment = value if isinstance(value, dt.time) else dt.time.fromisoformat(str(value))
    if moment.tzinfo is not None:
        raise ValueError(value)
    return _micros(dt.datetime.combine(EPOCH.date(), moment) - EPOCH)


def _span(text: str) -> dt.timedelta:
    """MySQL's time as text, for drivers that give it so."""
    match = re.fullmatch(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text)
    if not match:
        raise ValueError(text)
    span = dt.timedelta(
        hours=int(match[2]),
        minutes=int(match[3]),
        seconds=int(match[4]),
        microseconds=int((match[5] or "").ljust(6, "0")),
    )
    return -span if match[1] else span


def _enum(values: Sequence[Any], column: _Column, block: _Block) -> pa.Array[Any]:
    labels = column.field.vocabulary or ()
    codes = {label: i for i, label in enumerate(labels)}
    out: list[int | None] = []
    for i, value in enumerate(values):
        code = None if value is None else codes.get(value)
        if value is not None and code is None:
            block.replaced(column, i, value, "enum index 0", "the mark of an invalid enum value")
        out.append(code)
    words = variable([label.encode() for label in labels], pa.string())
    return pa.DictionaryArray.from_arrays(fixed(out, np.int32, pa.int32()), words)


# --- the source ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Relation:
    """What is read: a table's quoted name or a prepared text."""

    text: Text | None
    table: str
    columns: tuple[_Column, ...] = ()
    key: tuple[str, ...] = ()

    def select(self, columns: Sequence[_Column], quote: Callable[[str], str], where: str = "") -> str:
        """The statement; a query's own text where nothing needs to be changed, so that its order is kept."""
        if self.text is not None and not where and all(c.plain for c in columns) and columns == self.columns:
            return self.text.sql
        names = ", ".join(c.expression if c.plain else f"{c.expression} as {quote(c.field.name)}" for c in columns)
        return self.of(names, where)

    def of(self, projection: str, where: str = "") -> str:
        """Any projection of the rows."""
        if self.text is not None:
            return wrap(self.text, projection, where or None)
        return f"select {projection} from {self.table}" + (f" where {where}" if where else "")  # noqa: S608 - quoted names


@dataclass(frozen=True, slots=True)
class GenericSource:
    """One table or query of any SQLAlchemy dialect.

    Read as one part, in one transaction that also counts it. With `consistency = "per-part"` in the connection it is
    cut by key, each part in a transaction of its own; the snapshot's kind is then "none".
    """

    endpoint: Endpoint
    query: Query
    dialect: str = field(default="")

    @property
    def capabilities(self) -> Capabilities:
        """One part, or key ranges that are not of one moment."""
        if self._per_part:
            return Capabilities(cuts=frozenset({Whole, KeyRange, NullKeys}), snapshots=frozenset({"none"}))
        return Capabilities(cuts=frozenset({Whole}), snapshots=frozenset({"single"}), max_parallel=1)

    @property
    def _per_part(self) -> bool:
        return self.endpoint.options.get("consistency") == "per-part"

    @property
    def title(self) -> str:
        """What is read, for messages."""
        return f"table {self.query.table}" if self.query.table else "query"

    @contextlib.contextmanager
    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> Iterator[Snapshot]:
        """No moment that several sessions could share: each read is one transaction.

        Raises:
            ConfigError: Several sources of one connection need one moment, and `consistency` is "snapshot".
        """
        if siblings and self.endpoint.options.get("consistency") == "snapshot":
            raise ConfigError(
                f"connection {self.endpoint.name}: {self.dialect} has no snapshot that several reads share",
                hint='Set consistency = "per-part" to read each source in its own moment.',
            )
        with _connection(self.endpoint) as connection:
            now: object = connection.execute(sa.select(sa.func.current_timestamp())).scalar_one()
        moment = now if isinstance(now, dt.datetime) else dt.datetime.fromisoformat(str(now))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        at = Snapshot("none" if self._per_part or siblings else "single", f"{self.dialect} {moment}", moment)
        attach_all(at)
        yield at

    def attach(self, at: Snapshot, /) -> None:
        """Nothing to open."""

    def schema(self, at: Snapshot, /) -> Schema:
        """The columns, by catalogue and an empty result."""
        del at
        with _connection(self.endpoint) as connection:
            return Schema(tuple(c.field for c in self._relation(connection).columns))

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """Sizes by a count (with `sample`); a key only where parts need no common moment."""
        del at
        with _connection(self.endpoint) as connection:
            relation = self._relation(connection)
            rows = float(_run(connection, relation.of("count(*)")).scalar_one()) if sample else 0.0
            size = int(rows) * sum(_width(c.field.type) for c in relation.columns)
            obstacle = self._obstacle(relation, wish)
            if obstacle is not None:
                return Facts(rows, size, obstacle=obstacle)
            names = [c.field.name for c in relation.columns]
            key = wish.column or relation.key[0]
            if wish.column and wish.column not in names:
                raise ConfigError(f"{self.title} has no column {key}", hint=nearest(key, names), column=key)
            if not sample:
                return Facts(rows, size, key=KeyFacts((key,), deferred=True))
            return Facts(rows, size, key=self._walk(connection, relation, key, rows, wish))

    def _obstacle(self, relation: _Relation, wish: CutWish) -> Obstacle | None:
        if not self._per_part:
            return Obstacle(
                "no-snapshot",
                f"Sessions of {self.dialect} cannot share one moment here.",
                'Set consistency = "per-part" in the connection to allow parts of different moments.',
            )
        if self.query.limit is not None or (relation.text is not None and relation.text.top_level.has_limit):
            return Obstacle("limit", "A limit must be evaluated once.")
        if relation.text is not None and relation.text.top_level.has_order_by and not wish.column:
            return Obstacle("order-by", "The query has an ORDER BY.", "Give --partition-column to split it.")
        if not wish.column and not relation.key:
            return Obstacle("no-key", "There is no key to cut by.", "Give --partition-column.")
        return None

    def _walk(self, connection: sa.Connection, relation: _Relation, key: str, rows: float, wish: CutWish) -> KeyFacts:
        """Bounds by one query over the key in order: the first key of each run of equal numbers of rows."""
        name = self._quote(key)
        asked = wish.partitions or 4 * wish.readers
        step = max(1, int(rows) // min(1024, 16 * asked))
        ordered = (
            f"select {name} as k, row_number() over (order by {name}) as n from ({relation.of(name)}\n) as cuetl_k"  # noqa: S608 - quoted names
        )
        sql = (
            f"select k, count(*) from (select min(k) over (partition by floor((n - 1) / {step})) as k "  # noqa: S608 - our own text
            f"from ({ordered} where {name} is not null) as cuetl_n) as cuetl_r group by k order by k"
        )
        found = _run(connection, sql).all()
        steps = tuple(KeyStep((literal(bound, self.dialect),), float(count)) for bound, count in map(tuple, found))
        return KeyFacts(
            (key,), steps, null_rows=max(0.0, rows - sum(s.rows for s in steps)), origin="one query over the key"
        )

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows of a part, counted now, in a transaction of its own."""
        del at
        with _connection(self.endpoint) as connection:
            return self._count(connection, self._relation(connection), part)

    def _count(self, connection: sa.Connection, relation: _Relation, part: Partition) -> int:
        with _listed(connection, self.query.run_id):
            found = int(_run(connection, self._named(relation.of("count(*)", self._predicate(part)))).scalar_one())
        return found if self.query.limit is None else min(found, self.query.limit)

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The statement of a part."""
        text, table = self._target()
        relation = _Relation(text, table)
        limit = "" if self.query.limit is None else f" -- the first {self.query.limit} rows"
        return relation.of(", ".join(map(self._quote, columns)) or "*", self._predicate(part)) + limit

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part from a streaming cursor; closing the generator ends the session."""
        del at
        with _connection(self.endpoint) as connection:
            relation = self._relation(connection, schema)
            by_name = {c.field.name: c for c in relation.columns}
            columns = tuple(by_name[name] for name in schema.names)
            if schema.names != tuple(c.field.name for c in relation.columns):
                relation = replace(relation, columns=())
            keys = self.query.key or relation.key
            extra = tuple(_Column(Field(k, pa.string()), self._quote(k)) for k in keys if k not in schema.names)
            tally.how = "cursor"
            tally.counted = self._count(connection, relation, part)
            statement = relation.select((*columns, *extra), self._quote, self._predicate(part))
            driver = connection.connection.dbapi_connection
            with _listed(connection, self.query.run_id):
                result = _run(connection, self._named(statement), stream=CHUNK_ROWS)
                whole = False
                try:
                    for rows in _chunks(result, batch_bytes, self.query.limit):
                        yield self._batch(rows, (*columns, *extra), keys, schema, tally)
                    whole = self.query.limit is None
                finally:
                    if whole:
                        result.close()
                    else:
                        _abandon(connection, driver)

    def _batch(
        self, rows: Sequence[Any], columns: Sequence[_Column], keys: Sequence[str], schema: Schema, tally: Tally
    ) -> pa.RecordBatch:
        """One batch; columns beyond the schema only name rows in messages."""
        names = [c.field.name for c in columns]
        places = [(k, names.index(k)) for k in keys]
        before = tally.rows

        def row(index: int) -> str:
            shown = ", ".join(f"{k} {rows[index][i]}" for k, i in places)
            return shown or f"row {before + index + 1} of the part"

        block = _Block(self.query, row, tally)
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        arrays = [_array(values[i], column, block) for i, column in enumerate(columns[: len(schema)])]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())
        tally.rows += batch.num_rows
        tally.received += batch.nbytes
        return batch

    def widen(self, at: Snapshot, /) -> Self:
        """Nothing to widen: decimals here have a declared precision."""
        del at
        return self

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Stop the statements of this run: MySQL and MariaDB end their sessions, wherever their clients are.

        Of other stores those of this process, where the driver can; the rest end with their sessions.

        Raises:
            StoreUnavailable: The server cannot be reached.
        """
        del keeping  # no session holds a snapshot
        if self.dialect == "mysql":
            if _mark(self.query.run_id):
                _kill_all(self.endpoint, self.query.run_id)
        else:
            _interrupt(self.query.run_id)

    def _named(self, sql: str) -> str:
        """The statement as it is sent: one that the server's list of sessions shows to be of this run."""
        mark = _mark(self.query.run_id) if self.dialect == "mysql" else ""
        return f"{mark} {sql}" if mark else sql

    def _quote(self, name: str) -> str:
        return quote_name(name, self.dialect)

    def _predicate(self, part: Partition) -> str:
        return key_condition(part.slice, self.dialect)

    def _target(self) -> tuple[Text | None, str]:
        if self.query.sql is not None:
            text = prepare(
                self.query.sql,
                dialect=self.dialect,
                params=self.query.params,
                quote_literal=partial(literal, dialect=self.dialect),
            )
            return text, ""
        return None, ".".join(map(self._quote, parse_table_name(self.query.table or "", self.dialect)))

    def _relation(self, connection: sa.Connection, fields: Schema | None = None) -> _Relation:
        """What is read; with `fields` the types are taken from there."""
        text, table = self._target()
        relation = _Relation(text, table)
        if text is None:
            found, key = self._catalogue(connection, self.query.table or "")
        else:
            found, key = self._of_text(connection, text), tuple[str, ...]()
        names = [f.name for f in found]
        wanted = self.query.columns or names
        for name in (*wanted, *self.query.types, *self.query.key):
            if name not in names:
                raise ConfigError(f"{self.title} has no column {name}", hint=nearest(name, names), column=name)
        by_name = {f.name: f for f in found}
        chosen = [by_name[name] for name in wanted]
        if fields is not None:
            given = {f.name: f for f in fields}
            chosen = [given.get(f.name, f) for f in chosen]
        return replace(relation, columns=tuple(map(self._column, chosen)), key=key)

    def _column(self, one: Field) -> _Column:
        words = self.query.types.get(one.name)
        quoted = self._quote(one.name)
        if words is None:
            if self.dialect == "mysql" and pa.types.is_float32(one.type):
                # MySQL's text protocol prints six digits of a float; as a double it prints them all.
                return _Column(one, f"{quoted} + 0e0", plain=False)
            return _Column(one, quoted)
        if words == HEX:
            return _Column(replace(one, type=pa.string()), f"lower(hex({quoted}))", plain=False)
        kind = parse_type(words)
        if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise ConfigError(f"column {one.name} cannot be read as {words}", column=one.name)
        changed = replace(one, type=kind, vocabulary=None, read_as="text" if words == "string" else "")
        if words == "string":
            dialect = self._sqlalchemy()
            cast = sa.cast(sa.literal_column(quoted), sa.String).compile(dialect=dialect)
            return _Column(changed, str(cast), plain=False)
        return _Column(changed, quoted)

    def _sqlalchemy(self) -> sa.Dialect:
        kind: type[sa.Dialect] = _url(self.endpoint).get_dialect()
        return kind()

    def _of_text(self, connection: sa.Connection, text: Text) -> list[Field]:
        if text.top_level.has_limit or text.dialect not in ("mysql", "sqlite"):
            described = wrap(text, "*", "1 = 0")
        else:
            described = f"{text.sql}\nlimit 0"
        try:
            result = _run(connection, described)
        except exc.DBAPIError:
            result = _run(connection, wrap(text, "*", "1 = 0"))
        with result:
            found = _described(result.cursor, connection.dialect)
        seen: dict[str, int] = {}
        for i, (name, _, _) in enumerate(found, 1):
            if not name:
                raise ConfigError(f"column {i} has no name", hint="Give it an alias.")
            base = name.rpartition(":")[0] if self.dialect == "sqlite" else name
            if name in seen or (base in seen and name.endswith(f":{i - seen[base]}")):
                first = seen.get(name) or seen[base]
                raise ConfigError(f"columns {first} and {i} are both named {name}", hint="Give one an alias.")
            seen[name] = i
        fields = [_field(name, kind, word) for name, kind, word in found]
        simple = text.top_level.simple_select
        if simple is None or not any(f.read_as for f in fields):
            return fields
        # Without types in the description: columns taken as they are from one table have the table's types.
        with contextlib.suppress(StoreRejected, ConfigError):
            of_table, _ = self._catalogue(connection, simple.table)
            known = {f.name: f for f in of_table}
            listed = {c.strip().strip('"`') for c in simple.columns.split(",")}
            fields = [
                replace(known[f.name], nullable=True) if f.name in known and (f.name in listed or "*" in listed) else f
                for f in fields
            ]
        return fields

    def _catalogue(self, connection: sa.Connection, table: str) -> tuple[list[Field], tuple[str, ...]]:
        """The columns of a table and its primary key."""
        parts = parse_table_name(table, self.dialect)
        schema = parts[-2] if len(parts) > 1 else None
        inspector = sa.inspect(connection)
        try:
            columns = inspector.get_columns(parts[-1], schema=schema)
            key = tuple(inspector.get_pk_constraint(parts[-1], schema=schema)["constrained_columns"])
        except exc.NoSuchTableError:
            columns, key = [], ()
        if not columns:
            known = [*inspector.get_table_names(schema=schema), *inspector.get_view_names(schema=schema)]
            raise StoreRejected(f"no such table: {parts[-1]}", hint=nearest(parts[-1], known, what="tables"))
        names = ", ".join(self._quote(c["name"]) for c in columns)
        quoted = ".".join(map(self._quote, parts))
        with _run(connection, f"select {names} from {quoted} where 1 = 0") as result:  # noqa: S608 - quoted names
            described = _described(result.cursor, connection.dialect)
        fields: list[Field] = []
        for column, (name, kind, word) in zip(columns, described, strict=True):
            declared = str(column["type"])
            fresh = _field(name, kind or _sqlalchemy_type(column["type"]), word or declared)
            fresh = replace(fresh, source_type=declared, nullable=bool(column["nullable"]))
            labels = getattr(column["type"], "enums", None)
            if labels and pa.types.is_string(fresh.type):
                fresh = replace(fresh, type=pa.dictionary(pa.int32(), pa.string()), vocabulary=tuple(labels))
            fields.append(fresh)
        return fields, key


def _field(name: str, kind: pa.DataType | None, word: str) -> Field:
    meta = {"cuetl.type": "json"} if word == "json" else {}
    return Field(
        name, kind or pa.string(), source_type=word, read_as="" if kind else "text", metadata=meta,
        note="" if kind else "the driver names no type: read as text",
    )  # fmt: skip


def _width(kind: pa.DataType) -> int:
    return 24 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 8


def _chunks(result: sa.CursorResult[Any], batch_bytes: int, limit: int | None) -> Iterator[Sequence[Any]]:
    """Rows of about `batch_bytes` each time, once even without rows; fewer at once where rows are wide."""
    rows: list[Any] = []
    size, ask, sent, left = 0, 64, False, limit
    while left is None or left > 0:
        some = result.fetchmany(ask if left is None else min(ask, left))
        if not some:
            break
        left = None if left is None else left - len(some)
        fresh = sum(len(v) if isinstance(v, str | bytes) else 8 for row in some for v in row)
        rows.extend(some)
        size += fresh
        if size >= batch_bytes:
            yield rows
            rows, size, sent = [], 0, True
        mean = max(1, fresh // len(some))
        ask = max(1, min(CHUNK_ROWS, ask * 4, max(1, batch_bytes - size) // mean))
    if rows or not sent:
        yield rows


@dataclass(frozen=True, slots=True)
class GenericConnector:
    """Any URL that SQLAlchemy has a dialect for."""

    def source(self, at: Endpoint, query: Query, /) -> GenericSource:
        """A table or query."""
        return GenericSource(at, query, _family(at))

    def tables(self, at: Endpoint, /) -> Sequence[TableInfo]:
        """Tables and views of the connection's own schema; sizes are not known portably."""
        with _connection(at) as connection:
            inspector = sa.inspect(connection)
            found = [(name, "table") for name in inspector.get_table_names()]
            found += [(name, "view") for name in inspector.get_view_names()]
        return [TableInfo(name, kind, None, None) for name, kind in sorted(found)]

    def server(self, at: Endpoint, /) -> str:
        """The dialect's name and the server's version."""
        with _connection(at) as connection:
            name = "MariaDB" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name
            version = ".".join(map(str, connection.dialect.server_version_info or ()))
        return f"{name} {version}".strip()


CONNECTOR: Final = GenericConnector()
