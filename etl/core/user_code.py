"""What went wrong inside a user's function, in their words: their file, their line, no frame that is not theirs."""

from __future__ import annotations

import ast
import linecache
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from etl.core.errors import EtlError, UserCodeError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

COLUMNS_SHOWN = 12
_PICKLED = "<dynamic-code>"
"""What Dask's pickles call the file of a function within a function; its name and its lines stay."""


def user_error(error: BaseException, /, *, function: str, file: str, columns: Sequence[str] = ()) -> EtlError:
    """The error of a function, said of the user's own line.

    An error of our tree that the function raised stays what it is and gets the place before it.

    Args:
        error: As it was raised.
        function: The function's name.
        file: The file that defines it; "" when it has none.
        columns: What it was given, as "name type".

    Returns:
        To be raised `from error`; `context` has file, line and the whole traceback for `--debug`.
    """
    error = _inner(error)
    place, line = _own_line(error.__traceback__, file)
    text = linecache.getline(place, line).strip() if line else ""
    where = f"{_short(place)}, line {line}" if line else _short(place or file) or "the pipeline's function"
    where += f", in {function}"
    whole = "".join(traceback.format_exception(error))
    if isinstance(error, EtlError):
        return error.at(where, file=place, line=line, traceback=whole)
    words = " ".join(str(error).split())
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    shown = f"; the line is `{text}`" if text else ""
    return UserCodeError(
        f"{where}: {said}{shown}{_given(columns)}", hint=_hint(error, columns), file=place, line=line, traceback=whole
    )


def _inner(error: BaseException) -> BaseException:
    """What Dask wrapped: an error in its trial of a function's types, or beside a shuffle."""
    while error.__cause__ is not None and str(error).startswith(("Metadata inference failed", "P2P ")):
        error = error.__cause__
    return error


def _own_line(trace: TracebackType | None, file: str) -> tuple[str, int]:
    """The innermost place that the user wrote; the file alone where there is none."""
    found = (file, 0)
    for frame, line in traceback.walk_tb(trace):
        name = frame.f_code.co_filename
        if name == _PICKLED and _has(file, frame.f_code.co_name, line):
            found = (file, line)
        elif name == file or not is_foreign(name):
            found = (name, line)
    return found


@cache
def _has(file: str, function: str, line: int) -> bool:
    """Whether a file has a function of that name with that line in it."""
    try:
        tree = ast.parse(Path(file).read_bytes()) if file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.FunctionDef | ast.Lambda)
        and getattr(node, "name", "<lambda>") == function
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
    )


@cache
def is_foreign(name: str) -> bool:
    """Whether a file is ours, a package's or Python's own; what a notebook runs is the user's."""
    path = Path(name)
    if not path.is_absolute():  # compiled modules say "pandas/_libs/missing.pyx", generated code "<string>"
        return not name.startswith(("<ipython", "<stdin>"))
    return any(path.is_relative_to(root) for root in _roots())


@cache
def _roots() -> tuple[Path, ...]:
    ours = Path(__file__).resolve().parents[2]
    named = [sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib")]
    return (ours / "etl", ours / "connectors", *(Path(n) for n in named if n))


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _given(columns: Sequence[str]) -> str:
    if not columns:
        return ""
    more = f" and {len(columns) - COLUMNS_SHOWN} more" if len(columns) > COLUMNS_SHOWN else ""
    return f"; it was given the columns {', '.join(columns[:COLUMNS_SHOWN])}{more}"


def _hint(error: BaseException, columns: Sequence[str]) -> str:
    """The nearest column, where the name of one was not found."""
    wanted = error.args[0] if isinstance(error, KeyError) and error.args else None
    names = [c.split(" ")[0] for c in columns]
    if isinstance(wanted, str) and names and wanted not in names:
        near = nearest(wanted, names)
        return near if near.startswith("Did") else ""
    return ""
