"""What the rows of the parts were: counted on the way, and held against what the store counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etl.core.errors import CastError, CountMismatch, SchemaError
from etl.tensors.leaks import RowSketches, compared
from etl.tensors.stats import PartStats
from etl.tensors.views import mask_of, shown, valid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from connectors.base import Requires, Staged
    from etl.tensors.cast import CastCount
    from etl.tensors.pack import PackPlan


class Counts:
    """What the parts' rows were, per column, and the rows that null policies leave out or refuse."""

    def __init__(self, plan: PackPlan, part: int) -> None:
        self._plan = plan
        self._part = part
        self._stats: dict[str, PartStats] = {}
        self._null = dict.fromkeys((c.field.name for c in plan.columns), 0)
        self._dropped = 0
        self._left_out: dict[str, int] = {}
        self._sketches = RowSketches(compared(plan))

    def take(self, batch: pa.RecordBatch, place: str, first: int) -> pa.RecordBatch:
        """Count a batch, whose first row is number `first` of the part; the rows that stay."""
        drop = None
        for column in self._plan.columns:
            array = batch.column(batch.schema.get_field_index(column.field.name))
            nulls = array.null_count
            if not nulls:
                continue
            if not column.field.nullable:
                raise SchemaError(
                    f"column {column.field.name} was declared NOT NULL and holds a NULL in {place}",
                    column=column.field.name,
                )
            if column.nulls == "error":
                row = int(np.flatnonzero(~valid_of(array))[0])
                raise CastError(
                    f"column {column.field.name} is NULL in {place}, row {first + row + 1}"
                    f"{self._key(batch, row)}, and --nulls error refuses it",
                    hint="Use --nulls mask to keep it, drop to leave the row out or fill=VALUE.",
                    column=column.field.name,
                )
            if column.nulls == "drop":
                valid = valid_of(array)
                drop = valid if drop is None else drop & valid
        kept = batch if drop is None else batch.filter(mask_of(drop))
        self._dropped += batch.num_rows - kept.num_rows
        for name in self._null:
            self._null[name] += kept.column(kept.schema.get_field_index(name)).null_count
        return kept

    def wrote(self, split: str, batch: pa.RecordBatch, /) -> None:
        """Rows that went to a split: its statistics."""
        if split not in self._stats:
            self._stats[split] = PartStats([c.field for c in self._plan.columns], self._part)
        self._stats[split].take(batch)
        if split != "all":
            self._sketches.take(split, batch)

    def left_out(self, reason: str, rows: int, /) -> None:
        """Rows that are in no split."""
        if rows:
            self._left_out[reason] = self._left_out.get(reason, 0) + rows

    @property
    def sketches(self) -> dict[str, bytes]:
        """Split → a sample of the hashes of its feature rows."""
        return self._sketches.as_bytes()

    def _key(self, batch: pa.RecordBatch, row: int) -> str:
        keys = [c.field.name for c in self._plan.columns if c.role == "key"]
        named = [f"{k} = {shown(batch.column(batch.schema.get_field_index(k)), row)}" for k in keys]
        return f" ({', '.join(named)})" if named else ""

    @property
    def dropped(self) -> dict[str, int]:
        """Reason → rows left out."""
        return ({"null": self._dropped} if self._dropped else {}) | self._left_out

    def columns(self, casts: Mapping[str, CastCount]) -> dict[str, dict[str, object]]:
        """Column → what was counted."""
        found: dict[str, dict[str, object]] = {name: {"null": count} for name, count in self._null.items()}
        for name, cast in casts.items():
            found[name].update(n_rounded=cast.n_rounded, n_saturated=cast.n_saturated, max_abs_error=cast.max_abs_error)
        stats = {split: one.done() for split, one in self._stats.items()}
        for name, column in found.items():
            column["stats"] = {split: of[name] for split, of in stats.items()}
        return found


def check_counts(staged: Sequence[Staged], requires: Requires, target: str, /) -> None:
    """Hold that rows counted, read and written agree, per part and in all.

    Raises:
        CountMismatch: They do not; the part and the numbers are named.
    """
    by_index = {s.part.index: s for s in staged}
    for record in requires.parts:
        one = by_index.pop(record.index, None)
        if one is None:
            raise CountMismatch(
                f"partition {record.index} of {target} was not written", hint="Nothing was published. Run it again."
            )
        dropped = sum(one.dropped.values())
        counted = record.rows_read if record.rows_counted is None else record.rows_counted
        made = record.rows_read if record.rows_made is None else record.rows_made
        if not (counted == record.rows_read and made == one.rows + dropped and record.rows == one.rows):
            by = "" if record.rows_made is None else f"{made} came out of the function, "
            raise CountMismatch(
                f"partition {record.index} of {target}: the store counted {record.rows_counted} rows, "
                f"{record.rows_read} were read, {by}{one.rows} written and {dropped} left out by policy",
                hint="Nothing was published. Run it again.",
                partition=record.index,
            )
    if by_index:
        raise CountMismatch(f"partitions {sorted(by_index)} of {target} were written but not planned")
    read = sum(p.rows_read for p in requires.parts)
    if requires.rows is not None and requires.rows != read:
        raise CountMismatch(
            f"the store counted {requires.rows} rows in the snapshot, the partitions of {target} gave {read}",
            hint="Nothing was published. Run it again.",
        )
