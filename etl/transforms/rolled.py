"""The figures of a `Rolling`: of one column, of every row's window, in the column's own arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError
from etl.core.schema import Field
from etl.tensors.views import valid_of
from etl.transforms import spans
from etl.transforms.host import Values, array_of, floats_of, is_plain, values_in
from etl.transforms.ordered import codes_of, said_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.transforms.ordered import Ordered

_WIDEST: Final = 38
_LOW: Final = np.int64(0xFFFFFFFF)


def check_column(field: Field, stat: str, /) -> None:
    """Hold that a column has such a figure.

    Raises:
        ConfigError: It has not.
    """
    kind = field.type
    timely = pa.types.is_temporal(kind) and stat in ("min", "max")
    if stat != "count" and not (is_plain(kind) or pa.types.is_decimal(kind) or timely):
        raise ConfigError(
            f"Rolling: {field.name} is {kind}, which has no {stat}",
            hint="Figures are of numbers, decimals and bools; count is of anything, min and max of times too.",
            column=field.name,
        )


def rolled_type(kind: Any, stat: str, /) -> pa.DataType:
    """The Arrow type of a figure of such a column."""
    if stat == "count":
        return pa.int64()
    if stat in ("mean", "std"):
        return pa.float64()
    made: pa.DataType = kind
    if stat == "sum":
        if pa.types.is_decimal(kind):
            made = pa.decimal128(_WIDEST, kind.scale)
        elif pa.types.is_floating(kind):
            made = pa.float64()
        elif kind != pa.uint64():
            made = pa.int64()
    return made


def rolled(
    arrays: Mapping[str, Any],
    field: Field,
    rows: Ordered,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    stats: Sequence[str],
    min_rows: int,
    named: Sequence[str],
    /,
) -> dict[str, Any]:
    """Figures of a column as Arrow arrays, at the rows' own places.

    Args:
        arrays: Columns of the rows.
        field: The column.
        rows: Their order.
        start: Of each sorted row's window the first position.
        stop: The position behind the last one.
        stats: Which figures.
        min_rows: The least number of values of a window that has figures.
        named: Columns that name a row in messages.

    Raises:
        CastError: A sum is beyond its type; the row is named.
    """
    array = arrays[field.name].take(pa.array(rows.order))
    valid = valid_of(array) if array.null_count else None
    count = spans.counts(valid, start, stop)
    enough = count >= min_rows
    made: dict[str, Any] = {}
    if "count" in stats:
        made["count"] = pa.array(rows.back(count))
    if {"sum", "mean", "std"} & set(stats):
        sums, bad = _sums(array, field, valid, start, stop)
        if (bad & enough).any() and {"sum", "mean"} & set(stats):
            row = int(rows.order[int(np.argmax(bad & enough))])
            raise CastError(
                f"Rolling: a sum of {field.name} does not fit {rolled_type(field.type, 'sum')}, for the row with "
                f"{said_of(arrays, named, row)}",
                hint="Cast the column to float64 first, or take a shorter window.",
                column=field.name,
            )
        if "sum" in stats:
            made["sum"] = _out(sums, rolled_type(field.type, "sum"), enough, rows)
        if "mean" in stats:
            mean = floats_of(Values(sums)) / np.maximum(count, 1)
            made["mean"] = _out(mean, pa.float64(), enough, rows)
        if "std" in stats:
            made["std"] = _out(_deviations(array, field, valid, rows, start, stop), pa.float64(), enough, rows)
    for stat in ("min", "max"):
        if stat in stats:
            made[stat] = _extremes(array, field, valid, start, stop, stat, enough, rows)
    return made


def _sums(
    array: Any, field: Field, valid: NDArray[np.bool_] | None, start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[Any, NDArray[np.bool_]]:
    """The sum of each window, and where it does not fit."""
    data = values_in(array, field).data
    if not isinstance(data, np.ndarray):
        return _decimal_sums(data, valid, start, stop)
    if data.dtype.kind == "f":
        values = data.astype(np.float64)
        if valid is not None:
            values = np.where(valid, values, 0.0)
        made = spans.sums(values, start, stop)
        wild = spans.counts(~np.isfinite(values), start, stop)
        return made, ~np.isfinite(made) & (wild == 0)
    limbs = spans.limbs_of(data if valid is None else np.where(valid, data, np.zeros(1, data.dtype)))
    found = spans.whole_sums(limbs, start, stop)
    if len(found) == 1:
        return found[0], np.zeros(len(start), np.bool_)
    low, high = found
    if data.dtype.kind == "u":
        bad = high >> np.int64(32) != 0
        return (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64), bad
    bad = (high < -(1 << 31)) | (high >= 1 << 31)
    return (high << np.int64(32)) | low, bad


def _decimal_sums(
    data: Any, valid: NDArray[np.bool_] | None, start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[Any, NDArray[np.bool_]]:
    """The same of decimals of 128 bits, which are whole numbers of their last digit."""
    words = np.frombuffer(data.buffers()[1] or b"", np.int64)[2 * data.offset :][: 2 * len(data)].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if valid is not None:
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    limbs = [low & _LOW, (low >> np.int64(32)) & _LOW, high & _LOW, high >> np.int64(32)]
    found = spans.whole_sums(limbs, start, stop)
    about = found[3].astype(np.float64) * 2.0**96 + found[2].astype(np.float64) * 2.0**64
    bad = np.abs(about) >= 0.99e38
    for at in np.flatnonzero(bad):  # few, if any: so close to the end of the type digits decide
        bad[at] = abs(sum(int(one[at]) << (32 * place) for place, one in enumerate(found))) >= 10**_WIDEST
    made = np.empty((len(start), 2), np.int64)
    made[:, 0] = found[0] | (found[1] << np.int64(32))
    made[:, 1] = found[2] | (found[3] << np.int64(32))
    made[bad] = 0
    kind = pa.decimal128(_WIDEST, data.type.scale)
    return pa.Array.from_buffers(kind, len(start), [None, pa.py_buffer(made.reshape(-1).data)]), bad


def _deviations(
    array: Any,
    field: Field,
    valid: NDArray[np.bool_] | None,
    rows: Ordered,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The spread of each window around its mean, divided by n."""
    values = values_in(array, field)
    present = np.ones(len(array), np.bool_) if valid is None else valid
    floats = _centred(values, rows)
    wild = spans.counts(present & ~np.isfinite(floats), start, stop) > 0
    floats = np.where(np.isfinite(floats), floats, 0.0)
    count = spans.counts(valid, start, stop)
    with np.errstate(over="ignore"):
        found = np.sqrt(spans.spreads(floats, present, start, stop) / np.maximum(count, 1))
    return np.where(wild, np.nan, found)


def _centred(values: Values, rows: Ordered) -> NDArray[np.float64]:
    """Numbers as floats; whole ones as their distance from the first of their group, so that big ones keep theirs."""
    data = values.data
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iu" or data.dtype.itemsize < 8:
        return floats_of(values).astype(np.float64)
    first = data[rows.first]
    if values.valid is not None:  # of those that are present: what lies in absent places must not be the middle
        known = np.where(values.valid, np.arange(len(data)), len(data))
        starts, groups = np.unique(rows.first, return_inverse=True)
        middle = np.minimum(np.minimum.reduceat(known, starts), len(data) - 1) if len(starts) else known
        first = data[middle[groups]]
    near = data - first
    far = data.astype(np.float64) - first.astype(np.float64)
    signed = near.view(np.int64).astype(np.float64)
    made: NDArray[np.float64] = np.where(np.abs(far) < 2.0**62, signed, far)
    return made


def _extremes(
    array: Any,
    field: Field,
    valid: NDArray[np.bool_] | None,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    stat: str,
    enough: NDArray[np.bool_],
    rows: Ordered,
) -> Any:
    """The least or greatest value of each window."""
    find = spans.least if stat == "min" else spans.greatest
    kind = field.type
    data = values_in(array, field).data
    if isinstance(data, np.ndarray):
        none = _outermost(data.dtype, stat)
        values = data if valid is None else np.where(valid, data, np.full(1, none, data.dtype))
        return _out(find(values, start, stop, none), kind, enough, rows)
    codes = codes_of(array, field).data  # decimals: by their places among all values
    none = _outermost(codes.dtype, stat)
    places = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    places[codes if valid is None else codes[valid]] = np.arange(len(codes)) if valid is None else np.flatnonzero(valid)
    best = find(codes if valid is None else np.where(valid, codes, none), start, stop, none)
    taken = places[np.where(enough, best, 0)]
    return array.take(pa.array(rows.back(taken), mask=~rows.back(enough)))


def _outermost(dtype: np.dtype[Any], stat: str) -> Any:
    """What no value lies beyond, so that it never wins."""
    if dtype.kind == "f":
        return np.inf if stat == "min" else -np.inf
    if dtype.kind == "b":
        return stat == "min"
    return np.iinfo(dtype).max if stat == "min" else np.iinfo(dtype).min


def _out(values: Any, kind: Any, enough: NDArray[np.bool_], rows: Ordered) -> Any:
    """A sorted column at the rows' own places, NULL where there were too few values."""
    known = rows.back(enough)
    if isinstance(values, np.ndarray):
        return array_of(Values(rows.back(values), None if known.all() else known), Field("", kind))
    places = pa.array(rows.back(np.arange(len(values))), mask=~known)
    return values.take(places)
