"""Arithmetic that steps on numbers share: in float64, large integers exact before it, rounded once to float32.

Each function has two forms that give the same bits: of NumPy on the host, and of a series of pandas or cuDF.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError
from etl.core.schema import Schema
from etl.engine import frames
from etl.transforms.figures import is_number
from etl.transforms.host import floats_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows, Values

_WHOLE = 1 << 53
"""From here on float64 does not hold every integer."""
_NEAR = 1 << 62
"""Integers so far from another differ from it by less than 2^63."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def check_numbers(given: Schema, columns: Sequence[str], step: str, /) -> None:
    """Hold that columns are numbers.

    Raises:
        SchemaError: One is missing.
        ConfigError: One is of another type.
    """
    given.require(*columns)
    for name in columns:
        if not is_number(given.field(name).type):
            raise ConfigError(
                f"{step}({name!r}): {name} is {given.field(name).type}, not a number",
                hint="Leave it out, or make a number of it in the function.",
                column=name,
            )


def with_types(given: Schema, columns: Sequence[str], kind: pa.DataType, /) -> Schema:
    """The schema with these columns of another type."""
    made = {n: replace(given.field(n), type=kind, vocabulary=None, note="") for n in columns}
    return Schema(tuple(made.get(f.name, f) for f in given))


def at(value: Fraction | float, kind: pa.DataType, /) -> dict[str, Any]:
    """A number to subtract from a column, as `minus` takes it: {mean, base?, rest?}."""
    made: dict[str, Any] = {"mean": float(value)}
    if pa.types.is_integer(kind):
        base = round(Fraction(value))
        made |= {"base": base, "rest": float(Fraction(value) - base)}
    return made


def real(value: object, step: str, what: str, /) -> float:
    """An argument that is a finite number.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{step}: {what} is {value!r}", hint="It is a number.")
    return float(value)


def skip_or_error(nan: object, step: str, /) -> str:
    """The argument `nan`.

    Raises:
        ConfigError: It is neither.
    """
    if nan not in ("skip", "error"):
        raise ConfigError(f"{step}: nan is {nan!r}", hint='Give "skip" or "error".')
    return str(nan)


def level(wide: NDArray[np.float64], value: float, /) -> NDArray[np.float64]:
    """One value wherever there is a finite one."""
    return np.where(np.isfinite(wide), value, wide)


def minus(column: Values, figures: State, /) -> NDArray[np.float64]:
    """What is left of numbers once one is subtracted, float64 (n,).

    Args:
        column: Numbers.
        figures: Of `at`: large integers are centred as such first, since float64 does not hold them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        plain: NDArray[np.float64] = floats_of(column) - figures["mean"]
        base, whole = figures.get("base", 0), column.data
        if abs(base) < _WHOLE:
            return plain
        if whole.dtype.kind == "u":
            at = whole.dtype.type(base)
            apart = np.where(whole < at, -(at - whole).astype(np.float64), (whole - at).astype(np.float64))
            return np.asarray(apart - figures["rest"], np.float64)
        near = (whole >= max(base - _NEAR, _LEAST)) & (whole <= min(base + _NEAR, _MOST))
        return np.where(near, (whole - base).astype(np.float64) - figures["rest"], plain)


def narrowed(wide: NDArray[np.float64], column: Values, rows: Rows, name: str, what: str, /) -> NDArray[np.float32]:
    """float64 rounded to float32.

    Raises:
        CastError: A finite value is beyond float32.
    """
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if np.isinf(narrow).any():
        lost = np.isinf(narrow) & np.isfinite(wide) & column.present
        if lost.any():
            row = int(lost.argmax())
            raise rows.refused(name, row, f"its {what} value {wide[row]} is beyond float32")
    return narrow


def mask_in(column: Values, /) -> NDArray[np.bool_] | None:
    """True where a value is present, shape (n,); None: everywhere."""
    return column.present if column.nulls else None


def series_minus(series: Any, figures: State, kind: pa.DataType, /) -> Any:
    """As `minus`, of a series whose column has that type."""
    if pa.types.is_unsigned_integer(kind):
        return _unsigned_minus(series, figures)
    plain = frames.to_float(series) - figures["mean"]
    base = figures.get("base", 0)
    if abs(base) < _WHOLE:
        return plain
    near = ((series >= max(base - _NEAR, _LEAST)) & (series <= min(base + _NEAR, _MOST))).fillna(value=False)
    return plain.where(~near, frames.to_float(series.where(near) - base) - figures["rest"])


def _unsigned_minus(series: Any, figures: State) -> Any:
    """The same of numbers that have no sign: what is above and what is below, since a difference would wrap."""
    base = figures["base"]
    if base < _WHOLE:
        return frames.to_float(series) - figures["mean"]
    lower = (series < base).fillna(value=False)
    above = frames.to_float(series.where(~lower) - base)
    return above.where(~lower, -frames.to_float(base - series.where(lower))) - figures["rest"]


def narrow_series(series: Any, name: str, what: str, /) -> Any:
    """float64 rounded to float32.

    Raises:
        CastError: A finite value is beyond float32.
    """
    most = 3.4028235677973366e38  # half a step above the greatest float32: from here on rounding gives infinity
    if bool((finite(series) & (abs(series) >= most).fillna(value=False)).any()):
        raise CastError(f"a {what} value of {name} is beyond float32", column=name)
    return frames.to_float(series, "float32")


def finite(series: Any, /) -> Any:
    """Where a value is neither NULL, NaN nor infinite."""
    return (abs(series) < math.inf).fillna(value=False)


def clipped_series(series: Any, low: Any, high: Any, /) -> Any:
    """Values beyond the bounds at the bounds, None being no bound; NULL and NaN stay."""
    made = series
    if low is not None:
        made = made.where(~(series < low).fillna(value=False), low)
    if high is not None:
        made = made.where(~(series > high).fillna(value=False), high)
    return made
