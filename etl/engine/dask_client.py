"""One Dask client as a `Cluster`: submit specs, collect what has ended, hear what running tasks tell."""

from __future__ import annotations

import logging
import queue
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from distributed import Client, Future, KilledWorker
from distributed.client import FutureCancelledError

from etl.core.errors import Cancelled, EngineError, WorkerLost
from etl.engine.events import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etl.engine.base import EngineChoice, SpecT

ResultT = TypeVar("ResultT")

QUIET = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Settings of clusters we start: a part of a dead worker comes back to us to be counted as an attempt, and Dask holds
none of our data, so its own memory limits would act on something else; nobody looks at its profiles or its pages."""
HOLDING = {
    "distributed.worker.memory.target": 0.5,
    "distributed.worker.memory.spill": 0.6,
    "distributed.worker.memory.pause": 0.85,
}
"""Settings on top where workers hold frames between tasks: as shares of `memory`, of what they hold and of the whole
process, from which on frames go to disk, and from which on no task begins."""


class DaskHandle(Generic[ResultT]):
    """A future."""

    def __init__(self, future: Future) -> None:
        self._future = future

    @property
    def key(self) -> str:
        """As given to `submit`."""
        return str(self._future.key)

    def result(self) -> ResultT:
        """The result of a task that has ended."""
        try:
            value: ResultT = self._future.result()
        except KilledWorker as error:
            worker = getattr(error, "last_worker", None)
            where = f" {worker.address}" if worker is not None else ""
            raise WorkerLost(f"worker{where} died with the part in hand") from error
        except FutureCancelledError as error:
            if "scheduler" in str(error.reason):
                raise EngineError(
                    f"the connection to the Dask scheduler was lost with the part in hand ({error.reason})",
                    hint="Nothing was published. See that the scheduler runs, then run again.",
                ) from error
            raise Cancelled("the part was cancelled before it ran") from error
        finally:
            self._future.release()
        return value


@contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not run the user's script again: what they need of a user's file they load by reference.

    `multiprocessing` tells a new process where the main module is, to import it there; a script whose last lines start
    a run would start runs for ever. See `multiprocessing.spawn.get_preparation_data`.
    """
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), main.__spec__
    main.__spec__ = None
    if file is not None:
        del main.__file__
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


class DaskCluster:
    """A client and whatever was started for it."""

    def __init__(self, client: Client, choice: EngineChoice, close: Callable[[], None]) -> None:
        self._client = client
        self._choice = choice
        self._close = close
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self._futures: dict[str, Future] = {}
        self._drives: dict[str, int] | None = None
        client.subscribe_topic(TOPIC, self._hear)

    @property
    def client(self) -> Client:
        """For collections of frames, whose graphs are Dask's own."""
        return self._client

    @property
    def choice(self) -> EngineChoice:
        """What was chosen, and why."""
        return self._choice

    def _hear(self, event: tuple[float, Any]) -> None:
        self._told.put(event[1])

    def submit(self, task: Callable[[SpecT], ResultT], spec: SpecT, /, *, key: str) -> DaskHandle[ResultT]:
        """Start the task on some worker; its key must be new."""
        return self._kept(self._client.submit(task, spec, key=key, pure=False, retries=0))

    def drive(self, task: Callable[[SpecT], ResultT], spec: SpecT, /, *, key: str) -> DaskHandle[ResultT]:
        """Start a task that starts others on this cluster and waits for them.

        It holds the resource DRIVER where workers announce one, and never GPU, which its own tasks need: holding that,
        it would wait for itself.
        """
        if self._drives is None:
            workers = self._client.scheduler_info()["workers"].values()
            announced = any("DRIVER" in worker.get("resources", {}) for worker in workers)
            self._drives = {"DRIVER": 1} if announced else {}
        future = self._client.submit(task, spec, key=key, pure=False, retries=0, resources=self._drives or None)
        return self._kept(future)

    def _kept(self, future: Future) -> DaskHandle[Any]:
        self._futures[str(future.key)] = future
        future.add_done_callback(lambda ended: self._ended.put(str(ended.key)))
        return DaskHandle(future)

    def wait(self, *, seconds: float) -> Sequence[str]:
        """Keys that ended since the last call."""
        try:
            ended = [self._ended.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get_nowait())
        for key in ended:
            self._futures.pop(key, None)
        return ended

    def heard(self) -> Sequence[tuple[str, int, int]]:
        """What tasks told since the last call."""
        told = []
        while not self._told.empty():
            told.append(self._told.get_nowait())
        return told

    def everywhere(self, task: Callable[[SpecT], None], spec: SpecT, /) -> None:
        """Run the task once in every process that has workers."""
        if self._choice.kind == "threads":
            task(spec)
        else:
            self._client.run(task, spec)

    def cancel(self) -> None:
        """Forget all tasks that have not ended."""
        self._client.cancel(list(self._futures.values()), force=True)

    def close(self) -> None:
        """Close client and cluster without a word."""
        for name in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._client.close()
        self._close()
