"""`cuetl dataset`: what a published dataset holds, and whether its files are what its manifest says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from etl.cli import output, process
from etl.tensors.dataset import open_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.tensors.dataset import Dataset, Verify

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


def show(path: str, /, *, as_json: bool, debug: bool) -> None:
    """Print version, rows, bytes, splits and columns.

    Raises:
        DatasetError: There is no dataset, or a file of it is missing or has another size.
    """
    process.prepare(None, debug=debug)
    summary = open_dataset(path).summary()
    if as_json:
        output.emit_json(summary)
        return
    for key in HEAD:
        output.text(f"{key.replace('_', ' ')}: {_said(key, summary.get(key))}")
    tables = TABLES if summary.get("tensors") else TABLES | {"columns": STORED}
    for key, names in tables.items():
        rows = cast("list[dict[str, object]]", summary.get(key) or [])
        if rows:
            kept = [name for name in names if any(_said(name, row.get(name)) for row in rows)]
            output.text()
            output.table(
                [name.replace("_", " ") for name in kept],
                [[_said(name, row.get(name)) for name in kept] for row in rows],
                right=("nulls",),
            )
    for warning in cast("list[dict[str, object]]", summary.get("warnings") or []):
        output.text(f"warning: {warning.get('text')}")


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


def _said(key: str, value: object) -> str:
    if key == "bytes" and isinstance(value, int):
        return output.bytes_text(value)
    if key in ("rows", "nulls", "files", "partitions") and isinstance(value, int):
        return output.count(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said('rows', one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
