"""Categories as vectors of 0 and 1: one column in, one column of vectors out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field, Schema
from etl.tensors.views import column_of, valid_of
from etl.transforms.base import InPlace, listed
from etl.transforms.counts import CountsOf, by_frequency, key_type, merged_counts
from etl.transforms.host import Values, values_in
from etl.transforms.lookups import lookup_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows

WIDEST = 4096
"""Vectors that are wider must be asked for by max_size."""


@dataclass(frozen=True, slots=True)
class OneHot(InPlace):
    """Each value becomes a vector [V] uint8 with a 1 at its place; V values of the train rows have one.

    The most frequent value comes first, of equal ones the smaller. NULL is a vector of zeros, and so is a value that
    was never seen, unless that is refused.

    Attributes:
        columns: Text, labels, whole numbers, bools, decimals, dates or moments.
        unseen: "zeros", or "error".
        min_count: Values that come less often have no place.
        max_size: So many values have a place; None: all, up to 4096.
        drop: "first": the most frequent value has none, so that the places are not one linear combination.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "one_hot"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    unseen: Literal["zeros", "error"] = "zeros"
    min_count: int = 1
    max_size: int | None = None
    drop: Literal["first"] | None = None

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        unseen: Literal["zeros", "error"] = "zeros",
        min_count: int = 1,
        max_size: int | None = None,
        drop: Literal["first"] | None = None,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "OneHot"))
        _check("OneHot", unseen, min_count, max_size)
        if drop not in (None, "first"):
            raise ConfigError(f"OneHot: drop is {drop!r}", hint='Give "first" or nothing.')
        object.__setattr__(self, "unseen", unseen)
        object.__setattr__(self, "min_count", min_count)
        object.__setattr__(self, "max_size", max_size)
        object.__setattr__(self, "drop", drop)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as vectors; how wide is known when they are fitted."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(given.field(name), "OneHot")
        return _widened(given, dict.fromkeys(self.columns))

    def fitted_schema(self, given: Schema, state: State, /) -> Schema:
        """The same columns as vectors of their width."""
        return _widened(given, {name: state[name]["width"] for name in self.columns})

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of values."""
        del part
        return CountsOf(given, {name: key_type(given.field(name), "OneHot") for name in self.columns})

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_counts(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → vocab (value, count) in the order of places, and the width."""
        del given, filled
        skipped = 0 if self.drop is None else 1
        return {n: _vocabulary("OneHot", n, state[n], self.min_count, self.max_size, skipped) for n in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with vectors in place of values."""
        del given
        made: dict[str, Values] = {}
        for name in self.columns:
            values, width = rows[name], state[name]["width"]
            places = lookup_of(state[name]["vocab"]).places(values)
            unseen = (places < 0) & values.present if values.nulls else places < 0
            if unseen.any():
                rows.counted(name, "unseen", int(np.count_nonzero(unseen)))
                if self.unseen == "error":
                    raise _never_seen(rows, name, int(unseen.argmax()))
            if self.drop is not None:
                places = places - 1
            known = np.flatnonzero(places >= 0)
            out = np.zeros((rows.count, width), np.uint8)
            out[known, places[known]] = 1
            made[name] = _vectors(out)
        return rows.with_columns(made)


@dataclass(frozen=True, slots=True)
class MultiHot(InPlace):
    """Each list becomes a vector [V] uint8 with a 1 for each value that is in it, however often.

    A NULL list is a vector of zeros, as an empty one is; so are values that were never seen, unless they are refused.

    Attributes:
        columns: Lists of text, whole numbers, bools, decimals, dates or moments.
        unseen: "zeros", or "error".
        min_count: Values that come less often, in all lists together, have no place.
        max_size: So many values have a place; None: all, up to 4096.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "multi_hot"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    unseen: Literal["zeros", "error"] = "zeros"
    min_count: int = 1
    max_size: int | None = None

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        unseen: Literal["zeros", "error"] = "zeros",
        min_count: int = 1,
        max_size: int | None = None,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "MultiHot"))
        _check("MultiHot", unseen, min_count, max_size)
        object.__setattr__(self, "unseen", unseen)
        object.__setattr__(self, "min_count", min_count)
        object.__setattr__(self, "max_size", max_size)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as vectors; how wide is known when they are fitted."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(_items(given.field(name)), "MultiHot")
        return _widened(given, dict.fromkeys(self.columns))

    def fitted_schema(self, given: Schema, state: State, /) -> Schema:
        """The same columns as vectors of their width."""
        return _widened(given, {name: state[name]["width"] for name in self.columns})

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of the values in lists."""
        del part
        fields = {name: _items(given.field(name)) for name in self.columns}
        return _CountsInLists(CountsOf(Schema(tuple(fields.values())), {n: key_type(f, "") for n, f in fields.items()}))

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_counts(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → vocab (value, count) in the order of places, and the width."""
        del given, filled
        return {n: _vocabulary("MultiHot", n, state[n], self.min_count, self.max_size, 0) for n in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with vectors in place of lists."""
        del given
        made: dict[str, Values] = {}
        for name in self.columns:
            lists, width = rows[name].data, state[name]["width"]
            owners, items = _flat(lists)
            places = lookup_of(state[name]["vocab"]).places(items)
            unseen = (places < 0) & items.present if items.nulls else places < 0
            if unseen.any():
                rows.counted(name, "unseen", int(np.count_nonzero(unseen)))
                if self.unseen == "error":
                    raise _never_seen(rows, name, int(owners[int(unseen.argmax())]))
            known = np.flatnonzero(places >= 0)
            out = np.zeros((rows.count, width), np.uint8)
            out[owners[known], places[known]] = 1
            made[name] = _vectors(out)
        return rows.with_columns(made)


class _CountsInLists:
    def __init__(self, counts: CountsOf, /) -> None:
        self._counts = counts

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The values in the next rows' lists."""
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            lists: Any = column
            self._counts.add(name, lists.flatten())

    def state(self) -> dict[str, Any]:
        """Column → counts of the values in its lists."""
        return self._counts.state()


def _check(step: str, unseen: object, min_count: object, max_size: object) -> None:
    if unseen not in ("zeros", "error"):
        raise ConfigError(f"{step}: unseen is {unseen!r}", hint='Give "zeros" or "error".')
    for what, number in (("min_count", min_count), ("max_size", max_size)):
        if (number is not None or what == "min_count") and (type(number) is not int or number < 1):
            raise ConfigError(f"{step}: {what} is {number!r}", hint="It is a whole number from 1.")


def _items(field: Field) -> Field:
    """The values in a column's lists.

    Raises:
        ConfigError: It has none.
    """
    kind: Any = field.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ConfigError(
            f"MultiHot({field.name!r}): {field.name} is {kind}, not a list", hint="Use OneHot.", column=field.name
        )
    return Field(field.name, kind.value_type)


def _widened(given: Schema, widths: Mapping[str, int | None]) -> Schema:
    made = {
        name: replace(
            given.field(name),
            type=pa.list_(pa.uint8(), width or 1),
            nullable=False,
            vocabulary=None,
            note="" if width else "as wide as there are values: known when it is fitted",
        )
        for name, width in widths.items()
    }
    return Schema(tuple(made.get(one.name, one) for one in given))


def _vocabulary(
    step: str, name: str, found: Mapping[str, Any], min_count: int, max_size: int | None, skipped: int
) -> dict[str, Any]:
    """The values that have a place, in order, and the width of vectors."""
    table = by_frequency(found["counts"])
    size = int(np.count_nonzero(table.column("count").to_numpy() >= min_count))  # they come first: counts fall
    size = size if max_size is None else min(size, max_size)
    width = size - skipped
    if width < 1:
        raise DataError(
            f"{step}({name!r}): column {name} has {size} values in the rows that are fitted on",
            hint="Leave the column out.",
            column=name,
        )
    if max_size is None and width > WIDEST:
        raise DataError(
            f"{step}({name!r}): {name} has {width} values, which would be vectors of {width} bytes a row",
            hint="Give max_size=, or Categorify it for an embedding.",
            column=name,
        )
    return {
        "vocab": table.slice(0, size).combine_chunks(),
        "width": width,
        "rows": found["rows"],
        "null": found["null"],
    }


def _vectors(out: NDArray[np.uint8]) -> Values:
    """A matrix as a column of vectors."""
    return Values(pa.FixedSizeListArray.from_arrays(column_of(pa.uint8(), out.reshape(-1)), out.shape[1]))


def _flat(lists: Any) -> tuple[NDArray[np.int64], Values]:
    """The values in lists, and the row of each."""
    offsets = np.frombuffer(lists.buffers()[1], np.int32, len(lists) + 1, lists.offset * 4) if len(lists) else None
    if offsets is None:
        return np.zeros(0, np.int64), _of(lists.flatten())
    lengths = np.diff(offsets)
    if lists.null_count:
        lengths = np.where(valid_of(lists), lengths, 0)
    return np.repeat(np.arange(len(lists)), lengths), _of(lists.flatten())


def _of(items: Any) -> Values:
    return values_in(items, Field("items", items.type))


def _never_seen(rows: Rows, name: str, row: int) -> Exception:
    return rows.refused(
        name, row, "its value was never seen in the rows that were fitted on", hint='Write unseen="zeros", or fit anew.'
    )
