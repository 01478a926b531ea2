"""Arrays cross to each framework with every bit, their dtype and their shape, and share memory where that is safe."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etl.core.errors import CastError, ConfigError
from etl.tensors.batch import Batch
from etl.tensors.frameworks import hand_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32", "int64",
          "uint64", "float64")  # fmt: skip
SHAPES = ((), (0,), (0, 3), (5,), (4, 3))
FRAMEWORKS = [pytest.param(name, marks=pytest.mark.framework(name)) for name in ("torch", "jax", "tensorflow")]


@pytest.fixture
def x64(request: pytest.FixtureRequest) -> Iterator[None]:
    """JAX with its 64-bit types, where the test is of JAX."""
    if "jax" not in request.node.callspec.params.values():
        yield
        return
    import jax

    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - JAX's own signature
    yield
    jax.config.update("jax_enable_x64", False)  # noqa: FBT003


def placed(array: NDArray[Any], past: int) -> NDArray[Any]:
    """The array in memory that begins `past` bytes after a multiple of 64."""
    room = np.zeros(array.nbytes + 128 + past, np.uint8)
    start = -room.ctypes.data % 64 + past
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def sample(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values that a narrower type, or a detour through a float, would change."""
    kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    items = int(np.prod(shape))
    if dtype == "bool":
        return np.resize(np.array([True, False, False]), items).reshape(shape)
    if dtype == "bfloat16":
        return np.resize(np.array([0x3F80, 0xC2F7, 0x7F7F, 0x0001], kind), items).reshape(shape)
    if kind.kind in "iu":
        whole = np.iinfo(kind)
        return np.resize(np.array([whole.max, whole.min, 1, 0], kind), items).reshape(shape)
    real = np.finfo(kind)
    return np.resize(np.array([real.max, real.tiny, -1.5, 0.0], kind), items).reshape(shape)


def back(value: Any, dtype: str) -> NDArray[Any]:
    """The framework's tensor as a NumPy array; bfloat16 as bits."""
    if dtype == "bfloat16" and type(value).__module__ == "torch":
        import torch

        return np.asarray(value.view(torch.uint16).numpy())
    found = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return found.view(np.uint16) if dtype == "bfloat16" else found


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_dtype_and_shape_crosses_bit_by_bit(framework: str, dtype: str) -> None:
    for shape in SHAPES:
        for past in (0, np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize):
            array = placed(sample(dtype, shape), past)
            got = hand_over(array, framework, None, dtype=dtype)
            assert dtype in str(got.dtype)
            assert tuple(got.shape) == shape
            assert back(got, dtype).tobytes() == array.tobytes()


@pytest.mark.framework("torch")
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_shares_the_memory(dtype: str) -> None:
    array = sample(dtype, (4, 3))
    assert hand_over(array, "torch", None, dtype=dtype).data_ptr() == array.ctypes.data


@pytest.mark.framework("torch")
def test_a_read_only_array_is_copied_so_that_nobody_writes_to_it() -> None:
    array = np.arange(6)
    array.flags.writeable = False
    got = hand_over(array, "torch", "cpu", dtype="int64")
    got[0] = 7
    assert array.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.framework("jax")
def test_jax_shares_memory_that_begins_at_a_multiple_of_64_and_copies_the_rest() -> None:
    for past, shared in ((0, True), (4, False), (32, False)):
        array = placed(np.arange(12, dtype=np.int32), past)
        got = hand_over(array, "jax", None, dtype="int32")
        assert (got.unsafe_buffer_pointer() == array.ctypes.data) is shared


@pytest.mark.framework("tensorflow")
def test_tensorflow_computes_on_arrays_wherever_they_begin() -> None:
    import tensorflow as tf

    for past in (0, 4, 16, 32):
        array = placed(np.arange(1, 13, dtype=np.float32), past)
        got = hand_over(array, "tensorflow", None, dtype="float32")
        assert float(tf.reduce_sum(got * got)) == 650.0
        array[0] = 100
        assert (float(got[0]) == 100) is (past == 0), past


@pytest.mark.framework("jax")
@pytest.mark.parametrize(("dtype", "narrow", "wide"), [
    ("int64", "int32", 2**53 + 1), ("int64", "int32", -(2**31) - 1), ("uint64", "uint32", 2**32),
    ("float64", "float32", 0.1), ("float64", "float32", 1e300)])  # fmt: skip
def test_jax_without_x64_narrows_with_a_warning_or_refuses(dtype: str, narrow: str, wide: float) -> None:
    fits = np.array([[1, 2], [3, 4]], dtype)
    with pytest.warns(UserWarning, match=f"{dtype} tensors are handed over as {narrow}"):
        got = hand_over(fits, "jax", None, dtype=dtype, name="x")
    assert (str(got.dtype), np.asarray(got).tolist()) == (narrow, fits.tolist())
    fits[1, 0] = wide
    with pytest.raises(CastError, match=rf"tensor x is {dtype}.* at \[1, 0\] cannot be {narrow}.*jax_enable_x64"):
        hand_over(fits, "jax", None, dtype=dtype, name="x")


@pytest.mark.framework("jax")
def test_jax_without_x64_keeps_nan_and_infinity() -> None:
    array = np.array([np.nan, np.inf, -np.inf, -0.0])
    with pytest.warns(UserWarning, match="float64 tensors are handed over as float32"):
        got = np.asarray(hand_over(array, "jax", None, dtype="float64"))
    assert got.tobytes() == array.astype(np.float32).tobytes()


def test_t17_numpy_stands_in_for_cupy_which_takes_the_array_interface() -> None:
    from etl.tensors.frameworks import _to_array_module

    array = np.array([True, False, False])
    assert _to_array_module(array, np, None).dtype == bool
    with pytest.raises(ConfigError, match="CuPy has no device cpu"):
        _to_array_module(array, np, "cpu")


@pytest.mark.gpu
@pytest.mark.framework("cupy")
def test_cupy_holds_the_same_bits_on_the_device() -> None:
    for dtype in DTYPES:
        array = sample(dtype, (4, 3))
        assert hand_over(array, "cupy", "cuda:0", dtype=dtype).get().tobytes() == array.tobytes()


@pytest.mark.gpu
@pytest.mark.framework("torch")
def test_torch_holds_the_same_bits_on_the_device() -> None:
    for dtype in DTYPES:
        array = sample(dtype, (4, 3))
        got = hand_over(array, "torch", "cuda:0", dtype=dtype)
        assert got.is_cuda
        assert back(got.cpu(), dtype).tobytes() == array.tobytes()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_device_that_is_not_there_is_refused_by_name(framework: str) -> None:
    array = np.zeros(3, np.float32)
    for device in ("tpu:77", "warp"):
        with pytest.raises(ConfigError, match=f"{framework} has no device {device} here"):
            hand_over(array, framework, device, dtype="float32")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_t02_t07_t17_a_batch_has_the_same_dtypes_and_names_whatever_the_values(framework: str) -> None:
    kinds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # JAX's 64-bit types are off here: that they narrow is said
        for rows in (0, 1, 2, 3):
            batch = Batch.of(
                {"n": np.arange(rows), "n.valid": np.arange(rows) > 0, "b": np.zeros(rows, bool)}, framework=framework
            )
            assert {name: tuple(value.shape) for name, value in batch.items()} == dict.fromkeys(batch, (rows,))
            kinds.append({name: (type(value), str(value.dtype)) for name, value in batch.items()})
    assert kinds == kinds[:1] * 4
    assert "bool" in kinds[0]["n.valid"][1]


@pytest.mark.framework("torch")
def test_t12_no_rows_cross_through_dlpack_with_shape_and_dtype() -> None:
    import torch

    for dtype in ("float32", "int64", "bool"):
        batch = Batch.of({"x": np.zeros((0, 3), dtype)})
        got = torch.from_dlpack(batch.dlpack("x"))
        assert (tuple(got.shape), str(got.dtype)) == ((0, 3), f"torch.{dtype}")


@pytest.mark.framework("torch")
def test_dlpack_of_a_batch_of_torch_is_read_by_torch_without_a_copy() -> None:
    import torch

    batch = Batch.of({"x": sample("bfloat16", (4, 3))}, framework="torch", dtypes={"x": "bfloat16"})
    got = torch.from_dlpack(batch.dlpack("x"))
    assert got.dtype == torch.bfloat16
    assert got.data_ptr() == batch["x"].data_ptr()


@pytest.mark.framework("torch")
def test_a_nested_tensor_holds_the_lists_without_a_copy() -> None:
    arrays = {"t.values": np.arange(5.0), "t.offsets": np.array([0, 2, 2, 5])}
    batch = Batch.of(arrays, framework="torch")
    nested = batch.nested("t")
    assert [one.tolist() for one in nested.unbind()] == [[0, 1], [], [2, 3, 4]]
    assert nested.values().data_ptr() == arrays["t.values"].ctypes.data
    assert batch.padded("t", pad_value=-1).tolist() == [[0, 1, -1], [-1, -1, -1], [2, 3, 4]]


@pytest.mark.framework("jax")
def test_bfloat16_is_a_dtype_of_numpy_where_ml_dtypes_is() -> None:
    batch = Batch.of({"x": np.array([0x3F80, 0x4000], np.uint16)}, dtypes={"x": "bfloat16"})
    assert str(batch["x"].dtype) == "bfloat16"
    assert batch.numpy("x").astype(np.float32).tolist() == [1.0, 2.0]
