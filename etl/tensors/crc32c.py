"""CRC-32C (Castagnoli) of many rows at once, as TFRecord files have it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8
_CHUNK = 256
"""Words of a piece of a long row: the pieces go side by side and are put together by doubling."""


def masked(data: NDArray[np.uint8], starts: NDArray[np.int64] | None = None, /) -> NDArray[np.uint32]:
    """The masked checksum of each row, [rows]: a rotation and a constant, so that it can stand in checked data.

    Args:
        data: [rows, bytes]; a row's message ends at the right edge.
        starts: Where each message begins, with zeros before it; None: all at 0. A message has at least 4 bytes.
    """
    crc = of_rows(data, starts)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def of_rows(data: NDArray[np.uint8], starts: NDArray[np.int64] | None = None, /) -> NDArray[np.uint32]:
    """The checksum of each row, [rows]; as `masked`, without the mask."""
    rows, width = data.shape
    words = -(-width // 4)
    if words > _CHUNK:
        # A power of two of pieces, so that they can be put together two by two.
        words = _CHUNK << (-(-words // _CHUNK) - 1).bit_length()
    left = words * 4 - width
    padded = np.zeros((rows, words * 4), np.uint8)
    padded[:, left:] = data
    # Zeros before a message change nothing when the register begins at 0. It has to begin with all bits set, which is
    # the same as the first four bytes inverted.
    if starts is None:
        padded[:, left : left + 4] ^= 0xFF
    else:
        at = np.arange(rows)
        for byte in range(4):
            padded[at, starts + (left + byte)] ^= 0xFF
    pieces = max(1, words // _CHUNK) if words > _CHUNK else 1
    state = _registers(padded.view("<u4").reshape(rows * pieces, words // pieces)).reshape(rows, pieces)
    if pieces > 1:
        shift = _zero_words(_CHUNK)
        while state.shape[1] > 1:
            state = _applied(shift, state[:, 0::2]) ^ state[:, 1::2]
            shift = _applied(shift, shift)
    return ~state[:, 0]


def _registers(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The register after all words of a row, from 0."""
    low, high = _tables()
    state = np.zeros(len(words), np.uint32)
    halves = state.view(np.uint16).reshape(-1, 2)
    for column in np.ascontiguousarray(words.T):
        state ^= column
        state[:] = low[halves[:, 0]] ^ high[halves[:, 1]]
    return state


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What the lower and the upper half of a register become four zero bytes later."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = (one >> np.uint32(1)) ^ (one & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    later = [one]
    for _ in range(3):
        before = later[-1]
        later.append(one[before & np.uint32(0xFF)] ^ (before >> np.uint32(8)))
    half = np.arange(1 << 16, dtype=np.uint32)
    first, second = half & np.uint32(0xFF), half >> np.uint32(8)
    return later[3][first] ^ later[2][second], later[1][first] ^ later[0][second]


def _zero_words(count: int) -> NDArray[np.uint32]:
    """What each bit of a register becomes after so many zero words, a power of two: [32]."""
    image: NDArray[np.uint32] = _registers(np.uint32(1) << np.arange(32, dtype=np.uint32)[:, None])
    for _ in range(count.bit_length() - 1):
        image = _applied(image, image)
    return image


def _applied(image: NDArray[np.uint32], state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A linear map of registers, given as the images of the bits, on each register."""
    found = np.zeros(state.shape, np.uint32)
    for bit in range(32):
        found ^= image[bit] * ((state >> np.uint32(bit)) & np.uint32(1))
    return found
