"""Serving: a row gets what the dataset's rows have, to the bit, by name, whatever it comes in; or it is refused."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from etl import Parquet, Tensors, load_preprocessor, open_dataset, pipeline
from etl.core.errors import CastError, ConfigError, Damaged, DatasetError, SchemaError
from etl.transforms import Categorify, FillNull, Standardize

if TYPE_CHECKING:
    from pathlib import Path


def orders(rows: int = 60) -> pa.Table:
    some: list[Any] = [None if i % 7 == 3 else i for i in range(rows)]

    def of(make: Any, kind: Any) -> Any:
        return pa.array([None if i is None else make(i) for i in some], kind)

    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "price": of(lambda i: math.nan if i % 11 == 0 else i / 4, pa.float64()),
            "qty": of(lambda i: i, pa.int32()),
            "big": of(lambda i: (1 << 60) + i, pa.int64()),
            "cost": of(lambda i: Decimal(i) / 10, pa.decimal128(9, 2)),
            "gift": of(lambda i: i % 2 == 0, pa.bool_()),
            "at": of(lambda i: datetime(2024, 1, 1, 0, 0, i % 60, tzinfo=UTC), pa.timestamp("us", tz="UTC")),
            "day": of(lambda i: date(2024, 1, 1 + i % 28), pa.date32()),
            "label": pa.array([i % 2 for i in range(rows)], pa.int64()),
        }
    )


PACKED = ["price", "qty", "cost", "gift"]
STEPS: list[Any] = [FillNull("qty", "mean"), Standardize(["price", "qty", "cost"])]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "d"
    sink = Tensors(
        str(folder), features=PACKED, target="label", key="id", split={"train": 0.8, "val": 0.2}, split_key="id"
    )
    pipeline(name="packed", sources={"orders": orders()}, sink=sink, prepare=STEPS).run()
    return folder


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_every_row_of_every_split_gets_what_the_dataset_has(packed: Path) -> None:
    prep = load_preprocessor(packed)
    for name in ("train", "val"):
        had = open_dataset(packed).split(name).tensors()
        given = orders().take(pa.array(had["id"]))
        for form in (given, given.to_batches()[0], rows_of(given)):
            made = prep.transform(form)
            assert {*made} == {"x", "x.valid"}
            np.testing.assert_array_equal(made["x"].view(np.uint32), had["x"].view(np.uint32))
            np.testing.assert_array_equal(made["x.valid"], had["x.valid"])
            assert made["x"].dtype == had["x"].dtype


def test_one_row_is_a_row_of_many(packed: Path) -> None:
    prep = load_preprocessor(packed)
    many = prep.transform(orders())
    for number, row in enumerate(rows_of(orders())):
        one = prep.transform(row)
        for name, tensor in many.items():
            assert one[name].tobytes() == tensor[number : number + 1].tobytes(), (number, name)


def test_columns_go_by_name_and_others_are_left_alone(packed: Path) -> None:
    prep = load_preprocessor(packed)
    row = {"gift": True, "cost": Decimal("1.50"), "qty": 3, "price": 0.25, "other": object()}
    assert prep.transform(row)["x"].tobytes() == prep.transform(dict(reversed(row.items())))["x"].tobytes()
    with pytest.raises(SchemaError, match="not asked for; extra: other"):
        prep.transform(row, strict=True)


def test_missing_columns_are_named_beside_extra_ones(packed: Path) -> None:
    prep = load_preprocessor(packed)
    for given in ({"price": 1.0, "prize": 1}, [{"price": 1.0, "prize": 1}], pa.table({"price": [1.0], "prize": [1]})):
        with pytest.raises(SchemaError, match=r"columns are missing: qty, cost, gift; extra: prize"):
            prep.transform(given)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("qty", 1.5),
        ("qty", "3"),
        ("qty", True),
        ("qty", 1 << 40),
        ("qty", math.nan),
        ("price", "1.0"),
        ("price", (1 << 60) + 1),
        ("gift", 1),
        ("cost", 0.125),
        ("cost", Decimal("0.125")),
    ],
)
def test_a_value_of_another_type_is_refused_naming_it(packed: Path, column: str, value: Any) -> None:
    row = {"price": 1.0, "qty": 1, "cost": Decimal(1), "gift": False}
    for given in ({**row, column: value}, [row, {**row, column: value}]):
        with pytest.raises(CastError, match=rf"column {column}, row [12]: .* is no "):
            load_preprocessor(packed).transform(given)


def test_an_integer_is_a_float_that_holds_it(packed: Path) -> None:
    prep = load_preprocessor(packed)
    row = {"price": 2, "qty": 1, "cost": 1, "gift": False}
    same = {"price": 2.0, "qty": np.int32(1), "cost": Decimal("1.00"), "gift": np.True_ == np.False_}
    assert prep.transform(row)["x"].tobytes() == prep.transform(same)["x"].tobytes()


def test_frames_of_pandas_are_tables(packed: Path) -> None:
    prep = load_preprocessor(packed)
    plain = orders().select(PACKED).to_pandas(types_mapper=pd.ArrowDtype)
    np.testing.assert_array_equal(prep.transform(plain)["x"], prep.transform(orders())["x"])
    with pytest.raises(SchemaError, match=r"column qty is double; the fit was made from int32"):
        prep.transform(plain.assign(qty=1.0))
    with pytest.raises(SchemaError, match="rows are given as a ndarray"):
        prep.transform(np.zeros((1, 4)))


def test_columns_of_their_own_and_tables_come_by_name(tmp_path: Path) -> None:
    names = ["price", "qty", "big", "cost", "gift", "at", "day"]
    table = orders().select(["id", *names])
    steps: list[Any] = [FillNull("qty", 0), Standardize("price")]
    for sink in (Tensors(str(tmp_path / "t"), key="id"), Parquet(str(tmp_path / "p"), key="id")):
        pipeline(name="own", sources={"orders": table}, sink=sink, prepare=steps).run()
    had = open_dataset(tmp_path / "t").tensors()
    for folder in ("t", "p"):
        made = load_preprocessor(tmp_path / folder).transform(table)
        assert {*made} == {name for name in had if not name.startswith("id")}
        for name, tensor in made.items():
            assert tensor.tobytes() == had[name].tobytes(), name
            assert tensor.dtype == had[name].dtype


def test_nulls_of_the_dataset_hold_in_serving(tmp_path: Path) -> None:
    table = orders().select(["id", "price", "qty"])
    sink = Tensors(str(tmp_path / "d"), features=["price", "qty"], key="id", nulls={"price": "fill=-1", "qty": "drop"})
    pipeline(name="n", sources={"o": table}, sink=sink, prepare=[FillNull("id", 0)]).run()
    prep = load_preprocessor(tmp_path / "d")
    assert prep.transform({"price": None, "qty": 1})["x"].tolist() == [[-1.0, 1.0]]
    with pytest.raises(CastError, match="column qty, row 2: it is NULL"):
        prep.transform([{"price": 1.0, "qty": 1}, {"price": 1.0, "qty": None}])


def test_what_the_dataset_refuses_serving_refuses(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "big": [1, 2], "v": [0.5, 1.5]})
    sink = Tensors(str(tmp_path / "d"), features=["big", "v"], key="id", dtype="float64")
    pipeline(name="b", sources={"t": table}, sink=sink, prepare=[Standardize("v")]).run()
    prep = load_preprocessor(tmp_path / "d")
    assert prep.transform({"big": 1 << 53, "v": 1.0})["x"][0, 0] == 1 << 53
    with pytest.raises(CastError, match="column big, row 1"):
        prep.transform({"big": (1 << 53) + 1, "v": 1.0})


def test_a_null_is_counted_once_whoever_counts_it(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "c": ["a", None]})
    sink = Tensors(str(tmp_path / "d"), features=["c"], key="id")
    pipeline(name="c", sources={"t": table}, sink=sink, prepare=[Categorify("c")]).run()
    prep = load_preprocessor(tmp_path / "d")
    prep.transform([{"c": None}, {"c": "b"}, {"c": None}])
    assert prep.counters == {"c": {"null": 2, "unseen": 1}}


def test_what_happened_is_counted(packed: Path) -> None:
    prep = load_preprocessor(packed)
    prep.transform([{"price": None, "qty": None, "cost": None, "gift": True}] * 2)
    assert prep.counters == {
        "cost": {"null": 2},
        "price": {"null": 2},
        "qty": {"filled": 2, "null": 2},
    }


def test_golden_rows_prove_the_state_and_a_changed_one_does_not(packed: Path, tmp_path: Path) -> None:
    prep = load_preprocessor(packed)
    assert prep.prove() == 32
    assert prep.golden is not None
    assert {*prep.golden[0].column_names} == {"price", "qty", "cost", "gift"}, "no keys, no targets"
    copy = tmp_path / "copy"
    shutil.copytree(packed, copy)
    (plan,) = copy.glob("_state/*/plan.json")
    changed = plan.read_text().replace('"mean":{"float":"0x', '"mean":{"float":"-0x', 1)
    assert changed != plan.read_text()
    plan.write_text(changed)
    with pytest.raises(Damaged, match="SHA-256"):
        load_preprocessor(copy)


def test_the_state_alone_is_enough(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    shutil.copy(packed / "_manifest.json", tmp_path / "bundle")
    shutil.copytree(packed / "_state", tmp_path / "bundle" / "_state")
    (tmp_path / "bundle" / "_state" / "evil.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    made = load_preprocessor(tmp_path / "bundle").transform(orders())
    np.testing.assert_array_equal(made["x"], load_preprocessor(packed).transform(orders())["x"])


def test_a_dataset_without_steps_has_nothing_to_serve(tmp_path: Path) -> None:
    pipeline(name="n", sources={"o": orders()}, sink=Tensors(str(tmp_path / "d"))).run()
    with pytest.raises(ConfigError, match="made without prepare"):
        load_preprocessor(tmp_path / "d")
    with pytest.raises(DatasetError, match="is not there"):
        load_preprocessor(tmp_path / "e")


def test_a_version_has_its_own_state(tmp_path: Path) -> None:
    for factor in (1, 2):
        table = pa.table({"v": [1.0 * factor, 3.0 * factor]})
        pipeline(name="v", sources={"t": table}, sink=Tensors(str(tmp_path / "d")), prepare=[Standardize("v")]).run()
    first, second = load_preprocessor(tmp_path / "d", version=1), load_preprocessor(tmp_path / "d")
    assert first.transform({"v": 2.0})["v"].tolist() == [0.0]
    assert second.transform({"v": 2.0})["v"].tolist() == [-1.0]
    assert first.fit_id != second.fit_id


ALONE = """
import json, sys
from etl import load_preprocessor
prep = load_preprocessor(sys.argv[1])
made = prep.transform({"price": 1.0, "qty": 2, "cost": 1, "gift": True})
heavy = [m for m in ("pandas", "dask", "distributed", "cudf", "numba", "sqlalchemy", "psycopg") if m in sys.modules]
print(json.dumps([heavy, made["x"].tobytes().hex()]))
"""


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_service_imports_neither_pandas_nor_dask_and_always_answers_the_same(packed: Path, seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(packed)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": seed, "PATH": ""},
    )
    heavy, hexed = json.loads(done.stdout)
    assert heavy == []
    made = load_preprocessor(packed).transform({"price": 1.0, "qty": 2, "cost": 1, "gift": True})
    assert hexed == made["x"].tobytes().hex()
