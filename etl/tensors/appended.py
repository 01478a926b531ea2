"""Rows appended to a dataset: its columns together with the new ones, and where the new ones are not like the old."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from etl.tensors.drift import NAMING, PASSING, deviation, goes_on
from etl.tensors.manifest import integer
from etl.tensors.summary import combined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FEWEST = 100
"""Values on both sides, below which nothing is said of means and shares."""
NULL_SHARE = 0.1
"""The share of absent values differs by more."""
DEVIATIONS = 0.5
"""The means differ by more standard deviations, the larger of both."""
SCALE = 2.0
"""The standard deviation is more than so many times the other, and the middle half of the values is as much wider."""
DISTANCE = 0.2
"""Half the sum of the differences of the shares of all values (total variation), where both sides list all of them."""
CHANCE = 4.0
"""Limits are wider by so many standard errors: few rows of one source differ by chance alone."""


def joined_columns(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], old_rows: Mapping[str, int], /
) -> list[dict[str, object]]:
    """`columns[]` of old and new rows together: what was counted is added, statistics are merged.

    Args:
        old: `columns[]` of the version that is appended to.
        new: Those of the new rows, in the same order.
        old_rows: Split → rows of the old version. A split whose old rows have no statistics has none afterwards.
    """
    return [_joined(a, b, old_rows) for a, b in zip(old, new, strict=True)]


def _joined(old: Mapping[str, Any], new: Mapping[str, Any], old_rows: Mapping[str, int]) -> dict[str, object]:
    made: dict[str, object] = {**old, **new}
    was, now = old.get("null") or {}, new["null"]
    made["null"] = {**now, "count": integer(was.get("count", 0)) + integer(now["count"])}
    was, now = old.get("cast") or {}, new["cast"]
    made["cast"] = {
        **now,
        **{key: integer(was.get(key, 0)) + integer(now[key]) for key in ("n_rounded", "n_saturated")},
        "max_abs_error": max(float(was.get("max_abs_error", 0.0)), float(now["max_abs_error"])),
    }
    special = dict(old.get("special") or {})
    for reason, count in (new.get("special") or {}).items():
        special[reason] = integer(special.get(reason, 0)) + integer(count)
    made["special"] = special
    was, now = old.get("prepared") or {}, new.get("prepared") or {}
    both = {split: _summed(was.get(split) or {}, now.get(split) or {}) for split in {**was, **now}}
    if any(both.values()):
        made["prepared"] = both
    was, now = old.get("stats") or {}, new["stats"]
    stats = {s: combined(str(new["kind"]), was[s], one) if s in was else one for s, one in now.items()}
    made["stats"] = {s: one for s, one in stats.items() if s in was or not old_rows.get(s)}
    was, now = old.get("ragged"), new.get("ragged")
    if was and now:
        known = [one["max_len"] for one in (was, now) if one["max_len"] is not None]
        cut = integer(was["truncated_rows"]) + integer(now["truncated_rows"])
        made["ragged"] = {**now, "max_len": max(known, default=None), "truncated_rows": cut}
    return made


def _summed(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, int]:
    return {what: integer(was.get(what, 0)) + integer(now.get(what, 0)) for what in {**was, **now}}


def drift(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], /) -> list[dict[str, object]]:
    """Warnings `drift` on the columns whose new values differ from the old ones by more than the limits above.

    Keys and times are left out: those of new rows are new.
    """
    before = {str(one["name"]): one for one in old}
    found: list[dict[str, object]] = []
    for column in new:
        name = str(column["name"])
        if column["role"] in NAMING or column["kind"] in PASSING or name not in before:
            continue
        was, now = before[name].get("stats") or {}, column.get("stats") or {}
        if column["kind"] == "integer" and goes_on(was.values(), now.values()):
            continue
        for split in now:
            if split in was:
                side = "" if split == "all" else f" of {split}"
                text = "; ".join(_differences(was[split], now[split]))
                if text:
                    said = f"column {name}{side}: the appended rows differ from those before: {text}"
                    found.append({"code": "drift", "column": name, "split": split, "text": said})
    return found


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    rows = [integer(one["count"]) + integer(one["null"]) for one in (old, new)]
    if min(rows) < FEWEST:
        return
    shares = [integer(one["null"]) / all_ for one, all_ in zip((old, new), rows, strict=True)]
    if abs(shares[0] - shares[1]) > NULL_SHARE + CHANCE * _error(sum(integer(one["null"]) for one in (old, new)), rows):
        yield f"{shares[1]:.1%} NULL, {shares[0]:.1%} before"
    if min(integer(old["count"]), integer(new["count"])) < FEWEST:
        return
    if old["mean"] is not None and new["mean"] is not None:
        yield from _moved(old, new)
    if all(one["distinct"] is not None and len(one["top"]) == integer(one["distinct"]) for one in (old, new)):
        distance, chance = _distance(old, new)
        if distance > DISTANCE + chance:
            yield f"values are shared out otherwise (distance {distance:.2f}, of at most 1)"


def _error(hits: int, rows: Sequence[int]) -> float:
    """The standard error of the difference of two shares, given the hits of both together and the rows of each."""
    share = hits / sum(rows)
    return math.sqrt(share * (1 - share) * sum(1 / n for n in rows))


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    means = [float(one["mean"]) for one in (old, new)]
    spreads = [deviation(one) for one in (old, new)]
    if not all(map(math.isfinite, (*means, *spreads))):
        return
    counts = [integer(one["count"]) for one in (old, new)]
    limit = max(DEVIATIONS, CHANCE * math.sqrt(sum(1 / n for n in counts)))
    wider = SCALE * (1 + CHANCE / math.sqrt(min(counts)))
    # A few far values, as heavy tails have them, move the deviation but not the middle.
    middles = [_middle(one) for one in (old, new)]
    if abs(means[1] - means[0]) > limit * max(spreads):
        yield f"mean {means[1]:.6g}, {means[0]:.6g} before (standard deviation {spreads[0]:.6g})"
    elif max(spreads) > wider * min(spreads) and (None in middles or _apart(middles, wider)):
        yield f"standard deviation {spreads[1]:.6g}, {spreads[0]:.6g} before"


def _middle(stats: Mapping[str, Any]) -> float | None:
    """From the first quartile to the third."""
    found = stats["quantiles"]
    ends = [float(found[q]) for q in ("0.25", "0.75") if q in found]
    return ends[1] - ends[0] if len(ends) == 2 and all(map(math.isfinite, ends)) else None


def _apart(widths: Sequence[float | None], times: float) -> bool:
    known = [one for one in widths if one is not None]
    return max(known) > times * min(known)


def _distance(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[float, float]:
    """Half the sum of the differences of all shares, and what chance alone may well make of it."""
    rows = [integer(one["count"]) for one in (old, new)]
    found = [{value: integer(n) for value, n in one["top"]} for one in (old, new)]
    values = {*found[0], *found[1]}
    apart = sum(abs(found[0].get(v, 0) / rows[0] - found[1].get(v, 0) / rows[1]) for v in values) / 2
    # Of a normal variable the mean distance from its mean is 0.8 standard errors; a quarter more, for luck.
    chance = sum(_error(sum(side.get(v, 0) for side in found), rows) for v in values) / 2
    return apart, chance
