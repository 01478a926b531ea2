"""What an operator writes: a pipeline as a value, from its sources through a function and fitted steps to its sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.planning.function import FunctionRef


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as defined; nothing was connected to.

    Attributes:
        name: The function's name, or as given.
        sources: The function's parameters → where they are read from, in order.
        sink: Where the result goes.
        function: The user's function; None: the one source passes straight through.
        rowwise: The function is called once per partition with a plain frame; else once, with Dask collections.
        file: The file that defines it, "" for one that was made interactively.
    """

    name: str
    sources: Mapping[str, object]
    sink: object
    function: FunctionRef | None = None
    rowwise: bool = False
    params: Mapping[str, object] = field(default_factory=dict)
    retries: int = 3
    file: str = ""
