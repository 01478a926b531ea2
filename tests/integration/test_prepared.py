"""Prepared rows: fitted on the train rows of the run, the same however they are read, saved with the dataset."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.memory import MemorySource
from etl import Parquet, Tensors, pipeline
from etl.core.errors import ConfigError, Damaged, DataError, EtlError
from etl.tensors.dataset import open_dataset
from etl.transforms import FillNull, Standardize

if TYPE_CHECKING:
    from pathlib import Path

    from etl.api import Defined, Definition
    from etl.transforms.base import Transform

ROWS = 5000
PREPARE: list[Transform] = [FillNull("price", "mean"), Standardize(["price", "qty"])]


def orders() -> pa.Table:
    ids = np.arange(ROWS)
    price = pa.array([None if i % 7 == 3 else (i * 37 % 1000) / 8 for i in range(ROWS)], pa.float64())
    return pa.table(
        {"id": pa.array(ids), "user": pa.array(ids // 5), "qty": pa.array(ids % 11, pa.int32()), "price": price}
    )


def sink(to: Path, **more: Any) -> Tensors:
    given: dict[str, Any] = {
        "features": ["qty", "price"],
        "key": "id",
        "order": "key",
        "split": {"train": 0.8, "val": 0.2},
        "split_key": "user",
    }
    return Tensors(str(to), **given | more)


def source(parts: bool = True) -> MemorySource:  # noqa: FBT001, FBT002 - a table cut by key, or whole
    return MemorySource(orders(), key="id" if parts else "")


def straight(to: Path, **more: Any) -> Definition:
    return pipeline(name="straight", sources={"orders": source()}, sink=sink(to, **more), prepare=PREPARE)


def rowwise(to: Path) -> Defined[..., Any]:
    @pipeline(sources={"orders": source()}, sink=sink(to), prepare=PREPARE, rowwise=True)
    def made(orders: Any) -> Any:
        return orders.assign(qty=orders["qty"] + 0)

    return made


def whole(to: Path) -> Defined[..., Any]:
    @pipeline(sources={"orders": source(parts=False)}, sink=sink(to), prepare=PREPARE)
    def made(orders: Any) -> Any:
        return orders

    return made


def train_rows(folder: Path) -> set[int]:
    return set(open_dataset(folder).split("train").tensors()["id"].tolist())


def fit_of(folder: Path) -> dict[str, Any]:
    fit = json.loads((folder / "_manifest.json").read_text())["fit"]
    assert isinstance(fit, dict)
    return fit


def plan_of(folder: Path) -> dict[str, Any]:
    fit = fit_of(folder)
    (path,) = (path for path in fit["files"] if path.endswith("/plan.json"))
    found = json.loads((folder / path).read_text())
    assert isinstance(found, dict)
    return found | {"fit_id": fit["fit_id"]}


def test_figures_are_those_of_the_train_rows_alone(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    chosen = train_rows(tmp_path / "d")
    table = orders().to_pydict()
    prices = [Fraction(p) for i, p in zip(table["id"], table["price"], strict=True) if i in chosen and p is not None]
    mean = sum(prices) / len(prices)
    filled = [*prices, *[Fraction(float(mean))] * (len(chosen) - len(prices))]
    spread = math.sqrt(sum((p - mean) ** 2 for p in filled) / len(filled))
    steps = plan_of(tmp_path / "d")["steps"]
    assert float.fromhex(steps[0]["figures"]["price"]["float"]) == pytest.approx(float(mean), rel=1e-13)
    assert float.fromhex(steps[1]["figures"]["price"]["std"]["float"]) == pytest.approx(spread, rel=1e-12)
    assert fit_of(tmp_path / "d")["fitted_on"] == {"split": "train", "rows": len(chosen)}
    train = open_dataset(tmp_path / "d").split("train").tensors()["x"]
    assert train.dtype == np.float32
    train = train.astype(np.float64)
    assert abs(train.mean(axis=0)).max() < 1e-6
    assert train.std(axis=0) == pytest.approx([1, 1], rel=1e-6)


def test_one_part_or_many_row_by_row_or_whole_the_rows_are_the_same(tmp_path: Path) -> None:
    straight(tmp_path / "a").run()
    pipeline(name="one", sources={"o": source(parts=False)}, sink=sink(tmp_path / "b"), prepare=PREPARE).run()
    rowwise(tmp_path / "c").run(workers=1)
    whole(tmp_path / "d").run(workers=1)
    datasets = [open_dataset(tmp_path / name) for name in "abcd"]
    assert len({str(one.manifest.document["content_sha256"]) for one in datasets}) == 1
    fits = [plan_of(tmp_path / name) for name in "abcd"]
    assert {one["fit_id"] for one in fits[:2]} == {fits[0]["fit_id"]}
    assert all(one["steps"] == fits[0]["steps"] for one in fits)
    sources = json.loads((tmp_path / "a/_manifest.json").read_text())["source"]
    assert [one["name"] for one in sources] == ["orders"]
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")], "rows were left between the passes"


def test_an_append_takes_the_figures_of_its_dataset(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    first = plan_of(tmp_path / "d")
    far = orders().set_column(3, "price", pa.array([1e6] * ROWS, pa.float64()))
    more = pipeline(name="more", sources={"orders": far}, sink=sink(tmp_path / "d", mode="append"), prepare=PREPARE)
    assert more.run().version == 2
    assert plan_of(tmp_path / "d") == first
    x = open_dataset(tmp_path / "d").split("val").tensors()["x"]
    mean, std = (float.fromhex(first["steps"][1]["figures"]["price"][n]["float"]) for n in ("mean", "std"))
    assert x[-1, 1] == pytest.approx((1e6 - mean) / std, rel=1e-6)
    other = pipeline(
        name="other", sources={"orders": far}, sink=sink(tmp_path / "d", mode="append"), prepare=PREPARE[::-1]
    )
    with pytest.raises(ConfigError, match=r"step 1 of prepare is Standardize\(.*has FillNull\('price', value='mean'\)"):
        other.run()
    unfitted = pipeline(name="plain", sources={"orders": orders()}, sink=sink(tmp_path / "e"))
    unfitted.run()
    late = pipeline(name="late", sources={"orders": far}, sink=sink(tmp_path / "e", mode="append"), prepare=PREPARE)
    with pytest.raises(EtlError):
        late.run()


def test_a_new_version_has_a_new_fit_and_the_old_one_stays(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    old = plan_of(tmp_path / "d")["fit_id"]
    twice = orders().set_column(3, "price", pa.array([float(i) for i in range(ROWS)]))
    pipeline(name="new", sources={"orders": twice}, sink=sink(tmp_path / "d"), prepare=PREPARE).run()
    new = plan_of(tmp_path / "d")["fit_id"]
    assert new != old
    assert sorted(p.name for p in (tmp_path / "d/_state").iterdir()) == sorted([old, new])
    open_dataset(tmp_path / "d", verify="sha256")
    open_dataset(tmp_path / "d", version=1, verify="sha256")


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_damaged_state_is_found_when_the_dataset_is_opened(how: str, tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    (path,) = (tmp_path / "d/_state").glob("*/plan.json")
    if how == "changed":
        path.write_bytes(path.read_bytes().replace(b'"state_version":1', b'"state_version":9'))
    else:
        path.unlink()
    with pytest.raises(Damaged, match=r"_state/\w+/plan\.json"):
        open_dataset(tmp_path / "d")


def test_steps_without_figures_need_no_pass_of_their_own(tmp_path: Path) -> None:
    steps: list[Transform] = [FillNull("price", -1.0, indicator="price_was_null")]
    found = pipeline(
        name="flat", sources={"orders": source()}, sink=Parquet(str(tmp_path / "d"), key="id"), prepare=steps
    )
    assert found.run().rows == ROWS
    table = open_dataset(tmp_path / "d").table().sort_by("id")
    assert table.column("price").null_count == 0
    assert table.column("price_was_null").to_pylist() == [p is None for p in orders().column("price").to_pylist()]
    fit = json.loads((tmp_path / "d/_manifest.json").read_text())["fit"]
    assert fit["fitted_on"] == {"rows": 0, "split": "none"}, "saved all the same: a service prepares rows by it"


def test_what_cannot_be_fitted_publishes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    empty = orders().set_column(3, "price", pa.nulls(ROWS, pa.float64()))
    made = pipeline(name="empty", sources={"orders": empty}, sink=sink(tmp_path / "d"), prepare=PREPARE)
    with pytest.raises(DataError, match=r"step 1 of prepare.*column price has no value"):
        made.run()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("prepare", "more", "words"),
    [
        ([Standardize("prize")], {}, r"step 1 of prepare.*prize"),
        ([FillNull("price", 0.0), FillNull("id", "x")], {}, r"step 2 of prepare.*the value is no int64"),
        (PREPARE, {"split": {"a": 0.5, "b": 0.5}}, "steps are fitted on the split train, and the splits are a, b"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(
    prepare: Any, more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    made = pipeline(name="wrong", sources={"orders": source()}, sink=sink(tmp_path / "d", **more), prepare=prepare)
    with pytest.raises(EtlError, match=words):
        made.run()
    assert list(tmp_path.iterdir()) == []


def test_a_plan_shows_the_steps_and_what_comes_out(tmp_path: Path) -> None:
    found: dict[str, Any] = straight(tmp_path / "d").plan().to_json()
    assert [(one["scan"], one["step"].split("(")[0]) for one in found["prepare"]] == [
        (1, "FillNull"),
        (1, "Standardize"),
    ]
    assert {c["name"]: c["arrow_type"] for c in found["schema"]}["qty"] == "float"


@pytest.mark.parametrize("wrong", [[1], "FillNull", [Standardize], None])
def test_prepare_takes_steps_only(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prepare has"):
        pipeline(name="p", sources={"orders": orders()}, sink=sink(tmp_path / "d"), prepare=wrong)
