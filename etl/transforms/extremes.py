"""The least and greatest finite value of a column, exact whatever its type."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import DataError
from etl.core.late import Late
from etl.transforms.base import InPlace
from etl.transforms.host import values_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.compute as pc

    from etl.core.schema import Field, Schema
    from etl.transforms.base import Observer, State
else:
    pc = Late("pyarrow.compute")

Extremes = dict[str, Any]
"""Of one column: rows, null, nan, inf, n; and min and max (decimals as text), None without a value."""


class ExtremesOf:
    """Observes columns of a part; see `etl.transforms.base.Observer`."""

    def __init__(self, given: Schema, columns: Sequence[str], /) -> None:
        self._found = {name: nothing() for name in columns}
        self._given = given

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        for name, known in self._found.items():
            column = rows.column(rows.schema.get_field_index(name))
            self._found[name] = merged_extremes(known, _extremes(column, self._given.field(name)))

    def state(self) -> dict[str, Extremes]:
        """Column → its extremes."""
        return dict(self._found)


def nothing() -> Extremes:
    """Of no rows."""
    return {"rows": 0, "null": 0, "nan": 0, "inf": 0, "n": 0, "min": None, "max": None}


def merged_extremes(left: Mapping[str, Any], right: Mapping[str, Any], /) -> Extremes:
    """Of both."""
    made = {name: left[name] + right[name] for name in ("rows", "null", "nan", "inf", "n")}
    for name, pick in (("min", min), ("max", max)):
        known = [one[name] for one in (left, right) if one[name] is not None]
        made[name] = pick(known, key=_order) if known else None
    return made


def known_extremes(
    step: str, name: str, found: Mapping[str, Any], kind: pa.DataType, filled: Fraction | float | None, nan: str, /
) -> tuple[Any, Any]:
    """Least and greatest of a column as Python's own numbers: Fraction, or float.

    Args:
        step: For the error.
        name: The column.
        found: Its extremes.
        kind: Its type.
        filled: What an earlier step of the same scan puts in place of its NULLs; None: they are left out.
        nan: "skip" or "error".

    Raises:
        DataError: There is no value, or there is NaN where that is refused.
    """
    check_nan(step, name, found, nan)
    known = [] if found["min"] is None else [_exact(found["min"], kind), _exact(found["max"], kind)]
    if filled is not None and found["null"]:
        known.append(float(filled) if pa.types.is_floating(kind) else Fraction(filled))
    if not known:
        raise DataError(
            f"{step}({name!r}): column {name} has no value in the rows that are fitted on",
            hint="Leave the column out, or fit on more rows.",
            column=name,
        )
    return min(known), max(known)


def check_nan(step: str, name: str, found: Mapping[str, Any], nan: str, /) -> None:
    """Hold that there is no NaN where that is refused.

    Raises:
        DataError: There is.
    """
    if found["nan"] and nan == "error":
        raise DataError(
            f"{step}({name!r}): {found['nan']} values of {name} are NaN in the rows that are fitted on",
            hint='Write nan="skip", or clear them in the function with frames.nan_to_null.',
            column=name,
        )


def _extremes(column: Any, field: Field) -> Extremes:
    values = values_in(column, field)
    made = nothing() | {"rows": len(values), "null": values.nulls}
    data = values.data
    if not isinstance(data, np.ndarray):  # decimals
        found = pc.min_max(data)
        least, most = found["min"].as_py(), found["max"].as_py()
        count = len(data) - data.null_count
        return made | {"n": count} | ({} if least is None else {"min": str(least), "max": str(most)})
    if values.valid is not None:
        data = data[values.valid]
    if data.dtype.kind == "f":
        there = np.isfinite(data)
        if not there.all():
            made["nan"] = int(np.count_nonzero(np.isnan(data)))
            made["inf"] = len(data) - int(np.count_nonzero(there)) - made["nan"]
            data = data[there]
    made["n"] = len(data)
    if len(data):
        made |= {"min": data.min().item(), "max": data.max().item()}
        if data.dtype == np.bool_:
            made |= {"min": int(made["min"]), "max": int(made["max"])}
    return made


def _order(value: Any) -> Any:
    return Decimal(value) if isinstance(value, str) else value


def _exact(value: Any, kind: pa.DataType) -> Any:
    return float(value) if pa.types.is_floating(kind) else Fraction(value)


class FromExtremes(InPlace):
    """What is fitted from the extremes of its columns."""

    __slots__ = ()

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Extremes."""
        del part
        return ExtremesOf(given, self.columns)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_extremes(left[name], right[name]) for name in self.columns}
