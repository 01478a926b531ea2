"""The population stability index of two sets of values, from their statistics in two manifests.

The bins are the old version's: its values, where both sides list theirs, else its tenths. The new version's rows in
them follow from its own quantiles, its histogram and its most frequent values: exactly where these say, and straight
between two points that they do say. How far off that can be is said as a range.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl.tensors.manifest import integer
from etl.tensors.summary import TOP, rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TENTHS = frozenset(f"{n / 10!r}" for n in range(1, 10))
_REAL = frozenset({"continuous"})
OTHER = "every other value"
"""The bin of the values that one side does not list."""


@dataclass(frozen=True, slots=True)
class Stability:
    """A population stability index.

    Attributes:
        value: 0: the same shares. Below 0.1 is commonly called stable, above 0.25 changed.
        least, most: What it is at least and at most, whatever lies between the points that the manifests have.
        chance: What two samples of one population would show on the average: (bins - 1) (1 / old rows + 1 / new rows).
        bins: (bin in words, share of the old values, share of the new ones).
    """

    value: float
    least: float
    most: float
    chance: float
    bins: tuple[tuple[str, float, float], ...]

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "psi": self.value,
            "psi_range": [self.least, self.most],
            "psi_by_chance": self.chance,
            "bins": [{"bin": name, "shares": [a, b]} for name, a, b in self.bins],
        }


def psi(old: Sequence[float], new: Sequence[float], /) -> float:
    """The sum over all bins of (new share - old share) * ln(new share / old share).

    A bin that is empty on one side counts as half a row there, one that is empty on both sides not at all.

    Args:
        old: Rows of each bin.
        new: Rows of the same bins.

    >>> psi([50, 50], [500, 500]), round(psi([50, 50], [80, 20]), 4)
    (0.0, 0.4159)
    """
    rows = sum(old), sum(new)
    if not all(rows):
        return 0.0
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a or b]
    return sum(_term((a or 0.5) / rows[0], (b or 0.5) / rows[1]) for a, b in pairs)


def _term(old: float, new: float) -> float:
    return 0.0 if old == new else (new - old) * math.log(new / old)


def stability(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], /) -> Stability | None:
    """The index of a column of that manifest `kind`, given the statistics of both sides.

    Absent values and NaN are in no bin. None: a side has no values, or the statistics say too little of them.
    """
    if not integer(old["count"]) - integer(old["nan"]) or not integer(new["count"]) - integer(new["nan"]):
        return None
    if lists_all(old) and lists_all(new):
        return _by_value(old, new)
    if old.get("quantiles") and new.get("quantiles") and kind not in {"text", "categorical", "bool"}:
        return _by_tenth(kind, old, new)
    return _by_value(old, new) if old["top"] and new["top"] else None


def lists_all(stats: Mapping[str, Any], /) -> bool:
    """Whether `top` has all values."""
    return stats["distinct"] is not None and len(stats["top"]) == integer(stats["distinct"])


def looked_at(stats: Mapping[str, Any], /) -> int:
    """Values that the estimates rest on."""
    count = integer(stats["count"]) - integer(stats["nan"])
    rows = integer(stats["count"]) + integer(stats["null"])
    sampled = stats.get("sampled")
    return count if sampled is None else min(count, max(1, round(integer(sampled) * count / max(1, rows))))


def _by_value(old: Mapping[str, Any], new: Mapping[str, Any]) -> Stability:
    """A bin for each value whose rows both sides know; one for all others.

    Joining bins never raises the index: with such a bin it is at least what is found.
    """
    sides = [{value: integer(n) for value, n in one["top"]} for one in (old, new)]
    known = [
        value
        for value in dict.fromkeys((*sides[0], *sides[1]))
        if (value in sides[0] or lists_all(old)) and (value in sides[1] or lists_all(new))
    ]
    counts = [[side.get(value, 0) for value in known] for side in sides]
    names = [str(value) for value in known]
    rest = [
        max(0, integer(one["count"]) - integer(one["nan"]) - sum(n)) for one, n in zip((old, new), counts, strict=True)
    ]
    every = lists_all(old) and lists_all(new)
    if any(rest) and not every:
        counts = [[*n, left] for n, left in zip(counts, rest, strict=True)]
        names.append(OTHER)
    found = psi(*counts)
    shares = [[n / max(1, sum(side)) for n in side] for side in counts]
    bins = tuple(zip(names, *shares, strict=True))
    return Stability(found, found, found if every else math.inf, _chance(len(names), old, new), bins)


def _chance(bins: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    return (bins - 1) * sum(1 / looked_at(one) for one in (old, new))


@dataclass(frozen=True, slots=True)
class _Shares:
    """What a manifest says of the share of values up to a place.

    Attributes:
        points: (place, share): so many are there up to the place, and no more before it.
        rows: Values.
        masses: Place → share of the values that are there, of the frequent ones.
        other: The largest share of any other value.
    """

    points: tuple[tuple[float, float], ...]
    rows: int
    masses: Mapping[float, float]
    other: float

    def at(self, place: float, /) -> tuple[float, float, float]:
        """The share of the values up to `place`: the estimate, the least and the most that it can be."""
        before, after = (-math.inf, 0.0), (math.inf, 1.0)
        for point in self.points:
            if point[0] <= place:
                before = max(before, point, key=lambda one: (one[1], one[0]))
            else:
                after = min(after, point, key=lambda one: (one[1], one[0]))
        low, high = before[1], max(before[1], after[1])
        if before[0] == place:
            # What is there before the place is no more than its share: the rest are the place's own.
            return low, low, min(high, low + self.masses.get(place, self.other))
        width = after[0] - before[0]
        part = (place - before[0]) / width if math.isfinite(width) else 0.5
        return low + (high - low) * part, low, high


def _shares(kind: str, stats: Mapping[str, Any]) -> _Shares:
    def place(value: Any) -> float:
        return float(rank(kind, value))

    rows = integer(stats["count"]) - integer(stats["nan"])
    points = [(place(value), float(share)) for share, value in stats["quantiles"].items()]
    points += [*_edges(kind, stats, rows), (place(stats["min"]), 0.0), (place(stats["max"]), 1.0)]
    masses = {place(value): integer(n) / rows for value, n in stats["top"]}
    least = min(masses.values(), default=1.0)
    other = least if len(masses) >= TOP else 1 / looked_at(stats)
    return _Shares(tuple(sorted(points)), rows, masses, other)


def _edges(kind: str, stats: Mapping[str, Any], rows: int) -> Iterator[tuple[float, float]]:
    """Where the bins of the histogram begin, if it is of all rows: a sample's are those of the sample."""
    counts = [integer(one) for one in stats.get("histogram") or ()]
    if "sampled" in stats or integer(stats["inf"]) or len(counts) < 2 or sum(counts) != rows:
        return
    first, last = float(rank(kind, stats["min"])), float(rank(kind, stats["max"]))
    if kind not in _REAL:
        return  # a bin of integers begins between two of them; decimals have a step that is not known here
    done = 0
    for number, count in enumerate(counts[:-1], 1):
        done += count
        yield first + (last - first) * number / len(counts), done / rows


def _by_tenth(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Stability:
    """Bins that end at the old version's tenths, or at what quantiles it has."""
    quantiles = old["quantiles"]
    chosen = [q for q in quantiles if q in _TENTHS]
    found = sorted({float(rank(kind, quantiles[q])) for q in (chosen if len(chosen) == len(_TENTHS) else quantiles)})
    ends = [one for one in found if math.isfinite(one)]
    sides = [_shares(kind, one) for one in (old, new)]
    bounds = [[(0.0, 0.0, 0.0), *map(side.at, ends), (1.0, 1.0, 1.0)] for side in sides]
    shares = [[max(0.0, b[0] - a[0]) for a, b in itertools.pairwise(side)] for side in bounds]
    halves = [0.5 / side.rows for side in sides]
    value = psi(*([share * side.rows for share in one] for one, side in zip(shares, sides, strict=True)))
    least = most = 0.0
    for number in range(len(ends) + 1):
        boxes = []
        for side, half in zip(bounds, halves, strict=True):
            a, b = side[number], side[number + 1]
            boxes.append((max(half, b[1] - a[2]), max(half, b[2] - a[1])))
        (low, high), (least_new, most_new) = boxes
        corners = [_term(a, b) for a in (low, high) for b in (least_new, most_new)]
        most += max(corners)
        if high < least_new or most_new < low:
            least += min(corners)
    names = [_name(None if not n else ends[n - 1], None if n == len(ends) else ends[n]) for n in range(len(ends) + 1)]
    bins = tuple(zip(names, *shares, strict=True))
    return Stability(value, min(least, value), max(most, value), _chance(len(names), old, new), bins)


def _name(after: float | None, end: float | None) -> str:
    """A bin in words; it holds its end and not the one before.

    >>> _name(None, 1.0), _name(1.0, 2.5), _name(2.5, None)
    ('up to 1', 'above 1, up to 2.5', 'above 2.5')
    """
    words = [f"above {after:.6g}"] if after is not None else []
    words += [f"up to {end:.6g}"] if end is not None else []
    return ", ".join(words) or "all"
