"""Ghosts: genuine cuDF objects whose two rows lie in host memory, so that cuDF's own checks run without a GPU.

cuDF's Python code and the host part of libcudf run for real; the first CUDA call then fails because there is no
driver. Failing there means that the checks before it passed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from typing import Any

os.environ.setdefault("RAPIDS_NO_INITIALIZE", "1")  # must be set before cuDF is imported

import cudf
import numpy as np
import pandas as pd
import pylibcudf as plc
from cudf.core.column import ColumnBase
from cudf.utils.dtypes import cudf_dtype_from_pa_type, dtype_to_pylibcudf_type

__all__ = [
    "ContractError",
    "cudf",
    "cudf_dtype",
    "cudf_dtype_from_pa_type",
    "ghost_of",
    "means_no_driver",
    "plc",
    "require_no_driver",
]

ROWS = 2
"""Not 0: cuDF returns early on empty frames and skips its checks."""

NO_DRIVER = re.compile(r"NVIDIA driver library|CUDA driver|cudaError|CUDA context|CURAND|CudaSupport")
"""How "there is no driver" reads in the errors of cuda-bindings, CuPy, numba and libcudf."""


class ContractError(Exception):
    """cuDF would refuse this step, or would silently give it another meaning."""


class _HostMemory:
    """64 zero bytes of host memory that claim to be device memory: two rows of the widest type."""

    def __init__(self) -> None:
        self.bytes = np.zeros(64, "u1")
        self.__cuda_array_interface__ = {
            "data": (self.bytes.ctypes.data, False),
            "shape": (64,),
            "typestr": "|u1",
            "version": 3,
            "strides": None,
        }


MEMORY = _HostMemory()
"""Every ghost's memory: nothing is ever written to it, since no kernel can run."""


@functools.cache
def require_no_driver() -> None:
    """Refuse to go on where a kernel could be launched on a ghost.

    Raises:
        RuntimeError: A CUDA driver can be loaded here.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    raise RuntimeError("a CUDA driver can be loaded here: run the transforms on real cuDF, by make gpu-test")


def means_no_driver(error: BaseException) -> bool:
    """Whether the error, or one that led to it, says that the driver is missing."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if NO_DRIVER.search(f"{type(link).__name__} {link}"):
            return True
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return False


def ghost_of(value: object) -> Any:
    """The ghost of a pandas frame or series; None for anything else.

    Raises:
        ContractError: A column is of a type that cuDF does not have.
    """
    if isinstance(value, pd.DataFrame):
        columns = {name: _column(dtype) for name, dtype in value.dtypes.items()}
        return cudf.DataFrame._from_data(columns, index=_index(value.index))
    if isinstance(value, pd.Series):
        return cudf.Series._from_column(_column(value.dtype), name=value.name, index=_index(value.index))
    return None


def cudf_dtype(dtype: Any) -> Any:
    """The dtype that the same column has after `cudf.DataFrame.from_arrow`.

    Raises:
        ContractError: cuDF has no such type.
    """
    if isinstance(dtype, pd.ArrowDtype):
        return cudf_dtype_from_pa_type(dtype.pyarrow_dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        return cudf.CategoricalDtype(_column(dtype.categories.dtype), dtype.ordered)
    if isinstance(dtype, pd.IntervalDtype):
        return cudf.IntervalDtype(cudf_dtype(dtype.subtype), dtype.closed)
    if getattr(dtype, "kind", "") == "O" and isinstance(dtype, np.dtype):
        raise ContractError("object column: cuDF has none (give Decimal, list and dict columns a pandas ArrowDtype)")
    return cudf.dtype(getattr(dtype, "numpy_dtype", dtype))  # Int64, Float64, boolean: numpy type with a null mask


def _column(dtype: Any) -> Any:
    mine = cudf_dtype(dtype)
    return ColumnBase.create(_plain_column(mine), mine)


def _index(index: pd.Index[Any]) -> Any:
    if index.nlevels > 1 or isinstance(index, pd.RangeIndex):
        return cudf.RangeIndex(ROWS)  # ghosts of a MultiIndex are not built
    return cudf.Index._from_column(_column(index.dtype), name=index.name)


def _plain_column(dtype: Any) -> Any:
    if isinstance(dtype, cudf.CategoricalDtype):
        return _made(dtype_to_pylibcudf_type(dtype._codes_dtype), ROWS)
    kind = dtype_to_pylibcudf_type(dtype)
    if isinstance(dtype, cudf.ListDtype):
        return _made(kind, ROWS, [_offsets(), _plain_column(dtype.element_type)], has_data=False)
    if isinstance(dtype, cudf.StructDtype | cudf.IntervalDtype):
        return _made(kind, ROWS, [_plain_column(field) for field in dtype.fields.values()], has_data=False)
    return _made(kind, ROWS, [_offsets()] if kind.id() == plc.TypeId.STRING else [])


def _offsets() -> Any:
    return _made(plc.DataType(plc.TypeId.INT32), ROWS + 1)


def _made(kind: Any, size: int, children: list[Any] | None = None, *, has_data: bool = True) -> Any:
    memory = plc.gpumemoryview(MEMORY) if has_data else None
    return plc.Column(kind, size, memory, None, 0, 0, children or [])
