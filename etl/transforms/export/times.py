"""Moments and dates as nodes of a graph: the calendar's own arithmetic, written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from etl.transforms.calendar import CLOCK, of_clock, of_days
from etl.transforms.export.draft import Blocked

if TYPE_CHECKING:
    from etl.transforms.ages import Age
    from etl.transforms.base import State
    from etl.transforms.dates import DateParts
    from etl.transforms.export.draft import Draft
    from etl.transforms.export.graph import Kind

_DAY: Final = 86_400_000_000
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def date_parts(draft: Draft, step: DateParts, figures: State) -> None:
    """Parts in UTC."""
    del figures
    if step.tz != "UTC":
        raise Blocked(f"tz={step.tz!r}: a graph has no zones but UTC")
    wire = draft.wire(step.column)
    kind, values = wire.field.type, wire.term
    days = values if pa.types.is_date(kind) else values // _DAY
    found: dict[str, Any] = of_days(days, tuple(part for part in step.parts if part not in CLOCK))
    for part in step.parts:
        if part in CLOCK:
            found[part] = of_clock(values if pa.types.is_time(kind) else values % _DAY, part)
    for part, name in zip(step.parts, step.writes, strict=True):
        draft.put(name, found[part], wire.valid)


def age(draft: Draft, step: Age, figures: State) -> None:
    """(x - origin) / unit."""
    wire = draft.wire(step.column)
    origin = step.origin_in(figures)
    values = wire.term * _DAY if pa.types.is_date(wire.field.type) else wire.term
    near = (values >= max(_LEAST + origin, _LEAST)) & (values <= min(_MOST + origin, _MOST))
    # Beyond 2^63 from it float64 has no microseconds anyway.
    apart = draft.graph.where(near, (values - origin).cast("float64"), values.cast("float64") - float(origin))
    draft.put(step.writes[0], (apart / float(step.unit_micros)).cast(cast("Kind", step.dtype)), wire.valid)
