"""A fit on its way into a dataset: the saved state, and what the manifest's columns say of it."""

from __future__ import annotations

from importlib import metadata
from platform import python_version
from typing import TYPE_CHECKING, Any

from etl.core.errors import ConfigError
from etl.tensors.fits import SavedFit
from etl.tensors.sink import DatasetSink
from etl.tensors.split import splitting
from etl.transforms.base import Described, needs_fit
from etl.transforms.preprocessor import saved

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
    return SavedFit(fit.entry(), fit.files, columns_of(plan, figures, fit), scores_of(plan))


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
