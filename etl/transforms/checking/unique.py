"""That no key comes twice in the rows of a run: exact, over all parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import DataError
from etl.tensors.checking import SAMPLE
from etl.transforms.base import listed
from etl.transforms.checking.base import Finding, severity_of, value_at
from etl.transforms.counts import COMPACT, key_type, keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending, Severity
    from etl.transforms.checking.base import Seen

MOST: Final = 100_000_000
"""Different keys that are compared at most: they are all held in memory at the end."""
_COUNT: Final = " count"


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in all of the columns; rows with a NULL in one of them are not compared.

    Attributes:
        columns: Of whole numbers, text, labels, decimals, dates or moments.
        severity: What it means when it fails.
    """

    kind: ClassVar[str] = "unique"
    columns: tuple[str, ...]
    severity: Severity = "error"

    def __post_init__(self) -> None:
        listed(self.columns, self.kind)
        severity_of(self.severity, self.kind)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def limit(self) -> object:
        """No row."""
        return 0

    def refuse(self, given: Schema, /) -> None:
        """Columns whose values are no keys."""
        for name in self.columns:
            key_type(given.field(name), self.kind)

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> KeysSeen:
        """For one part."""
        del keys, part
        return KeysSeen(given, self.columns)

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """Keys that come more than once.

        Raises:
            DataError: There are more keys than can be compared.
        """
        del ending
        most = sum(len(one["count"]) for one in states)
        if most > MOST:
            raise DataError(
                f"unique({', '.join(self.columns)}): the parts have {most} keys, at most {MOST} are compared",
                hint="Let the store hold them unique, or check narrower windows.",
            )
        tables = [pa.table([*one["keys"], one["count"]], names=[*self.columns, _COUNT]) for one in states]
        if not tables:
            return Finding(passed=True, observed=0, said="", rows=0)
        counted = _added(tables, self.columns)
        twice = counted.filter(pc.greater(counted.column(_COUNT), pa.scalar(1, pa.int64())))
        rows = pc.sum(twice.column(_COUNT)).as_py() or 0
        first = twice.sort_by([(name, "ascending") for name in self.columns]).slice(0, SAMPLE)
        keys = {name: first.column(name).combine_chunks() for name in self.columns}
        sample = tuple({name: value_at(one, row) for name, one in keys.items()} for row in range(first.num_rows))
        said = f"{rows} rows share {twice.num_rows} keys"
        return Finding(not rows, rows, said, rows, sample)


class KeysSeen:
    """How often each key comes in a part."""

    def __init__(self, given: Schema, columns: Sequence[str], /) -> None:
        self._fields = [given.field(name) for name in columns]
        self._kinds = [key_type(one, "unique") for one in self._fields]
        self._names = tuple(columns)
        empty = [pa.array([], kind) for kind in (*self._kinds, pa.int64())]
        self._tables = [pa.table(empty, names=[*self._names, _COUNT])]
        self._held = 0

    def take(self, seen: Seen, /) -> None:
        """The next rows."""
        pairs = zip(self._fields, self._kinds, strict=True)
        keys = pa.table([keys_of(seen.column(f.name), f, kind) for f, kind in pairs], names=list(self._names))
        if any(column.null_count for column in keys.columns):
            keys = keys.drop_null()
        self._tables.append(keys.append_column(_COUNT, pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows)))
        self._held += keys.num_rows
        if self._held > COMPACT:
            self._tables = [_added(self._tables, self._names)]
            self._held = self._tables[0].num_rows // 2  # so that adding up stays linear in what comes

    def state(self) -> Mapping[str, Any]:
        """The keys and how often each comes."""
        table = _added(self._tables, self._names)
        return {"keys": [table.column(name) for name in self._names], "count": table.column(_COUNT)}


def _added(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    whole = pa.concat_tables(tables)
    found = whole.group_by(list(names), use_threads=False).aggregate([(_COUNT, "sum")])
    return found.rename_columns([*names, _COUNT]) if found.column_names[-1] != _COUNT else found
