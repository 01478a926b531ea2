"""Columns as other dtypes in a graph: the rules of `etl.tensors.cast`, and of `Cast` for decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from etl.transforms.export.draft import Blocked

if TYPE_CHECKING:
    from etl.transforms.export.draft import Draft, Wire
    from etl.transforms.export.graph import Kind, Term

_FLOATS: Final = {"float16": 3, "float32": 6, "float64": 15}
"""Dtype → decimal digits that come back from it."""


def converted(draft: Draft, wire: Wire, dtype: Kind, policy: str, /) -> Term:
    """A column's values in a dtype; rows whose value the policy does not carry are refused.

    Args:
        draft: The graph.
        wire: Numbers or bools.
        dtype: What they become.
        policy: exact, round or saturate.

    Raises:
        Blocked: ONNX Runtime cannot do it.
    """
    kind, term = wire.field.type, wire.term
    if pa.types.is_uint64(kind):
        if dtype == "uint64":
            return term.cast("uint64")
        raise Blocked(f"column {wire.field.name} is uint64, which ONNX Runtime does not calculate with")
    if term.kind == "bool":
        return term.cast(dtype)
    if dtype in _FLOATS:
        return _as_float(draft, wire, dtype, policy)
    if term.kind == "int64":
        whole = term if wire.unit == 1 else _nearest(draft, wire, policy)
        made = _within(draft, wire, whole, dtype, policy)
    else:
        made = _as_whole(draft, wire, dtype, policy)
    return made == 1 if dtype == "bool" else made.cast(dtype)


def _limits(dtype: Kind) -> tuple[int, int]:
    """The least and the greatest integer of a dtype; 0 and 1 of bool."""
    return (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _as_float(draft: Draft, wire: Wire, dtype: Kind, policy: str) -> Term:
    term, kind = wire.term, wire.field.type
    if wire.decimal:
        wide = term.cast("float64") / float(wire.unit)
        made = wide.cast(dtype)
        if policy == "exact" and wire.decimal.precision > _FLOATS[dtype]:
            back = made.cast("float64") * float(wire.unit)
            draft.refuse(back.apply("Round").cast("int64") != term, wire.valid)
        return _finite(draft, wire, made, wide, dtype, policy)
    made = term.cast(dtype)
    if term.kind == "int64":
        seen = made.cast("float64")
        if policy == "exact" and _may_round(kind, dtype):
            draft.refuse((seen.cast("int64") != term) | (seen >= 2.0**63), wire.valid)
        return _finite(draft, wire, made, term.cast("float64"), dtype, policy) if dtype == "float16" else made
    if made is term or dtype == "float64":
        return made
    if policy == "exact":
        seen, wide = made.cast("float64"), term.cast("float64")
        draft.refuse((seen != wide) & wide.finite, wire.valid)
    return _finite(draft, wire, made, term, dtype, policy)


def _may_round(kind: pa.DataType, dtype: Kind) -> bool:
    """Whether integers of the type are not all floats of the dtype."""
    bits = {"float16": 11, "float32": 24, "float64": 53}[dtype]
    return not (pa.types.is_integer(kind) and kind.bit_width <= bits)


def _finite(draft: Draft, wire: Wire, made: Term, wide: Term, dtype: Kind, policy: str) -> Term:
    """Floats in whose place no infinity came."""
    if dtype == "float64":
        return made
    seen = made.cast("float32")
    real = wide.kind in ("float32", "float64")
    over = seen.infinite & ~wide.infinite if real else seen.infinite
    if policy != "saturate":
        draft.refuse(over, wire.valid)
        return made
    most = float(np.finfo(dtype).max)
    edge = draft.graph.where(seen < 0.0, -most, draft.graph.constant(most, "float32"))
    return draft.graph.where(over, edge, seen).cast(dtype)


def _as_whole(draft: Draft, wire: Wire, dtype: Kind, policy: str) -> Term:
    """Floats as integers, int64: half to even, NaN never."""
    wide = wire.term.cast("float64")
    if dtype == "uint64":
        raise Blocked("floats become no uint64 in ONNX Runtime without loss")
    low, high = _limits(dtype)
    near = wide.apply("Round")
    under, over = near < float(low), near >= float(high + 1)
    bad = wide.nan
    if policy == "exact":
        bad = bad | (near != wide)
    if policy != "saturate":
        bad = bad | under | over
    draft.refuse(bad, wire.valid)
    inside = draft.graph.where(under | over | wide.nan, 0.0, near).cast("int64")
    if policy == "saturate":
        inside = draft.graph.where(over, high, draft.graph.where(under, low, inside))
    return inside


def _nearest(draft: Draft, wire: Wire, policy: str) -> Term:
    """Decimals as whole numbers: half away from zero."""
    digits, unit = wire.term, wire.unit
    rest = digits.apply("Abs") % unit
    if policy == "exact":
        draft.refuse(rest != 0, wire.valid)
    whole = digits.apply("Abs") // unit + (rest * 2 >= unit)
    return whole * digits.apply("Sign")


def _within(draft: Draft, wire: Wire, whole: Term, dtype: Kind, policy: str) -> Term:
    """Whole numbers within the limits of a dtype, int64."""
    low, high = _limits(dtype)
    high = min(high, (1 << 63) - 1)
    least, most = range_of(wire.field.type)
    under = whole < low if low > least else None
    over = whole > high if high < most else None
    for beyond, edge in ((under, low), (over, high)):
        if beyond is None:
            continue
        if policy == "saturate":
            whole = draft.graph.where(beyond, edge, whole)
        else:
            draft.refuse(beyond, wire.valid)
    return whole


def range_of(kind: pa.DataType, /) -> tuple[int, int]:
    """The least and the greatest value of a column in the unit of its term."""
    types = pa.types
    if types.is_integer(kind) and not types.is_uint64(kind):
        signed = types.is_signed_integer(kind)
        bits = kind.bit_width - (1 if signed else 0)
        return (-(1 << bits) if signed else 0), (1 << bits) - 1
    if types.is_date(kind):
        return -(1 << 31), (1 << 31) - 1
    if types.is_time(kind):
        return 0, 86_400_000_000 - 1
    if types.is_decimal(kind):
        return -(10**kind.precision) + 1, 10**kind.precision - 1
    return -(1 << 63), (1 << 63) - 1
