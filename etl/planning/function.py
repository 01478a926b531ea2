"""A user's function by reference: the file it is in and its name, never its pickled code.

A file is imported under a private module name, once per process and state of the file, so that `__main__` guards hold
and workers see what the run process saw. A function that no import can find again (of a notebook, or made inside
another function) is kept in a table of this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
import threading
import traceback
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from etl.core.errors import ConfigError, EtlError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from etl.planning.definition import Pipeline

PACKAGE = "_cuetl_pipeline_"
"""Files are imported as modules of packages whose names begin so."""

_KEYWORD = re.compile(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")
_RELOAD = "Start the command again, so that every process reads the same file."
_importing = threading.RLock()
_LOADING: ContextVar[str] = ContextVar("loading", default="")
_modules: dict[tuple[str, str], ModuleType] = {}
_defined: dict[FunctionRef, Callable[..., Any]] = {}
_siblings: dict[str, Path] = {}
"""Modules that files found beside them, by top-level name, and the folder they are of."""

_numbers = itertools.count(1)


class Defined(Protocol):
    """What stands in a file where a pipeline was defined: its value, and the plain function (None: passes through)."""

    @property
    def pipeline(self) -> Pipeline: ...  # noqa: D102 - said above

    @property
    def function(self) -> Callable[..., Any] | None: ...  # noqa: D102 - said above


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Where a function is, so that any process of this host can find it.

    Attributes:
        file: Absolute path of the file that defines it; "" when it has none (a notebook): threads of this process only.
        name: Its qualified name there.
        sha256: Of the file's bytes, by which a resumed run knows that it is the same; "" without a file.
        local: Without a file: its place in the table of the process that made it; "" with one.
    """

    file: str
    name: str
    sha256: str
    local: str = ""

    def load(self) -> Callable[..., Any]:
        """The plain function; the same object at every call in a process.

        Raises:
            ConfigError: The file is gone, broken or was changed since, has no such function, or the function has no
                file and this is another process.
        """
        kept = _defined.get(self)
        if kept is not None:
            return kept
        if not self.file:
            raise ConfigError(
                f"function {self.name} is in no file, so only the process that defined it can call it",
                hint="Put it at the top level of a file, or run with one worker.",
            )
        function = found(imported(self.file, self.sha256), self)
        with _importing:
            return _defined.setdefault(self, function)


def is_defined(thing: object, /) -> TypeGuard[Defined]:
    """Whether a pipeline was defined there: by the thing's class, so that no attribute of a user's value is asked."""
    kind = type(thing)
    return all(word in vars(kind) for word in ("pipeline", "function", "plan", "run"))


def reference(function: Callable[..., Any], /) -> FunctionRef:
    """The reference to a function that is just being defined; `load` gives this very object in this process."""
    code = getattr(inspect.unwrap(function), "__code__", None)  # below other decorators, which may be of other files
    name = getattr(function, "__qualname__", type(function).__qualname__)
    file = "" if code is None or "<" in name else _file_of(code.co_filename)
    digest = sha256_of(file) if file else ""
    ref = FunctionRef(file, name, digest) if digest else FunctionRef("", name, "", f"{os.getpid()}.{next(_numbers)}")
    with _importing:
        _defined[ref] = function
    return ref


def where_called() -> tuple[str, int]:
    """File and line of the definition that calls the function that asks; ("", 0) where that is no file.

    A function of the user's that defines pipelines is not the place, but the line of the loaded file that called it.
    """
    caller = sys._getframe(2)  # noqa: SLF001 - the way of the standard library's own warnings and loggers
    frame: FrameType | None = caller
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or not str(frame.f_globals.get("__name__", "")).startswith(PACKAGE):
        frame = caller
    file = _file_of(frame.f_code.co_filename)
    return (file, frame.f_lineno) if file else ("", 0)


def sha256_of(file: str, /) -> str:
    """The SHA-256 of a file's bytes as hex digits; "" when it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def found(module: ModuleType, ref: FunctionRef, /) -> Callable[..., Any]:
    """The function of that name in a file's module; of a pipeline its plain function.

    Raises:
        ConfigError: There is none.
    """
    at: Any = module
    for word in ref.name.split("."):
        at = getattr(at, word, None)
    if is_defined(at):
        at = at.function
    if not callable(at):
        raise ConfigError(
            f"{ref.file} has no function {ref.name}", hint="A pipeline's function stays under its own name in its file."
        )
    function: Callable[..., Any] = at
    return function


def imported(file: str, digest: str = "", /) -> ModuleType:
    """The module of a file, executed once per process and state of the file; it prints to stderr.

    Its folder is where it finds its siblings while it is executed: `import features` and `from . import features`.

    Args:
        file: Absolute path.
        digest: The SHA-256 that the file must have; "": as it is now.

    Raises:
        ConfigError: It cannot be read, was changed since, or fails; the user's line and the exception's words are
            given.
    """
    with _importing:
        if digest and (file, digest) in _modules:
            return _modules[file, digest]
        try:
            source = Path(file).read_bytes()
        except OSError as error:
            hint = "Check the path; every worker must see the same files."
            raise ConfigError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
        now = hashlib.sha256(source).hexdigest()
        if digest and digest != now:
            raise ConfigError(f"{file} was changed after this run began", hint=_RELOAD)
        if (file, now) not in _modules:
            _modules[file, now] = _executed(Path(file), source, now)
        return _modules[file, now]


def _executed(path: Path, source: bytes, digest: str) -> ModuleType:
    """Import a file as a module of a package of its own, whose folder is the file's.

    What is executed are the bytes that the digest is of, and never a cached compilation: Python takes one for good
    when time of change and size agree, as they do after a quick edit.
    """
    package = PACKAGE + hashlib.sha256(f"{path}\0{digest}".encode()).hexdigest()[:16]
    name = f"{package}.{path.stem}"
    parent = ModuleType(package)
    parent.__path__ = [str(path.parent)]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigError(f"{path} is not a Python file", hint="Pipelines are files that end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[package], sys.modules[name] = parent, module
    token = _LOADING.set(str(path))
    try:
        with _beside(path.parent), contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user's own file
    except KeyboardInterrupt:
        _forget(package)
        raise
    except BaseException as error:
        # A file that ends the process (sys.exit) is broken as one that raises.
        _forget(package)
        raise _broken(path, error) from error
    finally:
        _LOADING.reset(token)
    return module


def loading() -> str:
    """The user's file that is being imported here, "" for none: meanwhile nothing may run."""
    return _LOADING.get()


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """The folder is on the path, first, while a file of it is executed.

    A sibling of another folder's file is out of the way: two folders may each have a `features.py`.
    """
    text = str(folder)
    for name in [n for n, of in _siblings.items() if of != folder and _has(folder, n)]:
        _forget(name)
        del _siblings[name]
    before = set(sys.modules)
    sys.path.insert(0, text)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file itself may have taken it away
            sys.path.remove(text)
        fresh = [name for name in set(sys.modules) - before if "." not in name]
        _siblings.update({name: folder for name in fresh if _is_of(folder, sys.modules[name])})


def _is_of(folder: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder)


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def _forget(package: str) -> None:
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]


def _broken(path: Path, error: BaseException) -> ConfigError:
    """What a file's failure is, as one paragraph with the user's own line."""
    file, line, text = _place(path, error)
    place = f"{file}:{line}" if line else f"{file}"
    shown = f", at {text!r}" if text else ""
    if isinstance(error, EtlError):
        return ConfigError(f"{place}: {error.message}", hint=error.hint, **error.context)
    if isinstance(error, SyntaxError):
        return ConfigError(f"{place} is not Python: {error.msg}{shown}")
    if isinstance(error, SystemExit):
        return ConfigError(
            f"{place} ends the process when it is imported{shown}",
            hint='What is to happen only as a script stands under if __name__ == "__main__".',
        )
    words = " ".join(str(error).split())
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return ConfigError(f"{place} cannot be loaded: {said}{shown}", hint=_spelling(error))


def _place(path: Path, error: BaseException) -> tuple[str, int, str]:
    """File, line and its text: the user's own innermost; of a syntax error what the compiler says."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, (error.text or "").strip()
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename == str(path)]
    inner = [f for f in frames if Path(f.filename).parent == path.parent]
    if not inner and not mine:
        return str(path), 0, ""
    last = (inner or mine)[-1]
    return last.filename, last.lineno or 0, (last.line or "").strip()


def _spelling(error: BaseException) -> str:
    """Of a call with an unknown keyword: the nearest that the called thing has, by its name in the user's frame."""
    said = _KEYWORD.search(str(error)) if isinstance(error, TypeError) else None
    if said is None or error.__traceback__ is None:
        return ""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    seen = [frame.f_globals, *(vars(one) for one in frame.f_globals.values() if isinstance(one, ModuleType))]
    called = next((names[said[1]] for names in seen if callable(names.get(said[1]))), None)
    try:
        known = [] if called is None else list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return ""
    return nearest(said[2], known, what="keywords") if known else ""


def _file_of(code_file: str) -> str:
    path = Path(code_file)
    return str(path.resolve()) if path.suffix == ".py" and path.is_file() else ""
