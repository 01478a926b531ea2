"""Functions that `Apply` calls in tests, and some that it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]


def ratio(columns: Columns, valid: Columns) -> dict[str, Any]:
    """a / b, NULL where b is NULL or 0; and a + 1."""
    present = valid["b"] & (columns["b"] != 0)
    return {
        "ratio": (columns["a"] / np.where(present, columns["b"], 1.0), present),
        "a": columns["a"] + 1,
    }


def told(columns: Columns, valid: Columns) -> dict[str, Any]:
    """All columns of a row in words."""
    del valid
    rows = zip(*columns.values(), strict=True)
    return {"told": np.array([" ".join(map(str, row)) for row in rows], object)}


def shorter(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Too few rows."""
    del valid
    return {"v": columns["v"][:1]}


def plain_list(columns: Columns, valid: Columns) -> dict[str, Any]:
    """No array."""
    del valid
    return {"v": columns["v"].tolist()}


def floats(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Another dtype."""
    del valid
    return {"v": columns["v"] / 2}


def huge(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Beyond float32."""
    del valid
    return {"v": columns["v"] * 1e300}


def ratio_passes(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Whether a price is below 125; what is absent is none."""
    return {"passes": (columns["price"] < 125, valid["price"])}


def nothing(columns: Columns, valid: Columns) -> None:
    """None."""


def others(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Another column."""
    del valid
    return {"w": columns["v"]}


def failing(columns: Columns, valid: Columns) -> dict[str, Any]:
    """An error of its own."""
    del columns, valid
    raise ZeroDivisionError("not today")


def writing(columns: Columns, valid: Columns) -> dict[str, Any]:
    """Into what it was given."""
    del valid
    columns["v"][:] = 0
    return {"v": columns["v"]}


def masked(columns: Columns, valid: Columns) -> dict[str, Any]:
    """A mask that is none."""
    del valid
    return {"v": (columns["v"], columns["v"])}


SHORT: Callable[..., Any] = lambda columns, valid: columns  # noqa: E731, ARG005 - what is refused


def _closed(by: int) -> Callable[..., Any]:
    def inner(columns: Columns, valid: Columns) -> dict[str, Any]:
        del valid
        return {"v": columns["v"] * by}

    return inner


CLOSED = _closed(2)
