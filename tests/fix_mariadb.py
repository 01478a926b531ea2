"""The MariaDB of a test session, started when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import mariadb as servers
from tests.servers.process import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mariadb import MariaServer


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A real MariaDB: the one the environment names, else a private one of the installed programs."""
    server = servers.given()
    if server is not None:
        yield server
        return
    if not servers.installed():
        unavailable("mariadb", "mariadbd is not installed: apt-get install mariadb-server")
    with servers.server() as server:
        yield server
