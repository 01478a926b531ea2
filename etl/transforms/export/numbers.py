"""Steps on numbers as nodes of a graph: double inside, rounded once where the step itself rounds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.transforms.bins import in_unit
from etl.transforms.constants import constant_of, number_of
from etl.transforms.export.conversions import converted
from etl.transforms.export.draft import Blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl.transforms.base import State
    from etl.transforms.bins import Bucketize, QuantileBins
    from etl.transforms.bounds import Clip, Winsorize
    from etl.transforms.casts import Cast
    from etl.transforms.curves import Log1p
    from etl.transforms.export.draft import Draft, Wire
    from etl.transforms.export.graph import Term
    from etl.transforms.fill import FillNull
    from etl.transforms.scale import MaxAbs, MinMax, Robust, Standardize

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def standardize(draft: Draft, step: Standardize, figures: State) -> None:
    """(x - mean) / std."""
    if step.by is not None:
        raise Blocked(f"by={step.by!r}: figures of each key are not exported")
    for name in step.columns:
        apart, std = draft.minus(name, figures[name]), figures[name]["std"]
        draft.narrow(name, apart / std if std else draft.level(apart, 0.0))


def min_max(draft: Draft, step: MinMax, figures: State) -> None:
    """(x - least) / width, between low and high."""
    for name in step.columns:
        apart, width = draft.minus(name, figures[name]), figures[name]["width"]
        scaled = apart / width * (step.high - step.low) + step.low if width else draft.level(apart, step.low)
        if step.clip:
            scaled = _clipped(draft, scaled, step.low, step.high)
        draft.narrow(name, scaled)


def max_abs(draft: Draft, step: MaxAbs, figures: State) -> None:
    """X / the greatest absolute value."""
    for name in step.columns:
        wide, most = draft.real(name), figures[name]["max_abs"]
        draft.narrow(name, wide / most if most else draft.level(wide, 0.0))


def robust(draft: Draft, step: Robust, figures: State) -> None:
    """(x - median) / range."""
    for name in step.columns:
        apart, width = draft.minus(name, figures[name]), figures[name]["range"]
        draft.narrow(name, apart / width if width else draft.level(apart, 0.0))


def log1p(draft: Draft, step: Log1p, figures: State) -> None:
    """log(1 + x): ONNX has the logarithm alone, so what 1 + x rounds away is given back as a factor (Kahan)."""
    del figures
    for name in step.columns:
        wide = draft.real(name)
        draft.refuse(wide <= -1.0, draft.wire(name).valid)
        more = wide + 1.0
        lost = (more == 1.0) | more.infinite
        exact = more.apply("Log") * (wide / (more - 1.0))
        draft.narrow(name, draft.graph.where(lost, wide, exact))


def clip(draft: Draft, step: Clip, figures: State) -> None:
    """Values within bounds of the column's own type."""
    del figures
    for name in step.columns:
        field = draft.wire(name).field
        bounds = (None if one is None else constant_of(one, field, "Clip") for one in (step.low, step.high))
        _bounded(draft, name, *bounds)


def winsorize(draft: Draft, step: Winsorize, figures: State) -> None:
    """Values within two quantiles."""
    for name in step.columns:
        known = (figures[name][one] for one in ("low", "high"))
        _bounded(draft, name, *(Decimal(one) if isinstance(one, str) else one for one in known))


def bucketize(draft: Draft, step: Bucketize, figures: State) -> None:
    """Between how many edges."""
    del figures
    for name in step.columns:
        _binned(draft, name, step.edges, right=step.right)


def quantile_bins(draft: Draft, step: QuantileBins, figures: State) -> None:
    """Between how many quantiles."""
    for name in step.columns:
        _binned(draft, name, figures[name]["edges"], right=True)


def fill_null(draft: Draft, step: FillNull, figures: State) -> None:
    """A value where there is none."""
    for name in step.columns:
        wire = draft.wire(name)
        if step.indicator is not None:
            draft.put(step.indicator, _absent(draft, wire.valid))
        if wire.valid is None:
            draft.put(name, wire.term)
            continue
        value = _unit(step.value_in(wire.field, figures), wire)
        draft.put(name, draft.graph.where(wire.valid, wire.term, value))


def null_indicator(draft: Draft, step: Any, figures: State) -> None:
    """Where there is no value."""
    del figures
    for old, new in zip(step.columns, step.writes, strict=True):
        draft.put(new, _absent(draft, draft.wire(old).valid))


def cast(draft: Draft, step: Cast, figures: State) -> None:
    """Another type."""
    del figures
    for name in step.columns:
        wire = draft.wire(name)
        if step.dtype == "string":
            draft.put(name, _text(draft, wire.term, unsigned=pa.types.is_uint64(wire.field.type)), wire.valid)
            continue
        policy = "exact" if step.dtype == "bool" else step.cast
        made = converted(draft, wire, step.dtype, policy)
        kept = made if made.kind in ("bool", "float32", "float64") else made.cast("int64")
        draft.put(name, kept, wire.valid)


def _absent(draft: Draft, valid: Term | None) -> Term:
    return draft.rows == 0 if valid is None else ~valid


def _text(draft: Draft, term: Term, *, unsigned: bool) -> Term:
    if term.kind == "string":
        return term
    if term.kind == "bool":
        return draft.graph.where(term, "true", draft.graph.constant("false", "string"))
    return (term.cast("uint64") if unsigned else term).cast("string")


def _unit(value: Any, wire: Wire) -> Any:
    """A value of the column's own type as its term holds it."""
    if isinstance(value, Decimal):
        return int(Fraction(value) * wire.unit)
    found: Any = value if isinstance(value, str) else number_of(value)
    # Terms hold uint64 by its bits.
    return found - (1 << 64) if pa.types.is_uint64(wire.field.type) and found > _MOST else found


def _clipped(draft: Draft, term: Term, low: Any, high: Any) -> Term:
    """NaN stays."""
    if low is not None:
        term = draft.graph.where(term < low, low, term)
    return term if high is None else draft.graph.where(term > high, high, term)


def _bounded(draft: Draft, name: str, low: Any, high: Any) -> None:
    draft.real(name)  # refuses what it cannot calculate with
    wire = draft.wire(name)
    edges = [None if one is None else _unit(one, wire) for one in (low, high)]
    draft.put(name, _clipped(draft, wire.term, *edges), wire.valid)


def _binned(draft: Draft, name: str, edges: Sequence[Any], *, right: bool) -> None:
    """How many edges are below a value, or at it unless `right`."""
    graph, wide, wire = draft.graph, draft.real(name), draft.wire(name)
    edges = [in_unit(one, wire.field.type, right=right) for one in edges]
    always = 0
    if wire.term.kind in ("float32", "float64"):
        draft.refuse(wide.nan, wire.valid)
        inner, values = list(edges), wide
    else:
        always = sum(one < _LEAST for one in edges)
        inner, values = [one for one in edges if _LEAST <= one <= _MOST], wire.term.cast("int64")
    if not inner:
        draft.put(name, draft.rows * always, wire.valid)
        return
    column = graph.node("Unsqueeze", [values, graph.constant([1], "int64")], values.kind)
    limits = graph.constant([inner], values.kind)
    passed = (column > limits if right else column >= limits).cast("int64")
    count = graph.node("ReduceSum", [passed, graph.constant([1], "int64")], "int64", {"keepdims": 0})
    draft.put(name, count + always, wire.valid)
