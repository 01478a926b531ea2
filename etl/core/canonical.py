"""Canonical JSON: equal values are equal bytes, so that hashes of them can be compared."""

from __future__ import annotations

import json
import math

SAFE_INTEGER = 2**53
"""Beyond this a JSON reader may round an integer; such integers are written as decimal strings."""


def canonical_json(value: object, /) -> bytes:
    r"""Canonical JSON of plain values: UTF-8, keys sorted, no spaces, a final newline.

    Integers beyond ±2^53 become decimal strings; NaN and infinities become "nan", "inf", "-inf".

    >>> canonical_json({"b": 1, "a": [2**60, float("inf")]})
    b'{"a":["1152921504606846976","inf"],"b":1}\n'
    """
    text = json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def _plain(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)
        case float():
            if math.isnan(value):
                return "nan"
            if math.isinf(value):
                return "inf" if value > 0 else "-inf"
            return value
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical JSON form")
