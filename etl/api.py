"""Entry points for Python: read a query as Arrow, straight from the store, in one snapshot."""

from __future__ import annotations

import multiprocessing
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import pyarrow as pa

from connectors import registry
from connectors.base import Query, Tally
from etl.core.errors import ConfigError, EtlError
from etl.core.partition import Partition, Whole
from etl.planning.definition import define
from etl.planning.function import loading, where_called
from etl.run import pipelines
from etl.run.channel import ReadAhead
from etl.run.early import BATCH_BYTES
from etl.run.naming import new_run_id
from etl.run.places import attach_nobody, place
from etl.run.result import RunPlan
from etl.settings import endpoint
from etl.tensors.collect import collected
from etl.tensors.frameworks import require_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import pandas as pd

    from connectors.base import Cast, Source, Special
    from etl.core.partition import Snapshot
    from etl.core.schema import Schema
    from etl.planning.definition import Pipeline
    from etl.planning.endpoints import SinkWish, SourceWish
    from etl.planning.schedule import Schedule
    from etl.run.result import RunResult
    from etl.tensors.batch import Batch
    from etl.transforms.base import Transform
    from etl.transforms.checking.base import Check

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one query or table, read when asked for; every call reads anew, from a snapshot of its own.

    `tally` of the last reading says what policies counted.
    """

    source: Source
    batch_bytes: int = BATCH_BYTES
    tally: list[Tally] = field(default_factory=list, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<Rows of {self.source.title}, connection {self.source.endpoint.name}: read when asked for>"

    def schema(self) -> pa.Schema:
        """The Arrow schema; no row is read."""
        with self.source.snapshot(attach_all=attach_nobody) as at:
            return self.source.schema(at).to_arrow()

    def stream(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches of about 4 MiB, in the store's order.

        Two batches are read ahead; a slow consumer stops the reader. Closing the generator stops the statement.

        Raises:
            EtlError: Mapped by the connector.
        """
        with self.source.snapshot(attach_all=attach_nobody) as at:
            yield from self._batches(at, self.source.schema(at))

    def to_arrow(self) -> pa.Table:
        """All rows as one table; empty results have the full schema.

        Raises:
            EtlError: Mapped by the connector.
        """
        with self.source.snapshot(attach_all=attach_nobody) as at:
            schema = self.source.schema(at)
            return pa.Table.from_batches(list(self._batches(at, schema)), schema.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame of Arrow-backed columns: integers, decimals and NULL stay what they are."""
        import pandas as pd  # noqa: PLC0415 - only this door needs pandas

        return self.to_arrow().to_pandas(types_mapper=pd.ArrowDtype)

    def to_torch(self, *, device: str | None = None) -> Batch:
        """All rows as torch tensors by column, in the dtypes of a tensor dataset, with `<column>.valid` for NULLs.

        Text columns are left out, and a warning names them. A ragged list is `<column>.values` and `.offsets`.

        Args:
            device: In torch's words, such as "cuda:0"; None: the host.

        Raises:
            MissingDriver: torch is not installed; no row is read then.
            EtlError: Mapped by the connector, or a value that its dtype does not hold.
        """
        require_torch()
        with self.source.snapshot(attach_all=attach_nobody) as at:
            schema = self.source.schema(at)
            with closing(self._batches(at, schema)) as batches:
                return collected(schema, batches, framework="torch", device=device)

    def _batches(self, at: Snapshot, schema: Schema) -> Generator[pa.RecordBatch, None, None]:
        tally = Tally()
        self.tally[:] = [tally]
        part = Partition(0, Whole())
        batches = ReadAhead(self.source.read(at, part, schema=schema, batch_bytes=self.batch_bytes, tally=tally))
        try:
            yield from batches
        except EtlError as error:
            raise error.at(place(self.source, error.message), connection=self.source.endpoint.name) from error
        finally:
            batches.close()


def read_sql(
    source: str,
    sql: str | None = None,
    /,
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    params: Mapping[str, object] | None = None,
    types: Mapping[str, str] | None = None,
    limit: int | None = None,
    special: Special | None = None,
    cast: Cast = "exact",
) -> Rows:
    """The rows of a query or table of a connection, to be read when asked for.

    Args:
        source: A connection of `cuetl.toml`, or a URL.
        sql: Query text, taken as written; or give `table`.
        table: A table's name.
        columns: The columns wanted, in order.
        params: Values for `:name` in the text.
        types: Column → Arrow type, as `--types`.
        limit: The first N rows.
        special: As `--special`.
        cast: As `--cast`.

    Raises:
        ConfigError: The source is unknown or the text is not one read-only statement.
    """
    at = endpoint(source)
    query = Query(
        table=table,
        sql=sql,
        columns=tuple(columns) if columns is not None else None,
        types=dict(types or {}),
        params=dict(params or {}),
        limit=limit,
        special=special,
        cast=cast,
    )
    return Rows(registry.connector(at.scheme).source(at, query))


@dataclass(frozen=True, slots=True)
class Defined(Generic[P, R]):
    """A pipeline on a function; called, it is the plain function.

    Attributes:
        pipeline: The pipeline as a value.
        function: The function as the user wrote it.
    """

    pipeline: Pipeline
    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself, with frames of your own: nothing is read or written."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.pipeline)

    def run(
        self,
        *,
        engine: str = "auto",
        workers: int | None = None,
        resume: str | None = None,
        record: bool = False,
        **params: object,
    ) -> RunResult:
        """Run the pipeline in this process and its workers: read, transform, publish.

        Args:
            engine: "auto", "cpu", "gpu" or a scheduler's address.
            workers: Worker processes; None: by the cores of this machine.
            resume: The id of a run that failed, whose finished parts are taken up where their source has not changed.
            record: Keep the run in the state store.
            **params: The pipeline's parameters.

        Raises:
            ConfigError: A parameter is wrong, a connection unknown, or what was asked for is not there.
            EtlError: What failed, on which part; nothing was published.
        """
        return _run(self.pipeline, params, engine=engine, workers=workers, resume=resume, record=record)

    def plan(self, *, engine: str = "auto", workers: int | None = None, **params: object) -> RunPlan:
        """Every decision of a run, found without reading a row.

        Raises:
            EtlError: What a run would refuse before it reads.
        """
        return _plan(self.pipeline, params, engine=engine, workers=workers)


@dataclass(frozen=True, slots=True)
class Definition:
    """What `pipeline(...)` gives: put on a function it makes its pipeline; with a name it is one without a function."""

    name: str | None
    sources: Mapping[str, SourceWish]
    sink: SinkWish
    rowwise: bool
    prepare: Sequence[Transform]
    checks: Sequence[Check]
    contract: Mapping[str, object] | None
    schedule: Schedule | Sequence[Schedule] | None
    params: Mapping[str, object] | None
    retries: int
    cpu_fallback: bool
    place: tuple[str, int]
    _made: list[Pipeline] = field(default_factory=list, compare=False, repr=False)

    def __call__(self, function: Callable[P, R], /) -> Defined[P, R]:
        """The pipeline of a function, whose parameters are the sources.

        Raises:
            ConfigError: Something is wrong with it; the pipeline is named.
        """
        return Defined(self._define(function), function)

    @property
    def function(self) -> None:
        """Rows pass straight through."""
        return

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline without a function, whose one source passes straight through.

        Raises:
            ConfigError: It has no name, several sources, or is rowwise.
        """
        if not self._made:
            self._made.append(self._define(None))
        return self._made[0]

    def run(
        self,
        *,
        engine: str = "auto",
        workers: int | None = None,
        resume: str | None = None,
        record: bool = False,
        **params: object,
    ) -> RunResult:
        """Run the pipeline without a function, as `Defined.run`.

        Raises:
            EtlError: As there.
        """
        return _run(self.pipeline, params, engine=engine, workers=workers, resume=resume, record=record)

    def plan(self, *, engine: str = "auto", workers: int | None = None, **params: object) -> RunPlan:
        """Every decision of a run, as `Defined.plan`.

        Raises:
            EtlError: As there.
        """
        return _plan(self.pipeline, params, engine=engine, workers=workers)

    def _define(self, function: Callable[..., Any] | None) -> Pipeline:
        return define(
            name=self.name,
            sources=self.sources,
            sink=self.sink,
            function=function,
            rowwise=self.rowwise,
            prepare=self.prepare,
            checks=self.checks,
            contract=self.contract,
            schedule=self.schedule,
            params=self.params,
            retries=self.retries,
            cpu_fallback=self.cpu_fallback,
            place=self.place,
        )


def pipeline(
    *,
    sources: Mapping[str, SourceWish],
    sink: SinkWish,
    name: str | None = None,
    rowwise: bool = False,
    prepare: Sequence[Transform] = (),
    checks: Sequence[Check] = (),
    contract: Mapping[str, object] | None = None,
    schedule: Schedule | Sequence[Schedule] | None = None,
    params: Mapping[str, object] | None = None,
    retries: int = 3,
    cpu_fallback: bool = False,
) -> Definition:
    """Define a pipeline: a decorator for its function, or, with a name and one source, the pipeline itself.

    Nothing is connected to, read or written.

    Args:
        sources: The function's parameters → `SQL(…)`, `Read(…)` or a `pyarrow.Table`.
        sink: `Tensors(…)` or `Parquet(…)`.
        name: None: the function's name.
        rowwise: Call the function once per partition with a plain frame; else once, with Dask collections.
        prepare: Steps of `etl.transforms` after it, in order: fitted on the split `train`, saved with the dataset.
        checks: Of `etl.checks`: what must hold of the rows after all of it, before anybody can see them.
        contract: `{"columns": …, "data_type": …}`, each "evolve" or "freeze": whether a new version may have new
            columns, and wider types; `"schema": {"id": "int64"}` stands for the version before.
        schedule: `cron(…)`, `every(…)`, `after(…)`, or a list of them; kept for a service.
        params: Name → type, (type, default) or a default: `:name` in queries, `{name}` in the target.
        retries: More tries of a partition after its first, up to 100.
        cpu_fallback: Whether a partition that is too large for a GPU in every size may be made by pandas.

    Raises:
        ConfigError: Something is wrong; of a decorator when it is put on the function.
    """
    made = Definition(
        name, sources, sink, rowwise, prepare, checks, contract, schedule, params, retries, cpu_fallback, where_called()
    )
    if name is not None and len(sources) == 1 and not rowwise:
        made.pipeline  # noqa: B018 - what is wrong is said where it stands
    return made


def _run(
    defined: Pipeline,
    params: Mapping[str, object],
    /,
    *,
    engine: str,
    workers: int | None,
    resume: str | None,
    record: bool,
) -> RunResult:
    if record:
        raise ConfigError("record=True: there is no state store to keep a run in yet", hint="Leave it out.")
    # A worker, too, loads the file for its function; and a process that is being started imports the script again.
    if loading() or getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            f"pipeline {defined.name} is run by the file that defines it, while the file is loaded",
            hint='Put .run() under `if __name__ == "__main__":`.',
        )
    run_id = new_run_id()
    bound = defined.bind(params, run_id)
    return pipelines.run_pipeline(bound, run_id=run_id, engine=engine, workers=workers, resume=resume)


def _plan(defined: Pipeline, params: Mapping[str, object], /, *, engine: str, workers: int | None) -> RunPlan:
    bound = defined.bind(params, new_run_id())
    return RunPlan(pipelines.plan_pipeline(bound, engine=engine, workers=workers))
