"""The demo's shop, made small."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from etl.cli.demo import build

if TYPE_CHECKING:
    from pathlib import Path


def few_orders(shop: Path) -> None:
    """Build the demo's shop with the orders of every 41st user: 4248 of them, of 461 users."""
    build(shop)
    with closing(sqlite3.connect(shop)) as database:
        database.execute("delete from orders where user_id % 41")
        database.commit()
