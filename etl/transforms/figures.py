"""What steps observe of numbers: counts, extremes and moments, exact for integers, times, bools and decimals.

Integers keep exact sums, so that any offset leaves the variance whole; floats keep mean and squared differences (Chan's
merge), never a sum of squares. Units are the column's own: microseconds, days, the last digit of a decimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.tensors.stats import PartStats
from etl.tensors.sums import RealSums, WholeSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.core.schema import Schema

Figures = Mapping[str, Any]
"""Of one column: rows, null, nan, inf, n; total and squares of whole numbers, or mean and m2 of floats."""


class FiguresOf:
    """Observes columns of a part; see `etl.transforms.base.Observer`."""

    def __init__(self, given: Schema, columns: Sequence[str], part: int, /) -> None:
        self._given, self._columns = given, tuple(columns)
        self._stats = PartStats([given.field(name) for name in columns], part)

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        self._stats.take(rows.select(list(self._columns)))

    def state(self) -> Mapping[str, Figures]:
        """Column → its figures."""
        found: dict[str, Figures] = {}
        for name, one in self._stats.done().items():
            base = {"rows": one.rows, "null": one.null, "nan": one.nan, "inf": one.inf}
            if is_whole(self._given.field(name).type) and not one.real.count:
                found[name] = base | {"n": one.whole.count, "total": one.whole.total, "squares": one.whole.squares}
            else:
                # Decimals beyond 64 bits come as floats, in whole or in part.
                sums = RealSums(one.real.count, one.real.mean, one.real.m2)
                sums.add(one.whole.real(unit(self._given.field(name).type)))
                found[name] = base | {"n": sums.count, "mean": sums.mean, "m2": sums.m2}
        return found


def is_whole(kind: pa.DataType, /) -> bool:
    """Whether values are whole numbers of a unit."""
    types = pa.types
    return not types.is_floating(kind)


def is_number(kind: pa.DataType, /) -> bool:
    """Whether a column of the type has a mean."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def unit(kind: pa.DataType, /) -> Fraction:
    """What one step of the column's own unit is worth: 1, or the last digit of a decimal."""
    return Fraction(1, 10**kind.scale) if isinstance(kind, pa.Decimal128Type | pa.Decimal256Type) else Fraction(1)


def merged(left: Figures, right: Figures, kind: pa.DataType, /) -> Figures:
    """The figures of both."""
    base = {name: left[name] + right[name] for name in ("rows", "null", "nan", "inf")}
    if "total" in left and "total" in right:
        return base | {name: left[name] + right[name] for name in ("n", "total", "squares")}
    sums = _real(left, kind)
    sums.add(_real(right, kind))
    return base | {"n": sums.count, "mean": sums.mean, "m2": sums.m2}


def filled(found: Figures, value: Fraction | float, kind: pa.DataType, /) -> Figures:
    """The figures of the column once its NULLs are a value, given in the user's unit."""
    nulls = found["null"]
    base = {"rows": found["rows"], "null": 0, "nan": found["nan"], "inf": found["inf"]}
    steps = Fraction(value) / unit(kind) if not isinstance(value, float) or value == value else None  # noqa: PLR0124
    if "total" in found and steps is not None and steps.denominator == 1:
        whole = int(steps)
        return base | {
            "n": found["n"] + nulls,
            "total": found["total"] + nulls * whole,
            "squares": found["squares"] + nulls * whole * whole,
        }
    sums = _real(found, kind)
    sums.add(RealSums(nulls, float(value), 0.0))
    return base | {"n": sums.count, "mean": sums.mean, "m2": sums.m2}


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and spread in the user's unit, each rounded once from what is exact.

    Attributes:
        n: Values that are neither NULL, NaN nor infinite.
        mean: Exact for whole numbers.
        m2: The sum of squared differences from the mean.
    """

    n: int
    mean: Fraction | float
    m2: float


def moments(found: Figures, kind: pa.DataType, /) -> Moments:
    """Of one column's figures."""
    if "total" in found and found["n"]:
        step = unit(kind)
        exact = WholeSums(found["n"], found["total"], found["squares"]).real(step)
        return Moments(found["n"], Fraction(found["total"], found["n"]) * step, exact.m2)
    real = _real(found, kind)
    return Moments(real.count, real.mean, real.m2)


def _real(found: Figures, kind: pa.DataType) -> RealSums:
    if "total" in found:
        return WholeSums(found["n"], found["total"], found["squares"]).real(unit(kind))
    return RealSums(found["n"], found["mean"], found["m2"])
