"""What a graph takes and hands out: a tensor for each column that is asked for, and the tensors of the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from etl.transforms.export.conversions import converted, range_of
from etl.transforms.export.draft import INPUT, OUTPUT, Blocked, Draft, Wire, held
from etl.transforms.export.graph import Graph, Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Field
    from etl.transforms.asking import Input
    from etl.transforms.export.graph import Kind
    from etl.transforms.handing import Column, Output
    from etl.transforms.host import Values


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model.

    Attributes:
        name: Of the tensor.
        kind: Of its values.
        width: Of a row; None: one value.
        optional: Whether it may be left out: a `.valid` that is then true everywhere.
    """

    name: str
    kind: Kind
    width: int | None = None
    optional: bool = False


def taken(inputs: Iterable[Input], graph: Graph, /) -> tuple[Draft, list[Port], list[str]]:
    """A draft whose columns are the inputs of the model, these inputs, and why columns have none."""
    ports: list[Port] = []
    wires: dict[str, Wire | None] = {}
    why: list[str] = []
    for one in inputs:
        name = one.field.name
        try:
            kind = _input_kind(one.field)
        except Blocked as error:
            wires[name] = None
            why.append(str(error))
            continue
        ports.append(Port(name, kind))
        term = Term(graph, name, kind)
        valid = None
        if one.field.nullable:
            ports.append(Port(f"{name}.valid", "bool", optional=True))
            given = Term(graph, f"{name}.valid", "bool")
            valid = graph.node("Expand", [given, graph.node("Shape", [term], "int64")], "bool")
        wires[name] = Wire(one.field, term.cast("int64") if kind == "uint64" else term, valid)
    first = next((one for one in wires.values() if one is not None), None)
    rows = graph.constant([1], "int64") if first is None else graph.like(first.term)
    draft = Draft(graph, rows)
    draft.wires = wires
    draft.number = INPUT
    for known in wires.values():
        if known is not None and known.term.kind == "int64":
            _within(draft, known)
    return draft, ports, why


def _input_kind(field: Field) -> Kind:
    return "uint64" if pa.types.is_uint64(field.type) else held(field)


def _within(draft: Draft, wire: Wire) -> None:
    """A value that its column's type does not have is refused, as `transform` does."""
    least, most = range_of(wire.field.type)
    for beyond in (
        wire.term < least if least > -(1 << 63) else None,
        wire.term > most if most < (1 << 63) - 1 else None,
    ):
        if beyond is not None:
            draft.refuse(beyond, wire.valid)


def fed(inputs: Iterable[Input], values: Mapping[str, Values], /) -> dict[str, NDArray[Any]]:
    """Columns on the host as the inputs of the model.

    Args:
        inputs: What is asked for.
        values: By column.
    """
    found: dict[str, NDArray[Any]] = {}
    for one in inputs:
        column, name = values[one.field.name], one.field.name
        found[name] = _array(column, _input_kind(one.field))
        if one.field.nullable:
            found[f"{name}.valid"] = column.present.copy()
    return found


def _array(column: Values, kind: Kind) -> NDArray[Any]:
    data = column.data
    if isinstance(data, np.ndarray):
        return data.astype(kind, copy=False)
    if kind == "string":
        return np.array([*("" if one is None else one for one in data.to_pylist()), None], object)[:-1]
    scale = data.type.scale
    return np.array([0 if one is None else int(one.scaleb(scale)) for one in data.to_pylist()], np.int64)


def handed(draft: Draft, outputs: Iterable[Output], /) -> tuple[list[Port], list[Term], list[str]]:
    """The outputs of the model, their terms, and why tensors have none."""
    ports: list[Port] = []
    terms: list[Term] = []
    why: list[str] = []
    draft.number = OUTPUT
    for output in outputs:
        found: list[tuple[Term, Term | None]] = []
        for column in output.columns:
            try:
                found.append(_column(draft, column))
            except Blocked as error:
                why += [str(error)] if type(error) is Blocked else []
        if len(found) < len(output.columns):
            continue
        kind = found[0][0].kind
        if output.columns[0].index is None:
            port = Port(output.tensor, kind, output.columns[0].width)
            pairs = [(port, found[0][0])]
            if output.columns[0].valid or kind == "string":
                pairs.append((Port(f"{output.tensor}.valid", "bool"), _everywhere(draft, found[0][1])))
        else:
            width = len(found)
            pairs = [(Port(output.tensor, kind, width), _packed(draft, [term for term, _ in found]))]
            if any(column.valid for column in output.columns):
                valids = [
                    _everywhere(draft, valid if column.valid else None)
                    for column, (_, valid) in zip(output.columns, found, strict=True)
                ]
                pairs.append((Port(f"{output.tensor}.valid", "bool", width), _packed(draft, valids)))
        ports += [port for port, _ in pairs]
        terms += [term for _, term in pairs]
    return ports, terms, why


def _column(draft: Draft, column: Column) -> tuple[Term, Term | None]:
    """A column in its tensor's dtype, absent values filled.

    Raises:
        Blocked: It has none in a graph.
    """
    if column.items or column.dtype == "bfloat16":
        raise Blocked(f"column {column.field.name} is handed out as {'lists' if column.items else 'bfloat16'}")
    wire, graph = draft.wire(column.field.name), draft.graph
    if wire.valid is not None and column.nulls in ("error", "drop"):
        draft.refuse(~wire.valid)
    if column.width is not None:
        return wire.term.cast(cast("Kind", column.dtype)), wire.valid
    if column.dtype == "object":
        if wire.term.kind != "string":
            raise Blocked(f"column {column.field.name} is handed out as text")
        return _filled(graph, wire.term, wire.valid, ""), wire.valid
    if wire.term.kind == "string":
        known = column.field.vocabulary
        if known is None:
            raise Blocked(f"the labels of column {column.field.name} are not known")
        places = graph.lookup(wire.term, known, range(len(known)), -1)
        draft.refuse(places == -1, wire.valid)
        return _filled(graph, places, wire.valid, int(column.fill)).cast(cast("Kind", column.dtype)), wire.valid
    if wire.decimal and column.dtype == "int64":
        return _filled(graph, wire.term, wire.valid, int(column.fill)), wire.valid
    made = converted(draft, wire, cast("Kind", column.dtype), column.policy)
    return _filled(graph, made, wire.valid, column.fill), wire.valid


def _filled(graph: Graph, term: Term, valid: Term | None, fill: Any) -> Term:
    if valid is None:
        return term
    if term.kind in ("bool", "int64", "float32", "float64", "string", "uint8"):
        return graph.where(valid, term, fill)
    wide: Kind = "float32" if term.kind == "float16" else "int64"  # ONNX Runtime has no Where of the others
    if term.kind == "uint64" and int(fill) >= 1 << 63:
        fill = int(fill) - (1 << 64)
    return graph.where(valid, term.cast(wide), fill).cast(term.kind)


def _everywhere(draft: Draft, valid: Term | None) -> Term:
    return draft.rows == 1 if valid is None else valid


def _packed(draft: Draft, terms: list[Term]) -> Term:
    """Columns side by side, [rows, columns]."""
    graph = draft.graph
    columns = [graph.node("Unsqueeze", [one, graph.constant([1], "int64")], one.kind) for one in terms]
    return graph.node("Concat", columns, terms[0].kind, {"axis": 1})
