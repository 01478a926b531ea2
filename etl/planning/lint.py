"""Lines of a pipeline's function that pandas and cuDF understand differently: rules L1 to L18, read from source alone.

Nothing is imported or run. A rule speaks only where it is certain: on what came from the function's own frames, and,
where a column's type decides, only for types that were given (`dtypes`) or that the function itself wrote. A line that
ends in `# frames: L5` (one rule or several, then a reason) is left out.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etl.planning.reckoning import Reckoner, Report, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SILENCED: Final = re.compile(r"#\s*frames:\s*(L\d+(?:[,\s]+L\d+)*)")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One line that would mean something else, or fail, on the other engine.

    Attributes:
        line: Its line in the file, from 1.
        column: Its column, from 0.
        rule: "L1" to "L18".
        message: What is flagged and why.
        rewrite: What to write instead.
    """

    line: int
    column: int
    rule: str
    message: str
    rewrite: str

    def __str__(self) -> str:
        """One line for people: "line 7: L1: …. Write …"."""
        return f"line {self.line}: {self.rule}: {self.message}. Instead: {self.rewrite}."


def check(
    source_text: str,
    function_name: str | None,
    *,
    rowwise: bool | None = None,
    dtypes: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Finding]:
    """The findings in one function of a file and in the file's functions that it calls, in the order of lines.

    Args:
        source_text: The whole file.
        function_name: The function at the file's top level; None: the pipelines there, or, where there is none, every
            function and method that names a frame among its parameters (by annotation, or as `frame`, or with `xd`).
        rowwise: Its arguments are plain frames; False: Dask collections; None: as its `@pipeline` decorator says,
            plain frames where it has none.
        dtypes: Source (the argument's name) → column → the type as Arrow says it ("int32", "double", "string").

    Raises:
        SyntaxError: The text is no Python.
        LookupError: The file has no such function.
    """
    tree = ast.parse(source_text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function_name is not None and function_name not in functions:
        raise LookupError(f"no function {function_name} at the top level of the file")
    found: set[Finding] = set()

    def report(node: ast.AST, rule: str, message: str, rewrite: str) -> None:
        found.add(Finding(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), rule, message, rewrite))

    reckoner = Reckoner(tree, report)
    said = {name: told for name, node in functions.items() if (told := _says_rowwise(node)) is not None}
    named = list(said) if function_name is None else [function_name]
    for name in named:
        plain = said.get(name, True) if rowwise is None else rowwise
        reckoner.function(functions[name], _arguments(functions[name], dask=not plain, dtypes=dtypes or {}))
    if not named:
        for node in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            arguments = _arguments(node, dask=rowwise is False, dtypes=dtypes or {})
            of_frames = _names_frames(node)
            reckoner.function(node, {name: value for name, value in arguments.items() if name in of_frames})
    _anywhere(tree, reckoner.modules, report)
    silenced = _silenced(source_text)
    return sorted(one for one in found if one.rule not in silenced.get(one.line, ()))


def _arguments(node: ast.FunctionDef, *, dask: bool, dtypes: Mapping[str, Mapping[str, str]]) -> dict[str, Value]:
    """The frames that the function is called with; a parameter named `xd` is the module of frames."""
    given: dict[str, Value] = {}
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        if argument.arg == "xd":
            given["xd"] = Value("module", name="xd")
            continue
        columns = {name: Value("series", dtype=_plain(dtype)) for name, dtype in dtypes.get(argument.arg, {}).items()}
        given[argument.arg] = Value("frame", columns=columns, dask=dask)
    return {name: replace(value, dask=dask) if value.kind == "frame" else value for name, value in given.items()}


def _names_frames(node: ast.FunctionDef) -> set[str]:
    """The parameters that are frames, or `xd`, of a function that is no pipeline's."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    has_module = any(argument.arg == "xd" for argument in every)

    def is_frame(argument: ast.arg) -> bool:
        said = "" if argument.annotation is None else ast.unparse(argument.annotation)
        untyped = said in ("", "Any") and (has_module or not said or argument.arg == "frame")
        return argument.arg == "xd" or said.endswith("DataFrame") or (untyped and argument.arg not in ("self", "cls"))

    return {argument.arg for argument in every if is_frame(argument)}


def _plain(dtype: str) -> str:
    """The words of Arrow for numbers as NumPy says them."""
    word = dtype.lower()
    return {"double": "float64", "float": "float32", "halffloat": "float16"}.get(word, word)


def _says_rowwise(node: ast.FunctionDef) -> bool | None:
    """What the decorator says: `@pipeline(…)` without `rowwise=True` is called with Dask collections; None: none."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            called = decorator.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "pipeline":
                given = {word.arg: word.value for word in decorator.keywords}.get("rowwise")
                return isinstance(given, ast.Constant) and given.value is True
    return None


def _silenced(source_text: str) -> dict[int, set[str]]:
    return {
        number: set(re.findall(r"L\d+", said[1]))
        for number, line in enumerate(source_text.splitlines(), 1)
        if (said := SILENCED.search(line))
    }


REMOVED: Final = {
    "jit_unspill": "enable_cudf_spill=True",
    "DASK_JIT_UNSPILL": "enable_cudf_spill=True",
    "explicit_comms": "the task or P2P shuffle of Dask",
    "shared_filesystem": "nothing: Dask-CUDA has no such option any more",
    "distributed.comm.ucx": "the keys distributed-ucxx.*",
    "dataframe.query-planning": "nothing: only the expression backend is left",
}
"""What RAPIDS and Dask took away → what stands in its place. Seen as a keyword, a name or inside a text."""

REMOVED_MODULES: Final = {
    "rapidsmpf.integrations.dask": "cudf-polars for operators over whole data",
    "dask_cuda.explicit_comms": "the task or P2P shuffle of Dask",
    "ucp": "distributed-ucxx",
}


FALLS_BACK: Final = "cudf.pandas falls back to pandas without a word"
ONE_ENGINE: Final = "no import: the frames that come are those of the engine"


def _anywhere(tree: ast.Module, modules: Mapping[str, str], report: Report) -> None:
    """The rules that need no frame: imports and names that must not stand anywhere in the file."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for name in _imported(node):
            for module, instead in REMOVED_MODULES.items():
                if name == module or name.startswith(f"{module}."):
                    report(node, "L17", f"{name} was removed or is of no use any more", instead)
            if name == "cudf.pandas" or name.startswith("cudf.pandas."):
                report(node, "L16", FALLS_BACK, ONE_ENGINE)
            elif name.partition(".")[0] in ("cudf", "dask_cudf"):
                report(
                    node,
                    "L18",
                    f"{name} is imported: the function would run on one engine only",
                    "`from etl import frames`, and column methods that both engines have",
                )
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "pandas"
            and isinstance(node.value, ast.Name)
            and modules.get(node.value.id) == "cudf"
        ):
            report(node, "L16", FALLS_BACK, ONE_ENGINE)
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        if text is not None and id(node) not in docstrings:
            if text == "mode.pandas_compatible":
                report(node, "L16", "the mode is off in every process of ours: columns raise with it", "no such option")
            for removed, instead in REMOVED.items():
                if text == removed or ("." in removed and text.startswith(f"{removed}.")):
                    report(node, "L17", f"{removed} was removed or is of no use any more", instead)
        if isinstance(node, ast.keyword) and node.arg in REMOVED:
            report(node.value, "L17", f"{node.arg}= was removed", REMOVED[node.arg])


def _imported(node: ast.AST) -> Iterator[str]:
    """The modules that an import statement names, the names it takes from them included."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        deeper = [name for name in names if name in REMOVED_MODULES or name == "cudf.pandas"]
        yield from deeper or [node.module]
