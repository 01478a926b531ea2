"""Twins: a transform's every operation is run twice, on a ghost of cuDF and on pandas, which gives the value.

A green run says: cuDF has the method and every keyword, its argument, dtype and "not implemented" checks accept the
call for these dtypes, libcudf compiles each pattern, and arguments whose default differs silently are given. It
cannot say any value, order, overflow or NULL that cuDF would give, what depends on data, or what cuDF checks after
the first CUDA call inside one method. So it is "accepted by cuDF", never "tested on a GPU".
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import cudf
import numpy as np
import pandas as pd
from cudf.core.groupby.groupby import DataFrameGroupBy, SeriesGroupBy
from cudf.core.resample import DataFrameResampler
from cudf.core.window.rolling import Rolling

from etl.engine import frames
from etl.planning.reckoning import rule_of_pattern
from tests.contract.ghosts import ContractError, ghost_of, means_no_driver, require_no_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

REQUIRED: Final = {
    ("DataFrame", "groupby"): "sort",
    ("Series", "groupby"): "sort",
    ("StringMethods", "replace"): "regex",
    ("DataFrame", "apply"): "axis",
}
"""Defaults that differ without an error: (pandas type of the receiver, method) → keyword that must be given."""
STATIC: Final = {
    "Rolling": Rolling,
    "DatetimeIndexResampler": DataFrameResampler,
    "DataFrameGroupBy": DataFrameGroupBy,
    "SeriesGroupBy": SeriesGroupBy,
}
"""Objects of which no ghost can be built (their constructors need the device): checked by name and signature."""
ACCESSORS: Final = ("str", "dt", "cat", "list", "struct", "loc", "iloc")
NAMES_COLUMNS: Final = ("assign", "agg")
HOST_METADATA: Final = ("dtypes", "dtype", "columns", "shape", "name", "empty")
HOST_COPIES: Final = ("values", "array")


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """One operation that was checked.

    Attributes:
        path: Where it hangs, without the way there: "Series.str.replace", "DataFrame.merge", "concat".
        keywords: The keywords that it was called with.
        outcome: "device": stopped at the first CUDA call; "host": finished; "static": name and signature only.
    """

    path: str
    keywords: tuple[str, ...]
    outcome: Literal["device", "host", "static"]


@dataclass(frozen=True, slots=True)
class Contract:
    """One check: makes twins and keeps the steps that they took."""

    steps: list[Step] = field(default_factory=list)

    def twin(self, frame: pd.DataFrame) -> Twin:
        """A frame with the dtypes of `gpu` frames, to hand to a transform."""
        require_no_driver()
        return Twin(self, frame)

    def module(self) -> Facade:
        """What stands where a transform expects the module of frames."""
        return Facade(self)

    def surface(self) -> dict[str, list[str]]:
        """Operation → the keywords that it was called with, all calls together; sorted. Those that name columns: **."""
        used: dict[str, set[str]] = {}
        for step in self.steps:
            named = step.path.rpartition(".")[2] in NAMES_COLUMNS and step.keywords
            used.setdefault(step.path, set()).update(["**"] if named else step.keywords)
        return {path: sorted(used[path]) for path in sorted(used)}

    def check(self, path: str, call: Callable[[], Any], keywords: tuple[str, ...] = ()) -> Any:
        """Run a call on ghosts; cuDF's result, or None where it stopped at the device.

        Raises:
            ContractError: cuDF refuses it, in its own words.
        """
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - whatever cuDF says is the finding
            if not means_no_driver(error):
                said = f"{type(error).__name__}: {str(error)[:160]}"
                raise ContractError(f"{path}: cuDF {cudf.__version__} refuses it: {said}") from None
            self.steps.append(Step(path, keywords, "device"))
            return None
        self.steps.append(Step(path, keywords, "host"))
        return result

    def step(
        self,
        path: str,
        on_pandas: Callable[..., Any],
        on_ghost: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """One operation on both sides."""
        words = kwargs or {}
        result = self.check(path, lambda: on_ghost(*_ghosts(args), **_ghosts(dict(words))), tuple(sorted(words)))
        given = [self._called_back(_values(one)) for one in args]
        said = {name: self._called_back(_values(one)) for name, one in words.items()}
        return self.wrap(on_pandas(*given, **said), result, path)

    def static_step(
        self, path: str, receiver: object, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """For an object without a ghost: the method exists, is no stub, and takes these arguments."""
        kind = STATIC.get(type(receiver).__name__)
        if kind is None:
            raise ContractError(f"{path}: cannot be checked without a device")
        if not hasattr(kind, name) or is_stub(getattr(kind, name)):
            raise ContractError(f"{path}: missing or only a stub in cuDF {cudf.__version__}")
        try:
            inspect.signature(getattr(kind, name)).bind(None, *args, **kwargs)
        except TypeError as error:
            raise ContractError(f"{path}: {error}") from None
        self.steps.append(Step(path, tuple(sorted(kwargs)), "static"))
        return self.wrap(getattr(receiver, name)(*_values(args), **_values(dict(kwargs))), None, path)

    def wrap(self, value: Any, result: Any, path: str) -> Any:
        """Frames, series and lazy objects stay twins; scalars are plain values, as they are in cuDF."""
        if isinstance(value, pd.DataFrame | pd.Series):
            return Twin(self, _with_null(value))
        if type(value).__name__ in STATIC:
            is_group = "GroupBy" in type(result).__name__  # built without the device: its methods run for real
            return Twin(self, value, result if is_group else None, path)
        return value

    def _called_back(self, given: Any) -> Any:
        """A function that is given to pandas (assign, pipe) is called with twins, so that its body is checked too."""
        if not callable(given) or isinstance(given, type):
            return given

        def call(*args: Any) -> Any:
            return value_of(
                given(*[Twin(self, one) if isinstance(one, pd.Series | pd.DataFrame) else one for one in args])
            )

        return call


def value_of(given: Any) -> Any:
    """The pandas result of a twin, or of what holds twins."""
    return _values(given)


def is_stub(function: Any) -> bool:
    """Whether a method's whole body is `raise …`: that is how cuDF marks what it does not support."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    body = tree.body[0].body if isinstance(tree.body[0], ast.FunctionDef) else []
    return bool(body) and isinstance(body[-1], ast.Raise) and all(isinstance(one, ast.Expr | ast.Raise) for one in body)


def _mapped(given: Any, pick: Callable[[Twin], Any]) -> Any:
    """What is given, with the twins in it replaced, inside lists, tuples and dicts too."""
    if isinstance(given, Twin):
        return pick(given)
    if type(given) in (list, tuple):
        return type(given)(_mapped(one, pick) for one in given)
    if type(given) is dict:
        return {key: _mapped(one, pick) for key, one in given.items()}
    return given


def _values(given: Any) -> Any:
    return _mapped(given, lambda twin: twin._value)


def _ghosts(given: Any) -> Any:
    return _mapped(given, lambda twin: twin._ghost)


def answer_for_twins(patch: Callable[[object, str, Any], None], contract: Contract) -> None:
    """Let `etl.frames` take twins for frames of cuDF, so that its own lines for cuDF are gone through too.

    Args:
        patch: Sets an attribute of a module until the test ends.
        contract: Whose twins they are.
    """
    root, library = frames._root, frames._library
    patch(frames, "_root", lambda frame: "cudf" if isinstance(frame, Twin) else root(frame))
    patch(frames, "_library", lambda frame: contract.module() if isinstance(frame, Twin) else library(frame))


def _as_cudf(value: Any, name: str) -> Any:
    """A method of cuDF that pandas lacks or means otherwise, on the pandas side."""
    if name == "astype" and isinstance(value, pd.Series):
        return lambda dtype: _cast_as_cudf(value, dtype)
    if name == "istimestamp":

        def istimestamp(format: str) -> Any:  # noqa: A002 - the word of cuDF
            parsed = pd.to_datetime(value._parent.astype("str"), format=format, errors="coerce")
            return parsed.dt.strftime(format) == value._parent

        return istimestamp
    return getattr(value, name)


def _cast_as_cudf(value: Any, dtype: Any) -> Any:
    """NULL stays NULL in a cast: numbers of cuDF have it, those of NumPy do not."""
    known = value.notna()
    if isinstance(dtype, str) and dtype.startswith("datetime64[") and value.dtype.kind in "iu":
        return value.fillna(0).astype("int64").astype(dtype).where(known)
    masked = re.fullmatch(r"(u?)(int|float)(\d+)", dtype) if isinstance(dtype, str) else None
    if masked is None:
        return value.astype(dtype)
    if value.dtype.kind in "mM":
        value = value.astype("int64").astype("Int64").where(known)
    return value.astype(f"{masked[1].upper()}{masked[2].title()}{masked[3]}")


def _with_null(value: Any) -> Any:
    """A plain float of NumPy comes from a step of pandas that made NULL into NaN: cuDF has NULL there."""
    if isinstance(value, pd.Series) and isinstance(value.dtype, np.dtype) and value.dtype.kind == "f":
        return value.astype("Float64").where(value.notna())
    return value


def _silent_rules(receiver: object, method: str, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """The differences at which nothing would raise, so they are rules."""
    kind = type(receiver).__name__
    needed = REQUIRED.get((kind, method))
    if needed and needed not in kwargs:
        raise ContractError(f"{path}: pass {needed}=, the defaults of pandas and cuDF differ")
    if kind == "StringMethods" and kwargs.get("regex", True):
        pattern = args[0] if args else kwargs.get("pat")
        if isinstance(pattern, str) and method not in ("split", "rsplit", "cat", "join", "startswith", "endswith"):
            why = rule_of_pattern(pattern)
            if why:
                raise ContractError(f"{path}: pattern {pattern!r}: {why[0]}; write {why[1]}")


class Twin:
    """A pandas object and its ghost: behaves like the first, and raises ContractError where cuDF would not go along."""

    _contract: Contract
    _value: Any
    _ghost: Any
    _path: str

    def __init__(self, contract: Contract, value: Any, ghost: Any = None, path: str = "") -> None:
        self.__dict__.update(
            _contract=contract,
            _value=value,
            _ghost=ghost_of(value) if ghost is None else ghost,
            _path=path or type(value).__name__,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        contract, value, ghost, path = self._contract, self._value, self._ghost, f"{self._path}.{name}"
        if ghost is None:
            return lambda *args, **kwargs: contract.static_step(path, value, name, args, kwargs)
        if name in HOST_METADATA:
            return getattr(value, name)
        if name in HOST_COPIES:
            raise ContractError(f"{path}: leaves the frame; stay in column methods until the edge")
        if name not in getattr(ghost, "columns", ()) and not hasattr(type(ghost), name):
            raise ContractError(f"{path}: no such attribute in cuDF {cudf.__version__}")
        member = _as_cudf(value, name)
        if name in ACCESSORS and isinstance(value, pd.DataFrame | pd.Series):
            return Twin(contract, member, contract.check(path, lambda: getattr(ghost, name)), path)
        if isinstance(member, pd.DataFrame | pd.Series):  # a property such as .dt.month, or a column
            return contract.step(path, lambda: member, lambda: getattr(ghost, name))
        if callable(member):

            def method(*args: Any, **kwargs: Any) -> Any:
                _silent_rules(value, name, path, args, kwargs)
                return contract.step(path, member, getattr(ghost, name), args, kwargs)

            return method
        return member

    def __setitem__(self, column: object, new: Any) -> None:
        if not isinstance(column, str):
            raise ContractError(f"{self._path}[...]=: assign whole columns by name")
        self._contract.check(f"{self._path}[]=", lambda: self._ghost.__setitem__(column, _ghosts(new)))
        self._replace(self._value.assign(**{column: _values(new)}))

    def __setattr__(self, name: str, new: Any) -> None:
        if name not in ("columns", "index", "name"):
            raise ContractError(f"{self._path}.{name}=: assign columns with df[name] = ...")
        self._contract.check(f"{self._path}.{name}=", lambda: setattr(self._ghost, name, _ghosts(new)))
        value = self._value.copy()
        setattr(value, name, _values(new))
        self._replace(value)

    def _replace(self, value: Any) -> None:
        self.__dict__.update(_value=value, _ghost=ghost_of(value))

    def __len__(self) -> int:
        return len(self._value)

    def __iter__(self) -> Iterator[str]:
        if isinstance(self._value, pd.DataFrame):
            return iter(self._value.columns)
        raise ContractError(f"{self._path}: cuDF does not iterate over rows")

    def __bool__(self) -> bool:
        raise ContractError(f"{self._path}: the truth value of a column is ambiguous")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise ContractError(f"numpy.{ufunc.__name__}.{method}: not a column operation")
        return self._contract.step(f"numpy.{ufunc.__name__}", ufunc, ufunc, args, kwargs)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise ContractError(f"{self._path}: cuDF refuses implicit copies to the host (np.where, np.asarray, ...)")

    def __repr__(self) -> str:
        return f"Twin({self._path})\n{self._value!r}"


def _applied(name: str, left: Any, *right: Any) -> Any:
    """An operator as Python applies it, so that the other side may answer."""
    if name in REVERSED:
        return getattr(operator, f"__{name[1:]}__")(right[0], left)
    return getattr(operator, f"__{name}__")(left, *right)


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: Twin, *args: Any) -> Any:
        path = f"{self._path}.__{name}__"
        if self._ghost is None:
            return self._contract.static_step(path, self._value, f"__{name}__", args, {})
        value, ghost = self._value, self._ghost
        return self._contract.step(
            path, lambda *given: _applied(name, value, *given), lambda *given: _applied(name, ghost, *given), args
        )

    return operate


REVERSED: Final = frozenset({"rpow", "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rand", "ror", "rxor"})
OPERATORS: Final = (
    *("getitem", "neg", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge"),
    *("pow", "add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"),
    *REVERSED,
)
for _name in OPERATORS:
    setattr(Twin, f"__{_name}__", _operator(_name))


class Facade:
    """Stands where a transform expects the module: xd.to_datetime, xd.concat, xd.DateOffset, …"""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not hasattr(cudf, name):
            raise ContractError(f"cudf.{name}: no such function in cuDF {cudf.__version__}")
        contract, on_pandas, on_ghost = self._contract, getattr(pd, name), getattr(cudf, name)
        if isinstance(on_ghost, type) and not issubclass(on_ghost, cudf.DataFrame | cudf.Series):
            # DateOffset: each library accepts only its own class. Of frames the values go to the device.
            return lambda *args, **kwargs: Twin(contract, on_pandas(*args, **kwargs), on_ghost(*args, **kwargs), name)
        return lambda *args, **kwargs: contract.step(name, on_pandas, on_ghost, args, kwargs)
