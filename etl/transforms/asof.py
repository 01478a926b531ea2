"""`AsOf`: what was known at a moment. A fact counts once it has happened and once it was known, whichever comes later.

A join on the time of the event alone gives a row facts that were recorded days after it, and a model learns from the
future.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError, SchemaError
from etl.core.schema import Field, Schema
from etl.transforms.base import listed
from etl.transforms.host import values_in
from etl.transforms.latest import last_known
from etl.transforms.ordered import Codes, check_key, codes_of, groups_of, said_of
from etl.transforms.together import (
    BUCKET,
    brought_together,
    check_columns,
    check_new,
    columns_of,
    is_collection,
    library_of,
    with_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class AsOf:
    """To each row of a frame the latest row of another that had happened and was known at the row's time.

    `AsOf(on="ordered_at", event="priced_at", known="loaded_at", by="item_id", columns=["price"])(orders, prices)`.

    Of the right rows with the same `by`, those count whose `event` and whose `known` are not after `on`; the one with
    the latest event is taken, of several the one that was known last, of those the greatest `tie`. Rows out are rows
    in, in the same order, none left out and none twice; NULL where nothing counts. NULL in `by`, `on`, `event` or
    `known` matches nothing, as in SQL.

    Attributes:
        on: The time of the left rows.
        event: The time at which a right row happened.
        known: The time from which a right row was known; the same column as `event` if at once.
        columns: What is taken of the right rows.
        by: Columns of both that must be equal; none: all rows match.
        tie: Columns of the right rows that decide where event and known are equal, the greatest is taken; without it
            two such rows are refused, unless they have the same in `columns`.
        suffix: Behind the names of the new columns.

    Raises:
        ConfigError: An argument is none that there is.
    """

    on: str
    event: str
    known: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    tie: tuple[str, ...]
    suffix: str

    def __init__(
        self,
        *,
        on: str,
        event: str,
        known: str,
        columns: str | list[str] | tuple[str, ...],
        by: str | list[str] | tuple[str, ...] = (),
        tie: str | list[str] | tuple[str, ...] = (),
        suffix: str = "",
    ) -> None:
        values: dict[str, object] = {"on": on, "event": event, "known": known}
        for what, name in values.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(f"AsOf: {what} is {name!r}", hint="It names a column of times.")
        given: object = suffix
        if not isinstance(given, str):
            raise ConfigError(f"AsOf: suffix is {suffix!r}", hint='It is text such as "_then".')
        values |= {"columns": listed(columns, "AsOf"), "suffix": suffix}
        for what, names in (("by", by), ("tie", tie)):
            values[what] = listed(names, f"AsOf, {what}=") if isinstance(names, str) or tuple(names) else ()
        for what, value in values.items():
            object.__setattr__(self, what, value)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the right rows."""
        return tuple(dict.fromkeys((*self.by, self.event, self.known, *self.tie, *self.columns)))

    def __call__(self, left: Any, right: Any, /) -> Any:
        """The left frame or collection with the columns of the right one behind its own.

        A collection keeps the order of its rows where the right rows are in one partition; else its groups are brought
        together, and its rows have no order. `right` may be a frame beside a collection, `left` not.

        Raises:
            SchemaError: A column is missing, or the two have other types.
            DataError: Right rows that differ have the same event and known times.
        """
        check_columns(left, [*self.by, self.on], "AsOf, left")
        check_columns(right, self.reads, "AsOf, right")
        names = [name + self.suffix for name in self.columns]
        check_new(names, list(left.columns), "AsOf", "Give suffix=, or rename the column.")
        if not is_collection(left):
            if is_collection(right):
                raise SchemaError(
                    "AsOf: the left rows are a frame and the right rows a collection",
                    hint="Pass a collection of the left rows, or right.compute().",
                )
            return self._on_frames(left, right)
        return self._on_collections(left, right)

    def _on_frames(self, left: Any, right: Any) -> Any:
        library_of(left, "AsOf")
        mine, have = columns_of(left, [*self.by, self.on], "AsOf")
        theirs, given = columns_of(right, self.reads, "AsOf")
        self._check(have, given)
        places = _places(self, mine, have, theirs, given)
        taken = pa.array(np.maximum(places, 0), mask=places < 0)
        made = {name + self.suffix: theirs[name].take(taken) for name in self.columns}
        added = Schema(tuple(Field(name + self.suffix, given.field(name).type) for name in self.columns))
        return with_columns(left, made, added, "AsOf")

    def _on_collections(self, left: Any, right: Any) -> Any:
        empty = right._meta if is_collection(right) else right.iloc[:0]  # noqa: SLF001 # as in `together`
        meta = self._on_frames(left._meta, empty)  # noqa: SLF001 # the same
        parts = max(left.npartitions, right.npartitions) if is_collection(right) else 1
        if is_collection(right) and right.npartitions > 1:
            right = right[list(self.reads)]
            if self.by:
                left = brought_together(left, self.by, parts, "AsOf")
                right = brought_together(right, self.by, parts, "AsOf")
            else:
                right = right.repartition(npartitions=1)
        return left.map_partitions(_of_partitions, right, step=self, meta=meta, align_dataframes=False)

    def _check(self, left: Schema, right: Schema) -> None:
        """Hold that times are of one kind, and keys too."""
        for name in self.by:
            check_key(left.field(name), "AsOf", "by")
            _check_same(name, left.field(name).type, name, right.field(name).type)
        for name in self.tie:
            check_key(right.field(name), "AsOf", "tie")
        clock = left.field(self.on).type
        for name in dict.fromkeys((self.event, self.known)):
            kind = right.field(name).type
            if pa.types.is_temporal(clock) and pa.types.is_temporal(kind) and str(clock) != str(kind):
                raise SchemaError(
                    f"AsOf: {self.on} is {clock} and {name} is {kind}",
                    hint="Give both the same type; a day is known at its end: "
                    f"""right.assign({name}=right["{name}"].astype("datetime64[us]") + timedelta(days=1)).""",
                    column=name,
                )
            _check_same(self.on, clock, name, kind)
            whole = pa.types.is_integer(kind) and kind != pa.uint64()
            if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or whole):
                raise ConfigError(
                    f"AsOf: {name} is {kind}, which is no time",
                    hint="Times are moments, dates or integers of up to 63 bits.",
                    column=name,
                )


def _of_partitions(left: Any, right: Any, *, step: AsOf) -> Any:
    if BUCKET in left.columns:
        left = left.drop(columns=[BUCKET])
    return step(left, right)


def _check_same(one: str, kind: Any, other: str, found: Any) -> None:
    same = kind == found or (pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(found))
    if not same:
        raise SchemaError(
            f"AsOf: {one} of the left rows is {kind}, {other} of the right rows is {found}",
            hint="Cast one of them first.",
            column=other,
        )


def _places(
    step: AsOf, mine: Mapping[str, Any], have: Schema, theirs: Mapping[str, Any], given: Schema
) -> NDArray[np.int64]:
    """The right row of each left row, shape (left rows,), int64; -1 where there is none."""
    when, asked = _times(mine[step.on], have.field(step.on))
    event, happened = _times(theirs[step.event], given.field(step.event))
    known, told = _times(theirs[step.known], given.field(step.known))
    for name in step.by:
        asked = asked & np.asarray(mine[name].is_valid())
        happened = happened & np.asarray(theirs[name].is_valid())
    groups = groups_of([_both(mine[n], have.field(n), theirs[n], given.field(n)) for n in step.by], _rows(when, event))
    (usable,) = np.nonzero(happened & told)
    ties = [codes_of(theirs[name], given.field(name)) for name in step.tie]
    theirs_group = groups[len(when) :][usable]
    keys = [theirs_group, event[usable], known[usable], *(key[usable] for one in ties for key in one.keys)]
    order = np.lexsort(keys[::-1])
    usable, placed = usable[order], [key[order] for key in keys]
    _refuse_ties(step, theirs, given, usable, placed)
    steps, ranks = np.unique(placed[1], return_inverse=True)
    each = len(steps) + 1
    # A group and an event's rank as one number, so that one search finds what had happened.
    happened_at = placed[0] * each + ranks + 1
    moments = np.searchsorted(steps, when, side="right")
    stop = np.searchsorted(happened_at, groups[: len(when)] * each + moments, side="right")
    found = last_known(placed[2], np.where(asked, stop, 0), when)
    kept = found >= 0
    # What was found is the last that was known in any group: of an earlier group it says that this one has none.
    kept[kept] = placed[0][found[kept]] == groups[: len(when)][kept]
    return np.where(kept, usable[np.where(kept, found, 0)], -1) if len(usable) else np.full(len(when), -1)


def _refuse_ties(
    step: AsOf, theirs: Mapping[str, Any], given: Schema, rows: NDArray[np.int64], placed: Sequence[NDArray[Any]]
) -> None:
    """Hold that rows with the same place have the same to give."""
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for key in placed:
        same &= key[1:] == key[:-1]
    if not same.any():
        return
    (twins,) = np.nonzero(same)
    one, other = rows[twins], rows[twins + 1]
    for name in step.columns:
        apart = _apart(theirs[name], given.field(name), one, other)
        if apart.any():
            at = int(np.argmax(apart))
            a, b = (theirs[name][int(row)].as_py() for row in (one[at], other[at]))
            where = said_of(theirs, (*step.by, step.event, step.known, *step.tie), int(one[at]))
            raise DataError(
                f"AsOf: two right rows have the same times, {where}, and {name} {a} and {b}",
                hint="Give tie= a column that tells which of them counts, such as the table's key.",
                column=name,
            )


def _apart(array: Any, field: Field, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where two rows have different values; NULL is NULL and NaN is NaN."""
    if pa.types.is_nested(field.type):
        texts = (array.take(pa.array(rows)).to_pylist() for rows in (one, other))
        return np.array([repr(a) != repr(b) for a, b in zip(*texts, strict=True)], np.bool_)
    codes = codes_of(array, field)
    a, b = codes.data[one], codes.data[other]
    made: NDArray[np.bool_] = (a != b) & ~((a != a) & (b != b))  # noqa: PLR0124 # only NaN differs from itself
    return made if codes.valid is None else made | (codes.valid[one] != codes.valid[other])


def _times(array: Any, field: Field) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    values = values_in(array, field)
    present = values.present
    return np.where(present, values.data, 0).astype(np.int64), present


def _both(left: Any, mine: Field, right: Any, theirs: Field) -> Codes:
    """One column of both frames, the left one first, as codes."""
    kind = mine.type if mine.type == theirs.type else pa.int64()
    return codes_of(pa.concat_arrays([left.cast(kind), right.cast(kind)]), Field(mine.name, kind))


def _rows(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    return len(left) + len(right)
