"""Things found by name: SQL files of the distribution, and the modules of a folder."""

from __future__ import annotations

import importlib.util
import pkgutil
from functools import cache
from pathlib import Path

from etl.core.errors import ConfigError

FORMATS = "etl.tensors.formats"
"""The folder of dataset formats: `--format NAME` is its module NAME."""


@cache
def sql_root() -> Path:
    """The folder of SQL files: `etl/_sql` in an installed wheel, else `sql/` beside the checkout.

    Raises:
        ConfigError: Neither is there, which means a broken installation.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_sql", package.parent / "sql"):
        if folder.is_dir():
            return folder
    raise ConfigError(
        "the SQL files of cuETL are missing from its installation",
        hint="Run: pip install --force-reinstall cuetl",
    )


@cache
def sql_text(name: str, /) -> str:
    """The text of one SQL file, by its path below the root: `sql_text("demo/schema.sql")`.

    Raises:
        ConfigError: There is no such file; its name is given.
    """
    try:
        return (sql_root() / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the SQL file {name} is missing from cuETL's installation: {error.strerror}",
            hint="Run: pip install --force-reinstall cuetl",
        ) from error


def modules(package: str, /) -> list[str]:
    """The names of a package's modules, in order. The package is imported, its modules are not."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return sorted(m.name for m in pkgutil.iter_modules(spec.submodule_search_locations) if not m.name.startswith("_"))
