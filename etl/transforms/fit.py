"""Fitting: which steps can be fitted in one reading of the rows, and how what parts observed becomes figures.

Rows are read once for each scan. A step joins an earlier scan than its columns' makers where that is the same by
arithmetic: moments of a column whose NULLs were filled follow from those of the column and the value.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import EtlError
from etl.core.schema import Schema
from etl.engine.door import carried
from etl.transforms.base import (
    Dropping,
    Fitted,
    Folded,
    Framed,
    Telling,
    Transform,
    Widened,
    asked,
    is_framed,
    needs_fit,
)
from etl.transforms.figures import is_number
from etl.transforms.fill import FillNull
from etl.transforms.host import Rows, values_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

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
    def folds(self) -> bool:
        """Whether a step gives train rows other values than the rest, so that it must be told which are."""
        return any(isinstance(step, Folded) for step in self.steps)

    @property
    def count(self) -> int:
        """How often the rows are read to fit all steps; 0: nothing is fitted."""
        return max((1 + s for step, s in zip(self.steps, self.scans, strict=True) if needs_fit(step)), default=0)


def planned(steps: Sequence[Transform], given: Schema, states: Mapping[int, State] | None = None, /) -> Planned:
    """Which columns every step gives, and which reading it is fitted in.

    Args:
        steps: In the order in which they act.
        given: The columns before the first.
        states: The figures of those that are fitted, by place, once there are any.

    Raises:
        EtlError: A step does not take the columns before it; the step is named by its place.
    """
    schemas = [given]
    for number, step in enumerate(steps, 1):
        try:
            made = step.output_schema(schemas[-1])
            if states and isinstance(step, Widened) and number - 1 in states:
                made = step.fitted_schema(schemas[-1], states[number - 1])
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
    least = 0  # the first reading in which it is known which rows there are
    for step in steps:
        fits = needs_fit(step)
        sees = through if fits and getattr(step, "knows_fills", False) else {}
        scan = max((sees.get(name, ready.get(name, 0)) for name in step.reads), default=0)
        if fits or isinstance(step, Dropping):
            scan = max(scan, least)
        if isinstance(step, Dropping):
            least = scan
        scans.append(scan)
        for name in step.writes:
            ready[name] = scan + 1 if fits else scan
            through.pop(name, None)
        if isinstance(step, FillNull) and fits:
            through |= dict.fromkeys(step.columns, scan)
    return tuple(scans)


class Watching:
    """One part in one reading: every step of that reading observes the rows as they are before it.

    On the host whatever the run's engine: figures are the same on both, to the last bit.

    Args:
        plan: All steps.
        scan: The reading.
        done: The figures of steps that earlier readings fitted, by place.
        part: The part's index.
    """

    def __init__(self, plan: Planned, scan: int, done: Mapping[int, State], part: int, /) -> None:
        self._plan, self._scan, self._done = plan, scan, done
        self._observers: dict[int, Observer] = {}
        for place, step in enumerate(plan.steps):
            if isinstance(step, Fitted) and needs_fit(step) and plan.scans[place] == scan:
                self._observers[place] = step.observer(plan.schemas[place], part)
        last = max(self._observers, default=-1)
        # What is not known in this reading is left out: nobody who observes in it looks at what it writes.
        self._acting = {
            place
            for place, step in enumerate(plan.steps[:last])
            if place in done or (not needs_fit(step) and plan.scans[place] <= scan)
        }

    def take(self, batch: pa.RecordBatch, train: NDArray[np.bool_] | None = None, /) -> int:
        """The next rows, of exactly the plan's `given`; gives how many of them were there to be fitted on.

        Args:
            batch: The rows.
            train: True for those that are fitted on, shape (n,); None: all of them. The others are looked at only as
                far as steps act before the first that is fitted, since a window may need them.
        """
        rows = Rows.of_batch(batch, self._plan.given)
        if train is not None:
            rows = rows.kept(train)
        seen = rows.count
        rows.train = np.ones(seen, np.bool_)
        for place, step in enumerate(self._plan.steps):
            if place in self._observers:
                # NULLs that a step of this reading will fill are still there.
                known = [replace(self._plan.schemas[place].field(name), nullable=True) for name in step.reads]
                self._observers[place].take(rows.batch(Schema(tuple(known))))
            elif place in self._acting:
                rows = step.on_host(rows, self._plan.schemas[place], self._done.get(place, {}))
        return seen

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
            numbers = [name for name in step.columns if is_number(given.field(name).type)]
            filled |= {name: step.filled_with(name, given, found[place]) for name in numbers}
    return found


def served(plan: Planned, states: Mapping[int, State], outputs: Iterable[str], /) -> tuple[Planned, dict[int, State]]:
    """What of a plan serving carries out, and its figures: steps that make these columns, and none that drops rows."""
    wanted, kept = frozenset(outputs), list[int]()
    for place in reversed(range(len(plan.steps))):
        step = plan.steps[place]
        if not isinstance(step, Dropping) and wanted & frozenset(step.writes):
            kept.insert(0, place)
            wanted = asked(step, wanted, frozenset(plan.schemas[place].names))
    made = replace(
        plan,
        steps=tuple(plan.steps[place] for place in kept),
        schemas=(*(plan.schemas[place] for place in kept), plan.returns),
        scans=tuple(plan.scans[place] for place in kept),
    )
    return made, {at: states[place] for at, place in enumerate(kept) if place in states}


def applied(plan: Planned, states: Mapping[int, State], rows: Rows, /) -> Rows:
    """The rows after all steps, on the host; columns that no step names stay as they are, of any type.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        rows: Of the plan's `given`.

    Raises:
        CastError: A value is refused, or a result does not fit its column; step, column and row are named.
    """
    for place in range(len(plan.steps)):
        rows = _on_host(plan, states, rows, place)
    return rows


def applied_to_frames(plan: Planned, states: Mapping[int, State], rows: Rows, backend: Backend, /) -> Rows:
    """The same with frames of a device: steps that frames can do run there, the others on the host between them.

    Args:
        plan: All steps.
        states: The figures of the fitted ones, by place.
        rows: Of the plan's `given`.
        backend: What makes the frames.

    Raises:
        CastError: As `applied`.
    """
    numbered = itertools.groupby(
        range(len(plan.steps)), lambda place: is_framed(plan.steps[place], plan.schemas[place])
    )
    for framed, places in numbered:
        if framed:
            rows = _on_frame(plan, states, rows, backend, list(places))
            continue
        for place in places:
            rows = _on_host(plan, states, rows, place)
    return rows


def _on_host(plan: Planned, states: Mapping[int, State], rows: Rows, place: int) -> Rows:
    try:
        return plan.steps[place].on_host(rows, plan.schemas[place], states.get(place, {}))
    except EtlError as error:
        raise error.at(f"step {place + 1} of prepare") from error


def _on_frame(plan: Planned, states: Mapping[int, State], rows: Rows, backend: Backend, places: Sequence[int]) -> Rows:
    """Neighbouring steps on one frame of the columns that they name."""
    before, after = plan.schemas[places[0]], plan.schemas[places[-1] + 1]
    named = {name for place in places for name in (*plan.steps[place].reads, *plan.steps[place].writes)}
    given = before.select([name for name in before.names if name in named])
    frame = backend.from_arrow(pa.Table.from_batches([rows.batch(given)], given.to_arrow()), given)
    for place in places:
        step = plan.steps[place]
        if isinstance(step, Framed):
            try:
                frame = step.apply(frame, plan.schemas[place], states.get(place, {}))
                if isinstance(step, Telling):
                    for (column, what), number in step.met(frame, states.get(place, {})).items():
                        rows.counted(column, what, number)
            except EtlError as error:
                raise error.at(f"step {place + 1} of prepare") from error
    written = {name for place in places for name in plan.steps[place].writes}
    made = after.select([name for name in after.names if name in written])
    (batch,) = backend.to_arrow(frame[list(made.names)], made).combine_chunks().to_batches() or [_none(made)]
    return rows.with_columns({field.name: values_in(batch.column(i), field) for i, field in enumerate(made)})


def _none(schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema.to_arrow())
