"""Bare numerics that do not fit decimal128(38,18): measured once in the snapshot, then read with a wider type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.postgresql import statements
from connectors.postgresql.columns import Kind
from connectors.postgresql.types import widened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.base import Query
    from connectors.postgresql.columns import ColumnPlan
    from connectors.postgresql.describe import Description
    from connectors.postgresql.session import Session
    from connectors.postgresql.types import Column

_MIN_SCALE: Final = 130000
_INFINITY: Final = 140000


def measure(session: Session, described: Description, query: Query, /) -> dict[str, str]:
    """Column → the type that holds its values, in the words of `Query.types`, for each open numeric of the query.

    Trailing zeros do not count; NaN and infinities are left to the policy for special values.
    """
    scalars = [c for c in described.columns if c.plan.open]
    arrays = [c for c in described.columns if c.plan.kind is Kind.ARRAY and c.plan.children[0].open]
    found: dict[str, str] = {}
    if scalars:
        found |= _measured(session, described, query, scalars, "{name}")
    for one in arrays:
        found |= _measured(session, described, query, [one], "unnest({name})")
    return found


def _measured(
    session: Session, described: Description, query: Query, columns: Sequence[Column], form: str
) -> dict[str, str]:
    source = statements.select(described, query, statements.WHOLE, columns)
    names = [statements.name(c.name) for c in columns]
    values = ", ".join(f"{form.format(name=name)} as v{i}" for i, name in enumerate(names))
    wanted = ", ".join(_digits(f"v{i}", session.version) for i in range(len(names)))
    sql = f"select {wanted} from (select {values} from (\n{source}\n) as cuetl_q) as cuetl_v"  # noqa: S608 - quoted names, and the user's own query
    row = session.rows(sql, f"measuring the numerics {', '.join(c.name for c in columns)}")[0]
    found: dict[str, str] = {}
    for i, one in enumerate(columns):
        kind = widened(int(row[2 * i] or 0), int(row[2 * i + 1] or 0))
        words = f"decimal({kind.precision},{kind.scale})"  # type: ignore[attr-defined]
        depth = one.plan.depth if one.plan.kind is Kind.ARRAY else 0
        found[one.name] = "list(" * depth + words + ")" * depth
    return found


def _digits(value: str, version: int) -> str:
    """Most integer digits, and most fraction digits, of the finite values."""
    finite = f"{value} <> 'NaN'::numeric"
    if version >= _INFINITY:
        finite += f" and {value} < 'Infinity'::numeric and {value} > '-Infinity'::numeric"
    # The cases keep trunc() and min_scale() away from infinities, whatever the order of evaluation.
    whole = f"length(trunc(abs({value}))::text)"
    scale = f"min_scale({value})" if version >= _MIN_SCALE else f"length(rtrim(split_part({value}::text, '.', 2), '0'))"
    digits = f"max(case when {finite} and abs({value}) >= 1 then {whole} else 0 end)"
    return f"{digits}, max(case when {finite} then {scale} end)"


def noted(described: Description, names: Sequence[str], /) -> Description:
    """The description with the widened columns' notes."""

    def one(column: Column) -> Column:
        if column.name not in names:
            return column
        note = f"wider than decimal(38,18), measured in the snapshot: {_words(column.plan)}"
        return replace(column, field=replace(column.field, note=note))

    return replace(
        described,
        columns=tuple(one(c) for c in described.columns),
        everything=tuple(one(c) for c in described.everything),
    )


def _words(plan: ColumnPlan) -> str:
    inner = plan.children[0] if plan.kind is Kind.ARRAY else plan
    return f"decimal({inner.precision},{inner.scale})"
