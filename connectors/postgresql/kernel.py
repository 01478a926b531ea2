# ruff: noqa: PLR1714, SIM109 - the compiler makes a set of `in {…}`, which needs its run time
"""The compiled loop over a binary COPY stream: rows by columns from wire bytes straight into Arrow buffers.

This module needs numba and is imported only while `native` compiles it; a run loads the object code. Functions take
and return int64 only (addresses and counts), allocate nothing, raise nothing and call nothing outside themselves, so
that they run without the interpreter. The same body per row is meant for one thread per row on a GPU.

Memory is described by two tables of int64, laid out by the constants of `layout`: one state row per stream and one
row of `STRIDE` words per column. Source buffers must be readable, and text areas writable, `SLACK` bytes past their
end, since short texts are copied 16 bytes at a time.

Wire forms are those of PostgreSQL's `*send` functions (src/backend/utils/adt), big endian.
"""

from __future__ import annotations

from connectors.postgresql.layout import (
    C_AUX,
    C_AUXN,
    C_CAP,
    C_COUNTS,
    C_DATA,
    C_FAILED,
    C_FLAGS,
    C_LIMIT,
    C_NULLS,
    C_OP,
    C_REASON,
    C_ROUNDED,
    C_SCALE,
    C_USED,
    C_VALID,
    C_VALUES,
    C_WIDTH,
    C_WIRE,
    CLAMPED,
    DATE_MAX,
    DATE_MIN,
    DAY_US,
    E_CORRUPT,
    E_FIELDS,
    E_FRACTION,
    E_HEADER,
    E_LABEL,
    E_LENGTH,
    E_NARROW,
    E_NULL,
    E_SPECIAL,
    E_TRAILING,
    E_TRUNCATED,
    EPOCH_DAYS,
    EPOCH_US,
    F_NULLABLE,
    F_OPEN,
    F_ROUND,
    F_UTF8,
    FLOAT_INFINITY,
    FLOAT_NAN,
    INT64_MAX,
    INT64_MIN,
    MONTHS_MAX,
    MONTHS_MIN,
    OP_BOOL,
    OP_CHECKED,
    OP_DATE,
    OP_ENUM,
    OP_FIX2,
    OP_FIX4,
    OP_FIX8,
    OP_HEX,
    OP_INTERVAL,
    OP_JSONB,
    OP_MONEY,
    OP_NUM64,
    OP_NUM128,
    OP_NUM256,
    OP_TEXT,
    OP_TIME,
    OP_TIMESTAMP,
    OP_UUID,
    OP_UUID_TEXT,
    PHASE_DONE,
    PHASE_HEADER,
    PHASE_ROWS,
    R_INFINITY,
    R_NAN,
    R_NEG_INFINITY,
    R_RANGE,
    R_TIME24,
    R_UTF8,
    S_COLUMN,
    S_COLUMNS,
    S_END,
    S_ERROR,
    S_FIELD,
    S_FRAMED,
    S_LENGTH,
    S_MESSAGE_END,
    S_NEED,
    S_PHASE,
    S_POS,
    S_ROOM,
    S_ROW,
    S_ROW_CAP,
    S_ROW_START,
    S_SPREAD,
    SIGNATURE_HIGH,
    SPECIAL_SHIFT,
    STATUS_DONE,
    STATUS_ERROR,
    STATUS_FULL,
    STATUS_MESSAGE,
    STATUS_MORE,
    STATUS_SPLIT,
    STRIDE_BYTES,
    TIMESTAMP_MIN,
)
from etl.core.machine import (
    apart,
    be16,
    be32,
    be64,
    below,
    copy16,
    copy_bytes,
    far,
    load8,
    load64,
    mul_high,
    near,
    product,
    ratio,
    store8,
    store16,
    store32,
    store64,
)


@near
def get(table: int, index: int) -> int:
    """A word of a table row."""
    return load64(table + 8 * index)


@near
def put(table: int, index: int, value: int) -> int:
    """Set a word of a table row."""
    return store64(table + 8 * index, value)


@near
def copy_text(target: int, source: int, size: int) -> int:
    """Copy text; up to 15 bytes more are written than asked."""
    if size <= 256:
        at = 0
        while at < size:
            copy16(target + at, source + at)
            at += 16
    else:
        copy_bytes(target, source, size)
    return 0


@far
def set_null(column: int, row: int, capacity: int) -> int:
    """Clear the row's validity bit; at the first NULL of a batch the bitmap is made."""
    apart(0)
    if get(column, C_FLAGS) & F_NULLABLE == 0:
        return E_NULL
    valid = get(column, C_VALID)
    nulls = get(column, C_NULLS)
    if nulls == 0:
        at = 0
        while at < capacity:
            store64(valid + (at >> 3), -1)
            at += 64
    put(column, C_NULLS, nulls + 1)
    byte = load8(valid + (row >> 3))
    store8(valid + (row >> 3), byte & ~(1 << (row & 7)))
    # Zero under NULL, so that no earlier content of the memory reaches a file.
    width = get(column, C_WIDTH)
    values = get(column, C_VALUES)
    if width > 0:
        at = 0
        while at + 8 <= width:
            store64(values + row * width + at, 0)
            at += 8
        while at < width:
            store8(values + row * width + at, 0)
            at += 1
    elif width == 0:
        byte = load8(values + (row >> 3))
        store8(values + (row >> 3), byte & ~(1 << (row & 7)))
    else:
        store32(values + 4 * row + 4, get(column, C_USED))
    return 0


@far
def special(column: int, row: int, capacity: int, reason: int, has_nearest: int) -> int:
    """What the policy says: 0 done (NULL), CLAMPED (the caller stores the nearest value), or an error."""
    apart(0)
    policy = (get(column, C_FLAGS) >> SPECIAL_SHIFT) & 3
    put(column, C_REASON, reason)
    if policy == 0 or (policy == 2 and has_nearest == 0):
        return E_SPECIAL
    if policy == 1:
        failed = set_null(column, row, capacity)
        if failed != 0:
            return failed
    put(column, C_COUNTS + reason, get(column, C_COUNTS + reason) + 1)
    if policy == 2:
        return CLAMPED
    return 0


@near
def power10(exponent: int) -> int:
    """Ten to a small power."""
    value = 1
    while exponent > 0:
        value *= 10
        exponent -= 1
    return value


@near
def store_wide(target: int, width: int, w0: int, w1: int, w2: int, w3: int, negative: int) -> int:
    """Store a magnitude of four words as a signed integer of `width` bytes."""
    if negative:
        w0, w1, w2, w3 = ~w0, ~w1, ~w2, ~w3
        w0 += 1
        if w0 == 0:
            w1 += 1
            if w1 == 0:
                w2 += 1
                if w2 == 0:
                    w3 += 1
    store64(target, w0)
    store64(target + 8, w1)
    if width == 32:
        store64(target + 16, w2)
        store64(target + 24, w3)
    return 0


@near
def float_special(sign: int) -> int:
    """The bits of the float64 that a special numeric's sign word stands for, 0 where it is none."""
    if sign == 0xC000:
        return FLOAT_NAN
    if sign == 0xD000:
        return FLOAT_INFINITY
    if sign == 0xF000:
        return FLOAT_INFINITY | INT64_MIN
    return 0


@far
def numeric_special(column: int, row: int, capacity: int, sign: int) -> int:
    """NaN and infinities of numeric."""
    apart(0)
    if get(column, C_WIDTH) == 8 and float_special(sign) != 0:
        store64(get(column, C_VALUES) + 8 * row, float_special(sign))
        return 0
    if sign == 0xC000:
        return special(column, row, capacity, R_NAN, 0)
    if sign == 0xD000 or sign == 0xF000:
        return special(column, row, capacity, R_INFINITY if sign == 0xD000 else R_NEG_INFINITY, 1)
    return E_CORRUPT


@far
def numeric_limit(column: int, row: int, negative: int) -> int:
    """Store the largest magnitude of the decimal."""
    apart(0)
    limit = get(column, C_AUX)
    width = get(column, C_WIDTH)
    target = get(column, C_VALUES) + width * row
    store_wide(target, width, get(limit, 4), get(limit, 5), get(limit, 6), get(limit, 7), negative)
    return 0


@far
def numeric_overflow(column: int, row: int, capacity: int, negative: int) -> int:
    """A number with more integer digits than its decimal."""
    apart(0)
    if get(column, C_FLAGS) & F_OPEN:
        return E_NARROW
    if get(column, C_WIDTH) == 8:
        return E_CORRUPT
    done = special(column, row, capacity, R_RANGE, 1)
    if done == CLAMPED:
        return numeric_limit(column, row, negative)
    return done


@near
def part(digit: int, exponent: int) -> tuple[int, int, int, int]:
    """The digit across the decimal's last place: 10^kept decimals, their value, what is lost, its first decimal."""
    if exponent == -2:
        return 100, digit // 100, digit % 100, digit // 10 % 10
    if exponent == -1:
        return 1000, digit // 10, digit % 10, digit % 10
    return 10, digit // 1000, digit % 1000, digit // 100 % 10


@far
def numeric64(column: int, row: int, capacity: int, source: int, size: int) -> int:
    """Base-10000 digits to int64, for precision ≤ 18 (numeric_send)."""
    apart(0)
    if size < 8:
        return E_LENGTH
    count = be16(source)
    weight = be16(source + 2)
    sign = be16(source + 4) & 0xFFFF
    if count < 0 or size != 8 + 2 * count:
        return E_LENGTH
    if sign != 0 and sign != 0x4000:
        done = numeric_special(column, row, capacity, sign)
        if done == CLAMPED:
            return numeric_limit(column, row, sign == 0xF000)
        return done
    scale = get(column, C_SCALE)
    limit = get(column, C_LIMIT)
    total = 0
    exponent = 4 * weight + scale
    dropped = 0
    first_dropped = 0
    over = False
    rest = 0
    at = source + 8
    end = source + size
    while at < end:
        digit = be16(at)
        if digit < 0 or digit > 9999:
            return E_CORRUPT
        at += 2
        if exponent >= 0:
            over = over or total >= 100_000_000_000_000
            total = total * 10000 + digit
            rest = exponent
        elif exponent > -4:
            keep, value, lost, first_dropped = part(digit, exponent)
            over = over or (total >= 1_000_000_000_000_000 and total >= 1_000_000_000_000_000_000 // keep)
            total = total * keep + value
            rest = 0
            dropped |= lost
        else:
            dropped |= digit
            if exponent == -4 and digit >= 5000:
                first_dropped = 5
        exponent -= 4
        if over:
            total = 1
    if total == 0:
        over = False
    elif rest > 0:
        if rest > 18 or total >= limit:
            over = True
        else:
            while rest > 0 and not over:
                over = total >= 100_000_000_000_000_000
                total *= 10
                rest -= 1
    if not over and dropped != 0:
        flags = get(column, C_FLAGS)
        if flags & F_OPEN:
            return E_NARROW
        if flags & F_ROUND == 0:
            return E_FRACTION
        put(column, C_ROUNDED, get(column, C_ROUNDED) + 1)
        if first_dropped >= 5:
            total += 1
    if over or total >= limit:
        return numeric_overflow(column, row, capacity, sign == 0x4000)
    if sign == 0x4000:
        total = -total
    if get(column, C_WIDTH) == 8:
        # At most 15 digits over a power of ten up to 10^15, both exact in float64: one division rounds once.
        store64(get(column, C_VALUES) + 8 * row, ratio(total, get(column, C_AUXN)))
        return 0
    target = get(column, C_VALUES) + 16 * row
    store64(target, total)
    store64(target + 8, total >> 63)
    return 0


@far
def numeric_plain(column: int, row: int, source: int, size: int) -> int:
    """The frequent numerics of at most four digits that need no policy; 1 when it is done, 0 when it is for `cell`."""
    apart(0)
    if size < 8 or size > 16:
        return 0
    head = be64(source)
    count = head >> 48
    # Signs other than plus (0) and minus (0x4000) are special values.
    if size != 8 + 2 * count or head & 0xBFFF0000 != 0:
        return 0
    weight = (head << 16) >> 48
    total = 0
    wrong = 0
    at = source + 8
    end = source + size
    while at < end:
        digit = be16(at)
        wrong |= digit | (9999 - digit)
        total = total * 10000 + digit
        at += 2
    exponent = 4 * (weight - count + 1) + get(column, C_SCALE)
    if wrong < 0:
        return 0
    if total != 0 and exponent != 0:
        if exponent == -2:
            if total % 100 != 0:
                return 0
            total //= 100
        elif exponent == 2 and count < 4:
            total *= 100
        elif exponent < 0 or exponent > 18 - 4 * count:
            return 0
        else:
            while exponent > 0:
                total *= 10
                exponent -= 1
    if total >= get(column, C_LIMIT):
        return 0
    if head & 0x40000000 != 0:
        total = -total
    if get(column, C_WIDTH) == 8:
        # At most 15 digits over a power of ten up to 10^15, both exact in float64: one division rounds once.
        store64(get(column, C_VALUES) + 8 * row, ratio(total, get(column, C_AUXN)))
        return 1
    target = get(column, C_VALUES) + 16 * row
    store64(target, total)
    store64(target + 8, total >> 63)
    return 1


@far
def numeric_wide(column: int, row: int, capacity: int, source: int, size: int) -> int:
    """Base-10000 digits to a 128 or 256 bit integer, for precision ≤ 76 (numeric_send)."""
    apart(0)
    if size < 8:
        return E_LENGTH
    count = be16(source)
    weight = be16(source + 2)
    sign = be16(source + 4) & 0xFFFF
    if count < 0 or size != 8 + 2 * count:
        return E_LENGTH
    if sign != 0 and sign != 0x4000:
        done = numeric_special(column, row, capacity, sign)
        if done == CLAMPED:
            return numeric_limit(column, row, sign == 0xF000)
        return done
    scale = get(column, C_SCALE)
    w0 = 0
    w1 = 0
    w2 = 0
    w3 = 0
    exponent = 4 * weight + scale
    dropped = 0
    first_dropped = 0
    over = False
    at = source + 8
    end = source + size
    # Each step multiplies the four words by `factor` and adds `term`; up to four digits make one step.
    rest = 0
    while at < end or rest > 0:
        factor = 1
        term = 0
        if at >= end:
            take = min(rest, 18)
            factor = power10(take)
            rest -= take
        else:
            taken = 0
            while at < end and taken < 4:
                digit = be16(at)
                if digit < 0 or digit > 9999:
                    return E_CORRUPT
                if exponent >= 0:
                    factor *= 10000
                    term = term * 10000 + digit
                    rest = exponent
                elif exponent > -4:
                    keep, value, lost, first_dropped = part(digit, exponent)
                    factor *= keep
                    term = term * keep + value
                    rest = 0
                    dropped |= lost
                else:
                    dropped |= digit
                    if exponent == -4 and digit >= 5000:
                        first_dropped = 5
                exponent -= 4
                at += 2
                taken += 1
            if at >= end and (w0 | w1 | w2 | w3 | term) == 0:
                rest = 0
        low = w0 * factor
        carry = mul_high(w0, factor)
        w0 = low + term
        carry += below(w0, low)
        low = w1 * factor
        high = mul_high(w1, factor)
        w1 = low + carry
        carry = high + below(w1, low)
        low = w2 * factor
        high = mul_high(w2, factor)
        w2 = low + carry
        carry = high + below(w2, low)
        low = w3 * factor
        high = mul_high(w3, factor)
        w3 = low + carry
        carry = high + below(w3, low)
        if carry != 0 or w3 < 0:
            over = True
            w1 = 0
            w2 = 0
            w3 = 0
            w0 = 1
            if at >= end:
                rest = 0
    if not over and dropped != 0:
        flags = get(column, C_FLAGS)
        if flags & F_OPEN:
            return E_NARROW
        if flags & F_ROUND == 0:
            return E_FRACTION
        put(column, C_ROUNDED, get(column, C_ROUNDED) + 1)
        if first_dropped >= 5:
            w0 += 1
            if w0 == 0:
                w1 += 1
                if w1 == 0:
                    w2 += 1
                    if w2 == 0:
                        w3 += 1
    if not over:
        limit = get(column, C_AUX)
        l3, l2, l1, l0 = get(limit, 3), get(limit, 2), get(limit, 1), get(limit, 0)
        if w3 != l3:
            over = below(w3, l3) == 0
        elif w2 != l2:
            over = below(w2, l2) == 0
        elif w1 != l1:
            over = below(w1, l1) == 0
        else:
            over = below(w0, l0) == 0
    if over:
        return numeric_overflow(column, row, capacity, sign == 0x4000)
    width = get(column, C_WIDTH)
    store_wide(get(column, C_VALUES) + width * row, width, w0, w1, w2, w3, sign == 0x4000)
    return 0


@near
def continues(address: int) -> int:
    """Whether a byte continues a UTF-8 character."""
    return (load8(address) & 0xC0) == 0x80


@far
def utf8_step(at: int, end: int) -> int:
    """Bytes of the character at `at`, or minus the bytes of the bad sequence there (as Python's decoder cuts them)."""
    apart(0)
    first = load8(at)
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    if at + 1 >= end:
        return -1
    if first < 0xE0:
        return 2 if continues(at + 1) else -1
    second = load8(at + 1)
    low = 0x80
    high = 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return -1
    if at + 2 >= end or not continues(at + 2):
        return -2
    if first < 0xF0:
        return 3
    if at + 3 >= end or not continues(at + 3):
        return -3
    return 4


@far
def utf8_valid(at: int, end: int) -> int:
    """1 where the bytes are UTF-8."""
    apart(0)
    while at < end:
        while at + 8 <= end and load64(at) & -0x7F7F7F7F7F7F7F80 == 0:
            at += 8
        if at < end:
            step = utf8_step(at, end)
            if step < 0:
                return 0
            at += step
    return 1


@far
def utf8_replace(target: int, at: int, end: int) -> int:
    """Copy text with U+FFFD for each bad sequence; returns the end of what was written."""
    apart(0)
    while at < end:
        step = utf8_step(at, end)
        if step < 0:
            store8(target, 0xEF)
            store8(target + 1, 0xBF)
            store8(target + 2, 0xBD)
            target += 3
            at -= step
        else:
            while step > 0:
                store8(target, load8(at))
                target += 1
                at += 1
                step -= 1
    return target


@near
def hex_digit(value: int) -> int:
    """The lower-case digit of a nibble."""
    return value + 48 + (39 if value > 9 else 0)


@near
def store_hex(target: int, byte: int) -> int:
    """Write a byte as two digits; returns the end."""
    store8(target, hex_digit(byte >> 4))
    store8(target + 1, hex_digit(byte & 15))
    return target + 2


@far
def enum_code(column: int, source: int, size: int) -> int:
    """The label's position in the vocabulary, or -1: open addressing over FNV-1a."""
    apart(0)
    mask = get(column, C_AUXN) - 1
    table = get(column, C_AUX)
    code = -3750763034362895579
    at = 0
    while at < size:
        code = (code ^ load8(source + at)) * 1099511628211
        at += 1
    slot = (code ^ (code >> 32)) & mask
    while True:
        entry = table + 32 * slot
        label = get(entry, 0)
        if label == 0:
            return -1
        if get(entry, 1) == size and get(entry, 2) == code:
            at = 0
            while at < size and load8(label + at) == load8(source + at):
                at += 1
            if at == size:
                return get(entry, 3)
        slot = (slot + 1) & mask


@far
def interval(column: int, row: int, capacity: int, source: int) -> int:
    """interval_send to months, days and nanoseconds."""
    apart(0)
    time = be64(source)
    days = be32(source + 8)
    months = be32(source + 12)
    target = get(column, C_VALUES) + 16 * row
    done = 0
    if time == INT64_MAX and days == MONTHS_MAX and months == MONTHS_MAX:
        done = special(column, row, capacity, R_INFINITY, 1)
        if done != CLAMPED:
            return done
        time = INT64_MAX
    elif time == INT64_MIN and days == MONTHS_MIN and months == MONTHS_MIN:
        done = special(column, row, capacity, R_NEG_INFINITY, 1)
        if done != CLAMPED:
            return done
    elif time > 9223372036854775 or time < -9223372036854775:
        done = special(column, row, capacity, R_RANGE, 1)
        if done != CLAMPED:
            return done
        time = INT64_MAX if time > 0 else INT64_MIN
    else:
        time *= 1000
    store32(target, months)
    store32(target + 4, days)
    store64(target + 8, time)
    return 0


@far
def text_checked(column: int, row: int, capacity: int, source: int, size: int) -> int:
    """Text of a database that does not check its encoding."""
    apart(0)
    used = get(column, C_USED)
    target = get(column, C_DATA) + used
    if utf8_valid(source, source + size):
        copy_text(target, source, size)
        used += size
    else:
        done = special(column, row, capacity, R_UTF8, 1)
        if done != CLAMPED:
            return done
        used = utf8_replace(target, source, source + size) - get(column, C_DATA)
    put(column, C_USED, used)
    store32(get(column, C_VALUES) + 4 * row + 4, used)
    return 0


@far
def text_made(column: int, row: int, op: int, source: int, size: int) -> int:
    """Text that is spelled from bytes: hex and uuid."""
    apart(0)
    start = get(column, C_DATA)
    target = start + get(column, C_USED)
    at = 0
    while at < size:
        if op == OP_UUID_TEXT and (at == 4 or at == 6 or at == 8 or at == 10):
            store8(target, 45)
            target += 1
        target = store_hex(target, load8(source + at))
        at += 1
    put(column, C_USED, target - start)
    store32(get(column, C_VALUES) + 4 * row + 4, target - start)
    return 0


@far
def odd_moment(column: int, row: int, capacity: int, value: int) -> int:
    """Infinite timestamps, and those beyond int64 microseconds since 1970."""
    apart(0)
    if value == INT64_MAX:
        done = special(column, row, capacity, R_INFINITY, 1)
    elif value == INT64_MIN:
        done = special(column, row, capacity, R_NEG_INFINITY, 1)
    else:
        done = special(column, row, capacity, R_RANGE, 1)
    if done == CLAMPED:
        store64(get(column, C_VALUES) + 8 * row, INT64_MAX if value > 0 else TIMESTAMP_MIN)
        return 0
    return done


@far
def odd_date(column: int, row: int, capacity: int, value: int) -> int:
    """Infinite dates, and those that no server makes."""
    apart(0)
    if value == 2147483647:
        done = special(column, row, capacity, R_INFINITY, 1)
    elif value == -2147483648:
        done = special(column, row, capacity, R_NEG_INFINITY, 1)
    else:
        done = special(column, row, capacity, R_RANGE, 1)
    if done == CLAMPED:
        store32(get(column, C_VALUES) + 4 * row, DATE_MAX if value > 0 else DATE_MIN)
        return 0
    return done


@far
def odd_time(column: int, row: int, capacity: int, value: int) -> int:
    """24:00:00, and what no server makes."""
    apart(0)
    if value != DAY_US:
        return E_CORRUPT
    done = special(column, row, capacity, R_TIME24, 1)
    if done == CLAMPED:
        store64(get(column, C_VALUES) + 8 * row, DAY_US - 1)
        return 0
    return done


@near
def common(column: int, row: int, source: int, size: int) -> int:
    """A field of the frequent kinds that needs no call; 1 when it is done, 0 when it is for `cell`."""
    op = get(column, C_OP)
    values = get(column, C_VALUES)
    if op == OP_FIX8:
        store64(values + 8 * row, be64(source))
        return 1
    if op == OP_FIX4:
        store32(values + 4 * row, be32(source))
        return 1
    if op == OP_TEXT:
        used = get(column, C_USED)
        copy_text(get(column, C_DATA) + used, source, size)
        used += size
        put(column, C_USED, used)
        store32(values + 4 * row + 4, used)
        return 1
    if op == OP_TIMESTAMP:
        value = be64(source)
        if value > INT64_MAX - EPOCH_US or value < TIMESTAMP_MIN - EPOCH_US:
            return 0
        store64(values + 8 * row, value + EPOCH_US)
        return 1
    if op == OP_DATE:
        value = be32(source)
        if value > DATE_MAX - EPOCH_DAYS or value < DATE_MIN - EPOCH_DAYS:
            return 0
        store32(values + 4 * row, value + EPOCH_DAYS)
        return 1
    if op == OP_NUM64:
        return numeric_plain(column, row, source, size)
    if op == OP_BOOL:
        bit = row & 7
        byte = load8(values + (row >> 3))
        store8(values + (row >> 3), (byte & ~(1 << bit)) | ((1 if load8(source) != 0 else 0) << bit))
        return 1
    if op == OP_FIX2:
        store16(values + 2 * row, be16(source))
        return 1
    return 0


@far
def cell(column: int, row: int, capacity: int, source: int, size: int) -> int:
    """Any other field, NULL (size -1) included. Returns 0 or an error code."""
    apart(0)
    if size < 0:
        return set_null(column, row, capacity) if size == -1 else E_LENGTH
    op = get(column, C_OP)
    values = get(column, C_VALUES)
    if op == OP_NUM64:
        return numeric64(column, row, capacity, source, size)
    if op == OP_NUM128 or op == OP_NUM256:
        return numeric_wide(column, row, capacity, source, size)
    if op == OP_CHECKED:
        return text_checked(column, row, capacity, source, size)
    if op == OP_ENUM:
        code = enum_code(column, source, size)
        if code < 0:
            return E_LABEL
        store32(values + 4 * row, code)
        return 0
    if op == OP_UUID:
        copy16(values + 16 * row, source)
        return 0
    if op == OP_JSONB:
        if size < 1:
            return E_LENGTH
        if load8(source) != 1:
            return E_CORRUPT
        if get(column, C_FLAGS) & F_UTF8:
            return text_checked(column, row, capacity, source + 1, size - 1)
        used = get(column, C_USED)
        copy_text(get(column, C_DATA) + used, source + 1, size - 1)
        used += size - 1
        put(column, C_USED, used)
        store32(values + 4 * row + 4, used)
        return 0
    if op == OP_TIME:
        value = be64(source)
        if value < 0 or value >= DAY_US:
            return odd_time(column, row, capacity, value)
        store64(values + 8 * row, value)
        return 0
    if op == OP_MONEY:
        value = be64(source)
        store64(values + 16 * row, value)
        store64(values + 16 * row + 8, value >> 63)
        return 0
    if op == OP_INTERVAL:
        return interval(column, row, capacity, source)
    if op == OP_HEX or op == OP_UUID_TEXT:
        return text_made(column, row, op, source, size)
    if op == OP_TIMESTAMP:
        return odd_moment(column, row, capacity, be64(source))
    if op == OP_DATE:
        return odd_date(column, row, capacity, be32(source))
    return E_CORRUPT


@far
def measure(at: int, end: int, columns: int) -> int:
    """Bytes of the row at `at` with its field count, or minus the bytes it needs at least."""
    apart(0)
    start = at
    at += 2
    column = 0
    while column < columns:
        if end - at < 4:
            return start - at - 4
        size = be32(at)
        at += 4
        if size < -1:
            return at - start
        if size > 0:
            if end - at < size:
                return start - at - size
            at += size
        column += 1
    return at - start


@far
def room_left(columns: int, count: int) -> int:
    """The least free space over the text areas."""
    apart(0)
    room = INT64_MAX >> 2
    column = columns
    while count > 0:
        capacity = get(column, C_CAP)
        if capacity > 0:
            room = min(room, capacity - get(column, C_USED))
        column += STRIDE_BYTES
        count -= 1
    return room


def rows(state: int, columns: int) -> int:
    """Decode from S_POS to S_END into the batch; returns a STATUS_ code with the position in the state.

    Framed, the bytes are protocol messages and every complete message of the kind S_FRAMED is decoded; unframed they
    are the COPY payload. A row is decoded only when it is complete and every text area has room for all its bytes.
    """
    at = get(state, S_POS)
    end = get(state, S_END)
    row = get(state, S_ROW)
    capacity = get(state, S_ROW_CAP)
    count = get(state, S_COLUMNS)
    framed = get(state, S_FRAMED)
    phase = get(state, S_PHASE)
    room = get(state, S_ROOM)
    spread = get(state, S_SPREAD)
    message_end = get(state, S_MESSAGE_END)
    status = -1
    error = 0
    while status < 0:
        if framed == 0:
            message_end = end
        elif message_end == 0:
            if end - at < 5:
                put(state, S_NEED, 5)
                status = STATUS_MORE
                continue
            size = be32(at + 1)
            if load8(at) != framed:
                status = STATUS_MESSAGE
                continue
            if size < 4:
                error = E_CORRUPT
                status = STATUS_ERROR
                continue
            if end - at < 1 + size:
                put(state, S_NEED, 1 + size)
                status = STATUS_MORE
                continue
            message_end = at + 1 + size
            at += 5
        if framed != 0 and at >= message_end:
            message_end = 0
            continue
        left = message_end - at
        if phase == PHASE_ROWS:
            if left < 2:
                put(state, S_NEED, 2)
                status = STATUS_MORE if framed == 0 else STATUS_SPLIT
                continue
            fields = be16(at)
            if fields != count:
                if fields == -1:
                    at += 2
                    phase = PHASE_DONE
                else:
                    put(state, S_FIELD, at)
                    put(state, S_LENGTH, fields)
                    error = E_FIELDS
                    status = STATUS_ERROR
                continue
            if row >= capacity:
                status = STATUS_FULL
                continue
            if framed == 0:
                left = measure(at, message_end, count)
                if left < 0:
                    put(state, S_NEED, -left)
                    status = STATUS_MORE
                    continue
            if room < left * spread:
                if framed != 0:
                    # The message may hold more than this row.
                    left = measure(at, message_end, count)
                    if left < 0:
                        status = STATUS_SPLIT
                        continue
                room = room_left(columns, count)
                if room < left * spread:
                    put(state, S_NEED, left)
                    status = STATUS_FULL
                    continue
            room -= left * spread
            start = at
            row_end = at + left
            at += 2
            column = columns
            field = at
            size = 0
            last = columns + count * STRIDE_BYTES
            while column < last:
                if row_end - at < 4:
                    error = E_TRUNCATED
                    break
                # Where the wire size is fixed the next field's place does not wait for this one's length to arrive.
                wire = get(column, C_WIRE)
                size = be32(at)
                at += 4
                field = at
                done = 0
                if size >= 0:
                    if wire > 0:
                        if size != wire:
                            error = E_LENGTH
                            break
                        size = wire
                    if row_end - at < size:
                        error = E_TRUNCATED
                        break
                    at += size
                    done = common(column, row, field, size)
                if done == 0:
                    error = cell(column, row, capacity, field, size)
                if error != 0:
                    break
                column += STRIDE_BYTES
            if error != 0:
                put(state, S_COLUMN, (column - columns) // STRIDE_BYTES)
                put(state, S_ROW_START, start)
                put(state, S_FIELD, field)
                put(state, S_LENGTH, size)
                status = STATUS_ERROR
                if framed != 0 and error == E_TRUNCATED:
                    status = STATUS_SPLIT
                continue
            row += 1
            if at == row_end:
                at = row_end
        elif phase == PHASE_HEADER:
            if left < 19:
                put(state, S_NEED, 19)
                status = STATUS_MORE if framed == 0 else STATUS_SPLIT
                continue
            flags = be32(at + 11)
            extension = be32(at + 15)
            tail = load8(at + 8) * 65536 + load8(at + 9) * 256 + load8(at + 10)
            if be64(at) != SIGNATURE_HIGH or tail != 0x0D0A00 or flags != 0 or extension < 0:
                error = E_HEADER
                status = STATUS_ERROR
                continue
            if left < 19 + extension:
                put(state, S_NEED, 19 + extension)
                status = STATUS_MORE if framed == 0 else STATUS_SPLIT
                continue
            at += 19 + extension
            phase = PHASE_ROWS
        elif left > 0:
            error = E_TRAILING
            status = STATUS_ERROR
        else:
            status = STATUS_DONE
    put(state, S_POS, at)
    put(state, S_ROW, row)
    put(state, S_PHASE, phase)
    put(state, S_ROOM, room)
    put(state, S_MESSAGE_END, message_end if framed != 0 else 0)
    put(state, S_ERROR, error)
    return status


def cells(column: int, fields: int, sizes: int, count: int) -> int:
    """Decode `count` fields, given by address and size (-1: NULL), into one column.

    Returns -1, or the index of the first field that failed with the code in C_FAILED.
    """
    at = 0
    while at < count:
        size = get(sizes, at)
        wire = get(column, C_WIRE)
        if size >= 0 and wire > 0 and size != wire:
            error = E_LENGTH
        elif size >= 0 and common(column, at, get(fields, at), size):
            error = 0
        else:
            error = cell(column, at, count, get(fields, at), size)
        if error != 0:
            put(column, C_FAILED, error)
            return at
        at += 1
    return -1


def array_measure(fields: int, sizes: int, count: int, depth: int, skip_wrong: int, totals: int) -> int:
    """Check arrays (array_send) and count lists and items per level into `totals` (depth words, then skipped fields).

    `{}` fits any depth. With `skip_wrong` an array of another depth becomes NULL. Returns -1 or the field that failed,
    with the code behind the counts.
    """
    at = 0
    while at < count:
        source = get(fields, at)
        size = get(sizes, at)
        error = 0
        if size >= 0:
            if size < 12:
                error = E_LENGTH
            else:
                levels = be32(source)
                if levels < 0 or levels > 6 or size < 12 + 8 * levels:
                    error = E_CORRUPT
                elif levels != 0 and levels != depth:
                    if skip_wrong:
                        put(sizes, at, -1)
                        put(totals, depth, get(totals, depth) + 1)
                    else:
                        error = E_SPECIAL
                else:
                    items = 1
                    level = 0
                    most = (size - 12 - 8 * levels) // 4
                    while level < levels:
                        extent = be32(source + 12 + 8 * level)
                        if extent < 1 or items > most // extent:
                            error = E_CORRUPT
                            break
                        items *= extent
                        put(totals, level, get(totals, level) + items)
                        level += 1
                    if error == 0 and levels > 0:
                        place = source + 12 + 8 * levels
                        end = source + size
                        while items > 0 and error == 0:
                            if end - place < 4:
                                error = E_TRUNCATED
                            else:
                                length = be32(place)
                                place += 4
                                if length < -1 or length > end - place:
                                    error = E_TRUNCATED
                                else:
                                    place += max(length, 0)
                            items -= 1
                        if error == 0 and place != end:
                            error = E_LENGTH
                    elif error == 0 and size != 12:
                        error = E_LENGTH
        if error != 0:
            put(totals, depth + 1, error)
            return at
        at += 1
    return -1


def array_fill(fields: int, sizes: int, count: int, depth: int, offsets: int, item_fields: int, item_sizes: int) -> int:
    """After `array_measure`: int32 offsets per level (addresses in `offsets`), addresses and sizes of the items."""
    level = 0
    while level < depth:
        parents = 0
        total = 0
        target = get(offsets, level)
        store32(target, 0)
        at = 0
        while at < count:
            source = get(fields, at)
            outer = 1
            step = 0
            if get(sizes, at) >= 0 and be32(source) > 0:
                inner = 0
                while inner < level:
                    outer *= be32(source + 12 + 8 * inner)
                    inner += 1
                step = be32(source + 12 + 8 * level)
            elif level > 0:
                outer = 0
            while outer > 0:
                total += step
                parents += 1
                store32(target + 4 * parents, total)
                outer -= 1
            at += 1
        level += 1
    item = 0
    at = 0
    while at < count:
        size = get(sizes, at)
        if size >= 0:
            source = get(fields, at)
            place = source + 12 + 8 * be32(source)
            end = source + size
            while place < end:
                length = be32(place)
                place += 4
                put(item_fields, item, place)
                put(item_sizes, item, length)
                place += max(length, 0)
                item += 1
        at += 1
    return item


def numeric_floats(fields: int, sizes: int, count: int, values: int, hard: int) -> int:
    """numeric_send to float64 where at most 15 digits and a power of ten up to 10^18 make the value.

    Such a value is one correctly rounded operation on exact floats, and 15 digits come back from it. The places of
    all others are listed in `hard`. Returns how many, or -1 minus the field that is corrupt.
    """
    many = 0
    at = 0
    while at < count:
        size = get(sizes, at)
        source = get(fields, at)
        put(values, at, 0)
        if size >= 0:
            if size < 8:
                return -1 - at
            items = be16(source)
            sign = be16(source + 4) & 0xFFFF
            if items < 0 or size != 8 + 2 * items:
                return -1 - at
            if sign != 0 and sign != 0x4000:
                if float_special(sign) == 0:
                    return -1 - at
                put(values, at, float_special(sign))
            else:
                exponent = 4 * (be16(source + 2) + 1 - items)
                place = source + 8
                end = source + size
                total = 0
                easy = True
                while place < end:
                    digit = be16(place)
                    if digit < 0 or digit > 9999:
                        return -1 - at
                    place += 2
                    factor = 10000
                    if place == end:
                        while factor > 1 and digit % 10 == 0:
                            digit //= 10
                            factor //= 10
                            exponent += 1
                    if total >= 100_000_000_000 and total > (999_999_999_999_999 - digit) // factor:
                        easy = False
                        total = 1
                    total = total * factor + digit
                if total != 0 or not easy:
                    if not easy or exponent < -18 or exponent > 18:
                        put(hard, many, at)
                        many += 1
                    else:
                        if sign == 0x4000:
                            total = -total
                        if exponent < 0:
                            put(values, at, ratio(total, power10(-exponent)))
                        else:
                            put(values, at, product(total, power10(exponent)))
        at += 1
    return many


def list_measure(fields: int, sizes: int, count: int, per: int) -> int:
    """Check counted lists of `per` fields an item (multirange_send: 1, hstore_send: 2).

    Returns the items of all, or -1 minus the field that is corrupt.
    """
    total = 0
    at = 0
    while at < count:
        size = get(sizes, at)
        if size >= 0:
            place = get(fields, at)
            end = place + size
            if size < 4:
                return -1 - at
            items = be32(place)
            place += 4
            if items < 0 or items > (end - place) // (4 * per):
                return -1 - at
            total += items
            items *= per
            while items > 0:
                if end - place < 4:
                    return -1 - at
                length = be32(place)
                place += 4
                if length < -1 or length > end - place:
                    return -1 - at
                place += max(length, 0)
                items -= 1
            if place != end:
                return -1 - at
        at += 1
    return total


def list_fill(
    fields: int, sizes: int, count: int, per: int, every: int, offsets: int, item_fields: int, item_sizes: int
) -> int:
    """After `list_measure`: int32 offsets, and per field of an item one run of addresses and sizes."""
    total = 0
    at = 0
    store32(offsets, 0)
    while at < count:
        if get(sizes, at) >= 0:
            place = get(fields, at)
            items = be32(place)
            place += 4
            while items > 0:
                part = 0
                while part < per:
                    length = be32(place)
                    place += 4
                    put(item_fields, part * every + total, place)
                    put(item_sizes, part * every + total, length)
                    place += max(length, 0)
                    part += 1
                total += 1
                items -= 1
        store32(offsets + 4 * at + 4, total)
        at += 1
    return total


def ranges(fields: int, sizes: int, count: int, marks: int, bound_fields: int, bound_sizes: int) -> int:
    """range_send: three bytes of marks a row (lower_inc, upper_inc, empty), then all lower and all upper bounds.

    Returns -1 or the field that is corrupt.
    """
    at = 0
    while at < count:
        put(bound_sizes, at, -1)
        put(bound_sizes, count + at, -1)
        store8(marks + at, 0)
        store8(marks + count + at, 0)
        store8(marks + 2 * count + at, 0)
        size = get(sizes, at)
        if size >= 0:
            place = get(fields, at)
            end = place + size
            if size < 1:
                return at
            flags = load8(place)
            place += 1
            store8(marks + at, (flags >> 1) & 1)
            store8(marks + count + at, (flags >> 2) & 1)
            store8(marks + 2 * count + at, flags & 1)
            side = 0
            while side < 2:
                # RANGE_EMPTY, or this side's RANGE_*B_INF or RANGE_*B_NULL: no bound is sent (rangetypes.c).
                absent = 0x01 | (0x28 if side == 0 else 0x50)
                if flags & absent == 0:
                    if end - place < 4:
                        return at
                    length = be32(place)
                    place += 4
                    if length < 0 or length > end - place:
                        return at
                    put(bound_fields, side * count + at, place)
                    put(bound_sizes, side * count + at, length)
                    place += length
                side += 1
            if place != end:
                return at
        at += 1
    return -1


def attributes(fields: int, sizes: int, count: int, width: int, item_fields: int, item_sizes: int) -> int:
    """record_send: one run of addresses and sizes per attribute. Returns -1 or the field that is corrupt."""
    at = 0
    while at < count:
        size = get(sizes, at)
        place = get(fields, at)
        end = place + size
        if size >= 0:
            if size < 4 or be32(place) != width:
                return at
            place += 4
        part = 0
        while part < width:
            length = -1
            if size >= 0:
                if end - place < 8:
                    return at
                length = be32(place + 4)
                place += 8
                if length < -1 or length > end - place:
                    return at
            put(item_fields, part * count + at, place)
            put(item_sizes, part * count + at, length)
            place += max(length, 0)
            part += 1
        if size >= 0 and place != end:
            return at
        at += 1
    return -1


def vectors(fields: int, sizes: int, count: int, width: int, fixed: int, offsets: int, values: int) -> int:
    """vector_send and halfvec_send: floats of `width` bytes. Returns -1 or the field that is corrupt.

    With `fixed` ≥ 0 every row has that many (zeros under NULL), else int32 offsets are written. With `values` 0 only
    the lengths are checked.
    """
    total = 0
    at = 0
    if fixed < 0 and values != 0:
        store32(offsets, 0)
    while at < count:
        size = get(sizes, at)
        items = 0
        source = get(fields, at)
        if size >= 0:
            if size < 4:
                return at
            items = be16(source) & 0xFFFF
            if size != 4 + width * items or (fixed >= 0 and items != fixed):
                return at
        elif fixed >= 0:
            items = fixed
        if values != 0:
            item = 0
            while item < items:
                if width == 4:
                    store32(values + 4 * total, be32(source + 4 + 4 * item) if size >= 0 else 0)
                else:
                    store16(values + 2 * total, be16(source + 4 + 2 * item) if size >= 0 else 0)
                total += 1
                item += 1
            if fixed < 0:
                store32(offsets + 4 * at + 4, total)
        at += 1
    return -1


def sparse_measure(fields: int, sizes: int, count: int, dims: int) -> int:
    """sparsevec_send: int32 dimensions per row into `dims`. Returns the items of all, or -1 minus the corrupt field."""
    total = 0
    at = 0
    while at < count:
        size = get(sizes, at)
        store32(dims + 4 * at, 0)
        if size >= 0:
            source = get(fields, at)
            if size < 12:
                return -1 - at
            items = be32(source + 4)
            if items < 0 or size != 12 + 8 * items:
                return -1 - at
            store32(dims + 4 * at, be32(source))
            total += items
        at += 1
    return total


def sparse_fill(fields: int, sizes: int, count: int, offsets: int, indices: int, values: int, first: int) -> int:
    """After `sparse_measure`: int32 offsets, int32 indices counted from `first`, float32 values."""
    total = 0
    at = 0
    store32(offsets, 0)
    while at < count:
        if get(sizes, at) >= 0:
            source = get(fields, at)
            items = be32(source + 4)
            item = 0
            while item < items:
                store32(indices + 4 * total, be32(source + 12 + 4 * item) + first)
                store32(values + 4 * total, be32(source + 12 + 4 * (items + item)))
                total += 1
                item += 1
        store32(offsets + 4 * at + 4, total)
        at += 1
    return total
