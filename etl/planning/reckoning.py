"""What the checker of `etl/planning/lint.py` knows of each expression, and the rules that hang on it.

The statements of a function are gone through once, in order, each expression exactly once. A value that does not come
from the function's frames is "other", of which no rule says anything.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Kind: TypeAlias = Literal["frame", "series", "group", "window", "accessor", "module", "list", "other"]


class Report(Protocol):
    """Takes one finding."""

    def __call__(self, node: ast.AST, rule: str, message: str, rewrite: str) -> None:
        """Of this node, against this rule: what is wrong and what to write."""


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is.

    Attributes:
        kind: A group is what `groupby` gives, a window what `rolling` and `resample` give.
        name: Of a module: its dotted name; of an accessor: "str", "dt".
        dtype: Of a series: "int32", "float64", "string"; "" where nobody said.
        columns: Of a frame: what is known of its columns.
        dask: A Dask collection, or of one.
        ordered: Its rows are in an order that both engines give.
        null: Of a series: a comparison in which a NULL stays NULL on one engine.
        no_nan: Of a series: NaN was made NULL.
        no_zero: Of a series: zeros were taken out.
        compares: Of a series: the columns that it compares with 0.
    """

    kind: Kind = "other"
    name: str = ""
    dtype: str = ""
    columns: Mapping[str, Value] = field(default_factory=dict)
    dask: bool = False
    ordered: bool = True
    null: bool = False
    no_nan: bool = False
    no_zero: bool = False
    compares: frozenset[str] = frozenset()


OTHER: Final = Value()


@dataclass(frozen=True, slots=True)
class Call:
    """A method called on a value: its arguments as text and as values, and the names that are known there."""

    node: ast.Call
    name: str
    whole: Value
    given: Sequence[Value]
    words: Mapping[str, ast.expr]
    said: Mapping[str, Value]
    names: dict[str, Value]
    open_words: bool


DTYPE: Final = re.compile(r"u?int(8|16|32|64)|float(16|32|64)")
COMPARISONS: Final = frozenset({"gt", "ge", "lt", "le", "eq", "ne", "between"})
CLOSED: Final = frozenset({"isin", "isna", "isnull", "notna", "notnull", "duplicated"})
REDUCTIONS: Final = frozenset({"sum", "mean", "min", "max", "std", "var", "median", "prod", "quantile"})
BY_ORDER: Final = frozenset(
    {"head", "tail", "shift", "diff", "cumsum", "cumprod", "cummax", "cummin", "cumcount", "first", "last", "nth"}
    | {"rolling", "ffill", "bfill", "drop_duplicates", "duplicated"}
)
ROWS_OF_GROUPS: Final = frozenset(
    {"transform", "cumcount", "cumsum", "cumprod", "cummax", "cummin", "shift", "diff", "rank", "ngroup"}
)
SORTS: Final = frozenset({"sort_values", "sort_index", "nlargest", "nsmallest"})
FRAMES: Final = frozenset(
    {"head", "tail", "sort_values", "sort_index", "drop", "dropna", "drop_duplicates", "reset_index", "set_index"}
    | {"fillna", "copy", "persist", "repartition", "where", "mask", "shift", "diff", "cumsum", "round", "clip", "abs"}
    | {"rename", "reindex", "sample", "nlargest", "nsmallest", "explode", "ffill", "bfill", "add_prefix", "add_suffix"}
)
"""Methods of a frame that give a frame with the same columns, as far as they are kept."""
SAME_TYPE: Final = frozenset(
    {"fillna", "where", "mask", "clip", "abs", "round", "shift", "ffill", "bfill", "sort_values", "reset_index", "head"}
    | {"tail", "drop_duplicates", "rename", "copy", "dropna", "cummax", "cummin"}
)
"""Methods of a series that give a series of its type."""
ITERATION: Final = frozenset({"iterrows", "itertuples", "iteritems", "items"})
PATTERNS: Final = frozenset({"contains", "match", "fullmatch", "extract", "extractall", "findall", "count"})

UNPORTABLE: Final = (
    (re.compile(r"\(\?<?[=!]"), "look-around is refused by libcudf", "two conditions"),
    (re.compile(r"\(\?>|[*+?}]\+"), "atomic and possessive parts are refused by libcudf", "a plain repetition"),
    (re.compile(r"\(\?[aiLmsux-]+[:)]"), "flags inside a pattern are refused by libcudf", "flags= where it is taken"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]"), "libcudf takes a back-reference for an octal code", "two steps"),
    (re.compile(r"\[\[?[:.=][a-z]+[:.=]\]"), "POSIX classes have another meaning", "the characters, as [A-Za-z]"),
    (re.compile(r"\{,\d"), "{,n} has another meaning", "{0,n}"),
    (re.compile(r"(?<!\\)\(\)"), "an empty group has another meaning", "no group"),
    (
        re.compile(r"(?<!\\)(?:\\\\)*\\[dDwWsS]"),
        r"\d, \w and \s are ASCII in some methods of pandas and Unicode in others and in cuDF",
        "[0-9], [A-Za-z0-9_], [ \\t\\r\\n]",
    ),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[zpP]"), r"\z and \p are refused by libcudf", r"\Z, or the characters"),
    (re.compile(r"\{\d{4,}"), "repetitions of 1000 and more are refused by libcudf", "a smaller repetition"),
)


def rule_of_pattern(pattern: str) -> tuple[str, str] | None:
    """Why libcudf reads a pattern otherwise, and what to write; None: it does not."""
    return next(((why, rewrite) for found, why, rewrite in UNPORTABLE if found.search(pattern)), None)


def _modules(tree: ast.Module) -> dict[str, str]:
    """Name in the file → dotted module, or what was taken from one: {"pd": "pandas"}, {"merge": "pandas.merge"}."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _short(module: str) -> str:
    """Modules of frames under one name each."""
    if module in ("etl.frames", "etl.engine.frames"):
        return "frames"
    return {"dask.dataframe": "dd", "pandas": "pd", "numpy": "np", "cudf": "xd", "dask_cudf": "dd"}.get(module, module)


class Reckoner:
    """Goes through functions of one file. Holds the findings' taker and the functions that it is in."""

    def __init__(self, tree: ast.Module, report: Report) -> None:
        """A file's functions, imports and constants."""
        self.report = report
        self.modules = _modules(tree)
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.texts = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and isinstance(node.value.value, str)
        }
        self.inside: list[str] = []

    # ---- functions and statements

    def function(self, node: ast.FunctionDef | ast.Lambda, given: Mapping[str, Value]) -> Value:
        """Go through a function whose arguments are these; what it gives back."""
        names = dict(given)
        if isinstance(node, ast.Lambda):
            return self.value(node.body, names)
        if node.name in self.inside or len(self.inside) > 8:
            return OTHER
        self.inside.append(node.name)
        returned: list[Value] = []
        self._statements(node.body, names, returned)
        self.inside.pop()
        return returned[-1] if returned else OTHER

    def _statements(self, body: Sequence[ast.stmt], names: dict[str, Value], returned: list[Value]) -> None:
        for statement in body:
            self._statement(statement, names, returned)

    def _statement(self, node: ast.stmt, names: dict[str, Value], returned: list[Value]) -> None:
        match node:
            case ast.Assign(targets=targets, value=expression):
                value = self.value(expression, names)
                for target in targets:
                    self._assign(target, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as expression):
                self._assign(target, self.value(expression, names), names)
            case ast.AugAssign(target=target, op=op, value=expression):
                left = self.value(_loaded(target), names)
                self._assign(target, self._arithmetic(node, op, left, self.value(expression, names)), names)
            case ast.Return(value=ast.expr() as expression):
                returned.append(self.value(expression, names))
            case ast.Expr(value=expression):
                self.value(expression, names)
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                self._iterated(iterated, self.value(iterated, names))
                self._assign(target, OTHER, names)
                self._statements([*body, *orelse], names, returned)
            case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                self.value(test, names)
                self._statements([*body, *orelse], names, returned)
            case ast.With(items=items, body=body):
                for item in items:
                    self.value(item.context_expr, names)
                self._statements(body, names, returned)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self._statements(body, names, returned)
                for handler in handlers:
                    self._statements(handler.body, names, returned)
                self._statements([*orelse, *finalbody], names, returned)
            case ast.FunctionDef(name=name):
                self.functions.setdefault(name, node)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child, names)

    def _assign(self, target: ast.expr, value: Value, names: dict[str, Value]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._assign(part, OTHER, names)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as column)):
                if names.get(name, OTHER).kind == "frame":
                    new = value if value.kind == "series" else Value("series")
                    names[name] = replace(names[name], columns={**names[name].columns, column: new})
            case ast.Subscript(value=whole, slice=key):
                self._masked(key, self.value(whole, names), self.value(key, names))
            case _:
                pass

    def _iterated(self, node: ast.expr, value: Value) -> None:
        if value.kind == "series":
            self.report(node, "L14", "a loop over the values of a column", "column methods")

    # ---- expressions

    def value(self, node: ast.expr, names: dict[str, Value]) -> Value:
        """What an expression is; its findings are reported on the way."""
        match node:
            case ast.Name(id=name):
                if name in names:
                    return names[name]
                return Value("module", name=_short(self.modules[name])) if name in self.modules else OTHER
            case ast.Attribute():
                return self._attribute(node, names)
            case ast.Call():
                return self._call(node, names)
            case ast.Subscript(value=whole, slice=key):
                return self._subscript(self.value(whole, names), key, self.value(key, names), whole)
            case ast.Compare(left=left, comparators=comparators):
                return self._compared(node, [self.value(one, names) for one in [left, *comparators]])
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(node, op, self.value(left, names), self.value(right, names))
            case ast.UnaryOp(operand=operand):
                return self.value(operand, names)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.value(test, names)
                self.value(orelse, names)
                return self.value(body, names)
            case ast.Lambda():
                return OTHER
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                held = [self.value(part, names) for part in parts]
                columns = [one for one in held if one.kind in ("frame", "series")]
                return Value("list", dask=any(one.dask for one in columns)) if columns else OTHER
            case ast.NamedExpr(target=target, value=expression):
                value = self.value(expression, names)
                self._assign(target, value, names)
                return value
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = dict(names)
                for part in node.generators:
                    self._iterated(part.iter, self.value(part.iter, inner))
                    self._assign(part.target, OTHER, inner)
                for part in node.generators:
                    for test in part.ifs:
                        self.value(test, inner)
                for result in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
                    self.value(result, inner)
                return OTHER
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child, names)
                return OTHER

    def _attribute(self, node: ast.Attribute, names: dict[str, Value]) -> Value:
        whole, name = self.value(node.value, names), node.attr
        if whole.kind == "module":
            dotted = f"{whole.name}.{name}"
            if dotted in ("np.where", "np.select"):
                return Value("module", name=dotted)
            return Value("module", name=_short(dotted) if dotted.startswith(("etl.", "dask.")) else dotted)
        if whole.kind in ("frame", "series") and name == "values":
            self.report(node, "L14", ".values leaves the frame for an array of the host", "column methods")
            return OTHER
        if whole.kind == "series":
            if name in ("str", "dt", "cat", "list", "struct"):
                return Value("accessor", name=name, dask=whole.dask)
            return whole if name in ("loc", "iloc") else OTHER
        if whole.kind == "accessor":
            return Value("series", dask=whole.dask)
        if whole.kind == "frame":
            if name == "iloc":
                self._needs_order(node, "iloc", whole)
            if name in ("loc", "iloc"):
                return whole
            if name not in ("columns", "index", "shape", "dtypes", "empty", "size", "ndim", "attrs", "T"):
                return whole.columns.get(name, Value("series", dask=whole.dask, ordered=whole.ordered))
        return OTHER

    def _subscript(self, whole: Value, key: ast.expr, index: Value, node: ast.expr) -> Value:
        if whole.kind == "group":
            return whole
        if whole.kind in ("frame", "series"):
            self._masked(key, whole, index)
        if whole.kind == "series":
            return whole if index.kind == "series" or isinstance(key, ast.Slice) else OTHER
        if whole.kind == "accessor":
            return Value("series", dask=whole.dask)
        if whole.kind != "frame":
            return OTHER
        if isinstance(key, ast.Tuple) and isinstance(node, ast.Attribute):  # .loc[rows, columns]
            key = key.elts[-1]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            known = whole.columns.get(key.value, Value("series"))
            return replace(known, dask=whole.dask, ordered=whole.ordered, name=key.value)
        if isinstance(key, ast.List | ast.Slice):
            return whole
        if index.kind == "series":
            kept = {name: replace(column, no_zero=True) for name, column in _named(whole, index.compares).items()}
            return replace(whole, columns={**whole.columns, **kept})
        return OTHER

    def _masked(self, key: ast.expr, whole: Value, index: Value) -> None:
        if isinstance(key, ast.Tuple) and key.elts:
            return
        if whole.kind in ("frame", "series") and index.kind == "series" and index.null:
            self._open_mask(key)

    def _open_mask(self, node: ast.expr) -> None:
        self.report(
            node,
            "L6",
            "a comparison with NULL is NULL on one engine and False or True on the other",
            "(…).fillna(False) around every comparison in a mask",
        )

    def _compared(self, node: ast.Compare, values: list[Value]) -> Value:
        series = [value for value in values if value.kind == "series"]
        if not series or not all(
            isinstance(op, ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
        ):
            return OTHER
        zero = len(node.ops) == 1 and isinstance(node.ops[0], ast.NotEq | ast.Gt | ast.Lt)
        zero = zero and any(isinstance(one, ast.Constant) and one.value == 0 for one in node.comparators)
        compares = frozenset(value.name for value in series if value.name) if zero else frozenset()
        return Value("series", dask=any(value.dask for value in series), null=True, compares=compares)

    def _arithmetic(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        series = [value for value in (left, right) if value.kind == "series"]
        if not series:
            return left if left.kind == "frame" else OTHER
        dask = any(value.dask for value in series)
        if isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
            compares = left.compares | right.compares if isinstance(op, ast.BitAnd) else frozenset()
            return Value("series", dask=dask, null=any(value.null for value in series), compares=compares)
        if isinstance(op, ast.Div) and left.kind == right.kind == "series":
            narrow = [value.dtype for value in series if re.fullmatch(r"u?int(8|16|32)", value.dtype)]
            if len(narrow) == 2:
                self.report(
                    node,
                    "L11",
                    f"{left.dtype} / {right.dtype} is float64 in pandas and float32 in cuDF",
                    '.astype("float64") on both sides',
                )
                return Value("series", dtype="float64", dask=dask)
        if isinstance(op, ast.FloorDiv | ast.Mod) and right.kind == "series":
            whole_numbers = right.dtype == "" or right.dtype.startswith(("int", "uint"))
            if whole_numbers and not right.no_zero:
                sign = "//" if isinstance(op, ast.FloorDiv) else "%"
                self.report(
                    node,
                    "L11",
                    f"{sign} by a column: where it is 0, pandas gives 0 and cuDF makes the column float64",
                    "the divisor as y.where((y != 0).fillna(False))",
                )
        same = {value.dtype for value in series}
        kept = same.pop() if len(same) == 1 and not isinstance(op, ast.Div) else ""
        return Value("series", dtype=kept if DTYPE.fullmatch(kept) else "", dask=dask)

    # ---- calls

    def _call(self, node: ast.Call, names: dict[str, Value]) -> Value:
        words = {word.arg: word.value for word in node.keywords if word.arg}
        open_words = any(word.arg is None for word in node.keywords)
        if isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
            value = self.value(node.args[0], names)
            if value.kind in ("frame", "series") and value.dask:
                self.report(node, "L14", "len() of a Dask collection computes all of it", "no branch on the length")
            return OTHER
        whole = self.value(node.func.value, names) if isinstance(node.func, ast.Attribute) else OTHER
        given = [self.value(one.value if isinstance(one, ast.Starred) else one, names) for one in node.args]
        said = {word.arg or "": self.value(word.value, names) for word in node.keywords}
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in self.functions:
                return self.function(self.functions[name], self._bound(self.functions[name], given, said))
            if name in self.modules:
                return self._module_call(node, _short(self.modules[name]), given, words, open_words=open_words)
            if name in ("list", "tuple", "set", "sorted", "zip", "map", "enumerate"):
                for one, value in zip(node.args, given, strict=True):
                    self._iterated(one, value)
            return OTHER
        if not isinstance(node.func, ast.Attribute):
            return OTHER
        if whole.kind == "module":
            return self._module_call(node, f"{whole.name}.{node.func.attr}", given, words, open_words=open_words)
        take: Callable[[Call], Value] | None = {
            "frame": self._frame_call,
            "series": self._series_call,
            "group": self._group_call,
            "window": self._window_call,
            "accessor": self._accessor_call,
        }.get(whole.kind)
        if take is None:
            return OTHER
        return take(Call(node, node.func.attr, whole, given, words, said, names, open_words))

    def _bound(self, function: ast.FunctionDef, given: Sequence[Value], said: Mapping[str, Value]) -> dict[str, Value]:
        arguments = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        return {**dict(zip(arguments, given, strict=False)), **said}

    def _called_with(self, node: ast.expr, value: Value, names: dict[str, Value]) -> Value:
        """What a function that is handed over gives when it is called with this value."""
        if isinstance(node, ast.Lambda):
            arguments = [argument.arg for argument in node.args.args]
            return self.function(node, {**names, **dict.fromkeys(arguments[:1], value)})
        if isinstance(node, ast.Name) and node.id in self.functions:
            return self.function(self.functions[node.id], self._bound(self.functions[node.id], [value], {}))
        return OTHER

    def _module_call(
        self, node: ast.Call, name: str, given: Sequence[Value], words: Mapping[str, ast.expr], *, open_words: bool
    ) -> Value:
        module, _, called = name.rpartition(".")
        dask = any(value.dask for value in given)
        first = given[0] if given else OTHER
        if called in ("hash_pandas_object", "hash_values"):
            self._hashes(node, called)
        if called == "set_option" or module.endswith("options"):
            return OTHER
        if module == "np":
            if called in ("where", "select") and any(value.kind in ("series", "list") for value in given):
                self.report(node, "L14", f"np.{called} leaves the frame for an array", "series.where(condition, other)")
                return OTHER
            return Value("series", dask=dask) if first.kind == "series" else OTHER
        if module not in ("pd", "xd", "dd", "frames"):
            return OTHER
        if called == "DateOffset" and module == "pd":
            self.report(node, "L13", "cuDF adds only a DateOffset of its own", "frames.DateOffset(…)")
            return OTHER
        if called == "to_datetime":
            if module == "pd":
                self.report(node, "L13", "pandas parses only its own columns", "frames.to_datetime(…, format=…)")
            if not open_words and "format" not in words and "unit" not in words:
                self.report(
                    node,
                    "L8",
                    "to_datetime without format= guesses: pandas by the first value, cuDF refuses mixed lengths",
                    'format="%Y-%m-%d" or what the text is in, one for the whole column',
                )
            return Value("series", dtype="timestamp", dask=dask)
        if called == "concat":
            if "keys" in words:
                self.report(node, "L9", "concat(keys=) is refused by cuDF", "a column of its own before concat")
            return Value("frame", dask=dask or module == "dd", ordered=False)
        if called == "merge":
            self._merge_words(node, words)
            return Value("frame", dask=dask, ordered=False)
        if called == "get_dummies":
            return Value("frame", dask=dask)
        if called in ("is_nan", "is_null"):
            return Value("series", dask=dask)
        if called == "nan_to_null":
            return replace(first, no_nan=True)
        if called == "fill_null":
            return first
        if called in ("anti_join", "semi_join"):
            return first
        if called == "to_int":
            return Value("series", dtype=_text(words.get("dtype") or (node.args[1] if len(node.args) > 1 else None)))
        if called in ("to_numeric", "cut", "parse_datetime", "floor_time"):
            return Value("series", dask=dask)
        return OTHER

    def _hashes(self, node: ast.AST, name: str) -> None:
        self.report(node, "L15", f"{name} gives other numbers on each engine", "the split of the sink, by a key")

    def _merge_words(self, node: ast.Call, words: Mapping[str, ast.expr]) -> None:
        instead = {
            "indicator": "a column of ones on one side, and is_null of it after the merge",
            "validate": "a check of .duplicated() on the keys",
        }
        for word in instead.keys() & words.keys():
            if not _is_off(words[word]):
                self.report(node, "L9", f"merge({word}=) is refused by cuDF", instead[word])

    def _needs_order(self, node: ast.AST, name: str, whole: Value) -> None:
        if not whole.ordered and not whole.dask:
            self.report(
                node,
                "L5",
                f"{name} counts on the order of rows, which merge, concat and groupby do not promise",
                'a sort by a unique key before it: .sort_values([…], kind="stable")',
            )

    def _nan_counts(self, node: ast.AST, name: str, column: str, series: Value) -> None:
        if series.dtype.startswith("float") and not series.no_nan:
            self.report(
                node,
                "L10",
                f"{name} of a float column{f' ({column})' if column else ''}: NaN is missing for cuDF and a value for "
                "pandas",
                "frames.nan_to_null(series) first, or frames.is_null and frames.fill_null",
            )

    def _frame_call(self, call: Call) -> Value:
        node, name, whole, words = call.node, call.name, call.whole, call.words
        if name == "groupby":
            return self._grouped(node, whole, words, open_words=call.open_words)
        if name in BY_ORDER:
            self._needs_order(node, name, whole)
        if name in ITERATION or name in ("to_numpy", "to_records", "to_dict"):
            if name in ITERATION and name != "items":
                self.report(node, "L14", f".{name}() goes through rows one by one in Python", "column methods")
            return OTHER
        if name == "apply":
            if "axis" not in words and len(node.args) < 2 and not call.open_words:
                self.report(
                    node, "L3", "the default axis of DataFrame.apply is 0 in pandas and 1 in cuDF", "axis= explicitly"
                )
            return OTHER
        if name == "sample":
            self.report(node, "L15", "sample() takes other rows on each engine", "a filter on a key, or the split")
        if name in ("merge", "join"):
            self._merge_words(node, words)
            return Value("frame", columns=whole.columns, dask=whole.dask, ordered=False)
        if name == "sort_values":
            self._sort_words(node, words)
        if name in ("dropna", "isna", "isnull", "notna", "fillna", *REDUCTIONS):
            self._nan_in(node, name, whole, words)
        if name == "astype":
            return self._cast_frame(node, whole)
        if name == "assign":
            return self._assigned(call)
        if name in ("pipe", "map_partitions") and node.args:
            value = replace(whole, dask=whole.dask and name == "pipe")
            result = self._called_with(node.args[0], value, call.names)
            result = result if result.kind != "other" else Value("frame")
            return replace(result, dask=whole.dask, ordered=True)
        if name in ("rolling", "resample", "expanding"):
            return Value("window", dask=whole.dask)
        if name == "rename":
            return replace(whole, columns=_renamed(whole.columns, words.get("columns")))
        if name in ("eval", "pop", "squeeze"):
            return Value("series", dask=whole.dask)
        if name in FRAMES:
            return replace(whole, ordered=whole.ordered or name in SORTS)
        if name in ("melt", "pivot_table", "pivot", "stack", "isna", "notna", "isin"):
            return Value("frame", dask=whole.dask)
        return OTHER

    def _grouped(self, node: ast.Call, whole: Value, words: Mapping[str, ast.expr], *, open_words: bool) -> Value:
        if "sort" not in words and not whole.dask and not open_words:
            self.report(
                node,
                "L1",
                "groups have the order of their keys in pandas and none in cuDF",
                "groupby(…, sort=True)",
            )
        rising = isinstance(sort := words.get("sort"), ast.Constant) and sort.value is True
        # Whether rows were in order before matters for what depends on it inside a group; after it, whether it sorts.
        return Value("group", dask=whole.dask, ordered=whole.ordered, no_zero=rising)

    def _sort_words(self, node: ast.Call, words: Mapping[str, ast.expr]) -> None:
        for word, instead in (("key", "a column of its own to sort by"), ("inplace", "df = df.sort_values(…)")):
            given = words.get(word)
            if given is not None and not _is_off(given):
                self.report(node, "L9", f"sort_values({word}=) is refused by cuDF", instead)

    def _nan_in(self, node: ast.Call, name: str, whole: Value, words: Mapping[str, ast.expr]) -> None:
        among = words.get("subset") or words.get("value")
        wanted = _texts(among) if among is not None else None
        if among is not None and wanted is None:
            return
        for column, series in whole.columns.items():
            if wanted is None or column in wanted:
                self._nan_counts(node, name, column, series)

    def _cast_frame(self, node: ast.Call, whole: Value) -> Value:
        into = node.args[0] if node.args else None
        if not isinstance(into, ast.Dict):
            return replace(whole, columns={})
        columns = dict(whole.columns)
        for key, dtype in zip(into.keys, into.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                columns[key.value] = self._cast(dtype, columns.get(key.value, Value("series")), dtype)
        return replace(whole, columns=columns)

    def _cast(self, node: ast.AST, series: Value, into: ast.expr | None) -> Value:
        dtype = _text(into)
        if dtype == "Float64" or (isinstance(into, ast.Call) and _last(into.func) == "Float64Dtype"):
            self.report(
                node, "L16", 'a cast to "Float64" turns NaN into NULL on cuDF and keeps it on pandas', '"float64"'
            )
            return Value("series", dtype="float64", dask=series.dask)
        dtype = dtype.lower() if DTYPE.fullmatch(dtype.lower()) else ""
        whole, old = re.fullmatch(r"u?int(\d+)", dtype), re.fullmatch(r"u?int(\d+)", series.dtype)
        narrower = bool(whole and old) and (
            int(old[1]) > int(whole[1]) or series.dtype.startswith("u") != dtype.startswith("u")  # type: ignore[index]
        )
        widened = bool(whole and old) and series.dtype.startswith("u") and int(whole[1]) > int(old[1])  # type: ignore[index]
        if whole and (series.dtype.startswith("float") or (narrower and not widened)):
            self.report(
                node,
                "L12",
                f"a cast from {series.dtype} to {dtype} cuts off, wraps or, for NaN, gives any number without an error",
                f'frames.to_int(series, "{dtype}")',
            )
        return Value("series", dtype=dtype, dask=series.dask, ordered=series.ordered)

    def _assigned(self, call: Call) -> Value:
        columns = dict(call.whole.columns)
        for column, given in call.words.items():
            value = call.said[column]
            if value.kind == "other":  # a function of the frame, which has the columns before it already
                value = self._called_with(given, replace(call.whole, columns=columns), call.names)
            columns[column] = value if value.kind == "series" else Value("series")
        return replace(call.whole, columns=columns)

    def _series_call(self, call: Call) -> Value:
        node, name, whole, words, given = call.node, call.name, call.whole, call.words, call.given
        if name == "groupby":
            return self._grouped(node, whole, words, open_words=call.open_words)
        if name in BY_ORDER:
            self._needs_order(node, name, whole)
        if name in ("tolist", "to_list", "items", "iteritems"):
            self.report(node, "L14", f".{name}() leaves the frame for Python values", "column methods")
            return OTHER
        if name == "sample":
            self.report(node, "L15", "sample() takes other rows on each engine", "a filter on a key, or the split")
        if name == "hash_values":
            self._hashes(node, name)
        if name == "sort_values":
            self._sort_words(node, words)
        if name == "astype":
            return self._cast(node, whole, words.get("dtype") or (node.args[0] if node.args else None))
        if name in ("fillna", "isna", "isnull", "notna", "notnull", "dropna", *REDUCTIONS):
            self._nan_counts(node, name, whole.name, whole)
        if name in ("where", "mask"):
            return self._kept_where(node, name, whole, given)
        if name in COMPARISONS:
            zero = name in ("ne", "gt", "lt") and node.args and _constant(node.args[0]) == 0
            compares = frozenset({whole.name}) if zero and whole.name else frozenset()
            return Value("series", dask=whole.dask, null=True, compares=compares)
        if name in CLOSED:
            return Value("series", dask=whole.dask)
        if name == "fillna":
            return replace(whole, null=False, no_zero=whole.no_zero)
        if name in REDUCTIONS or name in ("count", "nunique", "any", "all", "item"):
            return OTHER
        if name in ("floordiv", "mod", "rfloordiv", "rmod") and given and given[0].kind == "series":
            op = ast.FloorDiv() if "floordiv" in name else ast.Mod()
            pair = (whole, given[0]) if not name.startswith("r") else (given[0], whole)
            return self._arithmetic(node, op, *pair)
        if name in ("rolling", "resample", "expanding"):
            return Value("window", dask=whole.dask)
        if name == "to_frame":
            return Value("frame", dask=whole.dask, ordered=whole.ordered)
        if name == "clip":
            low = _constant(words.get("lower") or (node.args[0] if node.args else None))
            return replace(whole, no_zero=whole.no_zero or (isinstance(low, int | float) and low > 0))
        if name in SAME_TYPE:
            return replace(whole, ordered=whole.ordered or name in SORTS)
        return Value("series", dask=whole.dask) if name not in ("to_numpy", "to_arrow", "to_dict") else OTHER

    def _kept_where(self, node: ast.Call, name: str, whole: Value, given: Sequence[Value]) -> Value:
        condition = given[0] if given else OTHER
        if condition.kind == "series" and condition.null:
            self._open_mask(node.args[0])
        guarded = name == "where" and (not whole.name or whole.name in condition.compares)
        return replace(whole, no_zero=whole.no_zero or guarded)

    def _group_call(self, call: Call) -> Value:
        node, name, whole, words = call.node, call.name, call.whole, call.words
        if name == "sum" and "min_count" not in words and not call.open_words:
            self.report(
                node, "L4", "the sum of a group that is all NULL is 0 in pandas and NULL in cuDF", ".sum(min_count=1)"
            )
        if name in BY_ORDER:
            self._needs_order(node, f"groupby.{name}", whole)
        if name in (
            "transform",
            "cumcount",
            "cumsum",
            "cumprod",
            "cummax",
            "cummin",
            "shift",
            "diff",
            "rank",
            "ngroup",
        ):
            return Value("series", dask=whole.dask, ordered=whole.ordered)
        if name in ("rolling", "resample"):
            return Value("window", dask=whole.dask)
        if name in ("head", "tail"):
            return Value("frame", dask=whole.dask, ordered=whole.ordered)
        # A result of one column is a series, of several a frame; what both have is enough for the rules on order.
        return Value("frame", dask=whole.dask, ordered=whole.no_zero)

    def _window_call(self, call: Call) -> Value:
        return Value("series", dask=call.whole.dask)

    def _accessor_call(self, call: Call) -> Value:
        node, name, whole, words = call.node, call.name, call.whole, call.words
        result = Value("series", dask=whole.dask)
        if whole.name != "str":
            return result
        if name == "replace" and "regex" not in words and len(node.args) < 6 and not call.open_words:
            self.report(
                node, "L2", "str.replace takes a text in pandas and a pattern in cuDF", "regex=False or regex=True"
            )
        regex = _constant(words.get("regex"))
        patterned = (name in PATTERNS and regex is not False) or (name in ("replace", "split") and regex is True)
        pattern = words.get("pat") or (node.args[0] if node.args else None)
        text = self.texts.get(pattern.id, "") if isinstance(pattern, ast.Name) else _text(pattern)
        if patterned and (why := rule_of_pattern(text)):
            self.report(node, "L7", f"pattern {text!r}: {why[0]}", why[1])
        return result


def _loaded(target: ast.expr) -> ast.expr:
    """An assignment's target as an expression that is read."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _named(whole: Value, columns: frozenset[str]) -> dict[str, Value]:
    return {name: whole.columns.get(name, Value("series")) for name in columns}


def _is_off(node: ast.expr) -> bool:
    """Whether an argument is given as None or False."""
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _text(node: ast.expr | None) -> str:
    """A constant's text; np.int32 and int as their names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return {"int": "int64", "float": "float64"}.get(node.id, "")
    return ""


def _texts(node: ast.expr) -> frozenset[str] | None:
    """The names in a list, the keys of a dictionary, or one name; None: not known from the text."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else node.keys if isinstance(node, ast.Dict) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return frozenset(texts) if len(texts) == len(parts) else None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _renamed(columns: Mapping[str, Value], names: ast.expr | None) -> dict[str, Value]:
    """Columns under their new names; nothing is known any more where the names are no plain dictionary."""
    if not isinstance(names, ast.Dict):
        return {}
    new = {
        key.value: value.value
        for key, value in zip(names.keys, names.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    }
    return {str(new.get(name, name)): value for name, value in columns.items()}
