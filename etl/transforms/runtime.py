"""ONNX Runtime: models loaded once per process, on the providers that were asked for and on no others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"
_ERRORS: Final = 3
"""The least severity that ONNX Runtime writes to stderr: its warnings are of graphs that are meant so."""


def library() -> Any:
    """The package onnxruntime.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415 # of an extra, where a model runs
    except ImportError as error:
        raise ConfigError(
            f"ONNX Runtime cannot be loaded here: {error}",
            hint="Install it with cuetl[onnx]; for a GPU onnxruntime-gpu in its place.",
        ) from error
    return onnxruntime


def resolved(wish: str | Sequence[str], /) -> tuple[str, ...]:
    """The providers that a model is to run on.

    Args:
        wish: "auto": CUDA where it is present, else the CPU; or their names in order.

    Raises:
        ConfigError: One is not present; those that are, are named.
    """
    present = tuple(library().get_available_providers())
    if wish == "auto":
        return (CUDA,) if CUDA in present else (CPU,)
    names = (wish,) if isinstance(wish, str) else tuple(wish)
    missing = [name for name in names if name not in present]
    if missing:
        raise ConfigError(
            f"ONNX Runtime has no {', '.join(missing)} here; present are {', '.join(present)}",
            hint='Write providers="auto", or install the package of ONNX Runtime that has it.',
        )
    return names


def session(model: bytes, providers: Sequence[str], /, *, half: bool = False) -> Any:
    """A model, loaded; one thread runs it, since Dask's threads score parts beside one another.

    Args:
        model: Its bytes.
        providers: In order; the first one must be what runs.
        half: TensorRT may calculate in 16 bits.

    Raises:
        ConfigError: It is no model that ONNX Runtime loads, or runs on other providers than these.
    """
    runtime = library()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS
    if CPU not in providers:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    wanted = [(name, {"trt_fp16_enable": True}) if half and name == TENSORRT else name for name in providers]
    try:
        made = runtime.InferenceSession(model, options, providers=wanted)
    except Exception as error:  # ONNX Runtime's own tree of errors is not public
        raise ConfigError(f"ONNX Runtime does not load the model on {', '.join(providers)}: {error}") from error
    running = tuple(made.get_providers())
    if running[: len(providers)] != tuple(providers):
        raise ConfigError(
            f"the model was to run on {', '.join(providers)} and runs on {', '.join(running)}",
            hint="See what ONNX Runtime writes to stderr: a library of the provider may be missing.",
        )
    return made


def run(made: Any, inputs: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
    """The outputs of a loaded model by name."""
    return dict(zip([one.name for one in made.get_outputs()], made.run(None, dict(inputs)), strict=True))


@dataclass(slots=True)
class _Loaded:
    """Sessions by what they are of: a model is loaded once per process, not once per part."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    known: dict[tuple[str, tuple[str, ...], bool], Any] = field(default_factory=dict)


_LOADED: Final = _Loaded()


def kept_session(sha256: str, model: bytes, providers: Sequence[str], /, *, half: bool = False) -> Any:
    """As `session`, made on the first call for this hash and kept for the life of the process."""
    key = (sha256, tuple(providers), half)
    with _LOADED.lock:
        found = _LOADED.known.get(key)
        if found is None:
            found = _LOADED.known[key] = session(model, providers, half=half)
        return found


def known_session(sha256: str, providers: Sequence[str], /, *, half: bool = False) -> Any:
    """The session that this process has of a model, or None."""
    with _LOADED.lock:
        return _LOADED.known.get((sha256, tuple(providers), half))
