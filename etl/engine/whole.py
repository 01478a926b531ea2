"""A function of whole data: called once with Dask collections over spool files, its result written piece by piece.

Nothing of a frame leaves the workers: specs go out, the paths of what was written come back. On CPUs the run process
drives; on GPUs, which it must not touch, a task of the cluster does.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dask
from distributed import KilledWorker, as_completed, worker_client
from distributed.system import MEMORY_LIMIT

from etl.core.errors import DeviceOutOfMemory, EtlError, UserCodeError
from etl.core.user_code import user_error
from etl.engine.backends import backend
from etl.engine.select import open_cluster
from etl.engine.spool import pieces, write_spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client, Future

    from etl.core.schema import Schema
    from etl.engine.base import Backend, BackendName, Cluster, EngineChoice
    from etl.engine.dask_client import DaskCluster
    from etl.engine.spool import SpoolFile

CONFIG = {
    "dataframe.convert-string": False,
    "dataframe.shuffle.method": "tasks",
}
"""Frames keep the backend's own dtypes. The other way to shuffle, p2p, has no decimals and no lists: it makes objects
of the first and fails on the second. What does not fit in memory, workers move to disk."""
MEMORY_SHARE = 0.6
"""Of this machine's memory, for the workers: the rest is for reading ahead, and for what a step takes beside frames."""


@dataclass(frozen=True, slots=True)
class Given:
    """One source: the function's parameter, the columns, and the files of each partition."""

    name: str
    schema: Schema
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class WholeTask:
    """All that a driver needs; a picklable value.

    Attributes:
        call: Calls the user's function with its collections by name, and makes its errors ours.
        load: Makes the user's module known to a process, so that what the function refers to can be unpickled there.
        function, file: Of the user's function, for messages.
        given: Its sources.
        returns: The columns that were planned.
        backend: What makes the frames.
        folder: Where the result goes.
    """

    call: Callable[[Mapping[str, Any]], Any]
    load: Callable[[], object]
    function: str
    file: str
    given: tuple[Given, ...]
    returns: Schema
    backend: BackendName
    folder: str


def meta_through(call: Callable[[Mapping[str, Any]], Any], schemas: Mapping[str, Schema], /) -> Any:
    """What the function gives for collections without rows: a frame of no rows.

    Raises:
        UserCodeError: It fails without rows, or gives neither a collection nor a frame.
    """
    import dask.dataframe as dd  # noqa: PLC0415 # a second of imports that only pipelines of whole data need

    frames = backend("pandas")
    with dask.config.set({**CONFIG, "scheduler": "synchronous"}):
        metas = {}
        for name, schema in schemas.items():
            try:
                metas[name] = frames.from_arrow(schema.to_arrow().empty_table(), schema)
            except EtlError as error:
                raise error.at(f"source {name}") from error
        made = call({n: dd.from_pandas(meta, npartitions=1) for n, meta in metas.items()})
        return getattr(made, "_meta", made)


@contextlib.contextmanager
def opened(choice: EngineChoice, folder: Path, /) -> Iterator[Cluster]:
    """A cluster whose workers keep what does not fit in their memory below `folder`."""
    folder.mkdir(exist_ok=True)
    choice = replace(choice, memory=int(MEMORY_LIMIT * MEMORY_SHARE / max(1, choice.workers)))
    with dask.config.set({"temporary-directory": str(folder)}):
        cluster = open_cluster(choice)
    try:
        yield cluster
    finally:
        cluster.close()


def carry_out(cluster: Cluster, task: WholeTask, /, *, wrote: Callable[[int, int, int], None]) -> list[SpoolFile]:
    """Call the function and write what it gives.

    Args:
        cluster: Of processes, or of threads where the function has no file.
        task: What to do.
        wrote: Told of each piece that was written: of how many, rows, bytes.

    Returns:
        The files, in the order of the result's partitions; at least one.

    Raises:
        UserCodeError: The function failed, now or when its result was computed; its own line is named.
        SchemaError: A partition has other columns than planned; it is named.
        EngineError: A worker died.
    """
    cluster.everywhere(_ready, task)
    dask_cluster = cast("DaskCluster", cluster)
    if cluster.choice.kind == "remote":
        # It unpickles graphs, and what the user's function put into them: it must know the user's module, too.
        dask_cluster.client.run_on_scheduler(_loaded, task.load)
    if task.backend == "cudf":
        handle = dask_cluster.drive(_in_worker, task, key=f"whole:{task.folder}")
        while handle.key not in cluster.wait(seconds=0.2):
            pass
        return handle.result()
    with dask_cluster.client.as_current():
        return _drive(dask_cluster.client, task, wrote)


def _ready(task: WholeTask) -> None:
    """Load the user's module, and set the library of frames up as the reader of a partition does."""
    task.load()
    frames = backend(task.backend)
    for one in task.given:
        frames.from_arrow(one.schema.to_arrow().empty_table(), one.schema)


def _loaded(load: Callable[[], object]) -> None:
    load()


def _in_worker(task: WholeTask) -> list[SpoolFile]:
    with worker_client() as client:
        return _drive(client, task, _untold)


def _untold(_of: int, _rows: int, _bytes: int) -> None:
    """The run process hears of nothing while a worker drives."""


def _drive(client: Client, task: WholeTask, wrote: Callable[[int, int, int], None]) -> list[SpoolFile]:
    frames = backend(task.backend)
    with dask.config.set(CONFIG):
        made = task.call({one.name: frames.over(one.groups, one.schema) for one in task.given})
        if not hasattr(made, "to_delayed"):
            written = _staged(made, 0, task)
            wrote(1, sum(f.rows for f in written), sum(f.bytes for f in written))
            return written
        try:
            parts = made.to_delayed()
            stage = dask.delayed(_staged, pure=False)
            resources = _device(client) if task.backend == "cudf" else None
            staged = [stage(part, index, task) for index, part in enumerate(parts)]
            futures = client.compute(staged, resources=resources)
        except Exception as error:
            raise _told(error, task, frames) from error
        return _collected(client, futures, task, frames, wrote)


def _device(client: Client) -> dict[str, int] | None:
    """The resource that lets one task at a time onto a worker's device; None where no worker announces it.

    The driver holds another one: with this it would wait for itself.
    """
    workers = client.scheduler_info()["workers"].values()
    return {"GPU": 1} if any("GPU" in worker.get("resources", {}) for worker in workers) else None


def _collected(
    client: Client,
    futures: Sequence[Future],
    task: WholeTask,
    frames: Backend,
    wrote: Callable[[int, int, int], None],
) -> list[SpoolFile]:
    places = {future.key: index for index, future in enumerate(futures)}
    found: dict[int, list[SpoolFile]] = {}
    try:
        for future in as_completed(futures):
            try:
                files = future.result()
            except Exception as error:
                raise _told(error, task, frames) from error
            found[places[future.key]] = files
            wrote(len(futures), sum(f.rows for f in files), sum(f.bytes for f in files))
    finally:
        with contextlib.suppress(OSError, RuntimeError):  # of a cluster that is lost, the error itself is told
            client.cancel(list(futures), force=True)
    return [file for index in sorted(found) for file in found[index]]


def _staged(frame: Any, index: int, task: WholeTask) -> list[SpoolFile]:
    """Write one partition of the result.

    Raises:
        SchemaError: It has other columns than planned.
    """
    try:
        table = backend(task.backend).to_arrow(frame, task.returns)
    except EtlError as error:
        where = f"{task.file}, {task.function}" if task.file else f"function {task.function}"
        raise error.at(f"{where}, partition {index + 1}", partition=index) from error
    del frame
    return write_spool(Path(task.folder), f"{index:06}", task.returns, pieces(table), stopped=_never)


def _never() -> bool:
    return False


def _told(error: BaseException, task: WholeTask, frames: Backend) -> EtlError:
    """What went wrong while the result was computed, said of the user's own line where there is one."""
    inner = _ours(error)
    if inner is not None:
        return inner
    if isinstance(error, KilledWorker):
        return DeviceOutOfMemory(
            f"a worker died while it computed what {task.function} gives: it ran out of memory, most likely",
            hint="Give the sources fewer columns, or group before you join; --workers 1 leaves a worker all memory.",
        )
    if frames.out_of_memory(error):
        return DeviceOutOfMemory(
            f"memory ran out while {task.function} was computed: {error}",
            hint="Give the sources fewer columns, or group before you join.",
        )
    told = user_error(error, function=task.function, file=task.file)
    if isinstance(told, UserCodeError) and not told.context.get("line"):
        told.hint = told.hint or "It was raised when Dask computed the result, in a step that the function asked for."
    return told


def _ours(error: BaseException | None) -> EtlError | None:
    """An error of our tree that Dask wrapped on its way."""
    while error is not None:
        if isinstance(error, EtlError):
            return error
        error = error.__cause__
    return None
