"""Arrow types in the words of the command line: `decimal(38,18)`, `timestamp[us, UTC]`, `list(list(int32))`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from etl.core.errors import ConfigError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HEX: Final = "hex"
"""Not an Arrow type: binary read as lower-case hex text."""

_PLAIN: Final[Mapping[str, Callable[[], pa.DataType]]] = {
    "bool": pa.bool_,
    "boolean": pa.bool_,
    "int8": pa.int8,
    "int16": pa.int16,
    "int32": pa.int32,
    "int64": pa.int64,
    "uint8": pa.uint8,
    "uint16": pa.uint16,
    "uint32": pa.uint32,
    "uint64": pa.uint64,
    "float16": pa.float16,
    "float32": pa.float32,
    "float64": pa.float64,
    "float": pa.float32,
    "double": pa.float64,
    "string": pa.string,
    "large_string": pa.large_string,
    "binary": pa.binary,
    "large_binary": pa.large_binary,
    "date32": pa.date32,
    "uuid": pa.uuid,
}
_UNITS: Final[tuple[Literal["s", "ms", "us", "ns"], ...]] = ("s", "ms", "us", "ns")
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_TIME = re.compile(r"(timestamp|time32|time64|duration)\[\s*(s|ms|us|ns)\s*(?:,\s*([\w/+:-]+)\s*)?\]")


def parse_type(text: str, /) -> pa.DataType:
    """The Arrow type that the words name. `str` of a type parses too, as far as the forms below go.

    Forms: the plain names, `decimal(p,s)` (128 bits up to 38 digits, else 256), `decimal128(p,s)`, `decimal256(p,s)`,
    `timestamp[unit]`, `timestamp[unit, ZONE]`, `time32[unit]`, `time64[unit]`, `duration[unit]`, `list(T)`.

    Raises:
        ConfigError: The words name no type; near ones are given.
    """
    words = text.strip()
    if words in _PLAIN:
        return _PLAIN[words]()
    timed = _TIME.fullmatch(words)
    if timed:
        return _timed(text, timed[1], timed[2], timed[3])
    call = _CALL.fullmatch(words)
    if call and call[1] == "list":
        return pa.list_(parse_type(call[2]))
    if call and call[1] in ("decimal", "decimal128", "decimal256"):
        return _decimal(text, call[1], call[2])
    raise _unknown(text)


def _timed(text: str, kind: str, unit: str, zone: str | None) -> pa.DataType:
    try:
        match kind:
            case "timestamp":
                return pa.timestamp(_unit(unit), tz=zone)
            case "duration" if zone is None:
                return pa.duration(_unit(unit))
            case "time32" if zone is None and unit == "s":
                return pa.time32("s")
            case "time32" if zone is None and unit == "ms":
                return pa.time32("ms")
            case "time64" if zone is None and unit == "us":
                return pa.time64("us")
            case "time64" if zone is None and unit == "ns":
                return pa.time64("ns")
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a type: {error}") from error
    raise _unknown(text)


def _unit(unit: str) -> Literal["s", "ms", "us", "ns"]:
    for one in _UNITS:
        if one == unit:
            return one
    raise ConfigError(f"unknown unit {unit!r}", hint=nearest(unit, _UNITS, what="units"))


def _decimal(text: str, kind: str, inside: str) -> pa.DataType:
    found = re.fullmatch(r"\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?", inside)
    if not found:
        raise _unknown(text)
    precision, scale = int(found[1]), int(found[2] or 0)
    wide = kind == "decimal256" or (kind == "decimal" and precision > 38)
    try:
        return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a type: {error}") from error


def _unknown(text: str) -> ConfigError:
    known = [
        *_PLAIN,
        "decimal(38,18)",
        "timestamp[us]",
        "timestamp[us, UTC]",
        "time64[us]",
        "duration[us]",
        "list(int32)",
    ]
    return ConfigError(f"{text!r} is not a type", hint=nearest(text, known, what="types"))
