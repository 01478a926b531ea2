"""What people look for in a dataset, in words: columns and their values, splits, where the rows came from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from etl.tensors.drift import NAMING, deviation
from etl.tensors.manifest import integer
from etl.tensors.summary import combined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from etl.tensors.manifest import Manifest

_BLOCKS = "▁▂▃▄▅▆▇█"
_LONGEST = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Look:
    """One column's values (of one split, or of all rows) in words; "" where there is nothing to say.

    Attributes:
        name: Of the column.
        rows: How many, absent ones among them.
        null: The share of absent values.
        least, most, mean, deviation: Of the values.
        distinct: How many, with "about" where it is an estimate.
        histogram: Rows in equal steps from least to most.
        top: The most frequent values and the shares of the rows that have them.
        special: NaN and infinities that were counted.
        sampled: Rows that the estimates rest on; None: all.
    """

    name: str
    rows: int
    null: str
    least: str
    most: str
    mean: str
    deviation: str
    distinct: str
    histogram: tuple[int, ...]
    top: tuple[tuple[str, float], ...]
    special: str
    sampled: int | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A saved fit in words.

    Attributes:
        steps: Each step and what was fitted, in their order.
        columns: Column → of each step that names it: the step, and what was fitted.
    """

    steps: Sequence[str] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)


UNSAID: Final = Prepared()
"""Of a version without a fit, and where its state is not read."""


@dataclass(frozen=True, slots=True)
class Change:
    """One column before and after the steps of `prepare`.

    Attributes:
        name: Of the column.
        before: As it went into the first step; None: a step made it.
        after: As it was written; None: it was not.
        steps: What was done to it, and the figures.
        met: What steps met in its values, of all rows and of each split.
    """

    name: str
    before: Look | None
    after: Look | None
    steps: tuple[str, ...]
    met: tuple[str, ...]


_MET = {"null": "NULL", "unseen": "out of vocabulary", "n_rounded": "rounded", "n_saturated": "saturated"}


def changes(manifest: Manifest, prepared: Prepared, /) -> list[Change]:
    """Every column that steps wrote or took away; none where the rows were not prepared."""
    given = {str(one["name"]): one for one in _objects(manifest.document.get("given"))}
    written = {str(one["name"]): one for one in manifest.columns if one.get("role") not in NAMING}
    before = {name: _look(one, one["stats"]["all"]) for name, one in given.items() if isinstance(one["stats"], dict)}
    after = {look.name: look for look in looks(manifest)}
    made = [name for name, one in written.items() if one.get("transforms") and name not in given]
    kept = {str(one["name"]) for one in manifest.columns if not one.get("transforms")}
    return [
        Change(
            name=name,
            before=before.get(name),
            after=after.get(name) if name in written else None,
            steps=tuple(prepared.columns.get(name, ())),
            met=tuple(_met(written.get(name, {}), manifest.splits)),
        )
        for name in (*(name for name in given if name not in kept), *made)
    ]


def _met(column: Mapping[str, object], splits: Mapping[str, int]) -> Iterator[str]:
    found = column.get("prepared")
    for split, counts in (found if isinstance(found, dict) else {}).items():
        rows = sum(splits.values()) if split == "all" else splits.get(split, 0)
        words = [
            f"{counted(integer(n), 'row')} ({share_text(integer(n), rows)}) {_MET.get(what, what.replace('_', ' '))}"
            for what, n in counts.items()
            if n
        ]
        if words:
            yield f"{'' if split == 'all' else f'{split}: '}{', '.join(words)}"


def looks(manifest: Manifest, split: str | None = None, /) -> list[Look]:
    """Every column's values in a split; None: in all rows. Columns without statistics are left out."""
    found = []
    for column in manifest.columns:
        stats = column.get("stats")
        if not isinstance(stats, dict):
            continue
        chosen = [one for name, one in stats.items() if (split is None or name == split) and isinstance(one, dict)]
        if split is None and set(stats) != set(manifest.splits):
            continue
        if chosen:
            kind = str(column.get("kind"))
            found.append(_look(column, reduce(lambda a, b: combined(kind, a, b), chosen)))
    return found


def _look(column: Mapping[str, object], stats: Mapping[str, Any]) -> Look:
    count, null = integer(stats["count"]), integer(stats["null"])
    rows = count + null
    odd = [f"{integer(stats[key])} {word}" for key, word in (("nan", "NaN"), ("inf", "infinite")) if stats[key]]
    sampled = stats.get("sampled")
    # All values are listed where there are few: then their number is known, whatever else was estimated.
    about = "about " if sampled is not None and len(stats["top"]) != stats["distinct"] else ""
    mean = "" if stats["mean"] is None else _number(column, stats["mean"])
    spread = "" if stats["mean"] is None else _length(column, deviation(stats))
    if column.get("kind") == "ragged" or str(column.get("arrow_type", "")).startswith(("list<", "large_list<")):
        mean = f"{mean} items" if mean else ""
    return Look(
        name=str(column["name"]),
        rows=rows,
        null=share_text(null, rows),
        least=value_text(column, stats["min"]),
        most=value_text(column, stats["max"]),
        mean=mean,
        deviation=spread,
        distinct="" if stats["distinct"] is None else f"{about}{integer(stats['distinct']):,}".replace(",", " "),
        histogram=tuple(integer(one) for one in stats.get("histogram", ())),
        top=tuple((value_text(column, value), integer(n) / max(1, rows)) for value, n in stats["top"]),
        special=", ".join(odd),
        sampled=None if sampled is None else integer(sampled),
    )


def counted(number: int, thing: str, /) -> str:
    """A number and what is counted.

    >>> counted(1, "file"), counted(2000, "row")
    ('1 file', '2 000 rows')
    """
    return f"{number:,}".replace(",", " ") + f" {thing}{'s' * (number != 1)}"


def one_line(manifest: Manifest, /) -> str:
    """Rows, splits, columns and format of a version."""
    splits = ", ".join(f"{name} {rows:,}".replace(",", " ") for name, rows in manifest.splits.items())
    layout = manifest.document.get("layout")
    kind = f" {layout.get('kind')}" if isinstance(layout, dict) and manifest.format != "parquet" else ""
    inside = f" ({splits})" if len(manifest.splits) > 1 else ""
    return (
        f"{counted(manifest.rows, 'row')}{inside}, {counted(len(manifest.columns), 'column')}, {manifest.format}{kind}"
    )


def share_text(part: int, whole: int, /) -> str:
    """A share that says 0 only of nothing and 100 % only of all.

    >>> share_text(0, 9), share_text(1, 100_000), share_text(1, 3), share_text(99_999, 100_000)
    ('0', '<0.1%', '33.3%', '>99.9%')
    """
    if not part:
        return "0"
    if part == whole:
        return "100%"
    share = 100 * part / whole
    return "<0.1%" if share < 0.1 else ">99.9%" if share > 99.9 else f"{share:.1f}%"


def bars(counts: Sequence[int], /) -> str:
    """A histogram in one line of text: the height of a block is the count; a space is none.

    >>> bars([1, 0, 8, 4])
    '▁ █▄'
    """
    most = max(counts, default=0)
    return "".join(_BLOCKS[max(0, math.ceil(8 * one / most) - 1)] if one else " " for one in counts)


def value_text(column: Mapping[str, object], value: object, /) -> str:
    """A value of the statistics for people: instants and dates as such, floats with six digits, texts cut."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    kind = column.get("kind")
    if kind in {"text", "categorical"}:
        text = str(value)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    if isinstance(value, float) or value in {"nan", "inf", "-inf"}:
        return f"{float(str(value)):.6g}"
    if kind in {"timestamp", "date", "duration"}:
        return _time(column, integer(value))
    return str(value)


def _time(column: Mapping[str, object], value: int) -> str:
    kind = column.get("kind")
    if kind == "duration":
        return str(timedelta(microseconds=value)) if abs(value) < 1 << 56 else f"{value} us"
    try:
        if kind == "date":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        at = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return f"{value} {'d' if kind == 'date' else 'us'} since 1970"
    time = column.get("time")
    zoned = isinstance(time, dict) and time.get("zone") is not None
    text = at.replace(tzinfo=None).isoformat(timespec="microseconds" if at.microsecond else "seconds")
    return f"{text}Z" if zoned else text


def _number(column: Mapping[str, object], mean: Any) -> str:
    number = float(mean)
    kind = column.get("kind")
    if kind in {"timestamp", "date", "duration"} and math.isfinite(number):
        # Of a mean the fractions of a second say nothing.
        return _time(column, round(number) if kind == "date" else round(number / 1e6) * 1_000_000)
    return f"{number:.6g}"


def _length(column: Mapping[str, object], number: float) -> str:
    """A standard deviation: of times a length of time."""
    if math.isfinite(number) and column.get("kind") in {"timestamp", "duration"} and number < 1 << 56:
        return str(timedelta(microseconds=round(number if number < 1e7 else round(number / 1e6) * 1e6)))
    return f"{number:.6g} days" if column.get("kind") == "date" else f"{number:.6g}"


def lineage(manifest: Manifest, /) -> list[tuple[str, str]]:
    """Where the rows came from, as (what, words), in the order in which it is asked."""
    document = manifest.document
    found: list[tuple[str, str]] = []
    snapshots = document.get("snapshots")
    for source in _objects(document.get("source")):
        server = " ".join(str(source.get(k)) for k in ("connector", "server_version") if source.get(k))
        found.append(("source", f"{source.get('name')} ({server}) {source.get('url') or ''}".strip()))
        tables = source.get("tables")
        if isinstance(tables, list) and tables:
            found.append(("tables", ", ".join(map(str, tables))))
        found.append(("query", str(source.get("query") or "")))
        found.append(("query sha256", str(source.get("query_sha256") or "")))
        at = snapshots.get(str(source.get("name"))) if isinstance(snapshots, dict) else None
        if isinstance(at, dict):
            where = f", at {at['position']}" if at.get("position") else ""
            found.append(("snapshot", f"{at.get('kind')}, taken {at.get('taken_at')}{where}"))
        dropped = source.get("rows_dropped")
        lost = ", ".join(f"{n} dropped ({why})" for why, n in dropped.items()) if isinstance(dropped, dict) else ""
        read = f"{source.get('rows_read')} read, {source.get('rows_written')} written"
        found.append(("rows", f"{read}{', ' + lost if lost else ''}"))
    found += _made(document)
    return [(what, words) for what, words in found if words]


def _made(document: Mapping[str, object]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    split = document.get("split")
    if isinstance(split, dict):
        keys = ", ".join(map(str, split.get("key") or ()))
        salt = f", salt {split['salt']!r}" if split.get("salt") else ""
        found.append(("split", f"{split.get('method')} of {keys}{salt}" if keys else str(split.get("method"))))
    fit = document.get("fit")
    if isinstance(fit, dict):
        on = fit.get("fitted_on")
        rows = f", fitted on {_fitted_on(on)}" if isinstance(on, dict) else ""
        found.append(("fit", f"{fit.get('fit_id')}{rows}"))
    order = document.get("order")
    if isinstance(order, dict):
        seed = f", seed {order['seed']}" if order.get("seed") is not None else ""
        found.append(("row order", f"{order.get('kind')}{seed}"))
    producer = document.get("producer")
    if isinstance(producer, dict):
        libs = producer.get("libs")
        versions = ", ".join(f"{n} {v}" for n, v in libs.items()) if isinstance(libs, dict) else ""
        found.append(("run", f"{producer.get('run_id')}, engine {producer.get('engine')}"))
        found.append(("made by", f"cuetl {producer.get('tool_version')} ({versions})"))
    return found


def _fitted_on(on: Mapping[str, object]) -> str:
    rows = counted(integer(on.get("rows", 0)), "row")
    return f"all {rows}" if on.get("split") == "all" else f"the {rows} of {on.get('split')}"


def versions(chain: Sequence[Manifest], /) -> list[dict[str, object]]:
    """The versions from the newest back: number, how and when made, rows."""
    keys = ("version", "operation", "created_at", "rows", "bytes")
    return [{**{k: one.document.get(k) for k in keys}, "splits": dict(one.splits)} for one in chain]


def _objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
