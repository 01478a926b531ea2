"""Results of two engines side by side: rows as a multiset, or in order where it is promised, floats within a bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.values.replay import golden, result
from tests.values.transforms import TRANSFORMS, nulls, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from etl.engine.base import Backend
    from tests.values.transforms import Transform


def same(got: pa.Table, want: pa.Table, *, order: bool, close: float = 0.0) -> str:
    """Where the two differ; "" where they do not. NaN, NULL and -0.0 are three values apart from all others."""
    if got.schema.names != want.schema.names:
        return f"columns {got.schema.names} for {want.schema.names}"
    if got.num_rows != want.num_rows:
        return f"{got.num_rows} rows for {want.num_rows}"
    mine, theirs = got.to_pylist(), want.to_pylist()
    if not order:
        mine, theirs = sorted(mine, key=repr), sorted(theirs, key=repr)
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for name in want.schema.names:
            if not _equal(one[name], other[name], close):
                return f"row {number}, column {name}: {one[name]!r} for {other[name]!r}"
    return ""


def _equal(one: Any, other: Any, close: float) -> bool:
    if repr(one) == repr(other):
        return True
    both = isinstance(one, float) and isinstance(other, float)
    return both and close > 0 and math.isclose(one, other, rel_tol=close)


def against_golden(on: Backend, one: Transform) -> str:
    """What a transform gives on a backend, against what was kept from pandas; "" where it is the same."""
    for what, table, kept in zip(("rows", "NULLs"), (rows(), nulls()), golden(one), strict=True):
        try:
            made = result(on, one, table, kept.schema)
        except Exception as error:  # noqa: BLE001 - whatever the engine says is the finding
            return f"{what}: {type(error).__name__}: {str(error)[:200]}"
        differs = same(made, kept, order=one.order, close=one.close)
        if differs:
            return f"{what}: {differs}"
    return ""


def differences(on: Backend) -> list[str]:
    """One line for each transform that a backend answers otherwise, with the rows of the table that it stands for."""
    found = [(one, against_golden(on, one)) for one in TRANSFORMS]
    return [f"{one.name} (differences {_listed(one.differences)}): {said}" for one, said in found if said]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
