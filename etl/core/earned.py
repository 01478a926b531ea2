"""Compiled loops that a process asks for once it has done work enough to pay for them."""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from etl.core.errors import EtlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Calls: TypeAlias = "Mapping[str, Callable[..., int]]"
"""Entry points by name."""


class Load(Protocol):
    """Gives loops."""

    def __call__(self, *, compiling: bool) -> Calls | None:
        """The loops by name; None where they are not on disk and are not to be compiled."""
        ...


@dataclass(slots=True)
class Earned:
    """The loops, from the moment on at which they are worth while; the results are the same without.

    Attributes:
        load: What gives them.
        many: The amount of work from which they are loaded (some hundredths of a second) …
        very_many: … and from which they are compiled (seconds), where their code is not on disk.
    """

    load: Load
    many: int
    very_many: int
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _done: int = 0
    _calls: Calls | None = None
    _next: float | None = None

    def calls(self, amount: int, /) -> Calls | None:
        """The loops, after so much more work; None: do without them."""
        with self._lock:
            self._done += amount
            due = self.many if self._next is None else self._next
            if self._calls is None and self._done >= due:
                compiling = due >= self.very_many
                self._next = math.inf if compiling else self.very_many
                # No compiler, or none that may make memory executable.
                with contextlib.suppress(ImportError, OSError, RuntimeError, EtlError):
                    self._calls = self.load(compiling=compiling)
            return self._calls
