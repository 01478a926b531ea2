"""Where a function goes through rows one by one in Python, by its source; asked for one that was measured slow."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etl.planning.function import FunctionRef

ROW_BY_ROW: Final = frozenset({"iterrows", "itertuples", "items", "tolist", "to_dict", "to_records"})
CALLED_PER_ROW: Final = frozenset({"apply", "map", "applymap", "transform"})


def row_loops(ref: FunctionRef, /) -> list[str]:
    """Lines of the function that go row by row, in words: "line 12: `.itertuples()`"."""
    try:
        tree = ast.parse(Path(ref.file).read_bytes()) if ref.file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return []
    name = ref.name.rpartition(".")[2]
    found = {
        (line, what)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
        for line, what in _loops(node)
    }
    return [f"line {line}: {what}" for line, what in sorted(found)]


def _loops(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, words = node.func.attr, {word.arg: word.value for word in node.keywords}
            axis = words.get("axis")
            if method in ROW_BY_ROW:
                yield node.lineno, f"`.{method}()`"
            elif method == "apply" and isinstance(axis, ast.Constant) and axis.value in (1, "columns"):
                yield node.lineno, "`.apply(…, axis=1)`"
            elif method in CALLED_PER_ROW and any(isinstance(one, ast.Lambda) for one in node.args):
                yield node.lineno, f"`.{method}(lambda …)`"
        elif isinstance(node, ast.For):
            yield node.lineno, "a `for` loop"
        elif isinstance(node, ast.comprehension):
            yield node.iter.lineno, "a comprehension"
