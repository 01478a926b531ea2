"""The proof that a model gives what the fit gives: both on the same rows, compared value by value."""

from __future__ import annotations

import hashlib
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etl.core.errors import CastError, DataError
from etl.transforms import runtime
from etl.transforms.export.edges import edge_rows
from etl.transforms.export.graph import Graph
from etl.transforms.export.model import IR_VERSION, ML_OPSET, OPSET, STATUS, name_of
from etl.transforms.export.tensors import fed, taken
from etl.transforms.fit import applied
from etl.transforms.host import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.transforms.host import Values
    from etl.transforms.serving import Preprocessor

ULPS: Final = 1
"""So far floats may be apart, in steps of the output's dtype."""
_LIBRARIES: Final = ("cuetl", "numpy", "onnx", "onnxruntime")


def proved(prep: Preprocessor, model: bytes, /) -> dict[str, object]:
    """Hold that a model gives what the fit gives, and what is recorded of that.

    Golden rows, and for every column NULL, unseen values, the ends of its type, infinities, NaN, "" and the values at
    the figures of its steps go through both. Rows that the fit refuses must have a status, and only they.

    Raises:
        DataError: They differ; output, column, row and both values are named.
    """
    golden = prep.golden
    names, values = edge_rows(prep, None if golden is None else golden[0])
    inputs = taken(prep.inputs, Graph())[1]
    found = runtime.run(runtime.session(model, [runtime.CPU]), fed(prep.inputs, values))
    status = found[name_of(STATUS, inputs)]
    rows = [(row, *_one(prep, values, row)) for row in range(len(names))]
    for row, _, refusal in rows:
        if (refusal is None) != (status[row] == 0):
            raise _apart(
                prep, names, values, row, STATUS, int(status[row]), "a result" if refusal is None else refusal.message
            )
    kept = [(row, tensors) for row, tensors, refusal in rows if refusal is None]
    most = 0
    for tensor in kept[0][1] if kept else ():
        here = found[name_of(tensor, inputs)][[row for row, _ in kept]]
        there = np.concatenate([tensors[tensor] for _, tensors in kept])
        apart = ulps(here, _comparable(there))
        if apart.size and int(apart.max()) > (ULPS if here.dtype.kind == "f" else 0):
            at = np.unravel_index(int(apart.argmax()), apart.shape)
            raise _apart(prep, names, values, kept[int(at[0])][0], _title(prep, tensor, at), here[at], there[at])
        most = max(most, int(apart.max(initial=0)))
    return {
        "passed": True,
        "model_sha256": hashlib.sha256(model).hexdigest(),
        "fit_id": prep.fit_id,
        "feature_order_sha256": prep.feature_order_sha256,
        "columns": [one.field.name for one in prep.inputs],
        "outputs": [one.tensor for one in prep.outputs],
        "rows": {
            "golden": 0 if golden is None else golden[0].num_rows,
            "edge": len(names) - (0 if golden is None else golden[0].num_rows),
            "refused": len(names) - len(kept),
        },
        "tolerance": {"ids": 0, "float_ulps": ULPS},
        "max_ulps": most,
        "opset": {"ai.onnx": OPSET, "ai.onnx.ml": ML_OPSET},
        "ir_version": IR_VERSION,
        "provider": runtime.CPU,
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _one(
    prep: Preprocessor, values: Mapping[str, Values], row: int
) -> tuple[dict[str, NDArray[Any]], CastError | None]:
    """The tensors of one row on the host, or why there are none; nothing is counted."""
    at = np.zeros(len(next(iter(values.values()))), np.bool_)
    at[row] = True
    tensors: dict[str, NDArray[Any]] = {}
    try:
        made = applied(prep.plan, prep.states, Rows.of_values(1, {name: one.kept(at) for name, one in values.items()}))
        for output in prep.outputs:
            output.put(made, tensors)
    except CastError as error:
        return {}, error
    return tensors, None


def _comparable(there: NDArray[Any]) -> NDArray[Any]:
    """Text as the model gives it: absent is ""."""
    return np.array(["" if one is None else one for one in there], object) if there.dtype == object else there


def ulps(one: NDArray[Any], other: NDArray[Any], /) -> NDArray[np.uint64]:
    """How many floats lie between two; of other kinds 0 where they are equal. A NaN is next to a NaN alone."""
    if one.dtype != other.dtype or one.shape != other.shape:
        raise DataError(f"the model gives {one.dtype} {one.shape}, and the fit {other.dtype} {other.shape}")
    if one.dtype.kind != "f":
        return np.asarray(one != other).astype(np.uint64)
    bits: Any = np.dtype(f"i{one.dtype.itemsize}")

    def ordered(values: NDArray[Any]) -> Any:
        whole = values.view(bits).astype(np.int64)
        return np.where(whole < 0, np.iinfo(bits).min - whole, whole)

    left, right = ordered(np.ascontiguousarray(one)), ordered(np.ascontiguousarray(other))
    apart = np.where(left > right, left - right, right - left).astype(np.uint64)
    odd = np.isnan(one) | np.isnan(other)
    same = np.isnan(one) & np.isnan(other)
    return np.where(odd, np.where(same, np.uint64(0), np.uint64(1 << 63)), apart)


def _title(prep: Preprocessor, tensor: str, at: Sequence[Any]) -> str:
    """A place in a tensor, with the column that it is of."""
    known = {one.tensor: one.columns for one in prep.outputs}.get(tensor)
    if known is None or len(at) < 2 or known[0].index is None:
        return tensor
    return f"{tensor}, column {known[int(at[1])].field.name}"


def _apart(
    prep: Preprocessor, names: Sequence[str], values: Mapping[str, Values], row: int, what: str, here: Any, there: Any
) -> DataError:
    mask = np.zeros(len(names), np.bool_)
    mask[row] = True
    given = {name: one.kept(mask) for name, one in values.items() if not names[row] or name == names[row]}
    shown = ", ".join(f"{name} = {_shown(one)}" for name, one in given.items())
    return DataError(
        f"the ONNX model of the fit {prep.fit_id} differs from it in {what} for row {row + 1} ({shown}): it gives "
        f"{here!r}, and the fit {there!r}",
        hint="No file was written. Serve with etl.load_preprocessor, and report this.",
        column=names[row],
        row=row + 1,
    )


def _shown(values: Values) -> str:
    """The first of some values."""
    if values.nulls:
        return "NULL"
    data = values.data
    return repr((data.tolist() if isinstance(data, np.ndarray) else data.to_pylist())[0])
