"""A user's function, called with a frame: what it must give back, and what it must leave alone."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

from etl.core.errors import UserCodeError
from etl.core.user_code import user_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etl.planning.function import FunctionRef


def called(ref: FunctionRef, frame: Any, /, *, watch: bool = True) -> tuple[Any, tuple[str, ...]]:
    """The frame that the function gives for this one; what it prints goes to stderr.

    Args:
        ref: The function, of one parameter.
        frame: Of pandas or cuDF.
        watch: Look whether the frame is as it was when the function is done; costs one comparison of all values.

    Returns:
        The result, and what the user should know, in sentences.

    Raises:
        UserCodeError: It failed, or gave something else than a frame.
        EtlError: As the function raised it.
    """
    function = ref.load()
    columns = columns_of(frame)
    before = frame.copy(deep=False) if watch else None
    try:
        with printing_to_stderr():
            result = function(frame)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C reaches the main thread alone; in any other it would end a worker without a word
        raise user_error(error, function=ref.name, file=ref.file, columns=columns) from error
    if not isinstance(result, type(frame)):
        raise _no_frame(ref, result, type(frame))
    said = () if before is None else _changed(ref, frame, before)
    return result, said


def columns_of(frame: Any, /) -> tuple[str, ...]:
    """The columns of a frame as "name type"."""
    return tuple(f"{name} {kind}" for name, kind in zip(frame.columns, frame.dtypes, strict=True))


def defined_at(ref: FunctionRef, /) -> str:
    """Where a function stands, for messages."""
    code = getattr(ref.load(), "__code__", None)
    line = f", line {code.co_firstlineno}" if code is not None and ref.file else ""
    return f"{ref.file}{line}, {ref.name}" if ref.file else f"function {ref.name}"


def _no_frame(ref: FunctionRef, result: object, wanted: type) -> UserCodeError:
    kind = type(result)
    name = _named(kind)
    if result is None:
        name, hint = "None", "Did you forget `return`?"
    elif kind.__qualname__ == "Series":
        hint = 'Return a frame: `frame[["column"]]` for one column, `frame[mask]` for some rows.'
    elif name.startswith("pyarrow."):
        hint = "Return the frame itself: it becomes Arrow afterwards, in the types that the plan says."
    elif name.startswith(("dask.", "dask_expr.", "dask_cudf.")):
        hint = "A rowwise function gets plain frames and gives one; leave rowwise=True out for Dask collections."
    elif hasattr(result, "__next__"):
        hint = "Write `return` in place of `yield`: one frame in, one frame out."
    else:
        hint = "Return one frame."
    return UserCodeError(f"{defined_at(ref)}: it returned {name}, not a {_named(wanted)}", hint=hint)


def _changed(ref: FunctionRef, frame: Any, before: Any) -> tuple[str, ...]:
    """What the function did to the frame it was given, if anything."""
    have, had = list(frame.columns), list(before.columns)
    new = [name for name in have if name not in had]
    gone = [name for name in had if name not in have]
    if new:
        what, instead = f"column {new[0]} was added", f"frame = frame.assign({new[0]}=…)"
    elif gone:
        what, instead = f"column {gone[0]} was taken away", f'frame = frame.drop(columns=["{gone[0]}"])'
    elif have != had or len(frame) != len(before):
        what, instead = "its rows or the order of its columns changed", "frame = frame[…] without inplace=True"
    else:
        other = [name for name in have if frame[name].dtype != before[name].dtype]
        other = other or [name for name in have if not frame[name].equals(before[name])]
        if not other:
            return ()
        what, instead = f"column {other[0]} was written to", f"frame = frame.assign({other[0]}=…)"
    return (f"{defined_at(ref)}, changes the frame it was given ({what}): write `{instead}`",)


def _named(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


_printing = threading.Lock()
_printers = 0
_stdout: TextIO | None = None


@contextlib.contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send what is printed to stderr while any thread of this process is inside: stdout is for results.

    `contextlib.redirect_stdout` alone would not do: of two threads the first to leave could put back what the second
    still needs away.
    """
    global _printers, _stdout  # noqa: PLW0603 - sys.stdout is one for the whole process, too
    with _printing:
        if _printers == 0:
            _stdout, sys.stdout = sys.stdout, sys.stderr
        _printers += 1
    try:
        yield
    finally:
        with _printing:
            _printers -= 1
            if _printers == 0 and _stdout is not None:
                sys.stdout, _stdout = _stdout, None
