"""Values of Python's as columns for steps, checked one by one: what a caller of a service writes.

Arrow's own way from a list asks pandas whether it knows the values, and imports it for that.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core import buffers
from etl.transforms.host import Values, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MICRO: Final = timedelta(microseconds=1)
_EXACT: Final = Context(prec=80)


def column_of(given: Sequence[Any], kind: Any, /) -> Values:
    """Values and None as a column of the type.

    Args:
        given: Values of Python's or scalars of NumPy; None, NaT and pandas' NA are NULL.
        kind: The declared type.

    Raises:
        ValueError: A value is none of the type; `args[0]` is its place.
    """
    made, read = [], reader_of(kind)
    for row, one in enumerate(given):
        value = _of_numpy(one)
        try:
            made.append(None if value is None else read(value))
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise ValueError(row) from error
    return _column(made, kind)


def reader_of(kind: Any, /) -> Callable[[Any], Any]:
    """What makes of a value the one that a column of the type holds, or raises ValueError, TypeError, OverflowError."""
    types = pa.types
    if types.is_boolean(kind):
        return _bool
    if types.is_integer(kind):
        return _integer_within(kind)
    if types.is_floating(kind):
        return _narrow if kind.bit_width < 64 else _float
    if types.is_decimal(kind):
        return _decimal_of(kind)
    if types.is_timestamp(kind):
        return _zoned if kind.tz is not None else _unzoned
    if types.is_date(kind):
        return _day
    if types.is_time(kind):
        return _time
    if types.is_duration(kind):
        return _span
    if types.is_nested(kind):
        return lambda value: value  # Arrow looks at them
    return _text


def _column(made: list[Any], kind: Any) -> Values:
    types = pa.types
    if types.is_nested(kind):
        # Lists are few in a service, and Arrow alone knows their forms; it imports pandas where that is installed.
        return Values(pa.array(made, type=kind, from_pandas=False))
    if types.is_decimal(kind):
        return Values(buffers.decimals(made, kind if types.is_decimal128(kind) else pa.decimal128(38, kind.scale)))
    if not (is_plain(kind) or types.is_temporal(kind) or types.is_float16(kind)):
        encoded = [None if one is None else one.encode() for one in made]
        return Values(buffers.variable(encoded, pa.string()))
    present = np.array([one is not None for one in made], np.bool_)
    filled = [0 if one is None else one for one in made]
    return Values(np.array(filled, _dtype(kind)), None if present.all() else present)


def _dtype(kind: Any) -> np.dtype[Any]:
    types = pa.types
    if types.is_boolean(kind):
        return np.dtype(np.bool_)
    if types.is_float16(kind):
        return np.dtype(np.float32)
    if types.is_temporal(kind):
        return np.dtype(np.int32 if types.is_date(kind) else np.int64)
    made: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return made


def _of_numpy(value: Any) -> Any:
    """A scalar of NumPy as Python's own; what pandas and NumPy say for NULL as None."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        exact = value.astype(f"{value.dtype.kind}8[us]")
        if np.isnat(value):
            return None
        if exact != value:
            raise ValueError(value)
        return exact.item()
    if isinstance(value, np.generic):
        return value.item()
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or value != int(value):
        raise ValueError(value)
    return int(value)


def _integer_within(kind: Any) -> Callable[[Any], int]:
    signed = pa.types.is_signed_integer(kind)
    least = -(1 << (kind.bit_width - 1)) if signed else 0
    most = (1 << (kind.bit_width - (1 if signed else 0))) - 1

    def read(value: Any) -> int:
        made = _integer(value)
        if not least <= made <= most:
            raise OverflowError(value)
        return made

    return read


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    made = float(value)
    if isinstance(value, int) and int(made) != value:
        raise OverflowError(value)
    return made


def _narrow(value: Any) -> float:
    """For float32: the nearest, as a store would hold it; a finite value never becomes infinite."""
    made = _float(value)
    if math.isfinite(made) and abs(made) >= 3.4028235677973366e38:
        raise OverflowError(value)
    return made


def _decimal_of(kind: Any) -> Callable[[Any], int]:
    limit, scale = 10**kind.precision, kind.scale

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise TypeError(value)
        scaled = Decimal(value).scaleb(scale, _EXACT)
        made = int(scaled)
        if made != scaled or abs(made) >= limit:
            raise OverflowError(value)
        return made

    return read


def _zoned(value: Any) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError(value)
    return _micros(value.astimezone(UTC).replace(tzinfo=None), value)


def _unzoned(value: Any) -> int:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise TypeError(value)
    return _micros(value, value)


def _micros(moment: datetime, value: Any) -> int:
    if hasattr(value, "nanosecond") and value.nanosecond:
        raise ValueError(value)
    return (moment - datetime(1970, 1, 1)) // _MICRO  # noqa: DTZ001 # both sides are without a zone


def _day(value: Any) -> int:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(value)
    return value.toordinal() - date(1970, 1, 1).toordinal()


def _time(value: Any) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise TypeError(value)
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _span(value: Any) -> int:
    if not isinstance(value, timedelta) or (hasattr(value, "nanoseconds") and value.nanoseconds):
        raise TypeError(value)
    return value // _MICRO


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
