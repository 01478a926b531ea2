"""How often each value of a column comes: typed, exact, and the same however rows are cut.

Values are keys, so they are what the split's recipe takes: whole numbers of every width are int64 (or uint64), labels
and uuids are text, moments are microseconds; floats only where that is allowed, with -0.0 as 0.0 and one NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Schema
from etl.engine.door import carried, carry
from etl.tensors.views import bitmap_of, buffer_of, packed, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Field
    from etl.tensors.views import Column
    from etl.transforms.host import Values

COMPACT: Final = 1 << 18
"""Counts of parts of parts are added up once there are so many of them."""
Counts = dict[str, Any]
"""Of one column: rows, null, and counts: a table of value and count, in no order."""


def key_type(field: Field, step: str, /, *, allow_float: bool = False, hashed: bool = False) -> pa.DataType:
    """The type that a column's values have as keys.

    Args:
        field: The column.
        step: For the error.
        allow_float: Floats may be keys.
        hashed: They are to have a key text, which spans and times of day have not.

    Raises:
        ConfigError: The column is of none that keys have.
    """
    kind: Any = carried(field.type, column=field.name)
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind):
        return pa.uint64() if types.is_uint64(kind) else pa.int64()
    if types.is_floating(kind) and allow_float:
        return pa.float64()
    if types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if types.is_duration(kind) and hashed:
        raise ConfigError(
            f"{step}({field.name!r}): {field.name} is {field.type}, which has no key text to be hashed",
            hint="Take whole units of it in the function, or leave it out.",
            column=field.name,
        )
    plain = (types.is_boolean, types.is_string, types.is_date, types.is_timestamp, types.is_duration)
    if any(one(kind) for one in plain):
        plain_kind: pa.DataType = kind
        return plain_kind
    hint = "Bucketize it, or write allow_float=True." if types.is_floating(kind) else "Leave it out."
    raise ConfigError(
        f"{step}({field.name!r}): {field.name} is {field.type}, whose values are no categories",
        hint=hint,
        column=field.name,
    )


def keys_of(column: Column, field: Field, kind: pa.DataType, /) -> Column:
    """The values of an Arrow column as keys of that type; NULL stays NULL."""
    types = pa.types
    if types.is_integer(column.type) or types.is_floating(column.type):
        made = column.cast(kind)
        return canonical(made) if types.is_floating(kind) else made
    if column.type == kind:
        return column
    found = carry(pa.table([column], names=[field.name]), Schema((field,))).column(0)
    array: Column = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == kind else array.cast(kind)


def as_keys(values: Values, kind: Any, /) -> Column:
    """Values of a step as an Arrow array of their key type; NULL stays NULL."""
    data = values.data
    if not isinstance(data, np.ndarray):
        return data if data.type == kind else data.cast(kind)
    valid = None if not values.nulls else packed(values.present)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(data), [valid, packed(data)])
    if pa.types.is_floating(kind):
        made = data.astype(np.float64) + 0.0
        made[np.isnan(made)] = np.nan
        return pa.Array.from_buffers(kind, len(data), [valid, buffer_of(made)])
    dtype = np.int32 if pa.types.is_date(kind) else np.uint64 if pa.types.is_uint64(kind) else np.int64
    return pa.Array.from_buffers(kind, len(data), [valid, buffer_of(data.astype(dtype, copy=False))])


def canonical(column: Column, /) -> Column:
    """Floats of which equal ones have equal bits."""
    values = values_of(column, np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.Array.from_buffers(pa.float64(), len(column), [bitmap_of(column), buffer_of(values)])


class CountsOf:
    """Observes columns of a part; see `etl.transforms.base.Observer`."""

    def __init__(self, given: Schema, kinds: Mapping[str, pa.DataType], /) -> None:
        self._columns = {name: _Column(given.field(name), kind) for name, kind in kinds.items()}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        for name in self._columns:
            self.add(name, rows.column(rows.schema.get_field_index(name)))

    def add(self, name: str, column: Column, /) -> None:
        """The next values of one column."""
        self._columns[name].take(column)

    def state(self) -> dict[str, Counts]:
        """Column → its counts."""
        return {name: one.state() for name, one in self._columns.items()}


class _Column:
    def __init__(self, field: Field, kind: pa.DataType, /) -> None:
        self._field, self._kind = field, kind
        self._tables = [_none(kind)]
        self._rows = self._null = self._held = 0

    def take(self, column: Column, /) -> None:
        """The next values."""
        self._rows += len(column)
        self._null += column.null_count
        self._tables.append(counted(keys_of(column, self._field, self._kind)))
        self._held += self._tables[-1].num_rows
        if self._held > COMPACT:
            self._tables = [added(self._tables)]
            self._held = self._tables[0].num_rows // 2  # so that adding up stays linear in what comes

    def state(self) -> Counts:
        """The counts."""
        return {"rows": self._rows, "null": self._null, "counts": added(self._tables)}


def counted(keys: Column, /) -> pa.Table:
    """How often each value comes; NULL is left out."""
    if pa.types.is_floating(keys.type):  # Arrow counts NaN apart from NaN
        bits = keys.view(pa.int64()).value_counts()
        values: Any = bits.field(0).view(keys.type)
    else:
        bits = keys.value_counts()
        values = bits.field(0)
    table = pa.table([values, bits.field(1)], names=["value", "count"])
    return table.filter(values.is_valid()) if values.null_count else table


def added(tables: Sequence[pa.Table], /) -> pa.Table:
    """The counts of all."""
    whole = pa.concat_tables(tables)
    if len(tables) == 1:
        return whole
    kind = whole.schema.field("value").type
    keyed = whole
    if pa.types.is_floating(kind):
        keyed = whole.set_column(0, "value", _viewed(whole.column("value"), pa.int64()))
    found = keyed.group_by("value", use_threads=False).aggregate([("count", "sum")])
    values = found.column("value")
    if pa.types.is_floating(kind):
        values = _viewed(values, kind)
    return pa.table([values, found.column("count_sum")], names=["value", "count"])


def merged_counts(left: Mapping[str, Any], right: Mapping[str, Any], /) -> Counts:
    """The counts of both."""
    return {
        "rows": left["rows"] + right["rows"],
        "null": left["null"] + right["null"],
        "counts": added([left["counts"], right["counts"]]),
    }


def by_frequency(table: pa.Table, /) -> pa.Table:
    """Counts with the most frequent first; of equal ones the smaller value, text by its UTF-8 bytes."""
    return table.sort_by([("count", "descending"), ("value", "ascending")])


def _viewed(column: Any, kind: pa.DataType) -> Any:
    chunks: list[Any] = [one.view(kind) for one in column.chunks]
    return pa.chunked_array(chunks, kind)  # type: ignore[call-overload]  # the stubs know each type on its own


def _none(kind: pa.DataType) -> pa.Table:
    return pa.table([pa.array([], kind), pa.array([], pa.int64())], names=["value", "count"])
