"""A fit as the bytes of an ONNX model: its steps one after another, each by the emitter of its kind."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError
from etl.transforms.export import categories, numbers, times
from etl.transforms.export.draft import INPUT, OUTPUT, Blocked, Draft
from etl.transforms.export.graph import ML, Graph
from etl.transforms.export.tensors import Port, handed, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from etl.transforms.base import State, Transform
    from etl.transforms.export.graph import Term
    from etl.transforms.serving import Preprocessor

OPSET: Final = 18
ML_OPSET: Final = 3
IR_VERSION: Final = 9
"""Of the format: what ONNX Runtime 1.17 and later read."""
STATUS: Final = "status"


def _rename(draft: Draft, step: Any, figures: State) -> None:
    del figures
    moved = {new: draft.wires[old] for old, new in step.names if old in draft.wires}
    for old, _ in step.names:
        draft.wires.pop(old, None)
    draft.wires |= moved


def _select(draft: Draft, step: Any, figures: State) -> None:
    del figures
    draft.wires = {name: wire for name, wire in draft.wires.items() if name in step.columns}


EMITTERS: Final[Mapping[str, Callable[[Draft, Any, State], None]]] = {
    "age": times.age,
    "bucketize": numbers.bucketize,
    "cast": numbers.cast,
    "categorify": categories.categorify,
    "clip": numbers.clip,
    "date_parts": times.date_parts,
    "fill_null": numbers.fill_null,
    "log1p": numbers.log1p,
    "max_abs": numbers.max_abs,
    "min_max": numbers.min_max,
    "null_indicator": numbers.null_indicator,
    "one_hot": categories.one_hot,
    "quantile_bins": numbers.quantile_bins,
    "rename": _rename,
    "robust": numbers.robust,
    "select": _select,
    "standardize": numbers.standardize,
    "winsorize": numbers.winsorize,
}
"""Kind of a step → what writes it into a graph. A kind that is not here has no ONNX form."""


def exported(prep: Preprocessor, /) -> bytes:
    """The model of a fit.

    Inputs, [rows] each: the columns that `prep.inputs` asks for, by name. Whole numbers, moments (microseconds since
    1970 in UTC), dates (days), times of day and spans (microseconds) and decimals (times 10^scale) are int64, uint64 is
    uint64, text and labels are string, floats and bools are what they are. A column that may be NULL has a second input
    `<column>.valid`, bool, which may be left out: every value is there then.

    Outputs: the tensors of `prep.transform`, text with a `.valid`; and `status`, int64 [rows], which the caller must
    look at: 0, or why the row has no result (see the metadata `cuetl.status`). An output whose name an input has is
    `out.<name>`; the metadata `cuetl.outputs` has them all.

    Raises:
        ConfigError: Steps or columns have no ONNX form, all of which are named; or ONNX is not installed.
    """
    graph = Graph()
    draft, inputs, why = taken(prep.inputs, graph)
    for number, step in enumerate(prep.plan.steps, 1):
        draft.number, draft.after = number, prep.plan.schemas[number]
        try:
            _written(draft, step, prep.states.get(number - 1, {}))
        except Blocked as error:
            if type(error) is Blocked:
                why.append(f"step {number}, {type(step).__name__}: {error}")
            draft.wires |= dict.fromkeys(step.writes)
    outputs, terms, more = handed(draft, prep.outputs)
    if why or more:
        raise ConfigError(
            f"the fit {prep.fit_id} has no ONNX form: {'; '.join([*why, *more])}",
            hint="Serve it with etl.load_preprocessor, or leave these steps to the model's own code.",
        )
    ends = [*outputs, Port(STATUS, "int64")]
    names = {one.name: name_of(one.name, inputs) for one in ends}
    words = _metadata(prep, inputs, outputs) | {"cuetl.outputs": json.dumps(names)}
    return _assembled(
        graph, inputs, [replace(one, name=names[one.name]) for one in ends], [*terms, draft.status], words
    )


def name_of(tensor: str, inputs: Sequence[Port], /) -> str:
    """The name of an output: the tensor's own, but that no input may have it too."""
    taken_names = {one.name for one in inputs}
    name = tensor
    while name in taken_names:
        name = f"out.{name}"
    return name


def unexportable(steps: Iterable[Transform], /) -> list[str]:
    """The kinds of steps among these that have no ONNX form whatever their arguments."""
    return list(dict.fromkeys(type(step).__name__ for step in steps if step.kind not in EMITTERS))


def _written(draft: Draft, step: Transform, figures: State) -> None:
    emit = EMITTERS.get(step.kind)
    if emit is None:
        raise Blocked("it has no ONNX form")
    emit(draft, step, figures)


def _metadata(prep: Preprocessor, inputs: Sequence[Port], outputs: Sequence[Port]) -> dict[str, str]:
    """What a reader of the model should know, in words and JSON."""
    text = any(one.kind == "string" for one in (*inputs, *outputs))
    status = {
        INPUT: "an input is no value of its column's type",
        OUTPUT: "a value does not fit its tensor, or is NULL where that is refused",
        0: "fine",
    } | {number: f"step {number}, {type(step).__name__}" for number, step in enumerate(prep.plan.steps, 1)}
    return {
        "cuetl.fit_id": prep.fit_id,
        "cuetl.feature_order": json.dumps(prep.feature_order),
        "cuetl.feature_order_sha256": prep.feature_order_sha256,
        "cuetl.columns": canonical_json({one.field.name: str(one.field.type) for one in prep.inputs}).decode(),
        "cuetl.status": json.dumps({str(number): words for number, words in status.items()}),
        "cuetl.devices": "CPU only, since it holds text: not for TensorRT" if text else "any",
    }


def onnx() -> Any:
    """The package onnx.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import onnx as found  # noqa: PLC0415 # of an extra, where a model is written
    except ImportError as error:
        raise ConfigError(f"ONNX cannot be loaded here: {error}", hint="Install it with cuetl[onnx].") from error
    return found


def _assembled(
    graph: Graph, inputs: Sequence[Port], outputs: Sequence[Port], terms: Sequence[Term], words: Mapping[str, str]
) -> bytes:
    library = onnx()
    helper, types = library.helper, library.TensorProto
    named = {"bool": "BOOL", "string": "STRING", "float32": "FLOAT", "float64": "DOUBLE"}

    def kind_of(kind: str) -> int:
        return int(getattr(types, named.get(kind, kind.upper())))

    def info(port: Port) -> Any:
        shape: list[Any] = [port.name if port.optional else "rows", *([] if port.width is None else [port.width])]
        return helper.make_tensor_value_info(port.name, kind_of(port.kind), shape)

    def node(one: Any) -> Any:
        attributes = {name: kind_of(value) if name == "to" else value for name, value in one.attributes.items()}
        return helper.make_node(one.operator, one.inputs, [one.output], domain=one.domain, **attributes)

    constants = [
        helper.make_tensor(
            name,
            types.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape,
            [one.encode() for one in array.reshape(-1)] if array.dtype == object else array.reshape(-1),
        )
        for name, array in graph.constants.items()
    ]
    everywhere = [helper.make_tensor(one.name, types.BOOL, [1], [True]) for one in inputs if one.optional]
    ends = [helper.make_node("Identity", [term.name], [port.name]) for port, term in zip(outputs, terms, strict=True)]
    made = helper.make_model(
        helper.make_graph(
            [*(node(one) for one in graph.nodes), *ends],
            "cuetl",
            [info(one) for one in inputs],
            [info(one) for one in outputs],
            initializer=[*constants, *everywhere],
        ),
        producer_name="cuetl",
        producer_version=metadata.version("cuetl"),
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)],
    )
    helper.set_model_props(made, dict(words))
    library.checker.check_model(made, full_check=True)
    content: bytes = made.SerializeToString()
    return content
