"""What an ETL function does, in the form that pandas and cuDF agree on, each with the value that it must give.

Numbers are those of the table "differences that an ETL meets" in the design of the GPU engine. A transform takes its
frame and the module `etl.frames`; the same functions run on pandas (here), on twins of cuDF's classes
(`tests/contract/`) and, on a device, on cuDF against the goldens.
"""

# ruff: noqa: ARG001 - every transform has the same two parameters
# ruff: noqa: FBT003 - users write fillna(False)
from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below

from etl.core.schema import Field, Schema
from etl.transforms import Categorify, Clip, FillNull, Log1p, MaxAbs, MinMax, Robust, Standardize, Winsorize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

pa: Any = arrow
NAN: Final = float("nan")
INF: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Transform:
    """One way of writing.

    Attributes:
        name: Of the function and its golden.
        differences: The rows of the design's table that it answers.
        function: (frame, xd) → frame; xd is `etl.frames`.
        expect: Column → values on `rows()`.
        order: The rows' order is promised (by a final sort, or because nothing moved them); else a multiset.
        close: Floats agree to this relative difference; 0: to the last bit.
    """

    name: str
    differences: tuple[int, ...]
    function: Callable[[Any, Any], Any]
    expect: Mapping[str, Sequence[Any]]
    order: bool
    close: float


TRANSFORMS: Final[list[Transform]] = []
OUTSIDE: Final = {
    16: "groupby.apply is to be avoided",
    54: "a pattern that the lint refuses",
    55: "patterns that the lint refuses",
    68: "no limit= in either",
    74: "columns would depend on the rows",
    80: "hashes are the splits' own, never a frame's",
    84: "frames are not iterated; the adapter is the edge",
    86: "masks, as in all others",
    87: "rows are sampled by hash, never by a frame's generator",
}
"""Rows of the table without a form to write."""


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo("UTC"))


def rows() -> Any:
    """Six rows: each column has NULL, floats have NaN and infinity; k is unique and never NULL."""
    return pa.table(
        {
            "k": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
            "g": pa.array(["a", "a", "b", "b", None, "c"], pa.string()),
            "i": pa.array([5, None, 7, 0, -7, None], pa.int32()),
            "j": pa.array([2, 3, 0, None, 3, 1], pa.int32()),
            "b": pa.array([127, None, -128, 0, 1, 2], pa.int8()),
            "f": pa.array([1.5, None, NAN, -2.0, INF, None], pa.float64()),
            "s": pa.array(["a-1", None, "B-22", "c", "", "x.x"], pa.string()),
            "n": pa.array([" 2 ", "x", None, "-3.5", "", "1e3"], pa.string()),
            "w": pa.array(["2024-01-31 10:17:30", "2024-1-1", None, "x", "1969-12-31 23:59:59", ""], pa.string()),
            "o": pa.array(["2024-01-31T10:17:30+01:00", None] * 3, pa.string()),
            "t": pa.array(
                [
                    _moment("2024-01-31 10:17:30.5"),
                    None,
                    _moment("1969-12-31 23:59:59"),
                    _moment("2024-02-29"),
                    _moment("2024-03-31 02:30"),
                    _moment("2024-10-27 02:30"),
                ],
                pa.timestamp("us"),
            ),
            "z": pa.array(
                [_utc("2024-01-31 10:17:30"), None, _utc("2024-07-01 12:00:00")] * 2, pa.timestamp("us", "UTC")
            ),
            "d": pa.array([dt.date(2024, 1, 31), None, dt.date(1969, 12, 31)] * 2, pa.date32()),
            "m": pa.array([Decimal("1.10"), None, Decimal("2.25"), Decimal("-3.00"), None, Decimal("0.05")]).cast(
                pa.decimal128(9, 2)
            ),
            "ok": pa.array([True, None, False, True, False, None], pa.bool_()),
            "e": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 2, 1], pa.int32()), pa.array(["x", "y", "z"])),
            "l": pa.array([[1, 2], [], None, [3], [None], [4]], pa.list_(pa.int64())),
        }
    )


def nulls() -> Any:
    """The same columns, all NULL but the key."""
    given = rows()
    columns = [given.column(0), *(pa.nulls(given.num_rows, kind) for kind in given.schema.types[1:])]
    return pa.table(columns, schema=given.schema)


def given() -> Schema:
    """What the source of these rows says; `e` is an enum whose labels are known."""
    labels = {"e": ("x", "y", "z")}
    return Schema(tuple(Field(one.name, one.type, vocabulary=labels.get(one.name)) for one in rows().schema))


def _transform(
    *differences: int, order: bool = True, close: float = 0.0, **expect: Sequence[Any]
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    def register(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        name = getattr(function, "__name__", "")
        TRANSFORMS.append(Transform(name, differences, function, expect, order, close))
        return function

    return register


# ---- comparisons and masks -------------------------------------------------------------------------------------------


@_transform(
    1, 4, k=[1, 2, 3, 4, 5, 6], is_c=[False, False, False, True, False, False], not_c=[True] * 3 + [False, True, True]
)
def compare_text(t: Any, xd: Any) -> Any:
    return t[["k"]].assign(is_c=(t["s"] == "c").fillna(False), not_c=(t["s"] != "c").fillna(True))


@_transform(
    2,
    50,
    big=[True, False, True, False, False, False],
    late=[True, False, False, True, True, True],
    day=[True, False, False] * 2,
)
def compare_numbers_and_times(t: Any, xd: Any) -> Any:
    big = (t["i"] > 1).fillna(False)
    late = (t["t"] >= pd.Timestamp("2024-01-01")).fillna(False)
    return t[[]].assign(big=big, late=late, day=(t["d"] >= pd.Timestamp("2024-01-31")).fillna(False))


@_transform(3, 6, k=[2, 3, 4, 5, 6])
def negated_mask(t: Any, xd: Any) -> Any:
    return t[~(t["i"] == 5).fillna(False)][["k"]]


@_transform(6, k=[1, 4])
def mask_with_null(t: Any, xd: Any) -> Any:
    return t[t["ok"]][["k"]]


@_transform(5, 56, 61, digit=[True, False, True, False, False, False], ends=[True] + [False] * 5, number=[False] * 6)
def text_tests(t: Any, xd: Any) -> Any:
    digit = t["s"].str.contains("[0-9]").fillna(False)
    ends = t["s"].str.endswith("1").fillna(False)
    return t[[]].assign(digit=digit, ends=ends, number=t["s"].str.match(r"^[0-9]+\Z").fillna(False))


# ---- sums and groups -------------------------------------------------------------------------------------------------


@_transform(7, 82, k=[1, 2, 3, 4, 5, 6], total=[5] * 6)
def column_sum(t: Any, xd: Any) -> Any:
    return t[["k"]].assign(total=t["i"].sum())


@_transform(8, 9, g=["a", "b", "c"], i=[5, 7, None], m=[Decimal("1.10"), Decimal("-0.75"), Decimal("0.05")])
def group_sum(t: Any, xd: Any) -> Any:
    return t.groupby("g", sort=True)[["i", "m"]].sum(min_count=1).reset_index()


@_transform(10, e=["x", "y", "z"], k=[5, 8, 5])
def group_by_labels(t: Any, xd: Any) -> Any:
    return t.assign(e=t["e"].astype("str")).groupby("e", sort=True)[["k"]].sum(min_count=1).reset_index()


@_transform(11, 82, g=["a", "b", "c"], i=[5.0, 3.5, None], close=1e-12)
def group_mean(t: Any, xd: Any) -> Any:
    made = t[["g", "i"]].groupby("g", sort=True).mean().reset_index()
    return made.assign(i=xd.to_float(made["i"]))


@_transform(12, g=["a", "b", "c"], span=[1, 1, 0])
def group_span(t: Any, xd: Any) -> Any:
    made = t.groupby("g", sort=True).agg(high=("k", "max"), low=("k", "min")).reset_index()
    return made.assign(span=made["high"] - made["low"])[["g", "span"]]


@_transform(13, k=[1, 2, 3, 4, 6], off=[-0.5, 0.5, -0.5, 0.5, 0.0], close=1e-12)
def minus_group_mean(t: Any, xd: Any) -> Any:
    known = t[t["g"].notna()]
    return known[["k"]].assign(off=xd.to_float(known["k"]) - known.groupby("g", sort=True)["k"].transform("mean"))


@_transform(14, k=[1, 2, 3, 4])
def groups_of_two(t: Any, xd: Any) -> Any:
    known = t[t["g"].notna()]
    return known[(known.groupby("g", sort=True)["k"].transform("size") > 1).fillna(False)][["k"]]


@_transform(14, k=[6, 5])
def largest_two(t: Any, xd: Any) -> Any:
    return t.sort_values("k", ascending=False, kind="stable").head(2)[["k"]]


@_transform(15, g=["a", "b", "c"], any_ok=[1, 1, None])
def group_any(t: Any, xd: Any) -> Any:
    return t.assign(any_ok=xd.to_int(t["ok"], "int8")).groupby("g", sort=True)[["any_ok"]].max().reset_index()


@_transform(17, g=["a", "b", "c"], i=[5, 0, None])
def group_first(t: Any, xd: Any) -> Any:
    ordered = t.sort_values("k", ascending=False, kind="stable")
    return ordered.groupby("g", sort=True)[["i"]].first().reset_index()


@_transform(
    77,
    at=[
        _moment("1969-12-31"),
        _moment("2024-01-31"),
        _moment("2024-02-29"),
        _moment("2024-03-31"),
        _moment("2024-10-27"),
    ],
    k=[3, 1, 4, 5, 6],
)
def per_day(t: Any, xd: Any) -> Any:
    return t.assign(at=xd.floor_time(t["t"], "D")).groupby("at", sort=True)[["k"]].sum(min_count=1).reset_index()


@_transform(81, k=[1, 2, 3, 4, 5, 6], half=[3.5] * 6)
def median(t: Any, xd: Any) -> Any:
    return t[["k"]].assign(half=t["k"].quantile(0.5, interpolation="linear"))


# ---- joins and order -------------------------------------------------------------------------------------------------


@_transform(18, 19, 20, 24, k=[1, 2, 3, 4, 5, 6], i=[5, None, 7, 0, -7, None], i_r=[None, 1, 2, None, None, None])
def left_join(t: Any, xd: Any) -> Any:
    right = t[["j", "k"]].rename(columns={"j": "k", "k": "i"})
    right = right[(right["k"] > 1).fillna(False)].drop_duplicates(subset=["k"])
    right = right.assign(k=xd.to_int(right["k"], "int64"))
    made = t[["k", "i"]].merge(right, on="k", how="left", suffixes=("", "_r")).sort_values("k", kind="stable")
    return made.assign(i_r=xd.to_int(made["i_r"], "int64"))


@_transform(21, k=["3"], g=["b"])
def join_on_text(t: Any, xd: Any) -> Any:
    left = t[["k", "g"]].assign(k=t["k"].astype("str"))
    return left.merge(t[["n"]].assign(k=t["n"].str.replace("-3.5", "3", regex=False))[["k"]], on="k", how="inner")


@_transform(22, k=[1, 2, 3, 4, 5, 6], found=[False, True, True, False, False, False], twice=[True] * 6)
def join_with_marker(t: Any, xd: Any) -> Any:
    keys = t[t["j"].notna()][["j"]]
    twice = bool(keys["j"].duplicated().any())
    keys = keys.drop_duplicates(subset=["j"])
    keys = keys[(keys["j"] > 1).fillna(False)]
    keys = keys.assign(k=xd.to_int(keys["j"], "int64"), one=xd.to_int(keys["j"], "int64") * 0 + 1)[["k", "one"]]
    made = t[["k"]].merge(keys, on="k", how="left").sort_values("k", kind="stable")
    return made.assign(found=made["one"].notna(), twice=twice)[["k", "found", "twice"]]


@_transform(23, k=[3, 4, 5, 6], order=False)
def not_in(t: Any, xd: Any) -> Any:
    return xd.anti_join(t[["k", "g"]], t[(t["g"] == "a").fillna(False)][["g"]], "g")[["k"]]


@_transform(23, k=[1, 2], order=False)
def is_in(t: Any, xd: Any) -> Any:
    return xd.semi_join(t[["k", "g"]], t[(t["g"] == "a").fillna(False)][["g"]], "g")[["k"]]


@_transform(25, 26, v=[1, 2, 3, 4, 5, 6, 5, None, 7, 0, -7, None], part=["k"] * 6 + ["i"] * 6)
def stacked(t: Any, xd: Any) -> Any:
    keys = t[["k"]].rename(columns={"k": "v"}).assign(part="k")
    return xd.concat([keys, t[[]].assign(v=xd.to_int(t["i"], "int64"), part="i")])


@_transform(27, 28, k=[3, 4, 1, 2, 6, 5])
def stable_sort(t: Any, xd: Any) -> Any:
    made = t[["k", "g"]].assign(b=(t["g"] == "b").fillna(False))
    return made.sort_values(["b", "g"], ascending=[False, True], kind="stable", na_position="last")[["k"]]


@_transform(29, s=["", "B-22", "a-1", "c", "x.x", None])
def text_order(t: Any, xd: Any) -> Any:
    return t[["s"]].sort_values("s", kind="stable", na_position="last")


@_transform(30, 31, k=[1, 3, 5, 6])
def first_of_each(t: Any, xd: Any) -> Any:
    return t.drop_duplicates(subset=["g"], keep="first")[["k"]]


@_transform(30, g=["a", "b", "c", None], n=[2, 2, 1, 1])
def counted(t: Any, xd: Any) -> Any:
    made = t.groupby("g", sort=True, dropna=False)[["k"]].count().reset_index().rename(columns={"k": "n"})
    return made.sort_values(["n", "g"], ascending=[False, True], kind="stable", na_position="last")


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@_transform(32, 33, 69, whole=[2, None, None, None, -3, None], rest=[1, None, None, None, 2, None])
def divided_whole(t: Any, xd: Any) -> Any:
    safe = t["j"].where((t["j"] != 0).fillna(False))
    return t[[]].assign(whole=t["i"] // safe, rest=t["i"] % safe)


@_transform(
    34,
    ratio=[2.5, None, INF, None, -7 / 3, None],
    none=[NAN if i == 3 else v for i, v in enumerate([1.0, None, 1.0, 0, 1.0, None])],
)
def divided(t: Any, xd: Any) -> Any:
    i, j = xd.to_float(t["i"]), xd.to_float(t["j"])
    return t[[]].assign(ratio=i / j, none=i / i)


@_transform(35, up=[128, None, -127, 1, 2, 3])
def widened(t: Any, xd: Any) -> Any:
    return t[[]].assign(up=xd.to_int(t["b"], "int16") + 1)


@_transform(36, power=[4.0, 8.0, 1.0, None, 8.0, 2.0])
def powers(t: Any, xd: Any) -> Any:
    return t[[]].assign(power=2.0 ** xd.to_float(t["j"]))


@_transform(37, 38, exact=[None, None, None, -2, None, None], rounded=[2, None, None, -2, 127, None])
def floats_to_int(t: Any, xd: Any) -> Any:
    rounded = xd.to_int(xd.nan_to_null(t["f"]), "int8", cast="saturate")
    return t[[]].assign(exact=xd.to_int(t["f"], "int32", cast="null"), rounded=rounded)


@_transform(39, number=[2.0, None, None, -3.5, None, 1000.0])
def text_to_numbers(t: Any, xd: Any) -> Any:
    return t[[]].assign(number=xd.to_numeric(t["n"]))


@_transform(41, flag=[False, False, False, True, False, True])
def text_to_bool(t: Any, xd: Any) -> Any:
    return t[[]].assign(flag=t["s"].isin(["c", "x.x"]))


@_transform(
    63,
    66,
    square=[Decimal("1.2100"), None, Decimal("5.0625"), Decimal("9.0000"), None, Decimal("0.0025")],
    filled=[Decimal("1.10"), Decimal("0.00"), Decimal("2.25"), Decimal("-3.00"), Decimal("0.00"), Decimal("0.05")],
)
def decimals(t: Any, xd: Any) -> Any:
    return t[[]].assign(square=t["m"] * t["m"], filled=t["m"].fillna(Decimal("0.00")))


@_transform(64, 65, third=[0.37, None, 0.75, -1.0, None, 0.02], close=1e-12)
def decimals_divided(t: Any, xd: Any) -> Any:
    return t[[]].assign(third=(xd.to_float(t["m"]) / 3.0).round(2))


@_transform(67, i=[5, 0, 7, 0, -7, 0], s=["a-1", "?", "B-22", "c", "", "x.x"], f=[1.5, 0.0, NAN, -2.0, INF, 0.0])
def filled(t: Any, xd: Any) -> Any:
    return t[[]].assign(i=t["i"].fillna(0), s=t["s"].fillna("?"), f=xd.fill_null(t["f"], 0.0))


@_transform(
    88,
    nan=[False, False, True, False, False, False],
    null=[False, True, False, False, False, True],
    f=[1.5, 0.0, 0.0, -2.0, INF, 0.0],
)
def nan_and_null(t: Any, xd: Any) -> Any:
    return t[[]].assign(nan=xd.is_nan(t["f"]), null=xd.is_null(t["f"]), f=xd.nan_to_null(t["f"]).fillna(0.0))


@_transform(69, before=[None, 1, 2, 3, 4, 5], step=[None, 1, 1, 1, 1, 1], some=[5, None, 7, None, None, None])
def neighbours(t: Any, xd: Any) -> Any:
    return t[[]].assign(before=t["k"].shift(1), step=t["k"].diff(), some=t["i"].where((t["i"] > 0).fillna(False)))


@_transform(70, code=[None, None, None, 7, None, None])
def mapped(t: Any, xd: Any) -> Any:
    return t[[]].assign(code=xd.to_int(t["s"].map({"c": 7, "q": 8}), "int64"))


@_transform(71, 72, both=[7, None, 7, None, -4, None])
def column_expression(t: Any, xd: Any) -> Any:
    return t[[]].assign(both=t["i"] + t["j"])


@_transform(85, log=[0.0, None, None, None, None, None], positive=[1.5, None, None, None, INF, None], close=1e-12)
def logarithm(t: Any, xd: Any) -> Any:
    positive = t["f"].where((t["f"] > 0).fillna(False))
    small = (positive < 2).fillna(False)
    log = np.log(
        positive.where(small, 1.0) / 1.5
    )  # pandas' own memory holds a 0 behind NULL, of which numpy would warn
    return t[[]].assign(log=log.where(small), positive=positive)


@_transform(75, size=["low", None, "low", "low", None, None])
def bins(t: Any, xd: Any) -> Any:
    return t[[]].assign(size=xd.cut(xd.to_float(t["i"]), [-1.0, 10.0, 20.0], labels=["low", "high"]).astype("str"))


@_transform(76, mean=[None, 1.5, 2.5, 3.5, 4.5, 5.5], close=1e-12)
def rolling_mean(t: Any, xd: Any) -> Any:
    return t[[]].assign(mean=xd.to_float(t["k"].rolling(2).mean()))


# ---- text ------------------------------------------------------------------------------------------------------------


@_transform(40, day=["2024-01-31", None, "1969-12-31", "2024-02-29", "2024-03-31", "2024-10-27"])
def times_to_text(t: Any, xd: Any) -> Any:
    return t[[]].assign(day=t["t"].dt.strftime("%Y-%m-%d"))


@_transform(48, year=[2024, None, 1969, 2024, 2024, 2024], length=[3, None, 4, 1, 0, 3])
def parts_as_int(t: Any, xd: Any) -> Any:
    return t[[]].assign(year=xd.to_int(t["t"].dt.year, "int32"), length=xd.to_int(t["s"].str.len(), "int32"))


@_transform(53, word=["a", None, "B", None, None, None], digits=["1", None, "22", None, None, None])
def extracted(t: Any, xd: Any) -> Any:
    return t["s"].str.extract(r"(?P<word>[a-zA-Z]+)-(?P<digits>[0-9]+)", expand=True)


@_transform(57, has_b=[False, False, True, False, False, False])
def any_case(t: Any, xd: Any) -> Any:
    return t[[]].assign(has_b=t["s"].str.contains("b", flags=re.IGNORECASE).fillna(False))


@_transform(58, 59, plain=["a-1", None, "B-22", "c", "", "x_x"], turned=["1-a", None, "22-B", "c", "", "x.x"])
def replaced(t: Any, xd: Any) -> Any:
    turned = t["s"].str.replace(r"([a-zA-Z]+)-([0-9]+)", r"\2-\1", regex=True)
    return t[[]].assign(plain=t["s"].str.replace(".", "_", regex=False), turned=turned)


@_transform(60, upper=["A-1", None, "B-22", "C", "", "X.X"])
def ascii_upper(t: Any, xd: Any) -> Any:
    return t[[]].assign(upper=t["s"].str.upper())


@_transform(62, 83, tag=["a-1/1", None, "B-22/3", "c/4", "/5", "x.x/6"])
def joined_text(t: Any, xd: Any) -> Any:
    return t[[]].assign(tag=t["s"] + "/" + t["k"].astype("str"))


# ---- times -----------------------------------------------------------------------------------------------------------


@_transform(42, 43, 45, at=[_moment("2024-01-31 10:17:30"), None, None, None, _moment("1969-12-31 23:59:59"), None])
def parsed(t: Any, xd: Any) -> Any:
    return t[[]].assign(at=xd.parse_datetime(t["w"], "%Y-%m-%d %H:%M:%S"))


@_transform(44, at=[_utc("2024-01-31 09:17:30"), None] * 3)
def parsed_with_offset(t: Any, xd: Any) -> Any:
    local = xd.to_datetime(t["o"].str.slice(0, 19), format="%Y-%m-%dT%H:%M:%S", utc=True)
    return t[[]].assign(at=local - xd.DateOffset(hours=1))


@_transform(
    46,
    quarter=[
        _moment("2024-01-31 10:15"),
        None,
        _moment("1969-12-31 23:45"),
        _moment("2024-02-29"),
        _moment("2024-03-31 02:30"),
        _moment("2024-10-27 02:30"),
    ],
    week=[
        _moment("2024-01-29"),
        None,
        _moment("1969-12-29"),
        _moment("2024-02-26"),
        _moment("2024-03-25"),
        _moment("2024-10-21"),
    ],
)
def floored(t: Any, xd: Any) -> Any:
    return t[[]].assign(quarter=xd.floor_time(t["t"], "15min"), week=xd.floor_time(t["t"], "W"))


@_transform(
    47,
    day=[
        _moment("2024-01-31"),
        None,
        _moment("1969-12-31"),
        _moment("2024-02-29"),
        _moment("2024-03-31"),
        _moment("2024-10-27"),
    ],
)
def midnight(t: Any, xd: Any) -> Any:
    return t[[]].assign(day=t["t"].dt.floor("D"))


@_transform(49, d=[dt.date(2024, 2, 29), None, dt.date(1970, 1, 31)] * 2)
def next_month(t: Any, xd: Any) -> Any:
    return t[[]].assign(d=t["d"] + xd.DateOffset(months=1))


@_transform(
    51, at=[_utc("2024-01-31 09:17:30.5"), None, _utc("1969-12-31 22:59:59"), _utc("2024-02-28 23:00"), None, None]
)
def from_local(t: Any, xd: Any) -> Any:
    local = t["t"].dt.tz_localize("Europe/Berlin", ambiguous="NaT", nonexistent="NaT")
    return t[[]].assign(at=local.dt.tz_convert("UTC"))


@_transform(52, text=["10:17", None, "12:00"] * 2)
def utc_text(t: Any, xd: Any) -> Any:
    return t[[]].assign(text=t["z"].dt.tz_convert(None).dt.strftime("%H:%M"))


# ---- shapes ----------------------------------------------------------------------------------------------------------


@_transform(
    73,
    k=[1, 2, 3, 4, 5, 6] * 2,
    variable=["i"] * 6 + ["j"] * 6,
    value=[5, None, 7, 0, -7, None, 2, 3, 0, None, 3, 1],
    order=False,
)
def melted(t: Any, xd: Any) -> Any:
    return t[["k", "i", "j"]].melt(id_vars=["k"], value_vars=["i", "j"])


@_transform(78, k=[1, 1, 2, 3, 4, 5, 6], l=[1, 2, None, None, 3, None, 4])
def exploded(t: Any, xd: Any) -> Any:
    return t[["k", "l"]].explode("l")


@_transform(
    79,
    k=[1, 2, 3, 4, 5, 6],
    e_x=[True, False, False, True, False, False],
    e_y=[False, True, False, False, False, True],
    e_z=[False] * 4 + [True, False],
)
def one_hot(t: Any, xd: Any) -> Any:
    return xd.get_dummies(t[["k", "e"]], {"e": ["x", "y", "z"]})


@_transform(
    20,
    e=["x", "y", None, "x", "z", "y"],
    d=[dt.date(2024, 1, 31), None, dt.date(1969, 12, 31)] * 2,
    l=[[1, 2], [], None, [3], [None], [4]],
)
def untouched(t: Any, xd: Any) -> Any:
    return t[["e", "d", "l"]]


# ---- fitted steps ----------------------------------------------------------------------------------------------------


@_transform(
    i=[5, -1, 7, 0, -7, -1],
    f=[1.5, 0.25, NAN, -2.0, INF, 0.25],
    s=["a-1", "ü", "B-22", "c", "", "x.x"],
    t=[
        _moment("2024-01-31 10:17:30.5"),
        _moment("2000-01-02 03:04:05.000006"),
        _moment("1969-12-31 23:59:59"),
        _moment("2024-02-29"),
        _moment("2024-03-31 02:30"),
        _moment("2024-10-27 02:30"),
    ],
    z=[_utc("2024-01-31 10:17:30"), _utc("2000-01-02 01:04:05"), _utc("2024-07-01 12:00:00")] * 2,
    d=[dt.date(2024, 1, 31), dt.date(2000, 2, 29), dt.date(1969, 12, 31)] * 2,
    m=[Decimal("1.10"), Decimal("0.07"), Decimal("2.25"), Decimal("-3.00"), Decimal("0.07"), Decimal("0.05")],
    ok=[True, False, False, True, False, False],
    e=["x", "y", "z", "x", "z", "y"],
    was_null=[False, False, True, False, False, False],
)
def null_filled(t: Any, xd: Any) -> Any:
    east = dt.timezone(dt.timedelta(hours=2))
    steps = [
        FillNull("i", -1),
        FillNull("f", 0.25),
        FillNull("s", "ü"),
        FillNull("t", _moment("2000-01-02 03:04:05.000006")),
        FillNull("z", dt.datetime(2000, 1, 2, 3, 4, 5, tzinfo=east)),
        FillNull("d", dt.date(2000, 2, 29)),
        FillNull("m", "mean"),
        FillNull("ok", False),
        FillNull("e", "z", indicator="was_null"),
    ]
    for step in steps:
        t = step.apply(t, given(), {"m": "0.07"} if step.fits else {})
    return t[["i", "f", "s", "t", "z", "d", "m", "ok", "e", "was_null"]]


@_transform(
    i=[2.0, None, 3.0, -0.5, -4.0, None],
    b=[0.0, None, 0.0, 0.0, 0.0, 0.0],
    f=[0.5, None, NAN, -3.0, INF, None],
    m=[0.5, None, 1.649999976158142, -3.5999999046325684, None, -0.550000011920929],
    ok=[0.5, None, -1.5, 0.5, -1.5, None],
)
def standardized(t: Any, xd: Any) -> Any:
    state = {
        "i": {"n": 4, "mean": 1.0, "std": 2.0, "base": 1, "rest": 0.0},
        "b": {"n": 5, "mean": 1.0, "std": 0.0, "base": 1, "rest": 0.0},
        "f": {"n": 3, "mean": 1.0, "std": 1.0},
        "m": {"n": 4, "mean": 0.6, "std": 1.0},
        "ok": {"n": 4, "mean": 0.75, "std": 0.5},
    }
    return Standardize(["i", "b", "f", "m", "ok"]).apply(t, given(), state)[["i", "b", "f", "m", "ok"]]


@_transform(
    far=[5.0, None, 7.0, 0.0, -7.0, None],
    top=[-2.0, -1.0, 0.0, 1.0, 2.0, 3.0],
)
def standardized_far_from_zero(t: Any, xd: Any) -> Any:
    known = t[["k"]].assign(far=xd.to_int(t["i"], "int64") + (1 << 60), top=xd.to_int(t["k"], "uint64") + (1 << 63))
    schema = Schema((Field("far", arrow.int64()), Field("top", arrow.uint64())))
    state = {
        "far": {"n": 3, "mean": float(1 << 60), "std": 1.0, "base": (1 << 60) + 1, "rest": -1.0},
        "top": {"n": 6, "mean": float(1 << 63), "std": 1.0, "base": (1 << 63) + 3, "rest": 0.0},
    }
    return Standardize(["far", "top"]).apply(known, schema, state)[["far", "top"]]


@_transform(
    i=[0.8571428656578064, None, 1.0, 0.5, 0.0, None],
    b=[0.0, None, 0.0, 0.0, 0.0, 0.0],
    f=[0.75, None, NAN, -1.0, INF, None],
    m=[0.5, None, 1.649999976158142, -3.5999999046325684, None, -0.550000011920929],
)
def scaled_by_extremes_and_quantiles(t: Any, xd: Any) -> Any:
    made = MinMax(["i", "b"]).apply(
        t,
        given(),
        {
            "i": {"min": -7.0, "max": 7.0, "width": 14.0, "mean": -7.0, "base": -7, "rest": 0.0},
            "b": {"min": 1.0, "max": 1.0, "width": 0.0, "mean": 1.0, "base": 1, "rest": 0.0},
        },
    )
    made = MaxAbs("f").apply(made, given(), {"f": {"max_abs": 2.0}})
    made = Robust("m").apply(made, given(), {"m": {"range": 1.0, "mean": 0.6}})
    return made[["i", "b", "f", "m"]]


@_transform(
    i=[5, None, 5, 0, -2, None],
    b=[100, None, -128, 0, 1, 2],
    f=[1.5, None, NAN, -1.0, 9.0, None],
    m=[Decimal("1.00"), None, Decimal("1.00"), Decimal("-1.00"), None, Decimal("0.05")],
    low=[1.8571428060531616, None, 3.0, -1.0, -1.0, None],
)
def kept_between_bounds(t: Any, xd: Any) -> Any:
    made = t[["i", "b", "f", "m"]].assign(low=t["i"])
    made = Clip("i", -2, 5).apply(made, given(), {})
    made = Clip("b", high=100).apply(made, given(), {})
    made = Clip("m", Decimal(-1), Decimal(1)).apply(made, given(), {})
    made = Winsorize("f").apply(made, given(), {"f": {"low": -1.0, "high": 9.0}})
    schema = Schema((Field("low", arrow.int32()),))
    figures = {"min": 0.0, "max": 7.0, "width": 7.0, "mean": 0.0, "base": 0, "rest": 0.0}
    return MinMax("low", low=-1.0, high=3.0, clip=True).apply(made, schema, {"low": figures})


@_transform(
    i=[1.7917594909667969, None, 2.079441547393799, 0.0, None, None],
    f=[0.9162907004356384, None, None, 0.0, INF, None],
    close=1e-6,
)
def logarithms(t: Any, xd: Any) -> Any:
    known = t[["k"]].assign(
        i=t["i"].where((t["i"] >= 0).fillna(False)), f=xd.nan_to_null(t["f"]).where((t["f"] != -2).fillna(True), 0.0)
    )
    return Log1p(["i", "f"]).apply(known, given(), {})[["i", "f"]]


@_transform(
    18,
    20,
    i=[3, 1, 2, 4, 2, 1],
    s=[4, 1, 5, 2, 3, 2],
    t=[3, 1, 2, 2, 2, 4],
    z=[3, 1, 2, 3, 1, 2],
    d=[2, 1, 3, 2, 1, 3],
    ok=[3, 1, 2, 3, 2, 1],
    e=[2, 4, 1, 2, 3, 4],
)
def categorified(t: Any, xd: Any) -> Any:
    values = {
        "i": pa.array([5, 0, 1 << 40], pa.int64()),
        "s": pa.array(["", "a-1", "B-22"]),
        "t": pa.array([_moment("2024-01-31 10:17:30.5"), _moment("2024-10-27 02:30")], pa.timestamp("us")),
        "z": pa.array([_utc("2024-01-31 10:17:30")], pa.timestamp("us", "UTC")),
        "d": pa.array([dt.date(1969, 12, 31)], pa.date32()),
        "ok": pa.array([True]),
        "e": pa.array(["z", "y"]),
    }
    state = {
        name: {"vocab": pa.table({"id": pa.array(range(3, 3 + len(known)), pa.int64()), "value": known})}
        for name, known in values.items()
    }
    return Categorify(list(values)).apply(t, given(), state)[list(values)]
