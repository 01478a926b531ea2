"""The last of some sorted rows that was known in time, for many moments at once.

The row with the latest event is not always known: a later event may be known earlier. Rows are looked at in blocks of
1, 2, 4 …, of which the earliest `known` is kept: a search goes back over blocks in which nothing was known yet, and
then down into the first in which something was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints = np.ndarray[Any, np.dtype[np.int64]]


def last_known(known: Ints, stop: Ints, moments: Ints, /) -> NDArray[np.int64]:
    """The last place before `stop` whose `known` is not after the moment; -1 where there is none.

    Args:
        known: Shape (n,).
        stop: Shape (m,), from 0 to n.
        moments: Shape (m,).

    Returns:
        Shape (m,), int64.
    """
    found = np.full(len(stop), -1, np.int64)
    (asking,) = np.nonzero(stop > 0)
    near = known[stop[asking] - 1] <= moments[asking]
    found[asking[near]] = stop[asking[near]] - 1  # mostly the one that is nearest
    asking = asking[~near]
    at = stop[asking] - 1
    blocks = [known]
    level = 0
    pending: list[tuple[Ints, Ints]] = []  # of each level who found a block, and which
    while len(asking):
        odd = at & 1 == 1
        block = np.where(odd, at - 1, 0)
        hit = odd & (blocks[level][block] <= moments[asking])
        pending.append((asking[hit], block[hit]))
        asking, at = asking[~hit], at[~hit] >> 1
        on = at > 0
        asking, at = asking[on], at[on]
        if len(asking):
            even = blocks[level][: len(blocks[level]) // 2 * 2].reshape(-1, 2)
            blocks.append(even.min(axis=1))
            level += 1
    who, where = np.empty(0, np.int64), np.empty(0, np.int64)
    for level in range(len(pending) - 1, -1, -1):
        if len(who):
            right = 2 * where + 1
            where = np.where(blocks[level][right] <= moments[who], right, right - 1)
        who, where = np.append(who, pending[level][0]), np.append(where, pending[level][1])
    found[who] = where
    return found
