"""The compiled loops of statistics: blocks of a column's values, added to a state of words.

Imported only to compile them. Functions take and return int64 (addresses, counts), allocate nothing and raise nothing.
The words of the states are those of `running`. Values are brought into a block of one width first, without the absent
ones; loops over a block have no branches, so that LLVM makes vector code of them.
"""

from __future__ import annotations

from etl.core.machine import (
    apart,
    be64,
    below,
    far,
    float32s,
    float64s,
    int8s,
    int16s,
    int32s,
    int64s,
    load8,
    mul_high,
    near,
    store64,
    uint8s,
    uint16s,
    uint32s,
)
from etl.tensors.running import BLOCK, FIRST_SLOT, SLOTS

LOWEST = -(1 << 63)
NEAR = 1 << 51
"""Differences up to here, of which a block's sum fits 63 bits."""
LIMB = 26
LOW = (1 << LIMB) - 1


@near
def present(valid: int, place: int) -> int:
    """1 where the bit of a value is set."""
    return (load8(valid + (place >> 3)) >> (place & 7)) & 1


@far
def gathered(block: int, values: int, valid: int, place: int, rows: int, width: int, signed: int) -> int:
    """Integers of 1 to 8 bytes, or the low words of 16, as int64 without the absent ones; how many there are."""
    apart(0)
    out = int64s(block)
    if width == 8:
        from8 = int64s(values)
        # Unsigned 64-bit numbers are compared and kept as signed ones, 2^63 lower.
        flip = LOWEST if signed == 0 else 0
        for i in range(rows):
            out[i] = from8[i] ^ flip
    elif width == 4:
        if signed == 1:
            from4 = int32s(values)
            for i in range(rows):
                out[i] = from4[i]
        else:
            plain4 = uint32s(values)
            for i in range(rows):
                out[i] = plain4[i]
    elif width == 16:
        from16 = int64s(values)
        for i in range(rows):
            out[i] = from16[2 * i]
    elif width == 2:
        if signed == 1:
            from2 = int16s(values)
            for i in range(rows):
                out[i] = from2[i]
        else:
            plain2 = uint16s(values)
            for i in range(rows):
                out[i] = plain2[i]
    elif signed == 1:
        from1 = int8s(values)
        for i in range(rows):
            out[i] = from1[i]
    else:
        plain1 = uint8s(values)
        for i in range(rows):
            out[i] = plain1[i]
    if valid == 0:
        return rows
    kept = 0
    for i in range(rows):
        out[kept] = out[i]
        kept += present(valid, place + i)
    return kept


@near
def add_total(at: int, value: int) -> int:
    """Add to a signed number of two words."""
    words = int64s(at)
    words[0] += value
    words[1] += (value >> 63) + below(words[0], value)
    return 0


@near
def add_square(at: int, low: int, high: int) -> int:
    """Add an unsigned number of two words to one of three."""
    words = int64s(at)
    words[0] += low
    carry = below(words[0], low)
    words[1] += high
    over = below(words[1], high)
    words[1] += carry
    words[2] += over + below(words[1], carry)
    return 0


@far
def near_block(state: int, block: int, count: int, reach: int) -> int:
    """Add the differences from the first least value, none further than `reach`, and their squares."""
    apart(0)
    words = int64s(state)
    values = int64s(block)
    base = words[3]
    total = 0
    low = 0
    if reach <= LOW:
        for i in range(count):
            step = values[i] - base
            total += step
            low += step * step
        add_square(state + 48, low, 0)
    else:
        mixed = 0
        high = 0
        for i in range(count):
            step = values[i] - base
            total += step
            size = abs(step)
            tail = size & LOW
            top = size >> LIMB
            low += tail * tail
            mixed += tail * top
            high += top * top
        add_square(state + 48, low, 0)
        # Twice the mixed products, 26 bits up; the high ones 52 bits up.
        add_square(state + 48, mixed << 27, (mixed >> 37) & ((1 << 27) - 1))
        add_square(state + 48, high << 52, (high >> 12) & ((1 << 52) - 1))
    add_total(state + 32, total)
    words[10] += count
    return 0


@far
def far_block(state: int, block: int, count: int) -> int:
    """Add values as they are, of any size, and their squares."""
    apart(0)
    words = int64s(state)
    values = int64s(block)
    for i in range(count):
        value = values[i]
        add_total(state + 96, value)
        size = -value if value < 0 else value
        add_square(state + 112, size * size, mul_high(size, size))
    words[11] += count
    return 0


@far
def whole_block(state: int, block: int, count: int) -> int:
    """Add a block of integers."""
    apart(0)
    words = int64s(state)
    values = int64s(block)
    least = values[0]
    most = values[0]
    for i in range(count):
        least = min(least, values[i])
        most = max(most, values[i])
    if words[0] == 0:
        words[1] = least
        words[2] = most
        words[3] = least
        words[18] = least - SLOTS // 2
    words[0] += count
    words[1] = min(words[1], least)
    words[2] = max(words[2], most)
    if words[17] == 1:
        first = words[18]
        # All arithmetic wraps: the ends alone could both be near the first slot, one on each side of the last number.
        if below(most - least, SLOTS) == 1 and below(least - first, SLOTS) == 1 and below(most - first, SLOTS) == 1:
            slots = int64s(state + 8 * FIRST_SLOT)
            for i in range(count):
                slots[values[i] - first] += 1
        else:
            words[17] = 0
    base = words[3]
    if (
        below(most - least, 2 * NEAR) == 1
        and below(least - base + NEAR, 2 * NEAR) == 1
        and below(most - base + NEAR, 2 * NEAR) == 1
    ):
        return near_block(state, block, count, max(abs(least - base), abs(most - base)))
    return far_block(state, block, count)


def wholes(state: int, block: int, values: int, valid: int, offset: int, rows: int, width: int, signed: int) -> int:
    """Add integers; returns 0."""
    start = 0
    while start < rows:
        size = min(BLOCK, rows - start)
        count = gathered(block, values + start * width, valid, offset + start, size, width, signed)
        if count > 0:
            whole_block(state, block, count)
        start += size
    return 0


def narrow(values: int, valid: int, offset: int, rows: int) -> int:
    """1 where every present 128-bit integer fits 64 bits."""
    halves = int64s(values)
    for row in range(rows):
        if halves[2 * row + 1] != halves[2 * row] >> 63 and (valid == 0 or present(valid, offset + row) == 1):
            return 0
    return 1


@far
def gathered_reals(block: int, values: int, valid: int, place: int, rows: int, width: int) -> int:
    """Floats as float64 without the absent ones; how many there are."""
    apart(0)
    out = float64s(block)
    if width == 8:
        from8 = float64s(values)
        for i in range(rows):
            out[i] = from8[i]
    else:
        from4 = float32s(values)
        for i in range(rows):
            out[i] = from4[i]
    if valid == 0:
        return rows
    kept = 0
    for i in range(rows):
        out[kept] = out[i]
        kept += present(valid, place + i)
    return kept


@far
def finite(state: int, block: int, count: int) -> int:
    """Count NaN and infinities and take them out of the block; how many values stay."""
    apart(0)
    values = float64s(block)
    odd = 0
    for i in range(count):
        if values[i] - values[i] != 0.0:
            odd += 1
    if odd == 0:
        return count
    words = int64s(state)
    ends = float64s(state)
    kept = 0
    for i in range(count):
        value = values[i]
        if value - value == 0.0:
            values[kept] = value
            kept += 1
        elif value != value:  # noqa: PLR0124 - this is what NaN is
            words[1] += 1
        else:
            words[2] += 1
            if words[7] == 0:
                ends[3] = value
                ends[4] = value
                words[7] = 1
            ends[3] = min(ends[3], value)
            ends[4] = max(ends[4], value)
    return kept


@far
def real_block(state: int, block: int, count: int) -> int:
    """Add a block of finite values: extremes, mean and squared differences, merged into those before (Chan)."""
    apart(0)
    values = float64s(block)
    words = int64s(state)
    kept = float64s(state)
    # Four lanes each: one chain of additions would wait for itself.
    low0 = low1 = low2 = low3 = values[0]
    top0 = top1 = top2 = top3 = values[0]
    sum0 = sum1 = sum2 = sum3 = 0.0
    i = 0
    while i + 4 <= count:
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        low0, low1, low2, low3 = min(low0, a), min(low1, b), min(low2, c), min(low3, d)
        top0, top1, top2, top3 = max(top0, a), max(top1, b), max(top2, c), max(top3, d)
        sum0 += a
        sum1 += b
        sum2 += c
        sum3 += d
        i += 4
    while i < count:
        low0, top0 = min(low0, values[i]), max(top0, values[i])
        sum0 += values[i]
        i += 1
    least = min(low0, low1, low2, low3)
    most = max(top0, top1, top2, top3)
    mean = (sum0 + sum1 + sum2 + sum3) / count
    if mean - mean != 0.0:
        # A sum beyond the largest float is taken of shares.
        mean = 0.0
        for j in range(count):
            mean += values[j] / count
    rest0 = rest1 = rest2 = rest3 = 0.0
    square0 = square1 = square2 = square3 = 0.0
    i = 0
    while i + 4 <= count:
        a, b, c, d = values[i] - mean, values[i + 1] - mean, values[i + 2] - mean, values[i + 3] - mean
        rest0 += a
        rest1 += b
        rest2 += c
        rest3 += d
        square0 += a * a
        square1 += b * b
        square2 += c * c
        square3 += d * d
        i += 4
    while i < count:
        a = values[i] - mean
        rest0 += a
        square0 += a * a
        i += 1
    rest = rest0 + rest1 + rest2 + rest3
    # What rounding of the mean left is taken out of the squares.
    squares = square0 + square1 + square2 + square3 - rest * rest / count
    if words[7] == 0:
        kept[3] = least
        kept[4] = most
        words[7] = 1
    kept[3] = min(kept[3], least)
    kept[4] = max(kept[4], most)
    before = words[0]
    part = count / (before + count)
    between = mean - kept[5]
    if between - between == 0.0:
        kept[5] += between * part
    else:
        kept[5] = kept[5] * (1.0 - part) + mean * part
    kept[6] += squares + (between * between * part * before if before > 0 else 0.0)
    words[0] = before + count
    return 0


def reals(state: int, block: int, values: int, valid: int, offset: int, rows: int, width: int) -> int:
    """Add floats, block by block: each block's mean first, then the squared differences from it. Returns 0."""
    start = 0
    while start < rows:
        size = min(BLOCK, rows - start)
        count = gathered_reals(block, values + start * width, valid, offset + start, size, width)
        count = finite(state, block, count)
        if count > 0:
            real_block(state, block, count)
        start += size
    return 0


@near
def text_key(data: int, start: int, size: int, end: int) -> int:
    """The first eight bytes as a number whose signed order is the bytes' order; missing ones are 0."""
    if size >= 8:
        return be64(data + start) ^ LOWEST
    if size == 0:
        return LOWEST
    if start + 8 <= end:
        return (be64(data + start) & (-1 << (64 - 8 * size))) ^ LOWEST
    key = 0
    i = 0
    while i < size:
        key |= load8(data + start + i) << (56 - 8 * i)
        i += 1
    return key ^ LOWEST


@far
def text_order(data: int, one: int, one_size: int, other: int, other_size: int) -> int:
    """Negative, 0 or positive, as the first text is before, equal to or after the second."""
    apart(0)
    size = min(one_size, other_size)
    i = 0
    while i + 8 <= size:
        mine = be64(data + one + i) ^ LOWEST
        its = be64(data + other + i) ^ LOWEST
        if mine != its:
            return -1 if mine < its else 1
        i += 8
    while i < size:
        step = load8(data + one + i) - load8(data + other + i)
        if step != 0:
            return step
        i += 1
    return one_size - other_size


def texts(ends: int, offsets: int, wide: int, data: int, data_end: int, valid: int, offset: int, rows: int) -> int:
    """Write the rows of the least and the greatest text to two words, by their bytes; -1 where all are absent."""
    long_offsets = int64s(offsets)
    short_offsets = int32s(offsets)
    least = -1
    most = -1
    least_key = 0
    most_key = 0
    least_at = 0
    least_size = 0
    most_at = 0
    most_size = 0
    row = 0
    while row < rows:
        if valid == 0 or present(valid, offset + row) == 1:
            at = long_offsets[row] if wide == 1 else short_offsets[row]
            end = long_offsets[row + 1] if wide == 1 else short_offsets[row + 1]
            size = end - at
            key = text_key(data, at, size, data_end)
            # One test without branches for the many texts that lie between the ends, or are short and equal to one.
            same_least = (key == least_key) & ((size != least_size) | (size > 8))
            same_most = (key == most_key) & ((size != most_size) | (size > 8))
            if (least < 0) | (key < least_key) | (key > most_key) | same_least | same_most:
                if (
                    least < 0
                    or key < least_key
                    or (same_least and text_order(data, at, size, least_at, least_size) < 0)
                ):
                    least = row
                    least_key = key
                    least_at = at
                    least_size = size
                if most < 0 or key > most_key or (same_most and text_order(data, at, size, most_at, most_size) > 0):
                    most = row
                    most_key = key
                    most_at = at
                    most_size = size
        row += 1
    store64(ends, least)
    store64(ends + 8, most)
    return 0
