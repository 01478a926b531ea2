"""The real command in a process of its own, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "etl.cli.main")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be one JSON object and nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict), self.out
        return found


def cuetl(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Run `cuetl` with these arguments in a folder; its environment names no configuration but what `env` gives."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUETL_", "PG"))}
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env={**clean, "PYTHONPATH": "", **(env or {})},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def one_paragraph(text: str, /) -> str:
    """The error of a failed command: exactly one line that names the command, and no traceback."""
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("cuetl: warning:")]
    assert len(lines) == 1, text
    assert lines[0].startswith("cuetl: "), text
    return lines[0]
