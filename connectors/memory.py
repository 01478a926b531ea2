"""Tables carried in the source value: what pipelines are tested with, and the smallest connector there is.

`MemorySource(table)` holds an Arrow table, so that workers in other processes see it; nothing is connected to. By URL,
`memory:///name` reads what `put(name, table)` left in this process.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Capabilities, Endpoint, Facts, KeyFacts, KeyStep, Obstacle, Query, TableInfo
from connectors.sqltext import parse_table_name
from etl.core.errors import ConfigError, StoreRejected
from etl.core.partition import KeyRange, NullKeys, Partition, Snapshot, Whole
from etl.core.schema import Field, Schema, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from connectors.base import CutWish, Source, Tally

_tables: dict[str, pa.Table] = {}


def put(name: str, table: pa.Table, /) -> None:
    """Keep a table under a name, for `memory:///` in this process; a table of that name is replaced."""
    _tables[name] = table


def clear() -> None:
    """Forget all tables."""
    _tables.clear()


@dataclass(frozen=True, slots=True)
class MemorySource:
    """An Arrow table as a source.

    Attributes:
        table: The rows; never changed, so that every moment is one snapshot.
        query: Columns, key and limit are used; `sql` is refused.
        endpoint: For messages and for grouping sources by connection.
        key: The column that the table is cut by when none is asked for; "" for none.
    """

    table: pa.Table
    query: Query = field(default_factory=lambda: Query(table="memory"))
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("memory", "memory"))
    key: str = ""

    def __post_init__(self) -> None:
        if self.query.sql is not None:
            raise ConfigError("a memory source takes no SQL", hint="Name a table.")
        if self.query.types:
            raise ConfigError("a memory source has its types already", hint="Cast the Arrow table.")

    @property
    def capabilities(self) -> Capabilities:
        """Key ranges; one moment, since nothing changes the table."""
        return Capabilities(
            cuts=frozenset({Whole, KeyRange, NullKeys}), snapshots=frozenset({"single"}), python_rows=False
        )

    @property
    def title(self) -> str:
        """What is read, for messages."""
        return f"table {self.query.table}"

    @contextlib.contextmanager
    def snapshot(
        self, *, siblings: Sequence[Source] = (), attach_all: Callable[[Snapshot], None]
    ) -> Iterator[Snapshot]:
        """The table as it is."""
        del siblings, attach_all  # workers have nothing to attach to
        now = datetime.now(UTC)  # noqa: TID251 - nothing else tells the moment at which the table was taken
        at = Snapshot("single", "memory", now)
        yield at

    def attach(self, at: Snapshot, /) -> None:
        """Nothing to open."""

    def schema(self, at: Snapshot, /) -> Schema:
        """The table's own fields."""
        del at
        fields = [
            Field(f.name, f.type, nullable=f.nullable, source_type=str(f.type), metadata=_words(f.metadata))
            for f in self.table.schema
        ]
        schema = Schema(tuple(fields))
        for name in self.query.columns or ():
            self._known(name)
        return schema.select(self.query.columns) if self.query.columns is not None else schema

    def facts(self, at: Snapshot, wish: CutWish, /, *, sample: bool) -> Facts:
        """Exact sizes; a key's distinct values with their rows."""
        del at, sample
        rows, size = float(self.table.num_rows), self.table.nbytes
        if self.query.limit is not None:
            return Facts(rows, size, obstacle=Obstacle("limit", "The first rows are one part."))
        column = wish.column or self.key
        if not column:
            return Facts(rows, size, obstacle=Obstacle("no-key", "There is no key to cut by.", "Give a column."))
        self._known(column)
        values = self.table.column(column)
        if not _ordered(values.type):
            why = f"Values of {values.type} have no order."
            return Facts(rows, size, obstacle=Obstacle("no-key", why, "Name another column to cut by."))
        counted = pc.value_counts(values.combine_chunks().drop_null())
        distinct, counts = counted.field("values"), counted.field("counts")
        order = pc.sort_indices(distinct)
        distinct, counts = distinct.take(order), counts.take(order)
        steps = [
            KeyStep((_text(bound),), float(count.as_py()), single=True)
            for bound, count in zip(distinct, counts, strict=True)
        ]
        key = KeyFacts((column,), tuple(steps), null_rows=float(values.null_count), origin="all values")
        return Facts(rows, size, key=key)

    def count(self, at: Snapshot, part: Partition, /) -> int:
        """The rows of a part."""
        del at
        return self._rows(part).num_rows

    def explain(self, part: Partition, /, *, columns: Sequence[str]) -> str:
        """The part in words."""
        names = ", ".join(columns) or "all columns"
        match part.slice:
            case KeyRange((column,), low, high, nulls):
                words = [f"{column} >= {low[0]}"] if low else []
                words += [f"{column} < {high[0]}"] if high else []
                also = [f"{column} is null"] if nulls else []
                where = " or ".join([" and ".join(words) or f"{column} is not null", *also])
            case NullKeys(column):
                where = f"{column} is null"
            case _:
                where = "all rows"
        return f"{names} of {self.title}: {where}"

    def read(
        self, at: Snapshot, part: Partition, /, *, schema: Schema, batch_bytes: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part in slices of the table, without a copy where the part is everything."""
        del at
        rows = self._rows(part).select(list(schema.names)).cast(schema.to_arrow())
        tally.how, tally.counted = "memory", rows.num_rows
        size = max(1, batch_bytes * rows.num_rows // max(1, rows.nbytes))
        arrow = schema.to_arrow()
        empty = pa.RecordBatch.from_arrays([c.combine_chunks() for c in arrow.empty_table().columns], schema=arrow)
        for batch in rows.to_batches(max_chunksize=size) or [empty]:
            tally.rows += batch.num_rows
            tally.received += batch.nbytes
            yield batch

    def widen(self, at: Snapshot, /) -> Self:
        """Nothing is open."""
        del at
        return self

    def cancel(self, *, keeping: Snapshot | None = None) -> None:
        """Nothing runs anywhere."""
        del keeping

    def _known(self, name: str) -> None:
        if name not in self.table.schema.names:
            raise ConfigError(
                f"{self.title} has no column {name}", hint=nearest(name, self.table.schema.names), column=name
            )

    def _rows(self, part: Partition) -> pa.Table:
        match part.slice:
            case Whole():
                rows = self.table
            case NullKeys(column):
                rows = self.table.filter(pc.is_null(self.table.column(column)))
            case KeyRange((column,), low, high, nulls):
                rows = self.table.filter(_within(self.table.column(column), low, high, nulls=nulls))
            case _:
                raise ConfigError(f"memory cannot read a part by {type(part.slice).__name__}")
        return rows if self.query.limit is None else rows.slice(0, self.query.limit)


def _ordered(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType | pa.DictionaryType)


def _text(value: pa.Scalar[Any]) -> str:
    """A value as text in full precision; bytes as hex."""
    if pa.types.is_binary(value.type) or pa.types.is_fixed_size_binary(value.type):
        return bytes(value.as_py()).hex()
    return str(pc.cast(value, pa.string()).as_py())


def _bound(text: str, kind: pa.DataType) -> pa.Scalar[Any]:
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes.fromhex(text), kind)
    return pc.cast(pa.scalar(text), kind)


def _within(values: Any, low: tuple[str, ...] | None, high: tuple[str, ...] | None, *, nulls: bool) -> Any:
    """Which rows lie in low <= value < high. NaN is the greatest value, as in PostgreSQL."""
    inside = pc.is_valid(values)
    nan = pc.is_nan(values) if pa.types.is_floating(values.type) else pc.and_not(inside, inside)
    if low is not None:
        above = pc.greater_equal(values, _bound(low[0], values.type))
        inside = pc.and_(inside, nan if low[0] == "nan" else pc.or_(above, nan))
    if high is not None:
        below = pc.less(values, _bound(high[0], values.type))
        inside = pc.and_(inside, pc.invert(nan) if high[0] == "nan" else pc.and_not(below, nan))
    inside = pc.and_kleene(inside, pc.is_valid(values))
    return pc.or_kleene(inside, pc.is_null(values)) if nulls else inside


def _words(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (metadata or {}).items()}


@dataclass(frozen=True, slots=True)
class MemoryConnector:
    """`memory:///`: the tables of this process."""

    def source(self, at: Endpoint, query: Query, /) -> MemorySource:
        """The table that `put` left under the query's name, carried in the source from here on.

        Raises:
            ConfigError: The query is SQL.
            StoreRejected: There is no table of that name.
        """
        if query.sql is not None:
            raise ConfigError("a memory source takes no SQL", hint="Name a table.")
        name = parse_table_name(query.table or "", "memory")[-1]
        if name not in _tables:
            raise StoreRejected(f"no such table: {name}", hint=nearest(name, _tables, what="tables"))
        return MemorySource(_tables[name], query, at)

    def tables(self, at: Endpoint, /) -> Sequence[TableInfo]:
        """All tables put."""
        del at
        return [TableInfo(name, "table", t.num_rows, t.nbytes) for name, t in sorted(_tables.items())]

    def server(self, at: Endpoint, /) -> str:
        """Arrow's version."""
        del at
        return f"memory, pyarrow {pa.__version__}"


CONNECTOR: Final = MemoryConnector()
