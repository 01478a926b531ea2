"""Categories as nodes of a graph: keys are whole numbers or text, never floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.tensors.views import values_of
from etl.transforms.categorify import NULL, OOV
from etl.transforms.export.draft import Blocked

if TYPE_CHECKING:
    from etl.transforms.base import State
    from etl.transforms.categorify import Categorify
    from etl.transforms.export.draft import Draft, Wire
    from etl.transforms.export.graph import Term
    from etl.transforms.onehot import OneHot


def categorify(draft: Draft, step: Categorify, figures: State) -> None:
    """Ids of a vocabulary."""
    if step.oov_buckets > 1:
        raise Blocked(f"oov_buckets={step.oov_buckets}: a graph has no SHA-256 to tell unseen values apart")
    for name in step.columns:
        wire, vocab = draft.wire(name), figures[name]["vocab"]
        ids = draft.graph.lookup(keys_of(wire), known_in(vocab), vocab.column("id").to_pylist(), OOV)
        draft.put(name, ids if wire.valid is None else draft.graph.where(wire.valid, ids, NULL))


def one_hot(draft: Draft, step: OneHot, figures: State) -> None:
    """Vectors with a true at the place of the value, [rows, width]."""
    graph = draft.graph
    for name in step.columns:
        wire, known = draft.wire(name), known_in(figures[name]["vocab"])
        places = graph.lookup(keys_of(wire), known, range(len(known)), -1)
        if step.unseen == "error":
            draft.refuse(places == -1, wire.valid)
        if wire.valid is not None:
            places = graph.where(wire.valid, places, -1)
        if step.drop is not None:
            places = places - 1
        column = graph.node("Unsqueeze", [places, graph.constant([1], "int64")], "int64")
        draft.put(name, column == graph.constant([list(range(figures[name]["width"]))], "int64"))


def keys_of(wire: Wire, /) -> Term:
    """A column's values as keys.

    Raises:
        Blocked: They are floats.
    """
    if wire.term.kind in ("float32", "float64"):
        raise Blocked(f"column {wire.field.name} is {wire.field.type}: keys are whole numbers or text, never floats")
    return wire.term.cast("int64") if wire.term.kind == "bool" else wire.term


def known_in(vocab: pa.Table, /) -> list[Any]:
    """The values of a vocabulary in the unit of terms: whole numbers, or text."""
    column: Any = vocab.column("value").combine_chunks()
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    kind, types = array.type, pa.types
    listed: list[Any] = [] if not len(array) else array.to_pylist()
    if types.is_string(kind):
        return listed
    if types.is_boolean(kind):
        return [int(one) for one in listed]
    if types.is_decimal(kind):
        return [int(one.scaleb(kind.scale)) for one in listed]
    if types.is_date(kind):
        return [int(one) for one in values_of(array, "i4").tolist()]
    return [int(one) for one in values_of(array, "i8").tolist()]  # uint64 by its bits
