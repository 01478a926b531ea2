"""What the user sees: results on stdout, progress and reports on stderr, and one JSON object where asked for.

Rich is imported where something is drawn on a terminal, and only there.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etl.logs import redact, redact_tree, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.progress import Progress as Bars

    from etl.run.progress import Progress
    from etl.run.result import RunResult

STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def text(line: str = "", /) -> None:
    """One redacted line on stdout."""
    sys.stdout.write(f"{redact(line)}\n")


def note(line: str, /) -> None:
    """One redacted line on stderr."""
    sys.stderr.write(f"{redact(line)}\n")


def emit_json(value: Mapping[str, object], /) -> None:
    """Exactly one JSON object on stdout, every text in it redacted."""
    sys.stdout.write(json.dumps(redact_tree(value), ensure_ascii=False, allow_nan=False, default=str) + "\n")


def emit_results(results: Sequence[RunResult], /) -> None:
    """The one JSON object of a run: the dataset's own fields, or `datasets` with one object for each of several."""
    objects = [one.to_json() for one in results]
    if len(objects) == 1:
        emit_json(objects[0])
        return
    first = results[0]
    emit_json(
        {
            "run_id": first.run_id,
            "status": first.status,
            "rows": sum(one.rows for one in results),
            "bytes": sum(one.bytes for one in results),
            "seconds": first.seconds,
            "datasets": objects,
        }
    )


def report(results: Sequence[RunResult], /, *, warnings: bool = True) -> None:
    """What a run made, one line a dataset; its warnings after, on stderr."""
    table(
        ("dataset", "format", "version", "rows", "columns", "size", "parts", "seconds"),
        [
            (
                one.target,
                one.format,
                str(one.version),
                count(one.rows),
                str(len(one.columns)),
                bytes_text(one.bytes),
                str(one.partitions),
                f"{one.seconds:.1f}",
            )
            for one in results
        ],
    )
    for one in results:
        if one.checks:
            passed = sum(bool(check["passed"]) for check in one.checks)
            text(f"{passed} of {counted(len(one.checks), 'check')} passed")
    said: list[str] = []
    for one in results if warnings else ():
        for warning in one.warnings:
            line = f"warning: {warning.get('text', warning)}"
            if line not in said:
                said.append(line)
                note(line)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    /,
    *,
    right: Sequence[str] = ("rows", "version", "columns", "size", "parts", "seconds"),
    widest: int | None = None,
) -> None:
    """A table on stdout: drawn by rich on a terminal, columns aligned by spaces elsewhere.

    Args:
        head: Column names.
        rows: Cells, each row as long as `head`; redacted here.
        right: Columns aligned to the right.
        widest: Cells are cut at so many characters; None: never.
    """
    numbers = set(right)
    cells = [[_cell(redact(cell), widest) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(head, cells, numbers)
        return
    widths = [max(len(row[i]) for row in (head, *cells)) for i in range(len(head))]
    for row in (head, *cells):
        aligned = [
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ]
        sys.stdout.write("  ".join(aligned).rstrip() + "\n")


def section(head: Sequence[str], rows: Sequence[Sequence[str]], /, *, right: Sequence[str] = ()) -> None:
    """An empty line and a table, where there are rows; columns of counts are aligned to the right."""
    if rows:
        text()
        counts = ("count", "size", "change", *(h for h in head if h.startswith("rows in ")))
        table(head, rows, right=(*right, *counts))


def said(key: str, value: object, /) -> str:
    """A value of a summary under that key, in words."""
    if key == "bytes" and isinstance(value, int):
        return bytes_text(value)
    if key in ("rows", "nulls", "files", "partitions") and isinstance(value, int):
        return count(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {said('rows', one)}" for name, one in value.items() if one is not None)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _draw(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        drawn.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, highlight=False).print(drawn)


def _cell(value: str, widest: int | None) -> str:
    one_line = visible(value)
    return one_line if widest is None or len(one_line) <= widest else f"{one_line[: widest - 1]}…"


def count(number: float | None, /) -> str:
    """A number with thin groups, "?" where it is not known."""
    return "?" if number is None else f"{round(number):,}".replace(",", " ")


def counted(number: int, thing: str, /) -> str:
    """A number and what is counted.

    >>> counted(1, "table"), counted(2000, "row")
    ('1 table', '2 000 rows')
    """
    return f"{count(number)} {thing}{'s' * (number != 1)}"


def bytes_text(number: float | None, /) -> str:
    """Bytes in the largest unit that leaves a number of at least 1.

    >>> bytes_text(1536)
    '1.5 KiB'
    """
    if number is None:
        return "?"
    for size, unit in STEPS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{round(number)} B"


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Bars on stderr while a run works, when stderr is a terminal; else None, and nothing is printed."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    with RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
        TextColumn("so far,"),
        TimeRemainingColumn(),
        TextColumn("to go"),
        console=Console(file=sys.stderr),
        transient=True,
    ) as bars:
        yield _Drawn(bars)


class _Drawn:
    """Draws what a run says as one bar of parts, with rows, rows a second and bytes beside it."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("starting", total=None, told="")
        self._rows = self._bytes = 0

    def planned(self, parts: int, rows: float, count: int) -> None:
        self._rows = self._bytes = 0
        self._bars.reset(self._task, total=parts, told=_about(rows, count))

    def advanced(self, *, parts: int = 0, rows: int = 0, count: int = 0) -> None:
        self._rows += rows
        self._bytes += count
        self._bars.update(self._task, advance=parts, told=self._told())

    def stage(self, text: str) -> None:
        self._bars.update(self._task, description=redact(text))

    def _told(self) -> str:
        elapsed = self._bars.tasks[0].elapsed or 0.0
        speed = f", {count(self._rows / elapsed)} rows/s" if elapsed > 0 else ""
        return f"{count(self._rows)} rows{speed}, {bytes_text(self._bytes)}"


def _about(rows: float, size: int) -> str:
    return f"about {count(rows)} rows, {bytes_text(size)}"


def _in_order(target: Mapping[str, Any]) -> str:
    if target["order"] == "source":
        return ""
    needs = f"about {bytes_text(target['disk'])} more of disk beside it until it is published"
    return f", rows in order ({target['order']}): {needs}"


def plan(value: Mapping[str, Any], /) -> None:
    """One plan for a reader: source, snapshot, engine and why, targets, schema, lossy steps, each part with its SQL."""
    engine = value["engine"]
    text(f"{value['source']}, connection {value['connection']}")
    text(f"snapshot  {value['snapshot']}{_after(value.get('server'))}")
    text(f"size      about {count(value['rows'])} rows, {bytes_text(value['bytes'])}")
    text(f"engine    {engine['name']} ({engine['kind']}, {counted(engine['slots'], 'part')} at once): {engine['why']}")
    if "function" in value:
        function = value["function"]
        place = f" of {function['file']}" if function["file"] else ""
        text(f"function  {function['name']}{place}: {_given(value)}")
    for one in value.get("prepare", ()):
        fitted = f", fitted in scan {one['scan']} of the train rows" if one["scan"] else ""
        text(f"prepare   {one['step']}{fitted}")
    for one in value.get("checks", ()):
        text(f"check     {check(one)}")
    for one in value["targets"]:
        text(f"writes    {one['target']} as {one['format']}, mode {one['mode']}{_in_order(one)}")
        if one["commit"]["text"]:
            text(f"commit    {one['commit']['text']}")
    for lossy in value["lossy"] or ("nothing",):
        text(f"lossy     {lossy}")
    for line in value["notes"]:
        text(f"note      {line}")
    for line in value.get("warnings", ()):
        text(f"warning   {line}")
    text()
    table(
        ("column", "store type", "Arrow type", "NULL", "note"),
        [
            (f["name"], f["source_type"], f["arrow_type"], "may be" if f["nullable"] else "never", _noted(f))
            for f in value["schema"]
        ],
    )
    text()
    parts = value["partitions"]
    code = f" ({value['reason']})" if value["reason"] else ""
    why, remedy = str(value["why"]).rstrip("."), f". {value['remedy']}" if value["remedy"] else ""
    text(f"{counted(len(parts), 'part')}: {why}{code}{remedy}")
    for one in parts:
        text()
        text(f"{one['index'] + 1}. {one['slice']}: about {count(one['rows'])} rows, {bytes_text(one['bytes'])}")
        text("   " + str(one["sql"]).replace("\n", "\n   "))


def check(one: Mapping[str, Any], /) -> str:
    """A check as plans show it."""
    limit = "" if one["limit"] in (0, True) else f" {json.dumps(one['limit'], ensure_ascii=False)}"
    return f"{one['name']}{limit}, {'ends the run' if one['severity'] == 'error' else 'warns'}"


def _given(value: Mapping[str, Any]) -> str:
    """What a function makes of the columns that are read, in words."""
    before, after = ([column["name"] for column in value[which]] for which in ("given", "schema"))
    new, gone = ([n for n in one if n not in other] for one, other in ((after, before), (before, after)))
    said = [f"{word} {', '.join(names)}" for word, names in (("adds", new), ("leaves out", gone)) if names]
    return " and ".join(said) or "the same columns"


def _after(said: object) -> str:
    return f", {said}" if said else ""


def _noted(field: Mapping[str, Any]) -> str:
    read_as = f"read as {field['read_as']}" if field["read_as"] else ""
    return "; ".join(one for one in (read_as, field["note"]) if one)
