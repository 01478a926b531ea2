"""What a run made, as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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
    rows_read: int = 0
    """From all sources; a function may give fewer rows than it got, or more."""
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    """Why how many were left out."""
    rows_added: int = 0
    """By a function, part by part."""
    checks: tuple[Mapping[str, object], ...] = ()
    """What came of each data check, those that passed as well."""

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


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do, as `--plan --json` prints it."""

    value: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<RunPlan {self._read()}, to {self._targets()}>"

    def _repr_html_(self) -> str:
        """What notebooks show: what is read and how, the columns that are published, and what loses something."""
        engine = self.value["engine"]
        soft = f"{self._read()} · {engine['name']}: {engine['why']}"
        columns = [(c["name"], c["arrow_type"], "may be" if c["nullable"] else "never") for c in self.value["schema"]]
        said = [*self.value["lossy"], *self.value["notes"]]
        return small_page(self._targets(), soft, ("column", "Arrow type", "NULL"), columns, said)

    def to_json(self) -> dict[str, object]:
        """The one JSON object of `--plan --json`."""
        return dict(self.value)

    def _read(self) -> str:
        rows, parts = counted(self.value["rows"], "row"), counted(len(self.value["partitions"]), "part")
        return f"about {rows} in {parts}"

    def _targets(self) -> str:
        return ", ".join(one["target"] for one in self.value["targets"])


def _nulls(column: Mapping[str, object]) -> object:
    null = column.get("null")
    return null.get("count") if isinstance(null, dict) else None
