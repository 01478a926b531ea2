"""`cuetl dataset diff`: how two versions differ, and limits that end it with exit 4."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from etl.cli import output, process
from etl.core.errors import DataError
from etl.tensors.difference import diff as difference
from etl.tensors.places import place_of
from etl.tensors.showing import looks
from etl.tensors.versions import required, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.tensors.difference import Difference
    from etl.tensors.drift import ColumnDrift, Excess, Limits
    from etl.tensors.manifest import Manifest
    from etl.tensors.psi import Stability

CHANGED = {"NULL": "null", "least": "least", "most": "most", "mean": "mean", "distinct": "distinct"}
"""Of a column's values, what is printed, and where it is known; `--json` prints all statistics."""
DRIFT = ("column", "split", "PSI", "between", "NULL", "mean shift", "spread ratio", "new", "gone")
"""Of a column's drift; `--json` prints the bins too."""
FLAGS = {
    "psi": "--max-psi",
    "null_change": "--max-null-change",
    "mean_shift": "--max-mean-shift",
    "spread_ratio": "--max-spread-ratio",
    "new_categories": "--max-new-categories",
    "gone_categories": "--max-gone-categories",
}


def diff(
    path: str,
    limits: Limits,
    columns: Sequence[str],
    /,
    *,
    first: int | None,
    second: int | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Print how two versions differ, and hold their drift to limits.

    Raises:
        DatasetError: There is no dataset, or no such version.
        DataError: A limit is passed; column, measure, value and limit are named.
        ConfigError: A column that is to be held to the limits is not in both versions.
    """
    process.prepare(None, debug=debug)
    found = difference(path, first, second)
    passed = found.beyond(limits, columns)
    if as_json:
        output.emit_json({**found.as_json(), "exceeded": [one.as_json() for one in passed]})
    else:
        _print(path, found)
    # What cannot be held to limits is not within them: a gate that a lost column passes is none.
    unheld = found.incomparable if limits.given and not columns else {}
    if passed or unheld:
        said = [*map(_words, passed), *(f"{name} {why}" for name, why in unheld.items())]
        raise DataError(
            f"versions {found.versions[0]} and {found.versions[1]} of {path} differ by more than allowed: "
            + "; ".join(said),
            hint="Look at the new rows, allow more, or name the columns to hold with --column.",
        )


def _words(one: Excess) -> str:
    side = "" if one.split == "all" else f" ({one.split})"
    return f"{one.column}{side} {FLAGS[one.measure].removeprefix('--max-')} {one.value:.4g} > {one.limit:g}"


def _print(path: str, found: Difference) -> None:
    old, new = found.versions
    output.text(f"{path}: version {old} to {new}{', the same rows and columns' if found.same else ''}")
    for name, (before, after) in found.recipes.items():
        if name.endswith("sha256"):
            continue  # what is behind them is shown below
        output.text(f"{name.replace('_', ' ')}: {output.said(name, before)} -> {output.said(name, after)}")
    rows = [(n, output.count(a), output.count(b), f"{b - a:+d}") for n, (a, b) in found.rows.items()]
    output.section(("split", f"rows in {old}", f"rows in {new}", "change"), rows)
    files = [(kind, output.count(n), output.bytes_text(size)) for kind, (n, size) in found.files.items()]
    output.section(("data files", "count", "size"), files)
    schema = [(n, "", "", "added") for n in found.added] + [(n, "", "", "removed") for n in found.removed]
    schema += [
        (name, key.replace("_", " "), output.said(key, before), output.said(key, after))
        for name, column in found.changed.items()
        for key, (before, after) in column.items()
    ]
    output.section(("column", "field", str(old), str(new)), schema)
    target = place_of(path)
    newest = required(target)
    was, now = (version_of(target, newest, version) for version in found.versions)
    output.section(("column", "split", *CHANGED), [row for split in found.rows for row in _changes(was, now, split)])
    drifts = [_drifted(one) for one in found.drift if _differs(one)]
    output.section(DRIFT, drifts, right=DRIFT[2:7])


def _changes(old: Manifest, new: Manifest, split: str) -> list[tuple[str, ...]]:
    """Of each column whose values in a split look otherwise, what did, from old to new."""
    before = {look.name: look for look in looks(old, split)}
    rows: list[tuple[str, ...]] = []
    for look in looks(new, split):
        was = before.get(look.name)
        if was is None:
            continue
        pairs = [(str(getattr(was, key)), str(getattr(look, key))) for key in CHANGED.values()]
        if any(a != b for a, b in pairs):
            rows.append((look.name, split, *(f"{a or '-'} -> {b or '-'}" if a != b else "" for a, b in pairs)))
    return rows


def _differs(one: ColumnDrift) -> bool:
    measures = (one.psi, one.null_change, one.mean_shift, one.new_categories, one.gone_categories)
    return any(measures) or one.spread_ratio not in (None, 1.0)


def _drifted(one: ColumnDrift) -> tuple[str, ...]:
    sign = 1 if one.mean is None or one.mean[1] >= one.mean[0] else -1
    shift = "" if one.mean_shift is None else f"{sign * one.mean_shift:+.3f}"
    ratio = "" if one.spread_ratio is None else f"{one.spread_ratio:.3f}"
    return (
        one.column,
        one.split,
        "" if one.psi is None else f"{one.psi:.4f}",
        _range(one.stability),
        f"{100 * (one.null[1] - one.null[0]):+.1f}%" if one.null[0] != one.null[1] else "",
        shift,
        ratio,
        _listed(one.new_categories, one.appeared),
        _listed(one.gone_categories, one.gone),
    )


def _range(found: Stability | None) -> str:
    """Between what the index lies, where the manifests leave that open."""
    if found is None or found.least == found.most:
        return ""
    return f"{found.least:.2f} and {'any' if math.isinf(found.most) else f'{found.most:.2f}'}"


def _listed(count: int | None, values: Sequence[object]) -> str:
    """How many values, and some of them."""
    if not count:
        return "" if count is None else "0"
    named = ", ".join(map(str, values[:3]))
    return f"{count}: {named}{', …' if count > len(values[:3]) else ''}" if named else str(count)
