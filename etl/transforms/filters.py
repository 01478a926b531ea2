"""Steps that leave rows out of the dataset. A row that is left out is counted, and no later step is fitted on it.

In serving they are passed over: who asks with a row wants an answer for it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.core.schema import Schema, nearest
from etl.tensors.views import bits_of
from etl.transforms.base import listed
from etl.transforms.constants import constant_of, number_of
from etl.transforms.host import DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from etl.core.schema import Field
    from etl.transforms.base import State
    from etl.transforms.host import Rows, Values

Op: TypeAlias = Literal[
    "==", "!=", "<", "<=", ">", ">=", "in", "not in", "between", "is null", "not null", "is nan", "not nan"
]
_OPS: Final[tuple[str, ...]] = get_args(Op)
_ALONE: Final = ("is null", "not null", "is nan", "not nan")
_ORDERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERS_OF_ARROW: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a condition is true; several conditions are several steps.

    NULL makes no comparison true, "!=" and "not in" neither, as in SQL. NaN is unequal to everything and neither above
    nor below, as in Python. Text is compared by its UTF-8 bytes.

    Attributes:
        column: Its name.
        op: "==", "!=", "<", "<=", ">", ">=", "in", "not in", "between" (both ends are in), "is null", "not null",
            "is nan", "not nan".
        value: Of the column's own type; for "in" and "not in" a list of them, for "between" the two ends.

    Raises:
        ConfigError: There is no such condition.
    """

    kind: ClassVar[str] = "filter"
    column: str
    op: Op
    value: object = None

    def __init__(self, column: str, op: Op, value: object = None) -> None:
        listed(column, "Filter")
        if op not in _OPS:
            raise ConfigError(f"Filter({column!r}): {op!r} is no comparison", hint=nearest(str(op), _OPS, what="ops"))
        if isinstance(value, list | tuple | set | frozenset):
            value = tuple(_own(one) for one in (sorted(value) if isinstance(value, set | frozenset) else value))
        wanted = 0 if op in _ALONE else 2 if op == "between" else 1
        several = op in ("in", "not in", "between")
        fits = value is None if not wanted else value is not None and isinstance(value, tuple) == several
        if not fits or (op == "between" and isinstance(value, tuple) and len(value) != wanted):
            hint = {"in": "[1, 2, 3]", "not in": "[1, 2, 3]", "between": "[1, 3]"}.get(op, "1")
            raise ConfigError(
                f"Filter({column!r}, {op!r}): the value is {value!r}",
                hint=f"Write Filter({column!r}, {op!r}{f', {hint}' if wanted else ''}).",
                column=column,
            )
        if isinstance(value, tuple) and any(one is None for one in value):
            raise ConfigError(
                f"Filter({column!r}, {op!r}): None is among the values, and NULL is equal to nothing",
                hint='Use "is null" and "not null".',
                column=column,
            )
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "value", _own(value))

    @property
    def reads(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def writes(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def drops_rows(self) -> bool:
        """True."""
        return True

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns."""
        given.require(self.column)
        field = given.field(self.column)
        kind: Any = field.type
        if self.op in ("is null", "not null"):
            return given
        if self.op in ("is nan", "not nan"):
            if not pa.types.is_floating(kind):
                raise ConfigError(
                    f"Filter({self.column!r}, {self.op!r}): {self.column} is {kind}, which has no NaN",
                    hint='Write "is null" or "not null".',
                    column=self.column,
                )
            return given
        if pa.types.is_boolean(kind) and self.op not in ("==", "!=", "in", "not in"):
            raise ConfigError(f"Filter({self.column!r}, {self.op!r}): bools have no order", column=self.column)
        _constants(self, field)
        return given

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows for which it is true."""
        del state
        return _kept(rows, self.column, _true(self, rows[self.column], given.field(self.column)), "filter")


@dataclass(frozen=True, slots=True)
class DropNull:
    """The rows in which none of the columns is NULL; NaN is a value. The columns then hold no NULL.

    Attributes:
        columns: Their names.

    Raises:
        ConfigError: No column, or one twice.
    """

    kind: ClassVar[str] = "drop_null"
    columns: tuple[str, ...]

    def __init__(self, columns: str | list[str] | tuple[str, ...]) -> None:
        object.__setattr__(self, "columns", listed(columns, "DropNull"))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """None: no value changes."""
        return ()

    @property
    def drops_rows(self) -> bool:
        """True."""
        return True

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns. They stay nullable: serving passes the step over."""
        given.require(*self.columns)
        return given

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows without NULL; each row that goes is counted once, for the first column that lacks it."""
        del given, state
        for name in self.columns:
            if rows[name].nulls:
                rows = _kept(rows, name, rows[name].present, "null")
        return rows


def _kept(rows: Rows, column: str, keep: NDArray[np.bool_], reason: str) -> Rows:
    left_out = len(keep) - int(np.count_nonzero(keep))
    if not left_out:
        return rows
    rows.counted(column, DROPPED + reason, left_out)
    return rows.kept(keep)


def holds(step: Filter, rows: Rows, given: Schema, /) -> NDArray[np.bool_]:
    """True for the rows that a condition is true of, shape (n,)."""
    return _true(step, rows[step.column], given.field(step.column))


def _own(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _constants(step: Filter, field: Field) -> list[Any]:
    """The values as those of the column's own type.

    Raises:
        ConfigError: One is none.
    """
    values = step.value if isinstance(step.value, tuple) else (step.value,)
    return [constant_of(one, field, "Filter") for one in values]


def _true(step: Filter, column: Values, field: Field) -> NDArray[np.bool_]:
    """True where the condition is, shape (n,)."""
    if step.op == "is null":
        return ~column.present
    if step.op == "not null":
        return column.present
    if step.op in ("is nan", "not nan"):
        found: NDArray[np.bool_] = np.isnan(column.data) == (step.op == "is nan")
        return found & column.present if column.nulls else found
    values = _constants(step, field)
    if not isinstance(column.data, np.ndarray):
        return _true_of_arrow(step.op, column.data, values)
    values = [number_of(one) for one in values]
    data = column.data
    if step.op in _ORDERS:
        found = _ORDERS[step.op](data, data.dtype.type(values[0]))
    elif step.op == "between":
        low, high = (data.dtype.type(one) for one in values)
        found = (data >= low) & (data <= high)
    else:
        found = np.isin(data, np.array(values, data.dtype), invert=step.op == "not in")
    return found & column.present if column.nulls else found


def _true_of_arrow(op: str, data: Any, values: list[Any]) -> NDArray[np.bool_]:
    scalars = [pa.scalar(one, type=data.type) for one in values]
    if op in _ORDERS_OF_ARROW:
        found = _ORDERS_OF_ARROW[op](data, scalars[0])
    elif op == "between":
        found = pc.and_(pc.greater_equal(data, scalars[0]), pc.less_equal(data, scalars[1]))
    else:
        found = pc.is_in(data, value_set=pa.array(values, data.type))
        found = pc.and_(pc.invert(found) if op == "not in" else found, pc.is_valid(data))
    found = pc.fill_null(found, False)  # noqa: FBT003 - the stubs know no name of it
    return bits_of(found.buffers()[1], found.offset, len(found))
