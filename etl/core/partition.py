"""Snapshots, partitions and plans: picklable values with keys that are the same in every process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from etl.core.canonical import canonical_json

if TYPE_CHECKING:
    from datetime import datetime

SnapshotKind: TypeAlias = Literal["exported", "attached", "cluster_time", "point_in_time", "file", "single", "none"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of one store, readable by every worker while `Source.snapshot()` is held open.

    `kind` "none" means that the parts are not of one moment; plan, run and manifest say so.
    """

    kind: SnapshotKind
    token: str
    taken_at: datetime
    position: str = ""
    """Where the store's log stood (LSN, GTID set, resume token); goes into the manifest."""
    server: str = ""
    """The server's name and version, for the manifest."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole source as one stream."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Heap pages low <= page < high of a PostgreSQL table; `high` None has no upper end."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """low <= key < high over one or more key columns, compared by the store.

    Bounds are the store's own text in full precision, one per column; None is open. `nulls` says that rows whose
    first key column is NULL are in this part too.
    """

    columns: tuple[str, ...]
    low: tuple[str, ...] | None
    high: tuple[str, ...] | None
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class NullKeys:
    """The rows whose key column is NULL, as a part of their own."""

    column: str


@dataclass(frozen=True, slots=True)
class Hash:
    """Rows whose key's text hashes to `index` modulo `of`; NULL is in part 0. Each part scans everything."""

    column: str
    index: int
    of: int


@dataclass(frozen=True, slots=True)
class Child:
    """A part of one leaf of a partitioned or inherited parent. `leaf` is the leaf's quoted, schema-qualified name."""

    leaf: str
    slice: Whole | Pages | KeyRange | NullKeys


Slice: TypeAlias = Whole | Pages | KeyRange | NullKeys | Hash | Child


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def slice_json(value: Slice, /) -> dict[str, object]:
    """The slice as JSON values, with `kind` naming its class."""
    plain = _plain(value)
    if not isinstance(plain, dict):
        raise TypeError(type(value).__name__)
    return plain


def includes_null(value: Slice, /) -> bool:
    """Whether rows whose key is NULL are in this slice."""
    match value:
        case KeyRange(nulls=nulls):
            return nulls
        case NullKeys() | Whole():
            return True
        case _:
            return False


def describe(value: Slice, /) -> str:
    """The slice in words, for messages and manifests: "pages 100 to 199", "id >= 5 and id < 9"."""
    match value:
        case Whole():
            return "everything"
        case Pages(low, None):
            return f"pages {low} and up"
        case Pages(low, int(high)):
            return f"pages {low} to {high - 1}"
        case NullKeys(column):
            return f"{column} is null"
        case Hash(column, index, of):
            return f"hash of {column} is {index} of {of}"
        case Child(leaf, inner):
            return f"{leaf}, {describe(inner)}"
        case KeyRange(columns, low_key, high_key, nulls):
            name = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
            ends = [f"{name} >= {_key(low_key)}"] if low_key else []
            ends += [f"{name} < {_key(high_key)}"] if high_key else []
            ends += [f"{columns[0]} is null"] if nulls and not ends else []
            text = " and ".join(ends) or "everything"
            return f"{text} or {columns[0]} is null" if nulls and (low_key or high_key) else text
    raise TypeError(type(value).__name__)


def _key(bound: tuple[str, ...]) -> str:
    return bound[0] if len(bound) == 1 else f"({', '.join(bound)})"


@dataclass(frozen=True, slots=True)
class Partition:
    """The unit of reading, retrying and acknowledging. `rows` and `bytes` are estimates for plan and progress only."""

    index: int
    slice: Slice
    rows: int | None = None
    bytes: int | None = None

    def key(self) -> str:
        """16 hex digits from the canonical slice: the same in every process and on resume."""
        return hashlib.sha256(canonical_json(slice_json(self.slice))).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Disjoint and complete by construction: every row, NULL keys too, in exactly one part.

    `reason` is one of the fixed codes where the source is read as one part (or fewer than asked), else "".
    `why` is a sentence for the plan; `remedy` says what would change it.
    """

    parts: tuple[Partition, ...]
    why: str
    reason: str = ""
    remedy: str = ""
