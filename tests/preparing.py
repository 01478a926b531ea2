"""Steps of `prepare` on tables: fitted in parts, then carried out in every way there is, all of which must agree."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.schema import Field, Schema
from etl.engine.backends import backend
from etl.transforms.fit import Watching, applied, applied_to_frames, finished, merged, planned
from etl.transforms.host import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned

PANDAS = backend("pandas")


def schema_of(table: Any) -> Schema:
    """Its columns, as if a source had said them."""
    return Schema(tuple(Field(f.name, f.type, f.nullable) for f in table.schema))


def fit(
    steps: Sequence[Transform],
    table: pa.Table,
    parts: Sequence[int] = (),
    *,
    train: NDArray[np.bool_] | None = None,
    batch_rows: int = 7,
) -> tuple[Planned, dict[int, State]]:
    """The plan and the figures, the rows in parts that end at these places."""
    given = schema_of(table)
    plan = planned(steps, given)
    edges = [0, *parts, table.num_rows]
    done: dict[int, State] = {}
    for scan in range(plan.count):
        found = []
        for number, (start, stop) in enumerate(pairwise(edges)):
            watching = Watching(plan, scan, done, number)
            at = start
            for batch in table.slice(start, stop - start).to_batches(max_chunksize=batch_rows):
                watching.take(batch, None if train is None else train[at : at + batch.num_rows])
                at += batch.num_rows
            found.append(watching.states())
        done |= finished(plan, merged(plan, found))
    return planned(steps, given, done), done


def both(
    plan: Planned,
    states: Mapping[int, State],
    batch: pa.RecordBatch,
    *,
    train: NDArray[np.bool_] | None = None,
    ulps: int = 0,
) -> pa.RecordBatch:
    """The rows after all steps: on the host; held to what frames of pandas give.

    Args:
        plan: All steps.
        states: Their figures.
        batch: The rows.
        train: Which of them are train rows.
        ulps: How far floats of the two may be apart; 0: not at all.
    """
    before = batch.to_pydict()
    host = applied(plan, states, Rows.of_batch(batch, plan.given, train=train)).batch(plan.returns)
    frames = applied_to_frames(plan, states, Rows.of_batch(batch, plan.given, train=train), PANDAS).batch(plan.returns)
    host.validate(full=True)
    agree(host, frames, ulps)
    assert repr(batch.to_pydict()) == repr(before), "a step changed what it was given"
    return host


def through(
    steps: Sequence[Transform], table: pa.Table, parts: Sequence[int] = (), *, ulps: int = 0, batch_rows: int = 5
) -> pa.Table:
    """The table after steps that were fitted on all of it, carried out batch by batch."""
    plan, done = fit(steps, table, parts)
    batches = [both(plan, done, batch, ulps=ulps) for batch in table.to_batches(max_chunksize=batch_rows)]
    return pa.Table.from_batches(batches, plan.returns.to_arrow())


def agree(one: Any, other: Any, ulps: int = 0) -> None:
    """Hold that two batches are equal: types, NULLs, NaN, and values to the last bit, or so many steps apart."""
    assert one.schema.equals(other.schema, check_metadata=False)
    for name, left, right in zip(one.schema.names, one.columns, other.columns, strict=True):
        if not ulps or not pa.types.is_floating(left.type):
            assert repr(left.to_pylist()) == repr(right.to_pylist()), name
            continue
        assert left.is_valid().equals(right.is_valid()), name
        dtype: Any = left.type.to_pandas_dtype()
        a, b = (np.array(side.fill_null(0.0).to_numpy(zero_copy_only=False), dtype) for side in (left, right))
        np.testing.assert_array_max_ulp(a, b, ulps, dtype)
