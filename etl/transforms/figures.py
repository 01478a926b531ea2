"""What steps observe of numbers: counts, extremes and moments, exact for integers, times, bools and decimals.

Integers keep exact sums, so that any offset leaves the variance whole; floats keep mean and squared differences (Chan's
merge), never a sum of squares. Units are the column's own: microseconds, days, the last digit of a decimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError
from etl.tensors.stats import PartStats
from etl.tensors.sums import CHUNK, RealSums, WholeSums
from etl.tensors.views import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.core.schema import Field, Schema
    from etl.tensors.views import Column

DIGITS = 38
"""Decimals of more are in no frame."""
Figures = Mapping[str, Any]
"""Of one column: rows, null, nan, inf, n; total and squares of whole numbers, or mean and m2 of floats."""


class FiguresOf:
    """Observes columns of a part; see `etl.transforms.base.Observer`."""

    def __init__(self, given: Schema, columns: Sequence[str], part: int, /) -> None:
        self._given = given
        self._wide = {name: _Wide(given.field(name)) for name in columns if is_wide(given.field(name).type)}
        self._columns = [name for name in columns if name not in self._wide]
        self._stats = PartStats([given.field(name) for name in self._columns], part)

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows.

        Raises:
            CastError: A decimal has more than 38 digits.
        """
        for name, wide in self._wide.items():
            wide.take(rows.column(rows.schema.get_field_index(name)))
        if self._columns:
            self._stats.take(rows.select(self._columns))

    def state(self) -> Mapping[str, Figures]:
        """Column → its figures."""
        found: dict[str, Figures] = {name: wide.state() for name, wide in self._wide.items()}
        for name, one in self._stats.done().items():
            base = {"rows": one.rows, "null": one.null, "nan": one.nan, "inf": one.inf}
            if pa.types.is_floating(self._given.field(name).type):
                found[name] = base | {"n": one.real.count, "mean": one.real.mean, "m2": one.real.m2}
            else:
                found[name] = base | _exact(one.whole)
        return found


class _Wide:
    """Decimals that 64 bits may not hold: their sums are exact all the same."""

    def __init__(self, field: Field, /) -> None:
        self._field, self._sums = field, WholeSums()
        self._rows = self._null = 0

    def take(self, column: Column, /) -> None:
        """The next values."""
        self._rows += len(column)
        self._null += column.null_count
        try:
            column = column.cast(pa.decimal128(DIGITS, column.type.scale)).drop_null()
        except pa.ArrowInvalid as error:
            raise CastError(f"column {self._field.name}: {error}", column=self._field.name) from None
        halves = values_of(column, "V16").view(np.int64).reshape(-1, 2)
        for start in range(0, len(halves), CHUNK):
            self._sums.take_wide(halves[start : start + CHUNK, 1], halves[start : start + CHUNK, 0])

    def state(self) -> Figures:
        """The figures."""
        return {"rows": self._rows, "null": self._null, "nan": 0, "inf": 0} | _exact(self._sums)


def _exact(sums: WholeSums) -> dict[str, int]:
    return {"n": sums.count, "total": sums.total, "squares": sums.squares}


def is_wide(kind: pa.DataType, /) -> bool:
    """Whether it is a decimal that 64 bits may not hold."""
    return pa.types.is_decimal(kind) and kind.precision > 18


def is_number(kind: pa.DataType, /) -> bool:
    """Whether a column of the type has a mean."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def unit(kind: pa.DataType, /) -> Fraction:
    """What one step of the column's own unit is worth: 1, or the last digit of a decimal."""
    return Fraction(10) ** -kind.scale if pa.types.is_decimal(kind) else Fraction(1)


def merged(left: Figures, right: Figures, /) -> Figures:
    """The figures of both."""
    base = {name: left[name] + right[name] for name in ("rows", "null", "nan", "inf")}
    if "total" in left:
        return base | {name: left[name] + right[name] for name in ("n", "total", "squares")}
    sums = _real(left)
    sums.add(_real(right))
    return base | {"n": sums.count, "mean": sums.mean, "m2": sums.m2}


def filled(found: Figures, value: Fraction | float, kind: pa.DataType, /) -> Figures:
    """The figures of the column once its NULLs are a value, given in the user's unit."""
    nulls = found["null"]
    base = {"rows": found["rows"], "null": 0, "nan": found["nan"], "inf": found["inf"]}
    if "total" in found:
        whole = int(Fraction(value) / unit(kind))  # rounded to the column's unit before
        return base | {
            "n": found["n"] + nulls,
            "total": found["total"] + nulls * whole,
            "squares": found["squares"] + nulls * whole * whole,
        }
    sums = _real(found)
    sums.add(RealSums(nulls, float(value), 0.0))
    return base | {"n": sums.count, "mean": sums.mean, "m2": sums.m2}


def skipped_of(found: Mapping[str, Any], /, *, filled: bool = False) -> dict[str, int]:
    """How many values no figure is of: null, nan and inf.

    Args:
        found: What was observed of a column.
        filled: Whether an earlier step of the same scan fills its NULLs.
    """
    return {"null": 0 if filled else found["null"], "nan": found["nan"], "inf": found["inf"]}


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
    if "total" not in found:
        return Moments(found["n"], found["mean"], found["m2"])
    step = unit(kind)
    exact = WholeSums(found["n"], found["total"], found["squares"]).real(step)
    return Moments(found["n"], Fraction(found["total"], max(1, found["n"])) * step, exact.m2)


def _real(found: Figures) -> RealSums:
    return RealSums(found["n"], found["mean"], found["m2"])
