"""Steps that bend the scale of numbers: logarithms and powers, computed in float64 and rounded once to float32."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError, DataError
from etl.engine import frames
from etl.tensors.sums import RealSums
from etl.transforms.base import listed
from etl.transforms.host import Values, floats_of, values_in
from etl.transforms.reals import check_numbers, mask_in, narrow_series, narrowed, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows

LAMBDAS: Final = np.arange(-80, 81) * 0.05
"""The powers that are tried."""


@dataclass(frozen=True, slots=True)
class Log1p:
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

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "Log1p")
        return with_types(given, self.columns, pa.float32())

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with logarithms."""
        del given, state
        made: dict[str, Values] = {}
        for name in self.columns:
            column = rows[name]
            wide = floats_of(column)
            with np.errstate(all="ignore"):
                _refuse(wide <= -1.0, wide, column, rows, name, "has no logarithm of one more")
                found = np.log1p(wide)
            made[name] = Values(narrowed(found, column, rows, name, "logarithmic"), mask_in(column))
        return rows.with_columns(made)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with logarithms."""
        del given, state
        made = frame.copy(deep=False)
        for name in self.columns:
            wide = frames.to_float(frame[name])
            if bool((wide <= -1.0).fillna(value=False).any()):
                raise CastError(f"a value of {name} has no logarithm of one more", column=name)
            made[name] = narrow_series(np.log1p(wide), name, "logarithmic")
        return made


@dataclass(frozen=True, slots=True)
class Power:
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

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32."""
        check_numbers(given, self.columns, "Power")
        return with_types(given, self.columns, pa.float32())

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments of every power that is tried."""
        return _Powers(self, given, part)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: _merged(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → lambda, mean and std of what comes of it, n."""
        del given, filled
        return {name: self._fitted(name, state[name]) for name in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns whose values are all equal."""
        flat = [name for name in self.columns if state[name]["std"] == 0.0]
        return tuple(f"all values of {name} that it was fitted on are equal: it is 0 after Power" for name in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with powers."""
        del given
        made: dict[str, Values] = {}
        for name in self.columns:
            column, figures = rows[name], state[name]
            wide = floats_of(column)
            with np.errstate(all="ignore"):
                if self.method == "box-cox":
                    _refuse(wide <= 0.0, wide, column, rows, name, "is not above 0, as Box-Cox asks")
                found = self.bent(wide, figures["lambda"])
                if self.standardize:
                    apart, std = found - figures["mean"], figures["std"]
                    found = apart / std if std else np.where(np.isfinite(apart), 0.0, apart)
            made[name] = Values(narrowed(found, column, rows, name, "bent"), mask_in(column))
        return rows.with_columns(made)

    def bent(self, wide: NDArray[np.float64], power: float, /) -> NDArray[np.float64]:
        """The power of numbers by the method."""
        return box_cox(wide, power) if self.method == "box-cox" else yeo_johnson(wide, power)

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
        n = found["n"]
        if not n:
            raise DataError(
                f"Power({name!r}): column {name} has no value in the rows that are fitted on",
                hint="Leave the column out, or fit on more rows.",
                column=name,
            )
        variance = np.array(found["m2"]) / n
        with np.errstate(all="ignore"):
            likely = -n / 2 * np.log(variance) + (LAMBDAS - 1) * found["logs"]
        likely[~np.isfinite(likely)] = -math.inf
        best = (
            int(np.argmax(likely))
            if found["varies"] and np.isfinite(likely).any()
            else int(np.argmin(abs(LAMBDAS - 1)))
        )
        std = math.sqrt(variance[best]) if found["varies"] else 0.0
        return {"lambda": float(LAMBDAS[best]), "mean": float(found["mean"][best]), "std": std, "n": n}


def yeo_johnson(wide: NDArray[np.float64], power: float, /) -> NDArray[np.float64]:
    """The transform of Yeo and Johnson; of infinities and NaN what NumPy makes of them."""
    found = np.empty_like(wide)
    above = wide >= 0
    up, down = wide[above], wide[~above]
    found[above] = np.log1p(up) if power == 0 else np.expm1(power * np.log1p(up)) / power
    other = 2 - power
    found[~above] = -np.log1p(-down) if other == 0 else -np.expm1(other * np.log1p(-down)) / other
    return found


def box_cox(wide: NDArray[np.float64], power: float, /) -> NDArray[np.float64]:
    """The transform of Box and Cox, for numbers above 0."""
    return np.log(wide) if power == 0 else np.expm1(power * np.log(wide)) / power


class _Powers:
    """Moments of every power of the columns of a part."""

    def __init__(self, step: Power, given: Schema, part: int, /) -> None:
        del part
        self._step, self._given = step, given
        self._found: dict[str, dict[str, Any]] = {name: _nothing() for name in step.columns}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        for name, known in self._found.items():
            values = values_in(rows.column(rows.schema.get_field_index(name)), self._given.field(name))
            wide = floats_of(values)[values.present]
            self._found[name] = _merged(known, self._of(wide))

    def state(self) -> dict[str, Any]:
        """Column → its moments."""
        return self._found

    def _of(self, wide: NDArray[np.float64]) -> dict[str, Any]:
        made = _nothing() | {"nan": int(np.count_nonzero(np.isnan(wide)))}
        wide = wide[np.isfinite(wide)]
        if self._step.method == "box-cox":
            made["below"] = int(np.count_nonzero(wide <= 0))
            wide = wide[wide > 0]
        made["n"] = len(wide)
        if not len(wide):
            return made
        with np.errstate(all="ignore"):
            logs = np.log(wide) if self._step.method == "box-cox" else np.sign(wide) * np.log1p(abs(wide))
            means, spreads = [], []
            for power in LAMBDAS.tolist():
                bent = self._step.bent(wide, power)
                mean = float(bent.mean())
                apart = bent - mean
                rest = float(apart.mean())
                means.append(mean + rest)
                spreads.append(float(((apart - rest) ** 2).sum()))
        return made | {
            "mean": means,
            "m2": spreads,
            "logs": float(logs.sum()),
            "first": float(wide[0]),
            "varies": bool((wide != wide[0]).any()),
        }


def _nothing() -> dict[str, Any]:
    zeros = [0.0] * len(LAMBDAS)
    return {"n": 0, "nan": 0, "below": 0, "mean": zeros, "m2": zeros, "logs": 0.0, "first": None, "varies": False}


def _merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: left[name] + right[name] for name in ("n", "nan", "below", "logs")}
    means, spreads = [], []
    for at in range(len(LAMBDAS)):
        sums = RealSums(left["n"], left["mean"][at], left["m2"][at])
        sums.add(RealSums(right["n"], right["mean"][at], right["m2"][at]))
        means.append(sums.mean)
        spreads.append(sums.m2)
    firsts = [one["first"] for one in (left, right) if one["first"] is not None]
    varies = left["varies"] or right["varies"] or len({*firsts}) > 1
    return made | {"mean": means, "m2": spreads, "first": firsts[0] if firsts else None, "varies": varies}


def _refuse(
    wrong: NDArray[np.bool_], wide: NDArray[np.float64], column: Values, rows: Rows, name: str, why: str
) -> None:
    if wrong.any():
        lost = wrong & column.present
        if lost.any():
            row = int(lost.argmax())
            raise rows.refused(name, row, f"{wide[row]} {why}", hint="Clip it first, or leave such rows out.")
