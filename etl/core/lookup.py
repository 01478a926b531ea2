"""Things found by name, loaded when asked for: SQL files of the distribution, and plug-in modules of a folder."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from pathlib import Path

from etl.core.errors import ConfigError

FORMATS = "etl.tensors.formats"
"""The folder of dataset formats: `--format NAME` is its module NAME, or a NAME in some module's `FORMATS`."""


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


def plugin(package: str, table: str, name: str, /, *, what: str) -> object:
    """What a module of `package` exports under `name` in its mapping `table`; the module called `name` is tried first.

    >>> plugin("etl.core", "NOTHING", "no_such", what="format")
    Traceback (most recent call last):
    etl.core.errors.ConfigError: unknown format 'no_such'

    Raises:
        ConfigError: No module of the package has it; `what` and the name are given.
    """
    known = modules(package)
    for module in sorted(known, key=lambda one: one != name):
        exported = getattr(importlib.import_module(f"{package}.{module}"), table, {})
        if name in exported:
            found: object = exported[name]
            return found
    raise ConfigError(f"unknown {what} {name!r}")


def format_writer(name: str, /) -> object:
    """The entry of a dataset format: what its module's `FORMATS` holds under that name.

    Raises:
        ConfigError: There is no such format.
    """
    return plugin(FORMATS, "FORMATS", name, what="format")
