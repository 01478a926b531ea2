"""Instants as wall clock of a zone, in bulk: the zone's changes are looked up once for each year that rows are of.

`zoneinfo` answers for one moment at a time. Between two changes of a zone's offset all moments have one, so that it is
asked only around them.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000
_DAY: Final = 86_400
_BUCKET: Final = 366 * _DAY
"""Seconds of which the changes are looked up together."""
_MANY: Final = 512
"""Rows over more buckets are looked at first, which of them they are in."""
FIRST: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""Microseconds of the moments that zones are known for."""


def zone_of(name: str, what: str, /) -> zoneinfo.ZoneInfo:
    """The zone of that name.

    Raises:
        ConfigError: There is none.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"{what}: {name!r} is no time zone that is known here",
            hint='Write a name such as "UTC" or "Asia/Shanghai"; install the package tzdata where the system has none.',
        ) from error


def local(moments: NDArray[np.int64], zone: str, /) -> NDArray[np.int64]:
    """Microseconds of the zone's wall clock.

    Args:
        moments: Microseconds in UTC since 1970, shape (n,), from `FIRST` to `LAST`.
        zone: A name that is known.
    """
    if not len(moments) or zone == "UTC":
        return moments
    starts, offsets = _table(moments, zone)
    east = offsets if len(offsets) == 1 else offsets[np.searchsorted(starts, moments, side="right") - 1]
    return np.asarray(moments + east, np.int64)


def _table(moments: NDArray[np.int64], zone: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    size = _BUCKET * _SECOND
    low, high = int(moments.min()) // size, int(moments.max()) // size
    if high - low < _MANY:
        return _between(zone, low, high)
    return _joined([_changes(zone, bucket) for bucket in np.unique(moments // size).tolist()])


@lru_cache(maxsize=256)
def _between(zone: str, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return _joined([_changes(zone, bucket) for bucket in range(low, high + 1)])


def _joined(changes: list[tuple[tuple[int, int], ...]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each offset begins, and the offset, in microseconds."""
    all_of = [one for bucket in changes for one in bucket]
    kept = [one for at, one in enumerate(all_of) if not at or one[1] != all_of[at - 1][1]]
    starts, offsets = zip(*kept, strict=True)
    return np.array(starts, np.int64) * _SECOND, np.array(offsets, np.int64) * _SECOND


@lru_cache(maxsize=1 << 14)
def _changes(zone: str, bucket: int) -> tuple[tuple[int, int], ...]:
    """(second, offset from there on) within a bucket, its first second first.

    No zone has ever changed its offset twice within three days, nor will by its rules: a look a day misses none.
    """
    known = zoneinfo.ZoneInfo(zone)
    start, end = bucket * _BUCKET, (bucket + 1) * _BUCKET
    found = [(start, _offset(known, start))]
    for day in range(start, end, _DAY):
        before, after = found[-1][1], _offset(known, day + _DAY)
        if after == before:
            continue
        low, high = day, day + _DAY  # the offset of low is the one before, that of high the one after
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(known, middle) == before else (low, middle)
        found.append((high, after))
    return tuple(found)


def _offset(zone: zoneinfo.ZoneInfo, second: int) -> int:
    """Seconds east of UTC; at the ends of what Python's moments reach, that of the nearest."""
    inside = min(max(second, FIRST // _SECOND + 2 * _DAY), LAST // _SECOND - 2 * _DAY)
    offset = (_EPOCH + timedelta(seconds=inside)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // timedelta(seconds=1)
