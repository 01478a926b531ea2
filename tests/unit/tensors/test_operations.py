"""Operations on a published dataset: what each version holds afterwards, what is gone, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest

from etl.cli import main
from etl.core.canonical import canonical_json
from etl.core.errors import CommitConflict, ConfigError, Damaged, DatasetError
from etl.tensors import operations, stages
from etl.tensors.dataset import open_dataset
from etl.tensors.difference import diff
from etl.tensors.options import WriteOptions
from etl.tensors.publish import publish
from tests.datasets import begin, export

if TYPE_CHECKING:
    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know short lists as columns

FORMATS: tuple[Format, ...] = ("parquet", "safetensors")
APART = WriteOptions(partition_bytes=1, key=("id",))
"""No two parts share a file."""


def table(*ids: int) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), "t": [f"t{i}" for i in ids]})


def ids(out: Path, version: int | None = None) -> list[int]:
    """The ids of a version, after every file of it was compared."""
    found = open_dataset(out, version, "sha256")
    if found.manifest.format == "parquet":
        files = (pq.read_table(found.locate(f.path)) for f in found.manifest.files)
        rows: list[Any] = [i for one in files for i in one.column("id").to_pylist()]
        return rows
    return [int(i) for name in found.splits for i in found.split(name).tensors()["id"]]


def hidden(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("."))


@pytest.mark.parametrize("fmt", FORMATS)
def test_rollback_is_a_new_version_with_the_rows_of_the_old_one(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, table(1, 2, 3), fmt=fmt)
    export(out, table(4), fmt=fmt, mode="append", run_id="r2")
    export(out, table(7, 8), fmt=fmt, mode="replace", run_id="r3")
    made = operations.rollback(out)
    assert (made.version, made.document["operation"], made.document["restores"]) == (4, "rollback", 2)
    assert ids(out) == [1, 2, 3, 4]
    assert operations.rollback(out, 1).version == 5
    assert [ids(out, v) for v in (1, 2, 3, 4, 5)] == [[1, 2, 3], [1, 2, 3, 4], [7, 8], [1, 2, 3, 4], [1, 2, 3]]
    first, last = open_dataset(out, 1).manifest.document, open_dataset(out).manifest.document
    for key in ("columns", "content_sha256", "schema_sha256", "source", "snapshots", "dataset_id", "files"):
        assert first[key] == last[key]
    assert (last["parent"], last["restores"]) == (4, 1)
    # The folder itself holds what a reader by names takes for the current version.
    assert sorted(f.path for f in open_dataset(out).manifest.files) == sorted(
        p.name for p in out.iterdir() if not p.name.startswith("_")
    )


def test_rollback_is_refused_where_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(DatasetError, match="is not there"):
        operations.rollback(out)
    export(out, table(1))
    with pytest.raises(ConfigError, match="has only version 1"):
        operations.rollback(out)
    export(out, table(2), mode="replace", run_id="r2")
    with pytest.raises(ConfigError, match="is the current one"):
        operations.rollback(out, 2)
    with pytest.raises(DatasetError, match=r"no version 7\. It has 1, 2"):
        operations.rollback(out, 7)
    operations.vacuum(out, keep=1)
    with pytest.raises(DatasetError, match=r"version 1 of .* cannot come back: part-r1-00000-1-000\.parquet"):
        operations.rollback(out)
    assert hidden(tmp_path) == [".out.cuetl-r2"]
    assert ids(out) == [2]


def test_a_number_that_a_dead_commit_left_is_no_version(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, table(1))
    dead = json.loads((out / "_manifests" / "000001.json").read_bytes())
    (out / "_manifests" / "000002.json").write_text(json.dumps({**dead, "version": 2, "parent": 1}), encoding="utf-8")
    export(out, table(3), mode="replace", run_id="r3")
    assert open_dataset(out).manifest.version == 3
    with pytest.raises(DatasetError, match=r"no version 2\. It has 1, 3"):
        open_dataset(out, 2)
    assert operations.rollback(out).document["restores"] == 1


@pytest.mark.parametrize("fmt", FORMATS)
def test_vacuum_takes_what_no_kept_version_lists_and_nothing_else(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, table(1), fmt=fmt)
    export(out, table(2), fmt=fmt, mode="append", run_id="r2")
    export(out, table(3), fmt=fmt, mode="replace", run_id="r3")
    export(out, table(4), fmt=fmt, mode="replace", run_id="r4")
    (out / "_retired" / "mine.old").write_text("mine", encoding="utf-8")
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    dry = operations.vacuum(out, keep=2, dry_run=True)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
    assert (dry.kept, dry.taken, dry.waiting) == ((4, 3), (2, 1), 3)
    done = operations.vacuum(out, keep=2)
    assert (done.files, done.bytes, done.taken) == (dry.files, dry.bytes, dry.taken)
    assert done.files == (4 if fmt == "safetensors" else 2)
    assert [ids(out, v) for v in (3, 4)] == [[3], [4]]
    for version in (1, 2):
        with pytest.raises(DatasetError):
            open_dataset(out, version)
        assert open_dataset(out, version, verify="none").manifest.version == version
    assert (out / "_retired" / "mine.old").read_text(encoding="utf-8") == "mine"
    assert (out / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert operations.vacuum(out, keep=2).files == 0
    with pytest.raises(ConfigError, match="--keep is 0"):
        operations.vacuum(out, keep=0)


def test_vacuum_keeps_a_file_that_an_old_version_shares_with_a_kept_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, table(1))
    export(out, table(2), mode="replace", run_id="r2")
    operations.rollback(out)
    assert operations.vacuum(out, keep=1).taken == (2,)
    assert [ids(out, v) for v in (1, 3)] == [[1], [1]]


def test_vacuum_takes_old_trees_and_dead_stages_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export(out, table(1))
    export(out, table(2), mode="replace", run_id="r2")
    living = begin(out, table(3), mode="replace", run_id="alive")
    code = (
        "import sys; from pathlib import Path; from tests.datasets import begin; import pyarrow as pa;"
        "begin(Path(sys.argv[1]), pa.table({'id': [1], 't': ['x']}), run_id='dead', mode='replace')"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=Path(__file__).parents[3], check=True, timeout=60)
    found = operations.vacuum(out)
    assert (found.trees, found.waiting) == (1, 1)
    assert hidden(tmp_path) == [".out.cuetl-alive", ".out.cuetl-r2"]
    monkeypatch.setattr(stages, "OLD_TREE_SECONDS", -1)
    assert operations.vacuum(out, dry_run=True).trees == 1
    assert operations.vacuum(out).trees == 1
    assert hidden(tmp_path) == [".out.cuetl-alive"]
    living.abort()


def test_a_removal_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export(out, table(*range(50)), 5, options=APART)
    export(out, table(2), mode="replace", run_id="r2")
    tree = tmp_path / ".out.cuetl-r2"
    unlink, left = os.unlink, 3

    def failing(path: Any, **_words: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        unlink(path)

    monkeypatch.setattr(stages, "OLD_TREE_SECONDS", -1)
    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", failing)
        stages.sweep(out)
    assert tree.exists()
    stages.sweep(out)
    assert not tree.exists()


def test_an_operation_that_was_overtaken_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export(out, table(1))
    export(out, table(2), mode="replace", run_id="r2")

    def late(*arguments: Any) -> Any:
        export(out, table(3), mode="replace", run_id="r3")
        return publish(*arguments)

    monkeypatch.setattr("etl.tensors.operations.publish", late)
    with pytest.raises(CommitConflict, match=r"version 3 of .* begun at version 2"):
        operations.rollback(out)
    assert ids(out) == [3]
    assert hidden(tmp_path) == [".out.cuetl-r2", ".out.cuetl-r3"]


def test_diff_names_columns_files_rows_and_statistics(tmp_path: Path) -> None:
    out = tmp_path / "out"
    split = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("id",))
    export(out, table(*range(20)), options=split)
    with pytest.raises(ConfigError, match="has no parent"):
        diff(out)
    export(out, table(*range(20, 30)), mode="append", run_id="r2", options=split)
    other = pa.table({"id": pa.array([1, None], pa.int32()), "n": [1.5, None]})
    export(out, other, mode="replace", run_id="r3")
    same = diff(out, 2, 2)
    assert same.same
    assert same.files["kept"][0] == 4
    grown = diff(out, 1, 2)
    assert {n: b - a for n, (a, b) in grown.rows.items()} == {
        n: r - open_dataset(out, 1).manifest.splits[n] for n, r in open_dataset(out, 2).manifest.splits.items()
    }
    assert (grown.files["kept"][0], grown.files["added"][0], grown.files["removed"][0]) == (2, 2, 0)
    assert (grown.added, grown.removed, dict(grown.changed)) == ((), (), {})
    changed = diff(out)
    assert changed.versions == (2, 3)
    assert (changed.added, changed.removed) == (("n",), ("t",))
    assert changed.changed["id"]["dtype"] == ("int64", "int32")
    assert changed.statistics["id"]["all"]["null"] == (None, 1)
    assert changed.rows["all"] == (0, 2)
    # Manifests stay, so versions can be compared whose data are gone.
    operations.vacuum(out, keep=1)
    assert diff(out, 1, 2).as_json() == grown.as_json()
    json.dumps(grown.as_json())


def test_a_chain_with_a_missing_link_is_damaged(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, table(1))
    export(out, table(2), mode="replace", run_id="r2")
    (out / "_manifests" / "000001.json").unlink()
    for broken in (operations.vacuum, operations.rollback, diff):
        with pytest.raises(Damaged, match=r"000001\.json is missing"):
            broken(out)


def wide(first: int, rows: int) -> Any:
    """Rows of every kind that a tensor file holds: a matrix is made of n and m, the rest lies beside it."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array([None if i % 5 == 0 else i / 2 for i in numbers], pa.float64()),
            "m": pa.array([i % 100 for i in numbers], pa.int8()),
            "t": [None if i % 7 == 0 else "x" * (i % 4) for i in numbers],
            "tags": pa.array([None if i % 6 == 0 else list(range(i % 4)) for i in numbers], pa.list_(pa.int32())),
            "emb": pa.array([[i, i + 1] for i in numbers], pa.list_(pa.float32(), 2)),
            "at": pa.array([i * 10**6 for i in numbers], pa.timestamp("us", "UTC")),
        }
    )


def everything(out: Path, version: int | None = None) -> dict[str, Any]:
    """All values of a version by split and name, after every file of it was compared."""
    found = open_dataset(out, version, "sha256")
    held: dict[str, Any] = {}
    for name in found.splits:
        split = found.split(name)
        if found.manifest.format == "parquet":
            texts = [f.path for f in split.files]
        else:
            texts = [f.text_file.path for f in split.files if f.text_file]
            held |= {f"{name}.{key}": value.tolist() for key, value in split.tensors().items()}
        if texts:
            table = pa.concat_tables([pq.read_table(found.locate(path)) for path in texts])
            held |= {f"{name}.{key}": table.column(key).to_pylist() for key in table.column_names}
    return held


@pytest.mark.parametrize("fmt", ["safetensors", "npy", "torch"])
def test_compact_keeps_rows_of_no_width(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    none = pa.array([[], [], None], pa.list_(pa.float32(), 0))
    rows = pa.table({"none": none, "id": [1, 2, 3]})
    export(out, rows, fmt=fmt)
    export(out, rows, fmt=fmt, mode="append", run_id="r2")
    assert operations.compact(out) is not None
    got = open_dataset(out, verify="sha256").tensors()
    assert got["none"].shape == (6, 0)
    assert got["none.valid"].tolist() == [True, True, False] * 2
    assert got["id"].tolist() == [1, 2, 3] * 2


@pytest.mark.parametrize(
    ("fmt", "layout"),
    [
        *(("parquet", "columns"), ("parquet", "split")),
        *(("safetensors", "columns"), ("safetensors", "packed"), ("safetensors", "split")),
        *(("npy", "packed"), ("torch", "columns")),
    ],
)
def test_compact_keeps_rows_order_and_text_in_fewer_files(tmp_path: Path, fmt: Format, layout: str) -> None:
    out = tmp_path / "out"
    options = APART
    if layout == "packed":
        options = WriteOptions(partition_bytes=1, key=("id",), features=("n", "m"))
    elif layout == "split":
        options = WriteOptions(partition_bytes=1, split={"a": "0.5", "b": "0.5"}, split_key=("id",))
    export(out, wide(0, 40), 4, fmt=fmt, options=options, batch_rows=3)
    export(out, wide(40, 10), 2, fmt=fmt, options=options, mode="append", run_id="r2")
    assert operations.compact(out) is None  # the target is one byte
    set_target(out, 1 << 20)
    before = everything(out)
    made = operations.compact(out)
    assert made is not None
    assert (made.version, made.document["operation"], made.document["compacts"]) == (3, "replace", 2)
    splits = ["a", "b"] if layout == "split" else ["all"]
    assert [(f.split, f.added_in_version) for f in made.files] == [(name, 3) for name in splits]
    assert everything(out) == before
    assert everything(out, 2) == before
    assert operations.compact(out) is None
    assert operations.rollback(out).files == open_dataset(out, 2).manifest.files
    assert everything(out) == before


def test_compact_cuts_at_the_target_in_whole_blocks_and_leaves_large_files_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = pa.table({"id": pa.array(range(30_000), pa.int64())})
    export(out, rows, 10, fmt="safetensors", options=APART)
    export(out, rows, fmt="safetensors", options=APART, mode="append", run_id="r2")
    set_target(out, 100_000)
    before = ids(out)
    large = [f for f in open_dataset(out).manifest.files if f.bytes >= 50_000]
    made = operations.compact(out)
    assert made is not None
    assert ids(out) == before
    assert [f for f in made.files if f.added_in_version == 2] == large
    new = [f for f in made.files if f.added_in_version == 3]
    assert [f.rows % 4096 for f in new[:-1]] == [0] * (len(new) - 1)
    assert max(f.bytes for f in new) <= 150_000
    assert operations.compact(out) is None


@pytest.mark.parametrize("fmt", FORMATS)
def test_compact_of_a_damaged_file_publishes_nothing(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, table(*range(50)), 5, fmt=fmt, options=APART)
    set_target(out, 1 << 20)
    path = out / open_dataset(out).manifest.files[2].path
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=rf"{path.name} of .* has sha256 [0-9a-f]{{64}}, not"):
        operations.compact(out)
    assert open_dataset(out).manifest.version == 1
    assert hidden(tmp_path) == []


def set_target(out: Path, size: int) -> None:
    """Change the target size of the current version, as if it had been exported with another one."""
    document = json.loads((out / "_manifest.json").read_bytes())
    document["layout"]["target_bytes"] = size
    for path in (out / "_manifest.json", out / "_manifests" / f"{document['version']:06d}.json"):
        path.unlink()
        path.write_bytes(canonical_json(document))


@pytest.mark.parametrize(
    ("field", "value"), [("layout", {}), ("layout", {"target_bytes": "a"}), ("warnings", -1), ("warnings", ["a"])]
)
def test_a_manifest_of_another_writer_is_compacted_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: object
) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"n": [1, 2, 3]}), fmt="safetensors")
    export(out, pa.table({"n": [4]}), fmt="safetensors", mode="append", run_id="r2")
    current = out / "_manifest.json"
    current.write_bytes(canonical_json({**json.loads(current.read_bytes()), field: value}) + b"\n")
    assert main.run(["dataset", "show", str(out)]) == 0
    assert main.run(["dataset", "compact", str(out)]) == 0
    assert "2 data files became 1" in capsys.readouterr().out
