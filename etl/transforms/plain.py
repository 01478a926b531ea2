"""Arguments and figures of steps as JSON and back, without loss; tables among them as Parquet files beside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE: Final = 1 << 53
"""From here on a reader of JSON may round integers."""
_SPAN: Final = re.compile(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{6}))?")


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table that was not read.

    Attributes:
        name: Of its file.
        rows: How many it has.
    """

    name: str
    rows: int


class Tables:
    """The tables of a fit on their way to files.

    Attributes:
        files: Name → Parquet.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def keep(self, table: pa.Table, place: tuple[str, ...], /) -> dict[str, Any]:
        """Write a table down; its name follows from its place: `vocab.<column>.table` for (column, "vocab")."""
        stem = ".".join(quote(part, safe=" -()[]") for part in (place[-1], *place[:-1]))
        name, number = f"{stem}.table", 1
        while name in self.files:
            number += 1
            name = f"{stem}.{number}.table"
        self.files[name] = content = parquet(table)
        return {"table": name, "sha256": hashlib.sha256(content).hexdigest(), "rows": table.num_rows}


def parquet(table: pa.Table, /) -> bytes:
    """A table as a Parquet file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 # serving without tables needs no Parquet

    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue().to_pybytes()


def table_of(content: bytes, /) -> pa.Table:
    """What `parquet` was given."""
    import pyarrow.parquet as pq  # noqa: PLC0415 # as above

    # Not `read_table`, which imports Arrow's datasets, and they import pandas.
    return pq.ParquetFile(pa.BufferReader(content)).read()


def to_plain(
    value: Any, keep: Callable[[pa.Table, tuple[str, ...]], Any] | None = None, /, *, place: tuple[str, ...] = ()
) -> Any:
    """A value as JSON holds it.

    Args:
        value: Numbers, text, moments, and lists and mappings of them; tables where they are kept.
        keep: Called with each table and the keys that lead to it.
        place: The keys that led here.
    """
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < _WHOLE else {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex(), "text": repr(value)}
    if isinstance(value, pa.Table) and keep is not None:
        return keep(value, place)
    if isinstance(value, Mapping):
        return {str(name): to_plain(one, keep, place=(*place, str(name))) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(one, keep, place=(*place, str(at))) for at, one in enumerate(value)]
    return {type(value).__name__: str(value)}


def from_plain(value: Any, read: Callable[[str], bytes] | None = None, /) -> Any:
    """What `to_plain` was given; moments and decimals stay named texts, see `typed`.

    Args:
        value: From JSON.
        read: The content of a table's file, by name; None: tables are `NamedTable`s.

    Raises:
        ValueError: A table's file is not the one that was written.
    """
    if isinstance(value, list):
        return [from_plain(one, read) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float", "text"}:
        return float.fromhex(value["float"])
    if set(value) == {"int"} and isinstance(value["int"], str):
        return int(value["int"])
    if set(value) == {"table", "sha256", "rows"}:
        return _table(value, read)
    return {name: from_plain(one, read) for name, one in value.items()}


def typed(value: Any, /) -> Any:
    """The arguments of a step as Python's own values, moments and decimals too."""
    if isinstance(value, list):
        return [typed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) in ({"float", "text"}, {"int"}):
        return from_plain(value)
    if len(value) == 1:
        ((name, text),) = value.items()
        if name in _TYPES and isinstance(text, str):
            return _TYPES[name](text)
    return {name: typed(one) for name, one in value.items()}


def _table(named: Mapping[str, Any], read: Callable[[str], bytes] | None) -> pa.Table | NamedTable:
    name = str(named["table"])
    if read is None:
        return NamedTable(name, int(named["rows"]))
    content = read(name)
    if hashlib.sha256(content).hexdigest() != named["sha256"]:
        raise ValueError(f"{name} is another file than the one that was written")
    return table_of(content)


def _span(text: str) -> timedelta:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no span")
    days, hours, minutes, seconds, micros = (int(one or 0) for one in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": _span,
}
