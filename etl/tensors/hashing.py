"""SHA-256 of many short keys: the first 8 bytes of each digest as a big-endian number."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_FIRST = struct.Struct(">Q")


def first_words(messages: Iterable[bytes], /) -> NDArray[np.uint64]:
    """The word u of every message: the first 8 bytes of its SHA-256 as a big-endian unsigned number.

    Args:
        messages: Distinct keys in practice: about 0.9 µs each (measured), so hash unique keys and look them up.

    Returns:
        uint64 [number of messages].
    """
    sha, first = hashlib.sha256, _FIRST.unpack_from
    return np.fromiter((first(sha(m).digest())[0] for m in messages), dtype=np.uint64)
