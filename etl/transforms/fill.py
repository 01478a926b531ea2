"""NULLs of columns filled with a value, given or fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.late import Late
from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.tensors.views import mask_of
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
_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""Unit of moments → microseconds, at least one."""


@dataclass(frozen=True, slots=True)
class FillNull:
    """NULLs of columns become a value; NaN stays what it is. The columns then hold no NULL.

    Attributes:
        columns: Their names.
        value: Of the columns' own type; or "mean" or "median": that of the train rows, rounded to the column's type
            (half to even); or "mode": their most frequent value, of equally frequent ones the smallest.
            Neither NaN nor infinities count. A text "mean" itself cannot be filled in.
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
            elif not _has(kind, str(self.value)):
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
                middle = quantiles_of(f"FillNull, {self.value}", name, state[name], kind, None, "skip").at(0.5)
                found[name] = _held(_rounded(middle, kind), kind)
            elif self.value == "mode":
                counts = state[name]["counts"]
                if pa.types.is_floating(counts.schema.field("value").type):
                    counts = counts.filter(mask_of(np.isfinite(counts.column("value").to_numpy())))
                if not counts.num_rows:
                    raise self._nothing(name)
                found[name] = _held(by_frequency(counts).column("value")[0].as_py(), kind)
            else:
                known = moments(state[name], kind)
                if not known.n:
                    raise self._nothing(name)
                found[name] = _held(_rounded(known.mean, kind), kind)
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
    return Values(np.where(column.present, data, data.dtype.type(number_of(value))))


def _has(kind: Any, word: str) -> bool:
    """Whether a column of the type has a mean, a median or a mode."""
    types = pa.types
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        return word == "mode"
    return is_number(kind) or (bool(types.is_temporal(kind)) and not types.is_interval(kind) and word != "mean")


def _rounded(value: Fraction | float, kind: Any) -> Any:
    """A number as the nearest value of the column's type, half to even; moments are given in their carried unit."""
    if not pa.types.is_temporal(kind):
        return rounded(value, kind)
    step = _MICROS[getattr(kind, "unit", "us")]  # dates have none
    return round(Fraction(value) / step) * step


def _held(value: Any, kind: Any) -> Any:
    """A value as a state holds it: decimals and moments as text, spans as microseconds."""
    if pa.types.is_decimal(kind):
        return str(value)
    if isinstance(value, timedelta):
        value //= timedelta(microseconds=1)
    if not isinstance(value, int) or pa.types.is_duration(kind):
        return value.isoformat() if isinstance(value, date) else value
    if pa.types.is_date(kind):
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else UTC
        return (datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=value)).isoformat()
    if pa.types.is_time(kind):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).time().isoformat()
    return value


def _stated(value: Any, kind: Any) -> Any:
    """A value of a state as Python's own."""
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_duration(kind):
        return timedelta(microseconds=value)
    if pa.types.is_time(kind):
        return time.fromisoformat(value)
    return date.fromisoformat(value) if pa.types.is_date(kind) else value
