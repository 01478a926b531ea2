"""Steps as data: what happens to rows between a pipeline's function and its sink, fitted once and saved.

Each step is imported from its family's module when it is first asked for: a service that loads a saved fit imports
what that fit needs.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl.transforms.ages import Age
    from etl.transforms.applied import Apply
    from etl.transforms.asof import AsOf
    from etl.transforms.bins import Bucketize, QuantileBins
    from etl.transforms.bounds import Clip, Winsorize
    from etl.transforms.casts import Cast
    from etl.transforms.categorify import Categorify
    from etl.transforms.columns import NullIndicator, Rename, Select
    from etl.transforms.curves import Log1p, Power
    from etl.transforms.dates import Cyclic, DateParts
    from etl.transforms.decimals import DecimalScale
    from etl.transforms.encodings import CountEncode, GroupStats
    from etl.transforms.fill import FillNull
    from etl.transforms.filters import DropNull, Filter
    from etl.transforms.hashes import HashBucket, HashCross
    from etl.transforms.lists import ListPad, ListPool, ListSlice
    from etl.transforms.onehot import MultiHot, OneHot
    from etl.transforms.quantize import Quantize
    from etl.transforms.scale import MaxAbs, MinMax, Robust, Standardize
    from etl.transforms.score import Score
    from etl.transforms.targets import TargetEncode
    from etl.transforms.texts import TextNormalize
    from etl.transforms.windows import Lag, Rolling

__all__ = [
    "Age",
    "Apply",
    "AsOf",
    "Bucketize",
    "Cast",
    "Categorify",
    "Clip",
    "CountEncode",
    "Cyclic",
    "DateParts",
    "DecimalScale",
    "DropNull",
    "FillNull",
    "Filter",
    "GroupStats",
    "HashBucket",
    "HashCross",
    "Lag",
    "ListPad",
    "ListPool",
    "ListSlice",
    "Log1p",
    "MaxAbs",
    "MinMax",
    "MultiHot",
    "NullIndicator",
    "OneHot",
    "Power",
    "QuantileBins",
    "Quantize",
    "Rename",
    "Robust",
    "Rolling",
    "Score",
    "Select",
    "Standardize",
    "TargetEncode",
    "TextNormalize",
    "Winsorize",
]

_HOMES = {
    "Age": "ages",
    "Apply": "applied",
    "Bucketize": "bins",
    "Cast": "casts",
    "Categorify": "categorify",
    "Clip": "bounds",
    "CountEncode": "encodings",
    "Cyclic": "dates",
    "DateParts": "dates",
    "DecimalScale": "decimals",
    "DropNull": "filters",
    "FillNull": "fill",
    "Filter": "filters",
    "GroupStats": "encodings",
    "HashBucket": "hashes",
    "HashCross": "hashes",
    "ListPad": "lists",
    "ListPool": "lists",
    "ListSlice": "lists",
    "Log1p": "curves",
    "MaxAbs": "scale",
    "MinMax": "scale",
    "MultiHot": "onehot",
    "NullIndicator": "columns",
    "OneHot": "onehot",
    "Power": "curves",
    "QuantileBins": "bins",
    "Quantize": "quantize",
    "Rename": "columns",
    "Robust": "scale",
    "Score": "score",
    "Select": "columns",
    "Standardize": "scale",
    "TargetEncode": "targets",
    "TextNormalize": "texts",
    "Winsorize": "bounds",
}
"""Class → its module here."""
_ON_OTHER_ROWS = {"AsOf": "asof", "Lag": "windows", "Rolling": "windows"}
"""The same for what looks at other rows, which acts before anything is fitted and is no part of a saved state."""


def kind_of(name: str, /) -> str:
    """How a step's class is named in saved states: `FillNull` is fill_null."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


KINDS = {kind_of(name): name for name in _HOMES}
"""Kind in saved states → class."""


def __getattr__(name: str) -> object:
    """A step's class.

    Raises:
        AttributeError: There is no such step.
    """
    home = _HOMES.get(name) or _ON_OTHER_ROWS.get(name)
    if home is None:
        raise AttributeError(f"module 'etl.transforms' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"etl.transforms.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The steps and what Python adds."""
    return sorted({*globals(), *__all__})
