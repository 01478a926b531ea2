"""A step that calls a function of the user's, named and unchanged: the only code that a saved fit depends on."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError, UserCodeError
from etl.core.schema import Field, Schema, nearest
from etl.engine.door import carried
from etl.transforms.base import listed
from etl.transforms.columns import pairs_of
from etl.transforms.host import Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

_DTYPES: Final = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
    "string",
)


@dataclass(frozen=True, slots=True)
class Apply:
    """Columns that a function of a module makes of columns: `function(columns, valid)` → column → array.

    The function gets two dicts by column name, all arrays of shape (n,) and not to be written to: the values (numbers,
    bools, datetime64[us], datetime64[D], timedelta64[us], texts as objects; absent places hold 0, NaT or None), and
    bools that are True where a value is present. It gives a dict of exactly the columns of `returns`: an array of n
    values each, or a pair of that and bools. It must treat each row by itself: it is called for batches of any size,
    and for one row in serving. Its source's SHA-256 is saved, and another source is refused; what it calls is not
    looked at.

    Attributes:
        function: "package.module:name", or the function itself: importable, defined in the module, no lambda.
        columns: What it gets.
        returns: (column, dtype) pairs, given as a mapping: "bool", "int8" … "uint64", "float32", "float64", "string".
            A column that is there already is replaced.
        sha256: Of its source; "" is filled in.

    Raises:
        ConfigError: It is no such function, or no such dtype.
    """

    kind: ClassVar[str] = "apply"
    function: str
    columns: tuple[str, ...]
    returns: tuple[tuple[str, str], ...]
    sha256: str = ""

    def __init__(
        self,
        function: str | Callable[..., Any],
        columns: str | list[str] | tuple[str, ...],
        returns: Mapping[str, str] | Iterable[tuple[str, str]],
        sha256: str = "",
    ) -> None:
        name = function if isinstance(function, str) else _name_of(function)
        pairs = pairs_of(returns, "Apply", f'{name!r}, […], {{"made": "float32"}}')
        for column, dtype in pairs:
            if dtype not in _DTYPES:
                raise ConfigError(
                    f"Apply({name!r}): {column} is to be {dtype!r}", hint=nearest(dtype, _DTYPES, what="dtypes")
                )
        object.__setattr__(self, "function", name)
        object.__setattr__(self, "columns", listed(columns, "Apply"))
        object.__setattr__(self, "returns", pairs)
        # One that was saved is not imported to be read again, only to be used.
        object.__setattr__(self, "sha256", sha256 or _source_sha256(name))

    @property
    def reads(self) -> tuple[str, ...]:
        """What the function gets."""
        return self.columns

    @property
    def writes(self) -> tuple[str, ...]:
        """What it gives."""
        return tuple(name for name, _ in self.returns)

    def output_schema(self, given: Schema, /) -> Schema:
        """The columns, those that the function gives replaced or after the others.

        Raises:
            ConfigError: Its source is another than that which was saved, or it cannot be given such a column.
        """
        given.require(*self.columns)
        for name in self.columns:
            kind = given.field(name).type
            if not pa.types.is_dictionary(kind) and pa.types.is_nested(carried(kind, column=name)):
                raise ConfigError(
                    f"Apply({self.function!r}): {name} is {kind}, which has no place in an array",
                    hint="Use ListPad or ListPool first.",
                    column=name,
                )
        now = _source_sha256(self.function)
        if now != self.sha256:
            raise ConfigError(
                f"Apply({self.function!r}): its source has the SHA-256 {now[:12]}…, the fit was made with "
                f"{self.sha256[:12]}…: it would give other values",
                hint="Install the version that the fit was made with, or make a new fit.",
            )
        made = {name: Field(name, _kind(dtype)) for name, dtype in self.returns}
        fields = [made.pop(f.name, f) for f in given]
        return Schema((*fields, *made.values()))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with what the function gives.

        Raises:
            UserCodeError: It fails, or gives something else than was said.
        """
        del state
        columns, valid = {}, {}
        for name in self.columns:
            columns[name], valid[name] = _handed(rows[name], given.field(name).type)
        function = _found(self.function)
        try:
            given_back = function(columns, valid)
        except Exception as error:
            raise UserCodeError(
                f"{self.function}: {type(error).__name__}: {error}", hint=f"It got {rows.count} rows."
            ) from error
        return rows.with_columns(self._taken(given_back, rows.count))

    def _taken(self, given: Any, count: int) -> dict[str, Values]:
        """What the function gave as columns.

        Raises:
            UserCodeError: It is not what was said.
        """
        if not isinstance(given, Mapping):
            raise UserCodeError(f"{self.function} gave a {type(given).__name__}", hint="Return column → array.")
        missing = [name for name in self.writes if name not in given]
        extra = [str(name) for name in given if name not in self.writes]
        if missing or extra:
            said = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(extra)} too"] * bool(extra)
            raise UserCodeError(
                f"what {self.function} gave {' and '.join(said)}", hint=f"Declared are {', '.join(self.writes)}."
            )
        return {name: self._column(given[name], name, dtype, count) for name, dtype in self.returns}

    def _column(self, given: Any, name: str, dtype: str, count: int) -> Values:
        data, valid = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        arrays = (data,) if valid is None else (data, valid)
        for one in arrays:
            if not isinstance(one, np.ndarray) or one.shape != (count,):
                was = f"an array of shape {one.shape}" if isinstance(one, np.ndarray) else f"a {type(one).__name__}"
                raise UserCodeError(
                    f"{self.function} gave {was} for {name}, of {count} rows",
                    hint=f"Return arrays of shape ({count},).",
                )
        if valid is not None and valid.dtype != np.bool_:
            raise UserCodeError(f"{self.function} gave {valid.dtype} for where {name} is present, not bool")
        if dtype == "string":
            return Values(self._text(data, valid, name))
        want = np.dtype(dtype)
        if data.dtype != want and not (
            np.can_cast(data.dtype, want, "safe") or (data.dtype.kind == "f" and want.kind == "f")
        ):
            raise UserCodeError(
                f"{self.function} gave {data.dtype} for {name}, which is to be {dtype}",
                hint=f"Write .astype({dtype!r}) in it, or declare {str(data.dtype)!r}.",
            )
        with np.errstate(over="ignore"):
            made = data.astype(want)  # always a copy: what the function keeps is its own
        if want.kind == "f" and data.dtype.itemsize > want.itemsize:
            lost = np.isinf(made) & np.isfinite(data)
            lost = lost if valid is None else lost & valid
            if lost.any():
                raise UserCodeError(f"{self.function} gave {data[lost.argmax()]} for {name}, which is beyond {dtype}")
        return Values(made, None if valid is None or valid.all() else valid.copy())

    def _text(self, data: NDArray[Any], valid: NDArray[np.bool_] | None, name: str) -> Any:
        values = data.tolist() if valid is None else [v if p else None for v, p in zip(data, valid, strict=True)]
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UserCodeError(f"{self.function} gave no texts for {name}: {error}") from error


def _kind(dtype: str) -> pa.DataType:
    return pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))


def _handed(column: Values, kind: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values and where they are present, neither of which can be written to."""
    present, data = column.present, column.data
    if not isinstance(data, np.ndarray):
        data = np.array([*data.to_pylist(), None], object)[:-1]
    else:
        types = pa.types
        if types.is_date(kind):
            data = data.astype("datetime64[D]")
        elif types.is_timestamp(kind):
            data = data.view("datetime64[us]")
        elif types.is_time(kind) or types.is_duration(kind):
            data = data.view("timedelta64[us]")
        if column.nulls:
            nothing = data.dtype.type("NaT") if data.dtype.kind in "mM" else data.dtype.type(0)
            data = np.where(present, data, nothing)
    data, present = data.view(), present.view()
    data.flags.writeable = present.flags.writeable = False
    return data, present


def _name_of(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"


@lru_cache(maxsize=128)
def _found(name: str) -> FunctionType:
    """The function of that name.

    Raises:
        ConfigError: There is none, or it is none whose source says all.
    """
    where = f"Apply({name!r})"
    module, _, attribute = name.partition(":")
    example = 'Define it at the top of a module and write Apply("package.module:name", …).'
    if not module or "<" in attribute or not attribute.isidentifier() or module == "__main__":
        raise ConfigError(f"{where}: that names no function of a module", hint=example)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}", hint=f"{example} The module must be on Python's path.") from error
    if not isinstance(found, FunctionType):
        raise ConfigError(f"{where}: it is a {type(found).__name__}, not a function", hint=example)
    if found.__name__ == "<lambda>" or "<locals>" in found.__qualname__ or found.__closure__:
        raise ConfigError(
            f"{where}: it is a lambda, or defined within another function: its source does not say all of it",
            hint=example,
        )
    return found


@lru_cache(maxsize=128)
def _source_sha256(name: str) -> str:
    """The SHA-256 of a function's source, as it is when it stands at the margin.

    Raises:
        ConfigError: As `_found`; or there is no source.
    """
    try:
        source = inspect.getsource(_found(name))
    except (OSError, TypeError) as error:
        raise ConfigError(f"Apply({name!r}): its source cannot be read: {error}") from error
    return hashlib.sha256(textwrap.dedent(source).encode()).hexdigest()
