"""How two versions of a dataset differ: columns, files, rows per split, statistics. Only their manifests are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError
from etl.tensors.drift import beyond, drift_of, incomparable
from etl.tensors.manifest import integer
from etl.tensors.places import place_of
from etl.tensors.versions import required, version_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from etl.tensors.drift import ColumnDrift, Excess, Limits
    from etl.tensors.manifest import Manifest

COMPARED = ("role", "kind", "dtype", "nullable", "tensor", "index", "shape", "arrow_type", "source_type")
"""Of a column: what it is, not what its values are."""
RECIPES = ("format", "split", "layout", "order", "feature_order_sha256", "schema_sha256", "content_sha256")
"""Of a dataset: fields that are compared as a whole."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one version to another.

    Attributes:
        path: The dataset.
        versions: Both numbers.
        recipes: Field → both values, where they differ.
        added, removed: Columns that only the second, only the first has.
        changed: Column → field → both values.
        rows: Split → rows in both; 0 where a version has no such split.
        files: "kept", "added" and "removed" → how many, and their bytes.
        paths: "added" and "removed" → paths.
        statistics: Column → split → name → both values, where they differ.
        drift: How the values of every column that both have differ, split by split.
        incomparable: Columns of the first version whose drift is not known → why.
    """

    path: str
    versions: tuple[int, int]
    recipes: Mapping[str, tuple[object, object]]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, Mapping[str, tuple[object, object]]]
    rows: Mapping[str, tuple[int, int]]
    files: Mapping[str, tuple[int, int]]
    paths: Mapping[str, Sequence[str]]
    statistics: Mapping[str, Mapping[str, Mapping[str, tuple[object, object]]]]
    drift: tuple[ColumnDrift, ...] = ()
    incomparable: Mapping[str, str] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether both versions hold the same rows of the same columns."""
        return not (self.recipes or self.added or self.removed or self.changed or self.statistics) and not (
            self.paths["added"] or self.paths["removed"]
        )

    def beyond(self, limits: Limits, columns: Sequence[str] = (), /) -> tuple[Excess, ...]:
        """What of the drift passes its limit: column, split, measure, value and limit each.

        Args:
            limits: What may differ.
            columns: Only these are held to the limits; none: all but keys, times and running numbers.

        Raises:
            ConfigError: A column is not in both versions, so that it would be held to nothing.
        """
        return beyond(self.drift, limits, columns)

    def as_json(self) -> dict[str, object]:
        """As JSON values; pairs are [first, second]."""
        return {
            "target": self.path,
            "versions": list(self.versions),
            "same": self.same,
            "recipes": {k: list(v) for k, v in self.recipes.items()},
            "columns": {
                "added": list(self.added),
                "removed": list(self.removed),
                "changed": {n: {k: list(v) for k, v in c.items()} for n, c in self.changed.items()},
            },
            "splits": {n: {"rows": list(v)} for n, v in self.rows.items()},
            "files": {
                **{k: {"files": n, "bytes": b} for k, (n, b) in self.files.items()},
                **{f"{k}_paths": list(v) for k, v in self.paths.items()},
            },
            "statistics": {
                n: {s: {k: list(v) for k, v in one.items()} for s, one in c.items()} for n, c in self.statistics.items()
            },
            "drift": [one.as_json() for one in self.drift],
            "incomparable": dict(self.incomparable),
        }


def diff(path: str | os.PathLike[str], /, first: int | None = None, second: int | None = None) -> Difference:
    """Compare two versions by their manifests; their data may be gone.

    Args:
        path: The folder, or a `file://` URL.
        first: A version; None: the parent of the second one.
        second: A version; None: the current one.

    Raises:
        ConfigError: The version has no parent to compare it with.
        DatasetError: There is no dataset, or no such version.
    """
    target = place_of(path)
    newest = required(target)
    new = version_of(target, newest, second)
    parent = new.document.get("parent")
    if first is None and parent is None:
        raise ConfigError(f"version {new.version} of {target} has no parent", hint="Name two versions.")
    old = version_of(target, newest, integer(parent) if first is None else first)
    return _difference(str(target), old, new)


def _difference(path: str, old: Manifest, new: Manifest) -> Difference:
    was, now = _named(old), _named(new)
    before = {one.path: one.bytes for f in old.files for one in f.stored}
    after = {one.path: one.bytes for f in new.files for one in f.stored}
    sides = {
        "kept": [p for p in after if p in before],
        "added": [p for p in after if p not in before],
        "removed": [p for p in before if p not in after],
    }
    both = [n for n in was if n in now]
    changed = {n: _pairs(was[n], now[n], COMPARED) for n in both}
    drifts = drift_of(old.document, new.document)
    fits = {} if old.fit_id == new.fit_id else {"fit": (old.fit_id, new.fit_id)}
    return Difference(
        path=path,
        versions=(old.version, new.version),
        recipes=_pairs(old.document, new.document, RECIPES) | fits,
        added=tuple(n for n in now if n not in was),
        removed=tuple(n for n in was if n not in now),
        changed={n: c for n, c in changed.items() if c},
        rows={n: (old.splits.get(n, 0), new.splits.get(n, 0)) for n in dict.fromkeys((*old.splits, *new.splits))},
        files={k: (len(v), sum((before | after)[p] for p in v)) for k, v in sides.items()},
        paths={k: sides[k] for k in ("added", "removed")},
        statistics={n: s for n in both if (s := _statistics(was[n], now[n]))},
        drift=drifts,
        incomparable=incomparable(old.document, new.document, drifts),
    )


def _named(manifest: Manifest) -> dict[str, Mapping[str, object]]:
    """Columns by name; one that is a feature and a key is there twice, the second time as "name (key)"."""
    found: dict[str, Mapping[str, object]] = {}
    for column in manifest.columns:
        name = str(column["name"])
        found[name if name not in found else f"{name} ({column.get('role')})"] = column
    return found


def _pairs(
    old: Mapping[str, object], new: Mapping[str, object], keys: Sequence[str]
) -> dict[str, tuple[object, object]]:
    return {k: (old.get(k), new.get(k)) for k in keys if old.get(k) != new.get(k)}


def _statistics(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, dict[str, tuple[object, object]]]:
    before, after = _by_split(old), _by_split(new)
    found: dict[str, dict[str, tuple[object, object]]] = {}
    for split in dict.fromkeys((*before, *after)):
        was, now = before.get(split, {}), after.get(split, {})
        found[split] = _pairs(was, now, sorted({*was, *now}))
    nulls = _nulls(old), _nulls(new)
    if nulls[0] != nulls[1] and not (before and after):
        found[""] = {"null": nulls}  # of all splits: all that is known
    return {s: one for s, one in found.items() if one}


def _by_split(column: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    stats = column.get("stats")
    return {str(s): v for s, v in stats.items() if isinstance(v, dict)} if isinstance(stats, dict) else {}


def _nulls(column: Mapping[str, object]) -> object:
    null = column.get("null")
    return null.get("count") if isinstance(null, dict) else None
