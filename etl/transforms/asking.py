"""What serving asks for: rows by column name, from whatever a caller has, checked against the columns of the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, SchemaError
from etl.core.schema import nearest
from etl.transforms.base import asked
from etl.transforms.host import Values, is_plain, values_in
from etl.transforms.literals import column_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etl.core.schema import Field
    from etl.transforms.fit import Planned


@dataclass(frozen=True, slots=True)
class Input:
    """A column that is asked for.

    Attributes:
        field: Its name and type.
        dtype: Of its NumPy array; None: it is no plain number.
        kind: The type of Python's values that need no further look: int, float or bool; None: all are looked at.
    """

    field: Field
    dtype: np.dtype[Any] | None = None
    kind: type | None = None

    def values(self, given: Sequence[Any], /) -> Values:
        """Values of Python's as a column.

        Raises:
            CastError: One is of another type, or does not fit.
        """
        if len(given) == 1 and type(given[0]) is self.kind:  # what a service is mostly asked
            try:
                return Values(np.array(given, self.dtype))
            except OverflowError as error:
                raise self._refused(given, 0) from error
        try:
            return column_of(given, self.field.type)
        except ValueError as error:
            raise self._refused(given, int(error.args[0])) from error
        except (pa.ArrowException, TypeError) as error:
            raise CastError(f"column {self.field.name}: {error}", column=self.field.name) from error

    def array(self, column: Any, /) -> Values:
        """A column of an Arrow table.

        Raises:
            SchemaError: It is of another kind.
            CastError: A value does not fit.
        """
        have, want = column.type, self.field.type
        if pa.types.is_dictionary(have):
            column = column.cast(have.value_type)
            have = column.type
        target = want.value_type if pa.types.is_dictionary(want) else want
        if have != target and not pa.types.is_null(have) and not _may_become(have, target):
            raise SchemaError(
                f"column {self.field.name} is {have}; the fit was made from {want}",
                hint="Cast it first.",
                column=self.field.name,
            )
        try:
            column = column.cast(target)
        except pa.ArrowInvalid as error:
            raise CastError(f"column {self.field.name} does not fit {want}: {error}", column=self.field.name) from error
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        return values_in(array, replace(self.field, type=target, vocabulary=None))

    def _refused(self, given: Sequence[Any], row: int) -> CastError:
        name = self.field.name
        return CastError(f"column {name}, row {row + 1}: {given[row]!r} is no {self.field.type}", column=name)


def inputs_of(plan: Planned, outputs: Iterable[str], /) -> tuple[Input, ...]:
    """The columns that a plan needs for these outputs, in the order of the rows that it was fitted on."""
    wanted = frozenset(outputs)
    for place in reversed(range(len(plan.steps))):
        wanted = asked(plan.steps[place], wanted, frozenset(plan.schemas[place].names))
    return tuple(_input(one) for one in plan.given if one.name in wanted)


def asked_of(given: Any, inputs: Sequence[Input], /, *, strict: bool) -> tuple[int, dict[str, Values]]:
    """How many rows there are, and the columns asked for.

    Args:
        given: A row by column name, a sequence of rows, or a table.
        inputs: What is asked for.
        strict: Refuse columns that are not.

    Raises:
        SchemaError: Columns are missing, extra or of other kinds.
        CastError: A value does not fit its column.
    """
    if isinstance(given, Mapping):
        if strict or not all(one.field.name in given for one in inputs):
            _check(given, inputs, strict=strict)
        return 1, {one.field.name: one.values((given[one.field.name],)) for one in inputs}
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        for number, row in enumerate(given, 1):
            if not isinstance(row, Mapping):
                raise SchemaError(f"row {number} is a {type(row).__name__}", hint="Give mappings of column → value.")
            _check(row, inputs, strict=strict)
        names = [one.field.name for one in inputs]
        columns = {name: [row[name] for row in given] for name in names}
        return len(given), {one.field.name: one.values(columns[one.field.name]) for one in inputs}
    table = _table(given)
    _check(dict.fromkeys(table.column_names), inputs, strict=strict)
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise SchemaError(f"the table has {', '.join(twice)} twice")
    return table.num_rows, {one.field.name: one.array(table.column(one.field.name)) for one in inputs}


def _check(have: Iterable[str], inputs: Sequence[Input], *, strict: bool) -> None:
    names = list(have)
    wanted = [one.field.name for one in inputs]
    missing = [name for name in wanted if name not in names]
    extra = [str(name) for name in names if name not in wanted]
    if missing or (strict and extra):
        said = f"columns are missing: {', '.join(missing)}" if missing else "columns are not asked for"
        hint = nearest(missing[0], extra) if missing and extra else f"Asked for are {', '.join(wanted)}."
        raise SchemaError(
            f"{said}; extra: {', '.join(extra) or 'none'}",
            hint=hint,
            missing=", ".join(missing),
            extra=", ".join(extra),
        )


def _table(given: Any) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    if hasattr(given, "to_arrow"):
        made: pa.Table = given.to_arrow()
        return made
    raise SchemaError(
        f"rows are given as a {type(given).__name__}",
        hint="Give a mapping of column → value, a list of them, or a table of Arrow, pandas, cuDF or Polars.",
    )


def _input(one: Field) -> Input:
    kind: Any = one.type
    types = pa.types
    if not is_plain(kind):
        if types.is_dictionary(kind):
            return Input(replace(one, type=kind.value_type, vocabulary=None))
        return Input(one)
    dtype = np.dtype(np.bool_) if types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
    own = {"b": bool, "f": float}.get(dtype.kind, int)
    return Input(one, dtype, None if kind.bit_width == 32 and own is float else own)


def _may_become(have: Any, want: Any) -> bool:
    """Whether values of one type are those of another in other widths."""
    types = pa.types
    groups = (
        (types.is_integer, types.is_integer),
        (lambda kind: types.is_integer(kind) or types.is_floating(kind), types.is_floating),
        (types.is_decimal, types.is_decimal),
        (types.is_integer, types.is_decimal),
        (types.is_timestamp, types.is_timestamp),
        (types.is_date, types.is_date),
        (types.is_timestamp, types.is_date),
        (types.is_time, types.is_time),
        (types.is_duration, types.is_duration),
        (
            lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind),
            lambda kind: types.is_string(kind) or types.is_large_string(kind),
        ),
        (types.is_list, types.is_list),
        (types.is_large_list, types.is_list),
        (types.is_fixed_size_list, types.is_fixed_size_list),
    )
    zoned = getattr(have, "tz", None) is not None, getattr(want, "tz", None) is not None
    return zoned[0] == zoned[1] and any(one(have) and other(want) for one, other in groups)
