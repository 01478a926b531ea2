"""Frames of pandas with the dtypes of cuDF: nullable numbers, NaN apart from NULL, Arrow decimals and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from etl.core.errors import SchemaError
from etl.core.schema import Field, Schema
from etl.engine.door import (
    carry,
    carry_vocabulary,
    declared_columns,
    exact,
    few_chunks,
    keys_are_columns,
    read_files,
    returned_field,
    returned_labels,
    to_declared,
    unique_names,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.engine.base import BackendName

_MASKED: Final[Mapping[pa.DataType, Any]] = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def keep_nan_apart() -> None:
    """Let pandas keep NaN and NULL apart in this process, as cuDF does; for every process that makes frames.

    Without it NaN values of the store turn into NULL at the first step, and a column of floats drops rows that cuDF
    keeps. The option is pandas' own and holds for the whole process.
    """
    pd.set_option("future.distinguish_nan_and_na", True)  # noqa: FBT003 # pandas takes it by position


@dataclass(frozen=True, slots=True)
class PandasBackend:
    """Frames of pandas; meets `etl.engine.base.Backend`."""

    name: ClassVar[BackendName] = "pandas"

    def from_arrow(self, table: pa.Table, schema: Schema, /) -> pd.DataFrame:
        """See `Backend`."""
        keep_nan_apart()
        made = carry(table, schema, combine=False)
        other = [i for i, kind in enumerate(made.schema.types) if kind not in _MASKED]
        rest = few_chunks(made.select(other))
        for i, kind in enumerate(rest.schema.types):
            if pa.types.is_date(kind):  # dates are datetime64[s] on both engines; `object` would be the default here
                rest = rest.set_column(i, rest.column_names[i], rest.column(i).cast(pa.timestamp("s")))
        frame = rest.to_pandas(types_mapper=_dtype)
        for name, dtype in frame.dtypes.items():  # labels of no label would be `object`: another dtype than with some
            if isinstance(dtype, pd.CategoricalDtype) and not len(dtype.categories):
                frame[name] = frame[name].cat.set_categories(pd.Index([], dtype="str"))
        if len(other) == len(schema):
            return frame
        columns = {
            name: frame[name].array if i in other else _masked(made.column(i))
            for i, name in enumerate(made.column_names)
        }
        # Nobody else has these arrays: without a copy they are the frame's own.
        return pd.DataFrame(columns, index=pd.RangeIndex(made.num_rows), copy=False)

    def to_arrow(self, frame: Any, schema: Schema, /) -> pa.Table:
        """See `Backend`."""
        declared_columns(_names(frame), schema.names)
        columns = [_column(frame.iloc[:, i], one) for i, one in enumerate(schema)]
        return pa.Table.from_arrays(columns, schema=schema.to_arrow())

    def schema_of(self, frame: Any, given: Schema, /) -> Schema:
        """See `Backend`."""
        before = {one.name: one for one in given}
        names = _names(frame)
        keys_are_columns(frame.index.names, names)
        kinds = zip(names, frame.dtypes, strict=True)
        return Schema(tuple(_field(name, dtype, before.get(name)) for name, dtype in kinds))

    def over(self, groups: Sequence[Sequence[str]], schema: Schema, /) -> Any:
        """See `Backend`."""
        import dask  # noqa: PLC0415 # a second of imports that only whole-data pipelines need
        import dask.dataframe as dd  # noqa: PLC0415 # the same

        keep_nan_apart()
        meta = self.from_arrow(schema.to_arrow().empty_table(), schema)
        # Dask would turn `str` into pandas' other text dtype, on which comparisons with NULL have another result.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(_read, [tuple(one) for one in groups], schema=schema, meta=meta, enforce_metadata=False)

    def out_of_memory(self, error: BaseException, /) -> bool:
        """See `Backend`."""
        return any(isinstance(one, MemoryError | pa.ArrowMemoryError) for one in _led_to(error))


def _read(paths: Sequence[str], schema: Schema) -> pd.DataFrame:
    """One partition of a collection: the files' rows, in the order of the paths."""
    return PandasBackend().from_arrow(read_files(paths), schema)


def _dtype(kind: pa.DataType) -> Any:
    return pd.ArrowDtype(kind) if pa.types.is_decimal(kind) or pa.types.is_nested(kind) else None


def _masked(values: Any) -> Any:
    """A column of numbers or bools as pandas' array of values and mask.

    pandas' own way joins the chunks, copies what it joined and turns a second mask around; here each chunk is copied
    once, to its place.
    """
    dtype = _MASKED[values.type]
    made = np.empty(len(values), dtype.numpy_dtype)
    absent = np.zeros(len(values), np.bool_)
    start = 0
    for chunk in values.chunks:
        stop = start + len(chunk)
        made[start:stop] = _values(chunk, made.dtype)
        if chunk.null_count:
            absent[start:stop] = chunk.is_null().to_numpy(zero_copy_only=False)
        start = stop
    return dtype.construct_array_type()(made, absent)


def _values(chunk: Any, dtype: np.dtype[Any]) -> Any:
    """What lies in the buffer of a chunk, whatever its mask says. Shape (n,); a view, of bools a copy."""
    buffer = chunk.buffers()[1]
    if dtype.kind == "b":
        bits = pa.BooleanArray.from_buffers(chunk.type, len(chunk), [None, buffer], offset=chunk.offset)
        return bits.to_numpy(zero_copy_only=False)
    return np.frombuffer(buffer, dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize) if len(chunk) else 0


def _led_to(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _names(frame: Any) -> tuple[str, ...]:
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(
            f"the function gave a {type(frame).__name__}, not a DataFrame",
            hint="Return the frame; for a series, .reset_index() makes one.",
        )
    return unique_names(list(frame.columns))


# ---- planning: from dtypes to a schema -------------------------------------------------------------------------------


def _field(name: str, dtype: Any, before: Field | None) -> Field:
    if isinstance(dtype, pd.CategoricalDtype):
        _texts(name, dtype)
        return returned_labels(name, before)
    return returned_field(name, _kind(name, dtype), before)


def _kind(name: str, dtype: Any) -> pa.DataType:
    """The Arrow type of a column of that dtype."""
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    if isinstance(dtype, pd.StringDtype):
        return pa.string()
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pa.timestamp(dtype.unit, tz="UTC")
    plain = getattr(dtype, "numpy_dtype", dtype)
    if isinstance(plain, np.dtype) and plain.kind in "iufbmM":
        return pa.from_numpy_dtype(plain)
    raise SchemaError(
        f"column {name} of the function's frame has the dtype {dtype}, which has no Arrow type",
        hint=f"""Cast it in the function, for instance frame["{name}"].astype("str").""",
        column=name,
    )


# ---- the exit: from columns to the declared types --------------------------------------------------------------------


def _column(series: pd.Series[Any], field: Field) -> Any:
    if isinstance(series.dtype, pd.CategoricalDtype):
        return _labels(series, field)
    kind = _kind(field.name, series.dtype)
    # A plain numpy float comes from a step of pandas that made NULL into NaN (str.len, dt.year, to_numeric).
    values: Any = pa.array(series, from_pandas=isinstance(series.dtype, np.dtype))
    if not isinstance(values, pa.ChunkedArray):
        values = pa.chunked_array([values])
    if values.type != kind and not pa.types.is_large_string(values.type):
        values = exact(values, kind, column=field.name)
    return to_declared(values, field)


def _labels(series: pd.Series[Any], field: Field) -> Any:
    _texts(field.name, series.dtype)
    values: Any = pa.array(series, from_pandas=True)
    if field.vocabulary is not None:
        return carry_vocabulary(values, field.vocabulary, column=field.name)
    return to_declared(pa.chunked_array([values.dictionary_decode().cast(pa.string())]), field)


def _texts(name: str, dtype: Any) -> None:
    """Hold that labels can be written as text.

    Raises:
        SchemaError: They are intervals or moments, which the two engines write differently.
    """
    kind = dtype.categories.dtype
    if not isinstance(kind, pd.StringDtype) and kind.kind not in "iufb":
        raise SchemaError(
            f"column {name} of the function's frame has labels that are {kind}, not text",
            hint="Give labels: frames.cut(series, bins, labels=[…]).",
            column=name,
        )
