"""What an import may cost: the light parts pull in no frame library, no engine, no compiler and no driver."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

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
    ]
)
DRIVER_FILES = frozenset(
    [
        "connectors.generic_sql",
        "connectors.postgresql.connector",
        "etl.engine.clusters.local_cpu",
        "etl.engine.clusters.remote",
        "etl.engine.dask_client",
    ]
)
"""Modules whose work is a driver's, Dask's or numba's: imported only when that work is asked for."""

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


def test_importing_every_module_but_the_driver_files_is_light() -> None:
    names = [name for name in modules() if name not in DRIVER_FILES]
    assert imported_by(names) & HEAVY == set()


def test_the_list_of_driver_files_is_no_longer_than_it_must_be() -> None:
    assert set(modules()) >= DRIVER_FILES
    assert {name for name in DRIVER_FILES if not imports_of(name) & HEAVY} == set()


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert imported_by(["etl.cli.main"]) & (HEAVY | {"pyarrow", "numpy"}) == set()
