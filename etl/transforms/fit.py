"""Fitting: which steps can be fitted in one reading of the rows, and how what parts observed becomes figures.

Rows are read once for each scan. A step joins an earlier scan than its columns' makers where that is the same by
arithmetic: moments of a column whose NULLs were filled follow from those of the column and the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.core.errors import EtlError
from etl.core.schema import Schema
from etl.engine.door import carried
from etl.transforms.base import Fitted, Transform, needs_fit
from etl.transforms.columns import FillNull

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etl.engine.base import Backend
    from etl.transforms.base import Observer, State


@dataclass(frozen=True, slots=True)
class Planned:
    """The steps of a pipeline with the columns before each, and when each is fitted.

    Attributes:
        steps: In the order in which they act.
        schemas: Before the first step, then after each: one more than steps.
        scans: Of each step the reading in which it is fitted, from 0; of one that is not fitted the number of readings
            that it needs before it.
    """

    steps: tuple[Transform, ...]
    schemas: tuple[Schema, ...]
    scans: tuple[int, ...]

    @property
    def given(self) -> Schema:
        """Before the first step."""
        return self.schemas[0]

    @property
    def returns(self) -> Schema:
        """After the last step."""
        return self.schemas[-1]

    @property
    def count(self) -> int:
        """How often the rows are read to fit all steps; 0: nothing is fitted."""
        return max((1 + s for step, s in zip(self.steps, self.scans, strict=True) if needs_fit(step)), default=0)


def planned(steps: Sequence[Transform], given: Schema, /) -> Planned:
    """Which columns every step gives, and which reading it is fitted in.

    Raises:
        EtlError: A step does not take the columns before it; the step is named by its place.
    """
    schemas = [given]
    for number, step in enumerate(steps, 1):
        try:
            made = step.output_schema(schemas[-1])
            for name in step.reads:
                carried(schemas[-1].field(name).type, column=name)
            schemas.append(made)
        except EtlError as error:
            raise error.at(f"step {number} of prepare") from error
    return Planned(tuple(steps), tuple(schemas), scans_of(steps))


def scans_of(steps: Sequence[Transform], /) -> tuple[int, ...]:
    """Of each step the reading of the rows that it is fitted in, see `Planned.scans`."""
    ready: dict[str, int] = {}  # column → the first reading in which its values are known
    through: dict[str, int] = {}  # column whose NULLs alone were filled → the reading that the filling is fitted in
    scans: list[int] = []
    for step in steps:
        fits = needs_fit(step)
        sees = through if fits and not isinstance(step, FillNull) else {}
        scan = max((sees.get(name, ready.get(name, 0)) for name in step.reads), default=0)
        scans.append(scan)
        for name in step.writes:
            ready[name] = scan + 1 if fits else scan
            through.pop(name, None)
        if isinstance(step, FillNull) and fits:
            through |= dict.fromkeys(step.columns, scan)
    return tuple(scans)


class Watching:
    """One part in one reading: every step of that reading observes the rows as they are before it.

    Args:
        plan: All steps.
        scan: The reading.
        done: The figures of steps that earlier readings fitted, by place.
        part: The part's index.
        backend: What makes the frames that steps act on before.
    """

    def __init__(self, plan: Planned, scan: int, done: Mapping[int, State], part: int, backend: Backend, /) -> None:
        self._plan, self._scan, self._done, self._backend = plan, scan, done, backend
        self._observers: dict[int, Observer] = {}
        for place, step in enumerate(plan.steps):
            if isinstance(step, Fitted) and needs_fit(step) and plan.scans[place] == scan:
                self._observers[place] = step.observer(plan.schemas[place], part)
        last = max(self._observers, default=-1)
        # What is not known in this reading is left out: nobody who observes in it looks at what it writes.
        self._acting = [
            place
            for place, step in enumerate(plan.steps[:last])
            if place in done or (not needs_fit(step) and plan.scans[place] <= scan)
        ]

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows, of exactly the plan's `given`."""
        frame: Any = None
        for place, step in enumerate(self._plan.steps):
            if place in self._observers:
                self._observers[place].take(self._columns(rows, frame, place))
            elif place in self._acting:
                if frame is None:
                    frame = _frame(rows, self._plan, self._acting, self._backend)
                frame = step.apply(frame, self._plan.schemas[place], self._done.get(place, {}))

    def _columns(self, rows: pa.RecordBatch, frame: Any, place: int) -> pa.RecordBatch:
        names = list(self._plan.steps[place].reads)
        made = [] if frame is None else [name for name in names if name in frame.columns]
        # NULLs that a step of this reading will fill are still there.
        known = Schema(tuple(replace(self._plan.schemas[place].field(n), nullable=True) for n in made))
        table = self._backend.to_arrow(frame[made], known).combine_chunks() if made else None
        columns = [
            rows.column(name) if table is None or name not in made else _whole(table.column(name)) for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def states(self) -> dict[int, State]:
        """Place of a step → what it observed."""
        return {place: one.state() for place, one in self._observers.items()}


def merged(plan: Planned, parts: Sequence[Mapping[int, State]], /) -> dict[int, State]:
    """What all parts observed in one reading, in their order."""
    found: dict[int, State] = {}
    for part in parts:
        for place, state in part.items():
            step = plan.steps[place]
            if isinstance(step, Fitted):
                found[place] = step.merge(found[place], state) if place in found else state
    return found


def finished(plan: Planned, observed: Mapping[int, State], /) -> dict[int, State]:
    """The figures of the steps of one reading.

    Raises:
        DataError: A step cannot be fitted on these rows; step and column are named.
    """
    found: dict[int, State] = {}
    filled: dict[str, Any] = {}
    for place in sorted(observed):
        step, given = plan.steps[place], plan.schemas[place]
        if not isinstance(step, Fitted):
            continue
        try:
            found[place] = step.finish(observed[place], given, filled)
        except EtlError as error:
            raise error.at(f"step {place + 1} of prepare") from error
        for name in step.writes:
            filled.pop(name, None)
        if isinstance(step, FillNull):
            filled |= {name: step.filled_with(name, given, found[place]) for name in step.columns}
    return found


def applied(plan: Planned, states: Mapping[int, State], rows: pa.RecordBatch, backend: Backend, /) -> pa.RecordBatch:
    """The rows after all steps; columns that no step names stay as they are, of any type.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        rows: Of exactly the plan's `given`.
        backend: What makes the frame.

    Raises:
        CastError: A result does not fit its column.
    """
    everyone = range(len(plan.steps))
    frame = _frame(rows, plan, everyone, backend)
    for place, step in enumerate(plan.steps):
        frame = step.apply(frame, plan.schemas[place], states.get(place, {}))
    made = [name for name in plan.returns.names if name in frame.columns]
    table = backend.to_arrow(frame[made], plan.returns.select(made)).combine_chunks()
    columns = [_whole(table.column(f.name)) if f.name in made else rows.column(f.name) for f in plan.returns]
    return pa.RecordBatch.from_arrays(columns, schema=plan.returns.to_arrow())


def _frame(rows: pa.RecordBatch, plan: Planned, places: Iterable[int], backend: Backend) -> Any:
    """A frame of the columns that these steps name."""
    named = {name for place in places for name in (*plan.steps[place].reads, *plan.steps[place].writes)}
    given = plan.given.select([name for name in plan.given.names if name in named])
    return backend.from_arrow(pa.Table.from_batches([rows.select(list(given.names))], given.to_arrow()), given)


def _whole(column: pa.ChunkedArray[Any]) -> Any:
    """A column of one chunk at most, as an array."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
