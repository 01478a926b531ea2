"""Which number a key has, for many rows at once or for one: made once for a table of keys, and kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.late import Late
from etl.tensors.views import valid_of, values_of
from etl.transforms.sparse import Sparse

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from etl.transforms.host import Values
else:
    pc = Late("pyarrow.compute")

FEW: Final = 8
"""Rows for which a dict of Python's is faster than whole columns."""
DENSE: Final = 1 << 22
"""Integers within a range of so many have their place by their value alone."""
_ALL: Final = (1 << 64) - 1
_KEPT: Final = 256
"""Lookups that a process keeps."""


class Lookup:
    """Places of keys, from 0; -1 for a key that is none.

    Args:
        keys: Distinct values: an Arrow array of a key type, whose last may be NULL.
    """

    def __init__(self, keys: Any, /) -> None:
        self.null = len(keys) - 1 if keys.null_count else -1
        """The place of NULL; -1: it has none. `places` does not look for it."""
        self._keys = keys.slice(0, len(keys) - 1) if keys.null_count else keys
        self._kind = keys.type
        self._dict: dict[Any, int] | None = None
        self._sparse: Sparse | None = None
        self._kept: dict[str, NDArray[Any]] = {}
        self._dense: tuple[int, NDArray[np.int64]] | None = None
        self._lock = threading.Lock()

    def places(self, values: Values, /) -> NDArray[np.int64]:
        """The place of each value's key, int64 (n,); -1 where there is none, and for NULL.

        Args:
            values: Of the column that the keys are of.
        """
        data = values.data
        if len(data) <= FEW:
            return self._few(values)
        if not isinstance(data, np.ndarray):
            found = pc.index_in(data if data.type == self._kind else data.cast(self._kind), value_set=self._keys)
            places = values_of(found, np.int32).astype(np.int64)
            if found.null_count:
                places[~valid_of(found)] = -1
            return places
        places = self._of_numbers(as_numbers(data))
        if values.valid is not None:
            places[~values.valid] = -1
        return places

    def kept(self, name: str, make: Callable[[pa.Table], NDArray[Any]], table: pa.Table, /) -> NDArray[Any]:
        """What is made of the table that the keys are of: once, on the first call."""
        found: NDArray[Any] | None = self._kept.get(name)
        return self._kept.setdefault(name, make(table)) if found is None else found

    def _few(self, values: Values) -> NDArray[np.int64]:
        known = self._by_value()
        data = values.data
        if isinstance(data, np.ndarray):
            found = [known.get(one, -1) for one in as_numbers(data).tolist()]
            if values.valid is not None:
                found = [at if there else -1 for at, there in zip(found, values.valid.tolist(), strict=True)]
        else:
            found = [-1 if one is None else known.get(one, -1) for one in data.to_pylist()]
        return np.array(found, np.int64)

    def _by_value(self) -> dict[Any, int]:
        if self._dict is None:
            with self._lock:
                listed = self._keys.to_pylist() if self._is_text() else self._numbers().tolist()
                self._dict = {value: at for at, value in enumerate(listed)}
        return self._dict

    def _of_numbers(self, data: NDArray[Any]) -> NDArray[np.int64]:
        if not len(self._keys):
            return np.full(len(data), -1, np.int64)
        self._prepare()
        if self._dense is not None:
            least, table = self._dense
            # What lies below wraps to above; the last place of the table says that there is none.
            apart = data.view(np.uint64) - np.uint64(least & _ALL)
            found: NDArray[np.int64] = table[np.minimum(apart, np.uint64(len(table) - 1)).view(np.int64)]
            return found
        if self._sparse is None:
            raise AssertionError
        return self._sparse.places(data)

    def _prepare(self) -> None:
        if self._dense is not None or self._sparse is not None:
            return
        with self._lock:
            numbers = self._numbers()
            least, most = int(numbers.min()), int(numbers.max())
            if most - least < DENSE:
                table = np.full(most - least + 2, -1, np.int64)
                table[(numbers - numbers.dtype.type(least)).astype(np.int64)] = np.arange(len(numbers))
                self._dense = least, table
            else:
                self._sparse = Sparse(numbers)

    def _is_text(self) -> bool:
        return bool(pa.types.is_string(self._kind) or pa.types.is_decimal(self._kind))

    def _numbers(self) -> NDArray[Any]:
        kind: Any = self._kind
        if pa.types.is_boolean(kind):
            return np.array(self._keys.to_pylist(), np.int64)
        if pa.types.is_floating(kind):
            return as_numbers(values_of(self._keys, np.float64))
        if pa.types.is_date(kind):
            return values_of(self._keys, np.int32).astype(np.int64)
        return values_of(self._keys, np.uint64 if pa.types.is_uint64(kind) else np.int64)


def as_numbers(data: NDArray[Any], /) -> NDArray[Any]:
    """Numbers as keys compare them: whole ones as int64 or uint64, floats by the bits of equal ones."""
    if data.dtype.kind == "f":
        made = data.astype(np.float64) + 0.0
        made[np.isnan(made)] = np.nan
        return made.view(np.int64)
    return data if data.dtype == np.uint64 else data.astype(np.int64, copy=False)


class _Known:
    """Lookups by the identity of the table that they were made of, the last ones asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Any, Lookup]] = OrderedDict()

    def of(self, table: pa.Table, column: str) -> Lookup:
        with self._lock:
            found = self._known.get(id(table))
            if found is not None and found[0] is table:
                self._known.move_to_end(id(table))
                return found[1]
        values = table.column(column)
        made = Lookup(values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [_none(values)]))
        with self._lock:
            self._known[id(table)] = table, made  # the table is kept, so that its identity stays its own
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return made


def _none(values: Any) -> Any:
    return pa.Array.from_buffers(values.type, 0, [None] * (3 if pa.types.is_string(values.type) else 2))


_known = _Known()


def lookup_of(table: pa.Table, column: str = "value", /) -> Lookup:
    """The lookup of a table's keys, made on the first call for it.

    Args:
        table: As it stands in a state.
        column: The name of its keys.
    """
    return _known.of(table, column)


def places_in(table: pa.Table, keys: Values, /) -> NDArray[np.int64]:
    """The row of each key in a table whose `value` is sorted, NULL last; -1: it is in none. int64 (n,)."""
    lookup = lookup_of(table)
    found = lookup.places(keys)
    if lookup.null >= 0 and keys.nulls:
        found[~keys.present] = lookup.null
    return found


def numbers_in(table: pa.Table, column: str, /) -> NDArray[Any]:
    """A column of int64 or float64 without NULL, of a table in one chunk; found once."""

    def found(table: pa.Table) -> NDArray[Any]:
        held: Any = table.column(column)
        dtype = np.float64 if pa.types.is_floating(held.type) else np.int64
        return values_of(held.chunk(0), dtype) if held.num_chunks else np.zeros(0, dtype)

    return lookup_of(table).kept(column, found, table)


def picked(numbers: NDArray[Any], places: NDArray[np.int64], other: float, /) -> NDArray[Any]:
    """The number at each place, (n,); `other` where the place is -1. The numbers are not copied, however many."""
    if not len(numbers):
        return np.full(len(places), other, numbers.dtype)
    found = numbers[places]  # -1 is the last one, until it is replaced
    unknown = places < 0
    if np.count_nonzero(unknown):
        found[unknown] = other
    return found
