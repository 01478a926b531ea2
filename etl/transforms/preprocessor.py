"""The saved state of a fit: plain data under `_state/<fit id>/`, from which serving and later appends work.

`plan.json` is canonical JSON: the steps with their arguments and figures, the columns before and after, and what it was
fitted on. Floats stand twice, as decimal text for people and as hex, which is what is read. Loading runs nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Schema
    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned

STATE_VERSION = 1
PLAN = "plan.json"
_OUTSIDE = ("versions", "fitted_on")
"""Not part of what a fit is: equal fits share a folder, whenever and with whatever they were made."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit as it is saved.

    Attributes:
        fit_id: The first 16 hex digits of the SHA-256 of the plan without versions and what it was fitted on.
        document: `plan.json`.
    """

    fit_id: str
    document: Mapping[str, Any]

    @property
    def files(self) -> dict[str, bytes]:
        """Path below the dataset's folder → content."""
        return {f"_state/{self.fit_id}/{PLAN}": canonical_json(self.document)}

    def entry(self) -> dict[str, object]:
        """The `fit` field of a manifest."""
        plan = canonical_json(self.document)
        return {
            "fit_id": self.fit_id,
            "plan_sha256": hashlib.sha256(plan).hexdigest(),
            "fitted_on": self.document["fitted_on"],
            "files": {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()},
        }


def saved(
    plan: Planned,
    states: Mapping[int, State],
    /,
    *,
    split: str,
    rows: int,
    versions: Mapping[str, str],
) -> Fit:
    """The fit of a plan.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        split: Whose rows it was fitted on; "all" without a split.
        rows: How many.
        versions: Package → version, of those that computed it.
    """
    steps = [
        {"kind": step.kind, "arguments": _plain(arguments(step)), "figures": _plain(states.get(place, {}))}
        for place, step in enumerate(plan.steps)
    ]
    document: dict[str, Any] = {
        "state_version": STATE_VERSION,
        "steps": steps,
        "input": _columns(plan.given),
        "output": _columns(plan.returns),
        "feature_order_sha256": hashlib.sha256(canonical_json(list(plan.returns.names))).hexdigest(),
    }
    fit_id = hashlib.sha256(canonical_json(document)).hexdigest()[:16]
    return Fit(fit_id, document | {"versions": dict(versions), "fitted_on": {"split": split, "rows": rows}})


def figures_of(content: bytes, steps: Sequence[Transform], /) -> dict[int, State]:
    """The figures of a saved fit, for steps that are the same.

    Args:
        content: `plan.json`.
        steps: What the rows are to be prepared with.

    Raises:
        DatasetError: It is of a later version.
        ConfigError: The steps are others than those that were fitted; the first that differs is named.
    """
    document = json.loads(content)
    if document.get("state_version") != STATE_VERSION:
        raise DatasetError(
            f"the saved fit has the state version {document.get('state_version')}; this cuETL reads {STATE_VERSION}",
            hint="Install a newer cuETL.",
        )
    known = document["steps"]
    for number, (was, step) in enumerate(zip_longest(known, steps), 1):
        now = None if step is None else {"kind": step.kind, "arguments": _plain(arguments(step))}
        if was is None or now is None or now != {"kind": was["kind"], "arguments": was["arguments"]}:
            before = "nothing" if was is None else _words(was["kind"], _back(was["arguments"]))
            after = "nothing" if step is None else _words(step.kind, arguments(step))
            raise ConfigError(
                f"step {number} of prepare is {after}, and the dataset's fit has {before}",
                hint='An append is prepared as the version before it. Make a new fit with mode="replace".',
            )
    return {place: _back(one["figures"]) for place, one in enumerate(known) if one["figures"]}


def _words(kind: str, given: Mapping[str, Any]) -> str:
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def arguments(step: Transform, /) -> dict[str, Any]:
    """A step's arguments by name: its fields."""
    return {one.name: getattr(step, one.name) for one in fields(step)}  # type: ignore[arg-type]  # steps are dataclasses


def _columns(schema: Schema) -> list[dict[str, object]]:
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def _plain(value: Any) -> Any:
    """A value as JSON holds it without loss."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex(), "text": repr(value)}
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {type(value).__name__: str(value)}


def _back(value: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(value, list):
        return [_back(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float", "text"}:
        return float.fromhex(value["float"])
    if set(value) == {"int"}:
        return int(value["int"])
    return {name: _back(one) for name, one in value.items()}
