"""The split recipe, encoding v1: which split a row belongs to follows from its key and the salt alone.

message = salt + `|` + for each key part: byte length, `:`, bytes; u = first 8 bytes of SHA-256(message), big endian.
A row is in split i when bound(i-1) <= u < bound(i). The same bits come out of SQL:
`sha256(convert_to(salt || '|' || octet_length(k::text) || ':' || k::text, 'UTF8'))`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.buffers import variable
from etl.core.errors import CastError, ConfigError
from etl.tensors.hashing import words_of
from etl.tensors.moments import TimeCut, TimeSplit, time_cut, time_split
from etl.tensors.views import Column, bits_of, buffer_of, column_of, mask_of, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema
    from etl.tensors.options import WriteOptions

_WHOLE = 1 << 64
_LOOK = 1024
_SLICE = 1 << 17
LEFT_OUT = 255
"""In place of a split's index: the row is in none."""


def cumulative_bounds(fractions: Sequence[str], /) -> tuple[int, ...]:
    """Upper bounds floor(cumulative fraction * 2^64), one per fraction; the last is 2^64.

    Raises:
        ConfigError: A fraction is no positive decimal, or they do not sum to 1 exactly.
    """
    total = Fraction(0)
    bounds: list[int] = []
    for text in fractions:
        try:
            value = Fraction(Decimal(text))
        except (InvalidOperation, ValueError, OverflowError):
            raise ConfigError(f"{text!r} is not a fraction", hint="Write it as a decimal, such as 0.8.") from None
        if value <= 0:
            raise ConfigError(f"the fraction {text} is not above 0")
        total += value
        bounds.append(int(total * _WHOLE))
    if total != 1:
        raise ConfigError(
            f"the fractions {', '.join(fractions)} sum to {float(total):g}, not 1", hint="Give fractions that sum to 1."
        )
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class SplitRecipe:
    """Everything that decides the split of a row; equal recipes give equal splits on every machine.

    Attributes:
        names: Split names in order.
        bounds: Upper bounds, see `cumulative_bounds`.
        key: The key columns.
        salt: Free text before the key.
        null_key: "error", or "own_group": NULL is the part `-1:`.
        allow_float: Whether float keys are let in (-0.0 as 0.0, shortest round-trip text).
        cut: Late rows of one split are left out.
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]
    key: tuple[str, ...]
    salt: str = ""
    null_key: Literal["error", "own_group"] = "error"
    allow_float: bool = False
    cut: TimeCut | None = None

    def as_json(self) -> dict[str, object]:
        """The `split` field of a manifest."""
        lows = (0, *self.bounds[:-1])
        found: dict[str, object] = {
            "method": "hash",
            "key": list(self.key),
            "encoding": "v1",
            "hash": "sha256/64",
            "salt": self.salt,
            "ranges": {n: [str(a), str(b)] for n, a, b in zip(self.names, lows, self.bounds, strict=True)},
            "null_key": self.null_key,
            "keys_in_two_splits": 0,
        }
        return found if self.cut is None else found | {"time_cut": self.cut.as_json()}

    def check(self, schema: Schema, /) -> None:
        """Hold that the key columns can be keys.

        Raises:
            SchemaError: A key column is missing.
            ConfigError: A key column is a float, a list or another type without a key text.
        """
        schema.require(*self.key)
        for name in self.key:
            kind = schema.field(name).type
            if pa.types.is_floating(kind) and not self.allow_float:
                raise ConfigError(
                    f"column {name} is {kind}: a float cannot be a split key, since equal-looking keys differ in bits",
                    hint="Split by an integer, text, decimal or date column.",
                    column=name,
                )
            if not _has_text(kind):
                raise ConfigError(f"column {name} is {kind}, which cannot be a split key", column=name)

    def assign(self, batch: pa.RecordBatch, place: str, /) -> NDArray[np.uint8]:
        """The split index of every row of a batch, which is part of `place`.

        Returns:
            uint8 [rows], indexes into `names`, or `LEFT_OUT`.

        Raises:
            CastError: A key is NULL and `null_key` is "error", or the time of a row that may be left out is NULL.
        """
        # In slices, so that the texts of a large batch are not in memory all at once.
        found = [self._assign(batch.slice(i, _SLICE), place) for i in range(0, batch.num_rows, _SLICE)]
        return np.concatenate(found) if found else np.zeros(0, np.uint8)

    def _assign(self, batch: pa.RecordBatch, place: str) -> NDArray[np.uint8]:
        columns = [batch.column(batch.schema.get_field_index(n)) for n in self.key]
        for name, column in zip(self.key, columns, strict=True):
            if column.null_count and self.null_key == "error":
                raise CastError(
                    f"the split key {name} is NULL in {column.null_count} of {len(column)} rows looked at in {place}",
                    hint="Leave such rows out in the query, or split by another column.",
                    column=name,
                )
        messages, codes = key_messages(columns, f"{self.salt}|".encode(), self.key, place)
        found = self._locate(words_of(messages))[codes]
        if self.cut is not None:
            found[self.cut.late(batch, found == self.names.index(self.cut.split), place)] = LEFT_OUT
        return found

    def _locate(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        inner = np.array(self.bounds[:-1], dtype=np.uint64)
        return np.searchsorted(inner, words, side="right").astype(np.uint8)


Splitting: TypeAlias = SplitRecipe | TimeSplit
"""How rows are split: by the hash of a key or by time."""


def recipe(
    split: Mapping[str, str],
    key: Sequence[str],
    salt: str,
    null_key: Literal["error", "own_group"],
    /,
    *,
    allow_float: bool,
    cut: TimeCut | None = None,
) -> SplitRecipe:
    """The recipe of the user's fractions."""
    bounds = cumulative_bounds(tuple(split.values()))
    return SplitRecipe(tuple(split), bounds, tuple(key), salt, null_key, allow_float, cut)


def splitting(options: WriteOptions, schema: Schema, /) -> Splitting:
    """The split that the options ask for, by the hash of a key or by time.

    Raises:
        ConfigError: A column cannot be a key or a time, or a moment is none of it.
        SchemaError: A key column is missing.
    """
    if options.split_time is not None:
        schema.require(options.split_time)
        if not options.split_key:
            return time_split(options.split, options.split_time, schema)
    cut = None
    if options.split_time is not None and options.time_cut is not None:
        cut = time_cut(options.time_cut, options.split_time, "train", schema)
    found = recipe(
        options.split,
        options.split_key,
        options.split_salt,
        options.null_key,
        allow_float=options.allow_float,
        cut=cut,
    )
    found.check(schema)
    return found


def _has_text(kind: Any) -> bool:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    return (
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_floating(kind)
    )


def key_messages(
    columns: Sequence[Column], prefix: bytes, names: Sequence[str], place: str, /
) -> tuple[Column, NDArray[np.int64]]:
    """The distinct messages of rows with these key columns: prefix, then `length:bytes` of each; NULL is `-1:`.

    Args:
        columns: Equally long, of types that have a key text.
        prefix: Before every message.
        names: Of the columns, for messages.
        place: What the rows are of, for messages.

    Returns:
        large_binary [distinct keys] and the place of every row's message in it, int64 [rows].

    Raises:
        CastError: An instant is finer than the key text holds.
    """
    codes: list[NDArray[np.int64]] = []
    texts: list[Column] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        code, values = _distinct(column)
        try:
            text = key_column(values)
        except pa.ArrowInvalid as error:
            raise CastError(
                f"the key {name} holds an instant in {place} that microseconds since 1970 do not hold: {error}",
                hint="Round it in the query, or take another column.",
                column=name,
            ) from None
        codes.append(code)
        texts.append(_parts(text, b"" if number else prefix, null=bool(column.null_count)))
    if len(texts) == 1:
        return texts[0], codes[0]
    combined, first = codes[0], np.arange(len(codes[0]))
    for code, text in zip(codes[1:], texts[1:], strict=True):
        # Renumbered at each step, so that the product of cardinalities stays within rows * keys.
        _, first, combined = np.unique(combined * len(text) + code, return_index=True, return_inverse=True)
    taken: list[Any] = []
    for code, text in zip(codes, texts, strict=True):
        places = column_of(pa.int64(), code[first])
        taken.append(text.take(places))
    return pc.binary_join_element_wise(*taken, _scalar(b"")), combined


def _distinct(column: Column) -> tuple[NDArray[np.int64], Column]:
    """Code per row, and the distinct values; NULL is one more code.

    Where a look at some rows finds hardly one twice, every row is its own: a digest costs less than a place in a large
    table of values.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if not column.null_count and len(column) >= 2 * _LOOK:
        some = column.take(column_of(pa.int64(), np.arange(_LOOK) * (len(column) // _LOOK)))
        if len(some.unique()) > 0.9 * _LOOK:
            return np.arange(len(column)), column
    encoded = column.dictionary_encode()
    codes = values_of(encoded.indices, np.int32).astype(np.int64)
    if column.null_count:
        codes = np.where(valid_of(encoded.indices), codes, len(encoded.dictionary))
    return codes, encoded.dictionary


def _scalar(value: bytes) -> Any:
    return _texts_of([value])[0]


def _parts(texts: Column, prefix: bytes, *, null: bool) -> Column:
    """Prefix, length, `:` and text of each; with `null` one more part at the end."""
    lengths = np.diff(_pieces(texts)[0])
    found, places = np.arange(_LOOK), lengths
    if len(lengths) and lengths.max() >= _LOOK:
        found, places = np.unique(lengths, return_inverse=True)
    heads = _texts_of([b"%s%d:" % (prefix, n) for n in found.tolist()])
    at = column_of(pa.int64(), places.astype(np.int64, copy=False))
    parts: Column = pc.binary_join_element_wise(heads.take(at), texts, _scalar(b""))
    return pa.concat_arrays([parts, _texts_of([prefix + b"-1:"])]) if null else parts


def key_column(values: Column, /) -> Column:
    """The key text of each value (no NULLs), by the recipe's table.

    Integers in decimal, bool as true/false, decimals without trailing zeros, text in NFC, bytes in lower hex (16 of
    them as a uuid), dates as `2026-01-02`, timestamps as `2026-01-02T03:04:05.000006Z`, floats by shortest text.

    Returns:
        large_binary [rows].

    Raises:
        pa.ArrowInvalid: An instant that int64 microseconds do not hold.
    """
    kind, types = values.type, pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return _as_bytes(pc.cast(values, pa.string()))
    if types.is_string(kind) or types.is_large_string(kind):
        return _composed(values)
    if types.is_decimal(kind):
        return _decimal_texts(values)
    if types.is_fixed_size_binary(kind):
        return _hex_of_fixed(values, kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _hex_of(_as_bytes(values))
    if types.is_date(kind):
        days = values.cast(pa.date32())
        return _by_calendar(pc.cast(days, pa.string()), values_of(days, np.int32), _date_text)
    if types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
        texts = pc.cast(micros.view(pa.timestamp("us")), pa.string())
        return _by_calendar(_in_iso(texts), values_of(micros, np.int64), _timestamp_text)
    if types.is_floating(kind):
        texts = [repr(float(v) + 0.0).encode() for v in values_of(values, f"f{kind.bit_width // 8}").tolist()]
        return _texts_of(texts)
    raise TypeError(str(kind))


def key_text(value: Any, kind: Any, /) -> bytes:
    """The same of one value: a few rows take microseconds so, where whole columns take a millisecond.

    Args:
        value: No NULL; of a date its days, of a timestamp its microseconds, of a decimal a `Decimal`.
        kind: The type of its column: no bytes.
    """
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value).encode()
    if pa.types.is_boolean(kind):
        return b"true" if value else b"false"
    if pa.types.is_date(kind):
        return _date_text(value)
    if pa.types.is_timestamp(kind):
        return _timestamp_text(value)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    return b"%d" % value if isinstance(value, int) else repr(value + 0.0).encode()


def _texts_of(texts: Sequence[bytes]) -> Column:
    return _as_bytes(variable(texts, pa.binary()))


def _as_bytes(texts: Column) -> Column:
    return pc.cast(texts, pa.large_binary())


def _containing(texts: Column, part: str) -> NDArray[np.int64]:
    """The rows whose text has that part."""
    found: Column = pc.match_substring(texts, part)
    return np.flatnonzero(bits_of(found.buffers()[1], found.offset, len(found)))


def _replaced(texts: Column, rows: NDArray[np.int64], new: Sequence[bytes]) -> Column:
    """The texts with those of some rows exchanged."""
    if not len(rows):
        return texts
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, mask_of(mask), _texts_of(new))


def _composed(values: Column) -> Column:
    """Text in NFC. Only values with a character from U+0300 on, whose first byte is 0xCC or more, can change."""
    texts = _as_bytes(values)
    offsets, data = _pieces(texts)
    if not (data >= 0xCC).any():
        return texts
    high = np.concatenate([[0], np.cumsum(data >= 0xCC)])
    rows = np.flatnonzero(high[offsets[1:]] > high[offsets[:-1]])
    return _replaced(texts, rows, [unicodedata.normalize("NFC", values[i].as_py()).encode() for i in rows.tolist()])


def _decimal_texts(values: Column) -> Column:
    texts = pc.cast(values, pa.string())
    # Arrow writes numbers far below 1 and those of a negative scale with an exponent.
    odd = _containing(texts, "E")
    if values.type.scale > 0:
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return _replaced(_as_bytes(texts), odd, [_decimal_text(values[i].as_py()) for i in odd.tolist()])


def _pieces(texts: Column) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets from 0, int64 [rows + 1], and the bytes of a large_binary column."""
    held: Any = texts.buffers()
    if held[1] is None:
        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(held[1], np.int64, len(texts) + 1, texts.offset * 8)
    data = np.zeros(0, np.uint8) if held[2] is None else np.frombuffer(held[2], np.uint8)
    return offsets - offsets[0], data[int(offsets[0]) : int(offsets[-1])]


_DIGITS = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint16)
"""Two hex digits for every byte."""


def _hex_of(values: Column) -> Column:
    offsets, data = _pieces(values)
    return _made(offsets * 2, _DIGITS[data])


def _hex_of_fixed(values: Column, width: int) -> Column:
    rows = len(values)
    digits = _DIGITS[values_of(values, f"V{width}").view(np.uint8).reshape(rows, width)].view(np.uint8)
    if width == 16:
        hyphen = np.full((rows, 1), ord("-"), np.uint8)
        ends = (8, 12, 16, 20)
        groups = np.split(digits, ends, axis=1)
        digits = np.concatenate([p for g in groups for p in (g, hyphen)][:-1], axis=1)
    return _made(np.arange(rows + 1, dtype=np.int64) * digits.shape[1], digits)


def _made(offsets: NDArray[np.int64], data: NDArray[Any]) -> Column:
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, buffer_of(offsets), buffer_of(data)])


def _by_calendar(texts: Column, numbers: NDArray[Any], one: Callable[[int], bytes]) -> Column:
    """Arrow's texts of dates or instants; those beyond its years, `<value out of range: …>`, by our own calendar."""
    beyond = _containing(texts, "<")
    return _replaced(_as_bytes(texts), beyond, [one(v) for v in numbers[beyond].tolist()])


def _in_iso(texts: Column) -> Column:
    """`2026-01-02 03:04:05.000006` with a T between and a Z behind."""
    texts = _as_bytes(texts)
    offsets, data = _pieces(texts)
    if len(data) == 26 * len(texts) and (np.diff(offsets) == 26).all():
        wide = np.empty((len(texts), 27), np.uint8)
        wide[:, :26] = data.reshape(-1, 26)
        wide[:, 10], wide[:, 26] = ord("T"), ord("Z")
        return _made(np.arange(len(texts) + 1, dtype=np.int64) * 27, wide)
    texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, _scalar(b"Z"), _scalar(b""))


def _decimal_text(value: Decimal) -> bytes:
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text in {"-0", ""} else text.encode()


def _date_text(days: int) -> bytes:
    year, month, day = _civil(days)
    return b"%s-%02d-%02d" % (_year_text(year), month, day)


def _timestamp_text(micros: int) -> bytes:
    days, rest = divmod(micros, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    return b"%sT%02d:%02d:%02d.%06dZ" % (_date_text(days), hours, seconds // 60, seconds % 60, fraction)


def _year_text(year: int) -> bytes:
    return b"%04d" % year if year >= 0 else b"-%04d" % -year


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month, day of days since 1970-01-01, for any year: dates reach beyond what `datetime` holds."""
    days += 719468
    era, doe = divmod(days, 146097)
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1
