"""The fitted state at work in a service: one row or many, by the same code and to the same bits as the dataset's rows.

After loading only NumPy and Arrow are used. Columns go by name, never by position.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from etl.core.errors import ConfigError, Damaged
from etl.core.schema import Field, Schema
from etl.tensors.places import place_of
from etl.tensors.versions import required, version_of
from etl.transforms.asking import Input, asked_of, inputs_of
from etl.transforms.fit import Planned, applied, planned, served
from etl.transforms.golden import golden_of
from etl.transforms.handing import Output, outputs_of
from etl.transforms.host import Rows, by_column
from etl.transforms.preprocessor import built, loaded, saved_plan
from etl.transforms.types import type_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

    from etl.transforms.base import State

Given: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Any
"""A row by column name, rows, or a table of Arrow, pandas, cuDF, Polars: whatever Arrow can take over."""


@dataclass(frozen=True, slots=True, eq=False)
class Preprocessor:
    """A fit as a function of rows; safe to call from many threads.

    Attributes:
        fit_id: Of the fit.
        version: Of the dataset that it was loaded from.
        plan: The steps, with the columns before and after each.
        states: The figures of the fitted ones, by place.
        inputs: The columns that are asked for, in the order of the rows that it was fitted on.
        outputs: The tensors that are handed out, in order.
        feature_order: Columns of `x`.
        feature_order_sha256: Its hash, which a model keeps to recognise it.
    """

    fit_id: str
    version: int
    plan: Planned
    states: Mapping[int, State]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    feature_order: tuple[str, ...]
    feature_order_sha256: str
    _golden: Callable[[], tuple[pa.Table, pa.Table] | None] = field(repr=False)
    _tally: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def transform(self, rows: Given, /, *, strict: bool = False) -> dict[str, NDArray[Any]]:
        """Rows as a batch of the dataset: `x` [rows, features], `x.valid`, and the tensors of columns on their own.

        Targets, weights and keys are neither asked for nor given. Absent values are 0 beside their `.valid`, False.

        Args:
            rows: A row by column name, a sequence of rows, or a table. None is NULL, NaN a value; in frames of pandas
                a NaN of a plain float column is NULL, as everywhere in pandas.
            strict: Columns that are not asked for are refused, not ignored.

        Returns:
            Tensor → array, of the same dtype, shape and bits as the dataset would hold.

        Raises:
            SchemaError: Columns are missing or, where `strict`, extra; both are named. Or one is of another type.
            CastError: A value is refused, by its column's type or by a step; column, row and value are named.
        """
        count, values = asked_of(rows, self.inputs, strict=strict)
        made = Rows.of_values(count, values)
        made = applied(self.plan, self.states, made)
        for one in self.inputs:  # steps that count them too have counted the same ones
            key = one.field.name, "null"
            made.counted(*key, max(0, values[one.field.name].nulls - made.tally.get(key, 0)))
        tensors: dict[str, NDArray[Any]] = {}
        for output in self.outputs:
            output.put(made, tensors)
        if made.tally:
            with self._lock:
                for key, number in made.tally.items():
                    self._tally[key] = self._tally.get(key, 0) + number
        return tensors

    @property
    def golden(self) -> tuple[pa.Table, pa.Table] | None:
        """Rows that it was fitted on, and what the steps made of them then; None: nothing was fitted.

        Raises:
            Damaged: The file is not what was written.
        """
        return self._golden()

    def prove(self) -> int:
        """Hold that this machine and this version make of the golden rows what was made when it was fitted.

        Returns:
            How many rows were compared, to the last bit.

        Raises:
            Damaged: A value differs; column, row and both values are named.
        """
        golden = self.golden
        if golden is None:
            return 0
        given, made = golden
        count, values = asked_of(given, self.inputs, strict=False)
        rows = applied(self.plan, self.states, Rows.of_values(count, values))
        wanted = Schema(tuple(one for one in self.plan.returns if one.name in made.column_names))
        found = pa.Table.from_batches([rows.batch(wanted)])
        for name in wanted.names:
            pairs = zip(found.column(name).to_pylist(), made.column(name).to_pylist(), strict=True)
            for row, (now, then) in enumerate(pairs):
                if repr(now) != repr(then):
                    raise Damaged(
                        f"the fit {self.fit_id} gives {now!r} for column {name} of golden row {row + 1}, and gave "
                        f"{then!r} when it was fitted",
                        hint="Do not serve with it here: compare the versions of the libraries with the manifest's.",
                    )
        return count

    def to_onnx(self, path: str | os.PathLike[str], /) -> dict[str, object]:
        """Write the preparation as an ONNX model, for processes without cuETL; with the proof beside it.

        Args:
            path: Of the model; `parity.json` is written beside it.

        Returns:
            What `parity.json` records: rows compared, the greatest difference, versions, the model's SHA-256.

        Raises:
            ConfigError: Steps or columns have no ONNX form, all of which are named; or the extra `onnx` is missing.
            DataError: The model gives other values than `transform`; column, row and both values are named.
        """
        from etl.transforms.export.written import write  # noqa: PLC0415 # what a service that serves has no use for

        return write(self, path)

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """Column → what happened to its values since loading: "null", "unseen", "clipped", "out_of_range" and so on."""
        with self._lock:
            return by_column(self._tally)

    def __repr__(self) -> str:
        asked = ", ".join(one.field.name for one in self.inputs)
        return f"<Preprocessor {self.fit_id}: {asked} to {', '.join(one.tensor for one in self.outputs)}>"


def load_preprocessor(path: str | os.PathLike[str], version: int | None = None) -> Preprocessor:
    """The preparation of a dataset's version, for rows that come one by one.

    Only the manifest and the files below `_state/` are read: a service may have a copy of these alone.

    Args:
        path: The dataset, on any storage.
        version: None: the current one.

    Raises:
        DatasetError: There is no such dataset or version, or its state is of a later version of cuETL.
        ConfigError: It was made without steps.
        Damaged: The state is not what was written.
    """
    place = place_of(path)
    manifest = version_of(place, required(place), version)
    if not manifest.state_hashes:
        raise ConfigError(
            f"version {manifest.version} of {place} was made without prepare: there is nothing to transform with",
            hint="Give the pipeline prepare=[…].",
        )
    name, text, read = saved_plan(place, manifest.state_hashes)
    known = loaded(text, name, read)
    steps = built(known, name)
    labels = {str(one["name"]): _labels(one) for one in manifest.columns}
    given = Schema(
        tuple(
            Field(name, type_of(words), name in known.nullable, vocabulary=labels.get(name))
            for name, words in known.given.items()
        )
    )
    states = {at: one.figures for at, one in enumerate(known.steps) if one.figures}
    plan = planned(steps, given, states)
    outputs = outputs_of(manifest.columns, plan.returns)
    wanted = [column.field.name for one in outputs for column in one.columns]
    kept = served(plan, states, wanted)
    document = manifest.document
    return Preprocessor(
        fit_id=str(manifest.fit_id),
        version=manifest.version,
        plan=kept[0],
        states=kept[1],
        inputs=inputs_of(kept[0], wanted),
        outputs=outputs,
        feature_order=tuple(str(one) for one in known.feature_order),
        feature_order_sha256=str(document["feature_order_sha256"]),
        _golden=partial(golden_of, name, manifest.state_hashes, read),
    )


def _labels(column: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels of an enum that no step changed."""
    values = (column.get("category") or {}).get("values")
    return None if values is None else tuple(str(one) for one in values)
