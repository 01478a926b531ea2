"""Rows in a global order: the same bytes for any cut of the source, in every format; keys of every type; bounds."""

from __future__ import annotations

import hashlib
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from connectors import memory
from connectors.base import CutWish, Endpoint, Query
from etl.core.errors import CastError, ConfigError
from etl.planning.jobs import Job, Reading, Write
from etl.run import runner
from etl.run.progress import Silent
from etl.tensors import exchange
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and fences so small that a small table has many."""
    monkeypatch.setattr(exchange, "RUN_BYTES", 1 << 16)
    monkeypatch.setattr(exchange, "FENCE_ROWS", 64)


def shop(rows: int) -> Any:
    draw = np.random.default_rng(5)
    return pa.table(
        {
            "id": draw.permutation(rows).astype(np.int64),
            "price": draw.random(rows),
            "n": pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int32()),
            "name": pa.array([None if i % 11 == 0 else f"row {i}" for i in range(rows)]),
        }
    )


def files(out: Path) -> list[tuple[str, int, str]]:
    """Split, rows and hash of every file and of the text beside it, in order."""
    found = []
    for one in open_dataset(out, verify="sha256").manifest.files:
        text = one.text_file.sha256 if one.text_file else ""
        found.append((one.split, one.rows, one.sha256 + text))
    return found


@pytest.mark.parametrize("fmt", ["safetensors", "parquet", "npy", "torch", "tfrecord"])
@pytest.mark.parametrize("order", ["key", "shuffle"])
def test_one_and_thirteen_parts_give_the_same_bytes(tmp_path: Path, fmt: Format, order: Any) -> None:
    options = WriteOptions(
        cast="round" if fmt == "tfrecord" else "exact",
        key=("id",),
        order=order,
        partition_bytes=100_000,
        split={"train": "0.8", "val": "0.2"},
        split_key=("id",),
    )
    table = shop(20_000)
    export(tmp_path / "one", table, 1, fmt=fmt, options=options)
    export(tmp_path / "many", table, 13, fmt=fmt, options=options, batch_rows=333)
    assert files(tmp_path / "one") == files(tmp_path / "many")
    assert len(files(tmp_path / "one")) > 3


def ids(out: Path) -> list[int]:
    found: list[int] = []
    for one in open_dataset(out).manifest.files:
        if one.path.endswith(".parquet"):
            found += np.asarray(pq.read_table(out / one.path).column("id")).tolist()
        else:
            found += load_file(out / one.path)["id"].tolist()
    return found


@pytest.mark.parametrize("fmt", ["safetensors", "parquet"])
def test_rows_come_in_the_order_of_the_key_and_of_its_hash(tmp_path: Path, fmt: Format) -> None:
    table = shop(9000)
    export(tmp_path / "key", table, 3, fmt=fmt, options=WriteOptions(key=("id",), order="key", partition_bytes=1))
    assert ids(tmp_path / "key") == list(range(9000))
    shuffled = WriteOptions(key=("id",), order="shuffle", seed=7, partition_bytes=1)
    export(tmp_path / "shuffled", table, 3, fmt=fmt, options=shuffled)

    def digest(i: int) -> bytes:
        return hashlib.sha256(f"cuetl-shuffle-1|7|{len(str(i))}:{i}".encode()).digest()

    assert ids(tmp_path / "shuffled") == sorted(range(9000), key=digest)
    assert [rows for _, rows, _ in files(tmp_path / "shuffled")] == [4096, 4096, 808]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Few values and NULLs, so that keys and whole rows repeat; lists, text and nested values beside them."""
    rows = draw(st.integers(0, 60))

    def column(values: st.SearchStrategy[Any], kind: Any) -> Any:
        few = draw(st.lists(values, min_size=1, max_size=4))
        return pa.array(draw(st.lists(st.sampled_from([None, *few]), min_size=rows, max_size=rows)), kind)

    return pa.table(
        {
            "i": column(st.integers(-(2**63), 2**63 - 1), pa.int64()),
            "f": column(st.floats(), pa.float64()),
            "t": column(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), pa.string()),
            "d": column(st.decimals("-999", "999", places=2), pa.decimal128(9, 2)),
            "b": column(st.booleans(), pa.bool_()),
            "raw": column(st.binary(max_size=3), pa.binary()),
            "at": column(st.datetimes(), pa.timestamp("us")),
            "tags": column(st.lists(st.integers(0, 3), max_size=3), pa.list_(pa.int16())),
            "emb": column(st.lists(st.floats(width=32), min_size=2, max_size=2), pa.list_(pa.float32(), 2)),
        }
    )


@settings(max_examples=15)
@given(
    table=tables(),
    random=st.randoms(use_true_random=False),
    parts=st.integers(1, 13),
    fmt=st.sampled_from(["safetensors", "parquet"]),
    order=st.sampled_from(["key", "shuffle"]),
    key=st.lists(st.sampled_from(["i", "f", "t", "d", "b", "raw", "at"]), max_size=3, unique=True),
    split=st.booleans(),
)
def test_any_rows_in_any_cut_and_any_order_give_the_same_bytes(
    table: Any, random: Any, parts: int, fmt: Any, order: Any, key: list[str], split: Any
) -> None:
    options = WriteOptions(
        key=tuple(key) if key or order == "shuffle" else ("i",),
        order=order,
        split={"train": "0.5", "val": "0.5"} if split else {},
        split_key=("i",) if split else (),
        null_key="own_group",
    )
    mixed = list(range(table.num_rows))
    random.shuffle(mixed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "RUN_BYTES", 700)
        patch.setattr(exchange, "FENCE_ROWS", 3)
        patch.setattr(exchange, "PIECE_ROWS", 5)
        patch.setattr(exchange, "file_rows", lambda *_: 8)
        patch.setattr(exchange, "piece_rows", lambda _: 5)
        one, many = Path(folder, "one"), Path(folder, "many")
        export(one, table, 1, fmt=fmt, options=options)
        export(many, table.take(pa.array(mixed, pa.int64())), parts, fmt=fmt, options=options, batch_rows=7)
        assert files(one) == files(many)
        assert open_dataset(many).manifest.rows == table.num_rows


def test_appended_rows_do_not_move_others_and_another_order_is_refused(tmp_path: Path) -> None:
    table = shop(3000)
    options = WriteOptions(key=("id",), order="shuffle", seed=7)
    export(tmp_path / "all", table, 2, options=options)
    export(tmp_path / "some", table.slice(0, 2999), 2, options=options)
    last = table.column("id")[2999].as_py()
    assert [i for i in ids(tmp_path / "all") if i != last] == ids(tmp_path / "some")
    before = files(tmp_path / "some")
    export(tmp_path / "some", table.slice(2999), 1, options=options, mode="append", run_id="r2")
    assert files(tmp_path / "some")[: len(before)] == before
    assert ids(tmp_path / "some")[-1] == last
    assert open_dataset(tmp_path / "some").manifest.document["order"] == {
        "kind": "shuffle", "keys": ["id"], "seed": 7, "source_mix_p": None, "scope": "version",
    }  # fmt: skip
    for other in (WriteOptions(key=("id",)), WriteOptions(key=("id",), order="shuffle", seed=8)):
        with pytest.raises(ConfigError, match="has the order shuffle by id with seed 7, not"):
            export(tmp_path / "some", table, 1, options=other, mode="append", run_id="r3")


def test_the_manifest_says_how_well_parts_are_mixed(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(np.arange(20_000), pa.int64())})
    found: list[Any] = []
    for number, options in enumerate(
        (
            WriteOptions(key=("id",)),
            WriteOptions(key=("id",), order="key"),
            WriteOptions(key=("id",), order="shuffle", seed=7),
        )
    ):
        export(tmp_path / str(number), table, 5, options=options)
        found.append(open_dataset(tmp_path / str(number)).manifest.document["order"])
    assert found[0]["source_mix_p"] is None
    assert found[1]["source_mix_p"] < 1e-6
    assert 0.001 < found[2]["source_mix_p"] <= 1.0


def test_the_mix_is_the_chi_square_test_of_parts_per_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MIX_ROWS", 10)
    table = pa.table(
        {"id": pa.array([1, 2, 3, 4, 5, 6, 21, 22, 23, 24, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], pa.int64())}
    )
    export(tmp_path / "x", table, 2, options=WriteOptions(key=("id",), order="key"))
    # Blocks (6, 4) and (4, 6): sum (o - 5)^2 / 5 = 0.8 with one degree of freedom.
    order: Any = open_dataset(tmp_path / "x").manifest.document["order"]
    assert order["source_mix_p"] == pytest.approx(0.3710933695226961)


def test_casts_are_counted_and_refused_with_the_key_of_the_row(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([3, 1, 2], pa.int64()), "v": [0.1, 16777217.0, 0.5]})
    options = WriteOptions(features=("v",), key=("k",), dtype="float32", cast="round", order="key")
    export(tmp_path / "x", table, 3, fmt="safetensors", options=options)
    (column,) = [c for c in open_dataset(tmp_path / "x").manifest.columns if c["name"] == "v"]
    cast: Any = column["cast"]
    assert (cast["n_rounded"], cast["max_abs_error"]) == (2, 1.0)
    exact = WriteOptions(features=("v",), key=("k",), dtype="float32", order="key")
    with pytest.raises(CastError, match=r"column v: the value 16777217.0 \(k = 1\) cannot be float32"):
        export(tmp_path / "y", table, 3, fmt="safetensors", options=exact)


def test_nothing_and_an_empty_split_are_files_without_rows(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([1], pa.int64()), "v": pa.array([Decimal(1)], pa.decimal128(5, 2))})
    options = WriteOptions(key=("k",), order="key", split={"a": "0.5", "b": "0.5"}, split_key=("k",))
    export(tmp_path / "one", table, 1, fmt="safetensors", options=options)
    assert sorted(rows for _, rows, _ in files(tmp_path / "one")) == [0, 1]
    export(tmp_path / "none", table.slice(0, 0), 1, fmt="safetensors", options=options)
    assert [rows for _, rows, _ in files(tmp_path / "none")] == [0, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"order": "key"}, "--order key needs --key"),
        ({"order": "key", "key": ("k",), "seed": 3}, "--shuffle 3 and --order key were given together"),
        ({"seed": 3}, "--shuffle 3 and --order source"),
        ({"order": "shuffle", "seed": -1}, "--shuffle -1 is negative"),
        ({"order": "random"}, "unknown order 'random'"),
    ],
)
def test_orders_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WriteOptions(**given)


class Told(Silent):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.ended: dict[str, list[int]] = {}

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def planned(self, parts: int, rows: float, count: int) -> None:  # noqa: ARG002 - as the protocol has it
        self.ended[self.stages[-1]] = [parts, 0]

    def advanced(self, *, parts: int = 0, rows: int = 0, count: int = 0) -> None:  # noqa: ARG002 - as above
        list(self.ended.values())[-1][1] += parts


def test_a_run_orders_after_it_has_read_and_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # parts and files are made in worker processes, which know nothing of it
    memory.put("shop", shop(9000))
    at = Endpoint("memory", "memory", database="shop")
    options = WriteOptions(key=("id",), order="shuffle", seed=7, partition_bytes=1)
    job = Job(
        Reading(at, Query(table="shop"), CutWish("id", partitions=5)),
        (Write(str(tmp_path / "x"), "safetensors", options), Write(str(tmp_path / "y"), "parquet", options)),
    )
    told = Told()
    one, other = runner.run([job], run_id="r1", progress=told)
    assert (one.rows, other.rows) == (9000, 9000)
    assert told.stages[-3:] == ["reading", "ordering", "publishing"]
    assert list(told.ended.values()) == [[5, 5], [6, 6]]
    assert ids(tmp_path / "x") == ids(tmp_path / "y")
