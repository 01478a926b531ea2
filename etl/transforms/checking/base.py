"""The contract of checks, and how a part is watched for all of them in one pass over its batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, get_args, runtime_checkable

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, SchemaError
from etl.tensors.checking import SAMPLE, Severity, Verdict
from etl.tensors.views import shown
from etl.transforms.host import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.checking import Ending


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch on its way into the dataset: as Arrow, and as NumPy where that is asked for."""

    batch: pa.RecordBatch
    rows: Rows
    given: Schema

    def column(self, name: str, /) -> Any:
        """A column as Arrow."""
        return self.batch.column(self.batch.schema.get_field_index(name))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check finds once all parts are there; see `Verdict`."""

    passed: bool
    observed: object
    said: str
    rows: int | None = None
    sample: tuple[Mapping[str, object], ...] = ()


class Observer(Protocol):
    """Sees one part for one check."""

    def take(self, seen: Seen, /) -> None:
        """The next rows."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What was seen."""
        ...


@runtime_checkable
class Check(Protocol):
    """One check: a frozen value whose fields are its arguments."""

    kind: ClassVar[str]

    @property
    def severity(self) -> Severity:
        """What it means when it fails."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns."""
        ...

    @property
    def limit(self) -> object:
        """What is declared, of JSON values."""
        ...

    def refuse(self, given: Schema, /) -> None:
        """Refuse columns that it cannot be of.

        Raises:
            ConfigError: A column is not there, or of another type.
        """
        ...

    def observer(self, given: Schema, keys: Sequence[str], part: int, /) -> Observer:
        """For one part."""
        ...

    def found(self, states: Sequence[Mapping[str, Any]], ending: Ending, /) -> Finding:
        """What the parts saw, in their order."""
        ...


class OfRows(Protocol):
    """A check of each row by itself."""

    def bad(self, seen: Seen, /) -> NDArray[np.bool_] | None:
        """True for the rows that offend, shape (n,); None: no row does."""
        ...


class Offending:
    """Counts rows that offend, and keeps the keys of the first."""

    def __init__(self, check: OfRows, keys: Sequence[str], part: int, /) -> None:
        self._check, self._keys, self._part = check, keys, part
        self._rows = self._bad = 0
        self._sample: list[dict[str, object]] = []

    def take(self, seen: Seen, /) -> None:
        """The next rows."""
        bad = self._check.bad(seen)
        if bad is not None:
            self._bad += int(np.count_nonzero(bad))
            wanted = SAMPLE - len(self._sample)
            if wanted:
                for row in np.flatnonzero(bad)[:wanted].tolist():
                    self._sample.append(key_of(seen, self._keys, self._part, self._rows, row))
        self._rows += seen.batch.num_rows

    def state(self) -> Mapping[str, Any]:
        """Counts and keys."""
        return {"rows": self._rows, "bad": self._bad, "sample": self._sample}


def offending(states: Sequence[Mapping[str, Any]], /) -> tuple[int, int, tuple[Mapping[str, object], ...]]:
    """Of all parts: rows, rows that offend, and keys of the first of these."""
    sample = [one for state in states for one in state["sample"]]
    return sum(s["rows"] for s in states), sum(s["bad"] for s in states), tuple(sample[:SAMPLE])


def outside(inside: NDArray[np.bool_], seen: Seen, column: str, /) -> NDArray[np.bool_] | None:
    """The rows that a condition is not true of, but for NULL."""
    if inside.all():
        return None
    values = seen.rows[column]
    return ~inside & values.present if values.nulls else ~inside


def none_of(states: Sequence[Mapping[str, Any]], what: str, /) -> Finding:
    """That no row offends."""
    rows, bad, sample = offending(states)
    return Finding(not bad, bad, f"{bad} of {rows} rows {what}", bad, sample)


def key_of(seen: Seen, keys: Sequence[str], part: int, first: int, row: int, /) -> dict[str, object]:
    """How a row is named: by its keys, else by its part and its number in it, from 1."""
    if not keys:
        return {"part": part, "row": first + row + 1}
    return {name: value_at(seen.column(name), row) for name in keys}


def value_at(column: Any, row: int, /) -> object:
    """A value of an Arrow array as JSON has it; stores have moments that Python has not."""
    if not column[row].is_valid:
        return None
    kind = column.type
    whole = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind)
    return shown(column, row) if whole else json_of(column[row].as_py())


def json_of(value: object, /) -> object:
    """A value as JSON has it; whatever has no form is its text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def severity_of(value: object, owner: str, /) -> None:
    """Hold that it is one.

    Raises:
        ConfigError: It is none.
    """
    if value not in get_args(Severity):
        raise ConfigError(f"{owner}: severity is {value!r}", hint='It is "error" or "warn".')


def title(check: Check, /) -> str:
    """The check with its columns."""
    name = getattr(check, "name", check.kind)
    return f"{name}({', '.join(check.reads)})" if check.reads else name


def told(check: Check, /) -> dict[str, object]:
    """A check as a plan shows it."""
    return {"name": title(check), "severity": check.severity, "limit": check.limit}


@dataclass(frozen=True, slots=True)
class Checks:
    """All checks of a pipeline, as its dataset asks for them."""

    checks: tuple[Check, ...]

    def refuse(self, schema: Schema, /) -> None:
        """Refuse columns that a check cannot be of.

        Raises:
            ConfigError: A column is of another type; the check is named.
            SchemaError: A column is not there.
        """
        for check in self.checks:
            try:
                schema.require(*check.reads)
                check.refuse(schema)
            except (ConfigError, SchemaError) as error:
                raise error.at(f"check {title(check)}") from error

    def watch(self, schema: Schema, keys: Sequence[str], part: int, /) -> Watching:
        """For one part."""
        return Watching(schema, [one.observer(schema, keys, part) for one in self.checks])

    def judged(self, facts: Sequence[Mapping[str, object]], ending: Ending, /) -> list[Verdict]:
        """What the parts saw, in their order, against what was declared."""
        out = []
        for number, check in enumerate(self.checks):
            states = [cast("Mapping[str, Any]", one[str(number)]) for one in facts]
            found = check.found(states, ending)
            out.append(
                Verdict(
                    title(check),
                    found.passed,
                    check.severity,
                    check.limit,
                    found.observed,
                    found.rows,
                    () if found.passed else found.sample,
                    found.said,
                )
            )
        return out


class Watching:
    """One part, for all checks."""

    def __init__(self, given: Schema, observers: Sequence[Observer], /) -> None:
        self._given, self._observers = given, observers

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows that will be published."""
        if not rows.num_rows:
            return
        seen = Seen(rows, Rows.of_batch(rows, self._given), self._given)
        for one in self._observers:
            one.take(seen)

    def facts(self) -> Mapping[str, object]:
        """What was seen, by the number of the check."""
        return {str(number): one.state() for number, one in enumerate(self._observers)}
