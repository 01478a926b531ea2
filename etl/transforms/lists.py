"""Steps on lists: to one length, to a part of each, to one number each. NULL stays NULL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema
from etl.engine.door import carried
from etl.tensors.views import bits_of, buffer_of, mask_of, packed, valid_of, values_of
from etl.transforms.base import InPlace, listed
from etl.transforms.constants import constant_of, number_of
from etl.transforms.host import Values, is_plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

How: TypeAlias = Literal["mean", "sum", "max", "min", "count"]
_HOWS: Final[tuple[str, ...]] = get_args(How)


@dataclass(frozen=True, slots=True)
class ListPad(InPlace):
    """Lists as rows of one length: longer ones are cut and counted as `truncated`, shorter ones padded.

    Attributes:
        columns: Their names: lists of numbers or bools without NULL elements.
        max_len: The length.
        pad_value: Of the elements' own type.
        side: "right": the first elements stay and padding comes after them; "left": the last stay, padding first.

    Raises:
        ConfigError: No column, no length, or no such side.
    """

    kind: ClassVar[str] = "list_pad"
    columns: tuple[str, ...]
    max_len: int
    pad_value: bool | float = 0
    side: Literal["right", "left"] = "right"

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        max_len: int,
        pad_value: bool | float = 0,  # noqa: FBT001 - lists of bools are padded with one
        side: Literal["right", "left"] = "right",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "ListPad"))
        if type(max_len) is not int or not 0 < max_len < 1 << 20:
            raise ConfigError(f"ListPad: max_len is {max_len!r}", hint="Give the length of a row: 16.")
        if side not in ("right", "left"):
            raise ConfigError(f"ListPad: the side is {side!r}", hint='Give "right" or "left".')
        for name, value in (("max_len", max_len), ("pad_value", pad_value), ("side", side)):
            object.__setattr__(self, name, value)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as lists of that length."""
        made = {}
        for name in self.columns:
            element = _element(given, name, "ListPad")
            self._padding(name, element)
            made[name] = _like(given.field(name), pa.list_(element, self.max_len))
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the lists of one length."""
        del state
        made: dict[str, Values] = {}
        for name in self.columns:
            element = _element(given, name, "ListPad")
            lists = Lists(rows[name].data)
            values = lists.numbers(rows, name)
            width, lengths = self.max_len, lists.lengths
            short = np.minimum(lengths, width)
            cut = int(np.count_nonzero(lengths > width))
            if cut:
                rows.counted(name, "truncated", cut)
                values = values[_places_kept(lengths, short, first=self.side == "right")]
            out = np.full((len(lengths), width), self._padding(name, element), values.dtype)
            at = np.arange(width)
            out[at < short[:, None] if self.side == "right" else at >= width - short[:, None]] = values
            made[name] = Values(_fixed(out, element, lists.valid))
        return rows.with_columns(made)

    def _padding(self, name: str, element: pa.DataType) -> Any:
        value: Any = self.pad_value
        if pa.types.is_boolean(element) and value in (0, 1):
            value = bool(value)  # 0 is what is written for everything
        return number_of(constant_of(value, Field(name, element), "ListPad"))


@dataclass(frozen=True, slots=True)
class ListSlice(InPlace):
    """Of each list the elements from `start` on and before `stop`, as Python's slices have them.

    Attributes:
        columns: Their names: lists of anything.
        start: Below 0: counted from the end.
        stop: None: to the end.

    Raises:
        ConfigError: No column, or a place that is no integer.
    """

    kind: ClassVar[str] = "list_slice"
    columns: tuple[str, ...]
    start: int
    stop: int | None = None

    def __init__(self, columns: str | list[str] | tuple[str, ...], start: int, stop: int | None = None) -> None:
        object.__setattr__(self, "columns", listed(columns, "ListSlice"))
        if type(start) is not int or (stop is not None and type(stop) is not int):
            raise ConfigError(f"ListSlice: from {start!r} to {stop!r}", hint='Write ListSlice("tags", 0, 3).')
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "stop", stop)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as lists of any length."""
        made = {}
        for name in self.columns:
            element = _element(given, name, "ListSlice", plain=False)
            made[name] = _like(given.field(name), pa.list_(element))
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the lists cut."""
        del given, state
        made: dict[str, Values] = {}
        for name in self.columns:
            lists = Lists(rows[name].data)
            lengths = lists.lengths
            start = _place(self.start, lengths)
            stop = lengths if self.stop is None else _place(self.stop, lengths)
            kept = np.maximum(stop - start, 0)
            child = lists.elements
            if not np.array_equal(kept, lengths):
                at = _within(lengths)
                keep = (at >= np.repeat(start, lengths)) & (at < np.repeat(stop, lengths))
                child = child.filter(mask_of(keep))
            made[name] = Values(_list(child, kept, lists.valid))
        return rows.with_columns(made)


@dataclass(frozen=True, slots=True)
class ListPool(InPlace):
    """One number for each list.

    Attributes:
        columns: Their names: lists of numbers or bools without NULL elements.
        how: "mean": float32, computed in float64. "sum": int64 of integers and bools, exact or refused; floats keep
            their type. "max", "min": of the elements' own type. "count": int32. Of a list of no elements mean, max and
            min are NULL, counted as `empty`; its sum and count are 0.

    Raises:
        ConfigError: No column, or no such way.
    """

    kind: ClassVar[str] = "list_pool"
    columns: tuple[str, ...]
    how: How

    def __init__(self, columns: str | list[str] | tuple[str, ...], how: How) -> None:
        object.__setattr__(self, "columns", listed(columns, "ListPool"))
        if how not in _HOWS:
            raise ConfigError(f"ListPool: how is {how!r}", hint=f"Give one of {', '.join(_HOWS)}.")
        object.__setattr__(self, "how", how)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as numbers."""
        made = {}
        for name in self.columns:
            element = _element(given, name, "ListPool", plain=self.how != "count")
            field = _like(given.field(name), self._kind(element))
            made[name] = replace(field, nullable=field.nullable or self.how in ("mean", "max", "min"))
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with a number for each list."""
        del given, state
        return rows.with_columns({name: self._pooled(rows, name) for name in self.columns})

    def _kind(self, element: pa.DataType) -> pa.DataType:
        if self.how == "count":
            return pa.int32()
        if self.how == "mean":
            return pa.float32()
        return element if self.how in ("max", "min") or pa.types.is_floating(element) else pa.int64()

    def _pooled(self, rows: Rows, name: str) -> Values:
        lists = Lists(rows[name].data)
        lengths, valid = lists.lengths, lists.valid
        if self.how == "count":
            return Values(lengths.astype(np.int32), valid)
        values = lists.numbers(rows, name)
        full = np.flatnonzero(lengths)
        starts = (np.cumsum(lengths) - lengths)[full]
        if self.how in ("max", "min"):
            out = np.zeros(len(lengths), values.dtype)
            if len(full):
                out[full] = (np.maximum if self.how == "max" else np.minimum).reduceat(values, starts)
        elif self.how == "sum" and values.dtype.kind != "f":
            return Values(_whole_sums(rows, name, values, lengths, full, starts), valid)
        else:
            sums = np.zeros(len(lengths), np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                if len(full):
                    sums[full] = np.add.reduceat(values, starts, dtype=np.float64)
                if self.how == "mean":
                    sums = sums / np.maximum(lengths, 1)
                out = sums.astype(values.dtype if self.how == "sum" else np.float32)
            _check_finite(rows, name, values, out, lengths)
        if self.how == "sum":
            return Values(out, valid)
        some = lengths > 0
        empty = len(lengths) - int(np.count_nonzero(some)) - (0 if valid is None else int(np.count_nonzero(~valid)))
        rows.counted(name, "empty", empty)
        return Values(out, valid if not empty else some if valid is None else some & valid)


class Lists:
    """The lists of a column, whichever way Arrow has them: elements of absent lists are left out.

    Attributes:
        elements: All elements one after another, an Arrow array.
        lengths: Elements of each list, shape (n,), int64; 0 for absent ones.
        valid: True where a list is present, shape (n,); None: everywhere.
    """

    __slots__ = ("elements", "lengths", "valid")

    def __init__(self, array: Any, /) -> None:
        self.valid: NDArray[np.bool_] | None = valid_of(array) if array.null_count else None
        if pa.types.is_fixed_size_list(array.type):
            width = array.type.list_size
            lengths = np.full(len(array), width, np.int64)
            elements = array.values.slice(array.offset * width, len(array) * width)
        else:
            offsets = values_of_offsets(array)
            lengths = np.diff(offsets).astype(np.int64)
            elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        if self.valid is not None:
            behind = lengths[~self.valid]
            if behind.any():
                elements = elements.filter(mask_of(np.repeat(self.valid, lengths)))
            lengths = np.where(self.valid, lengths, 0)
        self.elements, self.lengths = elements, lengths

    def numbers(self, rows: Rows, name: str, /) -> NDArray[Any]:
        """The elements as NumPy, shape (elements,).

        Raises:
            CastError: One is NULL; its row is named.
        """
        kind: Any = self.elements.type
        if self.elements.null_count:
            at = int((~valid_of(self.elements)).argmax())
            row = int(np.searchsorted(np.cumsum(self.lengths), at, side="right"))
            raise rows.refused(name, row, "an element of its list is NULL", hint="Clear it in the query or function.")
        if pa.types.is_boolean(kind):
            return bits_of(self.elements.buffers()[1], self.elements.offset, len(self.elements))
        return values_of(self.elements, kind.to_pandas_dtype())


def values_of_offsets(array: Any, /) -> NDArray[Any]:
    """Where each list begins, and where the last ends, shape (n + 1,)."""
    kind = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array) + 1, kind)
    return np.frombuffer(data, kind, count=len(array) + 1, offset=array.offset * kind.itemsize)


def _element(given: Schema, name: str, what: str, *, plain: bool = True) -> pa.DataType:
    """What a column's lists are of, as rows carry it.

    Raises:
        ConfigError: The column is no list, or its elements are none that the step takes.
    """
    given.require(name)
    kind: Any = given.field(name).type
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise ConfigError(f"{what}({name!r}): {name} is {kind}, not a list", column=name)
    element: pa.DataType = carried(kind, column=name).value_type  # type: ignore[attr-defined] # a list's
    if plain and not is_plain(element):
        raise ConfigError(
            f"{what}({name!r}): {name} is {kind}, and its elements are neither numbers nor bools",
            hint="Encode them first, for instance with MultiHot.",
            column=name,
        )
    return element


def _like(field: Field, kind: pa.DataType) -> Field:
    return replace(field, type=kind, note="", metadata={})


def _within(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each element in its list, shape (elements,)."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _place(place: int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum(np.full(len(lengths), place), lengths) if place >= 0 else np.maximum(lengths + place, 0)


def _places_kept(lengths: NDArray[np.int64], short: NDArray[np.int64], *, first: bool) -> NDArray[np.bool_]:
    """True for the elements that stay: the first or last ones of each list."""
    at = _within(lengths)
    bound = np.repeat(short if first else lengths - short, lengths)
    return np.asarray(at < bound if first else at >= bound)


def _fixed(out: NDArray[Any], element: pa.DataType, valid: NDArray[np.bool_] | None) -> Any:
    """Rows of one length as an Arrow array."""
    flat = out.reshape(-1)
    data = packed(flat) if flat.dtype == np.bool_ else buffer_of(flat)
    child = pa.Array.from_buffers(element, len(flat), [None, data])
    kind = pa.list_(element, out.shape[1])
    return pa.Array.from_buffers(kind, len(out), [None if valid is None else packed(valid)], children=[child])


def _list(child: Any, lengths: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = None if valid is None else packed(valid)
    return pa.Array.from_buffers(pa.list_(child.type), len(lengths), [nulls, buffer_of(offsets)], children=[child])


def _whole_sums(
    rows: Rows,
    name: str,
    values: NDArray[Any],
    lengths: NDArray[np.int64],
    full: NDArray[np.intp],
    starts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Sums of integers, exact.

    Raises:
        CastError: One is beyond int64.
    """
    out = np.zeros(len(lengths), np.int64)
    if not len(full):
        return out
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
    out[full] = np.add.reduceat(wide.view(np.int64) if wide.dtype.kind == "u" else wide, starts)
    # A sum that wrapped is 2^64 from the true one, and the rounded one is much nearer than that.
    near = np.add.reduceat(wide.astype(np.float64), starts)
    apart = np.abs(near - out[full]) > 2.0**62
    if apart.any():
        row = int(full[apart.argmax()])
        raise rows.refused(name, row, "the sum of its list is beyond int64", hint="Cast the elements to floats.")
    return out


def _check_finite(rows: Rows, name: str, values: NDArray[Any], out: NDArray[Any], lengths: NDArray[np.int64]) -> None:
    """Hold that finite elements give finite numbers."""
    lost = np.isinf(out)
    if not lost.any():
        return
    full = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[full]
    finite = np.zeros(len(out), np.bool_)
    finite[full] = np.logical_and.reduceat(np.isfinite(values), starts)
    lost &= finite
    if lost.any():
        row = int(lost.argmax())
        raise rows.refused(name, row, f"what its list comes to is beyond {out.dtype}")
