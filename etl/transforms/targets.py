"""Keys as what the target is like among their rows, so that no train row is told of its own target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.late import Late
from etl.core.schema import Schema
from etl.tensors.hashing import words_of
from etl.tensors.split import key_messages
from etl.tensors.views import column_of, mask_of, values_of
from etl.transforms.base import listed
from etl.transforms.counts import as_keys, key_type, keys_of
from etl.transforms.encodings import finite_in, number_of
from etl.transforms.figures import is_wide
from etl.transforms.grouped import in_folds, none_of, none_summed, of_all, summed_together, together
from etl.transforms.host import Values, values_in
from etl.transforms.lookups import numbers_in, picked, places_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from etl.core.schema import Field
    from etl.tensors.views import Column
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows
else:
    pc = Late("pyarrow.compute")

MOST_FOLDS = 100


@dataclass(frozen=True, slots=True)
class TargetEncode:
    """Each key becomes the mean of the target among its train rows, drawn to the mean of all rows, as float32.

    A train row gets the figures of the other folds alone, so that its own target is not in them; all other rows, and
    serving, get those of all train rows. Keys that were never seen become the mean of all; NULL is a key of its own.
    Sums of whole numbers, bools and decimals of up to 18 digits are exact: how rows are cut changes no bit.

    Attributes:
        columns: Text, labels, whole numbers, bools, decimals, dates or moments.
        target: A number or a bool; rows without one are encoded, and encode nothing.
        fold_key: Columns that name a row: their SHA-256 says its fold.
        folds: How many, from 2.
        smoothing: So many rows of the mean of all are added to each key.
        salt: Another salt gives other folds.

    Raises:
        ConfigError: No column, no key, or a number of folds that there is not.
    """

    kind: ClassVar[str] = "target_encode"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    target: str
    fold_key: tuple[str, ...]
    folds: int = 5
    smoothing: float = 10.0
    salt: str = ""

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        target: str,
        fold_key: str | list[str] | tuple[str, ...],
        folds: int = 5,
        smoothing: float = 10.0,
        salt: str = "",
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "TargetEncode"))
        object.__setattr__(self, "target", listed(target, "TargetEncode")[0])
        object.__setattr__(self, "fold_key", listed(fold_key, "TargetEncode"))
        if type(folds) is not int or not 2 <= folds <= MOST_FOLDS:
            raise ConfigError(f"TargetEncode: folds is {folds!r}", hint=f"It is a whole number from 2 to {MOST_FOLDS}.")
        weight: object = smoothing
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"TargetEncode: smoothing is {smoothing!r}", hint="It is a number of rows, from 0.")
        if self.target in self.columns:
            raise ConfigError(f"TargetEncode: {self.target} would encode itself")
        object.__setattr__(self, "folds", folds)
        object.__setattr__(self, "smoothing", float(smoothing))
        object.__setattr__(self, "salt", str(salt))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, the target and the key of folds."""
        return tuple(dict.fromkeys((*self.columns, self.target, *self.fold_key)))

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def asks(self, wanted: frozenset[str], /) -> frozenset[str]:
        """The columns: no target, and no key of folds."""
        return wanted | frozenset(self.columns) if wanted & frozenset(self.columns) else wanted

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as float32, without NULL."""
        given.require(*self.reads)
        for name in self.columns:
            key_type(given.field(name), "TargetEncode")
        for name in self.fold_key:
            key_type(given.field(name), "TargetEncode", hashed=True)
        number_of(given.field(self.target), "TargetEncode")
        made = {
            n: replace(given.field(n), type=pa.float32(), nullable=False, vocabulary=None, note="")
            for n in self.columns
        }
        return Schema(tuple(made.get(one.name, one) for one in given))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Sums of the target by fold and key."""
        del part
        return _Folded(self, given)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        folds = [f"fold_{number}" for number in range(self.folds)]
        return {n: {f: joined([left[n][f], right[n][f]]) for f in folds} for n in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → encoding (value, all, fold_0 …: the value without that fold), and the same of keys never seen."""
        del filled
        scale = 10.0 ** getattr(given.field(self.target).type, "scale", 0)
        return {name: self._encoding(name, state[name], scale) for name in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with encodings in place of values."""
        train = rows.train
        folds = None if train is None or not train.any() else self._folds_of(rows, given, train)
        made: dict[str, Values] = {}
        for name in self.columns:
            table = state[name]["encoding"]
            places = places_in(table, rows[name])
            rows.counted(name, "unseen", int(np.count_nonzero(places < 0)))
            found = picked(numbers_in(table, "all"), places, state[name]["all"])
            if folds is not None:
                for number in range(self.folds):
                    chosen = np.flatnonzero(folds == number)
                    fold = f"fold_{number}"
                    found[chosen] = picked(numbers_in(table, fold), places[chosen], state[name][fold])
            made[name] = Values(found.astype(np.float32))
        return rows.with_columns(made)

    def fold_of(self, keys: Sequence[Any], /) -> NDArray[np.int64]:
        """The fold of each row, from 0, by its key columns of their key types."""
        messages, codes = key_messages(keys, f"{self.salt}|".encode(), self.fold_key, "these rows")
        return np.asarray((words_of(messages) % np.uint64(self.folds)).astype(np.int64)[codes])

    def _folds_of(self, rows: Rows, given: Schema, train: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The fold of each train row, -1 for the others."""
        found = np.full(rows.count, -1, np.int64)
        keys = [as_keys(rows[n].kept(train), key_type(given.field(n), "TargetEncode")) for n in self.fold_key]
        found[train] = self.fold_of(keys)
        return found

    def _encoding(self, name: str, found: Mapping[str, Any], scale: float) -> dict[str, Any]:
        parts = [found[f"fold_{number}"] for number in range(self.folds)]
        whole = joined(parts)
        if not whole.num_rows:
            raise DataError(
                f"TargetEncode({name!r}): {self.target} has no value in the rows that are fitted on", column=self.target
            )
        known = _only(whole.sort_by("value").column("value"))
        figures: dict[str, Any] = {"folds": self.folds}
        columns, names = [known], ["value"]
        for label, table in (("all", whole), *((f"fold_{n}", _others(parts, n)) for n in range(self.folds))):
            if not table.num_rows:
                # Whatever such rows were given, it would follow from their own targets.
                raise DataError(
                    f"TargetEncode({name!r}): all rows that have a {self.target} are in {label.replace('_', ' ')} of "
                    f"{self.folds}, so nothing is known of them without their own targets",
                    hint="Give a fold_key that tells rows apart, or fit on more rows.",
                    column=self.target,
                )
            prior, counts, sums = _sums(table, scale)
            n, totals = np.zeros(len(known)), np.zeros(len(known))
            places = values_of(pc.index_in(_only(table.column("value")), value_set=known), np.int32)
            n[places], totals[places] = counts, sums
            weight = n + self.smoothing
            with np.errstate(over="ignore"):
                drawn = (totals + self.smoothing * prior) / np.where(weight > 0, weight, 1.0)
                drawn[weight == 0] = prior
                beyond = np.isinf(np.append(drawn, prior).astype(np.float32)).any()
            if beyond:
                raise DataError(
                    f"TargetEncode({name!r}): a mean of {self.target} is beyond float32",
                    hint="Scale the target in the function.",
                    column=self.target,
                )
            columns.append(column_of(pa.float64(), drawn))
            names.append(label)
            figures[label] = prior
        return {"encoding": pa.table(columns, names=names), **figures}


class _Folded:
    """Sums of the target by key, fold by fold."""

    def __init__(self, step: TargetEncode, given: Schema, /) -> None:
        self._step, self._given = step, given
        self._kinds = {n: key_type(given.field(n), "TargetEncode") for n in (*step.columns, *step.fold_key)}
        none = none_summed if is_exact(given.field(step.target).type) else none_of
        self._tables = {n: [[none(self._kinds[n])] for _ in range(step.folds)] for n in step.columns}

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows."""
        step, target = self._step, self._given.field(self._step.target)
        column = rows.column(rows.schema.get_field_index(target.name))
        exact = is_exact(target.type)
        chosen, numbers = whole_in(column, target) if exact else finite_in(column, target)
        mask, numbers = mask_of(chosen), numbers[chosen]

        def keys(name: str) -> Any:
            column = rows.column(rows.schema.get_field_index(name)).filter(mask)
            return keys_of(column, self._given.field(name), self._kinds[name])

        folds = step.fold_of([keys(name) for name in step.fold_key])
        for name, tables in self._tables.items():
            found = in_folds(keys(name), numbers, folds, step.folds, exact=exact)
            for number, table in enumerate(found):
                tables[number].append(table)
                if len(tables[number]) > 16:
                    tables[number] = [joined(tables[number])]

    def state(self) -> dict[str, Any]:
        """Column → the sums of each fold."""
        return {
            name: {f"fold_{number}": joined(one) for number, one in enumerate(tables)}
            for name, tables in self._tables.items()
        }


def is_exact(kind: pa.DataType, /) -> bool:
    """Whether numbers of the type are summed as whole ones: integers, bools, decimals that 64 bits hold."""
    return not pa.types.is_floating(kind) and not is_wide(kind)


def whole_in(column: Column, field: Field, /) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Where a number is there, and the numbers in their column's own unit: int64 or uint64, shape (n,)."""
    values = values_in(column, field)
    data = values.data
    if isinstance(data, np.ndarray):
        return values.present, data if data.dtype == np.uint64 else data.astype(np.int64, copy=False)
    wide = values_of(data.cast(pa.decimal128(38, data.type.scale)), "V16")
    return values.present, wide.view(np.int64).reshape(-1, 2)[:, 0]


def joined(tables: Sequence[pa.Table], /) -> pa.Table:
    """The sums of all, by key."""
    return summed_together(tables) if "high" in tables[0].column_names else together(tables)


def _sums(table: pa.Table, scale: float) -> tuple[float, NDArray[np.int64], NDArray[np.float64]]:
    """The mean of all, and of each key how many there are and their sum; in the user's unit."""
    n = table.column("n").to_numpy()
    if "high" not in table.column_names:
        mean, rest = table.column("mean").to_numpy(), table.column("rest").to_numpy()
        with np.errstate(over="ignore"):
            return of_all(table)[1], n, n * mean + n * rest
    high, low = table.column("high").to_numpy(), table.column("low").to_numpy()
    total = (int(high.sum()) << 32) + int(low.sum())
    return float(Fraction(total, int(n.sum())) / Fraction(scale)), n, (high * 2.0**32 + low) / scale


def _others(parts: Sequence[pa.Table], fold: int) -> pa.Table:
    """The sums of all folds but one."""
    return joined([one for number, one in enumerate(parts) if number != fold])


def _only(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
