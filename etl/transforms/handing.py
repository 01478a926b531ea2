"""What serving hands out: prepared columns as the tensors of the dataset, by what its manifest says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError
from etl.tensors import cast
from etl.tensors.manifest import sequence
from etl.tensors.pack import native_dtype
from etl.tensors.segments import held_dtype
from etl.transforms.host import array_of, holds_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Field, Schema
    from etl.transforms.host import Rows, Values

_WHOLE: Final = {"float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53}
"""Integers up to these are all floats of the dtype."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column on its way into a tensor.

    Attributes:
        field: After all steps.
        dtype: Of the tensor, in words.
        index: Its place in a packed tensor; None: the tensor is its own.
        width: Items of a row; None: one value.
        fill: What absent values are.
        policy: exact, round or saturate.
        nulls: mask, error, drop or fill.
        valid: Whether a `.valid` says which are there.
        items: Whether it is a ragged list.
    """

    field: Field
    dtype: str
    index: int | None
    width: int | None
    fill: Any
    policy: Any
    nulls: str
    valid: bool
    items: bool = False

    def into(self, values: Values, out: NDArray[Any], rows: Rows, /) -> None:
        """Write the values into `out` [rows].

        Raises:
            CastError: One is no value of the dtype under the policy; or it is NULL, and that is refused.
        """
        absent = values.nulls
        if absent and self.nulls in ("error", "drop"):
            row = int((~values.present).argmax())
            raise rows.refused(self.field.name, row, "it is NULL, which is refused", hint="Fill it with FillNull.")
        data = values.data
        if isinstance(data, np.ndarray) and self._fits(data, values):
            out[:] = data
            if absent:
                out[~values.present] = self.fill
            return
        try:
            array = array_of(values, self.field)
            cast.into(array, out, self.dtype, self.policy, cast.CastCount(), fill=self.fill)
        except cast.Refused as error:
            raise rows.refused(self.field.name, error.row, str(error)) from error

    def _fits(self, data: NDArray[Any], values: Values) -> bool:
        """Whether NumPy's own conversion is exact for these."""
        have, want = data.dtype, np.dtype(np.uint16 if self.dtype == "bfloat16" else self.dtype)
        if self.dtype == "bfloat16":
            return False
        if holds_all(have, want):
            return not pa.types.is_timestamp(self.field.type) or getattr(self.field.type, "unit", "") == "us"
        limit = _WHOLE.get(self.dtype)
        if have.kind not in "iu" or limit is None:
            return False
        seen = data if values.valid is None else data[values.valid]
        return not len(seen) or bool(seen.max() <= limit and (have.kind == "u" or seen.min() >= -limit))


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that is handed out.

    Attributes:
        tensor: Its name.
        dtype: In words; text is "object".
        columns: Of it: all of a packed one in order, or one.
    """

    tensor: str
    dtype: str
    columns: tuple[Column, ...]

    def put(self, rows: Rows, tensors: dict[str, NDArray[Any]], /) -> None:
        """Make the tensor of these rows, and its `.valid` where there is one.

        Raises:
            CastError: A value does not fit.
        """
        first = self.columns[0]
        if first.items:
            self._put_lists(rows, tensors)
            return
        if self.dtype == "object":
            tensors[self.tensor] = np.array([*array_of(rows[first.field.name], first.field).to_pylist(), None], object)[
                :-1
            ]
            return
        held = held_dtype(self.dtype)
        if first.index is None:
            values = rows[first.field.name]
            if first.width is not None:
                tensors[self.tensor], present = _vectors(first, values, held, rows)
            else:
                out = np.empty(rows.count, held)
                first.into(values, out, rows)
                tensors[self.tensor], present = out, values.present
            if first.valid:
                tensors[f"{self.tensor}.valid"] = present.copy()
            return
        out = np.empty((rows.count, len(self.columns)), held)
        valid = np.ones(out.shape, np.bool_) if any(one.valid for one in self.columns) else None
        for at, one in enumerate(self.columns):
            values = rows[one.field.name]
            one.into(values, out[:, at], rows)
            if valid is not None and one.valid and values.nulls:
                valid[:, at] = values.present
        tensors[self.tensor] = out
        if valid is not None:
            tensors[f"{self.tensor}.valid"] = valid

    def _put_lists(self, rows: Rows, tensors: dict[str, NDArray[Any]]) -> None:
        (one,) = self.columns
        values = rows[one.field.name]
        lists = values.data
        present = values.present
        lengths = np.array(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        offsets = np.zeros(rows.count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        items = lists.drop_null().flatten() if lists.null_count else lists.flatten()
        if items.null_count:
            raise CastError(f"column {one.field.name}: a list holds NULL", column=one.field.name)
        out = np.empty(len(items), held_dtype(self.dtype))
        cast.into(items, out, self.dtype, one.policy, cast.CastCount())
        tensors[f"{self.tensor}.values"], tensors[f"{self.tensor}.offsets"] = out, offsets
        if one.valid:
            tensors[f"{self.tensor}.valid"] = present.copy()


def outputs_of(columns: Iterable[Mapping[str, Any]], returns: Schema, /) -> tuple[Output, ...]:
    """The tensors of a version's features, in the order of its manifest.

    Args:
        columns: `columns[]` of the manifest.
        returns: The columns after all steps.
    """
    found: dict[str, list[Column]] = {}
    dtypes: dict[str, str] = {}
    for entry in columns:
        if entry["role"] not in ("feature", "text"):
            continue
        one = _column(entry, returns)
        tensor = str(entry["tensor"] or entry["name"])
        found.setdefault(tensor, []).append(one)
        dtypes[tensor] = one.dtype
    return tuple(
        Output(tensor, dtypes[tensor], tuple(sorted(members, key=lambda c: c.index or 0)))
        for tensor, members in found.items()
    )


def _column(entry: Mapping[str, Any], returns: Schema) -> Column:
    one = returns.field(str(entry["name"]))
    dtype, kind = str(entry["dtype"]), one.type
    if not entry["tensor"]:  # Parquet has no tensors: what it would be as one
        dtype = "object" if entry["role"] == "text" or entry["kind"] == "text" else _native(kind)
    null = entry["null"]
    policy = str(null["policy"])
    fill: Any = 0
    if policy == "fill":
        fill = cast.parse_fill(
            str(null["fill"]), dtype, kind.scale if dtype == "int64" and pa.types.is_decimal(kind) else None
        )
    shape = list(sequence(entry["shape"]))
    width = int(str(shape[0])) if shape else None
    if width is None and pa.types.is_fixed_size_list(kind):
        width = kind.list_size
    masked = null.get("valid_tensor") is not None or (not entry["tensor"] and bool(entry["nullable"]))
    return Column(
        field=one,
        dtype=dtype,
        index=None if entry["index"] is None else int(entry["index"]),
        width=width,
        fill=fill,
        policy=str(entry["cast"]["policy"]),
        nulls=policy,
        valid=masked and dtype != "object",
        items=pa.types.is_list(kind) and dtype != "object",
    )


def _native(kind: Any) -> str:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return native_dtype(kind.value_type)
    return native_dtype(kind)


def _vectors(column: Column, values: Values, held: np.dtype[Any], rows: Rows) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Lists of one width as a matrix [rows, width]; those that are absent are 0."""
    array = array_of(values, column.field)
    present = values.present
    out = np.zeros((rows.count, column.width or 0), held)
    items = array.drop_null().flatten() if array.null_count else array.flatten()
    if items.null_count:
        raise CastError(f"column {column.field.name}: a vector holds NULL", column=column.field.name)
    flat = np.empty(len(items), held)
    cast.into(items, flat, column.dtype, column.policy, cast.CastCount())
    out[present] = flat.reshape(-1, column.width or 0)
    return out, present
