"""Steps that bend the scale of numbers: logarithms and powers, computed in float64 and rounded once to float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError, DataError
from etl.engine import frames
from etl.transforms.base import InPlace, listed
from etl.transforms.figures import skipped_of
from etl.transforms.host import floats_of, values_in
from etl.transforms.powers import CHUNK, bent, count_of, likeliest, merged_powers, neutral, nothing, observed
from etl.transforms.reals import check_numbers, level, narrow_series, with_reals, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows, Values
    from etl.transforms.reals import Maker


@dataclass(frozen=True, slots=True)
class Log1p(InPlace):
    """log(1 + x), as float32; NULL stays NULL, NaN stays NaN. A value below -1, or -1 itself, is refused.

    Attributes:
        columns: Numbers.

    Raises:
        ConfigError: No column.
    """

    kind: ClassVar[str] = "log1p"
    columns: tuple[str, ...]

    def __init__(self, columns: str | list[str] | tuple[str, ...]) -> None:
        object.__setattr__(self, "columns", listed(columns, "Log1p"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "Log1p")
        return with_types(given, self.columns, pa.float32())

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with logarithms."""
        del given, state
        return with_reals(rows, self.columns, "logarithmic", lambda name: _logarithms(rows, name))

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with logarithms."""
        del given, state
        made = frame.copy(deep=False)
        for name in self.columns:
            wide = frames.to_float(frame[name])
            if bool((wide <= -1.0).fillna(value=False).any()):
                raise CastError(f"a value of {name} has no logarithm of one more", column=name)
            # pandas' memory holds anything behind NULL, of which NumPy would warn.
            found = np.log1p(frames.fill_null(wide, 0.0)).where(~frames.is_null(wide))
            made[name] = narrow_series(found, wide, name, "logarithmic")
        return made


@dataclass(frozen=True, slots=True)
class Power(InPlace):
    """A power of numbers that makes their distribution most like a normal one, then standardized; float32.

    The power is the most likely one of -4, -3.95 … 4. NULL stays NULL, NaN stays NaN.

    Attributes:
        columns: Numbers.
        method: "yeo-johnson", or "box-cox" for values above 0; others are refused then.
        standardize: Subtract the mean and divide by the standard deviation of what comes of it.
        nan: "skip": NaN does not count; "error": it is refused.

    Raises:
        ConfigError: No column, or a method that there is not.
    """

    kind: ClassVar[str] = "power"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    method: Literal["yeo-johnson", "box-cox"] = "yeo-johnson"
    standardize: bool = True
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        method: Literal["yeo-johnson", "box-cox"] = "yeo-johnson",
        *,
        standardize: bool = True,
        nan: Literal["skip", "error"] = "skip",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Power"))
        if method not in ("yeo-johnson", "box-cox"):
            raise ConfigError(f"Power: method is {method!r}", hint='Give "yeo-johnson" or "box-cox".')
        if nan not in ("skip", "error"):
            raise ConfigError(f"Power: nan is {nan!r}", hint='Give "skip" or "error".')
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "standardize", bool(standardize))
        object.__setattr__(self, "nan", nan)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "Power")
        return with_types(given, self.columns, pa.float32())

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments of every power that is tried."""
        del part
        return _Powers(self, given)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_powers(left[name], right[name], self.method) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → lambda, n, and center, mean and std of what comes of it."""
        del given, filled
        return {name: self._fitted(name, state[name]) for name in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns whose values are all equal."""
        flat = [name for name in self.columns if state[name]["std"] == 0.0]
        return tuple(f"all values of {name} that it was fitted on are equal: it is 0 after Power" for name in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with powers."""
        del given
        return with_reals(rows, self.columns, "bent", lambda name: self._bent(rows, name, state[name]))

    def _bent(self, rows: Rows, name: str, figures: State) -> Maker:
        """What makes powers of numbers."""
        power, mean, std = figures["lambda"], figures["mean"], figures["std"]
        center = figures["center"] if self.standardize else neutral(self.method)

        def make(piece: Values, start: int) -> NDArray[np.float64]:
            wide = floats_of(piece)
            if self.method == "box-cox":
                _refuse(wide <= 0.0, piece, rows, name, start, "is not above 0, as Box-Cox asks")
            found = bent(wide, self.method, power, center)
            if not self.standardize:
                return found
            apart = found - mean
            return apart / std if std else level(apart, 0.0)

        return make

    def _fitted(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        if found["nan"] and self.nan == "error":
            raise DataError(
                f"Power({name!r}): {found['nan']} values of {name} are NaN in the rows that are fitted on",
                hint='Write nan="skip", or clear them in the function with frames.nan_to_null.',
                column=name,
            )
        if found["below"] and self.method == "box-cox":
            raise DataError(
                f"Power({name!r}): {found['below']} values of {name} are not above 0, as Box-Cox asks",
                hint='Use method="yeo-johnson", or leave such rows out.',
                column=name,
            )
        n = count_of(found)
        if not n:
            raise DataError(
                f"Power({name!r}): column {name} has no value in the rows that are fitted on",
                hint="Leave the column out, or fit on more rows.",
                column=name,
            )
        return {"n": n, **likeliest(found, self.method), "skipped": skipped_of(found)}


class _Powers:
    """Moments of every power of the columns of a part."""

    def __init__(self, step: Power, given: Schema, /) -> None:
        self._method, self._given = step.method, given
        self._found: dict[str, dict[str, Any]] = {name: nothing() for name in step.columns}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        for name in self._found:
            values = values_in(rows.column(rows.schema.get_field_index(name)), self._given.field(name))
            wide = floats_of(values)
            nulls = values.nulls
            if nulls:
                wide = wide[values.present]
            known = self._found[name] | {"null": self._found[name]["null"] + nulls}
            known["rows"] += nulls
            for start in range(0, len(wide), CHUNK):
                known = merged_powers(known, observed(wide[start : start + CHUNK], self._method), self._method)
            self._found[name] = known

    def state(self) -> dict[str, Any]:
        """Column → its moments."""
        return self._found


def _logarithms(rows: Rows, name: str) -> Maker:
    def make(piece: Values, start: int) -> NDArray[np.float64]:
        wide = floats_of(piece)
        _refuse(wide <= -1.0, piece, rows, name, start, "has no logarithm of one more")
        return np.log1p(wide)

    return make


def _refuse(wrong: NDArray[np.bool_], piece: Values, rows: Rows, name: str, start: int, why: str) -> None:
    if np.count_nonzero(wrong):
        lost = wrong & piece.present
        if lost.any():
            row = int(lost.argmax())
            value = floats_of(piece)[row]
            raise rows.refused(name, start + row, f"{value} {why}", hint="Clip it first, or leave such rows out.")
