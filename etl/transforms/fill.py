"""NULLs of columns filled with a value, given or fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.late import Late
from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.transforms.base import listed
from etl.transforms.bounds import rounded
from etl.transforms.constants import carried_value, constant_of, number_of
from etl.transforms.counts import CountsOf, by_frequency, key_type, merged_counts
from etl.transforms.figures import FiguresOf, is_number, merged, moments
from etl.transforms.host import Values
from etl.transforms.literals import column_of
from etl.transforms.lookups import FEW
from etl.transforms.quantiles import QuantilesOf, merged_quantiles, quantiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.compute as pc

    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows
else:
    pc = Late("pyarrow.compute")

WORDS = ("mean", "median", "mode")
"""Values that are fitted."""


@dataclass(frozen=True, slots=True)
class FillNull:
    """NULLs of columns become a value; NaN stays what it is. The columns then hold no NULL.

    Attributes:
        columns: Their names.
        value: Of the columns' own type; or "mean" or "median": that of the train rows, rounded to the column's type
            (half to even); or "mode": their most frequent value, of equally frequent ones the smallest.
        indicator: With one column: the name of a bool column that says where it was NULL.

    Raises:
        ConfigError: No column, or a value that nothing can be filled with.
    """

    kind: ClassVar[str] = "fill_null"
    columns: tuple[str, ...]
    value: object
    indicator: str | None = None

    def __init__(self, columns: str | list[str] | tuple[str, ...], value: object, indicator: str | None = None) -> None:
        names = listed(columns, "FillNull")
        if isinstance(value, np.generic):
            value = value.item()  # equal steps are saved as equal text
        if value is None:
            raise ConfigError(f"FillNull({', '.join(names)}): None is NULL itself", hint="Give a value to fill with.")
        name: object = indicator
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigError(
                f"FillNull({', '.join(names)}): the indicator is {indicator!r}", hint="It is the name of a new column."
            )
        if indicator is not None and len(names) > 1:
            raise ConfigError(
                f"FillNull: one indicator {indicator!r} for {len(names)} columns", hint="Write a step for each column."
            )
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "indicator", indicator)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns, and the indicator."""
        return self.columns if self.indicator is None else (*self.columns, self.indicator)

    @property
    def fits(self) -> bool:
        """Only for a word."""
        return isinstance(self.value, str) and self.value in WORDS

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns, those filled without NULL; the indicator comes last."""
        given.require(*self.columns)
        for name in self.columns:
            kind = given.field(name).type
            if not self.fits:
                constant_of(self.value, given.field(name))
            elif self.value == "mode":
                key_type(given.field(name), "FillNull", allow_float=True)
            elif not is_number(kind) or pa.types.is_boolean(kind):
                raise ConfigError(
                    f"FillNull({name!r}, {self.value!r}): {name} is {kind}, which has no {self.value}",
                    hint="Fill it with a value of its own type.",
                    column=name,
                )
        fields = [replace(f, nullable=False) if f.name in self.columns else f for f in given]
        if self.indicator is not None:
            if self.indicator in given.names:
                raise ConfigError(
                    f"FillNull({', '.join(self.columns)}): there is a column {self.indicator} already",
                    hint="Give the indicator another name.",
                    column=self.indicator,
                )
            fields.append(Field(self.indicator, pa.bool_(), nullable=False))
        return Schema(tuple(fields))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Moments, quantiles or counts: what the word is found from."""
        if self.value == "median":
            return QuantilesOf(given, self.columns)
        if self.value == "mode":
            fields = {name: given.field(name) for name in self.columns}
            return CountsOf(given, {n: key_type(f, "FillNull", allow_float=True) for n, f in fields.items()})
        return FiguresOf(given, self.columns, part)

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        by_word: Mapping[object, Any] = {"median": merged_quantiles, "mode": merged_counts}
        both = by_word.get(self.value, merged)
        return {name: both(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → the value that its NULLs become; numbers, decimals as text."""
        del filled  # a column that was filled has no NULL left
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            if self.value == "median":
                found[name] = rounded(quantiles_of("FillNull", name, state[name], kind, None, "skip").at(0.5), kind)
            elif self.value == "mode":
                counts = by_frequency(state[name]["counts"])
                if not counts.num_rows:
                    raise self._nothing(name)
                found[name] = _held(counts.column("value")[0].as_py())
            else:
                known = moments(state[name], kind)
                if not known.n:
                    raise self._nothing(name)
                found[name] = rounded(known.mean, kind)
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Nothing."""
        del state
        return ()

    def _nothing(self, name: str) -> DataError:
        return DataError(
            f"FillNull({name!r}, {self.value!r}): column {name} has no value in the rows that are fitted on",
            hint="Fill it with a value of your own, or leave the column out.",
            column=name,
        )

    def filled_with(self, name: str, given: Schema, state: State, /) -> Fraction | float:
        """The number that takes the place of NULL in a column that was fitted."""
        value = _stated(state[name], given.field(name).type)
        return value if isinstance(value, float) else Fraction(value)

    def value_in(self, field: Field, state: State, /) -> Any:
        """What takes the place of NULL in a column, as one of its own values."""
        return constant_of(_stated(state[field.name], field.type) if self.fits else self.value, field)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the NULLs filled."""
        made: dict[str, Values] = {}
        for name in self.columns:
            field, column = given.field(name), rows[name]
            if self.indicator is not None:
                made[self.indicator] = Values(~column.present)
            nulls = column.nulls
            rows.counted(name, "filled", nulls)
            if nulls:
                made[name] = filled_on_host(column, self.value_in(field, state))
        return rows.with_columns(made)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with the NULLs filled."""
        made = frame.copy(deep=False)
        for name in self.columns:
            field = given.field(name)
            value = self.value_in(field, state)
            if self.indicator is not None:
                made[self.indicator] = frames.is_null(frame[name])
            series = frame[name]
            if isinstance(field.type, pa.DictionaryType) and value not in series.cat.categories:
                series = series.cat.add_categories([value])  # the labels of this part may be others
            made[name] = frames.fill_null(series, carried_value(value))
        return made


def filled_on_host(column: Values, value: Any, /) -> Values:
    """A column with a value of its own type where it is absent."""
    data = column.data
    if not isinstance(data, np.ndarray):
        if len(data) <= FEW:  # a service: Arrow's scalars would import pandas
            return column_of([value if one is None else one for one in data.to_pylist()], data.type)
        return Values(pc.fill_null(data, pa.scalar(value, type=data.type)))
    made = data.copy()
    made[~column.present] = number_of(value)
    return Values(made)


def _held(value: Any) -> Any:
    """A value as a state holds it: decimals and moments as text."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _stated(value: Any, kind: Any) -> Any:
    """A value of a state as Python's own."""
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    return date.fromisoformat(value) if pa.types.is_date(kind) else value
