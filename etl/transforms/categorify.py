"""Categories as ids: a vocabulary that is typed, ordered, and keeps NULL, rare and unseen values apart.

Ids: 0 pad, 1 NULL, then the buckets of values that were never seen, then one for rare values where there may be any,
then the vocabulary by falling count, equal ones by rising value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, DataError
from etl.core.schema import Schema
from etl.engine import frames
from etl.tensors.hashing import first_words, words_of
from etl.tensors.split import key_column
from etl.tensors.views import column_of, values_of
from etl.transforms.base import InPlace, listed
from etl.transforms.counts import CountsOf, as_keys, by_frequency, key_type, merged_counts
from etl.transforms.hashes import key_texts
from etl.transforms.host import Values
from etl.transforms.lookups import FEW, lookup_of, picked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etl.core.schema import Field
    from etl.transforms.base import Observer, State
    from etl.transforms.host import Rows

PAD, NULL, OOV = 0, 1, 2
"""The first ids."""
MOST = 1 << 24
"""More ids than float32 tells apart must be asked for."""


@dataclass(frozen=True, slots=True)
class Categorify(InPlace):
    """Values of columns become ids of a vocabulary that is fitted; no id is NULL.

    A value that was not seen goes to one of the OOV buckets, by its SHA-256. Values that come less than `min_count`
    times, or after the first `max_size`, are rare: they have an id of their own together, or go to the OOV buckets.

    Attributes:
        columns: Text, labels, whole numbers, bools, decimals, dates or moments.
        oov_buckets: How many ids unseen values share.
        min_count: Values that come less often are rare.
        max_size: So many values have ids of their own; None: all.
        rare: "own": rare values share one id; "oov": they are as if never seen, which trains those ids.
        allow_float: Floats too, by value: -0.0 is 0.0, and NaN is a value.

    Raises:
        ConfigError: No column, or an option that there is not.
    """

    kind: ClassVar[str] = "categorify"
    fits: ClassVar[bool] = True
    columns: tuple[str, ...]
    oov_buckets: int = 1
    min_count: int = 1
    max_size: int | None = None
    rare: Literal["own", "oov"] = "own"
    allow_float: bool = False

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        *,
        oov_buckets: int = 1,
        min_count: int = 1,
        max_size: int | None = None,
        rare: Literal["own", "oov"] = "own",
        allow_float: bool = False,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Categorify"))
        for what, number in (("oov_buckets", oov_buckets), ("min_count", min_count), ("max_size", max_size)):
            if number is None and what == "max_size":
                continue
            if type(number) is not int or number < 1:
                raise ConfigError(f"Categorify: {what} is {number!r}", hint="It is a whole number from 1.")
        if rare not in ("own", "oov"):
            raise ConfigError(f"Categorify: rare is {rare!r}", hint='Give "own" or "oov".')
        object.__setattr__(self, "oov_buckets", oov_buckets)
        object.__setattr__(self, "min_count", min_count)
        object.__setattr__(self, "max_size", max_size)
        object.__setattr__(self, "rare", rare)
        object.__setattr__(self, "allow_float", bool(allow_float))

    @property
    def first(self) -> int:
        """The first id of the vocabulary."""
        return OOV + self.oov_buckets + (1 if self._may_be_rare else 0)

    @property
    def _may_be_rare(self) -> bool:
        return self.rare == "own" and (self.min_count > 1 or self.max_size is not None)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int32 ids (int64 where `max_size` needs it), without NULL."""
        given.require(*self.columns)
        for name in self.columns:
            key_type(given.field(name), "Categorify", allow_float=self.allow_float, hashed=self.oov_buckets > 1)
        kind = pa.int64() if (self.max_size or 0) + self.first > 1 << 31 else pa.int32()
        made = {
            name: replace(given.field(name), type=kind, nullable=False, vocabulary=None, note="")
            for name in self.columns
        }
        return Schema(tuple(made.get(one.name, one) for one in given))

    def observer(self, given: Schema, part: int, /) -> Observer:
        """Counts of values."""
        del part
        return CountsOf(given, {name: self._key(given.field(name)) for name in self.columns})

    def merge(self, left: State, right: State, /) -> State:
        """Of both."""
        return {name: merged_counts(left[name], right[name]) for name in self.columns}

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → vocab (id, value, count), cardinality, and how many rows and NULLs there were."""
        del given, filled  # a filled column is counted after the step that fills it
        return {name: self._vocabulary(name, state[name]) for name in self.columns}

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns whose every value is its own category."""
        return tuple(
            f"every value of {name} came once: its ids tell rows apart and nothing else"
            for name in self.columns
            if state[name]["vocab"].num_rows > 1000 and state[name]["rows"] == state[name]["vocab"].num_rows
        )

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with ids in place of values."""
        made: dict[str, Values] = {}
        for name in self.columns:
            vocab, values = state[name]["vocab"], rows[name]
            lookup = lookup_of(vocab)
            places = lookup.places(values)
            out = picked(lookup.kept("ids", ids_of, vocab), places, OOV)
            unseen = int(np.count_nonzero(places < 0))
            if unseen:
                nulls = values.nulls
                if nulls:
                    out[~values.present] = NULL
                    rows.counted(name, "null", nulls)
                    unseen -= nulls
                if unseen and self.oov_buckets > 1:
                    other = (places < 0) & values.present
                    out[other] = OOV + self._buckets(values.kept(other), given.field(name))
                rows.counted(name, "unseen", unseen)
            if self._may_be_rare:
                rows.counted(name, "rare", int(np.count_nonzero(out == self.first - 1)))
            made[name] = Values(out)
        return rows.with_columns(made)

    def takes_frames(self, given: Schema, /) -> bool:
        """Not with several buckets, which are hashes; nor floats, whose NaN no merge finds alike; nor decimals.

        Merges of decimals want one precision on both sides, and their texts differ between libraries.
        """
        kinds = [given.field(name).type for name in self.columns]
        return self.oov_buckets == 1 and not any(pa.types.is_floating(k) or pa.types.is_decimal(k) for k in kinds)

    def apply(self, frame: Any, given: Schema, state: State, /) -> Any:
        """The frame with ids in place of values, by a merge with the vocabulary."""
        made, kinds = frame.copy(deep=False), self.output_schema(given)
        for name in self.columns:
            vocab = state[name]["vocab"]
            keys = lookup_of(vocab).kept("keys", keys_in, vocab)
            found = frames.looked_up(frame[name], keys, values_of(one_chunk(vocab.column("id")), np.int64))
            found = frames.fill_null(found, OOV).where(~frames.is_null(frame[name]), NULL)
            made[name] = frames.to_int(found, "int64" if pa.types.is_int64(kinds.field(name).type) else "int32")
        return made

    def met(self, frame: Any, state: State, /) -> Mapping[tuple[str, str], int]:
        """NULLs, unseen and rare values: their ids are nobody else's."""
        del state
        told = {"null": NULL, "unseen": OOV} | ({"rare": self.first - 1} if self._may_be_rare else {})
        return {
            (name, what): int((frame[name] == number).sum()) for name in self.columns for what, number in told.items()
        }

    def describes(self, column: str, state: State, named: Mapping[str, Any], /) -> Mapping[str, object]:
        """The manifest's `category`."""
        table = named["vocab"]
        return {
            "category": {
                "vocab": table["table"],
                "vocab_sha256": table["sha256"],
                "key_type": str(state[column]["vocab"].schema.field("value").type),
                "cardinality": state[column]["cardinality"],
                "reserved": {
                    "pad": PAD,
                    "null": NULL,
                    "oov": list(range(OOV, OOV + self.oov_buckets)),
                    "rare": self.first - 1 if self._may_be_rare else None,
                },
                "order": "count descending, value ascending",
                "min_count": self.min_count,
                "max_size": self.max_size,
            }
        }

    def _key(self, field: Field) -> pa.DataType:
        return key_type(field, "Categorify", allow_float=self.allow_float)

    def _vocabulary(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        table = by_frequency(found["counts"])
        counts = table.column("count").to_numpy()
        own = counts >= self.min_count
        if self.max_size is not None:
            own[self.max_size :] = False
        size = int(np.count_nonzero(own))  # they come first: counts fall
        if self.max_size is None and size + self.first > MOST:
            raise DataError(
                f"Categorify({name!r}): {name} has {size} values, more than float32 tells apart",
                hint="Give max_size=, or HashBucket it.",
                column=name,
            )
        if self.rare == "oov":
            table = table.slice(0, size)
        ids = np.full(table.num_rows, self.first - 1, np.int64)
        ids[:size] = np.arange(self.first, self.first + size)
        vocab = table.add_column(0, "id", [column_of(pa.int64(), ids)]).combine_chunks()
        return {
            "vocab": vocab,
            "cardinality": self.first + size,
            "rows": found["rows"],
            "null": found["null"],
        }

    def _buckets(self, values: Values, field: Field) -> NDArray[np.int64]:
        """The bucket of each value that was never seen, from 0."""
        if len(values) <= FEW:
            texts = key_texts(values, self._key(field))
            words = first_words(one for one in texts if one is not None) % np.uint64(self.oov_buckets)
            return words.astype(np.int64)
        array = as_keys(values, self._key(field))
        encoded = array.dictionary_encode()
        words = words_of(key_column(encoded.dictionary)) % np.uint64(self.oov_buckets)
        return np.asarray(words.astype(np.int64)[values_of(encoded.indices, np.int32)])


def ids_of(vocab: pa.Table, /) -> NDArray[Any]:
    """The ids of a vocabulary in its order: int32, or int64 where they need it."""
    ids = values_of(one_chunk(vocab.column("id")), np.int64)
    return ids if len(ids) and ids.max() >= 1 << 31 else ids.astype(np.int32)


def keys_in(vocab: pa.Table, /) -> NDArray[Any]:
    """The values of a vocabulary as `frames.looked_up` takes them."""
    column = one_chunk(vocab.column("value"))
    kind, types = column.type, pa.types
    if types.is_string(kind):
        texts = column.to_pylist()
        made = np.empty(len(texts), np.object_)
        made[:] = texts
        return made
    if types.is_boolean(kind):
        return np.array(column.to_pylist(), np.int64)
    if types.is_date(kind):
        return values_of(column, np.int32).astype("datetime64[D]").astype("datetime64[s]")
    if types.is_temporal(kind):
        return values_of(column, "timedelta64[us]" if types.is_duration(kind) else "datetime64[us]")
    return values_of(column, np.uint64 if types.is_uint64(kind) else np.int64)


def one_chunk(column: Any, /) -> Any:
    """A column of one chunk or none as an array."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
