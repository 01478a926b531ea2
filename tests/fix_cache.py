"""A cache of fetched files for each test: none reads what another fetched, or writes into the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `$CUETL_CACHE` names."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CUETL_CACHE", str(folder))
    return folder
