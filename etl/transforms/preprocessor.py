"""The saved state of a fit: plain data under `_state/<fit id>/`, from which serving and later appends work.

`plan.json` is canonical JSON: the steps with their arguments and figures, the columns before and after, and the order
of the features. Floats stand twice, as decimal text for people and as hex, which is what is read. Figures that are
tables (vocabularies, quantiles) are Parquet files beside it, named there with their SHA-256. Loading runs nothing. The
bytes follow from the fit id, so that versions with equal fits can share them; what differs between versions (rows that
were fitted on, versions of libraries) is in their manifests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, field, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from etl import transforms
from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError, Damaged, DatasetError
from etl.tensors.fits import PLAN, checked
from etl.tensors.manifest import names_sha256
from etl.tensors.versions import content
from etl.transforms import KINDS
from etl.transforms.base import needs_fit
from etl.transforms.golden import with_results
from etl.transforms.plain import Tables, from_plain, parquet, to_plain, typed
from etl.transforms.words import by_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from etl.core.schema import Schema
    from etl.tensors.places import Target
    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit as it is saved.

    Attributes:
        document: `plan.json`.
        made: What was fitted on, and which versions of libraries did it.
        tables: Name of a file beside `plan.json` → content: Parquet, or a model with its proof.
    """

    document: Mapping[str, Any]
    made: Mapping[str, object]
    tables: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def fit_id(self) -> str:
        """The first 16 hex digits of the SHA-256 of `plan.json`."""
        return hashlib.sha256(canonical_json(self.document)).hexdigest()[:16]

    @property
    def files(self) -> dict[str, bytes]:
        """Path below the dataset's folder → content."""
        folder = f"_state/{self.fit_id}"
        plan = {f"{folder}/{PLAN}": canonical_json(self.document)}
        return plan | {f"{folder}/{name}": content for name, content in self.tables.items()}

    def saved_figures(self, place: int, /) -> Mapping[str, Any]:
        """The figures of a step as they are saved; tables with their path below the dataset's folder."""
        found: dict[str, Any] = _with_paths(self.document["steps"][place]["figures"], f"_state/{self.fit_id}/")
        return found

    def entry(self) -> dict[str, object]:
        """The `fit` field of a manifest."""
        plan = canonical_json(self.document)
        return {
            "fit_id": self.fit_id,
            "plan_sha256": hashlib.sha256(plan).hexdigest(),
            **self.made,
            "files": {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()},
        }


def _with_paths(value: Any, folder: str) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"table", "sha256", "rows"}:
        return {**value, "table": folder + value["table"]}
    return {name: _with_paths(one, folder) for name, one in value.items()}


def saved(
    plan: Planned,
    states: Mapping[int, State],
    /,
    *,
    features: Sequence[str],
    split: str,
    rows: int,
    versions: Mapping[str, str],
    golden: pa.Table | None = None,
    outputs: Sequence[str] = (),
) -> Fit:
    """The fit of a plan.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        features: Columns of `x` in order; none where every column is a tensor of its own.
        split: Whose rows it was fitted on; "all" without a split.
        rows: How many.
        versions: Package → version, of those that computed it.
        golden: Some of these rows before the first step. They are kept with what the steps make of them, in a file
            that is named by its content and no part of the fit's id.
        outputs: The columns that serving gives.
    """
    tables = Tables()
    steps = [
        {
            "kind": step.kind,
            "arguments": to_plain(arguments(step)),
            "figures": to_plain(states.get(place, {}), tables.keep),
        }
        for place, step in enumerate(plan.steps)
    ]
    document: dict[str, Any] = {
        "state_version": STATE_VERSION,
        "steps": steps,
        "input": _columns(plan.given),
        "output": _columns(plan.returns),
        "feature_order": list(features),
        "feature_order_sha256": names_sha256(features),
    }
    files = dict(tables.files)
    if golden is not None:
        content = parquet(with_results(plan, states, golden, outputs))
        files[f"golden.{hashlib.sha256(content).hexdigest()[:8]}.table"] = content
    return Fit(document, {"fitted_on": {"split": split, "rows": rows}, "versions": dict(versions)}, files)


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A step as it is saved.

    Attributes:
        kind: Of the step.
        arguments: By name, as JSON holds them.
        figures: What was fitted; empty for a step that is not.
    """

    kind: str
    arguments: Mapping[str, Any]
    figures: State

    def __str__(self) -> str:
        return _words(self.kind, from_plain(self.arguments))


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What a `plan.json` says.

    Attributes:
        steps: In the order in which they act.
        given: Column → type of the rows before the first step.
        nullable: Those of these columns that may be NULL.
        feature_order: Columns of `x`.
    """

    steps: tuple[SavedStep, ...]
    given: Mapping[str, str]
    nullable: frozenset[str]
    feature_order: tuple[str, ...]


def saved_plan(place: Target, hashes: Mapping[str, str], /) -> tuple[str, bytes, Callable[[str], bytes]]:
    """The plan of a fit: its path, its content, and how files beside it are read by name.

    Args:
        place: The dataset.
        hashes: Path → SHA-256 of the fit's files.

    Raises:
        Damaged: A file is another than the manifest says, or is not named there.
        OSError: It cannot be read.
    """
    paths = [path for path in hashes if path.endswith(f"/{PLAN}")]
    if len(paths) != 1:
        raise Damaged(f"the fit of {place} names {len(paths)} files {PLAN}", path=str(place))
    folder = paths[0].removesuffix(PLAN)

    def read(name: str) -> bytes:
        path = folder + name
        if path not in hashes:
            raise Damaged(f"{path} is not among the files of the fit", path=path)
        return checked(content(place, path), path, hashes[path])

    return paths[0], read(PLAN), read


def loaded(text: bytes, path: str, read: Callable[[str], bytes] | None = None, /) -> SavedPlan:
    """A saved fit of any version that there was.

    Args:
        text: `plan.json`.
        path: Of the file, for messages.
        read: The content of a file beside it, by name; None: tables stay `NamedTable`s.

    Raises:
        DatasetError: It is of a later version.
        Damaged: It is no saved fit.
    """
    try:
        document = json.loads(text)
        version = document["state_version"]
        if type(version) is not int:
            raise TypeError(f"its version is {version!r}")
        if version > STATE_VERSION:
            raise DatasetError(
                f"{path} has the state version {version}; this cuETL reads {STATE_VERSION} and older ones",
                hint="Install a newer cuETL.",
            )
        return _READERS[version](document, read)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise Damaged(
            f"{path} is no saved fit: {type(error).__name__}: {error}", hint="Restore it from a copy.", path=path
        ) from error


def _version_1(document: Mapping[str, Any], read: Callable[[str], bytes] | None) -> SavedPlan:
    steps = tuple(
        SavedStep(str(one["kind"]), dict(one["arguments"]), from_plain(dict(one["figures"]), read))
        for one in document["steps"]
    )
    columns = {str(one["name"]): str(one["type"]) for one in document["input"]}
    nullable = frozenset(str(one["name"]) for one in document["input"] if one["nullable"])
    return SavedPlan(steps, columns, nullable, tuple(str(one) for one in document["feature_order"]))


_READERS = {1: _version_1}
"""By state version; one that was released stays."""


def figures_of(
    text: bytes,
    steps: Sequence[Transform],
    /,
    *,
    path: str = PLAN,
    read: Callable[[str], bytes] | None = None,
) -> dict[int, State]:
    """The figures of a saved fit, for steps that are the same.

    Args:
        text: `plan.json`.
        steps: What the rows are to be prepared with.
        path: Of the file, for messages.
        read: As `loaded`.

    Raises:
        DatasetError: It is of a later version.
        Damaged: It is no saved fit, or lacks figures.
        ConfigError: The steps are others than those that were fitted; the first that differs is named.
    """
    known = loaded(text, path, read).steps
    for number, (was, step) in enumerate(zip_longest(known, steps), 1):
        if was is None or step is None or not _is_same(was, step):
            before = "nothing" if was is None else str(was)
            after = "nothing" if step is None else _words(step.kind, from_plain(to_plain(arguments(step))))
            raise ConfigError(
                f"step {number} of prepare is {after}, and the dataset's fit has {before}",
                hint='An append is prepared as the version before it. Make a new fit with mode="replace".',
            )
        if needs_fit(step) and not (was.figures and set(was.figures) <= {*step.reads, *step.writes}):
            raise Damaged(f"{path}: step {number} has the figures of other columns", path=path)
    return {place: one.figures for place, one in enumerate(known) if one.figures}


def _is_same(was: SavedStep, step: Transform) -> bool:
    """Whether a saved step is this one; arguments that it did not have yet are what they are by default."""
    defaults = {one.name: to_plain(one.default) for one in fields(step) if one.default is not MISSING}  # type: ignore[arg-type]
    return (step.kind, to_plain(arguments(step))) == (was.kind, {**defaults, **was.arguments})


def built(saved_plan: SavedPlan, path: str = PLAN, /) -> tuple[Transform, ...]:
    """The steps of a saved fit as they were written in the pipeline.

    Raises:
        DatasetError: A step is of a later version of cuETL.
        Damaged: Its arguments are none of that step.
    """
    steps: list[Transform] = []
    for number, one in enumerate(saved_plan.steps, 1):
        if one.kind not in KINDS:
            raise DatasetError(
                f"{path}: step {number} is {one.kind}, which this cuETL does not know", hint="Install a newer cuETL."
            )
        try:
            steps.append(getattr(transforms, KINDS[one.kind])(**typed(one.arguments)))
        except (TypeError, ValueError, ConfigError) as error:
            raise Damaged(f"{path}: step {number} is no {one.kind}: {error}", path=path) from error
    return tuple(steps)


def lines(plan: SavedPlan, /) -> list[str]:
    """Each step in one line, with what was fitted."""
    return [
        ", ".join([str(one), *(f"{n}: {words}" for n, words in by_column(one.figures, one.kind))]) for one in plan.steps
    ]


def lines_of_columns(plan: SavedPlan, /) -> dict[str, list[str]]:
    """Column → of each step that names it or was fitted on it: the step, and what was fitted."""
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        fitted = dict(by_column(step.figures, step.kind))
        named = [step.arguments.get(key) for key in ("column", "columns", "values")]
        listed = [name for one in named for name in (one if isinstance(one, list | tuple) else [one]) if name]
        for name in dict.fromkeys((*map(str, listed), *fitted)):
            words = fitted.get(name, "")
            title = step.kind.title().replace("_", "")
            found.setdefault(name, []).append(f"{title}: {words}" if words else title)
    return found


def _words(kind: str, given: Mapping[str, Any]) -> str:
    """A step as it is written in a pipeline."""
    told = {name: _told(value) for name, value in given.items() if value is not None}
    first = [told.pop("columns")] if "columns" in told else []
    first += [f"value={told.pop('value')}"] if "value" in told else []
    return f"{KINDS.get(kind, kind)}({', '.join([*first, *(f'{n}={one}' for n, one in told.items())])})"


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return repr(value[0] if len(value) == 1 else list(value))
    if isinstance(value, dict) and len(value) == 1:
        return "".join(f"{name}({text!r})" for name, text in value.items())
    return repr(value)


def arguments(step: Transform, /) -> dict[str, Any]:
    """A step's arguments by name: its fields."""
    return {one.name: getattr(step, one.name) for one in fields(step)}  # type: ignore[arg-type]  # steps are dataclasses


def _columns(schema: Schema) -> list[dict[str, object]]:
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]
