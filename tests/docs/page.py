"""Run the blocks of a page in order, in this process and folder: Python in one namespace, shell in a shell.

Reads `[[language, code, line], …]` as JSON and writes what each block printed, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def shell(code: str) -> str:
    """What the commands printed; both streams are shown where one failed."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{code}\nended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def python(code: str, page: str, line: int, names: dict[str, Any]) -> str:
    """What the snippet printed; a traceback names the line of the page."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile("\n" * line + code, page, "exec"), names)
    return said.getvalue()


def main(page: str, blocks: Path, said: Path) -> None:
    """Run them all."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for language, code, line in json.loads(blocks.read_text()):
        printed.append(shell(code) if language == "sh" else python(code, page, line, names))
    said.write_text(json.dumps(printed))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
