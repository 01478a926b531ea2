"""The compiled loops of shuffled loading: the permutation of a window, and rows out of it.

Imported only to compile them. Functions take and return int64 (addresses, counts), allocate nothing and raise nothing.
"""

from __future__ import annotations

from etl.core.machine import apart, copy16, far, int64s, near, prefetch

LOWEST = -(1 << 63)
GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
MIX = 0xBF58476D1CE4E5B9 - (1 << 64)
AGAIN = 0x94D049BB133111EB - (1 << 64)
AHEAD = 32
"""Rows that are asked of memory before they are copied; a window lies outside the nearer caches (of 4, 8, 16 and 32 the
fastest)."""


@near
def mixed(place: int, key: int) -> int:
    """The output of SplitMix64 that follows `place` others."""
    z = (place + 1) * GAMMA + key
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * MIX
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * AGAIN
    return z ^ ((z >> 31) & ((1 << 33) - 1))


@far
def counted(out: int, low: int, high: int, rows: int, key: int, bits: int, digits: int) -> int:
    """The outputs, the place of each in its low bits, and how many have each lower and each upper digit.

    The top bit is turned, so that signed numbers sort as unsigned ones.
    """
    apart(0)
    made, lows, highs = int64s(out), int64s(low), int64s(high)
    places, mask = (1 << bits) - 1, (1 << digits) - 1
    for digit in range(mask + 1):
        lows[digit] = 0
        highs[digit] = 0
    for i in range(rows):
        value = (mixed(i, key) & ~places) | i
        made[i] = value ^ LOWEST
        lows[(value >> (64 - 2 * digits)) & mask] += 1
        highs[(value >> (64 - digits)) & mask] += 1
    first = 0
    second = 0
    for digit in range(mask + 1):
        have = lows[digit]
        lows[digit] = first
        first += have
        have = highs[digit]
        highs[digit] = second
        second += have
    return 0


@far
def spread(source: int, target: int, begins: int, rows: int, shift: int, digits: int) -> int:
    """One stable pass of a radix sort, by `digits` bits from `shift` on, to where each digit begins."""
    apart(0)
    given, found, next_place = int64s(source), int64s(target), int64s(begins)
    mask = (1 << digits) - 1
    for i in range(rows):
        value = given[i]
        digit = ((value ^ LOWEST) >> shift) & mask
        found[next_place[digit]] = value
        next_place[digit] += 1
    return 0


@far
def permuted(out: int, spare: int, counts: int, rows: int, key: int, bits: int, digits: int) -> int:
    """The places in the order of the outputs; 1 where the high bits alone do not tell two outputs apart, else 0.

    `spare` holds as many words as `out`, `counts` two for each digit. Two passes by the uppermost 2 * `digits` bits
    leave few values out of place, all of them near their own.
    """
    counted(out, counts, counts + (8 << digits), rows, key, bits, digits)
    spread(out, spare, counts, rows, 64 - 2 * digits, digits)
    spread(spare, out, counts + (8 << digits), rows, 64 - digits, digits)
    found = int64s(out)
    before = found[0]
    for i in range(1, rows):
        value = found[i]
        if value >= before:
            before = value
            continue
        at = i
        while at > 0 and found[at - 1] > value:
            found[at] = found[at - 1]
            at -= 1
        found[at] = value
    alike = 0
    last = -1
    places = (1 << bits) - 1
    for i in range(rows):
        value = found[i]
        upper = (value ^ LOWEST) >> bits
        alike |= upper == last
        last = upper
        found[i] = value & places
    return 1 if alike else 0


@far
def taken(out: int, source: int, chosen: int, rows: int, width: int) -> int:
    """Rows of `width` bytes, a multiple of 16, at the chosen places, one after the other."""
    places = int64s(chosen)
    for i in range(rows):
        prefetch(source + places[min(i + AHEAD, rows - 1)] * width)
        row, to = source + places[i] * width, out + i * width
        for at in range(0, width, 16):
            copy16(to + at, row + at)
    return 0
