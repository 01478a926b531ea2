"""How many parts at once the host memory of GPU workers bears."""

from __future__ import annotations

COPIES = 4
"""Of a part in host memory at worst: as it was fetched, page-locked, as it came back, and on its way out."""


def borne(slots: int, workers: int, part_bytes: int, most: int | None, /) -> tuple[int, str]:
    """Parts in flight that the workers' memory bears, and why they are fewer than wished; "" where they are not.

    Args:
        slots: The wish, over all workers.
        workers: That share them evenly.
        part_bytes: Of the largest part, as Arrow; 0: not known.
        most: Bytes that one worker may take; None: no limit.
    """
    if most is None or -(-slots // workers) * part_bytes * COPIES <= most:
        return slots, ""
    each = most // (part_bytes * COPIES)
    sizes = f"{COPIES} copies of a part of {part_bytes >> 20} MiB, {most >> 20} MiB of host memory for each worker"
    if each:
        return each * workers, f"{sizes}: {each * workers} at once"
    return min(slots, workers), f"{sizes}: one part may be too large, cut it smaller (partition_bytes)"
