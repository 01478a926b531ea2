"""Steps that bring numbers to one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError, DataError
from etl.core.schema import Schema
from etl.engine import frames
from etl.transforms.base import listed
from etl.transforms.figures import FiguresOf, filled, is_number, merged, moments
from etl.transforms.host import Values, floats_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows

_WHOLE = 1 << 53
"""From here on float64 does not hold every integer."""
_NEAR = 1 << 62
"""Integers so far from another differ from it by less than 2^63."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Standardize:
    """(x - mean) / std of the train rows, as float32; NULL stays NULL, NaN and infinities stay what they are.

    Computed in float64 and rounded once. A column whose values are all equal becomes 0.

    Attributes:
        columns: Their names.
        ddof: The variance is divided by n - ddof: 0, as in scikit-learn, or 1.
        nan: "skip": NaN is not among what mean and std are of; "error": it is refused.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "standardize"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    ddof: int = 0
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self, columns: str | list[str] | tuple[str, ...], *, ddof: int = 0, nan: Literal["skip", "error"] = "skip"
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Standardize"))
        if ddof not in (0, 1) or isinstance(ddof, bool):
            raise ConfigError(f"Standardize: ddof is {ddof!r}", hint="Give 0 or 1.")
        if nan not in ("skip", "error"):
            raise ConfigError(f"Standardize: nan is {nan!r}", hint='Give "skip" or "error".')
        object.__setattr__(self, "ddof", ddof)
        object.__setattr__(self, "nan", nan)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns; those standardized are float32."""
        given.require(*self.columns)
        for name in self.columns:
            if not is_number(given.field(name).type):
                raise ConfigError(
                    f"Standardize({name!r}): {name} is {given.field(name).type}, not a number",
                    hint="Leave it out, or make a number of it in the function.",
                    column=name,
                )
        made = {n: replace(given.field(n), type=pa.float32(), vocabulary=None, note="") for n in self.columns}
        return Schema(tuple(made.get(f.name, f) for f in given))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments."""
        return FiguresOf(given, self.columns, part)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled_with: Mapping[str, Any], /) -> State:
        """Column → n, mean and std, float64."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind, figures = given.field(name).type, state[name]
            if name in filled_with:
                figures = filled(figures, filled_with[name], kind)
            if figures["nan"] and self.nan == "error":
                raise DataError(
                    f"Standardize({name!r}): {figures['nan']} values of {name} are NaN in the rows that are fitted on",
                    hint='Write nan="skip", or clear them in the function with frames.nan_to_null.',
                    column=name,
                )
            known = moments(figures, kind)
            if known.n <= self.ddof:
                raise DataError(
                    f"Standardize({name!r}): column {name} has {known.n} values in the rows that are fitted on",
                    hint="Leave the column out, or fit on more rows.",
                    column=name,
                )
            std = math.sqrt(known.m2 / (known.n - self.ddof))
            if not (math.isfinite(std) and math.isfinite(float(known.mean))):
                raise DataError(f"Standardize({name!r}): the spread of {name} is beyond float64", column=name)
            # Of equal floats the rounding of their mean may leave a spread that there is not.
            least = abs(float(known.mean)) * 2.0**-52 if isinstance(known.mean, float) else 0.0
            found[name] = {"n": known.n, "mean": float(known.mean), "std": std if std > least else 0.0}
            if pa.types.is_decimal(kind) and std and abs(float(known.mean)) * 2.0**-53 > std * 2.0**-24:
                found[name] |= {"coarse": True}
            if pa.types.is_integer(kind):
                base = round(Fraction(known.mean))
                found[name] |= {"base": base, "rest": float(Fraction(known.mean) - base)}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns without a spread, and decimals whose spread is lost in float64."""
        flat = [n for n in self.columns if state[n]["std"] == 0.0]
        coarse = [n for n in self.columns if "coarse" in state[n]]
        return (
            *(f"all values of {name} that it was fitted on are equal: it is 0 after Standardize" for name in flat),
            *(
                f"the values of {name} lie so near each other, for their size, that float64 holds little of their "
                "spread: subtract a constant in the function before Standardize"
                for name in coarse
            ),
        )

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns standardized."""
        del given
        made: dict[str, Values] = {}
        for name in self.columns:
            column, std = rows[name], state[name]["std"]
            apart = _apart_on_host(column, state[name])
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = apart / std if std else np.where(np.isfinite(apart), 0.0, apart)
            made[name] = Values(_narrow_on_host(scaled, column, rows, name), _valid_of(column))
        return rows.with_columns(made)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the columns standardized."""
        made = frame.copy(deep=False)
        for name in self.columns:
            std = state[name]["std"]
            unsigned = pa.types.is_unsigned_integer(given.field(name).type)
            apart = (_apart_unsigned if unsigned else _apart)(frame[name], state[name])
            scaled = apart / std if std else apart.where(~_finite(apart), 0.0)
            made[name] = _narrow(scaled, name)
        return made


def _apart_on_host(column: Values, figures: State) -> NDArray[np.float64]:
    """The difference from the mean, float64; large integers are centred as such first, float64 does not hold them."""
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


def _narrow_on_host(wide: NDArray[np.float64], column: Values, rows: Rows, name: str) -> NDArray[np.float32]:
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
            raise rows.refused(name, row, f"its standardized value {wide[row]} is beyond float32")
    return narrow


def _valid_of(column: Values) -> NDArray[np.bool_] | None:
    return column.present if column.nulls else None


def _apart(series: Any, figures: State) -> Any:
    """The difference from the mean, float64; large integers are centred as such first, float64 does not hold them."""
    plain = frames.to_float(series) - figures["mean"]
    base = figures.get("base", 0)
    if abs(base) < _WHOLE:
        return plain
    near = ((series >= max(base - _NEAR, _LEAST)) & (series <= min(base + _NEAR, _MOST))).fillna(value=False)
    return plain.where(~near, frames.to_float(series.where(near) - base) - figures["rest"])


def _apart_unsigned(series: Any, figures: State) -> Any:
    """The same of numbers that have no sign: what is above and what is below, since a difference would wrap."""
    base = figures["base"]
    if base < _WHOLE:
        return frames.to_float(series) - figures["mean"]
    lower = (series < base).fillna(value=False)
    above = frames.to_float(series.where(~lower) - base)
    return above.where(~lower, -frames.to_float(base - series.where(lower))) - figures["rest"]


def _narrow(series: Any, name: str) -> Any:
    """float64 rounded to float32.

    Raises:
        CastError: A finite value is beyond float32.
    """
    most = 3.4028235677973366e38  # half a step above the greatest float32: from here on rounding gives infinity
    if bool((_finite(series) & (abs(series) >= most).fillna(value=False)).any()):
        raise CastError(f"a standardized value of {name} is beyond float32", column=name)
    return frames.to_float(series, "float32")


def _finite(series: Any) -> Any:
    """Where a value is neither NULL, NaN nor infinite."""
    return (abs(series) < math.inf).fillna(value=False)
