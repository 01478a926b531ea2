"""Columns as another type: exact, or with what was changed counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema, nearest
from etl.engine.door import carried
from etl.tensors.cast import CastCount, Refused, into
from etl.tensors.views import bits_of, shown, valid_of, values_of
from etl.transforms.base import InPlace, listed
from etl.transforms.decimals import MOST, halves
from etl.transforms.figures import is_number
from etl.transforms.host import Values, array_of, holds_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

Dtype: TypeAlias = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "string",
]
_DTYPES: Final[tuple[str, ...]] = get_args(Dtype)
Policy: TypeAlias = Literal["exact", "round", "saturate"]
_FAR: Final = (1 << 63) - 1
"""A high half that no integer of 64 bits has."""
_POLICIES: Final[tuple[str, ...]] = get_args(Policy)


@dataclass(frozen=True, slots=True)
class Cast(InPlace):
    """Columns as another type. NULL stays NULL; NaN is none of integers and bools, whatever the policy.

    Attributes:
        columns: Their names: numbers, decimals, bools; for "string" also integers, bools, uuids and labels.
        dtype: "bool" (0 and 1 alone), "int8" … "uint64", "float32", "float64", "string".
        cast: "exact": a value that is none of the type is refused. "round": the nearest, ties to even (decimals to
            integers: half away from zero, as databases round); out of range is refused. "saturate": as round, and out
            of range becomes the nearest limit. What changed is counted as `n_rounded` and `n_saturated`.

    Raises:
        ConfigError: No column, or a type or policy that there is not.
    """

    kind: ClassVar[str] = "cast"
    columns: tuple[str, ...]
    dtype: Dtype
    cast: Policy = "exact"

    def __init__(self, columns: str | list[str] | tuple[str, ...], dtype: Dtype, cast: Policy = "exact") -> None:
        object.__setattr__(self, "columns", listed(columns, "Cast"))
        if dtype not in _DTYPES:
            raise ConfigError(f"Cast: the dtype is {dtype!r}", hint=nearest(str(dtype), _DTYPES, what="dtypes"))
        if cast not in _POLICIES:
            raise ConfigError(f"Cast: cast is {cast!r}", hint='Give "exact", "round" or "saturate".')
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "cast", cast)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns, of the type."""
        given.require(*self.columns)
        kind: Any = pa.bool_() if self.dtype == "bool" else getattr(pa, self.dtype)()
        for name in self.columns:
            have = given.field(name).type
            fits = _has_text(have, name) if self.dtype == "string" else is_number(have)
            if not fits:
                raise ConfigError(
                    f"Cast({name!r}, {self.dtype!r}): {name} is {have}",
                    hint="Integers, bools, uuids and labels have one text each; see DateParts and Age for moments."
                    if self.dtype == "string"
                    else "Numbers, decimals and bools can be cast; see DateParts and Age for moments, Categorify and "
                    "HashBucket for text.",
                    column=name,
                )
        made = {
            n: replace(given.field(n), type=kind, vocabulary=None, note="", read_as="", metadata={})
            for n in self.columns
        }
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the columns cast."""
        del state
        made: dict[str, Values] = {}
        for name in self.columns:
            column = rows[name]
            if self.dtype == "string":
                made[name] = _text(column, given.field(name))
                continue
            data = column.data
            have, want = getattr(data, "dtype", None), np.dtype(self.dtype)
            if have is not None and holds_all(have, want):
                made[name] = Values(data.astype(want, copy=False), column.valid)
                continue
            count = CastCount()
            array = array_of(column, Field(name, carried(given.field(name).type, column=name)))
            try:
                out = self._cast(array, want, count)
            except Refused as refused:
                mended = f'cast="{refused.mended_by.split()[0]}" carries it.' if refused.mended_by else ""
                why = f"{shown(array, refused.row)} is no {self.dtype}: {refused}"
                raise rows.refused(name, refused.row, why, hint=mended) from None
            rows.counted(name, "n_rounded", count.n_rounded)
            rows.counted(name, "n_saturated", count.n_saturated)
            made[name] = Values(out, column.present if column.nulls else None)
        return rows.with_columns(made)

    def _cast(self, array: Any, want: np.dtype[Any], count: CastCount) -> NDArray[Any]:
        """The values, shape (n,); absent ones are 0.

        Raises:
            Refused: One is none of the type under the policy.
        """
        out = np.empty(len(array), want)
        policy = "exact" if self.dtype == "bool" else self.cast
        if pa.types.is_decimal(array.type) and want.kind in "iub":
            _whole(array, out, policy, count)
        else:
            into(array, out, self.dtype, policy, count)
        return out


def _has_text(kind: Any, name: str) -> bool:
    """Whether values of the type have one text each."""
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return True
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type))
    return carried(kind, column=name) == pa.string()


def _text(column: Values, field: Field) -> Values:
    if isinstance(column.data, np.ndarray):
        kind = pa.bool_() if column.data.dtype == np.bool_ else pa.from_numpy_dtype(column.data.dtype)
        return Values(array_of(column, Field(field.name, kind)).cast(pa.string()))
    return Values(column.data.cast(pa.string()) if column.data.type != pa.string() else column.data)


def _whole(array: Any, out: NDArray[Any], policy: Policy, count: CastCount) -> None:
    """Decimals into integers or bools.

    Raises:
        Refused: One is none under the policy.
    """
    valid = valid_of(array)
    low, high, changed = _rounded(array)
    if out.dtype == np.uint64:
        least, most = 0, (1 << 64) - 1
        over, under = high > 0, high < 0
    else:
        least, most = (0, 1) if out.dtype == np.bool_ else (int(np.iinfo(out.dtype).min), int(np.iinfo(out.dtype).max))
        wide = high != low >> 63
        over = np.where(wide, high >= 0, low > most)
        under = np.where(wide, high < 0, low < least)
    outside = (over | under) & valid
    changed &= valid & ~outside
    bad = outside | changed if policy == "exact" else outside
    if policy != "saturate" and bad.any():
        row = int(bad.argmax())
        if outside[row]:
            raise Refused(f"outside {least} to {most}", row=row, mended_by="saturate")
        raise Refused("not a whole number", row=row, mended_by="round or saturate")
    count.n_saturated += int(np.count_nonzero(outside))
    count.n_rounded += int(np.count_nonzero(changed))
    out[:] = np.where(valid & ~outside, low.view(out.dtype) if out.dtype == np.uint64 else low, 0)
    out[over & valid], out[under & valid] = most, least


def _rounded(array: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Decimals as integers of 128 bits, half away from zero: the low and the high half, and where that changed them.

    Arrow's `round` goes wrong without a word where the result has a digit more than the type: not by it, or wider.
    """
    scale = array.type.scale
    if array.type.precision > 18 or scale < 0:
        wide = array.cast(pa.decimal256(2 * MOST, max(scale, 0)))
        whole = pc.round(wide, 0, round_mode="half_towards_infinity") if scale > 0 else wide
        words = values_of(whole.cast(pa.decimal256(2 * MOST, 0)), "V32").view(np.int64).reshape(-1, 4)
        sign = words[:, 3] >> 63
        fits = (words[:, 1] >> 63 == sign) & (words[:, 2] == sign) & (words[:, 3] == sign)
        high = np.where(fits, words[:, 1], np.where(sign < 0, -_FAR, _FAR))
        changed = pc.not_equal(whole, wide)
        return words[:, 0].copy(), high, bits_of(changed.buffers()[1], changed.offset, len(array))
    digits, _ = halves(array)
    if scale == 0:
        return digits, digits >> 63, np.zeros(len(digits), np.bool_)
    whole_part, rest = np.divmod(np.abs(digits), 10**scale)
    low = np.sign(digits) * (whole_part + (2 * rest >= 10**scale))
    return low, low >> 63, rest != 0
