"""What happens to the rows of a part between reading and staging: a user's function, then what was fitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl.core.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.engine.base import BackendName
    from etl.planning.function import FunctionRef
    from etl.tensors.split import Splitting
    from etl.transforms.base import State, Transform


@dataclass(frozen=True, slots=True)
class Steps:
    """A picklable value; planned once, carried out in every worker, once for each part.

    Attributes:
        function: Called with the part as one frame, gives one frame; None: the rows stay as they are.
        backend: What makes the frames. The run says it, when its engine is known.
        given: Of the rows that the source hands out; empty until planned.
        made: Of the rows that the function gives, found on a frame of no rows; empty until planned.
        returns: Of the rows after all steps; empty until planned.
        prepare: Steps after the function, in order.
        figures: Of those steps that are fitted, by place.
        train: How the rows that steps were fitted on are told, for steps that give those other values; None: all are.
        expects: Column → type of the rows that the figures of an earlier run were fitted on; None: they are this run's.
        cpu_fallback: Whether a part that is too large for a GPU in every size may be made by pandas.
    """

    function: FunctionRef | None = None
    backend: BackendName = "pandas"
    given: Schema = field(default_factory=lambda: Schema(()))
    made: Schema = field(default_factory=lambda: Schema(()))
    returns: Schema = field(default_factory=lambda: Schema(()))
    prepare: tuple[Transform, ...] = ()
    figures: Mapping[int, State] = field(default_factory=dict)
    train: Splitting | None = None
    expects: Mapping[str, str] | None = None
    cpu_fallback: bool = False

    @property
    def local(self) -> bool:
        """Whether only the process that defined the function can call it."""
        return self.function is not None and not self.function.file
