"""The S3 server of a test session, started when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import s3 as servers
from tests.servers.process import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3 import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server: SeaweedFS from packages."""
    if servers.program() is None:
        unavailable("s3", "no SeaweedFS is in .servers: run 'make test-heavy'")
    with servers.server() as server:
        yield server
