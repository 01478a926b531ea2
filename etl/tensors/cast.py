"""One column's values into one dtype, in bulk: exact, or with what was changed counted.

The rules are of the column's type alone. A value that cannot be carried is reported by its place; nothing is ever
turned into infinity, NaN or a NULL on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError
from etl.core.late import Late
from etl.tensors.views import Column, bits_of, column_of, valid_of, values_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from connectors.base import Cast
else:
    pc = Late("pyarrow.compute")

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_BIG = Context(prec=400)
"""Digits of any float64 before the point, and of a decimal behind it."""
_DIGITS = {"float64": 15, "float32": 6, "float16": 3, "bfloat16": 2}
"""Decimal digits that come back from a float …"""
_PLACES = {"float64": 320, "float32": 44, "float16": 7, "bfloat16": 40}
"""… with so many of them behind the point: beyond, the smallest steps of the format are too coarse."""


@dataclass(slots=True)
class CastCount:
    """What casting a column changed, over all its batches."""

    n_rounded: int = 0
    n_saturated: int = 0
    max_abs_error: float = 0.0


BEYOND = "beyond the largest finite value"


class Refused(CastError):  # noqa: N818 - named as the others of the tree are
    """A value cannot be carried; the text says why in a few words, and the writer adds column, value and key.

    The context has its row in the column given.
    """

    code = "refused"

    @property
    def row(self) -> int:
        """Its row in the column given."""
        return int(self.context["row"])

    @property
    def mended_by(self) -> str:
        """The values of `--cast` that carry it; "" where none does."""
        return str(self.context.get("mended_by", ""))


def _inexact_value(beyond: str, between: str, row: int) -> Refused:
    """The refusal of a number that is beyond the dtype's range, or else between two of its numbers."""
    return Refused(beyond or between, row=row, mended_by="saturate" if beyond else "round or saturate")


def plain_values(column: Column, /) -> NDArray[Any]:
    """The values of a fixed-width column as NumPy, [rows]; NULL slots hold anything. Shared memory where possible.

    bool as bool; integers and floats as they are; dates int32 days; times, durations and timestamps int64
    microseconds (from nanoseconds rounded down where not whole: `into` refuses or counts them); dictionaries their
    int32 indices.
    """
    kind, types = column.type, pa.types
    if types.is_boolean(kind):
        return bits_of(column.buffers()[1], column.offset, len(column))
    if types.is_dictionary(kind):
        return plain_values(column.indices)
    if types.is_signed_integer(kind):
        return values_of(column, f"i{kind.bit_width // 8}")
    if types.is_unsigned_integer(kind):
        return values_of(column, f"u{kind.bit_width // 8}")
    if types.is_floating(kind):
        return values_of(column, f"f{kind.bit_width // 8}")
    if types.is_date32(kind):
        return values_of(column, np.int32)
    if types.is_date64(kind):
        days = np.floor_divide(values_of(column, np.int64), 86_400_000)
        outside = (days != days.astype(np.int32)) & valid_of(column)
        if outside.any():
            raise Refused("beyond int32 days", row=int(np.flatnonzero(outside)[0]))
        narrow: NDArray[Any] = days.astype(np.int32)
        return narrow
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind):
        raw = values_of(column, f"i{kind.bit_width // 8}")
        if kind.unit == "us":
            return raw
        if kind.unit == "ns":
            whole: NDArray[Any] = np.floor_divide(raw, 1000)
            return whole
        return _scaled_up(raw.astype(np.int64), _MICROS[kind.unit], valid_of(column))
    raise TypeError(str(kind))


def _scaled_up(raw: NDArray[np.int64], factor: int, valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    limit = (2**63 - 1) // factor
    outside = ((raw > limit) | (raw < -limit)) & valid
    if outside.any():
        raise Refused("beyond int64 microseconds", row=int(np.flatnonzero(outside)[0]))
    return raw * factor


def into(
    column: Column,
    out: NDArray[Any],
    dtype: str,
    policy: Cast,
    count: CastCount,
    /,
    *,
    fill: Any = 0,
    declared: Any = None,
) -> None:
    """Write a column's values into `out` [rows] (uint16 bits for bfloat16); absent ones as `fill`.

    Args:
        column: Fixed-width Arrow column (not a list).
        out: Any strides.
        dtype: The tensor's dtype in words.
        policy: exact, round or saturate.
        count: Added to.
        fill: The value of absent ones, in the tensor's dtype.
        declared: The decimal type whose values a float64 column holds, each rounded once and checked by the source.

    Raises:
        Refused: A value cannot be carried under the policy.
    """
    valid = valid_of(column) if column.null_count else None
    kind = column.type
    if pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind) and kind.precision <= 38:
        column = pc.cast(column, pa.decimal128(kind.precision, kind.scale))
        kind = column.type
    if pa.types.is_decimal(kind):
        if dtype == "int64":
            # `pack` gives a decimal column this dtype only as the scaled integer of at most 18 digits.
            out[:] = values_of(column, "V16").view(np.int64)[0::2]
        else:
            wide = _decimals(column, valid)
            _floats(_untied(column, wide, dtype, valid), wide, out, dtype, policy, count, valid, _DecimalBack(column))
    elif declared is not None and pa.types.is_decimal(declared) and kind == pa.float64():
        wide = values_of(column, np.float64)
        _floats(wide, wide, out, dtype, policy, count, valid, _FloatBack(wide, declared))
    else:
        finer = getattr(kind, "unit", "") == "ns"
        values = _whole_micros(column, policy, count, valid) if finer else plain_values(column)
        _numbers(values, out, dtype, policy, count, valid)
    if valid is not None:
        out[~valid] = fill


def _whole_micros(column: Column, policy: Cast, count: CastCount, valid: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Nanoseconds as microseconds: the nearest, ties to even, where the policy allows it."""
    whole, rest = np.divmod(values_of(column, np.int64), 1000)
    odd = rest != 0
    if valid is not None:
        odd &= valid
    if not odd.any():
        return whole
    if policy == "exact":
        raise _inexact_value("", "finer than microseconds", int(np.flatnonzero(odd)[0]))
    up = (rest > 500) | ((rest == 500) & (whole % 2 == 1))
    count.n_rounded += int(odd.sum())
    apart = np.where(up, 1000 - rest, rest)[odd]
    count.max_abs_error = max(count.max_abs_error, int(apart.max()) / 1000)
    nearest: NDArray[np.int64] = whole + up
    return nearest


def _numbers(
    values: NDArray[Any],
    out: NDArray[Any],
    dtype: str,
    policy: Cast,
    count: CastCount,
    valid: NDArray[np.bool_] | None,
) -> None:
    if values.dtype == out.dtype and dtype != "bfloat16":
        out[:] = values
        return
    if valid is not None and not valid.all():
        values = np.where(valid, values, values.dtype.type(0))
    source, whole = values.dtype.kind, np.dtype(out.dtype).kind in "iub" and dtype != "bfloat16"
    if source == "b":
        # Through int8, since a bool cannot be cast to bfloat16 bits.
        values = values.astype(np.int8)
        source = "i"
    if whole:
        _integers(values, out, source, policy, count)
    else:
        _floats(values, None, out, dtype, policy, count, valid, None)


def _integers(values: NDArray[Any], out: NDArray[Any], source: str, policy: Cast, count: CastCount) -> None:
    to_bool = out.dtype.kind == "b"
    low, high = (0, 1) if to_bool else (int(np.iinfo(out.dtype).min), int(np.iinfo(out.dtype).max))
    if source == "f":
        # The limits of wide integers are beyond float16.
        values = values.astype(np.float32) if values.dtype.itemsize == 2 else values
        nan = np.isnan(values)
        if nan.any():
            raise Refused("NaN is no integer", row=int(np.flatnonzero(nan)[0]))
        rounded = np.rint(values)
        changed = rounded != values
        # high + 1 is a power of two, so exact as a float; high itself may round up.
        over = rounded >= float(high + 1)
        under = rounded < float(low)
    else:
        rounded, changed = values, np.zeros(len(values), np.bool_)
        info = np.iinfo(values.dtype)
        over = values > high if info.max > high else changed
        under = values < low if info.min < low else changed
    outside = over | under
    if policy == "exact" and (changed | outside).any():
        bad = int(np.flatnonzero(changed | outside)[0])
        raise _inexact_value(f"outside {low} to {high}" if outside[bad] else "", "not a whole number", bad)
    if outside.any() and policy == "round":
        raise _inexact_value(f"outside {low} to {high}", "", int(np.flatnonzero(outside)[0]))
    if outside.any():
        inside = np.where(outside, 0, rounded).astype(out.dtype)
        out[:] = np.where(over, np.array(high, out.dtype), np.where(under, np.array(low, out.dtype), inside))
        count.n_saturated += int(outside.sum())
        changed &= ~outside
    else:
        out[:] = rounded.astype(out.dtype)
    if changed.any():
        count.n_rounded += int(changed.sum())
        count.max_abs_error = max(count.max_abs_error, float(np.abs(rounded[changed] - values[changed]).max()))


def _floats(
    values: NDArray[Any],
    wide: NDArray[np.float64] | None,
    out: NDArray[Any],
    dtype: str,
    policy: Cast,
    count: CastCount,
    valid: NDArray[np.bool_] | None,
    back: _DecimalBack | _FloatBack | None,
) -> None:
    """Numbers into a float dtype.

    `wide`: the values of a decimal column, correctly rounded to float64; `values` are then those that round on to the
    same numbers as the decimals themselves would.
    """
    exact = wide if wide is not None else values
    result, seen = _narrowed(values, dtype)
    finite = np.isfinite(exact) if exact.dtype.kind == "f" else np.ones(len(exact), np.bool_)
    over = np.isinf(seen) & finite
    if back is not None:
        changed = back.changed(seen, dtype, over)
    elif exact.dtype.kind == "f":
        changed = (seen != exact) & finite & ~over
    else:
        changed = _inexact(exact, seen) & ~over
    if valid is not None:
        over &= valid
        changed &= valid
    if policy == "exact" and (changed | over).any():
        bad = int(np.flatnonzero(changed | over)[0])
        raise _inexact_value(BEYOND if over[bad] else "", "not exact in this dtype", bad)
    if over.any():
        if policy == "round":
            raise _inexact_value(BEYOND, "", int(np.flatnonzero(over)[0]))
        largest = _largest(dtype, out.dtype)
        result = np.where(over, np.where(np.signbit(seen), largest[0], largest[1]), result)
        count.n_saturated += int(over.sum())
    if changed.any():
        count.n_rounded += int(changed.sum())
        # Extended precision, where there is: the distance of a 64-bit integer to its float would read as 0.
        gap = np.abs(seen[changed].astype(np.longdouble) - exact[changed].astype(np.longdouble))
        count.max_abs_error = max(count.max_abs_error, float(gap.max()))
    out[:] = result


def _narrowed(values: NDArray[Any], dtype: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Numbers as a float dtype, rounded once, and what came out as float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            return _bfloat16(values)
        result = values.astype(dtype)
        return result, result if dtype == "float64" else result.astype(np.float64)


def _odd(wide: NDArray[np.float64], toward: NDArray[Any]) -> NDArray[np.float64]:
    """Rounded values turned to the odd one of the two that the exact value lies between, so that rounding on is safe.

    Args:
        wide: The nearest float64 of each exact value.
        toward: -1, 0 or 1: on which side of it the exact value is.
    """
    even = (wide.view(np.int64) & 1 == 0) & (toward != 0)
    return np.where(even, np.nextafter(wide, np.where(toward > 0, np.inf, -np.inf)), wide)


def _inexact(values: NDArray[Any], seen: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a float64 image is not the integer."""
    differs: NDArray[np.bool_]
    if values.dtype.itemsize < 8:
        differs = seen != values.astype(np.float64)
        return differs
    unsigned = values.dtype.kind == "u"
    edge = 2.0**64 if unsigned else 2.0**63
    outside = (seen >= edge) | (seen < (0.0 if unsigned else -edge))
    again = np.where(outside, 0.0, seen).astype(values.dtype)
    differs = (again != values) | outside
    return differs


def _bfloat16(values: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Bits rounded once (nearest, ties to even), and what they stand for.

    Through float32 rounded to odd: a second rounding after one to nearest could go the wrong way.
    """
    wide = values.astype(np.float64)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        # The largest round up to a power of two that their own type does not hold.
        beyond = wide >= (2.0**64 if values.dtype.kind == "u" else 2.0**63)
        again = np.where(beyond, 0.0, wide).astype(values.dtype)
        side = np.where(values > again, 1, np.where(values < again, -1, 0))
        wide = _odd(wide, np.where(beyond, -1, side))
    narrow = wide.astype(np.float32)
    bits = narrow.view(np.uint32).astype(np.uint64)
    finite = np.isfinite(narrow)
    inexact = finite & (narrow.astype(np.float64) != wide)
    bits -= inexact & (np.abs(narrow.astype(np.float64)) > np.abs(wide))
    bits |= inexact
    rounded = np.where(finite, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, bits >> 16)
    rounded = np.where(np.isnan(narrow), rounded | 0x40, rounded).astype(np.uint16)
    image = (rounded.astype(np.uint32) << 16).view(np.float32)
    return rounded, image.astype(np.float64)


def _largest(dtype: str, kind: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype == "bfloat16":
        return np.uint16(0xFF7F), np.uint16(0x7F7F)
    most = np.finfo(kind).max
    return -most, most


def _decimals(column: Column, valid: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """A decimal column as float64, each value rounded once from its digits."""
    kind = column.type
    if kind.precision <= 15 and pa.types.is_decimal128(kind):
        # Digits below 2^53 over a power of ten up to 10^22: one correctly rounded division.
        digits = values_of(column, "V16").view(np.int64)[0::2].astype(np.float64)
        if valid is not None:
            digits = np.where(valid, digits, 0.0)
        wide: NDArray[np.float64] = (
            digits / float(10**kind.scale) if kind.scale >= 0 else digits * float(10**-kind.scale)
        )
        return wide
    # Arrow's own decimal to float is not correctly rounded; its parser of text is (fast_float).
    wide = values_of(pc.cast(pc.cast(column, pa.string()), pa.float64()), np.float64)
    return wide if valid is None else np.where(valid, wide, 0.0)


def _untied(
    column: Column, wide: NDArray[np.float64], dtype: str, valid: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Decimals rounded to float64 such that rounding on to a narrower dtype is as if there were one rounding.

    Only a float64 in the middle of two numbers of the dtype can mislead: where the decimal lies beside it, it is moved
    to that side.
    """
    if dtype == "float64":
        return wide
    _, seen = _narrowed(wide, dtype)
    ends = np.isinf(seen) & (np.abs(wide) == _EDGES[dtype])
    other = wide + (wide - np.where(np.isinf(seen), 0.0, seen))
    middle = (other != seen) & np.isfinite(seen) & (_narrowed(other, dtype)[1] == other)
    doubtful = ends | middle
    if valid is not None:
        doubtful &= valid
    kind = column.type
    if kind.precision <= 15 and 0 <= kind.scale <= 12 and doubtful.any():
        # At most 25 bits times 5^12: the product is exact, and tells which decimals are the middle themselves.
        own = values_of(column, "V16").view(np.int64)[0::2].astype(np.float64)
        doubtful &= wide * float(10**kind.scale) != own
    rows = np.flatnonzero(doubtful)
    if not len(rows):
        return wide
    toward = np.zeros(len(wide), np.int8)
    for row in rows.tolist():
        value, image = column[row].as_py(), Decimal(float(wide[row]))
        toward[row] = (value > image) - (value < image)
    return _odd(wide, toward)


_EDGES = {"float16": 65520.0, "float32": 2.0**128 - 2.0**103, "bfloat16": 2.0**128 - 2.0**119}
"""From here on a number rounds to infinity."""


def _sure_digits(dtype: str, scale: int) -> int:
    """So many digits of a decimal of that scale come back from the dtype, whatever they are."""
    return _DIGITS[dtype] if scale <= _PLACES[dtype] else 0


class _DecimalBack:
    """Whether a float, rounded back at the column's scale, gives the decimal again."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def changed(self, seen: NDArray[np.float64], dtype: str, over: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """True where it does not."""
        found = np.zeros(len(seen), np.bool_)
        kind = self._column.type
        digits = _sure_digits(dtype, kind.scale)
        if kind.precision <= digits:
            return found
        doubtful = _longer_than(self._column, digits, fraction=kind.scale > 0) & ~over & valid_of(self._column)
        if kind.precision <= 15 and dtype != "float64" and 0 <= kind.scale <= 12:
            # 24 bits of float32 times 5^12 are within 53 bits: the product is exact.
            own = values_of(self._column, "V16").view(np.int64)[0::2]
            back = seen * float(10**kind.scale)
            back = np.copysign(np.floor(np.abs(back) + 0.5), back)
            differs: NDArray[np.bool_] = doubtful & (back != own.astype(np.float64))
            return differs
        # What is left has more digits than any float of that dtype is sure to hold: one by one.
        step = Decimal(1).scaleb(-kind.scale)
        for row in np.flatnonzero(doubtful).tolist():
            value = self._column[row].as_py()
            image = Decimal(float(seen[row])).quantize(step, rounding=ROUND_HALF_UP, context=_BIG)
            found[row] = image != value
        return found


class _FloatBack:
    """The same for decimals that came as the float64 next to them, already checked."""

    def __init__(self, wide: NDArray[np.float64], declared: Any) -> None:
        self._wide = wide
        self._declared = declared

    def changed(self, seen: NDArray[np.float64], dtype: str, over: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """True where a dtype narrower than float64 does not give the decimal again."""
        digits = _sure_digits(dtype, self._declared.scale)
        found = np.zeros(len(seen), np.bool_)
        if dtype == "float64" or self._declared.precision <= digits:
            return found
        doubtful = (seen != self._wide) & np.isfinite(self._wide) & ~over
        rows = np.flatnonzero(doubtful)
        if not len(rows):
            return found
        longer = _longer_than(column_of(pa.float64(), self._wide[rows]), digits, fraction=True)
        step = Decimal(1).scaleb(-self._declared.scale)
        for row in rows[longer].tolist():
            # The shortest text that gives the float64 back is the decimal, where it has at most 15 digits.
            value = Decimal(repr(float(self._wide[row]))).quantize(step, rounding=ROUND_HALF_UP, context=_BIG)
            image = Decimal(float(seen[row])).quantize(step, rounding=ROUND_HALF_UP, context=_BIG)
            found[row] = image != value
        return found


def _longer_than(column: Column, digits: int, *, fraction: bool) -> NDArray[np.bool_]:
    """Where numbers have more significant digits; zeros at the end count unless behind a point."""
    text: Any = pc.cast(column, pa.string())
    text = pc.replace_substring_regex(text, "[Ee].*$", "")
    if fraction:
        text = pc.utf8_rtrim(text, "0")
    text = pc.utf8_ltrim(pc.replace_substring(text, ".", ""), "-0")
    return np.asarray(values_of(pc.binary_length(text), np.int32)) > digits


def parse_fill(text: str, dtype: str, /, scale: int | None = None) -> Any:
    """The fill value, exact in the tensor's dtype; with `scale` as the integer that stands for it.

    Raises:
        ValueError: It is not.
    """
    if dtype == "bool":
        words = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in words:
            raise ValueError(f"{text} is not a bool")
        return words[text.lower()]
    number = Decimal(text) if text.lower() not in {"nan", "inf", "-inf"} else Decimal(text.lower())
    if dtype in {"float16", "float32", "float64", "bfloat16"}:
        out = np.zeros(1, np.uint16 if dtype == "bfloat16" else dtype)
        try:
            # A decimal fraction such as 0.1 counts as itself in float64; narrower dtypes must give it back.
            _floats(np.array([float(number)]), None, out, dtype, "round", CastCount(), None, None)
        except Refused as refused:
            raise ValueError(f"{text} is {refused} of {dtype}") from refused
        if number.is_finite() and not _comes_back(number, out[0], dtype):
            raise ValueError(f"{text} is not exact in {dtype}")
        return out[0]
    if scale is not None:
        number = number.scaleb(scale)
    if number != number.to_integral_value():
        raise ValueError(f"{text} is not a whole number")
    limits = np.iinfo(dtype)
    # Compared as decimals: the integer of 1e999999 would take a while.
    if not Decimal(int(limits.min)) <= number <= Decimal(int(limits.max)):
        raise ValueError(f"{text} is outside {dtype}")
    return int(number)


def _comes_back(number: Decimal, stored: Any, dtype: str) -> bool:
    """Whether a fill value is what the dtype holds, or the shortest text of that: 0.1 counts as itself."""
    if dtype == "bfloat16":
        stored = (np.array([stored], np.uint16).astype(np.uint32) << 16).view(np.float32)[0]
    if Decimal(float(stored)) == number:
        return True
    if dtype == "bfloat16":
        few = len(number.normalize().as_tuple().digits) <= _DIGITS[dtype]
        return few and number.adjusted() > -_PLACES[dtype]
    return Decimal(str(stored)) == number
