"""Keys as numbers without a vocabulary: SHA-256 of the key text that splits use, so the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema
from etl.tensors.hashing import first_words, words_of
from etl.tensors.split import key_messages, key_text
from etl.transforms.base import InPlace, listed
from etl.transforms.counts import as_keys, key_type
from etl.transforms.host import Values
from etl.transforms.lookups import FEW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

MOST = 1 << 24
"""More buckets than float32 tells apart are refused."""


@dataclass(frozen=True, slots=True)
class HashBucket(InPlace):
    """Values of each column become the number of a bucket, 1 to `buckets`; NULL becomes 0. Nothing is fitted.

    Attributes:
        columns: Text, labels, whole numbers, bools, decimals, dates or moments.
        buckets: How many.
        salt: Another salt gives other buckets.

    Raises:
        ConfigError: No column, or a number of buckets that there is not.
    """

    kind: ClassVar[str] = "hash_bucket"
    columns: tuple[str, ...]
    buckets: int
    salt: str = ""

    def __init__(self, columns: str | list[str] | tuple[str, ...], buckets: int, *, salt: str = "") -> None:
        object.__setattr__(self, "columns", listed(columns, "HashBucket"))
        object.__setattr__(self, "buckets", _buckets(buckets, "HashBucket"))
        object.__setattr__(self, "salt", str(salt))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int32, without NULL."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(given.field(name), "HashBucket", hashed=True)
        made = {
            name: replace(given.field(name), type=pa.int32(), nullable=False, vocabulary=None, note="")
            for name in self.columns
        }
        return Schema(tuple(made.get(one.name, one) for one in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with buckets in place of values."""
        del state
        made: dict[str, Values] = {}
        for name in self.columns:
            values = rows[name]
            found = _hashed([values], [given.field(name)], self.salt, self.buckets, "HashBucket")
            if values.nulls:
                found[~values.present] = 0
            made[name] = Values(found)
        return rows.with_columns(made)


@dataclass(frozen=True, slots=True)
class HashCross:
    """Several columns together become the number of a bucket, 1 to `buckets`; NULL is one more value of its column.

    Attributes:
        columns: As those of `HashBucket`, two or more.
        buckets: How many.
        into: The name of the new column.
        salt: Another salt gives other buckets.

    Raises:
        ConfigError: Fewer than two columns, no name, or a number of buckets that there is not.
    """

    kind: ClassVar[str] = "hash_cross"
    columns: tuple[str, ...]
    buckets: int
    into: str
    salt: str = ""

    def __init__(self, columns: list[str] | tuple[str, ...], buckets: int, *, into: str, salt: str = "") -> None:
        names = listed(columns, "HashCross")
        if len(names) < 2:
            raise ConfigError(f"HashCross crosses {names[0]} with nothing", hint="Name two columns or more.")
        name: object = into
        if not isinstance(name, str) or not name:
            raise ConfigError(f"HashCross: into is {into!r}", hint="It is the name of a new column.")
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "buckets", _buckets(buckets, "HashCross"))
        object.__setattr__(self, "into", into)
        object.__setattr__(self, "salt", str(salt))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """The new column."""
        return (self.into,)

    def output_schema(self, given: Schema, /) -> Schema:
        """One more column, int32, without NULL."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(given.field(name), "HashCross", hashed=True)
        if self.into in given.names:
            raise ConfigError(
                f"HashCross: there is a column {self.into} already", hint="Give into= another name.", column=self.into
            )
        return Schema((*given.fields, Field(self.into, pa.int32(), nullable=False)))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the new column."""
        del state
        values = [rows[name] for name in self.columns]
        fields = [given.field(name) for name in self.columns]
        found = _hashed(values, fields, self.salt, self.buckets, "HashCross")
        return rows.with_columns({self.into: Values(found)})


def _buckets(buckets: int, step: str) -> int:
    if type(buckets) is not int or not 1 <= buckets <= MOST:
        raise ConfigError(f"{step}: buckets is {buckets!r}", hint=f"It is a whole number from 1 to {MOST}.")
    return buckets


def key_texts(values: Values, kind: pa.DataType, /) -> list[bytes | None]:
    """The key text of each of a few values; None of NULL."""
    data = values.data
    if not isinstance(data, np.ndarray):
        return [None if one is None else key_text(one, kind) for one in data.to_pylist()]
    present = [True] * len(data) if values.valid is None else values.valid.tolist()
    return [key_text(one, kind) if there else None for one, there in zip(data.tolist(), present, strict=True)]


def _hashed(values: Sequence[Values], fields: Sequence[Field], salt: str, buckets: int, step: str) -> NDArray[np.int32]:
    """Bucket of each row, 1 to `buckets`."""
    kinds = [key_type(one, step) for one in fields]
    prefix = f"{salt}|".encode()
    if len(values[0]) <= FEW:
        texts = [key_texts(one, kind) for one, kind in zip(values, kinds, strict=True)]
        words = first_words(prefix + b"".join(map(_part, row)) for row in zip(*texts, strict=True))
        return (words % np.uint64(buckets)).astype(np.int32) + np.int32(1)
    columns: list[Any] = [as_keys(one, kind) for one, kind in zip(values, kinds, strict=True)]
    messages, codes = key_messages(columns, prefix, [f.name for f in fields], "these rows")
    found = (words_of(messages) % np.uint64(buckets)).astype(np.int32) + np.int32(1)
    return np.asarray(found[codes])


def _part(text: bytes | None) -> bytes:
    return b"-1:" if text is None else b"%d:%s" % (len(text), text)
