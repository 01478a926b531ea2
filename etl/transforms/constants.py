"""Values that a user wrote in a step, as values of a column's own type."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.transforms.literals import reader_of

if TYPE_CHECKING:
    from etl.core.schema import Field

DIGITS = Context(prec=80)
"""More than any decimal has."""


def number_of(value: Any) -> Any:
    """A value of Python's as NumPy columns hold it."""
    carried = carried_value(value)
    if isinstance(carried, timedelta):
        return carried // timedelta(microseconds=1)
    if isinstance(value, datetime):
        return (carried - datetime(1970, 1, 1, tzinfo=carried.tzinfo)) // timedelta(microseconds=1)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else carried


def constant_of(value: object, field: Field, step: str = "FillNull", /) -> Any:
    """The value as one of the column's own type.

    Args:
        value: As it was written.
        field: The column.
        step: Who asks, for the error.

    Raises:
        ConfigError: It is none.
    """
    kind: Any = field.type
    if isinstance(kind, pa.DictionaryType):
        if not isinstance(value, str) or (field.vocabulary is not None and value not in field.vocabulary):
            raise _unfit(step, value, field, "none of its labels")
        return value
    given: Any = value
    if not _is_of(given, kind):
        raise _unfit(step, value, field, f"no {kind}")
    if pa.types.is_timestamp(kind) and (given.tzinfo is None) != (kind.tz is None):
        raise _unfit(step, value, field, "without a zone" if kind.tz else "with a zone")
    if pa.types.is_decimal(kind) and not isinstance(given, Decimal):
        given = Decimal(str(given))
    elif pa.types.is_integer(kind):
        given = int(given)
    try:
        if pa.types.is_floating(kind):
            given = float(given)
        made = _held(given, kind)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise _unfit(step, value, field, f"no {kind}") from error
    if isinstance(made, float) and math.isinf(made) and made != given:
        raise _unfit(step, value, field, f"beyond {kind}")
    if isinstance(made, float) and isinstance(value, int) and made != value:
        raise _unfit(step, value, field, f"no {kind}")
    return made


def _held(given: Any, kind: Any) -> Any:
    """What a column of the type makes of a value.

    Arrow's scalars would do it, and import pandas, which a service that loads a fit has no use for.

    Raises:
        ArithmeticError, TypeError, ValueError: It is none of the type.
    """
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            return float(np.dtype(kind.to_pandas_dtype()).type(given))
    read = reader_of(kind)(given)
    return Decimal(read).scaleb(-kind.scale, DIGITS) if pa.types.is_decimal(kind) else given


def _is_of(value: object, kind: pa.DataType) -> bool:
    """Whether a value of Python's may stand for one of a column."""
    types = pa.types
    if isinstance(value, bool) or types.is_boolean(kind):
        return isinstance(value, bool) and bool(types.is_boolean(kind))
    if types.is_integer(kind):
        return isinstance(value, int) or (isinstance(value, float | Decimal) and value % 1 == 0)
    if types.is_floating(kind):
        return isinstance(value, int | float)
    if types.is_decimal(kind):
        return isinstance(value, int | float | Decimal)
    if types.is_date(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    known = (types.is_string, str), (types.is_large_string, str), (types.is_timestamp, datetime), (types.is_time, time)
    return any(is_kind(kind) and isinstance(value, one) for is_kind, one in (*known, (types.is_duration, timedelta)))


def carried_value(value: Any) -> Any:
    """The value as frames hold it: dates are instants of midnight, times of day the span since then."""
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time())
    if isinstance(value, time):
        return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return value


def _unfit(step: str, value: object, field: Field, why: str) -> ConfigError:
    return ConfigError(
        f"{step}({field.name!r}, {value!r}): column {field.name} is {field.type}, and the value is {why}",
        hint="Give a value of the column's own type" + (", or 'mean'." if step == "FillNull" else "."),
        column=field.name,
    )
