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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, ConfigError
from etl.tensors.hashing import first_words
from etl.tensors.views import Column, valid_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etl.core.schema import Schema

_WHOLE = 1 << 64


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
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]
    key: tuple[str, ...]
    salt: str = ""
    null_key: Literal["error", "own_group"] = "error"
    allow_float: bool = False

    def as_json(self) -> dict[str, object]:
        """The `split` field of a manifest."""
        lows = (0, *self.bounds[:-1])
        return {
            "method": "hash",
            "key": list(self.key),
            "encoding": "v1",
            "hash": "sha256/64",
            "salt": self.salt,
            "ranges": {n: [str(a), str(b)] for n, a, b in zip(self.names, lows, self.bounds, strict=True)},
            "null_key": self.null_key,
            "keys_in_two_splits": 0,
        }

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
            uint8 [rows], indexes into `names`.

        Raises:
            CastError: A key is NULL and `null_key` is "error".
        """
        rows = batch.num_rows
        if not rows:
            return np.zeros(0, dtype=np.uint8)
        columns = [batch.column(batch.schema.get_field_index(n)) for n in self.key]
        codes: list[NDArray[np.int64]] = []
        texts: list[list[bytes]] = []
        for name, column in zip(self.key, columns, strict=True):
            code, text = self._parts(name, column, place)
            codes.append(code)
            texts.append(text)
        salt = f"{self.salt}|".encode()
        if len(self.key) == 1:
            unique_words = first_words(salt + t for t in texts[0])
            return self._locate(unique_words)[codes[0]]
        combined = codes[0]
        first = np.zeros(0, np.int64)
        for code, text in zip(codes[1:], texts[1:], strict=True):
            # Renumbered at each step, so that the product of cardinalities stays within rows * keys.
            _, first, combined = np.unique(combined * len(text) + code, return_index=True, return_inverse=True)
        messages = (salt + b"".join(t[c[row]] for c, t in zip(codes, texts, strict=True)) for row in first.tolist())
        return self._locate(first_words(messages))[combined]

    def _locate(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        inner = np.array(self.bounds[:-1], dtype=np.uint64)
        return np.searchsorted(inner, words, side="right").astype(np.uint8)

    def _parts(self, name: str, column: Column, place: str) -> tuple[NDArray[np.int64], list[bytes]]:
        """Code per row and, per code, the part's `length:bytes`."""
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        if column.null_count and self.null_key == "error":
            raise CastError(
                f"the split key {name} is NULL in {column.null_count} of {len(column)} rows looked at in {place}",
                hint="Leave such rows out in the query, or split by another column.",
                column=name,
            )
        encoded = column.dictionary_encode()
        indices = np.where(valid_of(encoded.indices), values_of(encoded.indices, np.int32), -1).astype(np.int64)
        texts = key_texts(encoded.dictionary)
        if column.null_count:
            indices = np.where(indices < 0, len(texts), indices)
        parts = [b"%d:%s" % (len(t), t) for t in texts]
        return indices, [*parts, b"-1:"] if column.null_count else parts


def recipe(
    split: Mapping[str, str],
    key: Sequence[str],
    salt: str,
    null_key: Literal["error", "own_group"],
    /,
    *,
    allow_float: bool,
) -> SplitRecipe:
    """The recipe of the user's fractions."""
    return SplitRecipe(tuple(split), cumulative_bounds(tuple(split.values())), tuple(key), salt, null_key, allow_float)


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


def key_texts(values: Column, /) -> list[bytes]:
    """The key text of each value (no NULLs), by the recipe's table.

    Integers in decimal, bool as true/false, decimals without trailing zeros, text in NFC, bytes in lower hex (16 of
    them as a uuid), dates as `2026-01-02`, timestamps as `2026-01-02T03:04:05.000006Z`, floats by shortest text.
    """
    kind, types = values.type, pa.types
    if types.is_integer(kind):
        return [
            b"%d" % v
            for v in values_of(
                values, f"{'u' if types.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}"
            ).tolist()
        ]
    if types.is_boolean(kind):
        return [b"true" if v else b"false" for v in values.to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind):
        return [(v if v.isascii() else unicodedata.normalize("NFC", v)).encode() for v in values.to_pylist()]
    if types.is_decimal(kind):
        return [_decimal_text(v) for v in values.to_pylist()]
    if types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return [_uuid_text(v.hex()) for v in values.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [v.hex().encode() for v in values.to_pylist()]
    if types.is_date32(kind):
        return [_date_text(v) for v in values_of(values, np.int32).tolist()]
    if types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", tz=kind.tz))
        return [_timestamp_text(v) for v in values_of(micros, np.int64).tolist()]
    if types.is_floating(kind):
        return [repr(float(v) + 0.0).encode() for v in values_of(values, f"f{kind.bit_width // 8}").tolist()]
    raise TypeError(str(kind))


def _decimal_text(value: Decimal) -> bytes:
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text in {"-0", ""} else text.encode()


def _uuid_text(digits: str) -> bytes:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()


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
