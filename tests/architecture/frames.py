"""What `make lint-frames` runs: rules L1 to L18 as errors over our own pipelines and transforms."""

from __future__ import annotations

import sys
from pathlib import Path

from etl.planning.lint import check

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pipelines/*.py", "etl/cli/templates/pipeline*", "etl/transforms/*.py", "tests/values/transforms.py")


def found() -> list[str]:
    """One line for each finding: the file, then what it says."""
    paths = [path for pattern in FILES for path in sorted(ROOT.glob(pattern))]
    return [f"{path.relative_to(ROOT)} {one}" for path in paths for one in check(path.read_text(), None)]


def main() -> int:
    """Print the findings; 1 where there are some."""
    lines = found()
    sys.stdout.write("\n".join([*lines, ""]) if lines else "lines of frames: the same on pandas and cuDF\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
