"""What `make sizes` prints: the largest files and functions and the most branched ones. Prompts, not limits."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.BoolOp, ast.match_case, ast.comprehension)


class Function(NamedTuple):
    """One function: its lines, its branches, where it is."""

    lines: int
    branches: int
    where: str


def functions(path: Path) -> list[Function]:
    """The functions of a file, nested ones counted in what holds them too."""
    return [
        Function(
            (node.end_lineno or node.lineno) - node.lineno + 1,
            sum(isinstance(child, BRANCHES) for child in ast.walk(node)),
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}",
        )
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def main() -> None:
    files = [path for folder in ("etl", "connectors") for path in (ROOT / folder).rglob("*.py")]
    lengths = sorted(
        ((len(path.read_text().splitlines()), str(path.relative_to(ROOT))) for path in files), reverse=True
    )
    found = [function for path in files for function in functions(path)]
    report = [
        f"{len(files)} files, {sum(lines for lines, _ in lengths)} lines",
        "",
        "largest files (prompt: 400 lines)",
    ]
    report += [f"{lines:6} {where}" for lines, where in lengths[:10]]
    report += ["", "largest functions (prompt: 60 lines)"]
    report += [f"{one.lines:6} {one.where}" for one in sorted(found, reverse=True)[:10]]
    report += ["", "most branched functions (prompt: 10)"]
    report += [f"{one.branches:6} {one.where}" for one in sorted(found, key=lambda one: -one.branches)[:10]]
    sys.stdout.write("\n".join(report) + "\n")


if __name__ == "__main__":
    main()
