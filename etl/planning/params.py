"""A pipeline's parameters: typed, checked before anything runs, the same from the command line and from Python."""

from __future__ import annotations

import csv
import json
import keyword
import re
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from etl.core.errors import ConfigError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESERVED = ("engine", "workers", "resume", "record")
"""Names that `run` and `plan` take for themselves."""

SCALARS = (int, float, bool, str, date, datetime, Decimal)
_VALUE = "value"
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ISO_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_HINTS = "Types are int, float, bool, str, date, datetime, Decimal, Literal[...] and list[...] of one of them."


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its type, and whether and which value stands where none is given."""

    type: Any
    required: bool = True
    default: object = None

    @property
    def words(self) -> str:
        """The type as it is written: "date", "list[int]", "one of a, b"."""
        if get_origin(self.type) is Literal:
            return f"one of {', '.join(map(str, get_args(self.type)))}"
        return self.type.__name__ if get_origin(self.type) is None else str(self.type)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one pipeline.

    Attributes:
        declared: Name → parameter, in order.
        owner: Whose they are, for messages: "pipeline churn".
    """

    declared: Mapping[str, Parameter] = field(default_factory=dict)
    owner: str = "the pipeline"

    def __iter__(self) -> Any:
        """The names, in order."""
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)

    def values(self, given: Mapping[str, object], /) -> dict[str, object]:
        """Typed values for all parameters, from Python values or the text of a command line, which come out the same.

        Raises:
            ConfigError: Some are unknown, missing or not of their type; all of them are named.
        """
        wrong = [f"{n} is unknown ({nearest(n, self.declared, what='parameters')})" for n in given if n not in self]
        known = {name: value for name, value in given.items() if name in self.declared}
        missing = [n for n, one in self.declared.items() if one.required and n not in known]
        wrong += [f"{name} is missing ({self.declared[name].words})" for name in missing]
        found: dict[str, object] = {}
        for name, value in known.items():
            try:
                found[name] = checked(self.declared[name], value)
            except ValueError as error:
                wrong.append(f"{name} is {_shown(value)}: {error}")
        if wrong:
            listed = " ".join(f"--param {name}=…" for name in missing)
            raise ConfigError(
                f"{self.owner}: {'; '.join(wrong)}",
                hint=f"Give {listed}, or {', '.join(f'{n}=…' for n in missing)} in Python." if missing else "",
            )
        return {n: found[n] if n in found else copy(one.default) for n, one in self.declared.items()}


def declared(params: Mapping[str, object], owner: str, /) -> Parameters:
    """Parameters as a user declares them: name → type, (type, default) or a default.

    Raises:
        ConfigError: A name is reserved or no name, a type is none of those known, a default is not of its type.
    """
    found: dict[str, Parameter] = {}
    for name, said in params.items():
        if not is_name(name):
            raise ConfigError(f"{owner}: {name!r} cannot be a parameter's name", hint="Use letters, digits and _.")
        if name in RESERVED:
            raise ConfigError(
                f"{owner}: no parameter can be named {name}",
                hint=f"{', '.join(RESERVED)} are arguments of run and plan; choose another name.",
            )
        found[name] = _parameter(name, said, owner)
    return Parameters(found, owner)


def _parameter(name: str, said: object, owner: str) -> Parameter:
    kind: Any
    if _is_type(said):
        return Parameter(said)
    if isinstance(said, tuple) and len(said) == 2 and (_is_type(said[0]) or isinstance(said[0], type)):
        kind, default = said
    else:
        kind, default = _type_of(said), said
    if kind is None or not _is_type(kind):
        wrong = said if kind is None else kind
        text = wrong.__name__ if isinstance(wrong, type) else _shown(wrong)
        raise ConfigError(f"{owner}: parameter {name} is {text}, which is no type for one", hint=_HINTS)
    parameter = Parameter(kind, required=False)
    try:
        return Parameter(kind, required=False, default=checked(parameter, default))
    except ValueError as error:
        raise ConfigError(f"{owner}: the default of parameter {name} is {_shown(default)}: {error}") from error


def _is_type(said: object) -> bool:
    origin, inner = get_origin(said), get_args(said)
    if origin is Literal:
        return all(type(one) in (int, str, bool) for one in inner)
    if origin is list:
        return len(inner) == 1 and inner[0] in SCALARS
    return said in SCALARS if isinstance(said, type) else False


def _type_of(value: object) -> Any:
    """The type of a bare default; None: none that is known. An empty list does not say what it is a list of."""
    if isinstance(value, list):
        kinds = {type(one) for one in value}
        return GenericAlias(list, (kinds.pop(),)) if len(kinds) == 1 else None
    return type(value) if type(value) in SCALARS else None


def checked(parameter: Parameter, value: object, /) -> object:
    """A value of a parameter's type.

    Raises:
        ValueError: It is none, in words.
    """
    try:
        found: object = getattr(_model(parameter.type).model_validate({_VALUE: value}), _VALUE)
    except ValidationError as error:
        why = error.errors()[0].get("ctx", {}).get("error")
        raise ValueError(str(why) if isinstance(why, ValueError) else f"it is no {parameter.words}") from None
    return found


def is_name(name: object, /) -> bool:
    """Whether Python takes it as the name of an argument."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


@cache
def _model(kind: Any) -> type[BaseModel]:
    """A model of one value; made once per type, since making one takes a while."""
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    one: Any = Annotated[inner, BeforeValidator(lambda value: _plain(value, inner))]
    whole: Any = Annotated[list[one], BeforeValidator(_items)] if get_origin(kind) is list else one
    return create_model("Parameter", __config__=ConfigDict(extra="forbid"), value=(whole, Field()))


def _items(value: object) -> object:
    """A list from text: JSON, or items separated by commas."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError("it begins with [ and is no JSON list") from error
    return next(csv.reader([value], skipinitialspace=True), [])


def _plain(value: object, kind: Any) -> object:
    """What a value means before it is held to its type: pydantic alone would take numbers for dates and True for 1."""
    text = isinstance(value, str)
    if get_origin(kind) is Literal:
        options = get_args(kind)
        same = [o for o in options if type(o) is type(value) and o == value]
        same = same or [o for o in options if text and _text(o) == str(value).strip()]
        if not same:
            raise ValueError(f"it is not one of {', '.join(map(_text, options))}")
        return same[0]
    if kind is bool:
        if not isinstance(value, bool) and not text:
            raise ValueError("it is no bool")
        return str(value).strip() if text else value
    if isinstance(value, bool):
        raise ValueError(f"it is no {kind.__name__}")  # noqa: TRY004 - pydantic gathers ValueErrors
    if kind is int:
        if isinstance(value, float) or (text and not _WHOLE.fullmatch(str(value))):
            raise ValueError("it is no int")
        return value
    if kind is date and not isinstance(value, date):
        return _written(value, _ISO_DATE, "date: write it as 2026-01-31")
    if kind is date and isinstance(value, datetime):
        raise ValueError("it is a moment and no date")
    if kind is datetime and not isinstance(value, date):
        return _written(value, _ISO_MOMENT, "datetime: write it as 2026-01-31T06:00:00, with Z or +02:00 for a zone")
    return value


def _written(value: object, form: re.Pattern[str], like: str) -> object:
    if not isinstance(value, str) or not form.fullmatch(value.strip()):
        raise ValueError(f"it is no {like}")
    return value.strip()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _text(value: object) -> str:
    """A value as a command line says it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def path_text(value: object, /) -> str:
    """A value as one piece of a path: of moments without colons, in UTC where they have a zone; no separators.

    >>> path_text(date(2026, 1, 31)), path_text("a/b")
    ('2026-01-31', 'a%2Fb')
    """
    if isinstance(value, datetime):
        at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return at.isoformat().replace(":", "") + ("Z" if value.tzinfo else "")
    return quote(_text(value), safe=" +,=@")


def names_unused(params: Iterable[str], used: Iterable[str], /) -> list[str]:
    """Parameters that nothing uses, in order."""
    have = set(used)
    return [name for name in params if name not in have]
