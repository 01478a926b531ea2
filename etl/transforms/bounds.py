"""Steps that keep numbers between bounds, which are given or fitted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.late import Late
from etl.transforms.base import InPlace, listed
from etl.transforms.constants import DIGITS, constant_of
from etl.transforms.figures import skipped_of, unit
from etl.transforms.host import Values
from etl.transforms.literals import column_of
from etl.transforms.lookups import FEW
from etl.transforms.quantiles import FromQuantiles, quantiles_of, two_quantiles
from etl.transforms.reals import CHUNK, check_numbers, clipped_series, mask_in, pieces, skip_or_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from etl.core.schema import Field, Schema
    from etl.transforms.base import State
    from etl.transforms.host import Rows
else:
    pc = Late("pyarrow.compute")


@dataclass(frozen=True, slots=True)
class Clip(InPlace):
    """Values beyond bounds become the bounds, and are counted as "clipped"; NULL stays NULL, NaN stays NaN.

    Attributes:
        columns: Numbers.
        low: The least, of the columns' own type; None: no bound.
        high: The greatest.

    Raises:
        ConfigError: No column, no bound, or bounds that do not rise.
    """

    kind: ClassVar[str] = "clip"
    columns: tuple[str, ...]
    low: int | float | Decimal | None = None
    high: int | float | Decimal | None = None

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        low: float | Decimal | None = None,
        high: float | Decimal | None = None,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Clip"))
        bounds = [one for one in (low, high) if one is not None]
        if not bounds or any(isinstance(one, bool) or not isinstance(one, int | float | Decimal) for one in bounds):
            raise ConfigError(f"Clip: low is {low!r}, high is {high!r}", hint="Give a number for one or both.")
        if any(one != one for one in bounds) or (len(bounds) == 2 and Fraction(bounds[0]) > Fraction(bounds[1])):  # noqa: PLR0124 # only NaN differs from itself
            raise ConfigError(f"Clip: low is {low!r}, high is {high!r}", hint="low is not above high.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns."""
        check_numbers(given, self.columns, "Clip")
        for name in self.columns:
            self._bounds(given.field(name))
        return given

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with values within the bounds."""
        del state
        made: dict[str, Values] = {}
        for name in self.columns:
            kind = given.field(name).type  # which holds the bounds: the plan has made sure
            made[name] = clipped(rows, name, _own(self.low, kind), _own(self.high, kind))
        return rows.with_columns(made)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with values within the bounds."""
        del state
        made = frame.copy(deep=False)
        for name in self.columns:
            low, high = self._bounds(given.field(name))
            made[name] = clipped_series(frame[name], low, high)
        return made

    def _bounds(self, field: Field) -> tuple[Any, Any]:
        """Both bounds as values of the column's own type; of one that is not given None.

        Raises:
            ConfigError: The type does not hold one.
        """
        return tuple(None if one is None else constant_of(one, field, "Clip") for one in (self.low, self.high))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Winsorize(FromQuantiles):
    """Values beyond two quantiles of the train rows become those quantiles, rounded to the column's own type.

    NULL stays NULL, NaN stays NaN. What is changed is counted as "clipped".

    Attributes:
        columns: Numbers.
        low: The lower quantile.
        high: The upper quantile.
        exact: Keep every distinct value, however many; else from a million on quantiles are within 2^-9 of their size.
        nan: "skip": NaN does not count; "error": it is refused.

    Raises:
        ConfigError: No column, or quantiles that there are not.
    """

    kind: ClassVar[str] = "winsorize"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    low: float = 0.01
    high: float = 0.99
    exact: bool = False
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        low: float = 0.01,
        high: float = 0.99,
        *,
        exact: bool = False,
        nan: Literal["skip", "error"] = "skip",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Winsorize"))
        low, high = two_quantiles((low, high), "Winsorize")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "exact", bool(exact))
        object.__setattr__(self, "nan", skip_or_error(nan, "Winsorize"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns."""
        check_numbers(given, self.columns, "Winsorize")
        for name in self.columns:
            if pa.types.is_boolean(given.field(name).type):
                raise ConfigError(f"Winsorize({name!r}): {name} is bool", hint="Leave it out.", column=name)
        return given

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → both bounds, decimals as text."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            known = quantiles_of("Winsorize", name, state[name], kind, filled.get(name), self.nan)
            low, high = (rounded(known.at(quantile), kind) for quantile in (self.low, self.high))
            found[name] = {"low": low, "high": high, "n": known.n, "approximate": known.approximate}
            found[name] |= {"skipped": skipped_of(state[name], filled=name in filled)}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns that become one value."""
        flat = [name for name in self.columns if state[name]["low"] == state[name]["high"]]
        return tuple(f"both quantiles of {n} are {state[n]['low']}: it is that after Winsorize" for n in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with values within the quantiles."""
        made: dict[str, Values] = {}
        for name in self.columns:
            low, high = _bounds_in(state[name], given.field(name).type)
            made[name] = clipped(rows, name, low, high)
        return rows.with_columns(made)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with values within the quantiles."""
        made = frame.copy(deep=False)
        for name in self.columns:
            low, high = _bounds_in(state[name], given.field(name).type)
            made[name] = clipped_series(frame[name], low, high)
        return made


def _own(bound: Any, kind: Any) -> Any:
    """A bound that a type holds, as a number of that type."""
    if bound is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(str(bound))
    return int(bound) if pa.types.is_integer(kind) else float(np.dtype(kind.to_pandas_dtype()).type(bound))


def rounded(value: Any, kind: Any, /) -> Any:
    """A number as the nearest value of a column's type (half to even), as a state holds it: decimals as text."""
    if pa.types.is_floating(kind):
        return float(np.dtype(kind.to_pandas_dtype()).type(float(value)))
    steps = round(Fraction(value) / unit(kind))
    return str(Decimal(steps).scaleb(-kind.scale, DIGITS)) if pa.types.is_decimal(kind) else steps


def clipped(rows: Rows, name: str, low: Any, high: Any, /) -> Values:
    """A column within bounds of its own type; what was beyond is counted."""
    column = rows[name]
    data = column.data
    if not isinstance(data, np.ndarray):
        return Values(_clipped_decimals(rows, name, low, high))
    made, count = data, 0
    for start, piece in pieces(column):
        beyond = _beyond(piece.data, low, high)
        if np.count_nonzero(beyond):
            count += int(np.count_nonzero(beyond & piece.present))
            made = data.copy() if made is data else made
            here = made[start : start + CHUNK]
            if low is not None:
                np.maximum(here, low, out=here)
            if high is not None:
                np.minimum(here, high, out=here)
    if made is data:
        return column
    rows.counted(name, "clipped", count)
    return Values(made, mask_in(column))


def _beyond(data: NDArray[Any], low: Any, high: Any) -> NDArray[np.bool_]:
    if low is None:
        return np.asarray(data > high, np.bool_)
    below: NDArray[np.bool_] = data < low
    if high is not None:
        below |= data > high
    return below


def _between(value: Decimal, low: Decimal | None, high: Decimal | None) -> Decimal:
    raised = value if low is None else max(value, low)
    return raised if high is None else min(raised, high)


def _clipped_decimals(rows: Rows, name: str, low: Decimal | None, high: Decimal | None) -> Any:
    data = rows[name].data
    if len(data) <= FEW:  # a service: Arrow's scalars would import pandas
        found = data.to_pylist()
        near = [None if one is None else _between(one, low, high) for one in found]
        rows.counted(name, "clipped", sum(one != other for one, other in zip(found, near, strict=True)))
        return column_of(near, data.type).data
    made = data
    for bound, beyond in ((low, pc.less), (high, pc.greater)):
        if bound is not None:
            limit = pa.scalar(bound, data.type)
            outside = pc.fill_null(beyond(made, limit), False)  # noqa: FBT003 # Arrow's own
            rows.counted(name, "clipped", pc.sum(outside).as_py() or 0)
            made = pc.if_else(outside, limit, made)
    return made


def _bounds_in(figures: Mapping[str, Any], kind: pa.DataType) -> tuple[Any, Any]:
    low, high = figures["low"], figures["high"]
    return (Decimal(low), Decimal(high)) if pa.types.is_decimal(kind) else (low, high)
