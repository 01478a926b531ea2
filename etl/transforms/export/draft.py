"""The columns of a plan as terms of a graph, and what every emitter of a step does with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from etl.core.errors import ConfigError, EtlError
from etl.core.schema import Schema
from etl.engine.door import carried
from etl.transforms.figures import is_number

if TYPE_CHECKING:
    from etl.core.schema import Field
    from etl.transforms.base import State
    from etl.transforms.export.graph import Graph, Kind, Term

DIGITS: Final = 18
"""Decimals of so many digits are whole numbers of 64 bits."""
INPUT, OUTPUT = -1, -2
"""In `status`: an input is no value of its column's type; an output does not fit its tensor."""
_WHOLE: Final = 1 << 53
_NEAR: Final = 1 << 62
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Blocked(ConfigError):  # noqa: N818 # named as the others of the tree are
    """What a step does has no form in a graph; the text says why. It ends an emitter and is gathered with others."""

    code = "onnx_blocked"


class Follows(Blocked):
    """A column comes from a step that is blocked: nothing more is to be said of it."""

    code = "onnx_follows"


@dataclass(frozen=True, slots=True)
class Wire:
    """A column in the graph.

    Attributes:
        field: Its name and type after the steps so far.
        term: Its values [rows], absent ones hold anything; vectors [rows, width] as bools. Whole numbers, moments
            (microseconds), dates (days) and decimals (by their scale) are int64, uint64 by its bits.
        valid: Where there is one; None: everywhere.
    """

    field: Field
    term: Term
    valid: Term | None = None

    @property
    def decimal(self) -> Any:
        """The type of a decimal; None: it is none."""
        return self.field.type if pa.types.is_decimal(self.field.type) else None

    @property
    def unit(self) -> int:
        """What 1 is in the term: 10^scale of a decimal."""
        return int(10**self.decimal.scale) if self.decimal else 1


def held(field: Field, /) -> Kind:
    """The kind of term that holds a column.

    Raises:
        Blocked: None does.
    """
    types, kind = pa.types, field.type
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind) or types.is_temporal(kind):
        return "int64"
    if types.is_floating(kind):
        return "float64" if types.is_float64(kind) else "float32"
    if types.is_decimal(kind):
        if kind.precision <= DIGITS and kind.scale >= 0:
            return "int64"
        raise Blocked(f"column {field.name} is {kind}, and 64 bits hold {DIGITS} digits")
    try:
        known: Any = carried(kind, column=field.name)
    except EtlError as error:
        raise Blocked(error.message) from error
    if types.is_string(known) or (types.is_dictionary(known) and types.is_string(known.value_type)):
        return "string"
    raise Blocked(f"column {field.name} is {kind}, which no tensor of one value a row holds")


class Draft:
    """A graph in the making: its columns, and the `status` of each row.

    Args:
        graph: That it is written in.
        rows: A term of as many rows as there are.
    """

    def __init__(self, graph: Graph, rows: Term, /) -> None:
        self.graph = graph
        self.rows = rows
        """Ones, int64 [rows]."""
        self.status = rows * 0
        """0, or the number of the first step that refuses the row, int64 [rows]."""
        self.number = 0
        """The step that is being written."""
        self.after = Schema(())
        """The columns after it."""
        self.wires: dict[str, Wire | None] = {}
        """By name; None: of a step that is blocked."""

    def wire(self, name: str, /) -> Wire:
        """A column.

        Raises:
            Follows: It is of a step that is blocked.
        """
        found = self.wires[name]
        if found is None:
            raise Follows(name)
        return found

    def put(self, name: str, term: Term, valid: Term | None = None, /) -> None:
        """What the step makes of a column, or a new one; none that no later step has."""
        if name in self.after.names:
            self.wires[name] = Wire(self.after.field(name), term, valid)

    def refuse(self, bad: Term, valid: Term | None = None, /) -> None:
        """Rows where the batch path would raise get the step's number, unless an earlier one refused them."""
        if valid is not None:
            bad = bad & valid
        first = bad & (self.status == 0)
        self.status = self.graph.where(first, self.number, self.status)

    def narrow(self, name: str, wide: Term, /) -> None:
        """A real-valued result of a column's numbers, float64, rounded once to float32.

        An infinity in the place of a finite number is refused.
        """
        made, valid = wide.cast("float32"), self.wire(name).valid
        self.refuse(made.infinite & ~self.real(name).infinite, valid)
        self.put(name, made, valid)

    def real(self, name: str, /) -> Term:
        """A column's numbers as float64.

        Raises:
            Blocked: They are unsigned of 64 bits.
        """
        wire = self.wire(name)
        if pa.types.is_uint64(wire.field.type):
            raise Blocked(f"column {name} is uint64, which ONNX Runtime does not calculate with")
        if not is_number(wire.field.type):
            raise Blocked(f"column {name} is {wire.field.type}")
        return wire.term.cast("float64") if wire.unit == 1 else self._of_digits(wire)

    def _of_digits(self, wire: Wire) -> Term:
        """Decimals as float64, to the bit that Arrow gives: beside the number that is subtracted, no other is left."""
        digits, part = wire.term, float(f"1e-{wire.decimal.scale}")
        plain = digits.cast("float64") * part
        if 10**wire.decimal.precision <= _WHOLE:
            return plain
        size = digits.apply("Abs")
        apart = (size // wire.unit).cast("float64") + (size % wire.unit).cast("float64") * part
        return self.graph.where(size > _WHOLE, apart * digits.apply("Sign").cast("float64"), plain)

    def minus(self, name: str, figures: State, /) -> Term:
        """What is left of a column's numbers once a fitted one is subtracted, float64: as `etl.transforms.reals`."""
        plain = self.real(name) - float(figures["mean"])
        base = figures.get("base", 0)
        if abs(base) < _WHOLE:
            return plain
        whole = self.wire(name).term
        near = (whole >= max(base - _NEAR, _LEAST)) & (whole <= min(base + _NEAR, _MOST))
        return self.graph.where(near, (whole - base).cast("float64") - figures["rest"], plain)

    def level(self, wide: Term, value: float, /) -> Term:
        """One value wherever there is a finite one."""
        return self.graph.where(wide.finite, value, wide)
