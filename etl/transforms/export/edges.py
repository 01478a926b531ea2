"""The rows that a model is proved with: golden ones, and for every column values at its edges."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from etl.transforms.asking import Input
    from etl.transforms.host import Values
    from etl.transforms.serving import Preprocessor

_VOCABULARY: Final = 64
"""So many values of a vocabulary are tried."""
_WIDE: Final = Context(prec=80)
_TEXTS: Final = ("", " ", "\x00", "a\nb", "é", "NULL", "nan", "\U0010ffff")
_REALS: Final = (0.0, -0.0, 0.5, 1.5, 2.5, 1.0, -1.0, -0.5, 1e-300, 5e-324, 1e10, 1e39, -1e39, 1.7976931348623157e308)
_DAYS: Final = (date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2000, 2, 29), date(9999, 12, 31))
_MICRO: Final = timedelta(microseconds=1)


def edge_rows(prep: Preprocessor, golden: pa.Table | None, /) -> tuple[list[str], dict[str, Values]]:
    """Rows of the columns that are asked for, and of each the column whose edge it tries ("" for a golden one).

    A row has an edge in one column and is the first golden one in the others, so that no edge hides another; the last
    is NULL wherever it may be.

    Args:
        prep: The fit.
        golden: Rows that it was fitted on; None: there are none.
    """
    count = 0 if golden is None else golden.num_rows
    usual = {
        one.field.name: golden.column(one.field.name).to_pylist()
        if golden is not None and count
        else [next(_first(one))]
        for one in prep.inputs
    }
    tried = {one.field.name: _edges(one, prep) for one in prep.inputs}
    found: dict[str, Values] = {}
    for one in prep.inputs:
        name, rows = one.field.name, list(usual[one.field.name][:count])
        base = usual[name][0]
        for other, edges in tried.items():
            rows += edges if other == name else [base] * len(edges)
        rows.append(None if one.field.nullable else base)
        found[name] = one.array(pa.chunked_array([pa.array(rows, _target(one), from_pandas=False)]))
    return [*[""] * count, *(name for name, edges in tried.items() for _ in edges), ""], found


def _target(one: Input) -> Any:
    kind: Any = one.field.type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _first(one: Input) -> Iterator[Any]:
    """Values of the column's type that Arrow takes."""
    for value in _by_type(_target(one)):
        if _fits(value, _target(one)):
            yield value


def _edges(one: Input, prep: Preprocessor) -> list[Any]:
    """Values at the edges of a column: of its type, and of what its steps were given and fitted."""
    kind = _target(one)
    wanted = [*_by_type(kind), *_near(_said(prep, one.field.name), kind)]
    found: dict[str, Any] = {repr(value): value for value in wanted if _fits(value, kind)}
    return [*found.values(), *([None] if one.field.nullable else [])]


def _fits(value: Any, kind: Any) -> bool:
    try:
        pa.array([value], kind, from_pandas=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _by_type(kind: Any) -> list[Any]:
    types = pa.types
    if types.is_boolean(kind):
        return [False, True]
    if types.is_integer(kind):
        bits = kind.bit_width - (1 if types.is_signed_integer(kind) else 0)
        return [0, 1, -1, 2, (1 << 24) + 1, (1 << bits) - 1, -(1 << bits)]
    if types.is_floating(kind):
        return [*_REALS, math.inf, -math.inf, math.nan]
    if types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _WIDE)
        return [Decimal(0), Decimal(1).scaleb(-kind.scale), Decimal(1), Decimal("0.5"), most, most.copy_negate()]
    if types.is_date(kind):
        return list(_DAYS)
    if types.is_timestamp(kind):
        zone = None if kind.tz is None else UTC
        moments = [datetime(day.year, day.month, day.day, tzinfo=zone) for day in _DAYS]
        return [*moments, *(one - _MICRO for one in moments[1:]), moments[3] + timedelta(hours=13, microseconds=7)]
    if types.is_time(kind):
        return [time(0), time(13, 1, 2), time(23, 59, 59), time(23, 59, 59, 999_999)]
    if types.is_duration(kind):
        return [timedelta(0), _MICRO, -_MICRO, timedelta(days=1)]
    return list(_TEXTS)


def _said(prep: Preprocessor, name: str) -> Iterator[Any]:
    """Values in the arguments and figures of the steps that act on a column under this name."""
    for place, step in enumerate(prep.plan.steps):
        if name not in step.reads:
            continue
        for said in ("value", "low", "high", "edges"):
            yield from _values(getattr(step, said, None))
        yield from _values(prep.states.get(place, {}).get(name))


def _values(said: Any) -> Iterator[Any]:
    if isinstance(said, pa.Table):
        yield from said.column("value").slice(0, _VOCABULARY).to_pylist() if "value" in said.column_names else ()
    elif isinstance(said, dict):
        for one in said.values():
            yield from _values(one)
    elif isinstance(said, list | tuple):
        for one in said[:_VOCABULARY]:
            yield from _values(one)
    elif said is not None:
        yield said


def _near(said: Iterable[Any], kind: Any) -> Iterator[Any]:
    """The values, and of numbers those beside them."""
    types = pa.types
    for value in said:
        yield value
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
            continue
        if types.is_floating(kind):
            real = float(value)
            yield from (real, math.nextafter(real, -math.inf), math.nextafter(real, math.inf))
        elif types.is_integer(kind):
            yield from (math.floor(value), math.floor(value) + 1, math.floor(value) - 1)
        elif types.is_decimal(kind):
            steps = math.floor(Fraction(value) * 10**kind.scale)
            yield from (Decimal(one).scaleb(-kind.scale, _WIDE) for one in (steps, steps + 1))
