"""`cuetl validate`: what a run of each pipeline would refuse before it reads a row, all of it in one go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl.cli import output, process, words
from etl.core.errors import ConfigError, EtlError
from etl.core.schema import nearest
from etl.planning import lint, loader
from etl.planning.jobs import Job
from etl.run import pipelines
from etl.run.naming import new_run_id
from etl.run.places import attach_nobody
from etl.run.runner import open_sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.planning.binding import Bound
    from etl.planning.definition import Pipeline


@dataclass(slots=True)
class Looked:
    """What was found about one pipeline.

    Attributes:
        name: As asked for, until the definition is loaded.
        file: That defines it.
        problems: For which a run would end before it reads, in the order of a run.
        warnings: What means something else on the other engine, and what the plan warns of.
        schema: The columns that are published, where they are known.
        checks: What must hold of their rows.
    """

    name: str
    file: str = ""
    problems: list[EtlError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    schema: Any = ()
    checks: Any = ()

    def to_json(self) -> dict[str, object]:
        """One object of `--json`."""
        problems = [{"code": one.code, "text": str(one)} for one in self.problems]
        status = "failed" if self.problems else "valid"
        return {
            "pipeline": self.name,
            "file": self.file,
            "status": status,
            "problems": problems,
            "warnings": self.warnings,
            "schema": self.schema,
            "checks": list(self.checks),
        }


def validate(wanted: Sequence[str], params: Sequence[str], /, *, as_json: bool, debug: bool) -> int:
    """Check pipelines, those of the folder where none is named, and print every problem found.

    Returns:
        0, or the exit code of the first problem.

    Raises:
        ConfigError: There is no pipeline to check, or a parameter is of none of them.
    """
    process.prepare(None, debug=debug)
    given = words.assignments(params, "--param")
    found, unloaded = _definitions(wanted)
    _of_some(given, found)
    looked = [*unloaded, *(_look(one, given) for one in found)]
    if as_json:
        failed = any(one.problems for one in looked)
        output.emit_json({"status": "failed" if failed else "valid", "pipelines": [one.to_json() for one in looked]})
    else:
        for one in looked:
            _tell(one)
    return next((problem.exit_code for one in looked for problem in one.problems), 0)


def _definitions(wanted: Sequence[str]) -> tuple[list[Pipeline], list[Looked]]:
    """The pipelines that load, and a report for each file that does not."""
    found: list[Pipeline] = []
    unloaded: list[Looked] = []
    for one in wanted or loader.files():
        try:
            found.extend(loader.load_all(str(one)))
        except EtlError as error:
            unloaded.append(Looked(str(one), problems=[error]))
    return found, unloaded


def _of_some(given: Mapping[str, str], found: Sequence[Pipeline]) -> None:
    known = sorted({name for one in found for name in one.params})
    for name in given:
        if name not in known:
            raise ConfigError(
                f"--param {name} is of none of the pipelines", hint=nearest(name, known, what="parameters")
            )


def _look(pipeline: Pipeline, given: Mapping[str, str]) -> Looked:
    looked = Looked(pipeline.name, pipeline.file)
    looked.warnings.extend(_lints(pipeline))
    try:
        bound = pipeline.bind({n: v for n, v in given.items() if n in pipeline.params}, new_run_id())
    except EtlError as error:
        looked.problems.append(error)
        return looked
    looked.problems.extend(_unreadable(bound))
    if looked.problems:
        return looked
    try:
        plan = pipelines.plan_pipeline(bound, engine="cpu")
    except EtlError as error:
        looked.problems.append(error)
        return looked
    looked.schema, looked.checks = plan["schema"], plan.get("checks", ())
    return looked


def _lints(pipeline: Pipeline) -> list[str]:
    """Lines of the function that pandas and cuDF understand differently, with what to write."""
    ref = pipeline.function
    if ref is None or not ref.file:
        return []
    text = Path(ref.file).read_text(encoding="utf-8")
    try:
        return [f"{ref.file}: {one}" for one in lint.check(text, ref.name, rowwise=pipeline.rowwise)]
    except LookupError:
        return []  # a function made inside another one


def _unreadable(bound: Bound) -> list[EtlError]:
    """The sources that do not answer, or not with columns."""
    found: list[EtlError] = []
    for name, reading in bound.readings.items():
        try:
            (source,) = open_sources([Job(reading, ())])
            with source.snapshot(attach_all=attach_nobody) as at:
                source.schema(at)
        except EtlError as error:
            found.append(error.at(f"source {name}", source=name))
    return found


def _tell(looked: Looked) -> None:
    state = "failed" if looked.problems else f"valid, {output.counted(len(looked.schema), 'column')}"
    output.text(f"{looked.name}: {state}{f' ({looked.file})' if looked.file else ''}")
    for check in looked.checks:
        output.text(f"  check    {output.check(check)}")
    for problem in looked.problems:
        output.text(f"  problem  {' '.join(str(problem).split())}")
    for warning in looked.warnings:
        output.text(f"  warning  {' '.join(warning.split())}")
