"""The compiled loops of statistics: one pass over a column's buffers, added to a state of int64 words.

Imported only to compile them. Functions take and return int64 (addresses, counts), allocate nothing and raise nothing.
The words of the states are those of `running`.
"""

from __future__ import annotations

from etl.core.machine import (
    apart,
    be64,
    below,
    far,
    load8,
    load16,
    load32,
    load64,
    mul_high,
    near,
    put_real,
    real32,
    real64,
    signed8,
    store64,
    unsigned16,
    unsigned32,
)

LOWEST = -(1 << 63)
SLOTS = 2048
FIRST_SLOT = 16
BLOCK = 1024


@near
def present(valid: int, place: int) -> int:
    """1 where the bit of a value is set, or there are no bits."""
    if valid == 0:
        return 1
    return (load8(valid + (place >> 3)) >> (place & 7)) & 1


@near
def whole_at(values: int, row: int, width: int, signed: int) -> int:
    """An integer of 1, 2, 4 or 8 bytes, or the low word of one of 16."""
    if width == 8:
        return load64(values + 8 * row)
    if width == 4:
        return load32(values + 4 * row) if signed else unsigned32(values + 4 * row)
    if width == 16:
        return load64(values + 16 * row)
    if width == 2:
        return load16(values + 2 * row) if signed else unsigned16(values + 2 * row)
    return signed8(values + row) if signed else load8(values + row)


def wholes(state: int, values: int, valid: int, offset: int, rows: int, width: int, signed: int) -> int:
    """Add integers; returns 0."""
    count = load64(state)
    least = load64(state + 8)
    most = load64(state + 16)
    total = load64(state + 24)
    total_high = load64(state + 32)
    square = load64(state + 40)
    square_high = load64(state + 48)
    square_top = load64(state + 56)
    counting = load64(state + 64)
    first = load64(state + 72)
    # Unsigned 64-bit numbers are compared, like the others, as signed ones.
    flip = LOWEST if signed == 0 and width == 8 else 0
    extend = 0 if signed == 0 and width == 8 else 1
    row = 0
    while row < rows:
        if present(valid, offset + row) == 0:
            row += 1
            continue
        value = whole_at(values, row, width, signed)
        row += 1
        place = value ^ flip
        if count == 0:
            least = place
            most = place
            first = value - SLOTS // 2
        least = min(least, place)
        most = max(most, place)
        count += 1
        total += value
        total_high += below(total, value) + (value >> 63 if extend == 1 else 0)
        size = -value if extend == 1 and value < 0 else value
        low = size * size
        square += low
        carry = below(square, low)
        high = mul_high(size, size) + carry
        square_high += high
        square_top += below(square_high, high)
        if counting == 1:
            slot = value - first
            if below(slot, SLOTS) == 1:
                at = state + 8 * (FIRST_SLOT + slot)
                store64(at, load64(at) + 1)
            else:
                counting = 0
    store64(state, count)
    store64(state + 8, least)
    store64(state + 16, most)
    store64(state + 24, total)
    store64(state + 32, total_high)
    store64(state + 40, square)
    store64(state + 48, square_high)
    store64(state + 56, square_top)
    store64(state + 64, counting)
    store64(state + 72, first)
    return 0


def narrow(values: int, valid: int, offset: int, rows: int) -> int:
    """1 where every present 128-bit integer fits 64 bits."""
    row = 0
    while row < rows:
        if present(valid, offset + row) == 1:
            low = load64(values + 16 * row)
            if load64(values + 16 * row + 8) != low >> 63:
                return 0
        row += 1
    return 1


def reals(state: int, values: int, valid: int, offset: int, rows: int, width: int) -> int:
    """Add floats, block by block: each block's mean first, then the squared differences from it. Returns 0."""
    start = 0
    while start < rows:
        end = min(rows, start + BLOCK)
        count = 0
        nans = 0
        infinite = 0
        total = 0.0
        least = real64(state + 24)
        most = real64(state + 32)
        seen = load64(state + 56)
        row = start
        while row < end:
            if present(valid, offset + row) == 1:
                value = real64(values + 8 * row) if width == 8 else real32(values + 4 * row)
                if value != value:  # noqa: PLR0124 - this is what NaN is
                    nans += 1
                else:
                    if seen == 0:
                        least = value
                        most = value
                        seen = 1
                    least = min(least, value)
                    most = max(most, value)
                    if value - value == 0.0:
                        count += 1
                        total += value
                    else:
                        infinite += 1
            row += 1
        store64(state + 8, load64(state + 8) + nans)
        store64(state + 16, load64(state + 16) + infinite)
        put_real(state + 24, least)
        put_real(state + 32, most)
        store64(state + 56, seen)
        if count > 0:
            block(state, values, valid, offset, start, end, width, count, total - total == 0.0)
        start = end
    return 0


@far
def block(
    state: int, values: int, valid: int, offset: int, start: int, end: int, width: int, count: int, plain: int
) -> int:
    """Mean and squared differences of one block's finite values, merged into those before (Chan)."""
    apart(0)
    mean = 0.0
    row = start
    # A sum beyond the largest float is taken of shares.
    share = 1.0 if plain else 1.0 / count
    while row < end:
        if present(valid, offset + row) == 1:
            value = real64(values + 8 * row) if width == 8 else real32(values + 4 * row)
            if value - value == 0.0:
                mean += value * share
        row += 1
    if plain:
        mean /= count
    rest = 0.0
    squares = 0.0
    row = start
    while row < end:
        if present(valid, offset + row) == 1:
            value = real64(values + 8 * row) if width == 8 else real32(values + 4 * row)
            if value - value == 0.0:
                step = value - mean
                rest += step
                squares += step * step
        row += 1
    # What rounding of the mean left is taken out of the squares.
    squares -= rest * rest / count
    before = load64(state)
    old = real64(state + 40)
    part = count / (before + count)
    between = mean - old
    if between - between == 0.0:
        put_real(state + 40, old + between * part)
    else:
        put_real(state + 40, old * (1.0 - part) + mean * part)
    put_real(state + 48, real64(state + 48) + squares + (between * between * part * before if before > 0 else 0.0))
    store64(state, before + count)
    return 0


@near
def text_key(data: int, start: int, size: int) -> int:
    """The first eight bytes as a number whose signed order is the bytes' order; missing ones are 0."""
    if size >= 8:
        return be64(data + start) ^ LOWEST
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
    while i < size:
        step = load8(data + one + i) - load8(data + other + i)
        if step != 0:
            return step
        i += 1
    return one_size - other_size


def texts(ends: int, offsets: int, wide: int, data: int, valid: int, offset: int, rows: int) -> int:
    """Write the rows of the least and the greatest text to two words, by their bytes; -1 where all are absent."""
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
        if present(valid, offset + row) == 1:
            at = load64(offsets + 8 * row) if wide == 1 else load32(offsets + 4 * row)
            end = load64(offsets + 8 * row + 8) if wide == 1 else load32(offsets + 4 * row + 4)
            size = end - at
            key = text_key(data, at, size)
            if least < 0:
                least = row
                most = row
                least_key = key
                most_key = key
                least_at = at
                most_at = at
                least_size = size
                most_size = size
            elif key < least_key or (key == least_key and text_order(data, at, size, least_at, least_size) < 0):
                least = row
                least_key = key
                least_at = at
                least_size = size
            elif key > most_key or (key == most_key and text_order(data, at, size, most_at, most_size) > 0):
                most = row
                most_key = key
                most_at = at
                most_size = size
        row += 1
    store64(ends, least)
    store64(ends + 8, most)
    return 0
