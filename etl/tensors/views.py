"""Arrow columns as NumPy arrays and back, without a copy where the bits allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Column: TypeAlias = Any
"""A pyarrow Array of whatever type: the stubs know the attributes of each type, not of one known by its `type`."""


def buffer_of(values: NDArray[Any], /) -> pa.Buffer:
    """The bytes of a contiguous array, shared."""
    shared: Any = np.ascontiguousarray(values).reshape(-1).view(np.uint8)  # the stubs know no buffer protocol
    return pa.py_buffer(shared)


def column_of(kind: pa.DataType, values: NDArray[Any], /) -> Column:
    """A fixed-width Arrow array without NULLs that shares the array's memory.

    Of a NumPy array, `pa.array` and `take` ask pandas whether it is a frame of its, and import it for that.
    """
    return pa.Array.from_buffers(kind, len(values), [None, buffer_of(values)])


def values_of(column: Column, dtype: DTypeLike, /) -> NDArray[Any]:
    """The fixed-width values of a column, [rows], shared; NULL slots hold whatever is there."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    kind = np.dtype(dtype)
    return np.frombuffer(data, kind, count=len(column), offset=column.offset * kind.itemsize)


def bits_of(data: pa.Buffer | None, offset: int, rows: int, /) -> NDArray[np.bool_]:
    """Bits as bools, [rows]; all True without a buffer."""
    if data is None:
        return np.ones(rows, np.bool_)
    first = offset // 8
    shared: Any = data  # as above
    whole = np.frombuffer(shared, np.uint8)[first : (offset + rows + 7) // 8]
    bits = np.unpackbits(whole, bitorder="little")[offset - first * 8 : offset - first * 8 + rows]
    return bits.view(np.bool_)


def valid_of(column: Column, /) -> NDArray[np.bool_]:
    """True where a value is present, [rows]."""
    return bits_of(column.buffers()[0], column.offset, len(column))


def shown(column: Column, row: int, /) -> str:
    """One value for messages, whatever it is: Python has no moments beyond year 9999, and none of nanoseconds."""
    kind: Any = column.type
    if getattr(kind, "unit", "") != "ns":
        try:
            return str(column[row].as_py())
        except (ValueError, OverflowError):
            pass
    text = "" if pa.types.is_duration(kind) else str(column.slice(row, 1).cast(pa.string())[0].as_py())
    if text and "out of range" not in text:
        return text
    number = column.slice(row, 1).view(f"int{kind.bit_width}")[0].as_py()
    return f"{number} {getattr(kind, 'unit', 'days' if kind == pa.date32() else 'ms')}"


def bitmap_of(column: Column, /) -> pa.Buffer | None:
    """The validity bits from bit 0, whatever the column's offset; None without NULLs."""
    if not column.null_count:
        return None
    if not column.offset:
        shared: pa.Buffer | None = column.buffers()[0]
        return shared
    return packed(valid_of(column))


def packed(mask: NDArray[np.bool_], /) -> pa.Buffer:
    """Bools as Arrow's bits."""
    return buffer_of(np.packbits(mask, bitorder="little"))


def mask_of(mask: NDArray[np.bool_], /) -> Column:
    """Bools as an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, packed(mask)])
