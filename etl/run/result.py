"""What a run made, as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from etl.tensors.page import small_page
from etl.tensors.showing import counted

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

    def __repr__(self) -> str:
        rows, parts = counted(self.rows, "row"), counted(self.partitions, "part")
        made = f"{rows} in {parts}, {self.seconds:.1f} s"
        return f"<RunResult {self.run_id} {self.status}: {self.target}, version {self.version}, {self.format}: {made}>"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        rows = counted(self.rows, "row")
        soft = f"{self.format}, version {self.version} · {rows} · {self.seconds:.1f} s · {self.run_id}"
        columns = [(c.get("name"), c.get("role"), c.get("dtype"), _nulls(c)) for c in self.columns]
        said = [str(w.get("text")) for w in self.warnings]
        return small_page(self.target, soft, ("column", "role", "dtype", "NULL"), columns, said)

    def to_json(self) -> dict[str, object]:
        """The one JSON object of `--json`."""
        return asdict(self)


def _nulls(column: Mapping[str, object]) -> object:
    null = column.get("null")
    return null.get("count") if isinstance(null, dict) else None
