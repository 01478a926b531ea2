"""What was fitted, in words: a line for people, from the figures of any step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FIRST: Final = ("value", "mean", "std", "center", "scale", "min", "max", "low", "high")
"""Said first, in this order; the others as they stand in the state."""
_SILENT: Final = frozenset({"n", "m2", "rows", "coarse", "skipped", "base", "rest", "width", "folds"})
"""Figures that mean something to their step alone."""
_FOLD: Final = "fold_"
"""Begins the figures of one fold."""
_CALLED: Final[Mapping[str, Mapping[str, str]]] = {"robust": {"mean": "median"}, "min_max": {"mean": ""}}
"""Kind of step → figure → its word there; "": not said. What is taken off before scaling is saved under one name."""
_LISTED = 3


def figure_words(found: object, kind: str = "", /) -> str:
    """The figures of one column, fitted by a step of that kind.

    >>> figure_words({"n": 9, "std": 2.0, "mean": 1.25}), figure_words({"edges": [1, 2.5, 4, 8]}), figure_words(7)
    ('mean 1.25, std 2', '4 edges from 1 to 8', '7')
    """
    if not isinstance(found, Mapping):
        return _value(found)
    names = [name for name in _FIRST if name in found]
    names += [str(name) for name in found if name not in {*names, *_SILENT} and not str(name).startswith(_FOLD)]
    called = {name: _CALLED.get(kind, {}).get(name, name) for name in names}
    return ", ".join(word for name, said in called.items() if said and (word := _named(said, found[name])))


def _named(name: str, value: Any) -> str:
    rows = getattr(value, "num_rows", getattr(value, "rows", None))
    if isinstance(rows, int):
        return f"{name} of {rows:,} rows".replace(",", " ") if rows != 1 else f"{name} of 1 row"
    if isinstance(value, list | tuple):
        return _several(name, value)
    if value is None or isinstance(value, bool | Mapping):
        return ""
    return f"{name} {_value(value)}"


def _several(name: str, values: Sequence[Any]) -> str:
    if not values or isinstance(values[0], list | tuple | Mapping):
        return f"{len(values)} {name}"
    if len(values) <= _LISTED:
        return f"{name} {', '.join(map(_value, values))}"
    return f"{len(values)} {name} from {_value(values[0])} to {_value(values[-1])}"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def by_column(figures: Mapping[str, Any], kind: str = "", /) -> Iterator[tuple[str, str]]:
    """(column, its figures in words), of the figures of one step of that kind."""
    for name, found in figures.items():
        words = figure_words(found, kind)
        if words:
            yield name, words
