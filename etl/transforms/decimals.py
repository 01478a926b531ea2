"""Decimals as integers: from digits to digits, never through binary floats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Schema
from etl.tensors.views import shown, valid_of, values_of
from etl.transforms.base import InPlace, listed
from etl.transforms.host import Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

MOST = 38
"""Digits of a decimal in rows."""


@dataclass(frozen=True, slots=True)
class DecimalScale(InPlace):
    """Decimals as int64: x * 10^scale, exact or refused. 1.15 at scale 2 is 115. NULL stays NULL.

    Attributes:
        columns: Their names.
        scale: Digits behind the point that are kept; None: those of the column's type.

    Raises:
        ConfigError: No column, or a scale that is none.
    """

    kind: ClassVar[str] = "decimal_scale"
    columns: tuple[str, ...]
    scale: int | None = None

    def __init__(self, columns: str | list[str] | tuple[str, ...], scale: int | None = None) -> None:
        object.__setattr__(self, "columns", listed(columns, "DecimalScale"))
        if scale is not None and (type(scale) is not int or not -MOST <= scale <= MOST):
            raise ConfigError(f"DecimalScale: the scale is {scale!r}", hint="Give the digits behind the point: 2.")
        object.__setattr__(self, "scale", scale)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns; those scaled are int64."""
        given.require(*self.columns)
        for name in self.columns:
            if not pa.types.is_decimal(given.field(name).type):
                raise ConfigError(
                    f"DecimalScale({name!r}): {name} is {given.field(name).type}, not a decimal",
                    hint="Leave it out, or read it as a decimal.",
                    column=name,
                )
        made = {n: replace(given.field(n), type=pa.int64(), note="") for n in self.columns}
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns as integers."""
        del state
        made: dict[str, Values] = {}
        for name in self.columns:
            column, kind = rows[name], given.field(name).type
            scale = kind.scale if self.scale is None else self.scale  # type: ignore[attr-defined] # a decimal's
            valid = column.present if column.nulls else None
            whole, lost = scaled(column.data, scale)
            if lost is not None:
                if valid is not None:
                    lost &= valid
                if lost.any():
                    row = int(lost.argmax())
                    value = shown(column.data, row)
                    more = "has more digits behind the point" if _is_finer(column.data, row, scale) else "is too large"
                    raise rows.refused(
                        name, row, f"{value} {more} for an int64 at scale {scale}", hint="Take another scale, or Cast."
                    )
            made[name] = Values(whole, valid)
        return rows.with_columns(made)


def scaled(data: Any, scale: int, /) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Decimals times 10^scale as int64, and where that is none; None: nowhere.

    Args:
        data: A decimal128 array, shape (n,).
        scale: May be any.
    """
    low, high = halves(data)
    by = scale - data.type.scale
    lost: NDArray[np.bool_] | None = None
    if data.type.precision > 18:
        lost = high != low >> 63
    if by > 18:
        return np.zeros_like(low), (low != 0) | (high != 0)
    if by > 0:
        factor = 10**by
        if data.type.precision + by > 18:
            most = (1 << 63) // factor
            beyond = (low > most) | (low < -most)
            lost = beyond if lost is None else lost | beyond
        return low * factor, lost
    if by == 0:
        return low, lost
    # Digits go: those that are there must be 0, also of numbers that only fit once they have gone.
    if lost is not None and lost.any():
        return _scaled_one_by_one(data, scale, low, lost)
    if by < -18:
        return np.zeros_like(low), low != 0
    whole, rest = np.divmod(low, 10**-by)
    gone = rest != 0
    return whole, gone if lost is None else lost | gone


def halves(data: Any, /) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The digits of decimal128 as the low and the high 64 bits, shape (n,) each."""
    both = values_of(data, "V16").view(np.int64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), both[:, 1]


def _scaled_one_by_one(
    data: Any, scale: int, low: NDArray[np.int64], wide: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The same where some numbers have more digits than 64 bits: those are few, and Python has them whole."""
    factor = 10 ** (data.type.scale - scale)
    if factor < 1 << 63:
        whole, rest = np.divmod(low, factor)
        lost = (rest != 0) & ~wide
    else:
        whole, lost = np.zeros_like(low), (low != 0) & ~wide
    valid = valid_of(data)
    for row in np.flatnonzero(wide & valid).tolist():
        digits = _digits(data, row)
        made, over = divmod(digits, factor)
        if over or not -(1 << 63) <= made < 1 << 63:
            lost[row] = True
        else:
            whole[row] = made
    return whole, lost


def _digits(data: Any, row: int) -> int:
    low, high = halves(data.slice(row, 1))
    return (int(high[0]) << 64) | (int(low[0]) & ((1 << 64) - 1))


def _is_finer(data: Any, row: int, scale: int) -> bool:
    by = int(data.type.scale - scale)
    return by > 0 and _digits(data, row) % 10**by != 0
