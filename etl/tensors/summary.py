"""Statistics as the manifest has them: from what the parts found, and of an old version together with new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.tensors.stats import DIGITS, Stats, merged
from etl.tensors.sums import RealSums, offsets_from
from etl.tensors.views import Column, column_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

QUANTILES = (
    *(0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99),
)
"""Twentieths, so that the tenths of one version are found among the values of another."""
TOP = 20
"""Most frequent values that are listed; all values, where there are no more."""
BINS = 16
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Spread:
    """Distinct values in order and how often each is there.

    Attributes:
        values: [n], ascending: integers or floats in NumPy, texts and bools in a list.
        times: [n], rows of each; estimated from a sample where `sampled` is given.
        distinct: How many distinct values all rows have.
        seen: [n], how often each is in the sample.
        sampled: Rows looked at; None: all.
    """

    values: Any
    times: NDArray[np.float64]
    distinct: int
    seen: NDArray[np.int64]
    sampled: int | None


def summary(kind: Any, parts: Sequence[Stats], /) -> dict[str, object]:
    """The object of one column and split.

    Integers are integers, decimals are text, floats are floats; timestamps, times and durations are microseconds
    (finer ones rounded down), dates are days since 1970, as in the tensors. Of a list the numbers are its lengths.

    Args:
        kind: The column's Arrow type.
        parts: In their order.
    """
    found = merged(parts)
    kind = _arrived(kind, parts)
    real = found.whole.real(_scale(kind))
    real.add(found.real)
    spread = _spread(kind, found, parts)
    made: dict[str, object] = {
        "count": found.rows - found.null,
        "null": found.null,
        "nan": found.nan,
        "inf": found.inf,
        "min": None if found.least is None else said(kind, found.least),
        "max": None if found.most is None else said(kind, found.most),
        "mean": _plain(real.mean) if real.count else None,
        "m2": _plain(real.m2) if real.count else None,
        "distinct": None,
        "quantiles": {},
        "top": [],
    }
    if spread is None:
        return made
    made["distinct"] = spread.distinct
    made["top"] = [[said(kind, value), count] for value, count in _top(spread)]
    if isinstance(spread.values, np.ndarray) and len(spread.values):
        made["quantiles"] = {repr(q): said(kind, value) for q, value in _quantiles(spread)}
        made["histogram"] = _histogram(spread)
    if spread.sampled is not None:
        made["sampled"] = spread.sampled
    return made


def said(kind: Any, value: Any, /) -> object:
    """A value of a column in the manifest's words."""
    types = pa.types
    if types.is_decimal(kind):
        return format(Decimal(int(value)).scaleb(-kind.scale, DIGITS), "f")
    if isinstance(value, bool | str):
        return value
    if types.is_floating(kind):
        return _plain(float(value))
    return math.floor(int(value) * _scale(kind))


def _plain(number: float) -> float | str:
    """A float as JSON has it: those that are no numbers in words."""
    if math.isnan(number):
        return "nan"
    return number if math.isfinite(number) else "inf" if number > 0 else "-inf"


def _scale(kind: Any) -> Fraction:
    """The manifest's unit in that of the column's integers."""
    types = pa.types
    if types.is_decimal(kind):
        return Fraction(1, 10**kind.scale) if kind.scale >= 0 else Fraction(10**-kind.scale)
    if types.is_date64(kind):
        return Fraction(1, _DAY)
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        return {"s": Fraction(1_000_000), "ms": Fraction(1000), "us": Fraction(1), "ns": Fraction(1, 1000)}[kind.unit]
    return Fraction(1)


def _arrived(kind: Any, parts: Sequence[Stats]) -> Any:
    """The type that was counted: a decimal that is a float tensor in every dataset arrives as float64."""
    if not pa.types.is_decimal(kind):
        return kind
    samples = [one.sample.type for one in parts if one.sample is not None]
    return samples[0] if samples and pa.types.is_floating(samples[0]) else kind


def _spread(kind: Any, found: Stats, parts: Sequence[Stats]) -> Spread | None:
    present = found.rows - found.null
    if found.table is not None:
        keys = sorted(found.table)
        times = np.array([found.table[key] for key in keys], np.float64)
        numbers = bool(keys) and not isinstance(keys[0], bool | str)
        listed: Any = np.array(keys, np.int64) if numbers and keys[0] >= -(2**63) and keys[-1] < 2**63 else keys
        return Spread(listed, times, len(keys), times.astype(np.int64), None)
    filled = [one for one in parts if one.rows > one.null]
    if not filled or any(one.sampled is None or one.sample is None for one in filled):
        return None
    whole = all(one.sampled == one.rows for one in parts if one.rows)
    sampled = None if whole else sum(one.sampled or 0 for one in parts)
    weights = np.concatenate([np.full(len(one.sample), one.rows / max(1, one.sampled or 0)) for one in filled])
    column: Column = pa.concat_arrays([one.sample for one in filled])
    values = _sortable(kind, column)
    if values is None:
        return None
    if pa.types.is_floating(kind):
        weights, values = weights[~np.isnan(values)], values[~np.isnan(values)]
        present -= found.nan
    return _grouped(values, weights, present, sampled, column if _is_text(kind) else None)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _sortable(kind: Any, column: Column) -> NDArray[Any] | None:
    """The values as numbers in the same order; of texts their ranks."""
    types = pa.types
    if _is_text(kind):
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")
        return values_of(ranks, np.uint64)
    if types.is_decimal(kind):
        if not types.is_decimal128(kind):
            return None
        halves = values_of(column, "V16").view(np.int64).reshape(-1, 2)
        low = np.ascontiguousarray(halves[:, 0])
        return low if bool((halves[:, 1] == low >> 63).all()) else None
    letter = "f" if types.is_floating(kind) else "u" if types.is_unsigned_integer(kind) else "i"
    return values_of(column, f"{letter}{kind.bit_width // 8}")


def _grouped(
    values: NDArray[Any], weights: NDArray[np.float64], present: int, sampled: int | None, texts: Column
) -> Spread:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else np.zeros(0, int)
    seen = np.diff(np.concatenate([starts, [len(values)]]))
    times = np.add.reduceat(weights, starts) if len(starts) else np.zeros(0)
    distinct = len(starts)
    if sampled is not None and distinct:
        # Haas and Stokes' Duj1, as PostgreSQL's ANALYZE estimates it: from how many values were seen once.
        once, size = int((seen == 1).sum()), len(values)
        distinct = min(present, max(distinct, round(size * distinct / (size - once + once * size / present))))
    firsts: Any = values[starts]
    if texts is not None:
        firsts = texts.take(column_of(pa.int64(), order[starts])).to_pylist()
    return Spread(firsts, times, distinct, seen, sampled)


def _top(spread: Spread) -> list[tuple[Any, int]]:
    """The most frequent values, the smaller of equals first; single ones only where there are few values."""
    order = np.argsort(-spread.times, kind="stable")[:TOP]
    few = spread.distinct <= TOP and len(spread.times) == spread.distinct
    return [(spread.values[i], round(float(spread.times[i]))) for i in order.tolist() if few or spread.seen[i] > 1]


def _quantiles(spread: Spread) -> list[tuple[float, Any]]:
    """The smallest value up to which there is that share of the rows."""
    up_to = np.cumsum(spread.times)
    places = np.searchsorted(up_to, np.array(QUANTILES) * up_to[-1] * (1 - 1e-12))
    return [(q, spread.values[min(i, len(up_to) - 1)]) for q, i in zip(QUANTILES, places.tolist(), strict=True)]


def _histogram(spread: Spread) -> list[int]:
    """Rows in equal steps from the least value to the greatest (finite ones, of the sample)."""
    values, times = spread.values, spread.times
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        values, times = values[finite].astype(np.float64), times[finite]
    if not len(values):
        return []
    if values.dtype.kind == "f":
        # Halves, since the distance of two floats may be beyond float64.
        offsets = values / 2 - values[0] / 2
        steps = BINS if offsets[-1] else 1
        width = float(offsets[-1]) or 1.0
    else:
        # Each integer is a step of its own where there are few.
        offsets = offsets_from(values, int(values[0])).astype(np.float64)
        width = float(offsets[-1]) + 1
        steps = min(BINS, int(width))
    places = np.minimum((offsets / width * steps).astype(np.int64), steps - 1)
    counts = np.bincount(places, weights=times, minlength=steps)
    return [round(one) for one in counts.tolist()]


def combined(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], /) -> dict[str, object]:
    """The statistics of the rows of two disjoint sets, given those of each, for a column of that manifest `kind`.

    Counts and extremes are exact; quantiles, and what is not of all values on both sides, are estimates.
    """
    if not present(new):
        return {**old, "null": int(old["null"]) + int(new["null"])}
    if not present(old):
        return {**new, "null": int(old["null"]) + int(new["null"])}
    made: dict[str, object] = {key: int(old[key]) + int(new[key]) for key in ("count", "null", "nan", "inf")}
    for key, choose in (("min", min), ("max", max)):
        ends = [one[key] for one in (old, new) if one[key] is not None]
        made[key] = choose(ends, key=lambda end: rank(kind, end)) if ends else None
    sums = [_sums(one) for one in (old, new)]
    sums[0].add(sums[1])
    made["mean"], made["m2"] = (_plain(sums[0].mean), _plain(sums[0].m2)) if sums[0].count else (None, None)
    times: dict[Any, int] = {}
    for one in (old, new):
        for value, count in one["top"]:
            times[value] = times.get(value, 0) + int(count)
    order = sorted(times, key=lambda value: (-times[value], rank(kind, value)))
    every = all(one["distinct"] is not None and len(one["top"]) == one["distinct"] for one in (old, new))
    known = [int(one["distinct"]) for one in (old, new) if one["distinct"] is not None]
    if every:
        made["distinct"] = len(times)
    else:
        made["distinct"] = max(len(times), _together(old, new)) if len(known) == 2 else None
    made["top"] = [[value, times[value]] for value in order[:TOP]]
    made["quantiles"] = _mixed(kind, old, new)
    if old.get("histogram") and new.get("histogram"):
        made["histogram"] = _rebinned(kind, old, new, made["min"], made["max"])
    if known and (not every or made["quantiles"]):
        made["sampled"] = sum(int(one.get("sampled", present(one) + int(one["null"]))) for one in (old, new))
    return made


def _together(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Distinct values of both: as if all were drawn evenly from as many values as the larger side makes likely.

    n draws from D values are expected to show D (1 - exp(-n / D)) of them.
    """
    counts, found = [present(one) for one in (old, new)], [int(one["distinct"]) for one in (old, new)]
    draws, shown = max(zip(counts, found, strict=True))
    if shown >= draws:
        return sum(found)
    low, high = 0.0, draws / shown  # of draws / D, which is at most that: no fewer values are there than were shown
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if -math.expm1(-middle) / middle > shown / draws else (low, middle)
    values = draws / high
    return min(sum(found), max(*found, round(values * -math.expm1(-sum(counts) / values))))


def present(stats: Mapping[str, Any], /) -> int:
    """Values that are not NULL."""
    return int(stats["count"])


def rank(kind: str, value: Any, /) -> Any:
    """What a value of a manifest is compared by."""
    if kind in {"text", "categorical", "bool"} or value is None:
        return value
    if kind == "decimal":
        return Decimal(str(value))
    return float(value) if isinstance(value, float) or value in {"inf", "-inf", "nan"} else int(value)


def _sums(stats: Mapping[str, Any]) -> RealSums:
    if stats["mean"] is None:
        return RealSums()
    known = present(stats) - int(stats["nan"]) - int(stats["inf"])
    return RealSums(known, float(stats["mean"]), float(stats["m2"]))


def _points(kind: str, stats: Mapping[str, Any]) -> list[tuple[Any, float, Any]]:
    """(rank, share of the values up to it, value), ascending."""
    found = [(0.0, stats["min"]), *((float(q), v) for q, v in stats["quantiles"].items()), (1.0, stats["max"])]
    # Values themselves are not compared: of one column, some are numbers and those beyond 2^53 text.
    return sorted(((float(rank(kind, value)), share, value) for share, value in found), key=lambda one: one[:2])


def _mixed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, object]:
    """Quantiles of both together: each side taken as straight between those that it has."""
    if not old["quantiles"] or not new["quantiles"]:
        return {}
    sides = [(_points(kind, one), present(one)) for one in (old, new)]
    both = sorted(((place, value) for points, _ in sides for place, _, value in points), key=lambda one: one[0])
    places = np.array([place for place, _ in both])
    if not np.isfinite(places).all():
        return {}
    total = sum(count for _, count in sides)
    share = np.zeros(len(places))
    for points, count in sides:
        share += np.interp(places, [p for p, _, _ in points], [s for _, s, _ in points]) * (count / total)
    at = np.minimum(np.searchsorted(share, np.array(QUANTILES) * (1 - 1e-9)), len(both) - 1)
    return {repr(q): both[i][1] for q, i in zip(QUANTILES, at.tolist(), strict=True)}


def _rebinned(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], least: Any, most: Any) -> list[int]:
    """Both histograms in new steps: the rows of a bin are taken as spread evenly over it."""
    first, last = float(rank(kind, least)), float(rank(kind, most))
    if not (math.isfinite(first) and math.isfinite(last)) or first == last:
        return []
    edges = np.linspace(first, last, BINS + 1)
    found = np.zeros(BINS)
    for one in (old, new):
        counts = np.array(one["histogram"], np.float64)
        own = np.linspace(float(rank(kind, one["min"])), float(rank(kind, one["max"])), len(counts) + 1)
        if own[0] == own[-1]:
            found[min(BINS - 1, int(np.searchsorted(edges, own[0], "right")) - 1)] += counts.sum()
        elif np.isfinite(own).all():
            found += np.diff(np.interp(edges, own, np.concatenate([[0.0], np.cumsum(counts)])))
    return [round(count) for count in found.tolist()]
