"""Quantiles that do not depend on how rows are cut: exact counts, or from a million distinct values on a histogram.

The histogram has a bin for each of the top 20 bits of float64 in rising order: sign, exponent and 8 digits of the
fraction, so a value lies within 2^-9 of its bin's middle, in relation to its size. Merging is addition.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field
from etl.tensors.views import column_of, values_of
from etl.transforms.base import InPlace
from etl.transforms.counts import added, counted
from etl.transforms.extremes import check_nan
from etl.transforms.host import floats_of, values_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State

DISTINCT: Final = 1_000_000
"""With more distinct values in all, quantiles are those of the histogram."""
_SHIFT: Final = 44
"""Bits of float64 below the top 20."""
Counted = dict[str, Any]
"""Of one column: rows, null, nan, inf, and counts (value, count) or bins (value: the number of the bin, count)."""


class QuantilesOf:
    """Observes columns of a part; see `etl.transforms.base.Observer`.

    Args:
        given: Their schema.
        columns: Numbers.
        exact: Whether counts stay exact however many values there are.
    """

    def __init__(self, given: Schema, columns: Sequence[str], /, *, exact: bool = False) -> None:
        self._exact = exact
        self._fields = {name: given.field(name) for name in columns}
        self._found = {name: _nothing(one) for name, one in self._fields.items()}
        self._waiting: dict[str, list[pa.Table]] = {name: [] for name in columns}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        for name, field in self._fields.items():
            column: Any = rows.column(rows.schema.get_field_index(name))
            found, waiting = self._found[name], self._waiting[name]
            found["rows"] += len(column)
            found["null"] += column.null_count
            keys = _keys(column.drop_null() if column.null_count else column, field)
            if pa.types.is_floating(keys.type):
                numbers = values_of(keys, np.float64)
                there = np.isfinite(numbers)
                if not there.all():
                    nan = int(np.count_nonzero(np.isnan(numbers)))
                    found["nan"] += nan
                    found["inf"] += len(numbers) - int(np.count_nonzero(there)) - nan
                    keys = column_of(pa.float64(), numbers[there])
            if "bins" in found:
                waiting.append(_binned(_floats(keys)))
            else:
                waiting.append(counted(keys))
            if sum(one.num_rows for one in waiting) > DISTINCT // 2:
                self._settle(name)

    def state(self) -> dict[str, Counted]:
        """Column → its counts."""
        for name in self._fields:
            self._settle(name)
        return self._found

    def _settle(self, name: str) -> None:
        found, waiting = self._found[name], self._waiting[name]
        kind = "bins" if "bins" in found else "counts"
        found[kind] = added([found[kind], *waiting])
        waiting.clear()
        self._found[name] = _limited(found, exact=self._exact)


def merged_quantiles(left: Mapping[str, Any], right: Mapping[str, Any], /, *, exact: bool = False) -> Counted:
    """Of both."""
    made: Counted = {name: left[name] + right[name] for name in ("rows", "null", "nan", "inf")}
    if "counts" in left and "counts" in right:
        return _limited(made | {"counts": added([left["counts"], right["counts"]])}, exact=exact)
    return made | {"bins": added([_as_bins(left), _as_bins(right)])}


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Values of a column in rising order.

    Attributes:
        n: How many.
        approximate: Whether they are the middles of bins.
        values: Distinct values: numbers as NumPy holds them, or decimals of Arrow; moments in their carried unit.
        ends: Up to which place in the order each value reaches, int64 (distinct values,).
        more: One more value, so many times: (its place among the distinct ones, value, count).
    """

    n: int
    approximate: bool
    values: Any
    ends: NDArray[np.int64]
    more: tuple[int, Any, int] | None = None

    def at(self, quantile: float | Fraction, /) -> Any:
        """A quantile, by the line between its two neighbours as NumPy's default: a Fraction, exact; or a float."""
        # 0.7 of ten steps is the seventh: the float nearest to it lies below.
        place = (quantile if isinstance(quantile, Fraction) else Fraction(repr(float(quantile)))) * (self.n - 1)
        below = int(place)
        low, rest = self._nth(below), place - below
        if not rest:
            return low
        high = self._nth(below + 1)
        if isinstance(low, Fraction):
            return low + (high - low) * rest
        share, apart = float(rest), high - low
        if math.isinf(apart):
            return low * (1 - share) + high * share
        return low + apart * share if share < 0.5 else high - apart * (1 - share)

    def _nth(self, place: int) -> Any:
        if self.more is not None:
            at, value, count = self.more
            first = int(self.ends[at - 1]) if at else 0
            if first <= place < first + count:
                return value
            place -= count if place >= first + count else 0
        return _value(self.values, int(np.searchsorted(self.ends, place, side="right")))


def quantiles_of(
    step: str, name: str, found: Mapping[str, Any], kind: pa.DataType, filled: Fraction | float | None, nan: str, /
) -> Quantiles:
    """The values of a column in order.

    Args:
        step: For the error.
        name: The column.
        found: Its counts.
        kind: Its type.
        filled: What an earlier step of the same scan puts in place of its NULLs; None: they are left out.
        nan: "skip" or "error".

    Raises:
        DataError: There is no value, or there is NaN where that is refused.
    """
    check_nan(step, name, found, nan)
    approximate = "bins" in found
    table = (found["bins"] if approximate else found["counts"]).sort_by("value")
    column: Any = table.column("value")
    values: Any = column.combine_chunks() if pa.types.is_decimal(column.type) else column.to_numpy()
    if approximate:
        values = _middles(values)
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    ends = np.cumsum(table.column("count").to_numpy())
    n, more = int(ends[-1]) if len(ends) else 0, None
    if filled is not None and found["null"]:
        value = float(filled) if pa.types.is_floating(kind) or approximate else Fraction(filled)
        at = bisect_left(range(len(ends)), value, key=lambda place: _value(values, place))
        more = at, value, int(found["null"])
        n += more[2]
    if not n:
        raise DataError(
            f"{step}({name!r}): column {name} has no value in the rows that are fitted on",
            hint="Leave the column out, or fit on more rows.",
            column=name,
        )
    return Quantiles(n, approximate, values, ends, more)


def _value(values: Any, place: int) -> Fraction | float:
    one = values[place]
    if isinstance(values, np.ndarray):
        return float(one) if values.dtype.kind == "f" else Fraction(int(one))
    return Fraction(one.as_py())


def two_quantiles(quantiles: object, step: str, /) -> tuple[float, float]:
    """An argument that is two rising quantiles.

    Raises:
        ConfigError: It is none.
    """
    given = tuple(quantiles) if isinstance(quantiles, list | tuple) else ()
    if len(given) != 2 or not all(isinstance(q, int | float) and 0 <= q <= 1 for q in given) or not given[0] < given[1]:
        raise ConfigError(f"{step}: quantiles are {quantiles!r}", hint="Give two from 0 to 1, the lower one first.")
    return float(given[0]), float(given[1])


def _key(field: Field) -> pa.DataType:
    """The type in which values are counted."""
    kind: Any = field.type
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.uint64() if pa.types.is_uint64(kind) else pa.int64()


def _keys(column: Any, field: Field) -> Any:
    """Values without NULL as they are counted: moments in their carried unit, days or microseconds."""
    kind = _key(field)
    data = values_in(column, field).data
    if not isinstance(data, np.ndarray):
        return data if data.type == kind else data.cast(kind)
    if pa.types.is_floating(kind):
        return column_of(kind, data.astype(np.float64) + 0.0)  # -0.0 is 0.0
    return column_of(kind, data.astype(np.uint64 if pa.types.is_uint64(kind) else np.int64))


def _nothing(field: Field) -> Counted:
    table = pa.table([pa.array([], _key(field)), pa.array([], pa.int64())], names=["value", "count"])
    return {"rows": 0, "null": 0, "nan": 0, "inf": 0, "counts": table}


def _limited(found: Counted, *, exact: bool) -> Counted:
    if exact or "bins" in found or found["counts"].num_rows <= DISTINCT:
        return found
    bins = _as_bins(found)
    return {name: value for name, value in found.items() if name != "counts"} | {"bins": bins}


def _as_bins(found: Mapping[str, Any]) -> pa.Table:
    """The histogram of exact counts; of a histogram itself."""
    if "bins" in found:
        made: pa.Table = found["bins"]
        return made
    table = found["counts"]
    keys = table.column("value")
    whole = keys.chunk(0) if keys.num_chunks == 1 else pa.concat_arrays(keys.chunks)
    return _binned(_floats(whole), table.column("count").to_numpy())


def _floats(keys: Any) -> NDArray[np.float64]:
    return floats_of(values_in(keys, Field("keys", keys.type)))


def _binned(numbers: NDArray[np.float64], counts: NDArray[np.int64] | None = None) -> pa.Table:
    """How many numbers lie in each bin: value (the bin's number), count."""
    bins = _bin_of(numbers)
    found, places = np.unique(bins, return_inverse=True)
    if counts is None:
        many = np.bincount(places, minlength=len(found)).astype(np.int64)
    else:
        many = np.zeros(len(found), np.int64)
        np.add.at(many, places, counts)
    return pa.table([column_of(pa.int64(), found), column_of(pa.int64(), many)], names=["value", "count"])


def _bin_of(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of each one's bin: the top 20 bits of an integer that rises with the float."""
    bits = (numbers + 0.0).view(np.int64)
    rising = np.where(bits < 0, np.int64(-(1 << 63)) - bits, bits)  # of negative floats the integer falls
    return rising >> _SHIFT


def _middles(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """The float in the middle of each bin."""
    rising = (bins << _SHIFT) + np.where(bins == 0, 0, 1 << (_SHIFT - 1))  # 0 is what lies in the bin of 0
    return np.where(rising < 0, np.int64(-(1 << 63)) - rising, rising).view(np.float64)


class FromQuantiles(InPlace):
    """What is fitted from quantiles of its columns."""

    __slots__ = ()
    exact: bool

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of values, or of ranges of them."""
        del part
        return QuantilesOf(given, self.columns, exact=self.exact)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_quantiles(left[name], right[name], exact=self.exact) for name in self.columns}
