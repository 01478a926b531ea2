"""Frames of cuDF: on the device, NULL by mask and NaN as a value, whatever `mode.pandas_compatible` would do."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from etl.core.errors import ConfigError, EngineError, SchemaError
from etl.core.schema import Schema
from etl.engine.device import pieces, settled
from etl.engine.door import (
    carry,
    declared_columns,
    read_files,
    returned_field,
    returned_labels,
    to_declared,
    unique_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.core.schema import Field
    from etl.engine.base import BackendName

_MEMORY_WORDS: Final = ("cudaErrorMemoryAllocation", "std::bad_alloc", "out_of_memory")
_MEMORY_NAMES: Final = frozenset({"MemoryError", "OutOfMemoryError", "ArrowMemoryError"})
"""Of CuPy and torch by name: neither needs to be here."""


def library() -> Any:
    """The module cuDF.

    Raises:
        ConfigError: It is not installed, or cannot be loaded.
        EngineError: It was switched to pandas' own semantics, with which columns of decimals and zones fail.
    """
    try:
        import cudf  # noqa: PLC0415 # three seconds and half a gigabyte: only where a device is used
    except ImportError as error:
        raise ConfigError(
            f"cuDF cannot be loaded here: {error}",
            hint="Install it with cuetl[gpu-cu12] or cuetl[gpu-cu13], or run with --engine cpu.",
        ) from error
    if cudf.get_option("mode.pandas_compatible"):
        raise EngineError(
            "cuDF runs with mode.pandas_compatible, in which decimals and time zones fail",
            hint='Remove cudf.set_option("mode.pandas_compatible", True).',
        )
    return cudf


@dataclass(frozen=True, slots=True)
class CudfBackend:
    """Frames of cuDF; meets `etl.engine.base.Backend`. One thread of a process at a time may hold frames."""

    name: ClassVar[BackendName] = "cudf"

    def from_arrow(self, table: pa.Table, schema: Schema, /) -> Any:
        """See `Backend`: imported from page-locked memory, after the host has unified dictionaries and chunks."""
        cudf, made = library(), []
        for piece in pieces(carry(table, schema)):
            made.append(cudf.DataFrame.from_arrow(piece))
            settled()  # copies are asynchronous, and the piece's memory is written again after this
        return made[0] if len(made) == 1 else cudf.concat(made, ignore_index=True)

    def to_arrow(self, frame: Any, schema: Schema, /) -> pa.Table:
        """See `Backend`."""
        declared_columns(_names(frame), schema.names)
        columns = [to_declared(_column(frame[one.name]), one) for one in schema]
        return pa.Table.from_arrays(columns, schema=schema.to_arrow())

    def schema_of(self, frame: Any, given: Schema, /) -> Schema:
        """See `Backend`."""
        names, before = _names(frame), {one.name: one for one in given}
        return Schema(tuple(_field(frame[name].iloc[:0], name, before.get(name)) for name in names))

    def over(self, groups: Sequence[Sequence[str]], schema: Schema, /) -> Any:
        """See `Backend`. Only where a device is: already the meta frame is made on it."""
        import dask.dataframe as dd  # noqa: PLC0415 # a second of imports that only whole-data pipelines need
        import dask_cudf  # noqa: F401, PLC0415 # registers what Dask does with frames of cuDF

        meta = self.from_arrow(schema.to_arrow().empty_table(), schema)
        return dd.from_map(_read, [tuple(one) for one in groups], schema=schema, meta=meta, enforce_metadata=False)

    def out_of_memory(self, error: BaseException, /) -> bool:
        """See `Backend`. RMM and libcudf say MemoryError; CuPy and torch have errors of their own."""
        seen: list[BaseException] = []
        link: BaseException | None = error
        while link is not None and link not in seen:
            named = any(kind.__name__ in _MEMORY_NAMES for kind in type(link).__mro__)
            if named or any(word in str(link) for word in _MEMORY_WORDS):
                gc.collect()  # frames in reference cycles would keep the device full for the halves
                return True
            seen.append(link)
            link = link.__cause__ or link.__context__
        return False


def _read(paths: Sequence[str], schema: Schema) -> Any:
    """One partition of a collection: the files' rows, in the order of the paths."""
    return CudfBackend().from_arrow(read_files(paths), schema)


def _names(frame: Any) -> tuple[str, ...]:
    if not isinstance(frame, library().DataFrame):
        raise SchemaError(
            f"the function gave a {type(frame).__name__}, not a cuDF DataFrame",
            hint="Return the frame; for a series, .reset_index() or .to_frame() makes one.",
        )
    return unique_names(list(frame.columns))


def _column(series: Any) -> Any:
    """The column on the host; labels as text, since their codes mean nothing outside this part."""
    values = series.to_arrow()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _field(empty: Any, name: str, before: Field | None) -> Field:
    kind = empty.to_arrow().type
    return returned_labels(name, before) if pa.types.is_dictionary(kind) else returned_field(name, kind, before)
