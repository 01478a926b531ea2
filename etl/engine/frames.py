"""`etl.frames`: what a function writes where pandas and cuDF disagree, so that both give the same values.

Every function takes series or frames of pandas or cuDF, and Dask collections of either. NaN is a value, NULL is
absence: `is_null` asks for the second, `nan_to_null` makes the second of the first. A plain numpy float of pandas comes
from a step that made NULL into NaN (`str.len`, `dt.year`): there NaN is NULL.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from etl.core.errors import CastError, SchemaError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Integer: TypeAlias = Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
Casting: TypeAlias = Literal["exact", "round", "saturate", "null"]

__all__ = [
    "DateOffset",
    "anti_join",
    "concat",
    "cut",
    "fill_null",
    "floor_time",
    "get_dummies",
    "group_sum",
    "is_nan",
    "is_null",
    "nan_to_null",
    "parse_datetime",
    "semi_join",
    "to_datetime",
    "to_float",
    "to_int",
    "to_numeric",
]


# ---- NaN and NULL ----------------------------------------------------------------------------------------------------


def is_nan(series: Any, /) -> Any:
    """Where a float is NaN; False for NULL and for columns that are not float. Shape (n,), bool."""
    if _is_collection(series):
        return series.map_partitions(is_nan)
    if series.dtype.kind != "f" or _lost_null(series):
        return series.isna() & False
    return (series != series).fillna(value=False)  # noqa: PLR0124 # only NaN differs from itself


def is_null(series: Any, /) -> Any:
    """Where a value is absent; False for NaN. Shape (n,), bool."""
    if _is_collection(series):
        return series.map_partitions(is_null)
    return series.isna() & ~is_nan(series)


def nan_to_null(series: Any, /) -> Any:
    """The same values with NULL for NaN: from here on `isna`, `fillna`, `dropna` and sums agree on both engines."""
    if _is_collection(series):
        return series.map_partitions(nan_to_null)
    if _lost_null(series):
        return series.astype("Float64" if series.dtype.itemsize == 8 else "Float32").where(series.notna())
    return series.where(~is_nan(series))


def fill_null(series: Any, value: Any, /) -> Any:
    """The same values with `value` for NULL; NaN stays. `value` must be of the column's own type."""
    if _is_collection(series):
        return series.map_partitions(fill_null, value)
    return series.where(~is_null(series), value)


def _lost_null(series: Any) -> bool:
    """Whether NaN stands for NULL here: a numpy float of pandas, which has no other way to say it."""
    return _root(series) != "cudf" and isinstance(series.dtype, np.dtype) and series.dtype.kind == "f"


# ---- numbers ---------------------------------------------------------------------------------------------------------


def to_int(series: Any, dtype: Integer, /, *, cast: Casting = "exact") -> Any:
    """The column as integers of that width; NULL stays NULL.

    Args:
        series: Integers, floats, bools.
        dtype: "int8" … "uint64".
        cast: What happens to a value that is none of them: "exact" refuses it, "round" rounds fractions (half to
            even), "saturate" rounds and takes the nearest bound, "null" makes it NULL. NaN is refused, unless "null".

    Raises:
        CastError: A value does not fit; it is named.
        SchemaError: The column is no number, or there is no such dtype.
    """
    if _is_collection(series):
        return series.map_partitions(to_int, dtype, cast=cast)
    if not re.fullmatch(r"u?int(8|16|32|64)", dtype):
        raise SchemaError(f"{dtype!r} is no integer dtype", hint='Say "int8", … "int64" or "uint8", … "uint64".')
    kinds: tuple[Casting, ...] = ("exact", "round", "saturate", "null")
    if cast not in kinds:
        raise SchemaError(f"to_int: cast={cast!r} is unknown", hint=nearest(cast, kinds, what="casts"))
    kind = series.dtype.kind
    if kind not in "iufb":
        raise SchemaError(
            f"to_int: column {series.name} is {series.dtype}, not a number",
            hint="Read text with frames.to_numeric first.",
        )
    target = _integer(series, dtype)
    if kind == "b":
        return series.astype(target)
    if _lost_null(series):
        series = nan_to_null(series)
    bounds = np.iinfo(dtype)
    low, high = int(bounds.min), int(bounds.max)
    whole = series.round(0) if kind == "f" else series
    above, below = _beyond(whole, kind, high, upper=True), _beyond(whole, kind, low, upper=False)
    lost = is_nan(series) if cast != "null" else is_nan(series) | (series != whole).fillna(value=False)
    if cast in ("exact", "round"):
        lost = lost | above | below
    if cast == "exact":
        lost = lost | (series != whole).fillna(value=False)
    if cast == "null":
        return whole.where(~(lost | above | below)).astype(target)
    if bool(lost.any()):
        value = series[lost].iloc[0]
        raise CastError(
            f"column {series.name} holds {value}, which is no {dtype}",
            hint='Clear NaN with frames.nan_to_null; cast="round", "saturate" or "null" say what else to do.',
            column=str(series.name),
        )
    made = whole.where(~(above | below)).astype(target)
    return made.where(~above, high).where(~below, low) if cast == "saturate" else made


def to_float(series: Any, dtype: Literal["float32", "float64"] = "float64", /) -> Any:
    """Numbers as floats in which NULL stays NULL, so that the NaN of 0 / 0 is told from it; decimals are rounded."""
    if _is_collection(series):
        return series.map_partitions(to_float, dtype)
    if _root(series) == "cudf":
        return series.astype(dtype)
    return nan_to_null(series) if _lost_null(series) else series.astype(dtype.capitalize())


def to_numeric(series: Any, /) -> Any:
    """Text as float64; NULL where it is no number."""
    if _is_collection(series):
        return series.map_partitions(to_numeric)
    return nan_to_null(_library(series).to_numeric(series.str.strip(), errors="coerce").astype("float64"))


def _integer(series: Any, dtype: str) -> str:
    """Pandas says NULL in Int64, cuDF in int64."""
    return dtype if _root(series) == "cudf" else dtype.replace("i", "I").replace("u", "U")


def _beyond(series: Any, kind: str, bound: int, *, upper: bool) -> Any:
    """Where values lie beyond the bound of the target; compared only with what the column's own type can hold."""
    if kind == "f":
        # 2**63 - 1 is no float: the first value beyond, 2**63, is one.
        return ((series >= float(bound + 1)) if upper else (series < float(bound))).fillna(value=False)
    own = np.iinfo(getattr(series.dtype, "numpy_dtype", series.dtype))
    if (own.max <= bound) if upper else (own.min >= bound):
        return series.isna() & False
    return ((series > bound) if upper else (series < bound)).fillna(value=False)


# ---- moments ---------------------------------------------------------------------------------------------------------

_FIXED: Final = re.compile(r"(?:[^%]|%[YmdHMS])*")
_STEP: Final = re.compile(r"(\d+)?\s*(us|ms|s|min|h|D|W)")
_STEP_US: Final[Mapping[str, int]] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "D": 86_400_000_000,
    "W": 604_800_000_000,
}
_MONDAY_US: Final = 3 * _STEP_US["D"]
"""From the Monday before 1970-01-01, a Thursday, to that day."""


def parse_datetime(series: Any, format: str, /) -> Any:  # noqa: A002 # the word of both libraries
    """Text as datetime64[us]; NULL where it does not match the format exactly.

    Raises:
        SchemaError: The format has an offset or a zone, which the engines read differently: strip it first.
    """
    if _is_collection(series):
        return series.map_partitions(parse_datetime, format)
    _no_zone(format)
    if _root(series) == "cudf":
        fits = series.str.istimestamp(format).fillna(value=False)
        made = _library(series).to_datetime(series.where(fits), format=format)
    else:
        made = _library(series).to_datetime(series, format=format, errors="coerce")
        if _FIXED.fullmatch(format):  # pandas takes 2024-1-1 for %Y-%m-%d, cuDF does not
            made = made.where(made.dt.strftime(format) == series)
    return made.astype("datetime64[us]")


def to_datetime(series: Any, /, *, format: str, utc: bool = False) -> Any:  # noqa: A002 # the word of both libraries
    """Text as datetime64[us], or datetime64[us, UTC] with `utc`; every value must match the format.

    Raises:
        SchemaError: The format has an offset or a zone, which the engines read differently: strip it first.
        ValueError: A value does not match; the library's own words.
    """
    if _is_collection(series):
        return series.map_partitions(to_datetime, format=format, utc=utc)
    _no_zone(format)
    made = _library(series).to_datetime(series, format=format).astype("datetime64[us]")
    return made.dt.tz_localize("UTC") if utc else made


def floor_time(series: Any, step: str | timedelta, /) -> Any:
    """Each moment at the start of its step, as datetime64[us]; steps are counted from 1970, weeks from Mondays.

    Args:
        series: Moments or dates; with a zone they must be UTC, as they are in frames.
        step: "15min", "2h", "W", … (us, ms, s, min, h, D, W) or a timedelta.

    Raises:
        SchemaError: There is no such step.
    """
    if _is_collection(series):
        return series.map_partitions(floor_time, step)
    length, shift = _step(step)
    zoned = getattr(series.dtype, "tz", None) is not None
    plain = (series.dt.tz_convert(None) if zoned else series).astype("datetime64[us]")
    counted = plain.astype("int64")
    floored = ((counted + shift) // length * length - shift).astype("datetime64[us]").where(plain.notna())
    return floored.dt.tz_localize("UTC") if zoned else floored


@dataclass(frozen=True, slots=True)
class DateOffset:
    """A span of the calendar: `series + DateOffset(months=1)` is the same day of the next month, or its last."""

    years: int = 0
    months: int = 0
    weeks: int = 0
    days: int = 0
    hours: int = 0
    minutes: int = 0
    seconds: int = 0
    microseconds: int = 0

    # Above that of pandas' Series and Index: `series + offset` then comes here and not to each value.
    __pandas_priority__: ClassVar[int] = 10_000

    def __radd__(self, moments: Any) -> Any:
        """`moments + self`."""
        return moments + self._of(moments)

    def __rsub__(self, moments: Any) -> Any:
        """`moments - self`."""
        return moments - self._of(moments)

    def _of(self, moments: Any) -> Any:
        """The class of the library that made the moments: each takes only its own."""
        return _library(moments).DateOffset(**{name: value for name, value in asdict(self).items() if value})


def _no_zone(text: str) -> None:
    if "%z" in text or "%Z" in text:
        raise SchemaError(
            f"the format {text!r} has a zone", hint="Strip the offset from the text first, and parse the rest as UTC."
        )


def _step(step: str | timedelta) -> tuple[int, int]:
    """Length of a step and what is added before flooring, in microseconds."""
    if isinstance(step, timedelta):
        length, unit = step // timedelta(microseconds=1), ""
    else:
        found = _STEP.fullmatch(step)
        if not found:
            raise SchemaError(
                f"{step!r} is no step of time", hint='Say "15min": a count and us, ms, s, min, h, D or W.'
            )
        length, unit = int(found[1] or 1) * _STEP_US[found[2]], found[2]
    if length <= 0:
        raise SchemaError(f"a step of {step} does not go forward")
    return length, _MONDAY_US if unit == "W" else 0


# ---- frames together -------------------------------------------------------------------------------------------------

_MATCHED: Final = "__cuetl_matched"


def anti_join(left: Any, right: Any, on: str | Sequence[str], /) -> Any:
    """Rows of `left` whose key is not in `right`, as SQL's NOT EXISTS: a NULL key matches nothing, so it stays."""
    return _joined(left, right, on, matched=False)


def semi_join(left: Any, right: Any, on: str | Sequence[str], /) -> Any:
    """Rows of `left` whose key is in `right`, each once, as SQL's EXISTS: a NULL key matches nothing."""
    return _joined(left, right, on, matched=True)


def looked_up(series: Any, keys: Any, ids: Any, /) -> Any:
    """The id of each value, int64; NULL where it is no key, and for NULL. In the order of the series.

    Args:
        series: Text, labels, integers, bools, dates, moments or spans.
        keys: Distinct values without NULL, as NumPy has them: text as objects, bools as 0 and 1, dates as
            datetime64[s], moments as datetime64[us] in UTC, spans as timedelta64[us].
        ids: int64, shape (k,).
    """
    right = _library(series).DataFrame({"key": keys, "id": ids})
    right["id"] = to_int(right["id"], "int64")  # so that pandas has NULL, not NaN, where nothing matches
    kind, name = series.dtype.kind, str(series.dtype)
    if kind == "b":
        series, right["key"] = to_int(series, "int8"), to_int(right["key"], "int8")
    elif kind in "iu":
        wide: Integer = "uint64" if name.lower() == "uint64" else "int64"  # keys may be wider than the column
        series, right["key"] = to_int(series, wide), to_int(right["key"], wide)
    elif kind in "mM":
        if name.endswith("UTC]"):
            right["key"] = right["key"].dt.tz_localize("UTC")
    else:
        series, right["key"] = series.astype("str"), right["key"].astype("str")
    left = series.to_frame(name="key").reset_index(drop=True).reset_index()
    # A merge of cuDF gives its rows in any order.
    return left.merge(right, on="key", how="left").sort_values("index").reset_index(drop=True)["id"]


def concat(frames: Sequence[Any], /) -> Any:
    """The rows of all frames, one after another, with a new index.

    Raises:
        SchemaError: There is none, or columns or dtypes differ: the engines would make different things of that.
    """
    if not frames:
        raise SchemaError("concat of no frames")
    first = frames[0]
    for at, one in enumerate(frames[1:], 2):
        if list(one.columns) != list(first.columns):
            raise SchemaError(
                f"concat: the first frame has the columns {', '.join(first.columns)}, "
                f"frame {at} has {', '.join(one.columns)}",
                hint="Select the same columns in the same order.",
            )
        for name in first.columns:
            if one[name].dtype != first[name].dtype:
                raise SchemaError(
                    f"concat: column {name} is {one[name].dtype} in frame {at} and {first[name].dtype} in the first",
                    hint="Cast one of them first.",
                    column=str(name),
                )
    if _is_collection(first):
        return sys.modules["dask.dataframe"].concat(list(frames))
    return _library(first).concat(list(frames), ignore_index=True)


def cut(
    series: Any,
    bins: Sequence[float],
    /,
    *,
    labels: Sequence[str],
    right: bool = True,
    include_lowest: bool = False,
) -> Any:
    """Each number's bin as a label; NULL outside of all bins, for NULL and for NaN. Shape (n,), category.

    Args:
        series: Numbers.
        bins: Edges, rising; one more than labels.
        labels: The name of each bin.
        right: Bins hold their right edge, not their left.
        include_lowest: The first bin holds its left edge too.
    """
    if _is_collection(series):
        return series.map_partitions(cut, bins, labels=labels, right=right, include_lowest=include_lowest)
    return _library(series).cut(
        nan_to_null(series), bins=list(bins), labels=list(labels), right=right, include_lowest=include_lowest
    )


def get_dummies(frame: Any, columns: Mapping[str, Sequence[str]] | Sequence[str], /) -> Any:
    """The frame with a bool column `<column>_<label>` for each label, in place of each column named.

    Args:
        frame: A frame.
        columns: Column → its labels; or names of category columns alone, whose labels the source declared. Labels are
            never taken from the rows: each partition would have other columns. NULL is False in all of them.

    Raises:
        SchemaError: A column without labels is no category.
    """
    known = dict(columns.items()) if hasattr(columns, "items") else dict.fromkeys(columns)
    made = frame
    for column, given in known.items():
        series = made[column].astype("str")
        for label in given if given is not None else _categories(frame[column]):
            made = made.assign(**{f"{column}_{label}": (series == label).fillna(value=False)})
    return made.drop(columns=list(known))


def group_sum(frame: Any, by: str | Sequence[str], columns: Sequence[str], /) -> Any:
    """Sums of each group, sorted by its key, in which a group of nothing but NULL is NULL.

    `groupby(by, sort=True)[columns].sum(min_count=1)` is meant to be that and is not everywhere: pandas gives 0 for
    decimals, Dask writes NaN, which a float then keeps and an integer or decimal refuses.
    """
    grouped = frame.groupby([by] if isinstance(by, str) else list(by), sort=True)[list(columns)]
    if not _is_collection(frame):
        return _where_counted(grouped.sum(), grouped.count()).reset_index()
    return grouped.sum().map_partitions(_where_counted, grouped.count(), align_dataframes=False).reset_index()


def _where_counted(sums: Any, counts: Any) -> Any:
    return sums.where(counts > 0)


def _categories(series: Any) -> list[str]:
    labels = getattr(series.dtype, "categories", None)
    if labels is None:
        raise SchemaError(
            f"get_dummies: column {series.name} is {series.dtype}, so its labels are not known",
            hint=f"""Say them: {{"{series.name}": ["a", "b"]}}.""",
            column=str(series.name),
        )
    host = labels.to_arrow() if hasattr(labels, "to_arrow") else labels
    return list(host.to_pylist() if hasattr(host, "to_pylist") else host)


def _joined(left: Any, right: Any, on: str | Sequence[str], *, matched: bool) -> Any:
    names = [on] if isinstance(on, str) else list(on)
    keys = right[names]
    for name in names:
        keys = keys[~is_null(keys[name])]
    joined = left.merge(keys.drop_duplicates().assign(**{_MATCHED: 1}), on=names, how="left")
    missing = joined[_MATCHED].isna()  # Dask's series have no notna
    kept = joined[~missing if matched else missing].drop(columns=[_MATCHED])
    return kept if _is_collection(kept) else kept.reset_index(drop=True)


# ---- whose frame it is -----------------------------------------------------------------------------------------------


def _root(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _is_collection(frame: Any) -> bool:
    return _root(frame) in ("dask", "dask_cudf", "dask_expr")


def _library(frame: Any) -> Any:
    """The module that made the frame: it is loaded, and this file never decides to load one."""
    root = _root(frame)
    if root not in ("pandas", "cudf"):
        raise SchemaError(
            f"a {type(frame).__name__} is no series or frame of pandas or cuDF",
            hint="Pass a column of the frame that the function was given.",
        )
    return sys.modules[root]
