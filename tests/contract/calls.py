"""Calls that an ETL makes all day, and calls that cuDF refuses or understands otherwise; each takes (frame, module)."""

# ruff: noqa: FBT003 - fillna(False) is how a mask is closed

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Operation: TypeAlias = "Callable[[Any, Any], Any]"


def shop() -> pa.Table:
    """A few rows of every carried type, with NULL and NaN."""
    d = decimal.Decimal
    return pa.table(
        {
            "id": pa.array([3, 1, 2, 1], pa.int64()),
            "qty": pa.array([5, None, 7, 0], pa.int32()),
            "price": pa.array([1.5, None, float("nan"), -2.0], pa.float64()),
            "amt": pa.array([d("1.10"), None, d("2.25"), d("3.00")], pa.decimal128(18, 2)),
            "name": pa.array(["a-1", None, "b-22", "c"]),
            "ts": pa.array(["2024-01-01", "2024-01-02", "2024-02-01", "2024-02-01"]),
            "at": pa.array([0, 1, None, 3], pa.timestamp("us")),
            "day": pa.array([19000, 19001, None, 19002], pa.date32()),
            "paid": pa.array([True, None, False, True]),
            "mode": pa.array(["x", "y", None, "x"]).dictionary_encode(),
            "tags": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
        }
    )


def whole(t: Any, xd: Any) -> Any:
    """A transform written to the rules: parse, extract, filter, join, group, sort."""
    t["ts"] = xd.to_datetime(t["ts"], format="%Y-%m-%d")
    t = t.assign(code=t["name"].str.extract(r"([0-9]+)", expand=False), month=t["ts"].dt.month)
    t = t[(t["id"] > 0).fillna(False)]
    t = t.merge(t[["id"]].drop_duplicates(subset=["id"]), on="id", how="left")
    sums = t.groupby(["id", "month"], sort=True, dropna=False).agg({"amt": "sum", "code": "max"})
    return sums.reset_index().sort_values(["id", "month"], kind="stable")


ORDINARY: Final[Mapping[str, Operation]] = {
    "a whole transform": whole,
    "filter on a nullable int": lambda t, _: t[(t["qty"] > 1).fillna(False)],
    "negated filter": lambda t, _: t[~(t["price"] > 0).fillna(False)],
    "two conditions": lambda t, _: t[(t["qty"] > 1).fillna(False) & (t["name"] == "c").fillna(False)],
    "isin": lambda t, _: t[t["name"].isin(["c", "a-1"])],
    "select and rename": lambda t, _: t[["id", "qty"]].rename(columns={"qty": "n"}),
    "column labels": lambda t, _: setattr(t, "columns", [f"c{i}" for i in range(11)]),
    "drop, dropna": lambda t, _: t.drop(columns=["tags"]).dropna(subset=["qty"]),
    "fillna": lambda t, _: t["qty"].fillna(0),
    "astype": lambda t, _: t["qty"].astype("float64"),
    "clip, round, abs": lambda t, _: t["price"].clip(lower=0.0).round(1).abs(),
    "subtract the mean": lambda t, _: t["qty"] - t["qty"].mean(),
    "where": lambda t, _: t["price"].where(t["price"].notna(), 0.0),
    "NaN to NULL": lambda t, _: t["price"].where(~(t["price"] != t["price"]).fillna(False)),
    "ratio in float64": lambda t, _: t["qty"].astype("float64") / t["id"].astype("float64"),
    "decimal product": lambda t, _: t["amt"] * t["amt"],
    "power and root": lambda t, _: t["qty"].astype("float64") ** 0.5,
    "numpy function": lambda t, _: np.log(t["id"].astype("float64")),
    "sort": lambda t, _: t.sort_values(["id", "qty"], ascending=[True, False], kind="stable", na_position="last"),
    "dedupe": lambda t, _: t.drop_duplicates(subset=["id"], keep="first"),
    "merge": lambda t, _: t.merge(t[["id", "qty"]], on="id", how="left", suffixes=("", "_r")),
    "concat": lambda t, xd: xd.concat([t, t], ignore_index=True),
    "groupby sum, min_count": lambda t, _: t.groupby("id", sort=True)["qty"].sum(min_count=1),
    "groupby named aggregation": lambda t, _: t.groupby("id", sort=True).agg(n=("qty", "sum"), p=("price", "max")),
    "groupby size": lambda t, _: t.groupby("id", sort=True).size().reset_index(),
    "transform by name": lambda t, _: t["qty"] - t.groupby("id", sort=True)["qty"].transform("mean"),
    "cumcount": lambda t, _: t.groupby("id", sort=True).cumcount(),
    "strip and lower": lambda t, _: t["name"].str.strip().str.lower(),
    "contains": lambda t, _: t["name"].str.contains(r"^[a-z]-[0-9]+"),
    "replace, regex given": lambda t, _: t["name"].str.replace("-", "_", regex=False),
    "named group": lambda t, _: t["name"].str.extract(r"(?P<n>[0-9]+)", expand=True),
    "split": lambda t, _: t["name"].str.split("-", n=1, expand=True),
    "slice, zfill, concatenate": lambda t, _: t["name"].str.slice(0, 1) + t["name"].str.zfill(5),
    "parse numbers": lambda t, xd: xd.to_numeric(t["ts"].str.slice(0, 4), errors="coerce"),
    "date parts": lambda t, _: t["at"].dt.year * 100 + t["at"].dt.month,
    "floor to a day": lambda t, _: t["at"].dt.floor("D"),
    "next month": lambda t, xd: t["at"] + xd.DateOffset(months=1),
    "to UTC and back": lambda t, _: t["at"].dt.tz_localize("UTC").dt.tz_convert(None),
    "date filter": lambda t, _: t[(t["day"] >= pd.Timestamp("2022-01-08")).fillna(False)],
    "category codes": lambda t, _: t["mode"].cat.codes,
    "one-hot": lambda t, xd: xd.get_dummies(t[["name"]], columns=["name"]),
    "bins with edges": lambda t, xd: xd.cut(t["id"], bins=[0, 1, 2, 3]),
    "explode": lambda t, _: t[["id", "tags"]].explode("tags"),
    "list lengths": lambda t, _: t["tags"].list.len(),
    "melt": lambda t, _: t[["id", "qty"]].melt(id_vars=["id"], value_vars=["qty"]),
    "pivot": lambda t, _: t[["id", "ts", "qty"]].pivot_table(index="id", columns="ts", values="qty", aggfunc="sum"),
    "rolling mean": lambda t, _: t["id"].rolling(2).mean(),
    "shift and diff": lambda t, _: t["qty"].diff() + t["qty"].shift(1),
    "function in assign": lambda t, _: t.assign(twice=lambda d: d["qty"] * 2),
}

PLANTED: Final[Mapping[str, Operation]] = {
    "groupby without sort=": lambda t, _: t.groupby("id"),
    "str.replace without regex=": lambda t, _: t["name"].str.replace(".", "x"),
    "apply without axis=": lambda t, _: t[["id"]].apply(lambda row: row["id"]),
    "to_datetime(errors='coerce')": lambda t, xd: xd.to_datetime(t["ts"], errors="coerce"),
    "merge(indicator=True)": lambda t, _: t.merge(t[["id"]], on="id", indicator=True),
    "sort_values(key=)": lambda t, _: t.sort_values("id", key=lambda s: -s),
    "str.fullmatch": lambda t, _: t["name"].str.fullmatch("a"),
    "look-ahead": lambda t, _: t["name"].str.contains(r"a(?=-)"),
    "back-reference": lambda t, _: t["name"].str.contains(r"(a)\1"),
    "inline flag": lambda t, _: t["name"].str.contains(r"(?i)a"),
    "POSIX class": lambda t, _: t["name"].str.contains(r"[[:alpha:]]"),
    "Unicode digits": lambda t, _: t["name"].str.contains(r"\d"),
    "contains(case=False)": lambda t, _: t["name"].str.contains("A", case=False),
    "floor('15min')": lambda t, _: t["at"].dt.floor("15min"),
    "qcut": lambda t, xd: xd.qcut(t["id"], 4),
    "groupby.filter": lambda t, _: t.groupby("id", sort=True).filter(lambda _: True),
    "groupby agg any": lambda t, _: t.groupby("id", sort=True).agg({"id": "any"}),
    "groupby transform(lambda)": lambda t, _: t.groupby("id", sort=True)["qty"].transform(lambda s: s - s.mean()),
    "mean of strings": lambda t, _: t.groupby("id", sort=True).agg({"name": "mean"}),
    "string + int": lambda t, _: t["name"] + t["id"],
    "pandas DateOffset": lambda t, _: t["at"] + pd.DateOffset(months=1),
    "fixed-offset zone": lambda t, _: t["at"].dt.tz_localize("+05:30"),
    "decimal // int": lambda t, _: t["amt"] // t["amt"],
    "idxmax": lambda t, _: t["id"].idxmax(),
    "rolling median": lambda t, _: t["id"].rolling(2).median(),
    "rename_categories": lambda t, _: t["mode"].cat.rename_categories({"x": "z"}),
    "tolist": lambda t, _: t["id"].tolist(),
    "iteration": lambda t, _: list(t["id"]),
    "np.where": lambda t, _: np.where(t["id"] > 1, 1, 0),
    ".values": lambda t, _: t["id"].values,  # noqa: PD011 - what must be refused
    "violation inside assign": lambda t, _: t.assign(x=lambda d: d["name"].str.fullmatch("a")),
    "object column": lambda t, _: t.assign(x=[decimal.Decimal(1)] * 4)["x"],
}
