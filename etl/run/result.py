"""What a run made, as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RunResult:
    """One published dataset of a run."""

    run_id: str
    status: str
    target: str
    format: str
    version: int
    rows: int
    bytes: int
    partitions: int
    engine: str
    seconds: float
    columns: tuple[Mapping[str, object], ...]
    warnings: tuple[Mapping[str, object], ...]

    def to_json(self) -> dict[str, object]:
        """The one JSON object of `--json`."""
        return asdict(self)
