"""What went into the steps of a dataset and what came out: manifest, words, page; and the drift of its versions."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from etl import Parquet, pipeline
from etl.cli import main
from etl.tensors import erase, operations
from etl.tensors.dataset import open_dataset
from etl.transforms import Categorify, DropNull, FillNull, Select, Standardize
from tests.command import Done, one_paragraph
from tests.unit.tensors.test_page import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etl.transforms.base import Transform

ROWS = 600
STEPS: tuple[Transform, ...] = (FillNull("price", 0.0), Standardize("price"), Categorify("country"))


def orders(*, shift: float = 0.0, start: int = 0, words: Sequence[str] = ("at", "be", "nl")) -> pa.Table:
    rng = np.random.default_rng(3)
    price = rng.normal(20 + shift, 5, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(start, start + ROWS)),
            "price": pa.array([None if i % 6 == 0 else float(v) for i, v in enumerate(price)]),
            "country": pa.array([None if i % 50 == 0 else words[i % len(words)] for i in range(ROWS)]),
            "note": pa.array([f"call {i}" for i in range(ROWS)]),
        }
    )


def run(to: Path, table: pa.Table, mode: Any = "create", steps: Sequence[Transform] = STEPS) -> None:
    sink = Parquet(str(to), mode=mode, key=["id"], split={"train": 0.8, "test": 0.2}, split_key=["id"])
    pipeline(name="orders", sources={"orders": table}, sink=sink, prepare=list(steps)).run()


def dataset(*arguments: object) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(["dataset", *map(str, arguments)])
    return Done(code, out.getvalue(), err.getvalue())


def given(to: Path, version: int | None = None) -> dict[str, Any]:
    document: Any = open_dataset(to, version, verify="none").manifest.document
    return {one["name"]: one for one in document.get("given", ())}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: as it was, with rows that are otherwise, with the first rows and more words."""
    to = tmp_path_factory.mktemp("shop") / "d"
    run(to, orders())
    run(to, orders(shift=30, start=ROWS, words=("at", "be", "fr")), "append")
    run(to, orders(words=("at", "be", "fr", "xx")), "replace")
    return to


def test_the_manifest_knows_the_rows_as_they_went_in(shop: Path) -> None:
    table = orders()
    before = given(shop, 1)
    assert list(before) == ["price", "country"]
    price = before["price"]["stats"]["all"]
    values = [v for v in table.column("price").to_pylist() if v is not None]
    assert (price["null"], price["count"], price["distinct"]) == (ROWS // 6, len(values), len(set(values)))
    assert (price["min"], price["max"]) == (min(values), max(values))
    assert price["mean"] == pytest.approx(float(np.mean(values)), rel=1e-12)
    assert sum(price["histogram"]) == len(values)
    assert price["quantiles"]["0.5"] == sorted(values)[len(values) // 2 - 1]
    country = before["country"]["stats"]["all"]
    words = Counter(v for v in table.column("country").to_pylist() if v is not None)
    assert dict(country["top"]) == words
    assert before["country"]["kind"] == "text"


def test_appended_rows_are_counted_with_the_old_ones(shop: Path) -> None:
    both = given(shop, 2)["price"]["stats"]["all"]
    assert (both["count"], both["null"]) == (1000, 200)
    assert both["mean"] == pytest.approx(
        float(
            np.mean([v for t in (orders(), orders(shift=30)) for v in t.column("price").to_pylist() if v is not None])
        )
    )
    columns: Any = {one["name"]: one for one in open_dataset(shop, 2, verify="none").manifest.columns}
    met = columns["country"]["prepared"]
    assert met["all"]["unseen"] == sum(
        w == "fr" for w in orders(words=("at", "be", "fr")).column("country").to_pylist()
    )
    assert met["train"]["unseen"] + met["test"]["unseen"] == met["all"]["unseen"]
    assert met["train"]["null"] + met["test"]["null"] == 24
    assert met["train"]["unseen"] > met["test"]["unseen"] > 0


def test_show_tells_before_after_and_what_was_fitted(shop: Path) -> None:
    said = dataset("show", shop, "--version", 2)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    (before,) = [line.split() for line in lines if line.startswith("price") and " before " in line]
    assert before[2] == "16.7%"
    after = lines[
        next(i for i, line in enumerate(lines) if line.startswith("price") and " before " in line) + 1
    ].split()
    assert after[:2] == ["after", "0"]
    for words in ("price: FillNull", "price: Standardize: mean ", "price: 200 rows (16.7%) filled"):
        assert any(line.startswith(words) for line in lines), words
    assert any(line.startswith("country: Categorify: ") and "vocab of 3 rows" in line for line in lines)
    assert any(line.startswith("country: ") and "out of vocabulary" in line and "%" in line for line in lines)
    assert any(line.startswith("country: train: ") for line in lines)
    summary = dataset("show", shop, "--version", 2, "--json").json
    assert [one["name"] for one in summary["given"]] == ["price", "country"]


def test_the_page_shows_both_side_by_side(shop: Path, tmp_path: Path) -> None:
    assert dataset("show", shop, "--version", 2, "--html", tmp_path / "page.html").code == 0
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert "Preparation" in page.words
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not any(name in ("src", "href") for name, _ in page.attributes)
    after = text[text.index("<h2>Preparation</h2>") :]
    row = after[after.index('<td class="name">price</td>') : after.index('<td class="name">country</td>')]
    assert row.count("<svg") == 2
    assert "Standardize: mean " in row
    assert "16.7% NULL" in row
    assert "200 rows (16.7%) filled" in row


def test_a_drift_gate_names_column_measure_value_and_limit(shop: Path) -> None:
    assert dataset("diff", shop, 1, 2, "--max-psi", 10).code == 0
    done = dataset("diff", shop, 1, 2, "--max-psi", "0.2", "--max-null-change", "0.01", "--json")
    assert done.code == 4
    found = json.loads(done.out)
    assert {(one["column"], one["measure"], one["limit"]) for one in found["exceeded"]} >= {("price", "psi", 0.2)}
    assert all(one["measure"] == "psi" and one["value"] > 0.2 for one in found["exceeded"])
    price = next(one for one in found["drift"] if one["column"] == "price" and one["split"] == "train")
    assert len(price["bins"]) == 10
    assert price["psi_range"][0] <= price["psi"] <= price["psi_range"][1]
    said = one_paragraph(done.err)
    assert "versions 1 and 2" in said
    assert "price (train) psi " in said
    assert " > 0.2" in said
    printed = dataset("diff", shop, 1, 2)
    assert printed.code == 0
    assert any(line.split()[:2] == ["price", "given"] for line in printed.out.splitlines())


def test_versions_of_two_fits_are_compared_as_their_rows_came(shop: Path) -> None:
    done = dataset("diff", shop, 1, 3, "--max-new-categories", 0, "--json")
    found = json.loads(done.out)
    assert done.code == 4
    assert found["exceeded"] == [
        {"column": "country", "split": "given", "measure": "new_categories", "value": 2, "limit": 0}
    ]
    assert {one["split"] for one in found["drift"] if one["column"] in ("price", "country")} == {"given"}
    country = next(one for one in found["drift"] if one["column"] == "country")
    assert (set(country["appeared"]), country["gone"]) == ({"fr", "xx"}, ["nl"])
    assert dataset("diff", shop, 1, 3, "--max-psi", 0.2, "--column", "price").code == 0
    wrong = dataset("diff", shop, 1, 3, "--max-psi", 0.2, "--column", "prise")
    assert (wrong.code, "prise" in wrong.err) == (2, True)
    assert dataset("diff", shop, "--max-psi", -1).code == 2


def test_a_gate_is_not_passed_by_a_column_that_is_lost(tmp_path: Path) -> None:
    to = tmp_path / "d"
    run(to, orders(), steps=())
    run(to, orders().drop_columns(["country"]), "replace", steps=())
    assert dataset("diff", to).code == 0
    done = dataset("diff", to, "--max-psi", 0.2)
    assert (done.code, "country is not there any more" in one_paragraph(done.err)) == (4, True)
    assert dataset("diff", to, "--max-psi", 0.2, "--column", "price", "--column", "note").code == 0


def test_texts_that_the_dataset_does_not_hold_are_counted_only(tmp_path: Path) -> None:
    @pipeline(
        sources={"orders": orders()},
        sink=Parquet(str(tmp_path / "d"), key=["id"]),
        prepare=[DropNull("note"), *STEPS[:2], Select(["id", "price"])],
    )
    def shop(orders: Any) -> Any:
        return orders

    shop.run(workers=1)
    note = given(tmp_path / "d")["note"]["stats"]["all"]
    assert (note["count"], note["min"], note["max"], note["top"]) == (ROWS, None, None, [])
    assert "call 7" not in (tmp_path / "d" / "_manifest.json").read_text()


def test_operations_keep_what_went_in_and_erasure_takes_it(tmp_path: Path) -> None:
    to = tmp_path / "d"
    run(to, orders())
    run(to, orders(start=ROWS), "append")
    operations.compact(to)
    assert given(to)["price"]["stats"] == given(to, 2)["price"]["stats"]
    erase.erase(to, ["7"])
    for version in (1, 2, 3, 4):
        assert given(to, version) == {}
    run(to, orders(start=2 * ROWS), "append")
    assert given(to) == {}
