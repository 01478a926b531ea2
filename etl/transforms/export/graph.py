"""Arithmetic that is written down rather than done: terms of numbers per row become nodes of an ONNX graph.

Terms have Python's operators, so that code on NumPy arrays and plain integers (`etl.transforms.calendar`) writes a
graph when it is given terms. Only kinds and operators that ONNX Runtime has on CPUs are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

Kind: TypeAlias = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "string",
]
ML: Final = "ai.onnx.ml"
"""The operators of classical models: dictionaries of values."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a graph.

    Attributes:
        operator: Its name in ONNX.
        inputs: Names of what it takes.
        output: The name of what it gives.
        attributes: Its settings.
        domain: Of the operator; "" is ONNX' own.
    """

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that grows.

    Attributes:
        nodes: In the order in which they were asked for.
        constants: Name → value.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)

    def node(
        self,
        operator: str,
        inputs: Sequence[Term],
        kind: Kind,
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> Term:
        """What an operator makes of terms.

        Args:
            operator: Its name in ONNX.
            inputs: What it takes.
            kind: Of what it gives.
            attributes: Its settings.
            domain: Of the operator.
        """
        output = f"cuetl/{len(self.nodes)}"
        self.nodes.append(Node(operator, tuple(one.name for one in inputs), output, attributes or {}, domain))
        return Term(self, output, kind)

    def constant(self, value: Any, kind: Kind) -> Term:
        """A value, or an array of them, of a kind."""
        array = np.array(value, object if kind == "string" else kind)
        key = (kind, array.shape, repr(value).encode() if kind == "string" else array.tobytes())
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = f"cuetl/constant/{len(self.constants)}"
            self.constants[name] = array
        return Term(self, name, kind)

    def where(self, condition: Term, yes: Any, no: Any) -> Term:
        """`yes` where the condition holds, else `no`; one of them may be a plain value. Bools stay bools."""
        kind = yes.kind if isinstance(yes, Term) else no.kind
        first, second = self._of(yes, kind), self._of(no, kind)
        if kind == "bool":  # ONNX Runtime has no Where of bools
            return (condition & first) | (~condition & second)
        return self.node("Where", [condition, first, second], kind)

    def lookup(self, keys: Term, known: Sequence[Any], values: Sequence[int], otherwise: int) -> Term:
        """The integer that stands for each key, int64.

        Args:
            keys: int64 or string.
            known: Distinct keys.
            values: What each becomes.
            otherwise: What any other becomes.
        """
        if not len(known):
            return self.node("Mul", [self.like(keys), self.constant(0, "int64")], "int64") + otherwise
        named = "keys_strings" if keys.kind == "string" else "keys_int64s"
        attributes = {named: list(known), "values_int64s": list(values), "default_int64": otherwise}
        return self.node("LabelEncoder", [keys], "int64", attributes, ML)

    def like(self, term: Term) -> Term:
        """Ones, int64, as many as there are rows."""
        shape = self.node("Shape", [term], "int64")
        return self.node("Expand", [self.constant(1, "int64"), shape], "int64")

    def _of(self, value: Any, kind: Kind) -> Term:
        return value if isinstance(value, Term) else self.constant(value, kind)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value of each row, shape [rows] unless it is told otherwise; operators make new ones.

    Attributes:
        graph: That it is in.
        name: Its name there.
        kind: Of its values. Arithmetic and order are of int64, float32 and float64 alone.
    """

    graph: Graph
    name: str
    kind: Kind

    def cast(self, kind: Kind) -> Term:
        """As another kind, the way C does it: finite floats are expected to fit."""
        return self if kind == self.kind else self.graph.node("Cast", [self], kind, {"to": kind})

    def apply(self, operator: str, kind: Kind | None = None) -> Term:
        """What an operator of one input makes of it."""
        return self.graph.node(operator, [self], kind or self.kind)

    @property
    def nan(self) -> Term:
        """Where it is NaN."""
        return self.apply("IsNaN", "bool")

    @property
    def infinite(self) -> Term:
        """Where it is infinite."""
        return self.apply("IsInf", "bool")

    @property
    def finite(self) -> Term:
        """Where it is neither."""
        return ~(self.nan | self.infinite)

    def __add__(self, other: Any) -> Term:
        return self._with("Add", other)

    def __radd__(self, other: Any) -> Term:
        return self._with("Add", other, turned=True)

    def __sub__(self, other: Any) -> Term:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self._with("Sub", other, turned=True)

    def __mul__(self, other: Any) -> Term:
        return self._with("Mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self._with("Mul", other, turned=True)

    def __truediv__(self, other: Any) -> Term:
        return self._with("Div", other)

    def __mod__(self, other: Any) -> Term:
        return self._with("Mod", other)  # with the sign of the divisor, as Python's

    def __floordiv__(self, other: Any) -> Term:
        # ONNX divides integers towards zero.
        return self._with("Sub", self % other)._with("Div", other)

    def __lt__(self, other: Any) -> Term:
        return self._compared("Less", other)

    def __le__(self, other: Any) -> Term:
        return self._compared("LessOrEqual", other)

    def __gt__(self, other: Any) -> Term:
        return self._compared("Greater", other)

    def __ge__(self, other: Any) -> Term:
        return self._compared("GreaterOrEqual", other)

    def __eq__(self, other: object) -> Term:  # type: ignore[override]  # a term, as an array's is an array
        return self._compared("Equal", other)

    def __ne__(self, other: object) -> Term:  # type: ignore[override]  # the same
        return ~self._compared("Equal", other)

    __hash__ = None  # type: ignore[assignment]  # equality is a term

    def __and__(self, other: Term) -> Term:
        return self.graph.node("And", [self, other], "bool")

    def __or__(self, other: Term) -> Term:
        return self.graph.node("Or", [self, other], "bool")

    def __invert__(self) -> Term:
        return self.apply("Not")

    def _numeric(self, other: Any) -> tuple[Term, Term]:
        """Both as terms of one kind; bools count as 0 and 1."""
        mine = self.cast("int64") if self.kind == "bool" else self
        if not isinstance(other, Term):
            return mine, self.graph.constant(other, mine.kind)
        return mine, other.cast("int64") if other.kind == "bool" else other

    def _with(self, operator: str, other: Any, *, turned: bool = False) -> Term:
        mine, theirs = self._numeric(other)
        return self.graph.node(operator, [theirs, mine] if turned else [mine, theirs], mine.kind)

    def _compared(self, operator: str, other: Any) -> Term:
        return self.graph.node(operator, list(self._numeric(other)), "bool")
