"""Numbers brought to the scale of their key: each key's own mean and standard deviation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.tensors.views import column_of, mask_of
from etl.transforms.counts import key_type, keys_of
from etl.transforms.figures import merged
from etl.transforms.grouped import grouped, none_of, together
from etl.transforms.host import floats_of, values_in
from etl.transforms.lookups import numbers_in, picked, places_in
from etl.transforms.reals import NEAR, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows, Values
    from etl.transforms.reals import Maker


_LOST: Final = 11
"""Bits of a 64-bit integer that float64 has no room for."""


def observe_by(figures: Observer, given: Schema, by: str, columns: Sequence[str], /) -> Observer:
    """What is observed of columns, and by key beside it."""
    return _ByKey(figures, given, by, columns)


def merge_by(left: State, right: State, columns: Sequence[str], /) -> dict[str, Any]:
    """Of both."""
    return {
        name: {**merged(left[name], right[name]), "keys": together([left[name]["keys"], right[name]["keys"]])}
        for name in columns
    }


def finish_by(found: Mapping[str, Any], ddof: int, /, *, whole: bool) -> dict[str, Any]:
    """The figures of keys: value, n, mean, rest and std, sorted by key; a key of too few values has std 0.

    Args:
        found: What was observed of a column.
        ddof: The variance is divided by n - ddof.
        whole: The numbers are integers.
    """
    table: pa.Table = found["keys"].sort_by("value").combine_chunks()
    n, m2 = table.column("n").to_numpy(), table.column("m2").to_numpy()
    mean = np.abs(table.column("mean").to_numpy())
    std = np.sqrt(np.where(n > ddof, m2, 0.0) / np.maximum(n - ddof, 1))
    if not whole:  # of equal floats the rounding of their mean may leave a spread that there is not
        std[std <= mean * 2.0**-52] = 0.0
    return {"keys": table.drop_columns(["m2"]).append_column("std", [column_of(pa.float64(), std)])}


def standardized_by(rows: Rows, by: str, figures: Mapping[str, Any], /, *, refuse: bool) -> Maker:
    """What makes of each number one by the figures of its key; of a key never seen by those of all rows.

    Raises:
        CastError: A key was never seen, and that is refused.
    """
    table = figures["keys"]
    places = places_in(table, rows[by])
    unseen = places < 0
    if np.count_nonzero(unseen):
        rows.counted(by, "unseen", int(np.count_nonzero(unseen)))
        if refuse:
            row = int(unseen.argmax())
            hint = 'Write unseen="global", or fit anew.'
            raise rows.refused(by, row, "its key was never seen in the rows that were fitted on", hint=hint)
    mean, rest, std = (numbers_in(table, name) for name in ("mean", "rest", "std"))
    around = figures.get("base", 0)
    base = _rounded(around)
    left = float(around - int(figures["mean"])) + figures["rest"] if base else 0.0
    whole = figures["mean"], left, figures["std"]

    def make(piece: Values, start: int) -> NDArray[np.float64]:
        at = places[start : start + len(piece)]
        means, rests, stds = (picked(one, at, other) for one, other in zip((mean, rest, std), whole, strict=True))
        apart: NDArray[np.float64] = (_from_base(piece, base) - (means - base)) - rests
        even = stds == 0
        if np.count_nonzero(even):
            stds[even] = 1.0
            apart[even & np.isfinite(apart)] = 0.0
        apart /= stds
        return apart

    return make


def _rounded(whole: int) -> int:
    """A number near a large one that float64 holds; 0 for those that it holds themselves."""
    return whole >> _LOST << _LOST if abs(whole) >= WHOLE else 0


def _base_of(column: Values) -> int:
    """What large integers are to be subtracted from, so that float64 holds what is left; else 0."""
    data = column.data
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iu" or data.dtype.itemsize < 8:
        return 0
    there = data if column.valid is None else data[column.valid]
    if not len(there):
        return 0
    least, most = int(there.min()), int(there.max())
    return _rounded(least) if most - least < NEAR else 0


def _from_base(column: Values, base: int) -> NDArray[np.float64]:
    """Numbers less the base, float64 (n,); those far from it are rounded first."""
    wide, data = floats_of(column), column.data
    if not base:
        return wide
    apart = data.view(np.int64) - np.array(base & 0xFFFF_FFFF_FFFF_FFFF, np.uint64).view(np.int64)  # which may wrap
    plain: NDArray[np.float64] = wide - base
    return np.where(np.abs(plain) < NEAR, apart.astype(np.float64), plain)


def _shifted(table: pa.Table, base: int) -> pa.Table:
    """Moments of numbers less the base as those of the numbers: means are the sums of two floats."""
    if not base:
        return table
    low = table.column("mean").to_numpy()
    mean = low + base
    rest = table.column("rest").to_numpy() + (low - (mean - base))
    made = {"mean": column_of(pa.float64(), mean), "rest": column_of(pa.float64(), rest)}
    for name, column in made.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


class _ByKey:
    """Moments of columns, and of each key."""

    def __init__(self, figures: Observer, given: Schema, by: str, columns: Sequence[str], /) -> None:
        self._figures, self._given = figures, given
        self._by = given.field(by)
        self._kind = key_type(self._by, "Standardize")
        self._tables = {name: [none_of(self._kind)] for name in columns}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        self._figures.take(rows.select(list(self._tables)))
        keys = keys_of(rows.column(rows.schema.get_field_index(self._by.name)), self._by, self._kind)
        for name, tables in self._tables.items():
            values = values_in(rows.column(rows.schema.get_field_index(name)), self._given.field(name))
            base = _base_of(values)
            numbers = _from_base(values, base)
            chosen = values.present & np.isfinite(numbers)
            tables.append(_shifted(grouped(keys.filter(mask_of(chosen)), numbers[chosen]), base))
            if len(tables) > 16:
                self._tables[name] = [together(tables)]

    def state(self) -> dict[str, Any]:
        """Column → its moments, and those of each key."""
        whole = self._figures.state()
        return {name: dict(whole[name]) | {"keys": together(tables)} for name, tables in self._tables.items()}
