"""What an operator writes: a pipeline as a value, from its sources through a function and fitted steps to its sink."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from connectors.memory import MemorySource
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.planning import binding
from etl.planning.endpoints import SQL, Parquet, Read, Tensors, sql_params
from etl.planning.function import reference, sha256_of
from etl.planning.params import Parameters, declared
from etl.planning.schedule import Schedule
from etl.tensors.keeping import contract_of
from etl.transforms.base import Transform
from etl.transforms.checking.base import Check
from etl.transforms.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from etl.planning.binding import Bound
    from etl.planning.endpoints import SinkWish, SourceWish
    from etl.planning.function import FunctionRef
    from etl.tensors.keeping import Contract

MOST_RETRIES = 100
_SOURCES = (SQL, Read, MemorySource, pa.Table)
_SINKS = (Tensors, Parquet)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as defined; nothing was connected to.

    Attributes:
        name: The function's name, or as given.
        sources: The function's parameters → where they are read from, in order.
        sink: Where the result goes.
        function: The user's function; None: the one source passes straight through.
        rowwise: The function is called once per partition with a plain frame; else once, with Dask collections.
        prepare: Steps after the function, fitted on the train rows.
        checks: What must hold of the rows after them.
        contract: Which columns may come after those of the version before.
        params: What a run must or may be given.
        schedule: When it is due, for a service.
        retries: More tries of a part after its first.
        cpu_fallback: Whether a part that no GPU can hold may be made by pandas.
        file: The file that defines it, "" for one that was made interactively.
        line: Where in it, from 1; 0 without a file.
        sha256: Of the file's bytes when it was defined.
    """

    name: str
    sources: Mapping[str, SourceWish]
    sink: SinkWish
    function: FunctionRef | None = None
    rowwise: bool = False
    prepare: tuple[Transform, ...] = ()
    checks: tuple[Check, ...] = ()
    contract: Contract | None = None
    params: Parameters = field(default_factory=Parameters)
    schedule: tuple[Schedule, ...] = ()
    retries: int = 3
    cpu_fallback: bool = False
    file: str = ""
    line: int = 0
    sha256: str = ""

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {', '.join(self.sources)} to {self.sink.to}>"

    def bind(self, params: Mapping[str, object], run_id: str, /) -> Bound:
        """The pipeline with its parameters filled in: what a run reads and writes.

        Raises:
            ConfigError: A parameter is wrong, or a connection unknown.
        """
        return binding.bind(self, params, run_id)


def define(
    *,
    name: str | None,
    sources: Mapping[str, SourceWish],
    sink: SinkWish,
    function: Callable[..., Any] | None = None,
    rowwise: bool = False,
    prepare: Sequence[Transform] = (),
    checks: Sequence[Check] = (),
    contract: Mapping[str, object] | None = None,
    schedule: Schedule | Sequence[Schedule] | None = None,
    params: Mapping[str, object] | None = None,
    retries: int = 3,
    cpu_fallback: bool = False,
    place: tuple[str, int] = ("", 0),
) -> Pipeline:
    """A pipeline, checked as far as that goes without a connection.

    Args:
        name: None: the function's.
        sources: Name → where it is read from.
        sink: Where the result goes.
        function: Its parameters are the sources; None: the one source passes through.
        rowwise: Whether it is called once per partition.
        prepare: Steps after it.
        checks: What must hold of the rows.
        contract: Which columns may come after those of the version before.
        schedule: When it is due.
        params: Name → type, (type, default) or a default.
        retries: More tries of a part.
        cpu_fallback: Whether pandas may make what no GPU can hold.
        place: File and line of the definition.

    Raises:
        ConfigError: Something is wrong with it; the pipeline is named.
    """
    named = getattr(function, "__name__", "") if name is None else name
    owner = f"pipeline {named}" if named else "a pipeline"
    if name is not None and not _is_name(name):
        raise ConfigError(f"{owner}: {name!r} cannot be its name", hint="Use letters, digits, _ and -.")
    if not named:
        raise ConfigError(
            f"{owner} has no name and no function that gives it one", hint='Give name="…", or put it on a function.'
        )
    _check_sources(owner, sources)
    _check_sink(owner, sink)
    for what, value in (("rowwise", rowwise), ("cpu_fallback", cpu_fallback)):
        if not isinstance(value, bool):
            raise ConfigError(f"{owner}: {what} is {value!r}", hint="It is True or False.")
    if type(retries) is not int or not 0 <= retries <= MOST_RETRIES:
        raise ConfigError(f"{owner}: retries is {retries!r}", hint=f"It is a whole number from 0 to {MOST_RETRIES}.")
    if function is None and len(sources) != 1:
        raise ConfigError(
            f"{owner} has {len(sources)} sources and no function", hint="Only one source can pass straight through."
        )
    if function is None and rowwise:
        raise ConfigError(f"{owner} is rowwise and has no function", hint="Put it on a function, or leave rowwise out.")
    if function is not None:
        _check_function(owner, function, sources, rowwise=rowwise)
    if params is not None and not isinstance(params, Mapping):
        raise ConfigError(f"{owner}: params is {params!r}", hint='Write it as {"day": date}.')
    typed = declared(params or {}, owner)
    _check_use(owner, typed, sources, sink)
    file, line = place
    return Pipeline(
        named,
        dict(sources),
        sink,
        None if function is None else reference(function),
        rowwise,
        _prepare(owner, prepare, sink),
        _checks(owner, checks),
        contract_of(contract, owner),
        typed,
        _schedules(owner, schedule),
        retries,
        cpu_fallback,
        file,
        line,
        sha256_of(file) if file else "",
    )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and not any(c in name for c in "/\\:\0")


def _check_sources(owner: str, sources: object) -> None:
    if not isinstance(sources, Mapping) or not sources:
        said = "no sources" if isinstance(sources, Mapping) else f"sources {_kind(sources)}"
        raise ConfigError(f"{owner} has {said}", hint='Write sources={"orders": SQL("warehouse", table="orders")}.')
    for name, wish in sources.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"{owner}: {name!r} cannot be a source's name", hint="Use letters, digits and _.")
        if isinstance(wish, _SINKS):
            raise ConfigError(
                f"{owner}: source {name} is {type(wish).__name__}(…), which is a sink", hint="Give it as sink=."
            )
        if not isinstance(wish, _SOURCES):
            raise ConfigError(
                f"{owner}: source {name} is {_kind(wish)}", hint="Sources are SQL(…), Read(…) or a pyarrow.Table."
            )


def _check_sink(owner: str, sink: object) -> None:
    if isinstance(sink, _SOURCES):
        raise ConfigError(f"{owner}: the sink is {_kind(sink)}, which is a source", hint="Give it in sources=.")
    if not isinstance(sink, _SINKS):
        hint = f'Did you mean Tensors("{sink}")?' if isinstance(sink, str) else "Sinks are Tensors(…) and Parquet(…)."
        raise ConfigError(f"{owner}: the sink is {_kind(sink)}", hint=hint)


def _check_function(
    owner: str, function: Callable[..., Any], sources: Mapping[str, SourceWish], *, rowwise: bool
) -> None:
    """Hold that a function's parameters are exactly the sources."""
    if not callable(function):
        raise ConfigError(f"{owner}: it was put on {_kind(function)}, which is no function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"{owner}: {function.__name__} is async or yields", hint="It returns one frame.")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{owner}: the parameters of {function!r} cannot be told") from None
    called = []
    for one in parameters:
        if one.kind in _POSITIONAL or one.kind is inspect.Parameter.KEYWORD_ONLY:
            if one.name in sources or one.default is inspect.Parameter.empty:
                called.append(one.name)
            continue
        raise ConfigError(f"{owner}: its function takes {one}", hint=f"Its parameters are {', '.join(sources)}.")
    for name in called:
        if name not in sources:
            raise ConfigError(
                f"{owner}: its function has a parameter {name}, and there is no source of that name",
                hint=nearest(name, [s for s in sources if s not in called] or sources, what="sources"),
            )
    for name in sources:
        if name not in called:
            raise ConfigError(
                f"{owner}: source {name} is no parameter of its function",
                hint=nearest(name, called, what="parameters"),
            )
    if rowwise and len(sources) != 1:
        raise ConfigError(
            f"{owner} is rowwise and has {len(sources)} sources",
            hint="Rows of several sources have no partitions in common: leave rowwise out and join them.",
        )


def _check_use(owner: str, params: Parameters, sources: Mapping[str, SourceWish], sink: SinkWish) -> None:
    """Hold that every `:name` and `{name}` is a parameter, and every parameter is used.

    The text is cut as PostgreSQL would: the store's own dialect is only known with its connection. What it cannot cut
    is left to the binding, which knows.
    """
    used = set(binding.fields(sink.to, params, owner))
    for source, wish in sources.items():
        sql = wish.sql if isinstance(wish, SQL) else None
        used |= {name for name in params if re.search(rf":{name}\b", sql or "")}
        fixed = wish.params if isinstance(wish, SQL) else {}
        for name in fixed:
            if name in params:
                raise ConfigError(
                    f"{owner}: {name} is a parameter of the pipeline and of source {source}",
                    hint="Leave it out of one of them.",
                )
        try:
            found = sql_params(wish, "postgresql", slices=False)
        except ConfigError:
            continue
        for name in found:
            if name not in params:
                hint = nearest(name, params, what="parameters") if params else f'Give params={{"{name}": date}}.'
                raise ConfigError(
                    f"{owner}: source {source} has :{name} in its query, and there is no parameter of that name",
                    hint=hint,
                )
    for name in params:
        if name not in used:
            raise ConfigError(
                f"{owner}: parameter {name} is used nowhere",
                hint=f"Write :{name} in a query or {{{name}}} in the target, or leave it out.",
            )


def _prepare(owner: str, prepare: object, sink: object) -> tuple[Transform, ...]:
    steps = tuple(prepare) if isinstance(prepare, Sequence) and not isinstance(prepare, str) else (prepare,)
    for one in steps:
        if not isinstance(one, Transform) or isinstance(one, type):
            hint = 'Write prepare=[FillNull("price", "mean"), …].'
            if isinstance(one, Window):
                hint = f"It looks at other rows: call it in the function, {type(one).__name__}(…)(frame)."
            raise ConfigError(f"{owner}: prepare has {_kind(one)}", hint=hint)
    if not steps and isinstance(sink, Tensors) and sink.onnx:
        raise ConfigError(f"{owner}: onnx=True without prepare: there are no steps to export", hint="Leave it out.")
    return steps


def _checks(owner: str, checks: object) -> tuple[Check, ...]:
    listed = tuple(checks) if isinstance(checks, Sequence) and not isinstance(checks, str) else (checks,)
    for one in listed:
        if not isinstance(one, Check) or isinstance(one, type):
            raise ConfigError(
                f"{owner}: checks has {_kind(one)}", hint='Write checks=[etl.checks.not_null("price"), …].'
            )
    return listed


def _schedules(owner: str, schedule: object) -> tuple[Schedule, ...]:
    several = isinstance(schedule, Sequence) and not isinstance(schedule, str)
    listed: tuple[Any, ...] = () if schedule is None else tuple(schedule) if several else (schedule,)  # type: ignore[arg-type]
    for one in listed:
        if not isinstance(one, get_args(Schedule)):
            hint = f'Did you mean cron("{one}")?' if isinstance(one, str) else "Schedules are cron, every and after."
            raise ConfigError(f"{owner}: the schedule is {_kind(one)}", hint=hint)
    return listed


def _kind(value: object) -> str:
    """What a value is, for messages: no text of values that may be long."""
    if isinstance(value, str):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type) and fields(value):
        return f"{type(value).__name__}(…)"
    return f"a {value.__name__} and not a value" if isinstance(value, type) else f"a {type(value).__name__}"
