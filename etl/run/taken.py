"""Finished parts, kept for a run that takes them up: `--resume RUN`.

Beside the staged files of a job's first dataset lies a folder of records: what the job was, and for each part that was
staged whole what its worker told. A later run of the same job keeps a part where its rows cannot have changed: the
source is declared frozen, or proves by its position that nothing was written since.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import sys
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from etl.core.canonical import canonical_json
from etl.core.user_code import is_foreign
from etl.run.plain import from_json, to_json
from etl.run.task import PartResult, run_part
from etl.tensors.sink import DatasetSession
from etl.tensors.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connectors.base import StagedFile
    from etl.core.partition import Partition, Snapshot
    from etl.planning.compile import JobPlan
    from etl.planning.steps import Steps
    from etl.run.task import PartTask

FOLDER = ".parts"
"""In the stage of a job's first dataset; gone before it is published."""
JOB = "job.json"
_STORAGE = LocalStorage()
_WORDS: Mapping[str, str] = {
    "version": "the version of cuetl",
    "code": "the pipeline's code",
    "source": "the connection",
    "query": "the query or its parameters",
    "schema": "the columns",
    "sinks": "the targets or their options",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What of an earlier run can be kept.

    Attributes:
        results: By the key of the part.
        why_not: Why nothing is kept, in words; "" where something is.
        moments: Whether the parts that are kept are of another moment than those that are read now.
    """

    results: Mapping[str, PartResult]
    why_not: str = ""
    moments: bool = False


def keeps(plan: JobPlan, /) -> bool:
    """Whether a later run could keep parts of this job."""
    return plan.job.of is None and (plan.job.read.frozen or plan.source.capabilities.position_proves)


def describe_job(folder: Path, plan: JobPlan, at: Snapshot, /) -> None:
    """Write down what the job is, before its first part."""
    (folder / FOLDER).mkdir(exist_ok=True)
    _put(folder / FOLDER / JOB, canonical_json({"fields": fingerprint(plan), "position": at.position}))


def keep(folders: Sequence[Path], result: PartResult, /) -> None:
    """Write down what a worker tells of a part, after it was staged, in one step.

    A part that cannot be written down is read again by a run that resumes this one: no reason to fail.
    """
    with contextlib.suppress(OSError, TypeError):
        pairs = zip(folders, result.staged, strict=True)
        sizes = [{p: (at / p).stat().st_size for file in one.files for p, _ in _paths(file)} for at, one in pairs]
        _put(folders[0] / FOLDER / f"{result.part.key()}.json", to_json({"result": result, "sizes": sizes}))


def run_kept(task: PartTask, /) -> PartResult:
    """Read one part, stage it and write down that it is whole.

    Raises:
        EtlError: As `run_part`.
    """
    result = run_part(task)
    if task.records:
        keep([s.folder for s in task.sessions if isinstance(s, DatasetSession)], result)
    return result


def _put(path: Path, data: bytes) -> None:
    """In one step; not durable, since whoever reads it looks at the files as well."""
    fresh = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
    fresh.write_bytes(data)
    fresh.replace(path)


def found(folders: Sequence[Path], plan: JobPlan, at: Snapshot, parts: Sequence[Partition], /) -> Found:
    """The finished parts of an earlier run's stages that this job can keep; everything else in them is removed.

    Args:
        folders: The stages, one for each dataset of the job.
        plan: Of this run.
        at: The snapshot of this run.
        parts: Of this run.
    """
    kept = _found(folders, plan, at, {part.key(): part for part in parts})
    results = kept.results
    for index, folder in enumerate(folders):
        wanted = {path for one in results.values() for file in one.staged[index].files for path, _ in _paths(file)}
        _remove_others(folder, wanted)
    why = kept.why_not or ("" if results else "no part of it was finished")
    return replace(kept, results=results, why_not=why)


def told(found: Found, run_id: str, plan: JobPlan, parts: int, /) -> list[Mapping[str, object]]:
    """What the user should know of what was taken up."""
    title = plan.source.title
    if not found.results:
        return [{"code": "resumed", "text": f"all parts of {title} were read again: {found.why_not}"}]
    text = f"{len(found.results)} of {parts} parts of {title} are those of run {run_id}"
    warnings: list[Mapping[str, object]] = [{"code": "resumed", "count": len(found.results), "text": text}]
    if found.moments:
        text = f"2 snapshots: parts of {title} were kept from that of run {run_id}, since it is declared frozen"
        warnings.append({"code": "snapshots", "text": text})
    return warnings


def forget(folder: Path, /) -> None:
    """Remove the records: the parts are about to be published."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def any_kept(folder: Path, /) -> bool:
    """Whether a finished part is recorded there."""
    return any(path.name != JOB for path in (folder / FOLDER).glob("*.json"))


def fingerprint(plan: JobPlan, /) -> dict[str, str]:
    """What must be equal for a part to be the same: name → SHA-256. The cut is in the keys of the parts."""
    job = plan.job
    query = plan.source.query
    endpoint = plan.source.endpoint
    said: dict[str, object] = {
        "version": version("cuetl"),
        "code": _code(plan.steps),
        "source": [endpoint.display(), endpoint.user, plan.source.title],
        "query": replace(query, run_id=""),
        "schema": [[(f.name, str(f.type), f.nullable) for f in one] for one in (plan.arriving, plan.written)],
        "sinks": [[str(w.target), w.format, w.mode, w.options, w.checks] for w in job.writes],
    }
    return {name: hashlib.sha256(canonical_json(_plain(value))).hexdigest() for name, value in said.items()}


def _found(folders: Sequence[Path], plan: JobPlan, at: Snapshot, parts: Mapping[str, Partition]) -> Found:
    records = folders[0] / FOLDER
    try:
        job = from_json((records / JOB).read_bytes())
        before, position = dict(job["fields"]), str(job["position"])
    except (OSError, ValueError, KeyError, TypeError):
        return Found({}, "no part of it was finished")
    now = fingerprint(plan)
    differing = [_WORDS[name] for name in now if before.get(name) != now[name]]
    if differing:
        verb = "differs" if len(differing) == 1 else "differ"
        return Found({}, f"{' and '.join(differing)} {verb} from that run's")
    proved = plan.source.capabilities.position_proves and position != "" and position == at.position
    if not (proved or plan.job.read.frozen):
        if plan.source.capabilities.position_proves:
            return Found({}, "the source was written to since")
        return Found({}, "this source cannot prove that its rows are unchanged, and is not declared frozen")
    results = dict(_read(records, parts, folders))
    return Found(results, "", moments=bool(results) and not proved)


def _read(records: Path, parts: Mapping[str, Partition], folders: Sequence[Path]) -> Iterator[tuple[str, PartResult]]:
    for path in records.glob("*.json"):
        part = parts.get(path.stem)
        if part is None:
            continue
        try:
            record = from_json(path.read_bytes())
            result, sizes = record["result"], record["sizes"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(result, PartResult) and result.part.key() == path.stem and _whole(folders, result, sizes):
            staged = tuple(replace(one, part=part) for one in result.staged)
            yield path.stem, replace(result, part=part, staged=staged)


def _whole(folders: Sequence[Path], result: PartResult, sizes: Sequence[Mapping[str, int]]) -> bool:
    """Whether every file that a part was staged to is there, byte for byte where its hash is known."""
    if not len(result.staged) == len(folders) == len(sizes):
        return False
    return all(
        _same(folder / path, known.get(path), sha256)
        for folder, staged, known in zip(folders, result.staged, sizes, strict=True)
        for file in staged.files
        for path, sha256 in _paths(file)
    )


def _same(path: Path, size: int | None, sha256: str) -> bool:
    try:
        if path.stat().st_size != size:
            return False
        if not sha256:
            return True
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _paths(file: StagedFile) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of a staged file and of those that go with it; "": a sorted run, which is not hashed."""
    members, text, fences = (file.facts.get(name) for name in ("members", "text_file", "fences"))
    if isinstance(members, dict):
        beside = list(members.values())
    else:
        yield file.path, file.sha256
        beside = []
    for one in [*beside, *([text] if isinstance(text, dict) else [])]:
        yield str(one["path"]), str(one["sha256"])
    if isinstance(fences, str):
        yield fences, ""


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Remove what no kept part has: files of attempts that did not end, and records that are of no use."""
    for name in _STORAGE.list(folder):
        if name not in wanted and not name.startswith("."):
            (folder / name).unlink(missing_ok=True)
    forget(folder)


def _code(steps: Steps | None) -> object:
    """Every module below the folder of the function's file that is loaded, by its bytes."""
    if steps is None or steps.function is None:
        return None
    ref = steps.function
    folder = Path(ref.file).parent
    loaded = {str(getattr(one, "__file__", None) or "") for one in list(sys.modules.values())}
    files = sorted(f for f in loaded if f.endswith(".py") and Path(f).is_relative_to(folder) and not is_foreign(f))
    digests = {str(Path(f).relative_to(folder)): hashlib.sha256(Path(f).read_bytes()).hexdigest() for f in files}
    return [
        ref.name,
        ref.sha256,
        digests if ref.file else {},
        [repr(one) for one in steps.prepare],
        _plain(dict(steps.figures)),
    ]


def _plain(value: object) -> object:
    """A value of options as JSON has it; whatever has no form is its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, frozenset | set):
        return sorted(str(one) for one in value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
