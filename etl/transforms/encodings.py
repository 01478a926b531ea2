"""Keys as numbers: how often they come, what other columns are like among their rows, what the target is like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Field, Schema
from etl.tensors.views import mask_of
from etl.transforms.base import InPlace, listed
from etl.transforms.counts import CountsOf, by_frequency, key_type, keys_of, merged_counts
from etl.transforms.figures import is_number
from etl.transforms.grouped import grouped, none_of, of_all, together
from etl.transforms.host import Values, floats_of, values_in
from etl.transforms.lookups import lookup_of, numbers_in, picked, places_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows


@dataclass(frozen=True, slots=True)
class CountEncode(InPlace):
    """Each value becomes how often it comes among the train rows, as int64; or its share of them, as float32.

    A value that was never seen becomes 0, and NULL the count of NULLs.

    Attributes:
        columns: Text, labels, whole numbers, bools, decimals, dates or moments.
        normalize: The share in place of the count.

    Raises:
        ConfigError: No column.
    """

    kind: ClassVar[str] = "count_encode"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    normalize: bool = False

    def __init__(self, columns: str | list[str] | tuple[str, ...], *, normalize: bool = False) -> None:
        object.__setattr__(self, "columns", listed(columns, "CountEncode"))
        object.__setattr__(self, "normalize", bool(normalize))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as numbers, without NULL."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(given.field(name), "CountEncode")
        kind = pa.float32() if self.normalize else pa.int64()
        made = {n: replace(given.field(n), type=kind, nullable=False, vocabulary=None, note="") for n in self.columns}
        return Schema(tuple(made.get(one.name, one) for one in given))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of values."""
        del part
        return CountsOf(given, {name: key_type(given.field(name), "CountEncode") for name in self.columns})

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_counts(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → counts (value, count), rows and NULLs."""
        del given, filled
        return {
            name: {
                "counts": by_frequency(found["counts"]).combine_chunks(),
                "rows": found["rows"],
                "null": found["null"],
            }
            for name, found in state.items()
        }

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with counts in place of values."""
        del given
        made: dict[str, Values] = {}
        for name in self.columns:
            values, figures = rows[name], state[name]
            table = figures["counts"]
            places = lookup_of(table).places(values)
            found = picked(numbers_in(table, "count"), places, 0)
            nulls = values.nulls
            if nulls:
                found[~values.present] = figures["null"]
            rows.counted(name, "unseen", int(np.count_nonzero(places < 0)) - nulls)
            made[name] = Values((found / max(1, figures["rows"])).astype(np.float32) if self.normalize else found)
        return rows.with_columns(made)


@dataclass(frozen=True, slots=True)
class GroupStats:
    """New columns: what numbers are like among the train rows of a key.

    A key that was never seen has the figures of all rows; NULL is a key of its own.

    Attributes:
        values: The numbers.
        by: The key.
        stats: Of "mean", "std" (divided by n, not by n - 1), "sum" and "count".
        into: The new columns' names, of {value}, {stat} and {by}.

    Raises:
        ConfigError: No column, or a statistic that there is not.
    """

    kind: ClassVar[str] = "group_stats"
    fits: ClassVar[bool] = True
    values: tuple[str, ...]
    by: str
    stats: tuple[str, ...] = ("mean",)
    into: str = "{value}_{stat}_by_{by}"

    def __init__(
        self,
        values: str | list[str] | tuple[str, ...],
        *,
        by: str,
        stats: str | list[str] | tuple[str, ...] = ("mean",),
        into: str = "{value}_{stat}_by_{by}",
    ) -> None:
        object.__setattr__(self, "values", listed(values, "GroupStats"))
        object.__setattr__(self, "by", listed(by, "GroupStats")[0])
        names = listed(stats, "GroupStats")
        for name in names:
            if name not in _STATS:
                raise ConfigError(f"GroupStats: stats has {name!r}", hint=f"Statistics are {', '.join(_STATS)}.")
        object.__setattr__(self, "stats", names)
        object.__setattr__(self, "into", into)
        try:
            made = self.writes
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(f"GroupStats: into is {into!r}", hint="Use {value}, {stat} and {by}.") from error
        if len({*made}) < len(made):
            raise ConfigError(f"GroupStats: into={into!r} gives equal names", hint="Use {value}, {stat} and {by}.")

    @property
    def reads(self) -> tuple[str, ...]:
        """The numbers and the key."""
        return tuple(dict.fromkeys((*self.values, self.by)))

    @property
    def writes(self) -> tuple[str, ...]:
        """The new columns."""
        return tuple(self._name(value, stat) for value in self.values for stat in self.stats)

    def asks(self, wanted: frozenset[str], /) -> frozenset[str]:
        """The key alone: figures are there."""
        made = frozenset(self.writes)
        return (wanted - made) | {self.by} if wanted & made else wanted

    def output_schema(self, given: Schema, /) -> Schema:
        """More columns: float32, counts int64."""
        given.require(*self.reads)
        key_type(given.field(self.by), "GroupStats")
        for name in self.values:
            number_of(given.field(name), "GroupStats")
        for name in self.writes:
            if name in given.names:
                raise ConfigError(
                    f"GroupStats: there is a column {name} already", hint="Give into= another name.", column=name
                )
        made = (
            Field(self._name(value, stat), pa.int64() if stat == "count" else pa.float32(), nullable=False)
            for value in self.values
            for stat in self.stats
        )
        return Schema((*given.fields, *made))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments by key."""
        del part
        return _Grouped(given, self.by, self.values)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: {"groups": together([left[name]["groups"], right[name]["groups"]])} for name in self.values}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Value column → groups (value, n, mean, m2), and the moments of all."""
        del given, filled
        found: dict[str, Any] = {}
        for name in self.values:
            table = state[name]["groups"]
            n, mean, m2 = of_all(table)
            if not n:
                raise DataError(
                    f"GroupStats({name!r}): column {name} has no value in the rows that are fitted on", column=name
                )
            made = table.sort_by("value").combine_chunks()
            for stat in self.stats:
                of_keys = (made.column(one).to_numpy() for one in ("n", "mean", "m2"))
                with np.errstate(over="ignore"):
                    numbers = [np.append(each, one) for each, one in zip(of_keys, (n, mean, m2), strict=True)]
                    beyond = np.isinf(_STATS[stat](*numbers)).any()
                if beyond:
                    raise DataError(
                        f"GroupStats({name!r}): the {stat} of {name} of a {self.by} is beyond float32",
                        hint=f"Leave {stat} out, or scale {name} in the function.",
                        column=name,
                    )
            found[name] = {"groups": made, "n": n, "mean": mean, "m2": m2}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the new columns."""
        del given
        made: dict[str, Values] = {}
        keys = rows[self.by]
        for name in self.values:
            figures = state[name]
            table = figures["groups"]
            places = places_in(table, keys)
            rows.counted(self.by, "unseen", int(np.count_nonzero(places < 0)))
            n, mean, m2 = (picked(numbers_in(table, one), places, figures[one]) for one in ("n", "mean", "m2"))
            for stat in self.stats:
                made[self._name(name, stat)] = Values(_STATS[stat](n, mean, m2))
        return rows.with_columns(made)

    def _name(self, value: str, stat: str) -> str:
        return self.into.format(value=value, stat=stat, by=self.by)


class _Grouped:
    """Moments of numbers by key."""

    def __init__(self, given: Schema, by: str, values: Sequence[str], /) -> None:
        self._by, self._given = given.field(by), given
        self._kind = key_type(self._by, "GroupStats")
        self._tables = {name: [none_of(self._kind)] for name in values}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        keys = keys_of(rows.column(rows.schema.get_field_index(self._by.name)), self._by, self._kind)
        for name, tables in self._tables.items():
            chosen, numbers = finite_in(rows.column(rows.schema.get_field_index(name)), self._given.field(name))
            tables.append(grouped(keys.filter(mask_of(chosen)), numbers[chosen]))
            if len(tables) > 16:
                self._tables[name] = [together(tables)]

    def state(self) -> dict[str, Any]:
        """Value column → its groups."""
        return {name: {"groups": together(tables)} for name, tables in self._tables.items()}


def finite_in(column: Any, field: Field) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Where a number is there and finite, and the numbers."""
    values = values_in(column, field)
    numbers = floats_of(values)
    return values.present & np.isfinite(numbers), numbers


def number_of(field: Field, step: str, /) -> None:
    """Hold that a column is a number.

    Raises:
        ConfigError: It is of another type.
    """
    if not is_number(field.type):
        raise ConfigError(
            f"{step}: {field.name} is {field.type}, not a number", hint="Take another column.", column=field.name
        )


def _std(n: NDArray[np.int64], mean: NDArray[np.float64], m2: NDArray[np.float64]) -> NDArray[np.float32]:
    del mean
    return np.sqrt(m2 / np.maximum(n, 1)).astype(np.float32)


_STATS: Mapping[str, Any] = {
    "mean": lambda _, mean, __: mean.astype(np.float32),
    "std": _std,
    "sum": lambda n, mean, _: (n * mean).astype(np.float32),
    "count": lambda n, _, __: n,
}
"""By n, mean and m2 of a key."""
