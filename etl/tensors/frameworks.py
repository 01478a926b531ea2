"""Hand-over of NumPy arrays to torch, JAX, TensorFlow and CuPy, and the rank that a launcher gave this process.

No framework is imported before one is asked for. Memory is shared where the framework can share it, so an array that
was handed over is not to be written to again.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from etl.core.errors import CastError, ConfigError, MissingDriver
from etl.core.schema import nearest
from etl.settings import launched

if TYPE_CHECKING:
    from numpy.typing import NDArray

Framework: TypeAlias = Literal["numpy", "torch", "jax", "tensorflow", "cupy"]
FRAMEWORKS: tuple[str, ...] = get_args(Framework)

_ADVICE = {
    "torch": "Install it with the extra: pip install 'cuetl[torch]'.",
    "jax": "Install it with the extra: pip install 'cuetl[jax]'.",
    "tensorflow": "Install it with the extra: pip install 'cuetl[tensorflow]'.",
    "cupy": "Install the package that fits the CUDA of this machine: pip install cupy-cuda12x or cupy-cuda13x.",
}
_ALIGN = 64
"""JAX and TensorFlow take memory of the host as it is when it begins at a multiple. Elsewhere JAX would copy it, and
TensorFlow would take it and abort the process at the first operation (measured with 2.21), so it gets a copy too."""
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
"""What JAX makes of the 64-bit types while x64 is off."""


def default_framework(device: str | None, /) -> Framework:
    """NumPy without a device, torch with one."""
    return "numpy" if device is None else "torch"


def framework_of(name: str | None, device: str | None, /) -> Framework:
    """The framework asked for, or the default.

    Raises:
        ConfigError: There is no such framework; the nearest is named.
    """
    if name is None:
        return default_framework(device)
    for known in FRAMEWORKS:
        if known == name:
            return known  # type: ignore[return-value]  # the names are the literal's
    raise ConfigError(f"unknown framework {name!r}", hint=nearest(name, FRAMEWORKS, what="frameworks"))


def hand_over(array: NDArray[Any], framework: str, device: str | None, /, *, dtype: str, name: str = "") -> Any:
    """The array as the framework's own, on the device: same shape, same dtype, every bit kept.

    The memory is shared on the host (JAX, TensorFlow: where it begins at a multiple of 64 bytes), unless the array is
    read-only or not contiguous, then it is copied first. Booleans stay booleans; TensorFlow takes them across as uint8
    and casts them back. NumPy has no bfloat16 of its own: `ml_dtypes.bfloat16` where that package is, else uint16 bits.

    Args:
        array: Any shape; bfloat16 as uint16 bits.
        framework: One of `FRAMEWORKS`.
        device: In the framework's words, such as "cuda:1"; None: the host (JAX, CuPy: their default device).
        dtype: The tensor's dtype in words: what the schema says.
        name: The tensor's name, for messages.

    Raises:
        ConfigError: There is no such framework or device.
        MissingDriver: The framework is not installed.
        CastError: JAX without x64, and a value that 32 bits do not hold exactly.
    """
    match framework_of(framework, device):
        case "numpy":
            return _to_numpy(array, device, dtype)
        case "torch":
            return _to_torch(array, device, dtype)
        case "jax":
            return _to_jax(array, device, dtype, name)
        case "tensorflow":
            return _to_tensorflow(array, device, dtype)
        case "cupy":
            return _to_array_module(array, _cupy(), device)


def place() -> tuple[int, int]:
    """Rank and world size: of torch.distributed, of JAX's processes, of a launcher's environment, else 0 of 1.

    A framework that this process has not imported is not imported for it.

    Raises:
        ConfigError: The environment names them and they are no such numbers.
    """
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return int(torch.get_rank()), int(torch.get_world_size())
    jax = sys.modules.get("jax")
    # To ask JAX for processes starts its backend, and takes the GPU's memory: only where they were set up.
    if jax is not None and jax.distributed.is_initialized():
        return int(jax.process_index()), int(jax.process_count())
    return launched() or (0, 1)


def nested(values: Any, offsets: Any, /) -> Any:
    """A torch nested tensor (jagged layout) over values [N, …] and offsets [rows + 1], int64; nothing is copied."""
    return _torch().nested.nested_tensor_from_jagged(values, offsets=offsets)


def require_torch() -> Any:
    """The module torch.

    Raises:
        MissingDriver: It is not installed.
    """
    return _torch()


def _sound(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, or a copy that others may take as theirs: contiguous, aligned, writable."""
    return np.require(array, requirements=["C", "A", "W"])


def _aligned(array: NDArray[Any]) -> bool:
    """Whether XLA can take the memory as it is. An array without items has none."""
    return array.size > 0 and array.ctypes.data % _ALIGN == 0


def _to_numpy(array: NDArray[Any], device: str | None, dtype: str) -> NDArray[Any]:
    if device not in {None, "cpu"}:
        raise ConfigError(f"NumPy arrays cannot lie on {device}", hint="Name a framework, or leave the device out.")
    if dtype != "bfloat16":
        return array
    try:
        import ml_dtypes  # noqa: PLC0415 - optional: comes with JAX and TensorFlow
    except ImportError:
        return array
    return array.view(ml_dtypes.bfloat16)


def _to_torch(array: NDArray[Any], device: str | None, dtype: str) -> Any:
    torch = _torch()
    tensor = torch.from_numpy(_sound(array))
    if dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    if device is None or device == "cpu":
        return tensor
    try:
        wanted = torch.device(device)
        if wanted.type == "cuda":
            # Pageable memory would make the copy wait; a pinned one runs beside the training step.
            return tensor.pin_memory().to(wanted, non_blocking=True)
        return tensor.to(wanted)
    except (RuntimeError, AssertionError) as error:
        raise _no_device("torch", device, error) from error


def _to_jax(array: NDArray[Any], device: str | None, dtype: str, name: str) -> Any:
    jax = _jax()
    found = array
    if dtype == "bfloat16":
        found = array.view(jax.numpy.bfloat16)
    elif dtype in _NARROW and not jax.config.jax_enable_x64:
        found = _narrowed(array, dtype, name)
    found = _sound(found)
    # NumPy's DLPack knows no bfloat16.
    shared = _aligned(found) and dtype != "bfloat16"
    given = jax.dlpack.from_dlpack(found) if shared else jax.numpy.array(found)
    if device is None:
        # Of several processes, each sees the devices of all and can fill only its own.
        return given if jax.default_backend() == "cpu" else jax.device_put(given, jax.local_devices()[0])
    kind, _, number = device.partition(":")
    try:
        return jax.device_put(given, jax.local_devices(backend=kind)[int(number or 0)])
    except (RuntimeError, IndexError, ValueError) as error:
        raise _no_device("jax", device, error) from error


def _narrowed(array: NDArray[Any], dtype: str, name: str) -> NDArray[Any]:
    """In 32 bits, as JAX has no others while x64 is off.

    Raises:
        CastError: A value does not fit.
    """
    narrow = _NARROW[dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        small = array.astype(narrow)
    bad = (small != array) & (array == array)  # noqa: PLR0124 - NaN stays NaN
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f" at {list(at)}" if at else ""
        raise CastError(
            f"the tensor {name or '(unnamed)'} is {dtype}, and its value {array[at]}{where} cannot be {narrow}, the "
            "widest that JAX has while x64 is off",
            hint="Turn it on before the first array: jax.config.update('jax_enable_x64', True)"
            + (", or export with --dtype float32 --cast round." if dtype == "float64" else "."),
            column=name,
        )
    warnings.warn(
        f"JAX's x64 is off: {dtype} tensors are handed over as {narrow}, in which every value of this one fits; "
        "jax.config.update('jax_enable_x64', True) keeps their dtype",
        stacklevel=2,
    )
    return small


def _to_tensorflow(array: NDArray[Any], device: str | None, dtype: str) -> Any:
    tf = _tensorflow()
    found = _sound(array)
    if dtype == "bool":
        found = found.view(np.uint8)
    with tf.device("CPU:0"):
        shared = _aligned(found)
        given = tf.experimental.dlpack.from_dlpack(found.__dlpack__()) if shared else tf.constant(found)
        if dtype == "bool":
            given = tf.cast(given, tf.bool)
        if dtype == "bfloat16":
            given = tf.bitcast(given, tf.bfloat16)
    if device is None or device == "cpu":
        return given
    kind, _, number = device.partition(":")
    here = tf.config.list_logical_devices("GPU" if kind == "cuda" else kind.upper())
    at = int(number) if number.isdecimal() else 0
    if at >= len(here) or (number and not number.isdecimal()):
        # TensorFlow itself would quietly take the CPU.
        raise _no_device("tensorflow", device, ", ".join(d.name for d in tf.config.list_logical_devices()))
    with tf.device(here[at].name):
        return tf.identity(given)


def _to_array_module(array: NDArray[Any], module: Any, device: str | None, /) -> Any:
    """Through the array interface: any module with NumPy's `asarray` will do, CuPy is one; bfloat16 stays bits."""
    if device is None:
        return module.asarray(array)
    kind, _, number = device.partition(":")
    if kind not in {"cuda", "gpu"} or (number and not number.isdigit()):
        raise ConfigError(f"CuPy has no device {device}", hint="Name cuda or cuda:N.")
    with module.cuda.Device(int(number or 0)):
        return module.asarray(array)


def _no_device(framework: str, device: str, said: object) -> ConfigError:
    return ConfigError(f"{framework} has no device {device} here ({said})", hint="Name one that it has, or none.")


def _missing(framework: str, error: ImportError) -> MissingDriver:
    return MissingDriver(f"{framework} cannot be imported: {error}", hint=_ADVICE[framework])


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise _missing("torch", error) from error
    return torch


def _jax() -> Any:
    try:
        import jax  # noqa: PLC0415 - as above
        import jax.dlpack  # noqa: PLC0415
    except ImportError as error:
        raise _missing("jax", error) from error
    return jax


def _tensorflow() -> Any:
    try:
        import tensorflow as tf  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _missing("tensorflow", error) from error
    return tf


def _cupy() -> Any:
    try:
        import cupy  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _missing("cupy", error) from error
    return cupy
