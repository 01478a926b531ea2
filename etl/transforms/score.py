"""A model's answers as a column: ONNX Runtime on batches of fixed sizes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field, Schema
from etl.tensors.manifest import names_sha256
from etl.tensors.views import column_of
from etl.transforms import runtime
from etl.transforms.base import listed
from etl.transforms.columns import with_new
from etl.transforms.host import Values, floats_of
from etl.transforms.reals import check_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

BATCHES: Final = (4096, 16384, 65536)
"""The sizes of batches: compiled models know these and no others, and a row's answer does not depend on its batch."""
TOLERANCE: Final = 1e-2
"""So far answers in 16 bits may be from those in 32, of the greater of both and 1."""
_DTYPES: Final[Mapping[str, str]] = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
_TAKEN: Final = ("float32", "float64", "int64")
_WHOLE: Final = {"float32": 1 << 24, "float64": 1 << 53}
"""Integers up to these are all floats of the dtype."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a model says of each row, as a new column: a number, or a vector where it gives several.

    The model is loaded once in each process. Batches have fixed sizes; the last is filled up with zeros, whose answers
    are dropped.

    Attributes:
        model: Path of an ONNX model with one input, [rows, columns] of float32, float64 or int64.
        inputs: Columns of numbers, in the order of the model's; none may be NULL in a row.
        output: The name of the new column.
        providers: "auto": CUDA where ONNX Runtime has it, else the CPU; or providers by name, in order, the first of
            which must be what runs: there is no falling back.
        precision: "fp32", or "fp16" with TensorRT, once its answers to the first rows are near those in 32 bits.
        batch_rows: 4096, 16384 or 65536.
        tensor: The model's output, where it has several.
        sha256: Of the model; None: that of the file as it is now. A file with another one is refused.

    Raises:
        ConfigError: No column, no such file, or an option that there is not.
    """

    kind: ClassVar[str] = "score"
    model: str
    inputs: tuple[str, ...]
    output: str
    providers: str | tuple[str, ...] = "auto"
    precision: Literal["fp32", "fp16"] = "fp32"
    batch_rows: int = 16384
    tensor: str | None = None
    sha256: str | None = None

    def __init__(
        self,
        model: str | Path,
        inputs: str | list[str] | tuple[str, ...],
        output: str,
        providers: str | list[str] | tuple[str, ...] = "auto",
        precision: Literal["fp32", "fp16"] = "fp32",
        batch_rows: int = 16384,
        tensor: str | None = None,
        sha256: str | None = None,
    ) -> None:
        object.__setattr__(self, "model", str(model))
        object.__setattr__(self, "inputs", listed(inputs, "Score"))
        object.__setattr__(self, "output", listed(output, "Score")[0])
        names = providers if providers == "auto" else listed(providers, "Score(providers=…)")
        if batch_rows not in BATCHES or isinstance(batch_rows, bool):
            raise ConfigError(f"Score: batch_rows is {batch_rows!r}", hint="Give 4096, 16384 or 65536.")
        if precision not in ("fp32", "fp16"):
            raise ConfigError(f"Score: precision is {precision!r}", hint='Give "fp32" or "fp16".')
        if precision == "fp16" and runtime.TENSORRT not in names:
            raise ConfigError(
                "Score: only TensorRT calculates in 16 bits what a model says in 32",
                hint=f'Write providers=["{runtime.TENSORRT}", "{runtime.CUDA}"].',
            )
        object.__setattr__(self, "providers", names)
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "batch_rows", batch_rows)
        object.__setattr__(self, "tensor", tensor)
        object.__setattr__(self, "sha256", sha256 or hashlib.sha256(_read(self.model)).hexdigest())

    @property
    def reads(self) -> tuple[str, ...]:
        """The model's inputs."""
        return self.inputs

    @property
    def writes(self) -> tuple[str, ...]:
        """The new column."""
        return (self.output,)

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns, and the new one after them."""
        check_numbers(given, self.inputs, "Score")
        self._check_order()
        _, dtype, width = self._answer()
        kind: Any = pa.bool_() if dtype == "bool" else pa.from_numpy_dtype(np.dtype(dtype))
        made = Field(self.output, kind if width is None else pa.list_(kind, width), nullable=False)
        return with_new(given, [made], "Score")

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the model's answers."""
        del given, state
        session, (name, dtype, width) = self._session(), self._answer()
        made = np.empty((rows.count,) if width is None else (rows.count, width), dtype)
        for start, stop, batch in self._batches(rows):
            answer = np.asarray(session.run([name], {session.get_inputs()[0].name: batch})[0])
            if self.precision == "fp16" and start == 0:
                self._hold_near(answer, batch, name)
            made[start:stop] = answer.reshape(len(batch), *made.shape[1:])[: stop - start]
        if width is None:
            return rows.with_columns({self.output: Values(made)})
        items = column_of(pa.from_numpy_dtype(made.dtype), made.reshape(-1))
        return rows.with_columns({self.output: Values(pa.FixedSizeListArray.from_arrays(items, width))})

    def scores(self) -> Mapping[str, object]:
        """The manifest's entry in `scores[]`."""
        return {
            "model": Path(self.model).name,
            "model_sha256": self.sha256,
            "inputs": list(self.inputs),
            "feature_order_sha256": names_sha256(self.inputs),
            "output": self.output,
            "providers": list(runtime.resolved(self.providers)),
            "precision": self.precision,
            "tolerance": TOLERANCE if self.precision == "fp16" else None,
            "batch_rows": self.batch_rows,
            "onnxruntime": str(runtime.library().__version__),
        }

    def _session(self, providers: tuple[str, ...] | None = None) -> Any:
        """The model of this process.

        Raises:
            ConfigError: It is another file now, or does not load on these providers.
        """
        names, half = providers or runtime.resolved(self.providers), self.precision == "fp16" and providers is None
        digest = str(self.sha256)
        known = runtime.known_session(digest, names, half=half)
        if known is not None:
            return known
        content = _read(self.model)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise ConfigError(
                f"Score: {self.model} has the SHA-256 {found}, and the model that is meant {digest}",
                hint="Bring the model back, or make a new fit with the new one.",
            )
        return runtime.kept_session(digest, content, names, half=half)

    def _answer(self) -> tuple[str, str, int | None]:
        """The output that is taken: its name, dtype, and how wide a row's answer is; None: a number.

        Raises:
            ConfigError: The model is none that rows can be given to, or has several outputs.
        """
        session = self._session()
        given = session.get_inputs()
        width = len(self.inputs)
        if len(given) != 1 or len(given[0].shape) != 2 or _DTYPES.get(given[0].type) not in _TAKEN:
            said = ", ".join(f"{one.name} {one.type}{one.shape}" for one in given)
            raise ConfigError(
                f"Score: {self.model} takes {said}",
                hint="Give a model with one input [rows, columns] of float32, float64 or int64.",
            )
        if isinstance(given[0].shape[1], int) and given[0].shape[1] != width:
            raise ConfigError(f"Score: {self.model} takes {given[0].shape[1]} columns, and inputs names {width}")
        if isinstance(given[0].shape[0], int) and given[0].shape[0] != self.batch_rows:
            raise ConfigError(
                f"Score: {self.model} takes {given[0].shape[0]} rows at once, and batch_rows is {self.batch_rows}"
            )
        known = {one.name: one for one in session.get_outputs()}
        if self.tensor not in known and (self.tensor is not None or len(known) > 1):
            raise ConfigError(f"Score: {self.model} gives {', '.join(known)}", hint="Say which one with tensor=.")
        one = known[self.tensor] if self.tensor is not None else next(iter(known.values()))
        shape, dtype = list(one.shape), _DTYPES.get(one.type)
        wide = shape[1] if len(shape) == 2 else 1
        if dtype is None or len(shape) not in (1, 2) or not isinstance(wide, int):
            raise ConfigError(
                f"Score: {one.name} of {self.model} is {one.type}{shape}",
                hint="Give a model whose output is [rows], or [rows, width] with a known width.",
            )
        return one.name, dtype, wide if wide > 1 else None

    def _check_order(self) -> None:
        """Hold that a model that says which columns it takes is given them.

        Raises:
            ConfigError: It was made for others, or in another order.
        """
        words = self._session().get_modelmeta().custom_metadata_map
        said = words.get("cuetl.feature_order_sha256")
        if said is None or said == names_sha256(self.inputs):
            return
        order = [str(one) for one in json.loads(words.get("cuetl.feature_order", "[]"))]
        moved = [f"{n + 1}: {old}, not {new}" for n, (old, new) in enumerate(zip(order, self.inputs)) if old != new]  # noqa: B905 # the shorter ends it
        raise ConfigError(
            f"Score: {self.model} was made for other inputs than {', '.join(self.inputs)}; "
            f"{'; '.join(moved) or 'the hash of their names differs'}",
            hint=f"Write inputs={order!r}." if order else "",
        )

    def _batches(self, rows: Rows) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """The rows as matrices of a fixed size: from where to where, and the matrix, which the next one overwrites.

        Raises:
            CastError: A value is NULL, or none of the model's dtype.
        """
        given = self._session().get_inputs()[0]
        dtype = np.dtype(_DTYPES[given.type])
        columns = [_numbers(rows, name, dtype) for name in self.inputs]
        fixed = isinstance(given.shape[0], int)
        size = self.batch_rows if fixed else next((n for n in BATCHES if n >= rows.count), self.batch_rows)
        size = min(size, self.batch_rows)
        buffer = np.zeros((size, len(columns)), dtype)
        for start in range(0, rows.count, size):
            stop = min(start + size, rows.count)
            for at, column in enumerate(columns):
                buffer[: stop - start, at] = column[start:stop]
            buffer[stop - start :] = 0
            yield start, stop, buffer

    def _hold_near(self, answer: NDArray[Any], batch: NDArray[Any], name: str) -> None:
        """Hold that answers in 16 bits are near those in 32.

        Raises:
            DataError: They are not.
        """
        exact = np.asarray(self._session((runtime.CPU,)).run([name], {self._session().get_inputs()[0].name: batch})[0])
        with np.errstate(invalid="ignore"):
            apart = np.abs(answer - exact) / np.maximum(np.abs(exact), 1.0)
        worst = float(np.max(apart, initial=0.0))
        if not worst <= TOLERANCE:
            raise DataError(
                f"Score: {self.model} answers in 16 bits up to {worst:.3g} beside what it does in 32; {TOLERANCE} is "
                "allowed",
                hint='Write precision="fp32".',
            )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Score: the model {path} cannot be read: {error.strerror or error}", hint="Give the path of an ONNX file."
        ) from error


def _numbers(rows: Rows, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A column as numbers that a cast to the dtype carries, shape (n,).

    Raises:
        CastError: One is NULL, or none of the dtype.
    """
    column = rows[name]
    if column.nulls:
        row = int((~column.present).argmax())
        raise rows.refused(name, row, "it is NULL, which no model takes", hint="Fill it with FillNull before Score.")
    data = column.data if isinstance(column.data, np.ndarray) else floats_of(column)
    if data.dtype.kind == "b" or data.dtype == dtype:
        return data
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "i":
            bad = ~(data == np.rint(data)) | (np.abs(data.astype(np.float64)) >= 2.0**63)
        elif data.dtype.kind == "f":
            bad = np.isinf(data.astype(dtype)) & np.isfinite(data)
        else:
            bad = (data > _WHOLE[dtype.name]) | (data < -_WHOLE[dtype.name] if data.dtype.kind == "i" else False)
    if bad.any():
        row = int(bad.argmax())
        raise rows.refused(name, row, f"{data[row]} is no {dtype.name}, which the model takes")
    return data
