"""Rows in an order within groups: codes that sort as values do, and the refusal of an order that is none.

Steps that look at other rows give the same for any cut and order of the rows, so their order must be total: a row that
has no place in it, or two rows with one place, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError, DataError
from etl.tensors.views import valid_of
from etl.transforms.host import is_plain, values_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class Codes:
    """A column as numbers that are equal where its values are, and in their order.

    Attributes:
        data: Shape (n,); absent places hold 0.
        valid: True where a value is present, shape (n,); None: everywhere.
    """

    data: NDArray[Any]
    valid: NDArray[np.bool_] | None = None

    @property
    def keys(self) -> tuple[NDArray[Any], ...]:
        """What rows are sorted by, the weightiest first: NULL before all values."""
        return (self.data,) if self.valid is None else (self.valid, self.data)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows in their order, group after group.

    Attributes:
        order: The rows' places before they were sorted, shape (n,), int64.
        group: The number of each one's group, from 0, shape (n,), int64.
        first: The position of the first row of each one's group, shape (n,), int64.
    """

    order: NDArray[np.int64]
    group: NDArray[np.int64]
    first: NDArray[np.int64]

    def back(self, values: NDArray[Any], /) -> NDArray[Any]:
        """What was found position by position, at the rows' own places."""
        made = np.empty_like(values)
        made[self.order] = values
        return made


def check_key(field: Field, step: str, what: str, /) -> None:
    """Hold that values of a column are equal and in order in one way only.

    Raises:
        ConfigError: They are floats, with which groups are a matter of the last bit, or lists.
    """
    kind = field.type
    if pa.types.is_floating(kind) and what == "by":
        raise ConfigError(
            f"{step}: {field.name} is {kind}, and groups are not made by floats",
            hint="Cast it to an integer, a decimal or text first.",
            column=field.name,
        )
    known = pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or is_text(kind)
    if not (is_plain(kind) or pa.types.is_float16(kind) or known):
        raise ConfigError(
            f"{step}: {what} names {field.name}, which is {kind} and has no order",
            hint="Name a column of numbers, text or times.",
            column=field.name,
        )


def is_text(kind: Any, /) -> bool:
    """Whether values are text, labels too."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind))


def codes_of(array: Any, field: Field, /) -> Codes:
    """A column of Arrow as codes; text is in the order of its UTF-8 bytes. Of NaN see `refuse_gaps`."""
    values = values_in(array, field)
    data, valid = values.data, values.valid
    if not isinstance(data, np.ndarray):
        valid = valid_of(data) if data.null_count else None
        words = data.dictionary_encode()
        ranks = pc.rank(words.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
        places = words.indices.fill_null(0).to_numpy()
        data = ranks[places] if len(ranks) else np.zeros(len(places), np.int64)
    if valid is not None:
        data = np.where(valid, data, np.zeros(1, data.dtype))
    return Codes(data, valid)


def groups_of(columns: Sequence[Codes], count: int, /) -> NDArray[np.int64]:
    """The number of each row's group, from 0, in the order of the columns. Shape (count,)."""
    if not columns:
        return np.zeros(count, np.int64)
    keys = [key for one in columns for key in one.keys]
    order = _sorted(keys)
    numbers = np.empty(count, np.int64)
    numbers[order] = np.cumsum(_changes([key[order] for key in keys], count)) - 1
    return numbers


def ordered(
    arrays: Mapping[str, Any],
    given: Schema,
    /,
    *,
    by: Sequence[str],
    sort: str,
    tie: Sequence[str],
    step: str,
) -> Ordered:
    """The rows in the order of `sort`, then `tie`, within groups of equal `by`, where NULL is a group of its own.

    Args:
        arrays: Column → Arrow array; at least those that are named.
        given: Their fields.
        by: Columns of the group.
        sort: The column of the order.
        tie: Columns that decide between rows with the same place.
        step: For messages.

    Raises:
        DataError: NULL or NaN in `sort` or `tie`, or two rows with the same place; the row is named.
    """
    within = [(name, codes_of(arrays[name], given.field(name))) for name in (sort, *tie)]
    named = (*by, sort, *tie)
    for name, codes in within:
        refuse_gaps(name, codes, arrays, named, step)
    parts = [codes_of(arrays[name], given.field(name)) for name in by]
    group_keys = [key for one in parts for key in one.keys]
    keys = [*group_keys, *(codes.data for _, codes in within)]
    count = len(arrays[sort])
    order = _sorted(keys)
    placed = [key[order] for key in keys]
    new = _changes(placed[: len(group_keys)], count)
    again = ~_changes(placed, count)
    if again.any():
        row = int(order[int(np.argmax(again))])
        raise DataError(
            f"{step}: two rows have the same place in the order, {said_of(arrays, named, row)}",
            hint="Add a column to tie= that tells them apart, such as the table's key.",
            column=sort,
        )
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, count))
    return Ordered(order, np.repeat(np.arange(len(starts)), sizes), np.repeat(starts, sizes))


def refuse_gaps(name: str, codes: Codes, arrays: Mapping[str, Any], named: Sequence[str], step: str, /) -> None:
    """Hold that every row has a place.

    Raises:
        DataError: One has NULL or NaN there; its other columns name it.
    """
    gone, what = (None if codes.valid is None else ~codes.valid), "NULL"
    if (gone is None or not gone.any()) and codes.data.dtype.kind == "f":
        gone, what = np.isnan(codes.data), "NaN"
    if gone is None or not gone.any():
        return
    row = int(np.argmax(gone))
    others = said_of(arrays, [one for one in named if one != name], row)
    raise DataError(
        f"{step}: column {name}, row {row + 1}: {what} has no place in an order; {others}",
        hint="Leave such rows out before, or fill them.",
        column=name,
        row=row + 1,
    )


def said_of(arrays: Mapping[str, Any], named: Sequence[str], row: int, /) -> str:
    """What a row has in these columns, in words."""
    values = (arrays[name][row].as_py() for name in dict.fromkeys(named))
    return ", ".join(
        f"{name} {'NULL' if value is None else value}" for name, value in zip(dict.fromkeys(named), values, strict=True)
    )


def _sorted(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """By the first key, then the next; stable."""
    if len(keys) == 1:
        return np.argsort(keys[0], kind="stable")
    return np.lexsort(list(reversed(keys)))


def _changes(keys: Sequence[NDArray[Any]], count: int) -> NDArray[np.bool_]:
    """True where a sorted row differs from the one before it, shape (count,); the first row does."""
    new = np.zeros(count, np.bool_)
    new[:1] = True
    for key in keys:
        np.logical_or(new[1:], key[1:] != key[:-1], out=new[1:])
    return new
