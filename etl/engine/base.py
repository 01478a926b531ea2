"""The seam to Dask: a task and a picklable spec go in, a small result comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from etl.core.schema import Schema

BackendName: TypeAlias = Literal["pandas", "cudf"]
"""Which library makes the frames of a run; a run keeps its one."""

SpecT = TypeVar("SpecT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine a run uses, and why.

    Attributes:
        name: "cpu" or "gpu"; what `--json` and the manifest say.
        kind: Threads of this process, processes of this host, one process for each GPU of this host, or an existing
            scheduler.
        address: Of the scheduler, for `kind` "remote".
        workers: Processes that run tasks (1 for threads).
        slots: Parts in flight; bounds memory and open connections.
        why: One sentence for the plan.
        backend: What frames are made of. For `kind` "remote" it is known once the cluster is open: see its `choice`.
        exchange: Workers hand frames to one another: between GPUs, UCX pays.
        memory: Bytes that a process on CPUs may take before Dask moves frames that it holds to disk; 0: it holds none.
    """

    name: str
    kind: Literal["threads", "processes", "cuda", "remote"]
    address: str
    workers: int
    slots: int
    why: str
    backend: BackendName = "pandas"
    exchange: bool = False
    memory: int = 0


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

    def drive(self, task: Callable[[SpecT], ResultT], spec: SpecT, /, *, key: str) -> Handle[ResultT]:
        """Start a task that starts others on this cluster and waits for them."""
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


class Backend(Protocol):
    """The library that makes frames. A frame carries what `etl.engine.door` carries, with the same dtypes on both."""

    @property
    def name(self) -> BackendName:
        """What the plan and the manifest say."""
        ...

    def from_arrow(self, table: pa.Table, schema: Schema, /) -> Any:
        """The table as one frame with a plain index; may be changed by whoever gets it.

        Args:
            table: Rows of exactly the schema's columns, types as the source gives them; may be empty.
            schema: What the source says.

        Raises:
            SchemaError: No frame carries a column's type; the column and what to write are named.
            CastError: A value does not fit the carried type; column and value are named.
        """
        ...

    def to_arrow(self, frame: Any, schema: Schema, /) -> pa.Table:
        """The frame as Arrow of exactly the schema: names, order, types. The index is left out.

        Raises:
            SchemaError: It is no frame, or a column is missing, not declared, in another place or of another kind.
            CastError: A value does not fit the declared type; column and value are named.
        """
        ...

    def schema_of(self, frame: Any, given: Schema, /) -> Schema:
        """What `to_arrow` can make of such a frame, from its dtypes alone; for a frame of zero rows at planning.

        Args:
            frame: What the function returned: a frame, or the meta frame of a collection.
            given: The schema (or all fields of all schemas) that went in: by name it says which columns are dates,
                times, vectors and labels, which a dtype alone does not.

        Raises:
            SchemaError: It is no frame, names are no unique texts, or a dtype has no Arrow type.
        """
        ...

    def over(self, groups: Sequence[Sequence[str]], schema: Schema, /) -> Any:
        """A Dask collection of one frame for each group of Arrow IPC files; nothing is read yet.

        Args:
            groups: Paths; the files of a group become one partition.
            schema: Of every file.
        """
        ...

    def out_of_memory(self, error: BaseException, /) -> bool:
        """Whether memory ran out, here or in what led to this error: the same part must not be tried as it is."""
        ...
