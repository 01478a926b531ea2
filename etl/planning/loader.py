"""From `file.py`, `file.py:name` or a name to pipelines. Loading imports a file and runs no pipeline."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.planning.function import found, imported, is_defined
from etl.settings import pipelines_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from etl.planning.definition import Pipeline

_MENTIONS = re.compile(r"\betl\b.*\bpipeline\b|\bpipeline\b.*\betl\b", re.DOTALL)


def load(text: str, /) -> Pipeline:
    """The one pipeline that a text names: `file.py` (of its only one), `file.py:name`, or a name.

    Names are looked for in the files of `$CUETL_PIPELINES`, else of `./pipelines`.

    Raises:
        ConfigError: The file is missing or broken (its line and the exception's words are given), has no pipeline,
            several and none was named, or none of that name.
    """
    pipelines = load_all(text)
    if len(pipelines) > 1:
        raise ConfigError(
            f"{text} has {len(pipelines)} pipelines: {_names(pipelines)}", hint=f"Name one: {text}:{pipelines[0].name}"
        )
    return pipelines[0]


def load_all(text: str, /) -> tuple[Pipeline, ...]:
    """All pipelines that a text names, in the order of their file: of `file.py` every one.

    Raises:
        ConfigError: As `load`; never for several.
    """
    file, name = _split(text)
    if file is None:
        return (_by_name(name),)
    pipelines = of_file(file)
    if not name:
        return pipelines
    for one in pipelines:
        if one.name == name:
            return (one,)
    raise ConfigError(f"{file} has no pipeline {name}", hint=nearest(name, [p.name for p in pipelines], what="names"))


def files(folder: Path | None = None, /) -> list[Path]:
    """The files below a folder that may define pipelines, in order; None: `$CUETL_PIPELINES`, else `./pipelines`.

    They mention both `etl` and `pipeline`; files and folders whose names begin with `_` or `.` are left out.

    Raises:
        ConfigError: There is no such folder.
    """
    at = pipelines_folder() if folder is None else folder
    if not at.is_dir():
        raise ConfigError(f"there is no folder {at}", hint="Give a file, or the folder as $CUETL_PIPELINES.")
    seen = [path for path in sorted(at.rglob("*.py")) if not _hidden(path.relative_to(at))]
    return [path for path in seen if _MENTIONS.search(path.read_text(encoding="utf-8", errors="replace"))]


def of_file(file: Path, /) -> tuple[Pipeline, ...]:
    """The pipelines that a file defines itself, in order.

    Warns:
        UserWarning: Two of them publish to the same target.

    Raises:
        ConfigError: It is missing or broken, or has no pipeline; two have one name, or a function cannot be found again
            under its name.
    """
    path = str(file.resolve())
    if not file.is_file():
        beside = [one.name for one in file.parent.glob("*.py")] if file.parent.is_dir() else []
        raise ConfigError(f"there is no file {file}", hint=nearest(file.name, beside, what="files there"))
    module = imported(path)
    pipelines = sorted(_defined(module, path), key=lambda one: one.line)
    if not pipelines:
        raise ConfigError(f"{file} defines no pipeline", hint="Put @etl.pipeline(sources=…, sink=…) on a function.")
    names: dict[str, Pipeline] = {}
    targets: dict[str, Pipeline] = {}
    for one in pipelines:
        if one.name in names:
            raise ConfigError(
                f"{file} has two pipelines named {one.name}, in lines {names[one.name].line} and {one.line}",
                hint='Give one another name="…".',
            )
        target = one.sink.to.rstrip("/")
        if target in targets:
            warnings.warn(
                f"{file}: pipelines {targets[target].name} and {one.name} both publish to {target}", stacklevel=2
            )
        names[one.name] = targets[target] = one
    return tuple(pipelines)


def _defined(module: ModuleType, path: str) -> list[Pipeline]:
    """The pipelines among a module's names that its own file defines, each once."""
    kept: dict[int, Pipeline] = {}
    for thing in list(vars(module).values()):
        if not is_defined(thing):
            continue
        try:
            pipeline = thing.pipeline
        except ConfigError as error:
            raise error.at(path) from error
        if pipeline.file != path:
            continue
        ref = pipeline.function
        if ref is not None and ref.file == path and found(module, ref) is not thing.function:
            raise ConfigError(
                f"{path}:{pipeline.line}: the function of pipeline {pipeline.name} is not what {ref.name} is in its "
                "file, so no other process could find it",
                hint="Give it a name of its own, and no decorator above @pipeline.",
            )
        kept[id(pipeline)] = pipeline
    return list(kept.values())


def _by_name(name: str) -> Pipeline:
    """The pipeline of a name in the folder of pipelines: only files that mention the name are executed."""
    known = files()
    mentioned = re.compile(rf"\b{re.escape(name)}\b")
    matching: list[Pipeline] = []
    broken: list[str] = []
    for path in known:
        if path.stem == name or mentioned.search(path.read_text(encoding="utf-8", errors="replace")):
            try:
                matching += [one for one in of_file(path) if one.name == name]
            except ConfigError as error:
                broken.append(str(error))
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ConfigError(
            f"{len(matching)} files have a pipeline {name}: {', '.join(one.file for one in matching)}",
            hint=f"Name one: {matching[0].file}:{name}",
        )
    if broken:
        raise ConfigError(f"pipeline {name} was looked for in a file that is broken: {broken[0]}")
    names = [one.name for path in known for one in _fine(path)]
    raise ConfigError(
        f"there is no pipeline {name} in {pipelines_folder()}", hint=nearest(name, names, what="pipelines there")
    )


def _fine(path: Path) -> tuple[Pipeline, ...]:
    """A file's pipelines; none where it is broken, since another name was asked for."""
    try:
        return of_file(path)
    except ConfigError:
        return ()


def _split(text: str) -> tuple[Path | None, str]:
    """A text as file and name: a file ends in .py or has a folder."""
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return Path(file), name
    if text.endswith(".py") or "/" in text or "\\" in text:
        return Path(text), ""
    return None, text


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _names(pipelines: Iterable[Pipeline]) -> str:
    return ", ".join(one.name for one in pipelines)
