"""Numbers as the number of their bin: between edges that are given, or between quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.transforms.base import listed
from etl.transforms.host import Values, floats_of
from etl.transforms.quantiles import QuantilesOf, merged_quantiles, quantiles_of
from etl.transforms.reals import check_numbers, mask_in, skip_or_error, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows


@dataclass(frozen=True, slots=True)
class Bucketize:
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

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

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
class QuantileBins:
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

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int32."""
        check_numbers(given, self.columns, "QuantileBins")
        return with_types(given, self.columns, pa.int32())

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of values, or of ranges of them."""
        del part
        return QuantilesOf(given, self.columns, exact=self.exact)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_quantiles(left[name], right[name], exact=self.exact) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → the inner edges, float64."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            known = quantiles_of("QuantileBins", name, state[name], kind, filled.get(name), self.nan)
            edges = sorted({float(known.at(number / self.n)) for number in range(1, self.n)})
            found[name] = {"edges": edges, "n": known.n, "approximate": known.approximate}
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


def _binned(rows: Rows, name: str, kind: Any, edges: Sequence[Any], *, right: bool) -> Values:
    """The bin of each number."""
    column = rows[name]
    side: Literal["left", "right"] = "left" if right else "right"
    if pa.types.is_floating(kind):
        wide = floats_of(column)
        odd = np.isnan(wide)
        if odd.any():
            lost = odd & column.present
            if lost.any():
                row, hint = int(lost.argmax()), "Clear it in the function with frames.nan_to_null."
                raise rows.refused(name, row, "NaN is in no bin", hint=hint)
        found = np.searchsorted(np.array([float(e) for e in edges], np.float64), wide, side=side)
    else:
        steps, whole = _whole(column, kind, edges, right=right)
        found = np.searchsorted(steps, whole, side=side)
    return Values(found.astype(np.int32), mask_in(column))


def _whole(column: Values, kind: Any, edges: Sequence[Any], *, right: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Edges and numbers in the column's own unit, so that they compare exactly."""
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    data = column.data
    if not isinstance(data, np.ndarray):
        # Decimals: the last digit is the unit; those beyond 64 bits are compared as Python's own numbers.
        values = data.to_pylist()
        scaled = [0 if one is None else int(one.scaleb(scale)) for one in values]
        wide = any(abs(one) >= 1 << 62 for one in scaled)
        data = np.array(scaled, object if wide else np.int64)
    exact = [Fraction(e) * 10**scale for e in edges]
    # Between two whole numbers any edge parts alike: the one below for (a, b], the one above for [a, b).
    inner = [math.floor(e) if right else math.ceil(e) for e in exact]
    if data.dtype == object:
        return np.array(inner, object), data
    low, high = (0, (1 << 64) - 1) if data.dtype.kind == "u" else (-(1 << 63), (1 << 63) - 1)
    dtype = np.uint64 if data.dtype.kind == "u" else np.int64
    if all(low <= e <= high for e in inner):
        return np.array(inner, dtype), data.astype(dtype, copy=False)
    return np.array(inner, object), data.astype(object)
