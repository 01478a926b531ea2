"""Where a pipeline reads from and writes to, as a user says it: `SQL`, `Read`, `Tensors`, `Parquet`.

Values only: a connection is looked up when a pipeline is bound, so that a file of pipelines loads anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa

from connectors.base import CutWish, Endpoint, Query
from connectors.memory import MemorySource
from connectors.sqltext import tokens
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.planning.jobs import Reading, Write
from etl.settings import endpoint
from etl.tensors.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from connectors.base import Cast, Mode, Special
    from etl.tensors.options import Format, Layout, NullKey, Order

FORMATS = ("safetensors", "npy", "torch", "tfrecord")
"""What `Tensors` writes; `Parquet` is its own sink."""

MODES = ("replace", "create", "append")
BYTES = 128 << 20
MOST_PARTS = 100_000

Names: TypeAlias = str | Sequence[str]
"""One column, or several in order."""

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


@dataclass(frozen=True, slots=True)
class SQL:
    """A query, or a table, of a connection.

    Attributes:
        connection: A name of `cuetl.toml`, or a URL.
        sql: Query text, one statement that reads; `:name` stands for a parameter. Or give `table`.
        table: A table's name.
        columns: The columns wanted, in order; None: all.
        params: Fixed values for `:name` in the text, beside the pipeline's own parameters.
        types: Column → Arrow type, as `--types`.
        limit: The first N rows, as one part.
        partition_column: The column to cut by; None: what the store's statistics say.
        partitions: Into how many parts; None: by size.
        partition_bytes: Size of a part; None: as the sink's.
        special: What becomes of values that the Arrow type cannot hold, as `--special`.
        cast: What becomes of digits beyond a decimal's scale; None: as the sink's.
        count: Whether the whole source is counted once in the snapshot.
        frozen: Its rows no longer change: a resumed run may keep finished parts.

    Raises:
        ConfigError: Neither or both of `sql` and `table`, or a value that is not of its kind.
    """

    connection: str
    sql: str | None = None
    _: KW_ONLY
    table: str | None = None
    columns: Sequence[str] | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    partition_column: str | None = None
    partitions: int | None = None
    partition_bytes: int | None = None
    special: Special | None = None
    cast: Cast | None = None
    count: bool = True
    frozen: bool = False

    def __post_init__(self) -> None:
        _source_words("SQL", self)
        if (self.sql is None) == (self.table is None):
            said = "both a query and a table" if self.sql is not None else "neither a query nor a table"
            raise ConfigError(f"SQL({self.connection!r}) has {said}", hint="Give the query's text, or table=NAME.")
        _text("SQL", "sql", self.sql)
        _text("SQL", "table", self.table)
        if self.params and self.sql is None:
            raise ConfigError(f"SQL({self.connection!r}): params= fills :NAME in a query, and there is none")


@dataclass(frozen=True, slots=True)
class Read:
    """A table of any connection, whatever its store calls one.

    Attributes:
        connection: A name of `cuetl.toml`, or a URL.
        table: Its name.
        columns, types, limit, partition_column, partitions, partition_bytes, special, cast, count, frozen: As of `SQL`.

    Raises:
        ConfigError: A value that is not of its kind.
    """

    connection: str
    _: KW_ONLY
    table: str
    columns: Sequence[str] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    partition_column: str | None = None
    partitions: int | None = None
    partition_bytes: int | None = None
    special: Special | None = None
    cast: Cast | None = None
    count: bool = True
    frozen: bool = False

    def __post_init__(self) -> None:
        _source_words("Read", self)
        _text("Read", "table", self.table)


@dataclass(frozen=True, slots=True)
class Tensors:
    """A tensor dataset, under a folder; `{name}` in it stands for a parameter.

    Attributes:
        to: The folder.
        format: Of its files.
        features: Columns of `x`, in order; empty: every column is a tensor of its own.
        target: Columns of `y`.
        weight: The column of `w`.
        key: Columns that name a row.
        layout: None: "packed" with features, else "columns".
        dtype: Of `x`, or of the float and decimal columns; None: by the schema.
        target_dtype: Of `y`; None: the column's own.
        cast: What becomes of values that the dtype cannot hold exactly.
        nulls: A policy, or column → policy: "mask", "error", "drop", "fill=VALUE".
        order: How rows are laid; None: "shuffle" with a seed, else "source".
        shuffle: The seed of a shuffle.
        split: Split name → share (their sum is 1); with `split_time` alone: the end of its range, of the last None.
        split_key: Columns whose hash decides the split.
        split_salt: Another salt gives another split.
        null_key: What a NULL in the split key does.
        allow_float: Whether float columns may be split keys.
        split_time: The time column of a split by time, or of `time_cut`.
        time_cut: Beside a split by key: rows of "train" from this moment on are left out.
        partition_bytes: Target size of a data file.
        mode: What happens to a dataset that is there.
        tags: Free text, kept in the manifest.
        keep: How many versions keep their data, from the newest: older ones are vacuumed when this one is published;
            None: all. A job that reads an older version by then finds files missing.
        onnx: Save the preparation as a proved ONNX model too, beside the fit; an append keeps what the dataset has.

    Raises:
        ConfigError: A value is not of its kind, or at odds with another.
    """

    to: str
    _: KW_ONLY
    format: Format = "safetensors"
    features: Names = ()
    target: Names = ()
    weight: str | None = None
    key: Names = ()
    layout: Layout | None = None
    dtype: str | None = None
    target_dtype: str | None = None
    cast: Cast = "exact"
    nulls: str | Mapping[str, str] = "mask"
    order: Order | None = None
    shuffle: int | None = None
    split: Mapping[str, float | str | Decimal | date | None] = field(default_factory=dict)
    split_key: Names = ()
    split_salt: str = ""
    null_key: NullKey = "error"
    allow_float: bool = False
    split_time: str | None = None
    time_cut: str | date | None = None
    partition_bytes: int = BYTES
    mode: Mode = "replace"
    tags: Mapping[str, str] = field(default_factory=dict)
    keep: int | None = None
    onnx: bool = False

    def __post_init__(self) -> None:
        _sink_words("Tensors", self)
        if self.format not in FORMATS:
            also = " Parquet has a sink of its own." if self.format == "parquet" else ""
            raise ConfigError(
                f"Tensors({self.to!r}): unknown format {self.format!r}",
                hint=nearest(self.format, FORMATS, what="formats") + also,
            )
        options_of(self, "")


@dataclass(frozen=True, slots=True)
class Parquet:
    """A Parquet dataset, under a folder; `{name}` in it stands for a parameter.

    Attributes:
        to: The folder.
        row_group_rows, row_group_bytes: A row group ends at the first of both (bytes of Arrow data).
        features, target, weight, key, cast, nulls, order, shuffle, split, split_key, split_salt, null_key, allow_float,
            split_time, time_cut, partition_bytes, mode, tags, keep: As of `Tensors`.

    Raises:
        ConfigError: A value is not of its kind, or at odds with another.
    """

    to: str
    _: KW_ONLY
    features: Names = ()
    target: Names = ()
    weight: str | None = None
    key: Names = ()
    cast: Cast = "exact"
    nulls: str | Mapping[str, str] = "mask"
    order: Order | None = None
    shuffle: int | None = None
    split: Mapping[str, float | str | Decimal | date | None] = field(default_factory=dict)
    split_key: Names = ()
    split_salt: str = ""
    null_key: NullKey = "error"
    allow_float: bool = False
    split_time: str | None = None
    time_cut: str | date | None = None
    partition_bytes: int = BYTES
    row_group_rows: int = 1 << 20
    row_group_bytes: int = 64 << 20
    mode: Mode = "replace"
    tags: Mapping[str, str] = field(default_factory=dict)
    keep: int | None = None

    def __post_init__(self) -> None:
        _sink_words("Parquet", self)
        for what in ("row_group_rows", "row_group_bytes"):
            _whole("Parquet", what, getattr(self, what))
        options_of(self, "")


SourceWish: TypeAlias = SQL | Read | MemorySource | pa.Table
SinkWish: TypeAlias = Tensors | Parquet


def sql_params(wish: SourceWish, dialect: str, /, *, slices: bool = True) -> list[str]:
    """The `:name` of a query that no fixed value fills, in order and once each, outside of strings and comments.

    Args:
        wish: The source.
        dialect: By whose quoting its text is cut.
        slices: Whether what stands in square brackets counts: `a[1:n]` may be a parameter, or a column.

    Raises:
        ConfigError: A string, name or comment has no end.
    """
    if not isinstance(wish, SQL) or wish.sql is None:
        return []
    found: list[str] = []
    brackets = 0
    for token in tokens(wish.sql, dialect):
        brackets += {"[": 1, "]": -1}.get(token.text, 0) if token.kind == "sign" else 0
        name = token.text[1:]
        if token.kind == "param" and (slices or not brackets) and name not in found and name not in wish.params:
            found.append(name)
    return found


def reading(name: str, wish: SourceWish, sink: SinkWish, params: Mapping[str, object], run_id: str, /) -> Reading:
    """A source with its parameters in place; the connection is looked up, and not connected to.

    Raises:
        ConfigError: There is no such connection.
    """
    key = _names(sink.key)
    if isinstance(wish, pa.Table):
        at = Endpoint("memory", "memory")
        query = Query(table=name, key=key, cast=sink.cast, run_id=run_id)
        return Reading(at, query, CutWish(partition_bytes=sink.partition_bytes), name, source=MemorySource(wish, query))
    if isinstance(wish, MemorySource):
        wished = CutWish(partition_bytes=sink.partition_bytes)
        return Reading(wish.endpoint, wish.query, wished, name, source=wish)
    at = endpoint(wish.connection)
    used = {n: params[n] for n in sql_params(wish, at.scheme) if n in params}
    query = Query(
        table=wish.table,
        sql=wish.sql if isinstance(wish, SQL) else None,
        columns=tuple(wish.columns) if wish.columns is not None else None,
        types=dict(wish.types),
        params={**used, **(wish.params if isinstance(wish, SQL) else {})},
        limit=wish.limit,
        key=key,
        special=wish.special,
        cast=wish.cast or sink.cast,
        run_id=run_id,
    )
    size = sink.partition_bytes if wish.partition_bytes is None else wish.partition_bytes
    wished = CutWish(wish.partition_column, wish.partitions, size)
    return Reading(at, query, wished, name, wish.count, frozen=wish.frozen)


def writing(sink: SinkWish, target: str, pipeline: str, special: Special | None, /) -> Write:
    """A sink as what a run writes, to a target whose parameters are in place."""
    kind = sink.format if isinstance(sink, Tensors) else "parquet"
    return Write(target, kind, options_of(sink, pipeline, special), sink.mode, keep=sink.keep)


def options_of(sink: SinkWish, pipeline: str, special: Special | None = None, /) -> WriteOptions:
    """A sink's keywords as writing options.

    Raises:
        ConfigError: One is at odds with another, in the words of keywords.
    """
    policies = sink.nulls if isinstance(sink.nulls, Mapping) else {}
    tensors = sink if isinstance(sink, Tensors) else None
    parquet = sink if isinstance(sink, Parquet) else None
    try:
        return WriteOptions(
            features=_names(sink.features),
            target=_names(sink.target),
            weight=sink.weight,
            key=_names(sink.key),
            layout=tensors.layout if tensors else None,
            dtype=tensors.dtype if tensors else None,
            target_dtype=tensors.target_dtype if tensors else None,
            cast=sink.cast,
            nulls=sink.nulls if isinstance(sink.nulls, str) else "mask",
            column_nulls=dict(policies),
            special=special,
            order=sink.order or ("source" if sink.shuffle is None else "shuffle"),
            seed=sink.shuffle,
            split={name: _share(value) for name, value in sink.split.items()},
            split_key=_names(sink.split_key),
            split_salt=sink.split_salt,
            null_key=sink.null_key,
            allow_float=sink.allow_float,
            split_time=sink.split_time,
            time_cut=None if sink.time_cut is None else _share(sink.time_cut),
            partition_bytes=sink.partition_bytes,
            row_group_rows=parquet.row_group_rows if parquet else 1 << 20,
            row_group_bytes=parquet.row_group_bytes if parquet else 64 << 20,
            pipeline=pipeline,
            tags=dict(sink.tags),
            onnx=bool(tensors and tensors.onnx),
        )
    except ConfigError as error:
        keywords: Callable[[re.Match[str]], str] = lambda flag: f"{flag[1].replace('-', '_')}="  # noqa: E731
        message, hint = _FLAG.sub(keywords, error.message), _FLAG.sub(keywords, error.hint)
        raise ConfigError(f"{type(sink).__name__}({sink.to!r}): {message}", hint=hint, **error.context) from error


def _names(said: Names) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _share(value: object) -> str:
    """A share or a moment as text: 0.9 is "0.9" and not its binary value."""
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)


def _source_words(kind: str, wish: SQL | Read) -> None:
    """Hold that a source's values are of their kinds.

    Raises:
        ConfigError: One is not; it is named.
    """
    if not _is_text(wish.connection):
        raise ConfigError(
            f"the connection of {kind}() is {wish.connection!r}", hint="Name a connection of cuetl.toml, or give a URL."
        )
    if wish.columns is not None:
        _columns(kind, "columns", wish.columns)
    _text(kind, "partition_column", wish.partition_column)
    for what in ("limit", "partitions", "partition_bytes"):
        value = getattr(wish, what)
        if value is not None:
            _whole(kind, what, value, least=0 if what == "limit" else 1)
    if wish.partitions is not None and wish.partitions > MOST_PARTS:
        raise ConfigError(f"{kind}: partitions={wish.partitions} is more than {MOST_PARTS}")
    _choice(kind, "special", wish.special, ("error", "null", "clamp"))
    _choice(kind, "cast", wish.cast, ("exact", "round", "saturate"))
    _texts(kind, "types", wish.types)
    _switch(kind, "count", wish.count)
    _switch(kind, "frozen", wish.frozen)


def _sink_words(kind: str, sink: SinkWish) -> None:
    """Hold that a sink's values are of their kinds.

    Raises:
        ConfigError: One is not; it is named.
    """
    if not _is_text(sink.to):
        raise ConfigError(f"the target of {kind}() is {sink.to!r}", hint="Give the folder of the dataset.")
    for what in ("features", "target", "key", "split_key"):
        value = getattr(sink, what)
        if not isinstance(value, str):
            _columns(kind, what, value)
    for what in ("weight", "split_time"):
        _text(kind, what, getattr(sink, what))
    if sink.shuffle is not None:
        _whole(kind, "shuffle", sink.shuffle, least=0)
    _whole(kind, "partition_bytes", sink.partition_bytes)
    if sink.keep is not None:
        _whole(kind, "keep", sink.keep)
    _choice(kind, "mode", sink.mode, MODES)
    _choice(kind, "null_key", sink.null_key, ("error", "own_group"))
    if not isinstance(sink.nulls, str):
        _texts(kind, "nulls", sink.nulls)
    if not isinstance(sink.split, Mapping):
        raise ConfigError(f"{kind}: split is {sink.split!r}", hint='Write it as {"train": 0.9, "val": 0.1}.')
    _texts(kind, "tags", sink.tags)
    _switch(kind, "allow_float", sink.allow_float)


def _text(kind: str, what: str, value: object) -> None:
    if value is not None and not _is_text(value):
        raise ConfigError(f"{kind}: {what} is {value!r}, which is no text")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _switch(kind: str, what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{kind}: {what} is {value!r}", hint="It is True or False.")


def _whole(kind: str, what: str, value: object, *, least: int = 1) -> None:
    if type(value) is not int or value < least:
        also = ", in bytes" if what.endswith("bytes") else ""
        raise ConfigError(f"{kind}: {what} is {value!r}", hint=f"It is a whole number from {least} on{also}.")


def _columns(kind: str, what: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(n, str) and n for n in value):
        raise ConfigError(f"{kind}: {what} is {value!r}", hint=f'Write it as {what}=["a", "b"].')
    double = next((n for n in value if list(value).count(n) > 1), None)
    if double is not None:
        raise ConfigError(f"{kind}: {what} names column {double} twice", column=cast("str", double))


def _texts(kind: str, what: str, value: object) -> None:
    fine = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    if not fine:
        raise ConfigError(f"{kind}: {what} is {value!r}", hint="It maps text to text.")


def _choice(kind: str, what: str, value: object, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        hint = nearest(value, known, what="choices") if isinstance(value, str) else f"Choices are {', '.join(known)}."
        raise ConfigError(f"{kind}: {what} is {value!r}", hint=hint)
