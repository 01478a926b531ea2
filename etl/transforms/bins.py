"""Numbers as the number of their bin: between edges that are given, or between quantiles."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.tensors.views import values_of
from etl.transforms.base import InPlace, listed
from etl.transforms.constants import DIGITS
from etl.transforms.figures import skipped_of
from etl.transforms.host import Values, floats_of
from etl.transforms.quantiles import FromQuantiles, quantiles_of
from etl.transforms.reals import CHUNK, check_numbers, mask_in, pieces, skip_or_error, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import State
    from etl.transforms.host import Rows


FEW: Final = 64
"""Edges that are compared one by one faster than they are searched for."""


@dataclass(frozen=True, slots=True)
class Bucketize(InPlace):
    """Numbers become the number of their bin, int32: n edges make bins 0 … n. NULL stays NULL; NaN is refused.

    Values are compared as float64, whole numbers and decimals exactly, before anything is rounded.

    Attributes:
        columns: Numbers.
        edges: Rising.
        right: A bin holds its right edge, (a, b]; else its left, [a, b).

    Raises:
        ConfigError: No column, or edges that do not rise.
    """

    kind: ClassVar[str] = "bucketize"
    columns: tuple[str, ...]
    edges: tuple[int | float | Decimal, ...]
    right: bool = True

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        edges: Sequence[int | float | Decimal],
        *,
        right: bool = True,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Bucketize"))
        given = tuple(edges)
        if not given or any(isinstance(e, bool) or not isinstance(e, int | float | Decimal) for e in given):
            raise ConfigError(f"Bucketize: edges are {edges!r}", hint="Give numbers, rising.")
        finite = all(not isinstance(e, float) or math.isfinite(e) for e in given)
        if not finite or any(Fraction(a) >= Fraction(b) for a, b in pairwise(given)):
            raise ConfigError(f"Bucketize: edges are {edges!r}", hint="They are finite, and each is above the last.")
        object.__setattr__(self, "edges", given)
        object.__setattr__(self, "right", bool(right))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int32."""
        check_numbers(given, self.columns, "Bucketize")
        return with_types(given, self.columns, pa.int32())

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with bins."""
        del state
        return rows.with_columns(
            {name: _binned(rows, name, given.field(name).type, self.edges, right=self.right) for name in self.columns}
        )


@dataclass(frozen=True, slots=True)
class QuantileBins(FromQuantiles):
    """Numbers become the number of their bin between quantiles of the train rows, int32: bins of about equal size.

    Equal quantiles are one edge, so there may be fewer bins. A bin holds its right edge. NULL stays NULL.

    Attributes:
        columns: Numbers.
        n: How many bins.
        exact: Keep every distinct value, however many; else from a million on quantiles are within 2^-9 of their size.
        nan: "skip": NaN does not count in the fit; "error": it is refused there. A row with NaN is refused either way.

    Raises:
        ConfigError: No column, or a number of bins that there is not.
    """

    kind: ClassVar[str] = "quantile_bins"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    n: int
    exact: bool = False
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        n: int,
        *,
        exact: bool = False,
        nan: Literal["skip", "error"] = "skip",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "QuantileBins"))
        if type(n) is not int or not 2 <= n <= 10_000:
            raise ConfigError(f"QuantileBins: n is {n!r}", hint="It is a whole number from 2 to 10000.")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "exact", bool(exact))
        object.__setattr__(self, "nan", skip_or_error(nan, "QuantileBins"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int32."""
        check_numbers(given, self.columns, "QuantileBins")
        return with_types(given, self.columns, pa.int32())

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → the inner edges."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            known = quantiles_of("QuantileBins", name, state[name], kind, filled.get(name), self.nan)
            edges = sorted({_edge(known.at(Fraction(number, self.n)), kind) for number in range(1, self.n)})
            found[name] = {"edges": edges, "n": known.n, "approximate": known.approximate}
            found[name] |= {"skipped": skipped_of(state[name], filled=name in filled)}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns with fewer bins."""
        few = [name for name in self.columns if len(state[name]["edges"]) < self.n - 1]
        return tuple(f"{name} has {len(state[name]['edges']) + 1} bins, since quantiles are equal" for name in few)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with bins."""
        return rows.with_columns(
            {
                name: _binned(rows, name, given.field(name).type, state[name]["edges"], right=True)
                for name in self.columns
            }
        )


def _edge(quantile: Any, kind: Any) -> float | int:
    """A quantile as an edge; where no float parts integers as it does, the integer below it."""
    edge, below = float(quantile), math.floor(quantile)
    return below if pa.types.is_integer(kind) and math.floor(edge) != below else edge


def _binned(rows: Rows, name: str, kind: Any, edges: Sequence[Any], *, right: bool) -> Values:
    """The bin of each number."""
    column = rows[name]
    own = [in_unit(one, kind, right=right) for one in edges]
    if len(column) == 1 and isinstance(column.data, np.ndarray):
        value = column.data[0].item()
        if value == value:  # noqa: PLR0124 # NaN is looked at below
            return Values(np.array([(bisect_left if right else bisect_right)(own, value)], np.int32), mask_in(column))
    made = np.empty(len(column), np.int32)
    for start, piece in pieces(column):
        made[start : start + CHUNK] = _bins(piece, kind, own, right=right)
        if pa.types.is_floating(kind):
            odd = np.isnan(piece.data)
            if np.count_nonzero(odd) and (odd & piece.present).any():
                row, hint = start + int((odd & piece.present).argmax()), "Clear it in the function with nan_to_null."
                raise rows.refused(name, row, "NaN is in no bin", hint=hint)
    return Values(made, mask_in(column))


def _bins(piece: Values, kind: Any, edges: Sequence[Any], *, right: bool) -> NDArray[Any]:
    """How many edges lie below each number of a piece; or at it too, where bins hold their left edge."""
    data = floats_of(piece) if pa.types.is_floating(kind) else piece.data
    if not isinstance(data, np.ndarray):
        halves = values_of(data, "V16").view(np.int64).reshape(-1, 2)
        low, high = halves[:, 0], halves[:, 1]
        if not np.array_equal(high, low >> 63):
            return _of_halves(low.view(np.uint64), high, edges, right=right)
        data = low
    if len(edges) <= FEW:
        found = np.zeros(len(data), np.int32)
        for edge in edges:
            found += data > edge if right else data >= edge
        return found
    if data.dtype.kind == "f":
        return np.searchsorted(np.array(edges, data.dtype), data, side="left" if right else "right")
    if data.dtype == np.bool_:
        data = data.view(np.uint8)
    limits = np.iinfo(data.dtype)
    inner = np.array([one for one in edges if limits.min <= one <= limits.max], data.dtype)
    always = sum(one < limits.min for one in edges)
    places: NDArray[np.int64] = np.searchsorted(inner, data, side="left" if right else "right")
    places += always
    return places


def _of_halves(
    low: NDArray[np.uint64], high: NDArray[np.int64], edges: Sequence[int], *, right: bool
) -> NDArray[np.int32]:
    """The same of digits that 64 bits do not hold: the upper half decides, then the lower."""
    found = np.zeros(len(high), np.int32)
    for edge in edges:
        above, below = edge >> 64, edge & 0xFFFF_FFFF_FFFF_FFFF
        if not -(1 << 63) <= above < 1 << 63:
            found += above < 0
            continue
        found += (high > above) | ((high == above) & (low > below if right else low >= below))
    return found


def in_unit(edge: Any, kind: Any, /, *, right: bool) -> Any:
    """An edge as numbers of a column compare with it: a float, or a whole number of the column's unit.

    Between two whole numbers any edge parts alike: the one below it for (a, b], the one above it for [a, b). Of a float
    among decimals the shortest text counts: 0.1 is what was written.
    """
    if pa.types.is_floating(kind):
        return float(edge)
    if pa.types.is_decimal(kind):
        edge = Decimal(repr(edge) if isinstance(edge, float) else edge).scaleb(kind.scale, DIGITS)
    return math.floor(edge) if right else math.ceil(edge)
