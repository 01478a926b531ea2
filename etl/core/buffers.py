"""Arrow arrays from Python values by way of numpy: `pa.array(list)` imports pandas, which costs more than a read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray


def _valid(values: Sequence[Any]) -> pa.Buffer | None:
    """The validity bits; None when every value is there."""
    if None not in values:
        return None
    there = np.fromiter((v is not None for v in values), np.bool_, len(values))
    return buffer(np.packbits(there, bitorder="little"))


def buffer(data: NDArray[Any], /) -> pa.Buffer:
    """A numpy array's memory, shared."""
    return pa.py_buffer(data.data)


def fixed(values: Sequence[Any], dtype: DTypeLike, kind: pa.DataType, /) -> pa.Array[Any]:
    """Numbers and None as an array of a fixed-width type whose memory is that of `dtype`.

    Raises:
        OverflowError: A number is outside `dtype`.
    """
    valid = _valid(values)
    data = np.array(values if valid is None else [0 if v is None else v for v in values], dtype=dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, buffer(data)])


def booleans(values: Sequence[Any], /) -> pa.Array[Any]:
    """Truth values and None as a boolean array."""
    bits = np.packbits(np.array([bool(v) for v in values], dtype=np.bool_), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [_valid(values), buffer(bits)])


def variable(values: Sequence[Any], kind: pa.DataType, /) -> pa.Array[Any]:
    """Bytes-like values and None as string or binary; whether text is UTF-8 is not looked at.

    The characters of all values together must stay below 2^31.
    """
    valid = _valid(values)
    filled = values if valid is None else [b"" if v is None else v for v in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, filled), np.int32, len(values)), out=offsets[1:])
    return pa.Array.from_buffers(kind, len(values), [valid, buffer(offsets), pa.py_buffer(b"".join(filled))])


def decimals(scaled: Sequence[int | None], kind: pa.DataType, /) -> pa.Array[Any]:
    """Integers scaled by 10^s and None as decimal128 or decimal256."""
    width = kind.bit_width // 8
    data = b"".join((v or 0).to_bytes(width, "little", signed=True) for v in scaled)
    return pa.Array.from_buffers(kind, len(scaled), [_valid(scaled), pa.py_buffer(data)])


def short_decimals(
    scaled: NDArray[np.int64], values: Sequence[Any], kind: pa.Decimal128Type[Any, Any], /
) -> pa.Array[Any]:
    """The same from scaled int64; where `values` has None the result is NULL."""
    words = np.empty((len(scaled), 2), np.int64)
    words[:, 0] = scaled
    words[:, 1] = scaled >> 63
    return pa.Array.from_buffers(kind, len(scaled), [_valid(values), buffer(words)])
