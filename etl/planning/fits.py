"""A fit on its way into a dataset: the saved state, and what the manifest's columns say of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib import metadata
from platform import python_version
from typing import TYPE_CHECKING, Any

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError
from etl.tensors.document import column_json, policies_json
from etl.tensors.fits import SavedFit
from etl.tensors.manifest import names_sha256
from etl.tensors.sink import DatasetSink
from etl.tensors.split import splitting
from etl.transforms.asking import inputs_of
from etl.transforms.base import Described, needs_fit
from etl.transforms.export.model import exported, unexportable
from etl.transforms.export.parity import proved
from etl.transforms.fit import served
from etl.transforms.handing import outputs_of
from etl.transforms.preprocessor import saved
from etl.transforms.serving import Preprocessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from etl.core.schema import Schema
    from etl.planning.jobs import Write
    from etl.tensors.options import WriteOptions
    from etl.tensors.pack import PackPlan
    from etl.tensors.split import Splitting
    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned
    from etl.transforms.preprocessor import Fit

TRAIN = "train"
"""The split whose rows steps are fitted on."""
LIBRARIES = ("cuetl", "numpy", "pandas", "pyarrow")
"""Whose versions are saved with a fit."""


def fit_for(
    write: Write,
    plan: Planned,
    figures: Mapping[int, State],
    /,
    *,
    split: str,
    rows: int,
    golden: pa.Table | None = None,
) -> SavedFit:
    """What is saved with a dataset of prepared rows.

    Args:
        write: The dataset.
        plan: All steps.
        figures: Of the fitted ones, by place.
        split: Whose rows they were fitted on; "all" without a split.
        rows: How many; 0 where no step is fitted.
        golden: Some of these rows as they were before the steps, for later proofs; None: there are none.
    """
    versions = {name: metadata.version(name) for name in LIBRARIES} | {"python": python_version()}
    packed = DatasetSink(write.target, write.format, write.options).plan(plan.returns)
    fit = saved(
        plan,
        figures,
        features=packed.features,
        split=split,
        rows=rows,
        versions=versions,
        golden=golden,
        outputs=served_columns(packed),
    )
    if write.options.onnx:
        fit = with_model(fit, plan, figures, packed, golden)
    return SavedFit(fit.entry(), fit.files, columns_of(plan, figures, fit), scores_of(plan))


def check_model(dataset: DatasetSink, plan: Planned, /) -> None:
    """Hold, before a row is read, that the steps have an ONNX form where one is asked for.

    Raises:
        ConfigError: Some have none; all of them are named.
    """
    if not dataset.options.onnx:
        return
    formless = unexportable(served(plan, {}, served_columns(dataset.plan(plan.returns)))[0].steps)
    if formless:
        raise ConfigError(
            f"onnx=True: {', '.join(formless)} have no ONNX form",
            hint="Serve the dataset with etl.load_preprocessor, or leave these steps to the model's own code.",
        )


def with_model(
    fit: Fit, plan: Planned, figures: Mapping[int, State], packed: PackPlan, golden: pa.Table | None, /
) -> Fit:
    """A fit with an ONNX model that is proved to give what it gives, and with the proof; the manifest names both.

    Raises:
        ConfigError: A step or column has no ONNX form.
        DataError: The model gives something else.
    """
    outputs = outputs_of([column_json(one) | policies_json(one) for one in packed.columns], plan.returns)
    wanted = [column.field.name for one in outputs for column in one.columns]
    kept, states = served(plan, figures, wanted)
    prep = Preprocessor(
        fit_id=fit.fit_id,
        version=0,
        plan=kept,
        states=states,
        inputs=inputs_of(kept, wanted),
        outputs=outputs,
        feature_order=packed.features,
        feature_order_sha256=names_sha256(packed.features),
        _golden=lambda: None if golden is None else (golden, golden),
    )
    model = exported(prep)
    proof = proved(prep, model)
    # Named by their content, as golden rows are: another version of a library may write other bytes for an equal fit.
    name = f"model.{str(proof['model_sha256'])[:8]}.onnx"
    record = canonical_json({"model": name, **proof})
    parity = f"parity.{hashlib.sha256(record).hexdigest()[:8]}.json"
    folder = f"_state/{fit.fit_id}/"
    said = {one: proof[one] for one in ("passed", "model_sha256", "rows", "tolerance", "max_ulps", "opset")}
    return replace(
        fit,
        made={**fit.made, "onnx": {"model": folder + name, "parity": folder + parity, **said}},
        tables={**fit.tables, name: model, parity: record},
    )


def served_columns(packed: PackPlan, /) -> list[str]:
    """The columns of a dataset that a service asks for: no keys, targets and weights."""
    return [column.field.name for column in packed.columns if column.role in ("feature", "text")]


def columns_of(plan: Planned, figures: Mapping[int, State], fit: Fit, /) -> dict[str, dict[str, Any]]:
    """Column → what its manifest entry says of the steps that wrote it."""
    found: dict[str, dict[str, Any]] = {}
    for place, step in enumerate(plan.steps):
        for name in step.writes:
            entry = found.setdefault(name, {"transforms": []})
            entry["transforms"].append(f"{place + 1} {step.kind}")
            if isinstance(step, Described):
                entry |= step.describes(name, figures.get(place, {}), fit.saved_figures(place).get(name, {}))
    return found


def scores_of(plan: Planned, /) -> list[Mapping[str, object]]:
    """`scores[]`: the models that rows went through."""
    return [step.scores() for step in plan.steps if hasattr(step, "scores")]


def train_split(options: WriteOptions, schema: Schema, steps: Sequence[Transform], /) -> Splitting | None:
    """How the rows to fit on are told from the others, before any step; None: all of them.

    Raises:
        ConfigError: There are splits, and none is named `train`; or a step changes what rows are split by; or a fitted
            one changes a key.
        SchemaError: The split key is no column.
    """
    for number, step in enumerate(steps, 1):
        for name in step.writes:
            if needs_fit(step) and name in options.key:
                raise ConfigError(
                    f"step {number} of prepare changes {name}, which is a key: it would no longer tell rows apart",
                    hint="Leave it out of the step, or give the step a copy made in the query.",
                    column=name,
                )
    if not options.split:
        return None
    if TRAIN not in options.split:
        raise ConfigError(
            f"steps are fitted on the split {TRAIN}, and the splits are {', '.join(options.split)}",
            hint=f'Name one of them "{TRAIN}".',
        )
    by = {*options.split_key, *([] if options.split_time is None else [options.split_time])}
    for number, step in enumerate(steps, 1):
        for name in step.writes:
            if name in by:
                raise ConfigError(
                    f"step {number} of prepare changes {name}, by which rows are split: which of them are fitted on "
                    "is decided before",
                    hint="Split by a column that no step changes, for instance a copy made in the query.",
                    column=name,
                )
    return splitting(options, schema)
