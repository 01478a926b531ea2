"""Arithmetic that steps on numbers share: in float64, large integers exact before it, rounded once to float32.

Each function has two forms that give the same bits: of NumPy on the host, and of a series of pandas or cuDF.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from etl.core import buffers
from etl.core.errors import CastError, ConfigError
from etl.core.schema import Schema
from etl.engine import frames
from etl.transforms.figures import is_number
from etl.transforms.host import Values, floats_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

    Maker: TypeAlias = Callable[[Values, int], NDArray[np.float64]]

WHOLE = 1 << 53
"""From here on float64 does not hold every integer."""
CHUNK = 1 << 14
"""Numbers at a time: float64 of so many stay in the cache."""
NEAR = 1 << 62
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


def one_of(value: Any, kind: Any, /) -> Values:
    """One number, exact in a column's type, as a column of that type."""
    if pa.types.is_decimal(kind):
        digits = int(Fraction(value) * 10**kind.scale)
        return Values(buffers.decimals([digits], pa.decimal128(38, kind.scale)))
    dtype = np.bool_ if pa.types.is_boolean(kind) else kind.to_pandas_dtype()
    return Values(np.array([value if pa.types.is_floating(kind) else int(value)], dtype))


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
        column: Numbers; those that are absent may overflow, of which the caller makes NumPy silent.
        figures: Of `at`: large integers are centred as such first, since float64 does not hold them.
    """
    base, whole = figures.get("base", 0), column.data
    if -WHOLE < base < WHOLE:
        plain: NDArray[np.float64] = floats_of(column) - figures["mean"]
        return plain
    if whole.dtype.kind == "u":
        at = whole.dtype.type(base)
        apart = np.where(whole < at, -(at - whole).astype(np.float64), (whole - at).astype(np.float64))
        return np.asarray(apart - figures["rest"], np.float64)
    near = (whole >= max(base - NEAR, _LEAST)) & (whole <= min(base + NEAR, _MOST))
    close = (whole - base).astype(np.float64) - figures["rest"]
    return np.asarray(np.where(near, close, floats_of(column) - figures["mean"]), np.float64)


def with_reals(rows: Rows, columns: Sequence[str], what: str, make: Callable[[str], Maker], /) -> Rows:
    """The rows with columns of numbers made float32: computed in float64 and rounded once.

    Piece by piece, so that what lies between stays in the cache.

    Args:
        rows: The rows.
        columns: Their names.
        what: What the numbers become, for the error.
        make: Gives of a column what gives a new number, float64, for each of a piece whose first row is said. NumPy is
            silent meanwhile, since absent places may hold anything.

    Raises:
        CastError: A number becomes one beyond float32, and was finite.
    """
    with np.errstate(all="ignore"):
        return rows.with_columns({name: _reals(rows, name, what, make(name)) for name in columns})


def _reals(rows: Rows, name: str, what: str, make: Maker) -> Values:
    column = rows[name]
    count = len(column)
    if count <= CHUNK:
        return Values(_narrowed(make(column, 0), column, rows, name, what, 0), mask_in(column))
    narrow = np.empty(count, np.float32)
    for start, piece in pieces(column):
        narrow[start : start + CHUNK] = _narrowed(make(piece, start), piece, rows, name, what, start)
    return Values(narrow, mask_in(column))


def pieces(column: Values, /) -> Iterator[tuple[int, Values]]:
    """The column in pieces that the cache holds, each with its first row."""
    for start in range(0, len(column), CHUNK):
        here = slice(start, start + CHUNK)
        yield start, Values(column.data[here], None if column.valid is None else column.valid[here])


def _narrowed(
    wide: NDArray[np.float64], column: Values, rows: Rows, name: str, what: str, start: int
) -> NDArray[np.float32]:
    narrow = wide.astype(np.float32)
    beyond = math.isinf(narrow[0]) if len(narrow) == 1 else np.isinf(narrow).any()
    if beyond:
        lost = np.isinf(narrow) & np.isfinite(floats_of(column)) & column.present
        if lost.any():
            row = int(lost.argmax())
            raise rows.refused(name, start + row, f"its {what} value {wide[row]} is beyond float32")
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
    if abs(base) < WHOLE:
        return plain
    near = ((series >= max(base - NEAR, _LEAST)) & (series <= min(base + NEAR, _MOST))).fillna(value=False)
    return plain.where(~near, frames.to_float(series.where(near) - base) - figures["rest"])


def _unsigned_minus(series: Any, figures: State) -> Any:
    """The same of numbers that have no sign: what is above and what is below, since a difference would wrap."""
    base = figures["base"]
    if base < WHOLE:
        return frames.to_float(series) - figures["mean"]
    lower = (series < base).fillna(value=False)
    above = frames.to_float(series.where(~lower) - base)
    return above.where(~lower, -frames.to_float(base - series.where(lower))) - figures["rest"]


def narrow_series(series: Any, source: Any, name: str, what: str, /) -> Any:
    """float64 rounded to float32.

    Args:
        series: What became of numbers.
        source: The numbers, as floats: those that are infinite may stay it.
        name: The column's name.
        what: What they became, for the error.

    Raises:
        CastError: A number became one beyond float32, and was finite.
    """
    most = 3.4028235677973366e38  # half a step above the greatest float32: from here on rounding gives infinity
    if bool((finite(source) & (abs(series) >= most).fillna(value=False)).any()):
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
