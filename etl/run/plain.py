"""Values as JSON and back, exactly: what workers tell of a part, written down for a run that takes it up.

JSON and not pickle, since a stage lies in a folder that others may write to, and reading it must run nothing: only the
classes named here are made.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from connectors.base import Staged, StagedFile
from etl.core.partition import Child, Hash, KeyRange, NullKeys, Pages, Partition, Whole
from etl.run.task import PartResult
from etl.tensors.stats import Stats
from etl.tensors.sums import RealSums, WholeSums

_CLASSES: Final = {
    kind.__name__: kind
    for kind in (
        *(Child, Hash, KeyRange, NullKeys, Pages, Partition, Whole),
        *(PartResult, Staged, StagedFile, Stats, RealSums, WholeSums),
    )
}
_TEXTS: Final[Mapping[str, Callable[[str], object]]] = {
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "float": float,
}


def to_json(value: object, /) -> bytes:
    """The value as JSON.

    Raises:
        TypeError: It holds something that has no form here.
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def from_json(data: bytes, /) -> Any:
    """The value again.

    Raises:
        ValueError: It is not what `to_json` writes.
    """
    try:
        return _value(json.loads(data))
    except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"no record of a part: {error}") from error


def _plain(value: Any) -> object:
    match value:
        case None | bool() | str():
            return value
        case np.generic() | np.ndarray():
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise TypeError("an array of Python objects")
            shape = None if isinstance(value, np.generic) else list(array.shape)
            return {"$": "numpy", "dtype": array.dtype.str, "shape": shape, "data": _text(array.tobytes())}
        case int():
            return value
        case float():
            return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
        case bytes():
            return {"$": "bytes", "data": _text(value)}
        case tuple():
            return {"$": "tuple", "of": [_plain(one) for one in value]}
        case list():
            return [_plain(one) for one in value]
        case Decimal():
            return {"$": "decimal", "text": str(value)}
        case datetime():
            return {"$": "datetime", "text": value.isoformat()}
        case date():
            return {"$": "date", "text": value.isoformat()}
        case timedelta():
            return {"$": "timedelta", "of": [value.days, value.seconds, value.microseconds]}
        case pa.Array() | pa.ChunkedArray():
            chunks = value.chunks if isinstance(value, pa.ChunkedArray) else [value]
            return {"$": "arrow", "chunked": isinstance(value, pa.ChunkedArray), "data": _text(_ipc(value, chunks))}
        case Mapping():
            if all(type(key) is str for key in value) and "$" not in value:
                return {key: _plain(one) for key, one in value.items()}
            return {"$": "map", "of": [[_plain(key), _plain(one)] for key, one in value.items()]}
        case _ if is_dataclass(value) and _CLASSES.get(type(value).__name__) is type(value):
            return {"$": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    raise TypeError(f"a {type(value).__name__} has no form as JSON")


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    kind = plain.get("$")
    match kind:
        case None:
            return {key: _value(one) for key, one in plain.items()}
        case "map":
            return {_value(key): _value(one) for key, one in plain["of"]}
        case "tuple":
            return tuple(_value(one) for one in plain["of"])
        case "bytes":
            return _bytes(plain["data"])
        case "numpy":
            array = np.frombuffer(_bytes(plain["data"]), np.dtype(plain["dtype"])).copy()
            return array[0] if plain["shape"] is None else array.reshape(plain["shape"])
        case "timedelta":
            return timedelta(*plain["of"])
        case "arrow":
            with pa.ipc.open_stream(_bytes(plain["data"])) as stream:
                column = stream.read_all().column(0)
            return column if plain["chunked"] else column.combine_chunks()
    if kind in _TEXTS:
        return _TEXTS[kind](plain["text"])
    return _CLASSES[kind](**{name: _value(one) for name, one in plain.items() if name != "$"})


def _ipc(value: Any, chunks: Any) -> bytes:
    schema = pa.schema([pa.field("v", value.type)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for chunk in chunks:
            writer.write_batch(pa.RecordBatch.from_arrays([chunk], schema=schema))
    return sink.getvalue().to_pybytes()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
