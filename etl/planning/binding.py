"""A pipeline with its parameters filled in: what a run reads, does and writes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_origin

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.planning.endpoints import SQL, Read, reading, writing
from etl.planning.params import path_text
from etl.planning.steps import Steps
from etl.transforms.checking.base import Checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from connectors.base import Special
    from etl.planning.definition import Pipeline
    from etl.planning.jobs import Reading, Write
    from etl.planning.params import Parameters

_FIELD = re.compile(r"\{([^{}]*)\}")
_NAME_BYTES = 255
"""More no file system takes for one folder's name."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One run of a pipeline, not yet begun.

    Attributes:
        pipeline: As defined.
        params: Typed values of all its parameters.
        readings: Source → what is read, in the order of the function's parameters.
        write: The dataset to publish.
        steps: The function as what happens to each part, its schemas not yet found; None: rows pass straight through.
        run_id: Of the run.
    """

    pipeline: Pipeline
    params: Mapping[str, object]
    readings: Mapping[str, Reading]
    write: Write
    steps: Steps | None
    run_id: str

    @property
    def params_sha256(self) -> str:
        """By which a resumed run knows that its parameters are the same."""
        text = canonical_json({name: path_text(value) for name, value in self.params.items()})
        return hashlib.sha256(text).hexdigest()


def bind(pipeline: Pipeline, params: Mapping[str, object], run_id: str, /) -> Bound:
    """Fill in parameters and look connections up; nothing is connected to.

    Raises:
        ConfigError: A parameter is wrong, a connection unknown, or the target would leave its folder.
    """
    values = pipeline.params.values(params)
    owner = f"pipeline {pipeline.name}"
    readings = {}
    for name, wish in pipeline.sources.items():
        try:
            read = reading(name, wish, pipeline.sink, values, run_id)
        except ConfigError as error:
            raise error.at(f"{owner}, source {name}") from error
        if pipeline.function is not None:
            # The sink's key is of the rows that the function gives; a source may not have it.
            read = replace(read, query=replace(read.query, key=()))
        readings[name] = read
    target = filled(pipeline.sink.to, values, pipeline.params, owner)
    write = writing(pipeline.sink, target, pipeline.name, _special(pipeline))
    write = replace(write, checks=Checks(pipeline.checks) if pipeline.checks else None, contract=pipeline.contract)
    steps = None if pipeline.function is None else Steps(pipeline.function, cpu_fallback=pipeline.cpu_fallback)
    return Bound(pipeline, values, readings, write, steps, run_id)


def fields(target: str, params: Parameters, owner: str, /) -> list[str]:
    """The parameters whose values stand in a target.

    Raises:
        ConfigError: A `{name}` is no parameter or a list, or a bracket stands alone.
    """
    return list(_fields(target, params, owner))


def _fields(target: str, params: Parameters, owner: str) -> Iterator[str]:
    rest = _FIELD.sub("", target)
    if "{" in rest or "}" in rest:
        raise ConfigError(
            f"{owner}: the target {target} has a bracket without its other half", hint="Write parameters as {name}."
        )
    for name in _FIELD.findall(target):
        if name not in params.declared:
            have = "" if params.declared else f' Give params={{"{name}": date}}, for example.'
            raise ConfigError(
                f"{owner}: the target has {{{name}}}, and there is no parameter of that name",
                hint=nearest(name, params, what="parameters") + have,
            )
        if get_origin(params.declared[name].type) is list:
            raise ConfigError(f"{owner}: the target has {{{name}}}, which is a list", hint="A folder takes one value.")
        yield name


def filled(target: str, values: Mapping[str, object], params: Parameters, owner: str, /) -> str:
    """A target with its parameters in place: no value adds a folder or steps out of one.

    Raises:
        ConfigError: A value would, is empty or too long.
    """
    folders = []
    for template in target.split("/"):
        names = list(_fields(template, params, owner))
        folder = _FIELD.sub(lambda found: path_text(values[found[1]]), template)
        if names and (folder.strip() in ("", ".", "..") or folder.startswith(".") != template.startswith(".")):
            raise ConfigError(
                f"{owner}: with {names[0]}={values[names[0]]!r} the target has a folder named {folder!r}",
                hint="Give a value that can be the name of a folder and is not hidden.",
            )
        if len(folder.encode()) > _NAME_BYTES:
            raise ConfigError(
                f"{owner}: the target has a folder of {len(folder.encode())} bytes of name", hint="At most 255 fit."
            )
        folders.append(folder)
    return "/".join(folders)


def _special(pipeline: Pipeline) -> Special | None:
    """What the manifest says of `special`: of the one source; several may each have their own."""
    given = {wish.special for wish in pipeline.sources.values() if isinstance(wish, SQL | Read)}
    return given.pop() if len(given) == 1 else None
