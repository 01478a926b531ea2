"""The redactor, and where text that nobody formatted (logs, warnings, unhandled errors) goes through it.

Everything that this process prints passes `redact`: secrets are found by value in every form they are written in, by
the name of their key, and by the shape of a URL. Nothing is configured at import.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
import traceback
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from etl.core import secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import TextIO

MARK = "***"
_DOT = "\N{MIDDLE DOT}"
SHORTEST = 6
"""Shorter values are found by key and shape only: a one-letter password must not blank every such letter
(apache/airflow#16483)."""
NOISY = ("distributed", "dask", "tornado", "asyncio", "bokeh")
"""Loggers that report the end of a cluster as if it were news."""

_KEY = r"(?:password|passwd|pwd|secret|token|api[_-]?key|authorization|dsn|credential)s?"
_SHAPE = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://[^\s:/@'\"]*):(\S*)@")
_ASSIGNED = re.compile(rf"(?i)(\b[\w.\-]*{_KEY}\s*=\s*)(?![\"']?\$\{{)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&)}}\]\"']+)")
_QUOTED_KEY = re.compile(rf"(?i)([\"'][\w.\-]*{_KEY}[\"']\s*:\s*)(?![\"']?\$\{{)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}}\]]+)")
_LINE = re.compile(rf"(?im)(\b[\w.\-]*{_KEY}\s*:\s*)(?!\$\{{)([^\s,;]+)(?=\s*$)")
_HEADER = re.compile(
    r"(?i)\b(authorization\s*[:=]\s*|bearer\s+|basic\s+)((?:(?:bearer|basic)\s+)?[A-Za-z0-9._~+/=\-]{6,})"
)


def redact(text: str, /) -> str:
    """The text with every secret replaced by `***`.

    By value (6 characters and more): plain, percent-encoded, base64 (also inside a longer encoded text), JSON-escaped,
    as `repr` writes it, and each line of a value of several lines. By key: `password=…`, `"token": …`. By shape:
    `scheme://user:…@`. References such as `${env:NAME}` stay.

    >>> redact("postgresql://etl:hunter2@db.example/shop")
    'postgresql://etl:***@db.example/shop'
    """
    values = _pattern(secrets.known())
    if values is not None:
        text = values.sub(MARK, text)
    text = _SHAPE.sub(_keep_first, text)
    text = _HEADER.sub(_keep_first_only, text)
    for pattern in (_ASSIGNED, _QUOTED_KEY, _LINE):
        text = pattern.sub(_keep_first_only, text)
    return text


def visible(text: str, /, *, keep: str = "") -> str:
    r"""The text with a dot for each character that would steer a terminal or a line, or that is none; not for `keep`.

    >>> visible("a\x1b[2J b")
    'a·[2J b'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c in keep else _DOT for c in text)


def redact_tree(value: object, /) -> object:
    """A JSON-able value with every text in it redacted; keys, numbers and shape stay."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: redact_tree(one) for key, one in value.items()}
        case list() | tuple():
            return [redact_tree(one) for one in value]
        case _:
            return value


def install(stream: TextIO, /, *, debug: bool) -> None:
    """Send logs, warnings and unhandled errors through the redactor to `stream`; without `debug` errors only."""
    channel = logging.StreamHandler(stream)
    channel.setFormatter(_Redacting("%(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [channel]
    root.setLevel(logging.INFO if debug else logging.ERROR)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING if debug else logging.CRITICAL)
    logging.captureWarnings(capture=True)
    say = _reporter(stream, debug=debug)
    sys.excepthook = say
    threading.excepthook = lambda args: say(args.exc_type, args.exc_value, args.exc_traceback)
    if not debug:  # what a library's exit hook could not do is no news to the user of a command that has ended
        sys.unraisablehook = lambda _: None


def traceback_text(error: BaseException, /) -> str:
    """The traceback of an error, redacted; never with the values of variables.

    What a user's function raised in a worker comes as text in `context`: a traceback does not travel.
    """
    inside = getattr(error, "context", {}).get("traceback", "")
    return redact("".join(traceback.format_exception(error)) + (f"\nIn the worker:\n{inside}" if inside else ""))


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def _reporter(
    stream: TextIO, *, debug: bool
) -> Callable[[type[BaseException], BaseException | None, TracebackType | None], None]:
    def say(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, (KeyboardInterrupt, SystemExit)):
            return
        lines = traceback.format_exception(kind, error, trace)
        stream.write(redact("".join(lines if debug else lines[-1:])))

    return say


def _keep_first(found: re.Match[str]) -> str:
    return f"{found[1]}:{MARK}@"


def _keep_first_only(found: re.Match[str]) -> str:
    return f"{found[1]}{MARK}"


@lru_cache(maxsize=8)
def _pattern(values: frozenset[str]) -> re.Pattern[str] | None:
    forms = {form for value in values for form in _forms(value)}
    if not forms:
        return None
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile("|".join(map(re.escape, longest_first)))


def _forms(value: str) -> Iterator[str]:
    for one in {value, value.strip(), *value.splitlines()}:
        if len(one) >= SHORTEST:
            yield from (form for form in _written(one) if len(form) >= SHORTEST)


def _written(value: str) -> Iterator[str]:
    yield value
    for encoded in (quote(value, errors="replace"), quote(value, safe="", errors="replace"), _plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda hex_pair: hex_pair[0].lower(), encoded)
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    yield repr(value)[1:-1]
    yield value.replace("\\", "\\\\")
    yield value.replace("'", "''")
    yield from _base64(value.encode(errors="replace"))


def _plus(value: str) -> str:
    return quote_plus(value, errors="replace")


def _base64(raw: bytes) -> Iterator[str]:
    """The value's base64, alone and at each of the three places it can have inside a longer text (`user:value`)."""
    texts = [base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")]
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        first = -(-before * 8 // 6)  # characters before it carry bits of what stands in front
        last = (before + len(raw)) * 8 // 6  # the next one may carry bits of what follows
        texts.append(encoded[first:last])
    for text in texts:
        yield text
        yield text.replace("+", "-").replace("/", "_")
