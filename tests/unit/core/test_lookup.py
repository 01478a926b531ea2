"""Things found by name: SQL files and modules."""

from __future__ import annotations

import pytest

from etl.core import lookup
from etl.core.errors import ConfigError


def test_the_sql_root_is_a_folder_with_the_demo() -> None:
    assert (lookup.sql_root() / "demo").is_dir()


def test_a_missing_sql_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"demo/no_such\.sql"):
        lookup.sql_text("demo/no_such.sql")


def test_modules_are_listed_without_being_imported() -> None:
    assert {"lookup", "urls"} <= set(lookup.modules("etl.core"))
    assert lookup.modules("json.decoder") == []
