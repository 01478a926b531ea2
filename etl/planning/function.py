"""A user's function by reference: the file it is in and its name, never its pickled code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Where a function is, so that any process of this host can find it.

    Attributes:
        file: Absolute path of the file that defines it; "" when it has none (a notebook): threads of this process only.
        name: Its qualified name there.
        sha256: Of the file's bytes, by which a resumed run knows that it is the same.
    """

    file: str
    name: str
    sha256: str
