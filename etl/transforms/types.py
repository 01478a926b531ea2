"""Arrow types as saved states name them: what `str` of a type says, and back."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from etl.core.arrow_types import parse_type
from etl.core.errors import ConfigError, Damaged

_ITEM: Final = re.compile(r"(list|large_list|fixed_size_list)<\w+: (.*?)(?: not null)?>(?:\[(\d+)\])?", re.DOTALL)
_ZONED: Final = re.compile(r"timestamp\[(\w+), tz=(.+)\]")
_LABELS: Final = re.compile(r"dictionary<values=(.*), indices=(\w+), ordered=[01]>")
_NAMED: Final[dict[str, pa.DataType]] = {
    "halffloat": pa.float16(),
    "date32[day]": pa.date32(),
    "date64[ms]": pa.date64(),
    "string_view": pa.string_view(),
    "extension<arrow.uuid>": pa.uuid(),
    "extension<arrow.json>": pa.json_(),
    "null": pa.null(),
}


def type_of(words: str, /) -> pa.DataType:
    """The type whose `str` this is.

    Raises:
        Damaged: There is none that steps take.
    """
    if words in _NAMED:
        return _NAMED[words]
    found = _ITEM.fullmatch(words)
    if found is not None:
        item = type_of(found[2])
        if found[1] == "fixed_size_list":
            return pa.list_(item, int(found[3]))
        return pa.list_(item) if found[1] == "list" else pa.large_list(item)
    zoned = _ZONED.fullmatch(words)
    if zoned is not None:
        unit: Any = zoned[1]
        return pa.timestamp(unit, tz=zoned[2])
    labels = _LABELS.fullmatch(words)
    if labels is not None:
        codes: Any = type_of(labels[2])
        made: pa.DataType = pa.dictionary(codes, type_of(labels[1]))  # type: ignore[call-overload]
        return made
    try:
        return parse_type(words)
    except ConfigError as error:
        raise Damaged(f"a saved fit names the type {words!r}, which is none that steps take") from error
