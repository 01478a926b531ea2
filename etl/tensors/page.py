"""A dataset as one self-contained HTML page: no script, nothing from elsewhere, light and dark.

Every text of the manifest is data of strangers: it is redacted and escaped where it enters the page, and a content
policy in the page forbids whatever would load or run.
"""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError
from etl.logs import redact, visible
from etl.tensors.encode import reading
from etl.tensors.showing import UNSAID, changes, lineage, looks, versions
from etl.tensors.storage import failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from etl.tensors.manifest import Manifest
    from etl.tensors.places import Target
    from etl.tensors.showing import Look, Prepared

MARK = "<!doctype html>\n<!-- a dataset of cuetl -->\n"
"""What a page begins with; a file that begins otherwise is not written over."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDE, _HIGH = 168, 36
_FILES = 500
_STYLE = """
.cuetl{--ink:#1c2430;--soft:#5b6675;--line:#dde2e8;--card:#f6f8fa;--bar:#2f6fb2;--other:#b7791f;--warn:#8a4b08;
color:var(--ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
@media (prefers-color-scheme:dark){.cuetl{--ink:#e4e8ee;--soft:#98a4b3;--line:#323b47;--card:#1d242d;--bar:#6ea8e0;
--other:#e0b060;--warn:#f0b56b}}
.cuetl h1{font-size:22px;margin:0 0 2px;overflow-wrap:anywhere}.cuetl h2{font-size:16px;margin:28px 0 8px}
.cuetl .soft{color:var(--soft)}.cuetl .cards{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0}
.cuetl .card{background:var(--card);border-radius:8px;padding:8px 14px}.cuetl .card b{display:block;font-size:18px}
.cuetl .wide{overflow-x:auto}.cuetl table{border-collapse:collapse;font-size:13px;background:none}
.cuetl th,.cuetl td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top;
background:none}
.cuetl th{color:var(--soft);font-weight:500;white-space:nowrap}.cuetl td.n,.cuetl th.n{text-align:right}
.cuetl td.name{font-weight:600;max-width:260px;overflow-wrap:anywhere}
.cuetl td.text{max-width:560px;overflow-wrap:anywhere;white-space:pre-wrap}
.cuetl svg{display:block}.cuetl svg rect{fill:var(--bar)}.cuetl svg line{stroke:var(--line)}
.cuetl .ends{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 8px;color:var(--soft);
font-size:11px;max-width:240px}.cuetl svg+.ends{max-width:168px}
.cuetl .top{display:grid;grid-template-columns:minmax(96px,160px) 84px 48px;gap:1px 8px;font-size:12px;
align-items:center}
.cuetl .top span{overflow-wrap:anywhere}.cuetl .track{background:var(--card);height:9px;border-radius:2px}
.cuetl .track i{display:block;background:var(--bar);height:9px;border-radius:2px}
.cuetl .parts{display:flex;height:12px;border-radius:6px;overflow:hidden;max-width:640px;gap:2px;margin:8px 0}
.cuetl .parts i{background:var(--bar)}.cuetl .parts i:nth-child(2){background:var(--other)}
.cuetl .parts i:nth-child(n+3){background:var(--soft)}
.cuetl .warn{color:var(--warn)}.cuetl summary{cursor:pointer}.cuetl code{font-size:12px;overflow-wrap:anywhere}
"""
_BODY = (
    "body{margin:0;padding:24px clamp(12px,4vw,48px);background:#fff}"
    "@media (prefers-color-scheme:dark){body{background:#12171d}}"
)


def page(path: Target, manifest: Manifest, chain: Sequence[Manifest], prepared: Prepared = UNSAID, /) -> str:
    """The whole page of one version.

    Args:
        path: The dataset's folder.
        manifest: The version.
        chain: It and its parents, the newest first.
        prepared: Its fit in words.
    """
    title = f"{path.name}, version {manifest.version}"
    head = (
        f'{MARK}<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{_text(title)}</title><style>{_BODY}</style></head><body>"
    )
    return f"{head}{fragment(path, manifest, chain, prepared)}</body></html>\n"


def fragment(path: Target, manifest: Manifest, chain: Sequence[Manifest], prepared: Prepared = UNSAID, /) -> str:
    """The same without head and body, as notebooks show it."""
    document = manifest.document
    made = f"{_text(document.get('operation'))} · {_text(document.get('created_at'))}"
    pieces = [
        f'<div class="cuetl"><style>{_STYLE}</style><h1>{_text(path.name)}</h1>',
        f'<div class="soft">{_text(path)} · version {manifest.version} · {made}</div>',
        _cards(manifest),
        _splits(manifest),
        _warnings(manifest),
        "<h2>Columns</h2>",
        _columns(manifest, looks(manifest)),
    ]
    if len(manifest.splits) > 1:
        pieces += [_by_split(manifest)]
    pieces += [_prepared(manifest, prepared)]
    if manifest.format == "tfrecord":
        pieces += [f'<h2>Reading</h2><pre style="overflow:auto">{_text(reading(manifest, path))}</pre>']
    pieces += [_tensors(manifest), _lineage(manifest), _versions(chain), _files(manifest), "</div>"]
    return "".join(pieces)


def split_fragment(path: Target, manifest: Manifest, split: str, /) -> str:
    """The columns and their values in one split, as notebooks show it."""
    name = path.name if split == "all" else f"{path.name}, {split}"
    rows = _count(manifest.splits[split])
    return (
        f'<div class="cuetl"><style>{_STYLE}</style><h1>{_text(name)}</h1>'
        f'<div class="soft">{_text(path)} · version {manifest.version} · {rows} rows</div>'
        f"{_columns(manifest, looks(manifest, split))}</div>"
    )


def small_page(
    title: str, soft: str, head: Sequence[str], rows: Iterable[Sequence[object]], said: Sequence[str] = (), /
) -> str:
    """A title, a line, a table and warnings, as notebooks show them; texts, not HTML."""
    warned = f"<ul>{''.join(f'<li class=warn>{_text(one)}</li>' for one in said)}</ul>" if said else ""
    cells = [[_text(cell) for cell in row] for row in rows]
    return (
        f'<div class="cuetl"><style>{_STYLE}</style><h1>{_text(title)}</h1><div class="soft">{_text(soft)}</div>'
        f"{_table(head, cells)}{warned}</div>"
    )


def write_page(target: Path, text: str, /) -> None:
    """Write a page in one step: another reader sees the old page or the new one.

    Raises:
        ConfigError: Something that is no page of cuetl is there already, or the folder is not.
        DatasetError: The file system refused.
    """
    if target.is_dir() or not target.parent.is_dir():
        why = "is a folder" if target.is_dir() else "cannot be written: its folder is not there"
        raise ConfigError(f"--html {target} {why}", hint="Give a file name in a folder that exists.")
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists():
            with target.open("rb") as file:
                if file.read(len(MARK)) != MARK.encode():
                    raise ConfigError(
                        f"--html {target} is there already and is not a page of cuetl", hint="Give another name."
                    )
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        draft.replace(target)
    except OSError as error:
        raise failed(f"cannot write {target}", error) from error
    finally:
        draft.unlink(missing_ok=True)


def _text(value: object) -> str:
    return escape(visible(redact("" if value is None else str(value)), keep="\n\t"))


def _count(number: object) -> str:
    return f"{int(str(number)):,}".replace(",", "\N{NARROW NO-BREAK SPACE}") if number is not None else ""


def _size(number: object) -> str:
    size = float(str(number))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """A table of cells that are HTML already; a cell may bring its own `<td …>`."""
    kinds = [' class="n"' if name in numbers else "" for name in head]
    top = "".join(f"<th{kind}>{_text(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    lines = []
    for row in rows:
        cells = (c if c.startswith("<td") else f"<td{k}>{c}</td>" for c, k in zip(row, kinds, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><tr>{top}</tr>{"".join(lines)}</table></div>' if lines else ""


def _cards(manifest: Manifest) -> str:
    document = manifest.document
    layout = document.get("layout")
    kind = layout.get("kind") if isinstance(layout, dict) else ""
    cards = (
        ("rows", _count(manifest.rows)),
        ("columns", _count(len(manifest.columns))),
        ("files", _count(len(manifest.files))),
        ("size", _size(document["bytes"])),
        ("format", _text(f"{manifest.format}, {kind}" if kind else manifest.format)),
    )
    return '<div class="cards">' + "".join(f'<div class="card">{n}<b>{v}</b></div>' for n, v in cards) + "</div>"


def _splits(manifest: Manifest) -> str:
    splits = manifest.splits
    if len(splits) < 2:
        return ""
    total = max(1, manifest.rows)
    strip = "".join(f'<i style="flex:{max(rows / total, 0.002):.4f}"></i>' for rows in splits.values())
    rows = [(_text(n), _count(r), f"{100 * r / total:.1f}%") for n, r in splits.items()]
    return f'<div class="parts">{strip}</div>' + _table(("split", "rows", "share"), rows, ("rows", "share"))


def _warnings(manifest: Manifest) -> str:
    found = manifest.document.get("warnings")
    said = [str(w.get("text")) for w in found if isinstance(w, dict)] if isinstance(found, list) else []
    return f"<h2>Warnings</h2><ul>{''.join(f'<li class=warn>{_text(w)}</li>' for w in said)}</ul>" if said else ""


def _columns(manifest: Manifest, found: Sequence[Look]) -> str:
    by_name = {look.name: look for look in found}
    rows = []
    for column in manifest.columns:
        look = by_name.get(str(column["name"]))
        dtype = column.get("dtype") if column.get("tensor") else column.get("arrow_type")
        place = column.get("tensor") or ("" if manifest.format == "parquet" else "_text")
        index = column.get("index")
        where = f"{place}[{index}]" if index is not None else str(place)
        kept = [_text(column.get("role")), f"{_text(dtype)}<div class=soft>{_text(column.get('source_type'))}</div>"]
        kept += [_text(where)]
        rows.append((f'<td class="name">{_text(column["name"])}</td>', *kept, *_seen(look)))
    head = ("column", "role", "dtype", "tensor", "NULL", "distinct", "mean ± deviation", "values")
    sampled = max((look.sampled for look in found if look.sampled is not None), default=None)
    note = ""
    if sampled is not None:
        note = (
            "<p class=soft>Counts, NULL, least and greatest values, means and deviations are of all rows. "
            f"“About” marks what was estimated from a sample of up to {_count(sampled)} rows, histograms of such "
            "columns too.</p>"
        )
    return _table(head, rows, ("NULL", "distinct")) + note


def _seen(look: Look | None) -> tuple[str, str, str, str]:
    if look is None:
        return "", "", "", ""
    odd = f"<div class=warn>{_text(look.special)}</div>" if look.special else ""
    middle = f"{_text(look.mean)} <span class=soft>± {_text(look.deviation)}</span>" if look.mean else ""
    return _text(look.null), _text(look.distinct), middle + odd, _drawn(look)


def _drawn(look: Look) -> str:
    ends = f'<div class="ends"><span>{_text(look.least)}</span><span>{_text(look.most)}</span></div>'
    if len(look.histogram) > 2:
        return _svg(look) + ends
    if look.top and (len(look.top) > 1 or not look.least):
        lines = "".join(
            f'<span>{_text(value) or "<i>empty</i>"}</span><span class="track"><i style="width:{100 * share:.1f}%"></i>'
            f"</span><span class=soft>{100 * share:.1f}%</span>"
            for value, share in look.top[:6]
        )
        return f'<div class="top">{lines}</div>'
    return ends if look.least or look.most else ""


def _svg(look: Look) -> str:
    most, step = max(look.histogram) or 1, _WIDE / len(look.histogram)
    drawn = []
    for i, rows in enumerate(look.histogram):
        high = max(1.0, rows / most * (_HIGH - 2)) if rows else 0.0
        drawn.append(
            f'<rect x="{i * step:.1f}" y="{_HIGH - high:.1f}" width="{step - 1:.1f}" height="{high:.1f}" '
            f'fill="#2f6fb2"><title>{_count(rows)}</title></rect>'
        )
    label = _text(f"{look.name}: rows between {look.least} and {look.most}")
    return (
        f'<svg role="img" aria-label="{label}" width="{_WIDE}" height="{_HIGH + 1}" viewBox="0 0 {_WIDE} {_HIGH + 1}">'
        f'{"".join(drawn)}<line x1="0" x2="{_WIDE}" y1="{_HIGH + 0.5}" y2="{_HIGH + 0.5}"/></svg>'
    )


def _by_split(manifest: Manifest) -> str:
    found = {split: {look.name: look for look in looks(manifest, split)} for split in manifest.splits}
    rows = [
        (f'<td class="name">{_text(name)}</td>', _text(split), _count(of[name].rows), *_seen(of[name]))
        for name in (str(column["name"]) for column in manifest.columns)
        for split, of in found.items()
        if name in of
    ]
    head = ("column", "split", "rows", "NULL", "distinct", "mean ± deviation", "values")
    table = _table(head, rows, ("rows", "NULL", "distinct"))
    return f"<h2>Splits compared</h2><details><summary>Every column in every split</summary>{table}</details>"


def _prepared(manifest: Manifest, prepared: Prepared) -> str:
    """Every column before and after the steps, side by side."""
    rows = [
        (
            f'<td class="name">{_text(one.name)}</td>',
            _side(one.before),
            "".join(f"<div>{_text(step)}</div>" for step in one.steps),
            _side(one.after),
            "".join(f"<div>{_text(met)}</div>" for met in one.met),
        )
        for one in changes(manifest, prepared)
    ]
    if not rows:
        return ""
    steps = "".join(f"<li>{_text(step)}</li>" for step in prepared.steps)
    listed = f"<details><summary>Steps in their order</summary><ol>{steps}</ol></details>" if steps else ""
    note = "<p class=soft>Before: all rows that went into the steps. After: all rows that were written.</p>"
    head = ("column", "before", "steps", "after", "met in the values")
    return f"<h2>Preparation</h2>{listed}{_table(head, rows)}{note}"


def _side(look: Look | None) -> str:
    if look is None:
        return "<span class=soft>not there</span>"
    null, distinct, middle, drawn = _seen(look)
    words = [f"{null} NULL"] * (null != "0") + [f"{distinct} distinct"] * bool(distinct)
    return f"{drawn}<div class=soft>{', '.join(words)}</div>{middle}"


def _tensors(manifest: Manifest) -> str:
    found = manifest.document.get("tensors")
    rows = [
        (
            f'<td class="name">{_text(one.get("name"))}</td>',
            _text(one.get("dtype")),
            _text(f"[{', '.join(map(str, ['rows', *one.get('row_shape', [])]))}]"),
            f'<td class="text">{_text(", ".join(map(str, one.get("columns", []))))}</td>',
        )
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    ]
    return "<h2>Tensors</h2>" + _table(("tensor", "dtype", "shape", "columns"), rows) if rows else ""


def _lineage(manifest: Manifest) -> str:
    rows = [
        (f"<td class=soft>{_text(what)}</td>", f'<td class="text">{_text(said)}</td>')
        for what, said in lineage(manifest)
    ]
    content = manifest.document.get("content_sha256")
    rows.append(("<td class=soft>content sha256</td>", f"<td><code>{_text(content)}</code></td>"))
    lines = "".join(f"<tr>{a}{b}</tr>" for a, b in rows)
    return f'<h2>Where it came from</h2><div class="wide"><table>{lines}</table></div>'


def _versions(chain: Sequence[Manifest]) -> str:
    rows = [
        (
            _text(one["version"]),
            _text(one["operation"]),
            _text(one["created_at"]),
            _count(one["rows"]),
            _size(one["bytes"]),
        )
        for one in versions(chain)
    ]
    return "<h2>Versions</h2>" + _table(("version", "operation", "created", "rows", "size"), rows, ("rows", "size"))


def _files(manifest: Manifest) -> str:
    rows = [
        (_text(f.path), _text(f.split), _count(f.rows), _size(f.bytes), f"<code>{_text(f.sha256)}</code>")
        for f in manifest.files[:_FILES]
    ]
    more = len(manifest.files) - len(rows)
    rest = f"<p class=soft>and {_count(more)} more, in _manifest.json</p>" if more > 0 else ""
    table = _table(("file", "split", "rows", "size", "sha256"), rows, ("rows", "size"))
    return f"<h2>Files</h2><details><summary>{_count(len(manifest.files))} files</summary>{table}{rest}</details>"
