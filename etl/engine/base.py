"""The seam to Dask: a task and a picklable spec go in, a small result comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SpecT = TypeVar("SpecT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine a run uses, and why.

    Attributes:
        name: "cpu"; what `--json` and the manifest say.
        kind: Threads of this process, processes of this host, or an existing scheduler.
        address: Of the scheduler, for `kind` "remote".
        workers: Processes that run tasks (1 for threads).
        slots: Parts in flight; bounds memory and open connections.
        why: One sentence for the plan.
    """

    name: str
    kind: Literal["threads", "processes", "remote"]
    address: str
    workers: int
    slots: int
    why: str


class Handle(Protocol[ResultT_co]):
    """One submitted task."""

    @property
    def key(self) -> str:
        """As given to `submit`."""
        ...

    def result(self) -> ResultT_co:
        """The task's result.

        Raises:
            WorkerLost: Its worker died.
            Exception: What the task raised.
        """
        ...


class Cluster(Protocol):
    """Dask, however it was started."""

    @property
    def choice(self) -> EngineChoice:
        """What was chosen, and why."""
        ...

    def submit(self, task: Callable[[SpecT], ResultT], spec: SpecT, /, *, key: str) -> Handle[ResultT]:
        """Start `task(spec)` on some worker."""
        ...

    def wait(self, *, seconds: float) -> Sequence[str]:
        """Keys of tasks that have ended since the last call; waits at most `seconds` for the first."""
        ...

    def heard(self) -> Sequence[tuple[str, int, int]]:
        """What running tasks have reported by `tell` since the last call: (topic, rows, bytes)."""
        ...

    def everywhere(self, task: Callable[[SpecT], None], spec: SpecT, /) -> None:
        """Run `task(spec)` once in every process that has workers."""
        ...

    def cancel(self) -> None:
        """Start no task that has not started. A running one goes on until it looks at its own stop mark."""
        ...

    def close(self) -> None:
        """Let go of workers; says nothing."""
        ...
