"""One file per library of frames; nothing is imported before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl.engine.base import Backend, BackendName


def backend(name: BackendName, /) -> Backend:
    """The backend of that name; imports its library.

    Raises:
        ConfigError: cuDF is not installed here.
    """
    if name == "cudf":
        from etl.engine.backends.cudf import CudfBackend  # noqa: PLC0415 # only where frames of cuDF are asked for

        return CudfBackend()
    from etl.engine.backends.pandas import PandasBackend  # noqa: PLC0415 # pandas takes half a second to import

    return PandasBackend()
