"""Steps on dates, texts, lists, decimals and by a user's function: in a dataset, and the same row by row in serving."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import etl
from connectors.memory import MemorySource
from etl import Tensors, pipeline
from etl.tensors.dataset import open_dataset
from etl.transforms import (
    Age,
    Apply,
    Cast,
    Cyclic,
    DateParts,
    DecimalScale,
    ListPad,
    ListPool,
    ListSlice,
    NullIndicator,
    Rename,
    TextNormalize,
)

if TYPE_CHECKING:
    from pathlib import Path

    from etl.transforms.base import Transform

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
ROWS = 40
PREPARE: list[Transform] = [
    NullIndicator("at"),
    DateParts("at", ["year", "hour", "weekday"], tz="Asia/Shanghai"),
    Cyclic("at", part="hour", tz="Asia/Shanghai"),
    Age("born", unit="years"),
    DecimalScale("price"),
    TextNormalize("name"),
    ListPool("few", "mean"),
    ListSlice("tags", -3),
    ListPad("tags", 4, side="left"),
    Apply("tests.applying:ratio", ["a", "b"], {"ratio": "float32", "a": "int32"}),
    Cast("a", "int16"),
    Rename({"a": "a_small"}),
]
FEATURES = [
    "at_null",
    "at_year",
    "at_hour",
    "at_weekday",
    "at_sin",
    "at_cos",
    "born",
    "price",
    "few",
    "ratio",
    "a_small",
]


def rows() -> list[dict[str, Any]]:
    start = datetime(2019, 12, 31, 15, 30, tzinfo=UTC)
    return [
        {
            "id": i,
            "at": None if i % 5 == 4 else start + timedelta(hours=7 * i),
            "born": date(1960 + i, 2, 28),
            "price": Decimal(i) / 4,
            "name": ["  Ä B", None, "C\u3000 d"][i % 3],
            "few": [0.5 * i, 1.0],
            "tags": list(range(i % 6)),
            "a": i,
            "b": float(i % 3),
        }
        for i in range(ROWS)
    ]


def table() -> pa.Table:
    schema = ARROW.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("born", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("name", pa.string()),
            ("few", pa.list_(pa.float64())),
            ("tags", pa.list_(pa.int32())),
            ("a", pa.int32()),
            ("b", pa.float64()),
        ]
    )
    made: pa.Table = ARROW.Table.from_pylist(rows(), schema=schema)
    return made


def test_rows_served_one_by_one_are_those_of_the_dataset(tmp_path: Path) -> None:
    sink = Tensors(str(tmp_path / "d"), features=FEATURES, key="id", order="key", dtype="float64")
    made = pipeline(name="p", sources={"rows": MemorySource(table(), key="id")}, sink=sink, prepare=PREPARE)
    made.run()
    tensors = open_dataset(tmp_path / "d").tensors()
    served = etl.load_preprocessor(tmp_path / "d")
    for i, row in enumerate(rows()):
        one = served.transform(row)
        np.testing.assert_array_equal(one["x"][0], tensors["x"][i])
        np.testing.assert_array_equal(one["x.valid"][0], tensors["x.valid"][i])
    row = tensors["x"][2].tolist()
    # 2020-01-01 05:30 in UTC is 13:30 in Shanghai, a Wednesday.
    assert row[:4] == [0.0, 2020.0, 13.0, 2.0]
    assert row[6] == np.float32(((date(1962, 2, 28) - date(1960, 2, 28)).days) / 365.2425)
    assert row[7:] == [50.0, 1.0, 1.0, 3.0]


def test_texts_and_lists_are_tensors_of_their_own(tmp_path: Path) -> None:
    sink = Tensors(str(tmp_path / "d"), key="id", order="key")
    pipeline(name="p", sources={"rows": MemorySource(table(), key="id")}, sink=sink, prepare=PREPARE).run()
    data = open_dataset(tmp_path / "d")
    tags = data.tensors()["tags"]
    assert tags.shape == (ROWS, 4)
    assert tags[5].tolist() == [0, 2, 3, 4]
    served = etl.load_preprocessor(tmp_path / "d")
    out = served.transform(rows())
    np.testing.assert_array_equal(out["tags"], tags)
    assert out["name"][:3].tolist() == ["ä b", None, "c d"]
