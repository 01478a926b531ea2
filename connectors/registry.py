"""From a URL's scheme to a connector: a module of this package, an entry point, or any SQLAlchemy dialect."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

import connectors
from connectors import base
from etl.core.errors import ConfigError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from connectors.base import Connector

SPELLINGS = {"postgres": "postgresql", "mariadb": "mysql", "sqlite3": "sqlite"}
"""Second spellings of schemes."""

NOT_SCHEMES = frozenset({"base", "registry", "sqltext", "generic_sql"})
GROUP = "cuetl.connectors"


def schemes() -> list[str]:
    """The schemes of this package and of entry points."""
    own = [m.name for m in pkgutil.iter_modules(connectors.__path__) if m.name not in NOT_SCHEMES]
    return sorted({*own, *(e.name for e in entry_points(group=GROUP))})


def connector(scheme: str, /) -> Connector:
    """The connector of a scheme. Only the module asked for is imported.

    Raises:
        ConfigError: Nobody knows the scheme; the nearest one is named.
    """
    if getattr(base, "CONTRACT", None) != 1:
        raise ConfigError(
            "another distribution named connectors hides cuETL's",
            hint="Run: pip uninstall connectors; pip install --force-reinstall cuetl",
        )
    first = scheme.partition("+")[0]
    name = SPELLINGS.get(first, first)
    if name.isidentifier() and name not in NOT_SCHEMES and importlib.util.find_spec(f"connectors.{name}"):
        return cast("Connector", importlib.import_module(f"connectors.{name}").CONNECTOR)
    for entry in entry_points(group=GROUP):
        if entry.name in (scheme, name):
            return cast("Connector", entry.load())
    generic = importlib.import_module("connectors.generic_sql")
    if generic.knows(scheme):
        return cast("Connector", generic.CONNECTOR)
    raise ConfigError(f"unknown scheme {scheme!r}", hint=nearest(scheme, schemes(), what="known schemes"))
