"""What a run says while it works; a terminal draws it, everything else ignores it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives counts as they come; called from the run's own thread only."""

    def planned(self, parts: int, rows: float, count: int) -> None:
        """So many parts, about so many rows and bytes."""
        ...

    def advanced(self, *, parts: int = 0, rows: int = 0, count: int = 0) -> None:
        """More parts ended, more rows and bytes read."""
        ...

    def stage(self, text: str) -> None:
        """What is going on now: "planning", "reading", "publishing"."""
        ...


class Silent:
    """Says nothing."""

    def planned(self, parts: int, rows: float, count: int) -> None:
        """Nothing."""

    def advanced(self, *, parts: int = 0, rows: int = 0, count: int = 0) -> None:
        """Nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""
