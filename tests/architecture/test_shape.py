"""Rules of the house that no linter can hold: the error tree, signatures, the public door, what files may say."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import subprocess
from pathlib import Path

import pytest

from etl.core.errors import EtlError
from tests.architecture.test_imports import modules

ROOT = Path(__file__).resolve().parents[2]


def exception_classes() -> list[type[BaseException]]:
    """Every exception class that a module of ours defines, but private ones, which stay in their module."""
    found: dict[str, type[BaseException]] = {}
    for name in modules():
        for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            ours = kind.__module__.partition(".")[0] in ("etl", "connectors") and not kind.__name__.startswith("_")
            if ours and issubclass(kind, BaseException):
                found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return [found[name] for name in sorted(found)]


def tracked() -> list[str]:
    """Paths of files under version control, relative to the root."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.split("\0") if path and (ROOT / path).is_file()]


def test_every_exception_class_descends_from_the_one_root() -> None:
    classes = exception_classes()
    assert len(classes) > 15
    assert [kind for kind in classes if not issubclass(kind, EtlError)] == []


def test_every_error_survives_pickling_with_all_it_knows() -> None:
    for kind in exception_classes():
        assert issubclass(kind, EtlError)
        error = kind("part 3 failed", hint="Try again.", partition=3, column="price")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert (str(again), again.hint, again.context) == (str(error), error.hint, error.context)
        assert (again.code, again.exit_code, again.retry) == (kind.code, kind.exit_code, kind.retry)


def test_error_codes_are_unique() -> None:
    codes = [kind.code for kind in exception_classes() if issubclass(kind, EtlError)]
    assert sorted(codes) == sorted(set(codes))


def test_no_public_signature_has_open_keywords() -> None:
    open_ended = []
    for name in modules():
        path = ROOT / (name.replace(".", "/") + ".py")
        path = path if path.exists() else ROOT / name.replace(".", "/") / "__init__.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
                continue
            errors_context = name == "etl.core.errors" and node.args.kwarg.arg == "context"
            if name in ("etl.api", "etl.testing") and node.args.kwarg.arg == "params":
                continue  # the parameters of a pipeline, which its own definition holds them to
            if not node.name.startswith("_") and not errors_context:
                open_ended.append(f"{name}.{node.name}")
            if node.name == "__init__" and not errors_context:
                open_ended.append(f"{name}:{node.lineno}")
    assert open_ended == []


def test_the_public_door_opens_what_type_checkers_see() -> None:
    door = importlib.import_module("etl")
    typed: set[str] = set()
    for node in ast.parse((ROOT / "etl/__init__.py").read_text()).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typed |= {
                alias.asname or alias.name
                for inner in node.body
                if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("etl")
                for alias in inner.names
            }
    public = set(getattr(door, "__all__", ())) - {"__version__"}
    assert public == typed
    assert {name for name in public if not hasattr(door, name)} == set()


SAID = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:work|root|Users|home/[a-z]\w*|opt/(?:pypi|wheels))/"),
    "a private host": re.compile(r"\b[\w-]+\.(?:internal|corp|lan)\b"),
    "how the work was organised": re.compile(
        r"shared/(?:design|cases|checks|bench)|\bissues? (?:no\. ?)?\d+\b", re.IGNORECASE
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_no_tracked_file_names(what: str) -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    found = []
    for path in tracked():
        if path == here or path.endswith((".keep", ".parquet", ".safetensors")):
            continue
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
            if SAID[what].search(line):
                found.append(f"{path}:{number}: {line.strip()[:100]}")
    assert found == []


def test_folders_that_are_no_packages_have_no_package_marker() -> None:
    folders = ("tests/", "sql/", "pipelines/", "docker/", "benchmarks/")
    assert [path for path in tracked() if path.startswith(folders) and path.endswith("__init__.py")] == []


def test_both_packages_say_that_they_are_typed() -> None:
    assert {"etl/py.typed", "connectors/py.typed"} <= set(tracked())


def test_the_decorator_is_still_one_when_every_module_was_imported() -> None:
    for name in modules():
        importlib.import_module(name)
    door = importlib.import_module("etl")
    assert callable(door.pipeline)
    assert door.pipeline.__module__ == "etl.api"
