"""Things found by name: SQL files and plug-ins."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from etl.core import lookup
from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_sql_root_is_a_folder_with_the_demo() -> None:
    assert (lookup.sql_root() / "demo").is_dir()


def test_a_missing_sql_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"demo/no_such\.sql"):
        lookup.sql_text("demo/no_such.sql")


def test_modules_are_listed_without_being_imported() -> None:
    assert {"lookup", "urls"} <= set(lookup.modules("etl.core"))
    assert lookup.modules("json.decoder") == []


def test_a_plugin_is_found_in_the_module_of_its_name_or_in_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "plugins_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("TABLE = {'one': 1, 'other': 3}")
    (package / "two.py").write_text("TABLE = {'two': 2, 'one': 'not this'}")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    found = [lookup.plugin("plugins_of_a_test", "TABLE", name, what="thing") for name in ("one", "two", "other")]
    assert found == [1, 2, 3]
    with pytest.raises(ConfigError, match="unknown thing 'three'"):
        lookup.plugin("plugins_of_a_test", "TABLE", "three", what="thing")
