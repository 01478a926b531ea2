"""Rows in host memory as the steps see them: NumPy arrays with a mask, Arrow for text, decimals and lists.

The batch path on CPUs and serving both act on these, so that a model is served what it was trained on. Units are those
that a frame carries (`etl.engine.door`): microseconds since 1970 in UTC, days, microseconds of a span or a time of day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError
from etl.core.schema import Field, Schema
from etl.engine.door import carry, carry_vocabulary, to_declared
from etl.tensors.views import buffer_of, mask_of, packed, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

DROPPED: Final = "dropped_"
"""Begins what is counted of rows that a step leaves out; the reason follows, as manifests name it."""


@dataclass(frozen=True, slots=True)
class Values:
    """One column of some rows.

    Attributes:
        data: Numbers, bools, moments, dates and spans as a NumPy array, shape (n,), whose absent places hold anything;
            text (labels too), decimals, lists and structs as an Arrow array, which knows itself what is absent.
        valid: True where a value is present, shape (n,); None: everywhere. Always None beside an Arrow array.
    """

    data: Any
    valid: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.data)

    @property
    def present(self) -> NDArray[np.bool_]:
        """True where a value is present, shape (n,)."""
        if self.valid is not None:
            return self.valid
        if isinstance(self.data, np.ndarray):
            return np.ones(len(self.data), np.bool_)
        return valid_of(self.data)

    @property
    def nulls(self) -> int:
        """How many are absent."""
        if self.valid is not None:
            return len(self.valid) - int(np.count_nonzero(self.valid))
        return 0 if isinstance(self.data, np.ndarray) else self.data.null_count

    def kept(self, keep: NDArray[np.bool_], /) -> Values:
        """Those where `keep` is True."""
        if isinstance(self.data, np.ndarray):
            return Values(self.data[keep], None if self.valid is None else self.valid[keep])
        return Values(self.data.filter(mask_of(keep)))


class Rows:
    """Some rows of a part, column by column; a step gives new ones and leaves those that it was given alone.

    Columns that no step looks at are never touched. What happened to values (unseen, clipped …) is counted in `tally`,
    which all rows that come of these share.
    """

    __slots__ = ("_made", "_source", "count", "first", "tally", "train")

    def __init__(
        self,
        count: int,
        source: Mapping[str, tuple[Any, Field]],
        made: Mapping[str, Values],
        *,
        first: int = 0,
        train: NDArray[np.bool_] | None = None,
        tally: dict[tuple[str, str], int] | None = None,
    ) -> None:
        self.count = count
        """How many rows."""
        self.first = first
        """The number of the first one in its part, from 0; for messages."""
        self.train = train
        """True for rows of the split that steps are fitted on, shape (n,); None: none of them, as in serving."""
        self.tally: dict[tuple[str, str], int] = {} if tally is None else tally
        """(column, what) → count."""
        self._source, self._made = dict(source), dict(made)

    @classmethod
    def of_batch(
        cls,
        batch: pa.RecordBatch,
        given: Schema,
        /,
        *,
        first: int = 0,
        train: NDArray[np.bool_] | None = None,
        tally: dict[tuple[str, str], int] | None = None,
    ) -> Rows:
        """The rows of a batch of exactly `given`."""
        source = {field.name: (batch.column(i), field) for i, field in enumerate(given)}
        return cls(batch.num_rows, source, {}, first=first, train=train, tally=tally)

    @classmethod
    def of_values(cls, count: int, values: Mapping[str, Values], /) -> Rows:
        """Rows whose columns are there already."""
        return cls(count, {}, values)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, in no order that means anything."""
        return (*self._source, *(name for name in self._made if name not in self._source))

    def __getitem__(self, name: str) -> Values:
        """A column, made NumPy on the first look."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = values_in(*self._source[name])
        return found

    def with_columns(self, made: Mapping[str, Values], /) -> Rows:
        """These rows with columns changed or added."""
        source = {name: one for name, one in self._source.items() if name not in made}
        return self._like(self.count, source, {**self._made, **made})

    def selected(self, names: Iterable[str], /) -> Rows:
        """These rows with some of their columns."""
        wanted = set(names)
        return self._like(
            self.count,
            {name: one for name, one in self._source.items() if name in wanted},
            {name: one for name, one in self._made.items() if name in wanted},
        )

    def renamed(self, names: Mapping[str, str], /) -> Rows:
        """These rows with columns under other names: old → new."""
        return self._like(
            self.count,
            {names.get(name, name): one for name, one in self._source.items()},
            {names.get(name, name): one for name, one in self._made.items()},
        )

    def kept(self, keep: NDArray[np.bool_], /) -> Rows:
        """The rows where `keep` is True."""
        mask = mask_of(keep)
        return Rows(
            int(np.count_nonzero(keep)),
            {name: (array.filter(mask), field) for name, (array, field) in self._source.items()},
            {name: one.kept(keep) for name, one in self._made.items() if name not in self._source},
            first=self.first,
            train=None if self.train is None else self.train[keep],
            tally=self.tally,
        )

    def counted(self, column: str, what: str, number: int, /) -> None:
        """Remember that something happened to values of a column: "unseen", "clipped", "null" and so on."""
        if number:
            self.tally[column, what] = self.tally.get((column, what), 0) + number

    def batch(self, schema: Schema, /) -> pa.RecordBatch:
        """These rows as Arrow, of exactly the schema.

        Raises:
            CastError: A value does not fit its column.
        """
        arrays = [self._array(field) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())

    def refused(self, column: str, row: int, why: str, /, *, hint: str = "") -> CastError:
        """The error that says which value a step refuses.

        Args:
            column: Its name.
            row: Its place in these rows, from 0.
            why: What is wrong, with the value, such as "-1.0 has no logarithm".
            hint: What to do.
        """
        return CastError(f"column {column}, row {self.first + row + 1}: {why}", hint=hint, column=column)

    def _array(self, field: Field) -> Any:
        kept = self._source.get(field.name)
        if kept is not None and kept[1].type == field.type:
            return kept[0]
        return array_of(self[field.name], field)

    def _like(self, count: int, source: dict[str, tuple[Any, Field]], made: dict[str, Values]) -> Rows:
        return Rows(count, source, made, first=self.first, train=self.train, tally=self.tally)


def values_in(array: Any, field: Field, /) -> Values:
    """An Arrow array of a column as steps see it; numbers are shared, not copied.

    Raises:
        SchemaError: No frame carries its type.
        CastError: A value does not fit the carried type.
    """
    kind = array.type
    if not is_plain(kind):
        array = _one_of(carry(pa.table([array], names=[field.name]), Schema((field,))).column(0))
        kind = array.type
        if pa.types.is_dictionary(kind):
            return Values(array.dictionary_decode())
        if not is_plain(kind) and not pa.types.is_temporal(kind):
            return Values(array)
    valid = valid_of(array) if array.null_count else None
    if pa.types.is_boolean(kind):
        return Values(array.to_numpy(zero_copy_only=False) if not array.null_count else _bools(array), valid)
    return Values(values_of(array, _dtype(kind)), valid)


def array_of(values: Values, field: Field, /) -> Any:
    """A column as an Arrow array of its declared type.

    Raises:
        CastError: A value does not fit it.
    """
    data = values.data
    if isinstance(data, np.ndarray):
        nulls = None if values.valid is None or values.valid.all() else packed(values.valid)
        if data.dtype == np.bool_:
            array: Any = pa.Array.from_buffers(pa.bool_(), len(data), [nulls, packed(data)])
        else:
            kind = field.type if _is_same(field.type, data.dtype) else _carried_as(field.type, data.dtype)
            array = pa.Array.from_buffers(kind, len(data), [nulls, buffer_of(data)])
    else:
        array = data
    if array.type == field.type:
        return array
    if field.vocabulary is not None:
        made = carry_vocabulary(array, field.vocabulary, column=field.name)
    else:
        made = to_declared(pa.chunked_array([array]), field)
    return _one_of(made) if isinstance(made, pa.ChunkedArray) else made


def by_column(tally: Mapping[tuple[str, str], int], /) -> dict[str, dict[str, int]]:
    """The counts of `Rows.tally` column by column."""
    found: dict[str, dict[str, int]] = {}
    for (column, what), number in sorted(tally.items()):
        found.setdefault(column, {})[what] = number
    return found


def dropped_of(tally: Mapping[tuple[str, str], int], /) -> dict[str, int]:
    """The rows that steps left out, by reason."""
    found: dict[str, int] = {}
    for (_, what), number in sorted(tally.items()):
        if what.startswith(DROPPED):
            reason = what.removeprefix(DROPPED)
            found[reason] = found.get(reason, 0) + number
    return found


def is_plain(kind: pa.DataType, /) -> bool:
    """Whether a type's values are numbers or bools that NumPy has."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_boolean(kind) or (types.is_floating(kind) and not types.is_float16(kind))
    )


def holds_all(have: np.dtype[Any], want: np.dtype[Any], /) -> bool:
    """Whether every value of a dtype is one of another: NumPy calls int64 to float64 safe, which it is not."""
    whole = have.kind in "iu" and want.kind in "iu"
    return have == want or (
        np.can_cast(have, want, "safe") and (whole or not (have.kind in "iu" and have.itemsize == 8))
    )


def floats_of(values: Values, /) -> NDArray[np.float64]:
    """Numbers as float64, shape (n,); decimals to within one step (Arrow divides), absent places hold anything."""
    data = values.data
    if isinstance(data, np.ndarray):
        return data.astype(np.float64, copy=False)
    return values_of(data.cast(pa.float64()), np.float64)


def all_of(parts: Sequence[Values], /) -> Values:
    """Columns one below another."""
    first = parts[0].data
    if not isinstance(first, np.ndarray):
        return Values(pa.concat_arrays([one.data for one in parts]))
    valid = None if all(one.valid is None for one in parts) else np.concatenate([one.present for one in parts])
    return Values(np.concatenate([one.data for one in parts]), valid)


def _one_of(column: Any) -> Any:
    """A column of any number of chunks as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _bools(array: Any) -> NDArray[np.bool_]:
    plain = pa.Array.from_buffers(pa.bool_(), len(array), [None, array.buffers()[1]], offset=array.offset)
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def _dtype(kind: Any) -> np.dtype[Any]:
    if pa.types.is_temporal(kind):
        return np.dtype(np.int32 if pa.types.is_date32(kind) else np.int64)
    made: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return made


def _is_same(kind: Any, dtype: np.dtype[Any]) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    return kind in (pa.date32(), pa.duration("us")) or (is_plain(kind) and _dtype(kind) == dtype)


def _carried_as(kind: Any, dtype: np.dtype[Any]) -> pa.DataType:
    """The Arrow type of a NumPy column whose declared type is another: what a frame carries of it."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_date(kind):
        return pa.date32()
    return pa.from_numpy_dtype(dtype)
