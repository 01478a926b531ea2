"""The examples of pipelines/ run, and give the same dataset however their sources are cut and wherever parts run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import etl
from etl.planning import loader
from etl.run.naming import new_run_id
from etl.run.pipelines import run_pipeline
from tests.command import ROOT
from tests.shops import few_orders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from etl.run.result import RunResult

DAY = date(2024, 3, 1)
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "shop_features": {},
    "point_in_time": {},
    "daily_parquet": {"day": DAY},
}
"""Example → its parameters."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cuetl.toml, the examples, and a demo shop with the orders of a few users."""
    folder = tmp_path_factory.mktemp("examples")
    shop = folder / "cuetl-demo" / "shop.sqlite"
    few_orders(shop)
    shutil.copy(ROOT / "etl/cli/templates/cuetl.toml", folder)
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    return folder


def ran(home: Path, out: Path, name: str, parts: int, workers: int) -> RunResult:
    """Run an example over the shop into a folder."""
    pipeline = loader.load(str(ROOT / "pipelines" / f"{name}.py"))
    at = f"sqlite:///{home}/cuetl-demo/shop.sqlite"
    pipeline = replace(
        pipeline,
        sources={
            k: replace(s, connection=at, partitions=parts)
            for k, s in pipeline.sources.items()
            if isinstance(s, etl.SQL)
        },
        sink=replace(pipeline.sink, to=str(out)),
    )
    run_id = new_run_id()
    return run_pipeline(pipeline.bind(EXAMPLES[name], run_id), run_id=run_id, workers=workers)


def contents(out: Path) -> dict[str, object]:
    """Every value of a dataset, by split and tensor; of Parquet its table."""
    dataset = etl.open_dataset(str(out))
    if dataset.manifest.format == "parquet":
        return {"all": dataset.split("all").table()}
    return {f"{s}.{n}": v for s in dataset.splits for n, v in dataset.split(s).tensors().items()}


def same(left: dict[str, object], right: dict[str, object]) -> bool:
    """The same names, dtypes, values and order of rows."""

    def equal(one: object, other: object) -> bool:
        if isinstance(one, pa.Table) and isinstance(other, pa.Table):
            return bool(one.equals(other))
        first, second = np.asarray(one), np.asarray(other)
        return first.dtype == second.dtype and np.array_equal(first, second)

    return left.keys() == right.keys() and all(equal(left[n], right[n]) for n in left)


@pytest.mark.parametrize(
    "name", ["shop_features", "daily_parquet", pytest.param("point_in_time", marks=pytest.mark.slow)]
)
def test_an_example_gives_the_same_dataset_however_it_is_cut(name: str, home: Path, tmp_path: Path) -> None:
    one = ran(home, tmp_path / "one", name, 1, 1)
    assert one.rows > 0
    expected = contents(tmp_path / "one")
    for parts, workers in ((7, 1), (7, 2)):
        out = tmp_path / f"{parts}-{workers}"
        found = ran(home, out, name, parts, workers)
        assert found.rows == one.rows
        assert found.partitions > one.partitions  # a part or more of each source
        assert same(contents(out), expected), (parts, workers)


def test_every_example_is_run_and_explained() -> None:
    names = {path.stem for path in (ROOT / "pipelines").glob("*.py")}
    text = (ROOT / "pipelines" / "README.md").read_text()
    assert names == set(EXAMPLES)
    for name in names:
        assert f"cuetl run {name}" in text
        assert f"({name}.py)" in text
