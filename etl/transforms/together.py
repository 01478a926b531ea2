"""Frames and collections for steps that look at other rows: columns as Arrow and back, groups in one partition.

Arithmetic is done on the host whatever made the frame. Collections are met by their own methods; what is sent to their
workers is a step and names of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import Field, Schema, nearest
from etl.engine.backends import backend
from etl.tensors.hashing import words_of
from etl.transforms.host import values_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.engine.base import Backend, BackendName

BUCKET: Final = "__cuetl_bucket"
_DAYS: Final = "datetime64[s]"
"""As frames of both libraries carry dates; nothing else comes so."""
_NOTHING: Final = np.uint64(0x9E3779B97F4A7C15)


def is_collection(frame: Any, /) -> bool:
    """Whether it is a collection of frames."""
    return _root(frame) in ("dask", "dask_cudf", "dask_expr")


def library_of(frame: Any, step: str, /) -> Backend:
    """The library that made a frame.

    Raises:
        SchemaError: It is no frame.
    """
    root = _root(frame)
    if root not in ("pandas", "cudf") or not hasattr(frame, "columns"):
        raise SchemaError(
            f"{step} was given a {type(frame).__name__}, which is no frame of pandas or cuDF",
            hint="Pass a frame or a collection of frames.",
        )
    return backend(cast("BackendName", root))


def check_columns(frame: Any, wanted: Sequence[str], step: str, /) -> None:
    """Hold that a frame or collection has these columns.

    Raises:
        SchemaError: It has not; the nearest are named.
    """
    have = [str(name) for name in frame.columns]
    for name in wanted:
        if name not in have:
            raise SchemaError(f"{step}: no column {name}", hint=nearest(name, have), column=name)


def check_new(made: Sequence[str], have: Sequence[str], step: str, hint: str, /) -> None:
    """Hold that new columns have names of their own.

    Raises:
        ConfigError: One is there already.
    """
    taken = [name for name in made if name in have] or [name for name in made if list(made).count(name) > 1]
    if taken:
        raise ConfigError(f"{step}: there is a column {taken[0]} already", hint=hint, column=taken[0])


def columns_of(frame: Any, names: Sequence[str], step: str, /) -> tuple[dict[str, Any], Schema]:
    """Columns of a frame as Arrow arrays, each in one piece, and what they are; dates are dates again."""
    library = library_of(frame, step)
    part = frame[list(dict.fromkeys(names))].reset_index(drop=True)
    days = Schema(tuple(Field(name, pa.date32()) for name in part.columns if str(part[name].dtype) == _DAYS))
    schema = library.schema_of(part, days)
    table = library.to_arrow(part, schema)
    return {one.name: _whole(table.column(one.name)) for one in schema}, schema


def with_columns(frame: Any, made: Mapping[str, Any], schema: Schema, step: str, /) -> Any:
    """The frame with more columns, behind its own; its rows and its index stay as they are."""
    table = pa.Table.from_arrays([made[one.name] for one in schema], schema=schema.to_arrow())
    new = library_of(frame, step).from_arrow(table, schema)
    new.index = frame.index
    return frame.assign(**{one.name: new[one.name] for one in schema})


def brought_together(frame: Any, by: Sequence[str], partitions: int, step: str, /) -> Any:
    """The collection with all rows of a group in one partition, and a column `BUCKET` more.

    Which one follows from the values alone, so that two collections with the same number of partitions agree.
    """
    meta = frame._meta  # noqa: SLF001 # the only way to a collection's dtypes without a row
    marked = frame.map_partitions(_marked, tuple(by), step, meta=_marked(meta, tuple(by), step))
    return marked.shuffle(BUCKET, npartitions=partitions, ignore_index=True)


def _marked(frame: Any, by: tuple[str, ...], step: str) -> Any:
    arrays, schema = columns_of(frame, by, step)
    words = np.zeros(len(frame), np.uint64)
    for name in by:
        words = _mixed(words ^ _word_of(arrays[name], schema.field(name)))
    field = Field(BUCKET, pa.int64(), nullable=False)
    bucket = pa.array((words >> np.uint64(1)).astype(np.int64))
    return with_columns(frame, {BUCKET: bucket}, Schema((field,)), step)


def _word_of(array: Any, field: Field) -> NDArray[np.uint64]:
    """A number of 64 bits for each value, the same for integers of any width. Shape (n,)."""
    values = values_in(array, field)
    data, valid = values.data, values.valid
    if isinstance(data, np.ndarray):
        wide = data if data.dtype == np.uint64 else data.astype(np.int64).view(np.uint64)
    else:
        found = data.dictionary_encode()
        texts = found.dictionary.cast(pa.string()).cast(pa.large_binary())
        codes = found.indices.fill_null(0).to_numpy()
        wide = words_of(texts)[codes] if len(texts) else np.zeros(len(codes), np.uint64)
        valid = np.asarray(data.is_valid()) if data.null_count else None
    return wide if valid is None else np.where(valid, wide, _NOTHING)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bits depend on all bits that went in (the end of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    made: NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return made


def _whole(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _root(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]
