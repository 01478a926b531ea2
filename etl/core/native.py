"""Object code of compiled loops: made once, kept on disk, loaded without numba.

numba and its compiler take half a second to import and some seconds to run, so their result is kept as object code
beside the package (or in the user's cache folder) under a name made of the source, the versions and the processor.
Loading it needs llvmlite alone. Calls go through ctypes, which lets go of the interpreter lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib
import json
import os
import tempfile
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from etl.core.errors import EtlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MACHINE = Path(__file__).resolve().with_name("machine.py")
"""What loops are written with: a source of every one."""
MAGIC = b"cuetl-native-1\n"
_lock = threading.Lock()
_loaded: dict[str, Native] = {}


@dataclass(frozen=True, slots=True)
class Loops:
    """A module of numba functions that are called from outside.

    Attributes:
        name: Names the object code on disk.
        module: The module, imported only to compile.
        entries: Its functions, and how many int64 each takes.
        sources: The files that the code is made of; another content is another code.
        vectorized: Whether loops become vector code: for long loops without branches.
    """

    name: str
    module: str
    entries: Mapping[str, int]
    sources: tuple[Path, ...]
    vectorized: bool = False


@dataclass(frozen=True, slots=True)
class Native:
    """Callable entry points; each takes int64 and returns int64. `engine` keeps the code in memory."""

    calls: dict[str, Callable[..., int]]
    engine: Any
    compiled: bool
    """Whether the code was compiled by this process."""


def _key(loops: Loops) -> str:
    parts = [version("numba"), version("llvmlite"), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in (*loops.sources, Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def folders(loops: Loops, /) -> tuple[Path, ...]:
    """Where object code may lie, the preferred one first; never a folder that other users can write to."""
    beside = loops.sources[0].parent / "__pycache__"
    try:
        return beside, Path.home() / ".cache" / "cuetl"
    except RuntimeError:  # a user without a home, as in some containers
        return (beside,)


def warm(loops: Loops, /) -> Path | None:
    """Compile the loops if their object code is not on disk (seconds); called at install or first start.

    Returns:
        The file that holds the code, or None where no folder can be written.
    """
    load(loops)
    return on_disk(loops)


def on_disk(loops: Loops, /) -> Path | None:
    """The file that holds the code, if there is one; it is not looked into."""
    name = _file(loops)
    return next((folder / name for folder in folders(loops) if (folder / name).exists()), None)


def _file(loops: Loops) -> str:
    return f"{loops.name}-{_key(loops)}.o"


def load(loops: Loops, /) -> Native:
    """The entry points, from the cache if it holds them whole, else compiled now.

    Raises:
        EtlError: The processor's code can neither be loaded nor compiled.
    """
    with _lock:
        found = _loaded.get(loops.name)
        if found is None:
            found = _loaded[loops.name] = _load(loops)
        return found


def _load(loops: Loops) -> Native:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = _file(loops)
    found = _find(loops, name)
    if found is not None:
        return found
    with _alone(loops):
        # Another process may have compiled it while this one waited.
        found = _find(loops, name)
        if found is not None:
            return found
        content = _compile(loops)
        for folder in folders(loops):
            if _write(folder / name, content):
                break
    return _link(loops, content, compiled=True)


def _find(loops: Loops, name: str) -> Native | None:
    for folder in folders(loops):
        content = cached(folder / name)
        if content is not None:
            with contextlib.suppress(ValueError, KeyError, RuntimeError, EtlError):
                return _link(loops, content, compiled=False)
    return None


@contextlib.contextmanager
def _alone(loops: Loops) -> Iterator[None]:
    """Hold a lock between processes, where a folder can be written: workers that start together compile once."""
    for folder in folders(loops):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / f"{loops.name}.lock").open("wb")
        except OSError:
            continue
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
            return
    yield


def cached(path: Path) -> bytes | None:
    """The file's code if it is whole: magic, hash, then names and objects."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + 32
    if not content.startswith(MAGIC) or hashlib.sha256(content[head:]).digest() != content[len(MAGIC) : head]:
        return None
    return content[head:]


def _write(path: Path, content: bytes) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + hashlib.sha256(content).digest() + content)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        return False
    return True


def _compile(loops: Loops) -> bytes:
    """Names and object code of every entry: a JSON line, then the objects one after the other."""
    compiler: Any = importlib.import_module("numba.core.compiler")
    registry: Any = importlib.import_module("numba.core.registry")
    numba: Any = importlib.import_module("numba")
    types = numba.types
    kernel: Any = importlib.import_module(loops.module)
    target = registry.cpu_target
    # Vectorised loops of a few turns only make the code large and its compilation slow.
    numba.config.LOOP_VECTORIZE = int(loops.vectorized)
    names, objects = {}, []
    for entry, arguments in loops.entries.items():
        flags = compiler.Flags()
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        flags.error_model = "numpy"
        result = compiler.compile_extra(
            target.typing_context,
            target.target_context,
            getattr(kernel, entry),
            (types.int64,) * arguments,
            types.int64,
            flags,
            {},
        )
        code = result.library._get_compiled_object()  # noqa: SLF001 - numba has no public way to its object code
        names[entry] = [result.fndesc.llvm_func_name, len(code)]
        objects.append(code)
    return json.dumps(names).encode() + b"\n" + b"".join(objects)


def _link(loops: Loops, content: bytes, *, compiled: bool) -> Native:
    head, _, rest = content.partition(b"\n")
    names = json.loads(head)
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    at = 0
    for entry in loops.entries:
        size = names[entry][1]
        engine.add_object_file(llvm.ObjectFileRef.from_data(rest[at : at + size]))
        at += size
    engine.finalize_object()
    calls = {}
    for entry, arguments in loops.entries.items():
        address = engine.get_function_address(names[entry][0])
        if not address:
            raise EtlError(
                f"the compiled code of {loops.name} lacks {entry}", hint="Remove the cached object code and try again."
            )
        calls[entry] = _bind(address, arguments)
    return Native(calls, engine, compiled)


def _bind(address: int, arguments: int) -> Callable[..., int]:
    """A call of numba's own convention: a pointer to the result, one to the exception, then the arguments."""
    shape = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *([ctypes.c_int64] * arguments))
    function = shape(address)

    def call(*values: int) -> int:
        result = ctypes.c_int64()
        exception = ctypes.c_void_p()
        if function(ctypes.addressof(result), ctypes.addressof(exception), *values):
            raise EtlError("compiled code broke off", hint="Please report this.")
        return result.value

    return call
