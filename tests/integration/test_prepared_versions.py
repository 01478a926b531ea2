"""A fit over the life of its dataset: appends that do not belong, operations on versions, what people are told."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from etl import Parquet, pipeline
from etl.core.errors import ConfigError, EtlError, SchemaError
from etl.tensors import erase, operations
from etl.tensors.dataset import open_dataset
from etl.tensors.difference import diff
from etl.transforms import FillNull, Standardize
from etl.transforms.preprocessor import figures_of
from tests.command import cuetl
from tests.integration.test_prepared import PREPARE, ROWS, fit_of, orders, plan_of, sink, straight

if TYPE_CHECKING:
    from pathlib import Path

    from etl.api import Definition
    from etl.transforms.base import Transform


def appended(to: Path, table: pa.Table, prepare: list[Transform] = PREPARE, **more: Any) -> Definition:
    return pipeline(name="more", sources={"orders": table}, sink=sink(to, mode="append", **more), prepare=prepare)


def replaced(to: Path, table: pa.Table, prepare: list[Transform] = PREPARE, **more: Any) -> Definition:
    return pipeline(name="new", sources={"orders": table}, sink=sink(to, **more), prepare=prepare)


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def doubled() -> pa.Table:
    return orders().set_column(3, "price", pa.array([float(2 * i) for i in range(ROWS)]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.set_column(3, "price", t.column("price").cast(pa.float32())), "price is float, in the fit double"),
        (lambda t: t.drop_columns(["qty"]).append_column("qty", t.column("qty").cast("int64")), "qty is int64"),
        (lambda t: t.append_column("other", t.column("id")), "other is new"),
        (lambda t: t.drop_columns(["qty"]), "qty is missing"),
    ],
)
def test_an_append_of_other_columns_is_refused_by_plan_and_run(change: Any, words: str, tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    more = appended(tmp_path / "d", change(orders()))
    for call in (more.plan, more.run):
        with pytest.raises(SchemaError, match=words):
            call()
    assert open_dataset(tmp_path / "d").manifest.version == 1


@pytest.mark.parametrize("rowwise", [True, False])
def test_a_function_appends_with_the_fit_or_is_refused(rowwise: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    straight(tmp_path / "d").run()
    first = fit_of(tmp_path / "d")

    def define(add: bool) -> Any:  # noqa: FBT001 - a case
        @pipeline(
            sources={"orders": orders()}, sink=sink(tmp_path / "d", mode="append"), prepare=PREPARE, rowwise=rowwise
        )
        def more(orders: Any) -> Any:
            return orders.assign(other=orders["id"]) if add else orders

        return more

    for call in (define(add=True).plan, define(add=True).run):
        with pytest.raises(SchemaError, match="other is new"):
            call()
    define(add=False).plan()
    assert define(add=False).run(workers=1).version == 2
    assert fit_of(tmp_path / "d") == first


def test_rows_that_are_not_prepared_alike_are_never_appended(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    plain = orders()
    for name in ("qty", "price"):  # of the types that prepared rows have
        place = plain.column_names.index(name)
        values = pa.array([v or 0 for v in plain.column(name).to_pylist()], pa.float32())
        plain = plain.set_column(place, pa.field(name, pa.float32(), nullable=name == "qty"), values)
    steps: list[Transform] = [FillNull("price", 0.0)]
    for prepare in ([], steps):
        more = appended(tmp_path / "d", plain, prepare)
        for call in (more.plan, more.run):
            said = r"was prepared with the fit \w{16}, and these rows with (none|the fit \w{16})"
            with pytest.raises(ConfigError, match=said):
                call()
    pipeline(name="p", sources={"o": orders()}, sink=sink(tmp_path / "e")).run()
    with pytest.raises(ConfigError, match="was prepared with no fitted steps"):
        appended(tmp_path / "e", orders()).run()
    with pytest.raises(ConfigError, match="no dataset at"):
        appended(tmp_path / "none", orders()).run()


def test_a_fit_that_is_replaced_meanwhile_is_not_appended_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight(tmp_path / "d").run()

    def slow(*given: Any, **more: Any) -> Any:
        found = figures_of(*given, **more)
        monkeypatch.setattr("etl.run.fitting.figures_of", figures_of)
        replaced(tmp_path / "d", doubled()).run()
        return found

    monkeypatch.setattr("etl.run.fitting.figures_of", slow)
    with pytest.raises(ConfigError, match=r"version 2 of .* was prepared with the fit"):
        appended(tmp_path / "d", orders()).run()
    assert open_dataset(tmp_path / "d", verify="sha256").manifest.version == 2


def test_versions_with_equal_figures_share_a_file_whatever_else_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Transform] = [FillNull("price", "mean")]
    replaced(tmp_path / "d", orders(), steps).run()
    monkeypatch.setattr("etl.planning.fits.python_version", lambda: "9.9.9")
    replaced(tmp_path / "d", pa.concat_tables([orders(), orders()]), steps).run()
    one, two = (open_dataset(tmp_path / "d", version, verify="sha256") for version in (1, 2))
    assert one.manifest.fit_id == two.manifest.fit_id
    assert fit_of(tmp_path / "d")["versions"]["python"] == "9.9.9"
    assert one.manifest.document["fit"] != two.manifest.document["fit"]


def test_operations_keep_the_fit_of_the_rows(tmp_path: Path) -> None:
    place = tmp_path / "d"
    straight(place).run()
    first = fit_of(place)
    appended(place, orders()).run()
    assert operations.compact(place) is not None
    assert fit_of(place) == first
    replaced(place, doubled()).run()
    second = fit_of(place)
    assert second["fit_id"] != first["fit_id"]
    found = diff(place)
    assert found.recipes["fit"] == (first["fit_id"], second["fit_id"])
    assert "fit" not in diff(place, 1, 2).recipes
    operations.rollback(place)
    assert fit_of(place) == first
    appended(place, orders()).run()
    erase.erase(place, ["id=7"])
    assert fit_of(place) == first
    operations.vacuum(place, keep=1)
    assert fit_of(place) == first
    open_dataset(place, verify="sha256")
    assert {p.name for p in (place / "_state").iterdir()} >= {str(first["fit_id"])}
    appended(place, orders()).run()
    open_dataset(place, verify="sha256").require(fit_id=str(first["fit_id"]))


def test_the_order_of_features_is_the_manifests(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    replaced(tmp_path / "e", orders(), features=["price", "qty"]).run()
    for name, features in (("d", ["qty", "price"]), ("e", ["price", "qty"])):
        found = plan_of(tmp_path / name)
        manifest = open_dataset(tmp_path / name).manifest.document
        assert found["feature_order"] == features
        assert found["feature_order_sha256"] == manifest["feature_order_sha256"]
    assert plan_of(tmp_path / "d")["fit_id"] != plan_of(tmp_path / "e")["fit_id"]
    with pytest.raises(EtlError):
        appended(tmp_path / "d", orders(), features=["price", "qty"]).run()


def test_rows_that_a_policy_drops_are_not_fitted_on(tmp_path: Path) -> None:
    label = pa.array([None if i % 3 else 1 for i in range(ROWS)], pa.int8())
    table = orders().append_column("label", label)
    made = pipeline(
        name="dropping",
        sources={"orders": table},
        sink=sink(tmp_path / "d", target=["label"], nulls={"label": "drop"}),
        prepare=PREPARE,
    )
    made.run()
    found = open_dataset(tmp_path / "d")
    assert fit_of(tmp_path / "d")["fitted_on"]["rows"] == found.manifest.splits["train"]
    x = found.split("train").tensors()["x"].astype(np.float64)
    assert abs(x.mean(axis=0)).max() < 1e-6


@pytest.mark.parametrize(
    "steps",
    [
        [FillNull("user", 0), Standardize("qty")],
        [Standardize("qty"), FillNull("user", "mean")],
    ],
)
def test_what_rows_are_split_by_is_changed_by_no_step(steps: list[Transform], tmp_path: Path) -> None:
    made = replaced(tmp_path / "d", orders(), steps)
    for call in (made.plan, made.run):
        with pytest.raises(ConfigError, match=r"step \d of prepare changes user, by which rows are split"):
            call()


def test_a_key_is_changed_by_no_fitted_step(tmp_path: Path) -> None:
    made = replaced(tmp_path / "d", orders(), [FillNull("id", 0), Standardize(["qty", "id"])], split={}, split_key=())
    for call in (made.plan, made.run):
        with pytest.raises(ConfigError, match="step 2 of prepare changes id, which is a key"):
            call()


def test_a_null_in_the_split_key_is_named_with_its_part(tmp_path: Path) -> None:
    users = pa.array([None if i == 17 else i for i in range(ROWS)], pa.int64())
    table = orders().set_column(1, "user", users)
    with pytest.raises(EtlError, match="user"):
        replaced(tmp_path / "d", table).run()
    assert list(tmp_path.iterdir()) == []
    replaced(tmp_path / "d", table, null_key="own_group").run()
    assert fit_of(tmp_path / "d")["fitted_on"]["rows"] == open_dataset(tmp_path / "d").manifest.splits["train"]


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one_row(rows: int, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "v": pa.array([2.0] * rows, pa.float64())})
    made = pipeline(
        name="few", sources={"t": table}, sink=Parquet(str(tmp_path / "d"), key="id"), prepare=[Standardize("v")]
    )
    if not rows:
        with pytest.raises(EtlError, match="has 0 values in the rows that are fitted on"):
            made.run()
        assert list(tmp_path.iterdir()) == []
        return
    warned = made.run().warnings
    assert open_dataset(tmp_path / "d").table().column("v").to_pylist() == [0.0]
    assert any("all values of v that it was fitted on are equal" in str(one) for one in warned)


def test_people_are_told_of_the_fit(tmp_path: Path) -> None:
    straight(tmp_path / "d").run()
    fit = fit_of(tmp_path / "d")
    said = cuetl("dataset", "show", "d", cwd=tmp_path)
    assert said.code == 0, said.err
    assert f"fit: {fit['fit_id']}, fitted on the {spaced(fit['fitted_on']['rows'])} rows of train" in said.out
    assert "step 1: FillNull('price', value='mean'), price: " in said.out
    assert "step 2: Standardize(['price', 'qty'], ddof=0, nan='skip', unseen='global'), price: mean " in said.out
    replaced(tmp_path / "d", doubled()).run()
    changed = cuetl("dataset", "diff", "d", cwd=tmp_path)
    assert f"fit: {fit['fit_id']} -> {fit_of(tmp_path / 'd')['fit_id']}" in changed.out
    summary = json.loads(cuetl("dataset", "show", "d", "--json", cwd=tmp_path).out)
    assert summary["fit"]["fit_id"] == fit_of(tmp_path / "d")["fit_id"]


def test_a_fit_in_another_storage_is_appended_with_and_outlives_vacuum(tmp_path: Path, cache: Path) -> None:
    assert not cache.exists()
    to = f"local://{tmp_path}/d"

    def made(table: pa.Table, mode: Literal["replace", "append"], prepare: list[Transform] = PREPARE) -> None:
        target = replace(sink(tmp_path / "d", mode=mode), to=to)
        pipeline(name="far", sources={"orders": table}, sink=target, prepare=prepare).run()

    def fit() -> str | None:
        return open_dataset(to, verify="sha256").manifest.fit_id

    made(orders(), "replace")
    first = fit()
    made(orders(), "append")
    assert fit() == first is not None
    made(doubled(), "replace")
    assert fit() != first
    with pytest.raises(ConfigError, match="step 1 of prepare"):
        made(orders(), "append", PREPARE[::-1])
    operations.rollback(to)
    made(orders(), "append")
    operations.compact(to)
    assert fit() == first
    operations.vacuum(to, keep=1)
    made(orders(), "append")
    assert fit() == first
    assert len(list((tmp_path / "d/_state").glob("*/plan.json"))) == 2


CHECKED = """
from etl import SQL, Tensors, pipeline
from etl.transforms import FillNull, Standardize

def define(name, prepare, **more):
    source = SQL("sqlite:///store.db", table="t", partition_column="id")
    sink = Tensors("out", features=["qty"], key="id", split={"train": 0.5, "val": 0.5}, split_key="id", **more)
    return pipeline(name=name, sources={"t": source}, sink=sink, prepare=prepare)

good = define("good", [FillNull("qty", "mean"), Standardize("qty")])
kind = define("kind", [FillNull("qty", 0), FillNull("word", 1)])
after = define("after", [Standardize("qty"), FillNull("qty", 10**40)])
split = define("split", [Standardize("qty"), FillNull("id", 0)])
late = define("late", [Standardize("qty")], mode="append")
"""


def test_validate_takes_the_columns_through_every_step(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
        db.execute("create table t (id integer primary key, qty integer, word text)")
        db.execute("insert into t values (1, 2, 'a')")
    (tmp_path / "checked.py").write_text(CHECKED)
    done = cuetl("validate", "checked.py", "--json", cwd=tmp_path)
    found = {one["pipeline"]: one for one in json.loads(done.out)["pipelines"]}
    said = {name: " ".join(problem["text"] for problem in one["problems"]) for name, one in found.items()}
    assert said["good"] == ""
    assert {c["name"]: c["arrow_type"] for c in found["good"]["schema"]} == {
        "id": "int64",
        "qty": "float",
        "word": "string",
    }
    assert "step 2 of prepare: FillNull('word', 1)" in said["kind"]
    assert "step 2 of prepare: FillNull('qty', 1" in said["after"]
    assert "step 2 of prepare changes id, by which rows are split" in said["split"]
    assert "there is no dataset at" in said["late"]
    assert done.code != 0
