"""A split read whole, by row, slice and index, and as a table: the same dtypes and names on every way in."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.tensors.batch import Batch
from etl.tensors.dataset import Dataset, open_dataset
from etl.tensors.options import WriteOptions
from etl.tensors.reading import Split
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.tensors.options import Format

ROOT = Path(__file__).resolve().parents[3]
BEYOND = 2**53 + 1


def made(out: Path, table: pa.Table, parts: int = 1, **options: Any) -> Dataset:
    """A tensor dataset of the table."""
    export(out, table, parts, fmt="safetensors", options=WriteOptions(**options))
    return open_dataset(out)


def kinds(batch: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Container and dtype by name."""
    return {name: (type(value).__name__, str(value.dtype)) for name, value in batch.items()}


@pytest.mark.parametrize("values", [[BEYOND, None], [None, 1, 2], [1, None], [1, 2], [None, None]])
def test_t02_t07_one_dtype_and_container_on_every_way_in(tmp_path: Path, values: list[int | None]) -> None:
    split = made(tmp_path / "d", pa.table({"n": pa.array(values, pa.int64())})).split("all")
    rows = len(values)
    whole = split.tensors()
    assert kinds(whole) == {"n": ("ndarray", "int64"), "n.valid": ("ndarray", "bool")}
    assert whole["n"].tolist() == [v or 0 for v in values]
    assert whole["n.valid"].tolist() == [v is not None for v in values]
    ways = [split[:], split[:0], split[1:], split[::-1], split.take([]), split.take([0, 0]), split[0], split[-1]]
    assert [kinds(way) for way in ways] == [kinds(whole)] * len(ways)
    assert split[-1]["n"].shape == ()
    assert split[rows - 1]["n"] == split[-1]["n"] == whole["n"][-1]


def test_t03_numeric_columns_with_null_stay_what_they_are(tmp_path: Path) -> None:
    table = pa.table({
        "i": pa.array([1, None], pa.int64()), "f": pa.array([None, 2.5], pa.float32()),
        "d": pa.array([0.1, None]), "b": pa.array([True, None])})  # fmt: skip
    found = made(tmp_path / "d", table).tensors()
    assert {n: str(a.dtype) for n, a in found.items() if "." not in n} == {
        "i": "int64", "f": "float32", "d": "float64", "b": "bool"}  # fmt: skip
    assert all(found[f"{n}.valid"].dtype == bool for n in "ifdb")


def test_rows_are_arrays_in_the_shape_of_a_row_and_lists_keep_their_two_tensors(tmp_path: Path) -> None:
    table = pa.table({
        "f": pa.array([1.0, 2.0, 3.0]), "g": pa.array([4.0, 5.0, 6.0]), "tags": pa.array([[7], None, [8, 9]]),
        "emb": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))})  # fmt: skip
    split = made(tmp_path / "d", table, 2, features=("f", "g", "tags", "emb")).split("all")
    row = split[2]
    assert {n: a.shape for n, a in row.items()} == {
        "x": (2,), "x.valid": (2,), "emb": (2,), "emb.valid": (),
        "tags.values": (2,), "tags.offsets": (2,), "tags.valid": ()}  # fmt: skip
    assert (row["x"].tolist(), row["tags.values"].tolist(), row["tags.offsets"].tolist()) == ([3, 6], [8, 9], [0, 2])
    assert split[0:2].padded("tags", pad_value=-1).tolist() == [[7], [-1]]
    assert split.tensors().padded("tags", 1).tolist() == [[7], [0], [8]]
    assert split.tensors()["tags.offsets"].tolist() == [0, 1, 1, 3]


@given(data=st.data(), rows=st.integers(0, 40), parts=st.integers(1, 4),
       fmt=st.sampled_from(["safetensors", "npy", "torch"]))  # fmt: skip
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_slice_and_take_is_what_numpy_would_give(
    data: st.DataObject, rows: int, parts: int, fmt: Format, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int32()), "r": pa.array([[i] * (i % 3) for i in range(rows)],
                                                                          pa.list_(pa.int64()))})  # fmt: skip
    out = tmp_path_factory.mktemp("d") / "d"
    # A target of 64 rows: the parts' files are not joined into one.
    export(out, table, parts, fmt=fmt, options=WriteOptions(partition_bytes=64))
    split = open_dataset(out).split("all")
    want = np.arange(rows)
    borders = st.none() | st.integers(-rows - 3, rows + 3)
    some = data.draw(st.slices(rows) | st.builds(slice, borders, borders, st.none() | st.integers(1, 3)))
    assert split[some]["n"].tolist() == want[some].tolist()
    picks = data.draw(st.lists(st.integers(-rows, rows - 1), max_size=20) if rows else st.just([]))
    found = split.take(picks)
    assert found["n"].tolist() == want[picks].tolist() if picks else not len(found["n"])
    assert np.diff(found["r.offsets"]).tolist() == [int(i) % 3 for i in found["n"]]
    assert found["r.values"].tolist() == [int(i) for i in found["n"] for _ in range(int(i) % 3)]
    for row in {0, rows - 1, rows // 2} & set(range(rows)):
        assert (int(split[row]["n"]), int(split[row - rows]["n"])) == (row, row)
    assert split.tensors()["n"].tolist() == want.tolist()


def test_rows_that_are_not_there_are_index_errors(tmp_path: Path) -> None:
    split = made(tmp_path / "d", pa.table({"n": [1, 2, 3]})).split("all")
    for bad in (3, -4):
        with pytest.raises(IndexError):
            split[bad]
        with pytest.raises(IndexError):
            split.take([0, bad])
    with pytest.raises(IndexError):
        split.take(np.array([2**64 - 1], np.uint64))
    for wrong in ([0.5], [True, False, True], [[0]], ["a"]):
        with pytest.raises(ConfigError, match="rows are named by integers"):
            split.take(wrong)


def test_what_names_no_row_is_told_what_does(tmp_path: Path) -> None:
    export(tmp_path / "d", pa.table({"a": [1, 2, 3]}), fmt="safetensors")
    split = open_dataset(tmp_path / "d").split("all")
    for wrong in ("a", [0, 1]):
        with pytest.raises(TypeError, match=r"by a number or a slice, not by .* tensors\(\)\[name\]"):
            split[wrong]  # type: ignore[index]
    with pytest.raises(IndexError, match="no row 3 among 3"):
        split[3]


def test_what_is_taken_belongs_to_the_caller(tmp_path: Path) -> None:
    split = made(tmp_path / "d", pa.table({"n": [1, 2, 3]})).split("all")
    for batch in (split[0:2], split.take([0, 1]), split.tensors(), split[0]):
        batch["n"][...] = 9
    assert open_dataset(tmp_path / "d", verify="sha256").tensors()["n"].tolist() == [1, 2, 3]


def test_arrays_say_once_that_absent_values_are_zero(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, None], "b": [1.0, 2.0], "t": [0, 1]})
    dataset = made(tmp_path / "d", table, features=("a", "b"), target=("t",))
    with pytest.warns(UserWarning, match=r"1 absent values of all are 0 in arrays\(\); tensors\(\) has"):
        x, y = dataset.arrays()
    assert (x.tolist(), y.tolist()) == ([[1, 1], [0, 2]], [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.split("all").arrays()
        made(tmp_path / "f", table, features=("a", "b"), nulls="fill=7").arrays()
        made(tmp_path / "b", table, features=("b",), target=("t",)).arrays()


def test_several_splits_want_one_named(tmp_path: Path) -> None:
    table = pa.table({"n": range(50)})
    dataset = made(tmp_path / "d", table, split={"train": "0.5", "val": "0.5"}, split_key=("n",))
    for asked in ("arrays", "tensors", "table"):
        with pytest.raises(ConfigError, match=rf"has the splits train, val. Name one: ds.split\(name\).{asked}\(\)"):
            getattr(dataset, asked)()
    both = [dataset.split(name).tensors()["n"].tolist() for name in dataset.splits]
    assert sorted(both[0] + both[1]) == list(range(50))


def test_a_table_is_the_parquet_rows_or_the_text_beside_the_tensors(tmp_path: Path) -> None:
    table = pa.table({"n": range(10), "s": [None if i == 4 else str(i) for i in range(10)]})
    export(tmp_path / "p", table, 3, fmt="parquet")
    dataset = open_dataset(tmp_path / "p")
    assert dataset.table().to_pylist() == table.to_pylist()
    assert dataset.table(["s"]).column_names == ["s"]
    with pytest.raises(ConfigError, match=r"no column q in its table\. It has n, s"):
        dataset.table(["q"])
    with pytest.raises(ConfigError, match="holds parquet, which has no tensors"):
        dataset.tensors()
    tensors = made(tmp_path / "t", table, 3)
    assert tensors.table().to_pylist() == table.select(["s"]).to_pylist()
    with pytest.raises(ConfigError, match="no text beside its tensors"):
        made(tmp_path / "n", table.select(["n"])).table()


def test_a_dataset_and_its_splits_pickle_and_read_on(tmp_path: Path) -> None:
    dataset = made(tmp_path / "d", pa.table({"n": [1, 2, 3]}))
    split = dataset.split("all")
    assert split[1]["n"] == 2
    again = pickle.loads(pickle.dumps(split))
    assert isinstance(again, Split)
    assert again[1]["n"] == 2


def test_bfloat16_is_named_in_the_dtypes_whatever_numpy_holds(tmp_path: Path) -> None:
    dataset = made(tmp_path / "d", pa.table({"a": [1.0, -2.0]}), features=("a",), dtype="bfloat16")
    found = dataset.tensors()
    assert found.dtypes["x"] == "bfloat16"
    assert found["x"].view(np.uint16).tolist() == [[0x3F80], [0xC000]]


def test_a_batch_pads_its_lists_and_refuses_what_their_dtype_does_not_hold() -> None:
    batch = Batch.of(
        {"t.values": np.arange(1, 5, dtype=np.int8), "t.offsets": np.array([0, 3, 3, 4]), "n": np.zeros(3)}
    )
    assert batch.padded("t").tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert batch.padded("t", 2, -1).tolist() == [[1, 2], [-1, -1], [4, -1]]
    assert batch.padded("t", 0).shape == (3, 0)
    assert batch.padded("t").dtype == np.int8
    for value in (200, 0.5, float("nan")):
        with pytest.raises(ConfigError, match=r"pad_value .* is not exact in int8, the dtype of t"):
            batch.padded("t", pad_value=value)
    with pytest.raises(ConfigError, match=r"no list n\. The lists are t"):
        batch.padded("n")
    with pytest.raises(ConfigError, match="nested tensors are torch's"):
        batch.nested("t")
    halves = Batch.of({"t.values": np.array([0x3F80], np.uint16), "t.offsets": np.array([0, 1])},
                      dtypes={"t.values": "bfloat16"})  # fmt: skip
    assert halves.padded("t", 2, 2.0).view(np.uint16).tolist() == [[0x3F80, 0x4000]]
    with pytest.raises(ConfigError, match="257 is not exact in bfloat16"):
        halves.padded("t", 2, 257)


def test_a_batch_is_a_mapping_that_pickles_and_compares_by_identity() -> None:
    batch = Batch.of({"x": np.arange(4.0), "y": np.zeros(2)})
    again = pickle.loads(pickle.dumps(batch))
    assert (list(again), again["x"].tolist(), again.dtypes) == (["x", "y"], [0, 1, 2, 3], batch.dtypes)
    assert len({batch, again, batch}) == 2
    assert batch != again
    assert "x" in batch
    assert batch.get("z") is None
    with pytest.raises(KeyError):
        batch["z"]
    assert repr(batch) == "Batch(x [4] float64, y [2] float64; numpy)"


@given(lists=st.lists(st.lists(st.integers(-128, 127), max_size=6), max_size=8), pad=st.integers(-128, 127),
       width=st.none() | st.integers(0, 8))  # fmt: skip
def test_padded_lists_are_what_python_would_pad(lists: list[list[int]], pad: int, width: int | None) -> None:
    values = np.array([v for one in lists for v in one], np.int8)
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    found = Batch.of({"t.values": values, "t.offsets": offsets}).padded("t", width, pad)
    wide = max(map(len, lists), default=0) if width is None else width
    assert (found.shape, found.dtype) == ((len(lists), wide), np.int8)
    assert found.tolist() == [(one + [pad] * wide)[:wide] for one in lists]


BLOCKED = """
import importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "jax", "jaxlib", "tensorflow", "cupy", "ml_dtypes", "pandas"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import numpy as np
import etl
ds = etl.open_dataset(sys.argv[1])
split = ds.split("all")
x = ds.arrays()[0].view(np.uint16).tolist()
said = {"x": x, "row": int(split[1]["n"]), "take": split.take([2, 0])["n"].tolist()}
said["loader"] = [batch["n"].tolist() for batch in ds.loader(2, shuffle=True, seed=7)]
for framework in ("torch", "jax", "tensorflow", "cupy"):
    try:
        ds.arrays(framework=framework)
    except etl.errors.MissingDriver as error:
        said[framework] = str(error)
print(json.dumps(said))
"""


def test_t49_numpy_needs_no_framework_and_a_missing_one_is_named(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0, 3.0], "n": [7, 8, 9]})
    made(tmp_path / "d", table, features=("a",), key=("n",), dtype="bfloat16")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCKED, str(tmp_path / "d")],
        capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert sorted(n for batch in said["loader"] for n in batch) == [7, 8, 9]
    assert (said["x"], said["row"], said["take"]) == ([[0x3F80], [0x4000], [0x4040]], 8, [9, 7])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for framework in ("torch", "jax", "tensorflow"):
        assert framework in extras
        assert f"pip install 'cuetl[{framework}]'" in said[framework]
    assert "cupy-cuda12x" in said["cupy"]
