"""One field of a binary COPY stream: its row in the column table, its Arrow array, and what can be wrong with it."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from connectors.postgresql import layout
from connectors.postgresql.columns import Kind
from etl.core.buffers import buffer
from etl.core.errors import CastError, DataError, DecimalTooNarrow, EtlError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from connectors.base import Tally
    from connectors.postgresql.columns import ColumnPlan

Words: TypeAlias = "npt.NDArray[np.int64]"

SHOWN = 80
"""Characters of a value in a message."""
ITEM = "item"
"""Where an error on its way out of a nested column keeps the index of its field."""

# Kind → operation of the loop, bytes per value (0: bits, -1: offsets and text), bytes on the wire (0: any).
FLAT: dict[Kind, tuple[int, int, int]] = {
    Kind.BOOL: (layout.OP_BOOL, 0, 1),
    Kind.INT2: (layout.OP_FIX2, 2, 2),
    Kind.INT4: (layout.OP_FIX4, 4, 4),
    Kind.INT8: (layout.OP_FIX8, 8, 8),
    Kind.UINT4: (layout.OP_FIX4, 4, 4),
    Kind.UINT8: (layout.OP_FIX8, 8, 8),
    Kind.FLOAT4: (layout.OP_FIX4, 4, 4),
    Kind.FLOAT8: (layout.OP_FIX8, 8, 8),
    Kind.NUMERIC: (layout.OP_NUM128, 16, 0),
    Kind.NUMERIC_FLOAT: (layout.OP_NUM64, 8, 0),
    Kind.MONEY: (layout.OP_MONEY, 16, 8),
    Kind.TEXT: (layout.OP_TEXT, -1, 0),
    Kind.BYTEA: (layout.OP_TEXT, -1, 0),
    Kind.HEX: (layout.OP_HEX, -1, 0),
    Kind.UUID: (layout.OP_UUID, 16, 16),
    Kind.UUID_TEXT: (layout.OP_UUID_TEXT, -1, 16),
    Kind.DATE: (layout.OP_DATE, 4, 4),
    Kind.TIME: (layout.OP_TIME, 8, 8),
    Kind.TIMESTAMP: (layout.OP_TIMESTAMP, 8, 8),
    Kind.TIMESTAMPTZ: (layout.OP_TIMESTAMP, 8, 8),
    Kind.INTERVAL: (layout.OP_INTERVAL, 16, 16),
    Kind.JSONB: (layout.OP_JSONB, -1, 0),
    Kind.ENUM: (layout.OP_ENUM, 4, 0),
}
CHECKED = (Kind.TEXT, Kind.JSONB)
"""Kinds whose text is checked where the database does not."""
_MAX_DEPTH = 6
"""Dimensions that an array can have (array.h, MAXDIM)."""
_NEGATIVE = 0x4000
"""numeric.c, NUMERIC_NEG."""
FLOAT_DIGITS = 15
"""Decimal digits that every float64 gives back (DBL_DIG)."""
POLICIES = {"error": 0, "null": 1, "clamp": 2}


@dataclass(frozen=True, slots=True)
class Column:
    """A plan and its row of the column table; `keep` holds what the row points to."""

    plan: ColumnPlan
    row: Words
    width: int
    spread: int
    flat: bool
    keep: tuple[object, ...]
    dictionary: pa.Array[Any] | None = None


def bind(plan: ColumnPlan, /, *, validate_utf8: bool = False) -> Column:
    """The table row of a column.

    Raises:
        SchemaError: The Arrow type is not one that the wire form becomes.
    """
    row = np.zeros(layout.STRIDE, np.int64)
    keep: tuple[object, ...] = ()
    dictionary = None
    flags = layout.F_NULLABLE if plan.nullable else 0
    flags |= POLICIES[plan.special] << layout.SPECIAL_SHIFT
    flags |= 0 if plan.cast == "exact" else layout.F_ROUND
    flags |= layout.F_OPEN if plan.open else 0
    flat = plan.kind in FLAT and not (plan.kind is Kind.NUMERIC_FLOAT and plan.precision > FLOAT_DIGITS)
    operation, width, wire = FLAT[plan.kind] if flat else (layout.OP_TEXT, -1, 0)
    kind = plan.type
    if plan.kind is Kind.NUMERIC:
        operation, width, keep = _decimal(plan, row)
    elif plan.kind is Kind.NUMERIC_FLOAT and flat:
        keep = _limits(row, plan.precision, plan.scale)
        row[layout.C_AUXN] = 10**plan.scale
    elif plan.kind is Kind.ENUM:
        if pa.types.is_dictionary(kind):
            dictionary, keep = _labels(plan, row)
            kind = pa.int32()
        else:
            operation, width = layout.OP_TEXT, -1
    elif plan.kind is Kind.UUID and isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if validate_utf8 and plan.kind in CHECKED:
        flags |= layout.F_UTF8
        operation = layout.OP_CHECKED if operation == layout.OP_TEXT else operation
    if flat:
        _check_type(plan, kind, width)
    spread = 1
    if operation in (layout.OP_HEX, layout.OP_UUID_TEXT):
        spread = 2
    elif flags & layout.F_UTF8 and plan.special == "clamp":
        spread = 3
    row[layout.C_OP] = operation
    row[layout.C_FLAGS] = flags
    row[layout.C_WIDTH] = width
    row[layout.C_WIRE] = wire
    return Column(plan, row, width, spread, flat, keep, dictionary)


def _check_type(plan: ColumnPlan, kind: pa.DataType, width: int) -> None:
    if width < 0:
        right = pa.types.is_string(kind) or pa.types.is_binary(kind)
    elif width == 0:
        right = pa.types.is_boolean(kind)
    else:
        right = (pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind)) and kind.bit_width == 8 * width
        right = right or (pa.types.is_decimal(kind) and kind.bit_width == 8 * width)
        right = right or (kind == pa.month_day_nano_interval() and width == 16)
    if not right:
        raise SchemaError(
            f"column {plan.name}: {plan.kind.name.lower()} cannot be read as {plan.type}", column=plan.name
        )


def _decimal(plan: ColumnPlan, row: Words) -> tuple[int, int, tuple[object, ...]]:
    kind = plan.type
    if not isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        raise SchemaError(f"column {plan.name}: numeric cannot be read as {kind}", column=plan.name)
    width = kind.bit_width // 8
    keep = _limits(row, kind.precision, kind.scale)
    if width == 16 and kind.precision <= 18:
        return layout.OP_NUM64, 16, keep
    return (layout.OP_NUM128 if width == 16 else layout.OP_NUM256), width, keep


def _limits(row: Words, precision: int, scale: int) -> tuple[object, ...]:
    bound = 10**precision
    words = b"".join(n.to_bytes(32, "little") for n in (bound, bound - 1))
    limits = np.frombuffer(words, np.int64)
    row[layout.C_SCALE] = scale
    row[layout.C_LIMIT] = bound if precision <= 18 else 0
    row[layout.C_AUX] = limits.ctypes.data
    return (limits,)


def strings(values: Sequence[bytes], /, kind: pa.DataType) -> pa.Array[Any]:
    """A string or binary array of these values, without pandas (which `pa.array` of a list imports)."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(v) for v in values], out=offsets[1:])
    buffers = [None, buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _labels(plan: ColumnPlan, row: Words) -> tuple[pa.Array[Any], tuple[object, ...]]:
    """The vocabulary as dictionary, and an open-addressing table over FNV-1a: address, size, hash, code per slot."""
    labels = [label.encode() for label in plan.vocabulary]
    slots = 1 << max(3, (4 * len(labels)).bit_length())
    table = np.zeros((slots, 4), np.int64)
    texts = [ctypes.create_string_buffer(label) for label in labels]
    for code, (label, text) in enumerate(zip(labels, texts, strict=True)):
        key = 0xCBF29CE484222325
        for byte in label:
            key = ((key ^ byte) * 1099511628211) & (2**64 - 1)
        signed = key - 2**64 if key >= 2**63 else key
        slot = (signed ^ (signed >> 32)) & (slots - 1)
        while table[slot, 0]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = (ctypes.addressof(text), len(label), signed, code)
    row[layout.C_AUX] = table.ctypes.data
    row[layout.C_AUXN] = slots
    return strings(labels, pa.string()), (table, texts)


def count(tally: Tally, name: str, row: Words) -> None:
    """Add a column's counts to the tally and clear them."""
    for reason, text in enumerate(layout.REASONS):
        number = int(row[layout.C_COUNTS + reason])
        if number:
            tally.add_special(name, text, number)
    if row[layout.C_ROUNDED]:
        tally.rounded[name] = tally.rounded.get(name, 0) + int(row[layout.C_ROUNDED])
    row[layout.C_COUNTS : layout.C_COUNTS + len(layout.REASONS)] = 0
    row[layout.C_ROUNDED] = 0


def assemble(column: Column, rows: int, buffers: list[pa.Buffer | None], nulls: int) -> pa.Array[Any]:
    """The Arrow array over a flat column's buffers."""
    kind = column.plan.type
    if column.dictionary is not None:
        codes = pa.Array.from_buffers(pa.int32(), rows, buffers, nulls)
        return cast("pa.Array[Any]", pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False))
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.Array.from_buffers(kind.storage_type, rows, buffers, nulls)
        return cast("pa.Array[Any]", pa.ExtensionArray.from_storage(kind, storage))
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def of_field(index: int, error: EtlError) -> EtlError:
    """The error as one of the field `index` of a nested column; a column inside says which of its own fields."""
    error.context[ITEM] = index
    return error


def field_error(plan: ColumnPlan, code: int, reason: int, value: bytes, size: int) -> EtlError:
    """What is wrong with a field and what lets it pass."""
    shown = spell(plan, value)
    if code == layout.E_NULL:
        return SchemaError("NULL where the schema says NOT NULL", hint="The table changed, or declare it nullable.")
    if code == layout.E_SPECIAL:
        word = layout.REASONS[reason]
        hint = "Pass --special null to read it as NULL"
        if reason == layout.R_DEPTH:
            deep = min(size, _MAX_DEPTH)
            levels = "list(" * deep + _item(plan) + ")" * deep
            hint = (
                f"Pass --types '{plan.name}={levels}' where all arrays have that depth, or cast it in the SQL. {hint}."
            )
            return CastError(f"an array of depth {size}, {plan.depth} was declared", hint=hint, reason=word)
        if reason == layout.R_NAN:
            hint += "."
        else:
            hint += ", or --special clamp for the nearest value that fits."
        return CastError(f"{shown} does not fit {plan.type} ({word})", hint=hint, reason=word, value=shown)
    if code == layout.E_NARROW:
        return DecimalTooNarrow(f"{shown} does not fit {plan.type}", hint="Give a type with --types.", value=shown)
    if code == layout.E_FRACTION:
        return CastError(
            f"{shown} has more fraction digits than {plan.type}",
            hint="Pass --cast round to round half away from zero, or give a wider type with --types.",
            value=shown,
        )
    if code == layout.E_LABEL:
        return DataError(f"{shown} is no label of the enum", hint="The type changed while it was read; run again.")
    if code == layout.E_LENGTH:
        return DataError(f"a field of {size} bytes cannot be {plan.kind.name.lower()}: {value[:20].hex()}")
    return DataError(f"the bytes cannot be {plan.kind.name.lower()}: {value[:40].hex()}")


def _item(plan: ColumnPlan) -> str:
    """The type of an array's items in the words of `--types`."""
    kind = plan.children[0].type
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return str(kind)


def spell(plan: ColumnPlan, value: bytes) -> str:
    """A wire value as text for messages, at most 80 characters."""
    match plan.kind:
        case Kind.NUMERIC | Kind.NUMERIC_FLOAT if len(value) >= 8:
            text = _spell_numeric(value)
        case Kind.DATE if len(value) == 4:
            days = int.from_bytes(value, "big", signed=True)
            ends = {2**31 - 1: "infinity", -(2**31): "-infinity"}
            text = ends.get(days) or _spell_day(days)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ if len(value) == 8:
            moment = int.from_bytes(value, "big", signed=True)
            ends = {2**63 - 1: "infinity", -(2**63): "-infinity"}
            text = ends.get(moment) or f"{_spell_day(moment // layout.DAY_US)} {_spell_time(moment % layout.DAY_US)}"
        case Kind.TIME if len(value) == 8:
            text = _spell_time(int.from_bytes(value, "big", signed=True))
        case Kind.INTERVAL if len(value) == 16:
            time, days, months = struct.unpack(">qii", value)
            text = f"{months} months {days} days {time} microseconds"
        case Kind.TEXT | Kind.JSONB | Kind.ENUM:
            try:
                text = value[: 4 * SHOWN].decode()
            except UnicodeDecodeError:
                text = repr(value[:SHOWN])
        case _:
            text = value[:SHOWN].hex()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def float_of_numeric(value: bytes, /) -> tuple[float, bool]:
    """The float64 nearest to a finite numeric_send value, and whether it stands for it.

    It does where the value has at most 15 digits, or where the float rounded back at the value's own scale is the
    value. Beyond the largest float64 it is infinite and does not.
    """
    count, weight, sign, scale = struct.unpack_from(">hhHh", value)
    digits = "".join(f"{w:04d}" for w in struct.unpack_from(f">{count}h", value, 8))
    exponent = 4 * (weight + 1 - count)
    text = f"{'-' if sign == _NEGATIVE else ''}{digits}e{exponent}"
    near = float(text)
    if not math.isfinite(near):
        return near, False
    if len(digits.strip("0")) <= FLOAT_DIGITS and abs(near) >= sys.float_info.min:
        return near, True
    exact = Decimal(text)
    context = Context(prec=len(digits) + abs(exponent) + abs(scale) + 400, Emax=MAX_EMAX, Emin=MIN_EMIN)
    back = Decimal(near).quantize(Decimal((0, (1,), -scale)), rounding=ROUND_HALF_UP, context=context)
    return near, back == exact


def inexact(plan: ColumnPlan, value: bytes, *, beyond: bool) -> EtlError:
    """A numeric that no float64 stands for, and what lets it pass."""
    shown = spell(plan, value)
    if beyond:
        why, hint = "is beyond the largest float64", "Pass --cast saturate to take that, or leave the column out."
    else:
        why, hint = "is not exact in float64", "Pass --cast round to take the nearest float64, or leave the column out."
    return CastError(f"{shown} {why} (--cast {plan.cast})", hint=hint, value=shown)


def _spell_numeric(value: bytes) -> str:
    words = [int.from_bytes(value[i : i + 2], "big") for i in range(0, len(value) - 1, 2)]
    special = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}.get(words[2])
    if special:
        return special
    weight = words[1] - 0x10000 if words[1] >= 0x8000 else words[1]
    digits = "".join(f"{w:04d}" for w in words[4:44])
    point = 4 * (weight + 1)
    if weight > 20 or len(words) > 44:
        text = f"{digits.lstrip('0')[:40] or '0'}… ({point} digits before the point)"
    else:
        digits = digits.rjust(len(digits) - point, "0") if point < 0 else digits.ljust(point, "0")
        whole, fraction = digits[: max(point, 0)].lstrip("0"), digits[max(point, 0) :]
        fraction = fraction[: words[3]].ljust(words[3], "0")
        text = (whole or "0") + (f".{fraction}" if fraction else "")
    return ("-" if words[2] == 0x4000 else "") + text


def _spell_day(days: int) -> str:
    """Days since 2000-01-01 as the server writes them (proleptic Gregorian; year 0 is 1 BC)."""
    z = days + 10957 + 719468
    era, day_of_era = divmod(z, 146097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += era * 400 + (month <= 2)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} BC"


def _spell_time(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:06d}" if rest else text
