"""What cuDF lacks of pandas, by reflection: `python -m tests.contract.reflection` in .gpu writes reflection.json anew.

Read from signatures and source alone; nothing is called. Regenerated for each RAPIDS pin and compared in CI.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("RAPIDS_NO_INITIALIZE", "1")  # must be set before cuDF is imported

import pandas as pd

FILE: Final = Path(__file__).parent / "reflection.json"
TAKEN: Final = (
    *("groupby", "merge", "sort_values", "apply", "agg", "pivot_table", "reset_index", "rename", "replace", "where"),
    *("interpolate", "reindex", "clip", "corr", "cov", "cumsum", "join", "to_csv", "to_parquet", "fillna", "dropna"),
    *("drop_duplicates", "shift", "diff", "resample", "rolling", "sample", "melt", "explode", "astype", "round"),
    *("quantile", "rank", "describe", "nlargest", "value_counts", "searchsorted", "concat", "to_datetime", "cut"),
    *("get_dummies", "crosstab", "to_numeric", "contains", "extract", "split", "cat", "startswith", "get", "match"),
)
"""Methods whose keywords are compared too: those that an ETL calls."""


def classes() -> dict[str, tuple[Any, Any]]:
    """Name → what pandas has under it, and cuDF."""
    import cudf
    from cudf import DataFrame, Series
    from cudf.core.accessors.categorical import CategoricalAccessor
    from cudf.core.accessors.string import StringMethods
    from cudf.core.groupby.groupby import DataFrameGroupBy, SeriesGroupBy
    from cudf.core.resample import DataFrameResampler
    from cudf.core.series import DatetimeProperties, TimedeltaProperties
    from cudf.core.window.rolling import Rolling

    frame = pd.DataFrame({"a": [1.0], "t": pd.to_datetime(["2024-01-01"])}).set_index("t")
    texts, labels = pd.Series(["a"]), pd.Series(["a"], dtype="category")
    return {
        "DataFrame": (pd.DataFrame, DataFrame),
        "Series": (pd.Series, Series),
        "groupby": (type(frame.groupby("a")), DataFrameGroupBy),
        "groupby of a series": (type(frame["a"].groupby([1])), SeriesGroupBy),
        "Rolling": (type(frame.rolling(1)), Rolling),
        "Resampler": (type(frame.resample("D")), DataFrameResampler),
        "str": (type(texts.str), StringMethods),
        "dt": (type(pd.Series(frame.index).dt), DatetimeProperties),
        "dt of spans": (type((pd.Series(frame.index) - frame.index[0]).dt), TimedeltaProperties),
        "cat": (type(labels.cat), CategoricalAccessor),
        "module": (pd, cudf),
    }


def reflected() -> dict[str, Any]:
    """For each class: names that are missing, names that only raise, and keywords that are missing or differ."""
    import cudf

    from tests.contract.twins import is_stub

    lacks: dict[str, Any] = {}
    for name, (theirs, ours) in classes().items():
        public = [one for one in dir(theirs) if not one.startswith("_") and _is_called(theirs, one)]
        missing = [one for one in public if not hasattr(ours, one)]
        raises = [one for one in public if hasattr(ours, one) and is_stub(_plain(ours, one))]
        keywords = {
            one: differs
            for one in public
            if one in TAKEN and hasattr(ours, one) and (differs := _differences(_plain(theirs, one), _plain(ours, one)))
        }
        lacks[name] = {"missing": missing, "raises": raises, "keywords": keywords}
    return {"pandas": pd.__version__, "cudf": cudf.__version__, "lacks": lacks}


def _is_called(kind: Any, name: str) -> bool:
    return inspect.ismodule(kind) is False or callable(getattr(kind, name))


def _plain(kind: Any, name: str) -> Any:
    """The function behind a name, out of its property."""
    found = inspect.getattr_static(kind, name, None)
    found = found.fget if isinstance(found, property) else getattr(kind, name, None)
    return inspect.unwrap(found) if callable(found) else found


def _differences(theirs: Any, ours: Any) -> dict[str, Any]:
    """Keywords of the first that the second has not, and those of another default."""
    try:
        first, second = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
    except (TypeError, ValueError):
        return {}
    missing = [] if _is_open(second) else [one for one, said in first.items() if one not in second and not _any(said)]
    defaults = {
        one: [_said(first[one].default), _said(second[one].default)]
        for one in first
        if one in second and _said(first[one].default) != _said(second[one].default)
    }
    return {word: value for word, value in (("missing", missing), ("defaults", defaults)) if value}


def _any(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _is_open(parameters: Any) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def _said(default: object) -> str:
    """A default as text: the marks of "not given" of both libraries are one."""
    if default is inspect.Parameter.empty:
        return "required"
    text = repr(default)
    return "not given" if "no_default" in text else text.partition(" object at ")[0]


def main() -> None:
    """Write the file."""
    found = reflected()
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(f"pandas {found['pandas']}, cuDF {found['cudf']}\n")


if __name__ == "__main__":
    main()
