"""Secrets that a test gave to this process are forgotten after it: the redactor would find their text in another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etl.core import secrets

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _forgotten_secrets() -> Iterator[None]:
    known = set(secrets._known)
    yield
    secrets._known.clear()
    secrets._known.update(known)
