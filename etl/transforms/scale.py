"""Steps that bring numbers to one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.engine import frames
from etl.transforms.base import listed
from etl.transforms.bykey import finish_by, merge_by, observe_by, standardized_by
from etl.transforms.counts import key_type
from etl.transforms.extremes import FromExtremes, known_extremes
from etl.transforms.figures import FiguresOf, merged, moments, skipped_of
from etl.transforms.figures import filled as with_filled
from etl.transforms.host import floats_of
from etl.transforms.quantiles import FromQuantiles, quantiles_of, two_quantiles
from etl.transforms.reals import (
    at,
    check_numbers,
    clipped_series,
    finite,
    level,
    minus,
    narrow_series,
    one_of,
    real,
    series_minus,
    skip_or_error,
    with_reals,
    with_types,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows, Values
    from etl.transforms.reals import Maker


@dataclass(frozen=True, slots=True)
class Standardize:
    """(x - mean) / std of the train rows, as float32; NULL stays NULL, NaN and infinities stay what they are.

    Computed in float64 and rounded once. A column whose values are all equal becomes 0.

    Attributes:
        columns: Their names.
        ddof: The variance is divided by n - ddof: 0, as in scikit-learn, or 1.
        nan: "skip": NaN is not among what mean and std are of; "error": it is refused.
        by: A key, each of whose values has its own mean and std; NULL is one. None: all rows have one.
        unseen: What a key that was never seen gets: "global", the mean and std of all rows, or "error".

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "standardize"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    ddof: int = 0
    nan: Literal["skip", "error"] = "skip"
    by: str | None = None
    unseen: Literal["global", "error"] = "global"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        ddof: int = 0,
        nan: Literal["skip", "error"] = "skip",
        by: str | None = None,
        unseen: Literal["global", "error"] = "global",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Standardize"))
        if ddof not in (0, 1) or isinstance(ddof, bool):
            raise ConfigError(f"Standardize: ddof is {ddof!r}", hint="Give 0 or 1.")
        if nan not in ("skip", "error"):
            raise ConfigError(f"Standardize: nan is {nan!r}", hint='Give "skip" or "error".')
        object.__setattr__(self, "ddof", ddof)
        if unseen not in ("global", "error"):
            raise ConfigError(f"Standardize: unseen is {unseen!r}", hint='Give "global" or "error".')
        key = None if by is None else listed(by, "Standardize")[0]
        if key in self.columns:
            raise ConfigError(f"Standardize: {key} would be standardized by itself")
        object.__setattr__(self, "nan", nan)
        object.__setattr__(self, "by", key)
        object.__setattr__(self, "unseen", unseen)

    @property
    def framed(self) -> bool:
        """Not by key, whose figures are looked up on the host."""
        return self.by is None

    @property
    def knows_fills(self) -> bool:
        """Not by key: how many NULLs each key has is not observed."""
        return self.by is None

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, and the key."""
        return self.columns if self.by is None else (*self.columns, self.by)

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns; those standardized are float32."""
        check_numbers(given, self.columns, "Standardize")
        if self.by is not None:
            given.require(self.by)
            key_type(given.field(self.by), "Standardize(by=…)")
        return with_types(given, self.columns, pa.float32())

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments."""
        figures = FiguresOf(given, self.columns, part)
        return figures if self.by is None else observe_by(figures, given, self.by, self.columns)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        if self.by is not None:
            return merge_by(left, right, self.columns)
        return {name: merged(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled_with: Mapping[str, Any], /) -> State:
        """Column → n, mean and std, float64."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind, figures = given.field(name).type, state[name]
            if name in filled_with:
                figures = with_filled(figures, filled_with[name], kind)
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
            found[name] = {"n": known.n, "std": std if std > least else 0.0, **at(known.mean, kind)}
            found[name] |= {"skipped": skipped_of(figures)}
            if self.by is not None:
                found[name] |= finish_by(state[name], self.ddof, whole=pa.types.is_integer(kind))
            if pa.types.is_decimal(kind) and std and abs(float(known.mean)) * 2.0**-53 > std * 2.0**-24:
                found[name] |= {"coarse": True}
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
        if self.by is None:
            return with_reals(rows, self.columns, "standardized", lambda name: _ratio(state[name], "std"))
        by, refuse = self.by, self.unseen == "error"
        return with_reals(
            rows, self.columns, "standardized", lambda name: standardized_by(rows, by, state[name], refuse=refuse)
        )

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the columns standardized."""
        made = frame.copy(deep=False)
        for name in self.columns:
            std = state[name]["std"]
            apart = series_minus(frame[name], state[name], given.field(name).type)
            scaled = apart / std if std else apart.where(~finite(apart), 0.0)
            made[name] = narrow_series(scaled, frames.to_float(frame[name]), name, "standardized")
        return made


@dataclass(frozen=True, slots=True)
class MinMax(FromExtremes):
    """The least value of the train rows becomes `low`, the greatest `high`, others lie between in proportion; float32.

    A value beyond them is not clipped unless that is asked for; it is counted as "out_of_range". A column whose values
    are all equal becomes `low`. NULL stays NULL, NaN stays NaN; infinities are not among the extremes.

    Attributes:
        columns: Their names.
        low: What the least becomes.
        high: What the greatest becomes.
        clip: Values beyond become `low` or `high`.
        nan: "skip": NaN does not count; "error": it is refused.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "min_max"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0
    clip: bool = False
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        low: float = 0.0,
        high: float = 1.0,
        clip: bool = False,
        nan: Literal["skip", "error"] = "skip",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "MinMax"))
        low, high = real(low, "MinMax", "low"), real(high, "MinMax", "high")
        if not low < high:
            raise ConfigError(f"MinMax: low is {low!r} and high {high!r}", hint="low is less than high.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "clip", bool(clip))
        object.__setattr__(self, "nan", skip_or_error(nan, "MinMax"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "MinMax")
        return with_types(given, self.columns, pa.float32())

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → least and greatest value, and what is subtracted and divided by."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            least, most = known_extremes("MinMax", name, state[name], kind, filled.get(name), self.nan)
            figures = at(least, kind) | {"mean": float(floats_of(one_of(least, kind))[0])}
            # As rows are scaled, so that the greatest becomes `high` and nothing that was seen is out of range.
            with np.errstate(over="ignore"):
                width = float(minus(one_of(most, kind), figures)[0])
            if not math.isfinite(width):
                raise DataError(f"MinMax({name!r}): the range of {name} is beyond float64", column=name)
            found[name] = {"min": float(least), "max": float(most), "width": width, **figures}
            found[name] |= {"skipped": skipped_of(state[name], filled=name in filled)}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns whose values are all equal."""
        flat = [name for name in self.columns if state[name]["width"] == 0.0]
        return tuple(f"all values of {n} that it was fitted on are equal: it is {self.low} after MinMax" for n in flat)

    @property
    def _plain(self) -> bool:
        """Whether nothing is left to do once numbers are from 0 to 1."""
        return not self.clip and self.low == 0.0 and self.high == 1.0

    def _scaled(self, rows: Rows, name: str, figures: State) -> Maker:
        """What makes numbers of numbers, and counts those that are out of range."""
        width, span = figures["width"], self.high - self.low
        plain = self._plain

        def make(piece: Values, start: int) -> NDArray[np.float64]:
            del start
            apart = minus(piece, figures)
            beyond = (apart < 0.0) | (apart > width)
            if np.count_nonzero(beyond):
                rows.counted(name, "out_of_range", int(np.count_nonzero(beyond & piece.present)))
            if not width:
                apart = level(apart, self.low)
            else:
                apart /= width
                if plain:
                    return apart
                apart *= span
                apart += self.low
            return np.clip(apart, self.low, self.high) if self.clip else apart

        return make

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns scaled."""
        del given
        return with_reals(rows, self.columns, "scaled", lambda name: self._scaled(rows, name, state[name]))

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the columns scaled."""
        made = frame.copy(deep=False)
        for name in self.columns:
            width = state[name]["width"]
            apart = series_minus(frame[name], state[name], given.field(name).type)
            if width:
                scaled = apart / width
                scaled = scaled if self._plain else scaled * (self.high - self.low) + self.low
            else:
                scaled = apart.where(~finite(apart), self.low)
            if self.clip:
                scaled = clipped_series(scaled, self.low, self.high)
            made[name] = narrow_series(scaled, frames.to_float(frame[name]), name, "scaled")
        return made


@dataclass(frozen=True, slots=True)
class MaxAbs(FromExtremes):
    """x / the greatest absolute value of the train rows, as float32; 0 stays 0. A column of zeros stays 0.

    NULL stays NULL, NaN stays NaN; infinities are not among the extremes.

    Attributes:
        columns: Their names.
        nan: "skip": NaN does not count; "error": it is refused.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "max_abs"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    nan: Literal["skip", "error"] = "skip"

    def __init__(self, columns: str | list[str] | tuple[str, ...], *, nan: Literal["skip", "error"] = "skip") -> None:
        object.__setattr__(self, "columns", listed(columns, "MaxAbs"))
        object.__setattr__(self, "nan", skip_or_error(nan, "MaxAbs"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "MaxAbs")
        return with_types(given, self.columns, pa.float32())

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → the greatest absolute value."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            least, most = known_extremes("MaxAbs", name, state[name], kind, filled.get(name), self.nan)
            skipped = skipped_of(state[name], filled=name in filled)
            found[name] = {"max_abs": float(max(abs(least), abs(most))), "skipped": skipped}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns of zeros."""
        flat = [name for name in self.columns if state[name]["max_abs"] == 0.0]
        return tuple(f"all values of {n} that it was fitted on are 0: it is 0 after MaxAbs" for n in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns scaled."""
        del given
        return with_reals(rows, self.columns, "scaled", lambda name: _share(state[name]["max_abs"]))

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the columns scaled."""
        del given
        made = frame.copy(deep=False)
        for name in self.columns:
            most, wide = state[name]["max_abs"], frames.to_float(frame[name])
            scaled = wide / most if most else wide.where(~finite(wide), 0.0)
            made[name] = narrow_series(scaled, frames.to_float(frame[name]), name, "scaled")
        return made


@dataclass(frozen=True, slots=True)
class Robust(FromQuantiles):
    """(x - median) / (q3 - q1) of the train rows, as float32: outliers do not move it.

    A column whose quantiles are equal becomes 0. NULL stays NULL, NaN stays NaN; infinities are not among the values.

    Attributes:
        columns: Their names.
        quantiles: Between which two quantiles the range is taken.
        exact: Keep every distinct value, however many; else from a million on quantiles are within 2^-9 of their size.
        nan: "skip": NaN does not count; "error": it is refused.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "robust"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    quantiles: tuple[float, float] = (0.25, 0.75)
    exact: bool = False
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        quantiles: tuple[float, float] = (0.25, 0.75),
        exact: bool = False,
        nan: Literal["skip", "error"] = "skip",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Robust"))
        object.__setattr__(self, "quantiles", two_quantiles(quantiles, "Robust"))
        object.__setattr__(self, "exact", bool(exact))
        object.__setattr__(self, "nan", skip_or_error(nan, "Robust"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "Robust")
        return with_types(given, self.columns, pa.float32())

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → median and range."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            known = quantiles_of("Robust", name, state[name], kind, filled.get(name), self.nan)
            low, middle, high = known.at(self.quantiles[0]), known.at(0.5), known.at(self.quantiles[1])
            found[name] = {
                "n": known.n,
                "range": float(high - low),
                "approximate": known.approximate,
                **at(middle, kind),
            }
            found[name] |= {"skipped": skipped_of(state[name], filled=name in filled)}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns without a range."""
        flat = [name for name in self.columns if state[name]["range"] == 0.0]
        return tuple(f"the quantiles of {n} that it was fitted on are equal: it is 0 after Robust" for n in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns scaled."""
        del given
        return with_reals(rows, self.columns, "scaled", lambda name: _ratio(state[name], "range"))

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the columns scaled."""
        made = frame.copy(deep=False)
        for name in self.columns:
            width = state[name]["range"]
            apart = series_minus(frame[name], state[name], given.field(name).type)
            scaled = apart / width if width else apart.where(~finite(apart), 0.0)
            made[name] = narrow_series(scaled, frames.to_float(frame[name]), name, "scaled")
        return made


def _ratio(figures: State, by: str) -> Maker:
    """What subtracts and divides; 0 where there is nothing to divide by."""
    width = figures[by]

    def make(piece: Values, start: int) -> NDArray[np.float64]:
        del start
        apart = minus(piece, figures)
        if not width:
            return level(apart, 0.0)
        apart /= width
        return apart

    return make


def _share(most: float) -> Maker:
    """What divides; 0 where there is nothing to divide by."""

    def make(piece: Values, start: int) -> NDArray[np.float64]:
        del start
        wide = floats_of(piece)
        return wide / most if most else level(wide, 0.0)

    return make
