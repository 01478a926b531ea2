"""`cuetl dataset`: what a published dataset holds, whether its files are whole, and its versions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from etl.cli import output, process
from etl.tensors import erase as erasure
from etl.tensors import operations
from etl.tensors.dataset import open_dataset
from etl.tensors.page import write_page
from etl.tensors.showing import UNSAID, Prepared, bars, changes, lineage, looks
from etl.transforms.preprocessor import lines, lines_of_columns, loaded, saved_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etl.tensors.dataset import Dataset
    from etl.tensors.manifest import Manifest
    from etl.tensors.showing import Look
    from etl.tensors.verify import Verify

HEAD = (
    *("path", "format", "version", "operation", "created_at", "rows", "bytes"),
    *("splits", "files", "partitions", "content_sha256"),
)
TABLES = {
    "columns": ("name", "role", "dtype", "tensor", "nullable", "arrow_type", "source_type", "nulls"),
    "tensors": ("name", "dtype", "row_shape", "columns"),
}
"""What `show` prints of the summary; `--json` prints all of it."""
STORED = ("name", "nullable", "arrow_type", "source_type", "nulls")
"""Of a column that is in no tensor."""


LOOK = ("column", "NULL", "least", "most", "mean", "deviation", "distinct", "spread or most frequent")
"""Of a column's values."""
PREPARED = ("column", "", *LOOK[1:])
"""The same before and after the steps of `prepare`."""


def show(path: str, /, *, version: int | None, html: Path | None, as_json: bool, debug: bool) -> None:
    """Print version, rows, bytes, splits, columns and their values, and where the rows came from; or write a page.

    Raises:
        DatasetError: There is no dataset, no such version, or a file of it is missing or has another size.
        ConfigError: The page cannot be written there.
    """
    process.prepare(None, debug=debug)
    found = open_dataset(path, version)
    summary = found.summary()
    if html is not None:
        write_page(html, found.page(_prepared(found)))
        said = {"target": path, "version": found.manifest.version, "html": str(html)}
        if as_json:
            output.emit_json(said)
        else:
            output.text(f"{html}: version {said['version']} of {path} as a page")
        return
    if as_json:
        output.emit_json(summary)
        return
    for key in HEAD:
        output.text(f"{key.replace('_', ' ')}: {output.said(key, summary.get(key))}")
    tables = TABLES if summary.get("tensors") else TABLES | {"columns": STORED}
    for key, names in tables.items():
        rows = cast("list[dict[str, object]]", summary.get(key) or [])
        if rows:
            kept = [name for name in names if any(output.said(name, row.get(name)) for row in rows)]
            output.text()
            output.table(
                [name.replace("_", " ") for name in kept],
                [[output.said(name, row.get(name)) for name in kept] for row in rows],
                right=("nulls",),
            )
    output.section(LOOK, _looked(found.manifest), right=LOOK[1:-1])
    prepared = _prepared(found)
    _show_changes(found.manifest, prepared)
    output.text()
    for what, words in lineage(found.manifest):
        output.text(f"{what}: {' '.join(words.split())}")
        if what == "fit":
            for number, step in enumerate(prepared.steps, 1):
                output.text(f"step {number}: {step}")
    chain = found.history()
    output.text("versions: " + ", ".join(f"{one.version} ({one.document.get('operation')})" for one in chain))
    for check in _data_checks(found.manifest):
        output.text(f"check {output.check(check)}: {'passed' if check['passed'] else 'failed'}")
    warned = summary.get("warnings")
    for warning in [w for w in warned if isinstance(w, dict)] if isinstance(warned, list) else []:
        output.text(f"warning: {warning.get('text')}")
    if summary.get("reading"):
        output.text()
        output.text(f"To read it:\n\n{summary['reading']}")


def _data_checks(manifest: Manifest) -> list[Mapping[str, Any]]:
    """What came of the checks of the pipeline that made the version; those that every version passes are left out."""
    listed = cast("list[Mapping[str, Any]]", manifest.document.get("checks") or [])
    return [one for one in listed if "severity" in one]


def _prepared(found: Dataset) -> Prepared:
    """What the rows were prepared with, and its figures."""
    hashes = found.manifest.state_hashes
    if not hashes:
        return UNSAID
    path, text, _ = saved_plan(found.place, hashes)
    plan = loaded(text, path)
    return Prepared(lines(plan), lines_of_columns(plan))


def _show_changes(manifest: Manifest, prepared: Prepared) -> None:
    """Each column before and after the steps, and what was done to it."""
    found = changes(manifest, prepared)
    rows = [
        (*((one.name, when) if when == "before" or one.before is None else ("", when)), *_cells(look))
        for one in found
        for when, look in (("before", one.before), ("after", one.after))
        if look is not None
    ]
    output.section(PREPARED, rows, right=PREPARED[2:-1])
    if any(one.steps or one.met for one in found):
        output.text()
    for one in found:
        for words in (*one.steps, *one.met):
            output.text(f"{one.name}: {words}")


def verify(path: str, /, *, by_size: bool, as_json: bool, debug: bool) -> None:
    """Compare every data file with the manifest, by SHA-256 or by size.

    Raises:
        Damaged: A file is missing or differs; each is named.
    """
    process.prepare(None, debug=debug)
    started = time.monotonic()
    level: Verify = "size" if by_size else "sha256"
    found: Dataset = open_dataset(path, verify="none")
    found.verify(level)
    summary: Mapping[str, object] = found.summary()
    said = {"target": path, "status": "whole", "verified": level, "seconds": round(time.monotonic() - started, 3)}
    said |= {key: summary[key] for key in ("format", "version", "rows", "bytes") if key in summary}
    if as_json:
        output.emit_json(said)
    else:
        version = f"version {said.get('version', '?')}"
        rows = output.counted(len(found), "row")
        output.text(f"{path}: {version} is whole ({rows}, every file compared by {level})")


def rollback(path: str, /, *, version: int | None, as_json: bool, debug: bool) -> None:
    """Publish a new version that is what an older one was.

    Raises:
        DatasetError: There is no such version, or its data are gone.
    """
    process.prepare(None, debug=debug)
    made = operations.rollback(path, version)
    said = {"target": path, "status": "done", "operation": "rollback", **_published(made)}
    said["restores"] = made.document["restores"]
    if as_json:
        output.emit_json(said)
    else:
        rows = output.counted(made.rows, "row")
        output.text(f"{path}: version {made.version} is what version {said['restores']} was ({rows})")


def vacuum(path: str, /, *, keep: int, dry_run: bool, as_json: bool, debug: bool) -> None:
    """Remove the data of all but the newest versions, and what dead runs left.

    Raises:
        DatasetError: There is no dataset, or the file system refused.
    """
    process.prepare(None, debug=debug)
    found = operations.vacuum(path, keep=keep, dry_run=dry_run)
    if as_json:
        output.emit_json({**found.as_json(), "target": path, "status": "done", "operation": "vacuum"})
        return
    would = "would remove" if dry_run else "removed"
    files = f"{output.counted(found.files, 'data file')} ({output.bytes_text(found.bytes)})"
    output.text(f"{path}: {would} {files} and {output.counted(found.trees, 'leftover folder')}")
    for words, versions in (("no longer whole", found.taken), ("whole", found.kept)):
        if versions:
            output.text(f"{words}: version {', '.join(map(str, versions))}")
    if found.waiting:
        output.text(f"{output.counted(found.waiting, 'leftover folder')} may still be read: left to a later vacuum")


def compact(path: str, /, *, as_json: bool, debug: bool) -> None:
    """Join small files into larger ones, as a new version with the same rows in the same order.

    Raises:
        DatasetError: There is no dataset, a file is damaged, or the file system refused.
    """
    process.prepare(None, debug=debug)
    before = open_dataset(path, verify="none").manifest
    made = operations.compact(path)
    if as_json:
        status = "nothing to do" if made is None else "done"
        said = {"target": path, "status": status, "operation": "compact", **_published(made or before)}
        output.emit_json({**said, "files_before": len(before.files)})
    elif made is None:
        output.text(f"{path}: nothing to join ({output.counted(len(before.files), 'data file')})")
    else:
        files = f"{output.count(len(before.files))} data files became {output.count(len(made.files))}"
        output.text(f"{path}: version {made.version}, {files}, the same {output.counted(made.rows, 'row')}")


def erase(path: str, keys: Sequence[str], /, *, dry_run: bool, as_json: bool, debug: bool) -> None:
    """Take every row that has one of the keys out of every version.

    Raises:
        ConfigError: A key is malformed, or a version cannot be searched by it.
        DatasetError: There is no dataset, a run is writing to it, or the file system refused.
    """
    process.prepare(None, debug=debug)
    found = erasure.erase(path, keys, dry_run=dry_run)
    for name in found.linked:
        output.note(f"cuetl: warning: {name} had another name outside the dataset, where its rows still are")
    if as_json:
        output.emit_json({**found.as_json(), "target": path, "status": "done", "operation": "erase"})
        return
    would = "would take" if dry_run else "took"
    if not found.rows:
        output.text(f"{path}: no row of any version has {'one of the keys' if found.keys > 1 else 'the key'}")
    else:
        files = output.counted(found.files, "data file")
        current = "" if dry_run else f"; version {found.version} is current"
        output.text(f"{path}: {would} rows out of {files}{current}")
        output.text()
        rows = [(str(version), output.count(rows)) for version, rows in found.rows.items()]
        output.table(("version", "rows taken"), rows, right=("version", "rows taken"))
    if found.trees:
        output.text(f"{output.counted(found.trees, 'leftover folder')} removed")


def _published(manifest: Manifest) -> dict[str, object]:
    return {
        "version": manifest.version,
        "rows": manifest.rows,
        "bytes": manifest.document["bytes"],
        "files": len(manifest.files),
        "splits": dict(manifest.splits),
    }


def _looked(manifest: Manifest) -> list[tuple[str, ...]]:
    """Of each column its values in one line."""
    return [(look.name, *_cells(look)) for look in looks(manifest)]


def _cells(look: Look) -> tuple[str, ...]:
    return look.null, look.least, look.most, look.mean, look.deviation, look.distinct, _spread(look)


def _spread(look: Look) -> str:
    if len(look.histogram) > 2:
        drawn = bars(look.histogram)
    else:
        drawn = ", ".join(f"{value or repr(value)} {100 * share:.0f}%" for value, share in look.top[:3])
    return f"{drawn} {look.special}".strip()
