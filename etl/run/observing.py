"""A sink that keeps no rows: what the steps of a pipeline observe of them, while they are read.

Only rows of the split `train` are observed, told by the same hash that splits the dataset; without a split all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from connectors.base import Capabilities, Published, Staged, StagedFile
from etl.planning.fits import TRAIN, check_model, served_columns, train_split
from etl.tensors.views import mask_of, valid_of
from etl.transforms import fit
from etl.transforms.golden import ROWS, asked_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from connectors.base import Finish, Finished, Mode, Requires
    from etl.core.partition import Partition
    from etl.core.schema import Schema
    from etl.tensors.sink import DatasetSink
    from etl.tensors.split import Splitting
    from etl.transforms.base import State, Transform
    from etl.transforms.fit import Planned


GOLDEN = "golden"
"""Golden rows among the facts of a part; the other facts are named by the places of steps."""


@dataclass(slots=True)
class Observed:
    """The figures of one scan, once all parts were observed; filled in the run process, empty anywhere else.

    Attributes:
        states: Place of a step → its figures.
        rows: Rows that were observed.
        golden: The first of them, of the columns that serving asks for; None: nothing was observed.
    """

    states: dict[int, State] = field(default_factory=dict)
    rows: int = 0
    golden: pa.Table | None = None

    def __reduce__(self) -> tuple[type[Observed], tuple[()]]:
        """Nothing of it travels: workers observe parts, and know nothing of the whole."""
        return Observed, ()


@dataclass(frozen=True, slots=True)
class ObserveSink:
    """Takes rows, keeps none: what steps observe of them.

    Attributes:
        prepare: All steps.
        dataset: Where the rows will go once they are prepared; its options say how they are split.
        mode: What happens to a dataset that is there.
        scan: Which reading this is.
        done: The figures of earlier readings.
        observed: Filled when all parts are there.
    """

    prepare: tuple[Transform, ...]
    dataset: DatasetSink
    mode: Mode
    scan: int = 0
    done: Mapping[int, State] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed, compare=False)

    @property
    def capabilities(self) -> Capabilities:
        """Made once."""
        return Capabilities(modes=frozenset({"create"}), python_rows=False)

    def check(self, schema: Schema, mode: Mode, /) -> None:
        """Refuse what the last pass would: steps that do not take their columns, a dataset that cannot be made.

        Raises:
            EtlError: As `fit.planned` and `DatasetSink.check`.
        """
        del mode  # of this sink; the dataset has its own
        plan = fit.planned(self.prepare, schema)
        self.dataset.check(plan.returns, self.mode)
        check_model(self.dataset, plan)
        train_split(self.dataset.options, schema, self.prepare)

    def begin(self, run_id: str, schema: Schema, mode: Mode, /) -> ObserveSession:
        """Nothing to open.

        Raises:
            EtlError: As `fit.planned` and `train_split`.
        """
        del run_id, mode
        plan = fit.planned(self.prepare, schema)
        split = train_split(self.dataset.options, schema, self.prepare)
        golden = asked_columns(plan, served_columns(self.dataset.plan(plan.returns)))
        return ObserveSession(self, plan, split, self._dropping(plan), tuple(golden))

    def _dropping(self, plan: Planned) -> tuple[str, ...]:
        """Columns whose NULL takes a row out of the dataset, so that it is none to fit on."""
        kept = {c.field.name for c in self.dataset.plan(plan.returns).columns if c.nulls == "drop" and c.field.nullable}
        return tuple(name for name in plan.given.names if name in kept)


@dataclass(frozen=True, slots=True)
class ObserveSession:
    """One go; a picklable value.

    Attributes:
        sink: Whose.
        plan: All steps.
        split: How rows to fit on are told; None: all of them.
        dropping: Columns whose NULL takes a row out of the dataset.
        golden: Columns of the golden rows.
    """

    sink: ObserveSink
    plan: Planned
    split: Splitting | None
    dropping: tuple[str, ...]
    golden: tuple[str, ...] = ()

    def stage(self, part: Partition, attempt: int, batches: Iterator[pa.RecordBatch], /) -> Staged:
        """Observe one part.

        Raises:
            CastError: The split key of a row is NULL.
        """
        watching = fit.Watching(self.plan, self.sink.scan, self.sink.done, part.index)
        rows = seen = 0
        first: list[pa.RecordBatch] = []
        for batch in batches:
            rows += batch.num_rows
            train = _fitted_on(batch, self.dropping, self.split, f"part {part.index + 1}")
            if seen < ROWS and self.golden:
                chosen = batch.select(list(self.golden))
                first.append((chosen if train is None else chosen.filter(mask_of(train))).slice(0, ROWS - seen))
            seen += watching.take(batch, train)
        facts: dict[str, Any] = {str(place): state for place, state in watching.states().items()}
        if first:
            facts[GOLDEN] = _own(pa.Table.from_batches(first))
        return Staged(part, attempt, rows, {}, (StagedFile("", TRAIN, seen, 0, "", facts),))

    def exchange(self, staged: Sequence[Staged], /) -> Sequence[Finish]:
        """Nothing."""
        del staged
        return ()

    def prepare(
        self, staged: Sequence[Staged], /, *, requires: Requires, finished: Sequence[Finished] = ()
    ) -> Callable[[], Published]:
        """Merge what the parts observed, in their order; the switch hands the figures on.

        Raises:
            DataError: A step cannot be fitted on these rows.
        """
        del requires, finished
        files = [file for one in staged for file in one.files]
        parts = [{int(place): cast("State", one) for place, one in f.facts.items() if place != GOLDEN} for f in files]
        states = fit.finished(self.plan, fit.merged(self.plan, parts))
        rows = sum(file.rows for file in files)
        first = [found for file in files if isinstance(found := file.facts.get(GOLDEN), pa.Table)]

        def switch() -> Published:
            seen = self.sink.observed
            seen.states, seen.rows = states, rows
            seen.golden = pa.concat_tables(first).slice(0, ROWS) if first else None
            return Published("", "figures", 0, rows, 0, 0, {TRAIN: rows}, ())

        return switch

    def commit(self, staged: Sequence[Staged], /, *, requires: Requires) -> Published:
        """Prepare and hand on."""
        return self.prepare(staged, requires=requires)()

    def abort(self) -> None:
        """Nothing was kept."""


def _own(table: pa.Table) -> pa.Table:
    """A few rows without the memory of the batches that they were cut from."""
    return table.take(pa.array(range(table.num_rows), pa.int64()))


def _fitted_on(
    batch: pa.RecordBatch, dropping: Sequence[str], split: Splitting | None, place: str
) -> NDArray[np.bool_] | None:
    """True for the rows that steps are fitted on, shape (n,); None: all of them."""
    keep: NDArray[np.bool_] | None = None
    for name in dropping:
        present = valid_of(batch.column(name))
        keep = present if keep is None else keep & present
    if split is None:
        return keep
    if keep is None:
        return in_train(split, batch, place)
    # The key of a row that is left out is not asked for: it may be NULL.
    keep[np.flatnonzero(keep)] = in_train(split, batch.filter(mask_of(keep)), place)
    return keep


def in_train(split: Splitting, batch: pa.RecordBatch, place: str, /) -> NDArray[np.bool_]:
    """True for the rows of the split `train`, shape (n,).

    Raises:
        CastError: The split key of a row is NULL.
    """
    return np.asarray(split.assign(batch, place) == split.names.index(TRAIN))
