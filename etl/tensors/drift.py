"""How the values of two versions differ, by column and split, and limits on that; only manifests are read.

Where two versions were prepared by different fits, what their steps wrote has other meanings: then the values as they
went into the steps are compared instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.tensors.manifest import integer
from etl.tensors.psi import lists_all, stability
from etl.tensors.summary import combined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etl.tensors.psi import Stability

NAMING: Final = frozenset({"key", "split_key"})
PASSING: Final = frozenset({"timestamp", "date"})
"""New rows have new keys and later times: that is no drift."""
GIVEN: Final = "given"
"""Stands for a split where the values are those before the first step of `prepare`, of all rows."""
_NUMBERS: Final = frozenset({"integer", "decimal", "continuous"})
"""Kinds whose values are compared with one another's."""
_CATEGORIES: Final = frozenset({"text", "categorical", "bool", "integer", "decimal"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What may differ; None: anything. A value at its limit is within it.

    Attributes:
        psi: Of the population stability index.
        null_change: Of the change of the share of rows that are NULL, and of those that are NaN, from 0 to 1.
        mean_shift: Of the change of the mean, in standard deviations of the old version.
        spread_ratio: Of the larger standard deviation over the smaller one, at least 1.
        new_categories: Of values that only the new version has.
        gone_categories: Of values that only the old version has.
    """

    psi: float | None = None
    null_change: float | None = None
    mean_shift: float | None = None
    spread_ratio: float | None = None
    new_categories: int | None = None
    gone_categories: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            limit = getattr(self, one.name)
            least = 1 if one.name == "spread_ratio" else 0
            if limit is not None and not limit >= least:
                raise ConfigError(f"the limit {one.name} is {limit}", hint=f"Give a number of at least {least}.")

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(getattr(self, one.name) is not None for one in fields(self))


@dataclass(frozen=True, slots=True)
class Excess:
    """A measure beyond its limit.

    Attributes:
        column: The column.
        split: The split.
        measure: A field of `Limits`.
        value: What it is.
        limit: What it may be.
    """

    column: str
    split: str
    measure: str
    value: float
    limit: float

    def __str__(self) -> str:
        """In words."""
        side = "" if self.split == "all" else f" of {self.split}"
        return f"column {self.column}{side}: {self.measure} {self.value:.4g}, the limit is {self.limit:g}"

    def as_json(self) -> dict[str, object]:
        """As JSON values; a value that is not finite is a word."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class ColumnDrift:
    """How a column's values in one split differ. Pairs are (old, new).

    Attributes:
        column: The column.
        split: The split; "all" where the versions have other splits, "given": as the values went into the steps.
        passing: Whether it is a key, a time or a running number: new rows have new ones, which is no drift.
        rows: Rows, absent values among them.
        null: Share of the rows that are NULL.
        nan: Share of the rows that are NaN.
        mean: Of the finite values; None where there are none, or none that are numbers.
        deviation: The standard deviation (divided by n).
        appeared, gone: Values that only one side has, as far as both list them.
        new_categories, gone_categories: How many, at least; None where too little is known.
        stability: The population stability index; None where too little is known.
    """

    column: str
    split: str
    passing: bool
    rows: tuple[int, int]
    null: tuple[float, float]
    nan: tuple[float, float]
    mean: tuple[float, float] | None
    deviation: tuple[float, float] | None
    appeared: tuple[object, ...]
    gone: tuple[object, ...]
    new_categories: int | None
    gone_categories: int | None
    stability: Stability | None

    @property
    def psi(self) -> float | None:
        """The population stability index."""
        return None if self.stability is None else self.stability.value

    @property
    def null_change(self) -> float:
        """The larger change of the two shares."""
        return max(abs(self.null[1] - self.null[0]), abs(self.nan[1] - self.nan[0]))

    @property
    def mean_shift(self) -> float | None:
        """The change of the mean in old standard deviations; infinite where all old values were equal."""
        if self.mean is None or self.deviation is None:
            return None
        apart = abs(self.mean[1] - self.mean[0])
        return apart if math.isnan(apart) or not apart else apart / self.deviation[0] if self.deviation[0] else math.inf

    @property
    def spread_ratio(self) -> float | None:
        """The larger standard deviation over the smaller one; infinite where only one side's values are all equal."""
        if self.deviation is None:
            return None
        low, high = sorted(self.deviation)
        return 1.0 if low == high else high / low if low else math.inf

    def as_json(self) -> dict[str, object]:
        """As JSON values; values that are not finite are words."""
        found = {one.name: plain(getattr(self, one.name)) for one in fields(self) if one.name != "stability"}
        found |= {name: plain(getattr(self, name)) for name in ("null_change", "mean_shift", "spread_ratio")}
        return found | ({"psi": None} if self.stability is None else plain(self.stability.as_json()))


def plain(value: Any, /) -> Any:
    """A value as JSON has it: tuples are lists, numbers that are not finite are words."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def drift_of(old: Mapping[str, Any], new: Mapping[str, Any], /) -> tuple[ColumnDrift, ...]:
    """The drift of every column that both versions have with the same role and kind, split by split.

    Args:
        old: A manifest's document: its `columns`, `given`, `fit` and `splits`.
        new: Another's.
    """
    fits = [(one.get("fit") or {}).get("fit_id") for one in (old, new)]
    found = [
        drifted
        for was, now in _both(old.get("columns") or (), new.get("columns") or ())
        if fits[0] == fits[1] or not (was.get("transforms") or now.get("transforms"))
        for drifted in _drifts(was, now)
    ]
    found += [
        replace(drifted, split=GIVEN)
        for was, now in _both(old.get("given") or (), new.get("given") or ())
        for drifted in _drifts(was, now)
    ]
    return tuple(found)


def beyond(drifts: Sequence[ColumnDrift], limits: Limits, columns: Sequence[str] = (), /) -> tuple[Excess, ...]:
    """What passes its limit.

    Args:
        drifts: Of two versions.
        limits: What may differ.
        columns: Only these are held to the limits; none: all but keys, times and running numbers.

    Raises:
        ConfigError: A column is in none of `drifts`, so that it would be held to nothing.
    """
    known = dict.fromkeys(one.column for one in drifts)
    for name in columns:
        if name not in known:
            hint = nearest(name, list(known), what="columns") or "Both versions must have it, with statistics."
            raise ConfigError(f"there is nothing to compare of column {name}", hint=hint)
    held = [one for one in drifts if (one.column in columns if columns else not one.passing)]
    return tuple(excess for one in held for excess in _excess(one, limits))


def _excess(drifted: ColumnDrift, limits: Limits) -> Iterator[Excess]:
    for one in fields(limits):
        limit, value = getattr(limits, one.name), getattr(drifted, one.name)
        # A measure that is no number passes no limit, and is not within one either.
        if limit is not None and value is not None and not value <= limit:
            yield Excess(drifted.column, drifted.split, one.name, value, limit)


def _both(
    old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Columns of one name and role whose kinds can be compared; one may be there twice, as a feature and as a key."""
    before = {(one["name"], one.get("role")): one for one in old}
    for column in new:
        was = before.get((column["name"], column.get("role")))
        if was is None:
            continue
        if was["kind"] == column["kind"]:
            yield was, column
        elif {was["kind"], column["kind"]} <= _NUMBERS:
            yield _as_reals(was), _as_reals(column)


def _as_reals(column: Mapping[str, Any]) -> dict[str, Any]:
    """A column of numbers whose statistics are said in floats; where bins of a histogram end depends on the kind."""
    found = {}
    for split, stats in (column.get("stats") or {}).items():
        real = {key: value for key, value in stats.items() if key != "histogram"}
        real |= {key: None if stats[key] is None else float(stats[key]) for key in ("min", "max")}
        real["quantiles"] = {q: float(value) for q, value in stats["quantiles"].items()}
        real["top"] = [[float(value), n] for value, n in stats["top"]]
        found[split] = real
    return {**column, "kind": "continuous", "stats": found}


def incomparable(old: Mapping[str, Any], new: Mapping[str, Any], drifts: Sequence[ColumnDrift], /) -> dict[str, str]:
    """Columns of the old version that limits say nothing of → why, in words; keys are left out.

    Args:
        old: A manifest's document.
        new: Another's.
        drifts: Of both.
    """
    known = {one.column for one in drifts}
    after = {(one["name"], one.get("role")): one for one in new.get("columns") or ()}
    found = {}
    for column in old.get("columns") or ():
        name, now = str(column["name"]), after.get((column["name"], column.get("role")))
        if name in known or column.get("role") in NAMING:
            continue
        if now is None:
            found[name] = "is not there any more"
        elif column.get("transforms") and old.get("given") and new.get("given"):
            continue  # other fits: what it was made of is compared
        elif now["kind"] != column["kind"]:
            found[name] = f"was {column['kind']} and is {now['kind']}"
        else:
            found[name] = "has no statistics to compare"
    return found


def _drifts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ColumnDrift]:
    kind = str(new["kind"])
    was, now = dict(old.get("stats") or {}), dict(new.get("stats") or {})
    if not was or not now:
        return
    passing = new.get("role") in NAMING or kind in PASSING
    passing = passing or (kind == "integer" and goes_on(was.values(), now.values()))
    if set(was) != set(now):
        was, now = ({"all": reduce(lambda a, b: combined(kind, a, b), side.values())} for side in (was, now))
    for split, before in was.items():
        yield _drift(new, split, passing=passing, old=before, new=now[split])


def _drift(
    column: Mapping[str, Any], split: str, *, passing: bool, old: Mapping[str, Any], new: Mapping[str, Any]
) -> ColumnDrift:
    sides = (old, new)
    rows = integer(old["count"]) + integer(old["null"]), integer(new["count"]) + integer(new["null"])
    means = [one["mean"] for one in sides]
    known = None not in means
    kind = str(column["kind"])
    appeared, gone, new_count, gone_count = _categories(old, new) if kind in _CATEGORIES else ((), (), None, None)
    return ColumnDrift(
        column=str(column["name"]),
        split=split,
        passing=passing,
        rows=rows,
        null=_of(sides, "null", rows),
        nan=_of(sides, "nan", rows),
        mean=(float(means[0]), float(means[1])) if known else None,
        deviation=(deviation(old), deviation(new)) if known else None,
        appeared=appeared,
        gone=gone,
        new_categories=new_count,
        gone_categories=gone_count,
        stability=stability(kind, old, new),
    )


def _of(sides: Sequence[Mapping[str, Any]], key: str, rows: tuple[int, int]) -> tuple[float, float]:
    first, second = (integer(one[key]) / max(1, all_) for one, all_ in zip(sides, rows, strict=True))
    return first, second


def _categories(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[tuple[object, ...], tuple[object, ...], int | None, int | None]:
    """Values that only the new side has, that only the old side has, and how many of each there are at least."""
    sides = [[value for value, _ in one["top"]] for one in (old, new)]
    found: list[tuple[tuple[object, ...], int | None]] = []
    for mine, its, listed, other in ((new, old, sides[1], sides[0]), (old, new, sides[0], sides[1])):
        if not lists_all(its):
            found.append(((), None))
            continue
        alone = tuple(value for value in listed if value not in other)
        # Of a side that does not list all values, as many are new as it has more.
        more = 0 if lists_all(mine) or mine["distinct"] is None else integer(mine["distinct"]) - len(other)
        found.append((alone, max(len(alone), more)))
    return found[0][0], found[1][0], found[0][1], found[1][1]


def goes_on(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]], /) -> bool:
    """Whether these are running numbers that go on: no value twice, and all new ones beyond all old ones."""
    sides = [[one for one in side if integer(one["count"])] for side in (old, new)]
    if not all(sides) or any(one["distinct"] != one["count"] for side in sides for one in side):
        return False
    return max(integer(one["max"]) for one in sides[0]) < min(integer(one["min"]) for one in sides[1])


def deviation(stats: Mapping[str, Any], /) -> float:
    """The standard deviation (of all, not of a sample: divided by n)."""
    finite = integer(stats["count"]) - integer(stats["nan"]) - integer(stats["inf"])
    return math.sqrt(float(stats["m2"]) / finite) if finite else 0.0
