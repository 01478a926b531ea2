"""What an import may cost: the light parts pull in no frame library, no engine, no compiler and no driver."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = frozenset(
    [
        "pandas",
        "dask",
        "distributed",
        "numba",
        "llvmlite",
        "cudf",
        "rmm",
        "dask_cudf",
        "dask_cuda",
        "cupy",
        "psycopg",
        "psycopg2",
        "sqlalchemy",
        "pymysql",
        "duckdb",
        "pymongo",
        "redis",
        "torch",
        "jax",
        "tensorflow",
        "ml_dtypes",
    ]
)
DRIVERS = (
    "connectors.generic_sql",
    "connectors.postgresql",
    "etl.core.machine",
    "etl.core.native",
    "etl.engine.backends.pandas",
    "etl.engine.clusters",
    "etl.engine.dask_client",
    "etl.engine.whole",
    "etl.tensors.loops",
    "etl.tensors.sha256",
    "etl.tensors.shuffle_loops",
)
"""Modules, and packages with all that is in them, whose work is a driver's, Dask's or a compiler's: they are imported
only when that work is asked for, by name."""

PROBE = """
import importlib, json, sys
for name in {names}:
    importlib.import_module(name)
print(json.dumps(sorted({{module.partition(".")[0] for module in sys.modules}})))
"""


def modules() -> list[str]:
    """Every module of the two packages, by its file."""
    names = []
    for package in ("etl", "connectors"):
        for path in sorted((ROOT / package).rglob("*.py")):
            words = path.relative_to(ROOT).with_suffix("").parts
            if "templates" not in words:
                names.append(".".join(words).removesuffix(".__init__"))
    return names


def imported_by(names: list[str]) -> set[str]:
    """The top-level packages in a fresh process that imported these modules."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(names=names)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def imports_of(module: str) -> set[str]:
    """The top-level packages that a module's file names in imports that run, wherever they stand."""
    path = ROOT / (module.replace(".", "/") + ".py")
    path = path if path.exists() else ROOT / module.replace(".", "/") / "__init__.py"
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(path.read_text()))
    return found


def test_importing_etl_and_connectors_is_light() -> None:
    assert imported_by(["etl", "connectors"]) & (HEAVY | {"pyarrow", "numpy", "typer", "rich"}) == set()


def belongs(module: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one of these packages."""
    return any(module == place or module.startswith(f"{place}.") for place in places)


def test_importing_every_module_but_the_driver_files_is_light() -> None:
    names = [name for name in modules() if not belongs(name, DRIVERS)]
    assert imported_by(names) & HEAVY == set()


@pytest.mark.parametrize("place", DRIVERS)
def test_each_place_for_drivers_is_needed(place: str) -> None:
    inside = [name for name in modules() if belongs(name, (place,))]
    assert any(imports_of(name) & HEAVY or imported_by([name]) & HEAVY for name in inside), inside


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert imported_by(["etl.cli.main"]) & (HEAVY | {"pyarrow", "numpy"}) == set()
