"""Saved fits: what an earlier version wrote is read for ever, to the last bit; what cannot be read names its file."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError, Damaged, DatasetError
from etl.core.schema import Field, Schema
from etl.transforms import FillNull, Standardize
from etl.transforms.fit import planned
from etl.transforms.preprocessor import built, figures_of, lines, loaded, saved

if TYPE_CHECKING:
    from etl.transforms.base import State, Transform

GOLDEN = Path(__file__).with_name("golden")
STEPS: list[Transform] = [
    FillNull(["price", "count"], "mean"),
    FillNull("day", date(2024, 2, 29), indicator="no_day"),
    FillNull("cost", Decimal("0.10")),
    FillNull("weight", math.nan),
    FillNull("name", "none"),
    Standardize(["price", "count"], ddof=1, nan="error"),
]
COLUMNS: dict[str, pa.DataType] = {
    "price": pa.decimal128(20, 2),
    "count": pa.int64(),
    "day": pa.date32(),
    "cost": pa.decimal128(9, 2),
    "weight": pa.float32(),
    "name": pa.string(),
    "other": pa.binary(),
}
FIGURES: dict[int, State] = {
    0: {"price": "123456789012345678.90", "count": (1 << 62) + 1},
    5: {
        "price": {"n": 3, "mean": 0.1, "std": 5e-324},
        "count": {"n": (1 << 53) + 1, "mean": -0.0, "std": 1.7976931348623157e308, "base": -(1 << 60), "rest": 1 / 3},
    },
}


def written(figures: dict[int, State]) -> Any:
    plan = planned(STEPS, Schema(tuple(Field(name, kind) for name, kind in COLUMNS.items())))
    return saved(plan, figures, features=["price", "count"], split="train", rows=4, versions={"cuetl": "0.1"})


def content() -> bytes:
    (path,) = written(FIGURES).files.values()
    assert isinstance(path, bytes)
    return path


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_written_once_is_read_to_the_last_bit(path: Path) -> None:
    found = figures_of(path.read_bytes(), STEPS, path=path.name)
    assert found == FIGURES
    assert math.copysign(1, found[5]["count"]["mean"]) == -1
    assert loaded(path.read_bytes(), path.name).given == {name: str(kind) for name, kind in COLUMNS.items()}


def test_this_version_writes_the_newest_golden_state() -> None:
    newest = max(GOLDEN.glob("*.json"))
    assert content() == newest.read_bytes()
    document = json.loads(newest.read_bytes())
    assert {*document} == {"state_version", "steps", "input", "output", "feature_order", "feature_order_sha256"}
    assert document["output"][-1] == {"name": "no_day", "nullable": False, "type": "bool"}


number = st.one_of(st.integers(), st.floats(), st.text())


@given(st.dictionaries(st.sampled_from(["price", "count"]), number, min_size=2))
def test_any_figures_come_back(figures: dict[str, Any]) -> None:
    (made,) = written({0: figures, 5: {name: {"mean": one} for name, one in figures.items()}}).files.values()
    found = figures_of(made, STEPS)
    assert repr(sorted(found[0].items())) == repr(sorted(figures.items()))


def test_a_later_version_is_refused_naming_both() -> None:
    later = content().replace(b'"state_version":1', b'"state_version":2')
    with pytest.raises(DatasetError, match=r"_state/f/plan\.json has the state version 2; this cuETL reads 1"):
        figures_of(later, STEPS, path="_state/f/plan.json")


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"state_version":1}',
        b'{"state_version":0,"steps":[],"input":[]}',
        b'{"state_version":true,"steps":[],"input":[]}',
        b'{"state_version":"1","steps":[],"input":[]}',
        b'{"state_version":[],"steps":[],"input":[]}',
        b'{"state_version":1,"steps":[1],"input":[]}',
        b'{"state_version":1,"steps":[],"input":[{}]}',
        b'{"state_version":1,"input":[],"steps":[{"kind":"x","arguments":{},"figures":[5]}]}',
    ],
)
def test_a_damaged_state_names_its_file(damaged: bytes) -> None:
    with pytest.raises(Damaged, match=r"_state/f/plan\.json"):
        figures_of(damaged, STEPS, path="_state/f/plan.json")


def test_figures_of_other_columns_are_damage() -> None:
    document = json.loads(content())
    document["steps"][5]["figures"]["weight"] = document["steps"][5]["figures"].pop("price")
    with pytest.raises(Damaged, match="step 6 has the figures of other columns"):
        figures_of(json.dumps(document).encode(), STEPS)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (STEPS[:-1], r"step 6 of prepare is nothing, and the dataset's fit has Standardize"),
        ([*STEPS, Standardize("weight")], r"step 7 of prepare is Standardize\('weight', .*has nothing"),
        ([STEPS[0], FillNull("day", date(2024, 3, 1)), *STEPS[2:]], r"date\('2024-03-01'\).*date\('2024-02-29'\)"),
        ([*STEPS[:-1], Standardize(["price", "count"], nan="error")], "ddof=0.*ddof=1"),
        ([*STEPS[:-1], Standardize(["count", "price"], ddof=1, nan="error")], "step 6"),
    ],
)
def test_other_steps_are_refused_naming_the_first(steps: list[Transform], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        figures_of(content(), steps)


def test_people_read_a_line_for_each_step() -> None:
    found = lines(loaded(content(), "plan.json"))
    assert found[0].startswith("FillNull(['price', 'count'], value='mean'), ")
    assert "price: 123456789012345678.90" in found[0]
    assert found[1] == "FillNull('day', value=date('2024-02-29'), indicator='no_day')"
    assert "price: mean 0.1, std 4.94066e-324" in found[5]


VOCAB = pa.table({"id": pa.array([3, 4], pa.int64()), "value": ["", "a\nb"], "count": pa.array([2, 1], pa.int64())})


def with_table() -> Any:
    plan = planned([FillNull("price", "mean")], Schema((Field("price", pa.int64()),)))
    return saved(plan, {0: {"price": {"vocab": VOCAB}}}, features=[], split="all", rows=1, versions={})


def test_a_table_is_a_file_of_its_own_that_comes_back() -> None:
    made = with_table()
    files = {path.rpartition("/")[2]: found for path, found in made.files.items()}
    assert {*files} == {"plan.json", "vocab.price.table"}
    assert {*made.entry()["files"]} == {*made.files}
    plan = loaded(files["plan.json"], "plan.json", files.__getitem__)
    assert plan.steps[0].figures["price"]["vocab"].equals(VOCAB)
    assert loaded(files["plan.json"], "plan.json").steps[0].figures["price"]["vocab"].rows == 2


def test_another_table_than_the_one_that_was_saved_is_damage() -> None:
    files = {path.rpartition("/")[2]: found for path, found in with_table().files.items()}
    with pytest.raises(Damaged, match=r"vocab\.price\.table is another file"):
        loaded(files["plan.json"], "plan.json", lambda name: files[name] + b"x")


def test_the_steps_come_back_as_they_were_written() -> None:
    assert repr(built(loaded(content(), "plan.json"))) == repr(tuple(STEPS))


def test_a_step_that_is_not_known_names_its_kind() -> None:
    later = content().replace(b'"kind":"standardize"', b'"kind":"levitate"')
    with pytest.raises(DatasetError, match=r"p\.json: step 6 is levitate, which this cuETL does not know"):
        built(loaded(later, "p.json"), "p.json")


def test_an_argument_that_a_step_did_not_have_yet_is_its_default() -> None:
    document = json.loads(content())
    assert document["steps"][5]["arguments"].pop("nan") is not None
    found = [*STEPS[:5], Standardize(["price", "count"], ddof=1)]
    assert figures_of(json.dumps(document).encode(), found) == FIGURES
