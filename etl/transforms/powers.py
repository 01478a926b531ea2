"""Which power makes numbers most like a normal distribution: moments of every power on a grid, which merge.

A power of numbers that lie near each other far from 0 (100 000 to the -4th) leaves float64 no digits of their spread.
So each power is taken of numbers in relation to one of them: with l the logarithm and c that of the chosen number,
(e^(p (l - c)) - 1) / p. That is the plain power but for a factor and a summand, which merging and the likelihood know.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PARTS: Final = 20
"""Powers are multiples of 1 / 20 …"""
MOST: Final = 80
"""… from -4 to 4."""
LAMBDAS: Final = np.arange(-MOST, MOST + 1) / PARTS
"""The powers that are tried."""
CHUNK: Final = 1 << 14
"""Numbers at a time: they stay in the cache for all powers."""
_ALIKE: Final = 1e-9
"""Powers whose likelihoods differ by less, in relation to the number of values, are as likely."""
Side = dict[str, Any]
"""Moments of numbers of one sign: n, at (the number that others are in relation to), and mean and m2 of each power."""


def nothing() -> dict[str, Any]:
    """Of no rows: rows, null, nan, inf, below (numbers that Box-Cox refuses), above and under: the sides of 0."""
    return {"rows": 0, "null": 0, "nan": 0, "inf": 0, "below": 0, "above": _none(), "under": _none()}


def observed(wide: NDArray[np.float64], method: str, /) -> dict[str, Any]:
    """Of at most `CHUNK` numbers that are there.

    Args:
        wide: The numbers.
        method: "yeo-johnson" or "box-cox".
    """
    made = nothing() | {"rows": len(wide), "nan": int(np.count_nonzero(np.isnan(wide)))}
    there = wide[np.isfinite(wide)]
    made["inf"] = len(wide) - made["nan"] - len(there)
    if method == "box-cox":
        fit = there[there > 0]
        return made | {"below": len(there) - len(fit), "above": _side(fit, _steps(method, under=False), 0.0)}
    above, under = there[there >= 0], -there[there < 0]
    return made | {
        "above": _side(above, _steps(method, under=False), 1.0),
        "under": _side(under, _steps(method, under=True), 1.0),
    }


def merged_powers(left: Mapping[str, Any], right: Mapping[str, Any], method: str, /) -> dict[str, Any]:
    """Of both."""
    made = {name: left[name] + right[name] for name in ("rows", "null", "nan", "inf", "below")}
    start = 0.0 if method == "box-cox" else 1.0
    return made | {
        "above": _together(left["above"], right["above"], _steps(method, under=False), start),
        "under": _together(left["under"], right["under"], _steps(method, under=True), start),
    }


def count_of(found: Mapping[str, Any], /) -> int:
    """How many numbers there were."""
    return int(found["above"]["n"] + found["under"]["n"])


def likeliest(found: Mapping[str, Any], method: str, /) -> dict[str, float]:
    """The power under which numbers are most like a normal distribution, of powers as likely the one nearest 1.

    Returns:
        lambda; center: the number in relation to which powers are taken; and the mean and std of those.
    """
    sides = [
        (found[name], _steps(method, under=name == "under"), -1.0 if name == "under" else 1.0)
        for name in ("above", "under")
        if found[name]["n"]
    ]
    start = 0.0 if method == "box-cox" else 1.0
    n = count_of(found)
    with np.errstate(all="ignore"):
        if len(sides) == 1:
            ((side, steps, sign),) = sides
            mean, center = _centered(side, steps, start)
            spread = _plain(np.array(side["m2"]), steps, 2) * np.exp(2 * _rise(side, steps, start, center))
            mean = sign * mean
            # The variance of the plain powers: e^(2 p c) as large.
            log_variance = np.log(spread / n) + 2 * steps / PARTS * math.log(start + center)
            center *= sign
        else:
            means, spreads = zip(*(_around_zero(side, steps) for side, steps, _ in sides), strict=True)
            above, under = found["above"]["n"], found["under"]["n"]
            mean = (above * means[0] - under * means[1]) / n
            spread = spreads[0] + spreads[1] + (means[0] + means[1]) ** 2 * above * under / n
            log_variance, center = np.log(spread / n), 0.0
        logs = sum(sign * side["n"] * _log_mean(side, steps, start) for side, steps, sign in sides)
        likely = -n / 2 * log_variance + (LAMBDAS - 1) * logs
        std = np.sqrt(spread / n)
    known = np.isfinite(likely) & np.isfinite(mean) & np.isfinite(std) & (std > 0)
    if not known.any():
        place = MOST + PARTS
        flat = float(mean[place]) if math.isfinite(mean[place]) else 0.0
        return {"lambda": 1.0, "center": float(center), "mean": flat, "std": 0.0}
    best = np.max(likely[known])
    alike = known & (likely >= best - _ALIKE * n)
    place = int(np.argmin(np.where(alike, np.abs(LAMBDAS - 1), np.inf)))
    return {
        "lambda": float(LAMBDAS[place]),
        "center": float(center),
        "mean": float(mean[place]),
        "std": float(std[place]),
    }


def neutral(method: str, /) -> float:
    """The center of which powers are the plain ones."""
    return 1.0 if method == "box-cox" else 0.0


def bent(wide: NDArray[np.float64], method: str, power: float, center: float, /) -> NDArray[np.float64]:
    """The powers of numbers in relation to one.

    Args:
        wide: The numbers, shape (n,); above 0 for Box-Cox, which makes NaN of others.
        method: "yeo-johnson" or "box-cox".
        power: Lambda.
        center: Above 0 for Box-Cox; `neutral` for plain powers.
    """
    if method == "box-cox":
        return _power(_apart(wide, center, 0.0), power)
    found = np.empty_like(wide)
    above = ~(wide < 0)
    at, under_at = (center, 0.0) if center >= 0 else (0.0, -center)
    found[above] = _power(_apart(wide[above], at, 1.0), power)
    found[~above] = -_power(_apart(-wide[~above], under_at, 1.0), 2 - power)
    if center > 0:
        found[~above] = _moved(found[~above], power, math.log1p(center))
    elif center < 0:
        found[above] = -_moved(-found[above], 2 - power, math.log1p(-center))
    return found


def _none() -> Side:
    zeros = [0.0] * len(LAMBDAS)
    return {"n": 0, "at": 0.0, "mean": zeros, "m2": zeros}


def _steps(method: str, *, under: bool) -> NDArray[np.int64]:
    """Of each lambda the power that numbers of a side are raised to, times 20."""
    steps = np.arange(-MOST, MOST + 1)
    return 2 * PARTS - steps if under and method != "box-cox" else steps


def _side(numbers: NDArray[np.float64], steps: NDArray[np.int64], start: float) -> Side:
    """Mean and m2 of e^(p (l - c)) - 1 for every p; of l - c for p = 0."""
    if not len(numbers):
        return _none()
    at = float(numbers[0])
    means, spreads = np.zeros(len(steps)), np.zeros(len(steps))
    first, last = int(steps.min()), int(steps.max())
    order = 1 if steps[-1] > steps[0] else -1
    offset = -first if order == 1 else last
    work = np.empty_like(numbers)
    with np.errstate(all="ignore"):
        apart = _apart(numbers, at, start)
        means[offset], spreads[offset] = _moments(apart, work)
        for sign, many in ((1, last), (-1, -first)):
            one = np.expm1(sign * apart / PARTS)
            raised = one.copy()
            for step in range(1, many + 1):
                if step > 1:  # e^((k + 1) t) - 1 of e^(k t) - 1 and e^t - 1: sums of numbers of one sign lose nothing
                    np.multiply(raised, one, out=work)
                    raised += one
                    raised += work
                place = offset + order * sign * step
                means[place], spreads[place] = _moments(raised, work)
    return {"n": len(numbers), "at": at, "mean": means.tolist(), "m2": spreads.tolist()}


def _moments(numbers: NDArray[np.float64], work: NDArray[np.float64]) -> tuple[float, float]:
    mean = float(numbers.sum()) / len(numbers)
    np.subtract(numbers, mean, out=work)
    np.square(work, out=work)
    return mean, float(work.sum())


def _together(left: Side, right: Side, steps: NDArray[np.int64], start: float) -> Side:
    if not (left["n"] and right["n"]):
        return left if left["n"] else right
    with np.errstate(all="ignore"):
        rise = _rise(right, steps, start, left["at"])
        mean = np.array(right["mean"]) * np.exp(rise) + np.expm1(rise)
        zero = steps == 0
        mean[zero] = np.array(right["mean"])[zero] + _log_ratio(right["at"], left["at"], start)
        n = left["n"] + right["n"]
        share = right["n"] / n
        apart = mean - np.array(left["mean"])
        m2 = np.array(left["m2"]) + np.array(right["m2"]) * np.exp(2 * rise) + apart * apart * share * left["n"]
        mean = np.array(left["mean"]) + apart * share
    return {"n": n, "at": left["at"], "mean": mean.tolist(), "m2": m2.tolist()}


def _rise(side: Side, steps: NDArray[np.int64], start: float, at: float) -> NDArray[np.float64]:
    """What p (l - c) grows by once numbers are in relation to another one."""
    return np.asarray(steps / PARTS * _log_ratio(side["at"], at, start), np.float64)


def _plain(values: NDArray[np.float64], steps: NDArray[np.int64], degree: int) -> NDArray[np.float64]:
    """Values that were left undivided by the power, divided by it."""
    by = np.where(steps == 0, 1.0, np.abs(steps) / PARTS if degree == 2 else steps / PARTS)
    return np.asarray(values / by**degree, np.float64)


def _centered(side: Side, steps: NDArray[np.int64], start: float) -> tuple[NDArray[np.float64], float]:
    """The mean of each power in relation to the geometric mean of the numbers, and that."""
    center = (start + side["at"]) * math.exp(side["mean"][int(np.flatnonzero(steps == 0)[0])]) - start
    center = max(center, 0.0)
    return _mean_at(side, steps, start, center), center


def _mean_at(side: Side, steps: NDArray[np.int64], start: float, at: float) -> NDArray[np.float64]:
    rise = _rise(side, steps, start, at)
    mean = np.array(side["mean"]) * np.exp(rise) + np.expm1(rise)
    zero = steps == 0
    mean[zero] = np.array(side["mean"])[zero] + _log_ratio(side["at"], at, start)
    return _plain(mean, steps, 1)


def _around_zero(side: Side, steps: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and m2 of the plain powers of Yeo and Johnson, of the numbers without their sign."""
    rise = _rise(side, steps, 1.0, 0.0)
    return _mean_at(side, steps, 1.0, 0.0), _plain(np.array(side["m2"]) * np.exp(2 * rise), steps, 2)


def _log_mean(side: Side, steps: NDArray[np.int64], start: float) -> float:
    return math.log(start + side["at"]) + float(side["mean"][int(np.flatnonzero(steps == 0)[0])])


def _log_ratio(one: float, other: float, start: float) -> float:
    """The logarithm of one number less that of another, exact to the last digits where they are near each other."""
    return float(_apart(np.array([one]), other, start)[0])


def _apart(numbers: NDArray[np.float64], at: float, start: float) -> NDArray[np.float64]:
    """The logarithms of numbers less that of one, exact to the last digits near it; with `start` added to each."""
    beyond = numbers - at
    far = np.log1p(numbers) - math.log1p(at) if start else np.log(numbers) - math.log(at)
    near = np.abs(beyond) < 0.5 * (start + at)
    return np.where(near, np.log1p(np.where(near, beyond, 0.0) / (start + at)), far)


def _power(apart: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    return apart if power == 0 else np.expm1(power * apart) / power


def _moved(plain: NDArray[np.float64], power: float, log: float) -> NDArray[np.float64]:
    """Plain powers in relation to a number of that logarithm."""
    if power == 0:
        return plain - log
    return plain * math.exp(-power * log) + math.expm1(-power * log) / power
