"""What a harness gives to the conformance suite: one table `t(id, k, v)` in a real store, filled at will."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from connectors.base import Query, Source

Row: TypeAlias = tuple[int, int | None, str | None]
"""id (unique, not NULL), k (bigint, may be NULL), v (text, may be NULL)."""


@dataclass(frozen=True, slots=True)
class Store:
    """One store under test.

    Attributes:
        fill: Make table `t` anew with exactly these rows.
        source: A source of the connector under test.
        cuts_by: A column that the store can cut by; "" where it reads as one part.
        insert: Add a row while others read; None where nothing can change under a reader.
        takes_sql: Whether `Query.sql` is understood.
        fill_decimals: Make table `d(id, n)` anew, n a decimal of 30 digits, 10 of them fraction, ids from 1 on; NaN is
            kept. For connectors that promise `decimal_floats`, None for the others.
    """

    fill: Callable[[Sequence[Row]], None]
    source: Callable[[Query], Source]
    cuts_by: str
    insert: Callable[[Row], None] | None
    takes_sql: bool = True
    fill_decimals: Callable[[Sequence[Decimal | None]], None] | None = None
