"""Erasing: the rows of a key leave every version, and no file, tree or stage that held them stays."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest

from etl.core.errors import CommitConflict, ConfigError, Damaged
from etl.tensors import operations
from etl.tensors.dataset import open_dataset
from etl.tensors.erase import erase
from etl.tensors.options import WriteOptions
from tests.datasets import begin, export

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know short lists as columns

GONE = 0x11223344556677
"""A key whose bytes are found in no file by chance."""
FORMATS: tuple[Format, ...] = ("parquet", "safetensors")
APART = WriteOptions(partition_bytes=1, key=("id",))


def rows(*ids: int) -> Any:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array([None if i % 3 == 0 else i / 2 for i in ids], pa.float64()),
            "t": pa.array([None if i % 4 == 0 else f"t{i}" for i in ids], pa.string()),
            "tags": pa.array([[7] * (i % 3) for i in ids], pa.list_(pa.int16())),
        }
    )


def held(out: Path, version: int | None = None) -> dict[str, list[Any]]:
    """The rows of a version, split after split, by name; every file of it compared."""
    found = open_dataset(out, version, "sha256")
    kept: dict[str, list[Any]] = {}
    for name in found.splits:
        split = found.split(name)
        texts = [f.path if f.text_file is None else f.text_file.path for f in split.files]
        if found.manifest.format != "parquet":
            for key, value in split.tensors().items():
                kept[key] = kept.get(key, []) + value.tolist()
            texts = [f.text_file.path for f in split.files if f.text_file is not None]
        for path in texts:
            table = pq.read_table(found.locate(path))
            for key in table.column_names:
                kept[key] = kept.get(key, []) + table.column(key).to_pylist()
    return kept


def expected(fmt: Format, *ids: int) -> dict[str, list[Any]]:
    table = rows(*ids).to_pydict()
    if fmt == "parquet":
        return dict(table)
    return {
        "id": table["id"],
        "id.valid": [True] * len(ids),
        "n": [v or 0 for v in table["n"]],
        "n.valid": [v is not None for v in table["n"]],
        "t": table["t"],
        "tags.offsets": [sum(len(v) for v in table["tags"][:i]) for i in range(len(ids) + 1)],
        "tags.values": [i for v in table["tags"] for i in v],
        "tags.valid": [True] * len(ids),
    }


def places(folder: Path) -> dict[int, Path]:
    """Inode → a name of it, of everything below a folder."""
    return {path.lstat().st_ino: path for path in folder.rglob("*")}


def having(folder: Path, needle: bytes) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.is_file() and needle in p.read_bytes()]


@pytest.mark.parametrize("fmt", ["parquet", "safetensors", "npy", "torch"])
def test_erase_takes_the_rows_out_of_every_version_and_leaves_no_old_bytes(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, rows(1, 2, GONE, 3, GONE), 2, fmt=fmt, options=APART)
    export(out, rows(4, GONE + 1), fmt=fmt, options=APART, mode="append", run_id="r2")
    export(out, rows(GONE, 9), fmt=fmt, options=APART, mode="replace", run_id="r3")
    export(out, rows(5), fmt=fmt, options=APART, mode="replace", run_id="r4")
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    assert having(tmp_path, struct.pack("<q", GONE)) or fmt == "parquet"
    old = [
        os.open(open_dataset(out, v).locate(one.path), os.O_RDONLY)
        for v in (2, 3)
        for f in open_dataset(out, v).manifest.files
        for one in f.stored
        if f.rows > 1 or "r2" not in f.path
    ]
    before = sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    dry = erase(out, [str(GONE)], dry_run=True)
    assert sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
    assert (dry.rows, dry.version) == ({1: 2, 2: 2, 3: 1}, None)
    done = erase(out, [str(GONE)])
    assert (done.rows, done.version, done.keys) == (dry.rows, 5, 1)
    kept = {1: (1, 2, 3), 2: (1, 2, 3, 4, GONE + 1), 3: (9,), 4: (5,), 5: (5,)}
    for version, ids in kept.items():
        assert held(out, version) == expected(fmt, *ids)
        document = open_dataset(out, version).manifest.document
        nulls = {c["name"]: c["null"]["count"] for c in document["columns"]}  # type: ignore[attr-defined]
        assert nulls["n"] == sum(i % 3 == 0 for i in ids)
        assert nulls["t"] == sum(i % 4 == 0 for i in ids)
    assert having(tmp_path, struct.pack("<q", GONE)) == []
    assert having(tmp_path, str(GONE).encode()) == []
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (out / "notes.txt").read_text(encoding="utf-8") == "mine"
    # Readers that had a file open go on with it; it bears no name any more, where rows went out of it.
    assert sorted({os.fstat(handle).st_nlink for handle in old}) == [0, 1] or fmt == "parquet"
    for handle in old:
        assert os.fstat(handle).st_size
        os.close(handle)
    newest = dict[str, Any](open_dataset(out).manifest.document)
    assert (newest["operation"], newest["parent"]) == ("replace", 4)
    (said,) = newest["erased"]
    assert (said["columns"], said["keys"], said["rows"], said["versions"]) == (["id"], 1, 0, {"1": 2, "2": 2, "3": 1})
    again = erase(out, [str(GONE)])
    assert (again.rows, again.version, open_dataset(out).manifest.version) == ({}, None, 5)
    assert operations.rollback(out, 1).version == 6
    assert held(out) == expected(fmt, 1, 2, 3)


def test_erase_of_all_rows_leaves_an_empty_dataset_of_the_same_schema(tmp_path: Path) -> None:
    for fmt in FORMATS:
        out = tmp_path / fmt
        export(out, rows(1, 2), 2, fmt=fmt, options=APART)
        erase(out, ["1", "2", "2"])
        assert len(open_dataset(out)) == 0
        assert held(out) == expected(fmt)
        assert (
            open_dataset(out).manifest.document["schema_sha256"]
            == open_dataset(out, 1).manifest.document["schema_sha256"]
        )


def test_erase_goes_with_splits_and_packed_tensors(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = WriteOptions(
        features=("n", "id"), key=("id",), split={"a": "0.5", "b": "0.5"}, split_key=("id",), partition_bytes=1
    )
    table = rows(*range(40)).select(["id", "n"])
    export(out, table, 4, fmt="safetensors", options=options)
    before = {n: open_dataset(out).split(n).tensors()["id"].tolist() for n in ("a", "b")}
    done = erase(out, ["7", "12", "13", "99"])
    assert done.rows == {1: 3}
    found = open_dataset(out, verify="sha256")
    for name, ids in before.items():
        left = [i for i in ids if i not in {7, 12, 13}]
        tensors = found.split(name).tensors()
        assert tensors["id"].tolist() == left
        assert tensors["x"][:, 1].tolist() == left
        assert found.manifest.splits[name] == len(left)


def test_keys_are_values_of_their_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "s": ["a,b", "x", "id=1", None],
            "k": pa.array([1, 1, 2, 2], pa.int32()),
            "d": pa.array(["1.10", "2.00", "-3.05", None]).cast(pa.decimal128(5, 2)),
            "at": pa.array([0, 1, 86_400_000_000, None], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 1, 2, None], pa.date32()),
            "ok": [True, False, None, None],
        }
    )
    cases: dict[str, list[tuple[str, int | None]]] = {
        "s": [("x", 1), ("a,b", 0), ("id=1", 2), ("s=x", 1), ("nothing", None)],
        "k": [("k=2", 2), ("1", 0), ("+2", 2)],
        "d": [("1.1", 0), ("-3.05", 2), ("2", 1)],
        "at": [("1970-01-01T00:00:00.000001Z", 1), ("1970-01-02T01:00:00+01:00", 2), ("1970-01-01", 0)],
        "day": [("1970-01-02", 1)],
        "ok": [("false", 1), ("true", 0)],
    }
    bad = {
        "k": ["1.0", "x", "", "1_0", str(2**31)],
        "d": ["1.111", "nan"],
        "at": ["x"],
        "day": ["2026-13-01"],
        "ok": ["1"],
    }
    for fmt in FORMATS:
        for name, texts in cases.items():
            out = tmp_path / f"{fmt}-{name}"
            export(out, table, fmt=fmt, options=WriteOptions(key=(name,)))
            for text, row in texts:
                found = erase(out, [text], dry_run=True).rows
                wanted = 0 if row is None else table.column(name).to_pylist().count(table.column(name)[row].as_py())
                assert found == ({1: wanted} if wanted else {}), (fmt, name, text)
            for text in bad.get(name, ()):
                if fmt == "parquet" and name in {"d", "at"}:
                    continue  # the file's own type decides there, and such a value is in no row
                with pytest.raises(ConfigError, match=f"no value of column {name}"):
                    erase(out, [text], dry_run=True)


def test_several_key_columns_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "x", 'q,"r'], "v": [0, 1, 2, 3]})
    export(out, table, fmt="safetensors", options=WriteOptions(key=("a", "b")))
    assert erase(out, ["a=1,b=x", "a=2,b=y"], dry_run=True).rows == {1: 1}
    assert erase(out, ["a=1"], dry_run=True).rows == {1: 2}
    assert erase(out, ['a=2,"b=q,""r"'], dry_run=True).rows == {1: 1}
    for keys, said in (
        (["1"], r"does not say which column it is of.*a=VALUE"),
        (["c=1"], "c is no key column"),
        (["a=1,a=2"], "names a twice"),
        (["a=1", "b=x"], "names the columns b after a"),
        (["v=1"], "v is no key column"),
        ([], "no key is given"),
    ):
        with pytest.raises(ConfigError, match=said):
            erase(out, keys)
    export(out, table, fmt="safetensors", mode="replace", run_id="r2")
    with pytest.raises(ConfigError, match="no key column"):
        erase(out, ["1"])


def test_erase_is_refused_where_a_version_cannot_be_searched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"other": [1]}))
    export(out, rows(1, 2), mode="replace", run_id="r2", options=APART)
    with pytest.raises(ConfigError, match="version 1 has no column id"):
        erase(out, ["1"])
    operations.vacuum(out, keep=1)
    assert erase(out, ["1"]).rows == {2: 1}


def test_erase_is_refused_while_a_run_is_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export(out, rows(1, 2), options=APART)
    writing = begin(out, rows(1), mode="append", run_id="w1", options=APART)
    with pytest.raises(CommitConflict, match="the run w1 is writing to"):
        erase(out, ["1"])
    writing.abort()
    begun: list[Any] = []

    def late(*_arguments: Any) -> None:
        begun.append(begin(out, rows(1), mode="append", run_id="w2", options=APART))

    monkeypatch.setattr("etl.tensors.erase.check_whole", late)
    with pytest.raises(CommitConflict, match="the run w2 is writing to"):
        erase(out, ["1"])
    begun[0].abort()
    assert held(out)["id"] == [1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_that_somebody_made_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, rows(1, 2), options=APART)
    export(out, rows(3), options=APART, mode="append", run_id="r2")
    (path, other) = (f.path for f in open_dataset(out).manifest.files)
    for name in (path, other):
        os.link(out / name, tmp_path / name)
    assert erase(out, ["1"]).linked == (path,)
    assert erase(out, ["2"]).linked == ()


def test_files_that_cannot_be_made_anew_are_refused_with_a_way_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = pa.table({"id": pa.array([1, 2], pa.int64())})
    export(out, table, fmt="tfrecord", options=APART)
    with pytest.raises(ConfigError, match=r"version 1 holds tfrecord files, which erase cannot make anew.*vacuum"):
        erase(out, ["1"])
    with pytest.raises(ConfigError, match="which compact cannot make anew"):
        operations.compact(out)
    export(out, table, fmt="safetensors", options=APART, mode="replace", run_id="r2")
    operations.vacuum(out, keep=1)
    assert erase(out, ["1"]).rows == {2: 1}


def test_erase_of_a_damaged_file_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, rows(1, 2), fmt="safetensors", options=APART)
    path = out / open_dataset(out).manifest.files[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=path.name):
        erase(out, ["1"])
    assert open_dataset(out).manifest.version == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_current_version_with_a_hole_is_not_said_to_be_free_of_a_key(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, rows(1, 2), fmt="safetensors", options=APART)
    export(out, rows(3), fmt="safetensors", options=APART, mode="append", run_id="r2")
    path = open_dataset(out).manifest.files[0].path
    (out / path).unlink()
    for key in ("1", "3", "9"):
        with pytest.raises(Damaged, match=rf"{path} of .* is missing"):
            erase(out, [key])


def test_what_a_vacuum_left_of_a_version_goes_too(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, rows(1, GONE), fmt="safetensors", options=APART)
    export(out, rows(2), fmt="safetensors", options=APART, mode="replace", run_id="r2")
    (text,) = (out / "_retired" / "_text").iterdir()
    text.unlink()  # as a vacuum that was killed does
    assert erase(out, ["9"]).rows == {}
    assert having(tmp_path, struct.pack("<q", GONE)) == []
    assert held(out, 2)["id"] == [2]


def test_bounds_and_statistics_of_the_erased_leave_all_manifests(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, rows(1, GONE), options=APART)
    export(out, rows(1, 2, GONE), options=APART, mode="replace", run_id="r2")
    for version in (1, 2):
        document = json.loads((out / "_manifests" / f"{version:06d}.json").read_bytes())
        document["partitions"][0] |= {"predicate": f'"id" >= {GONE}', "slice": {"kind": "KeyRange", "low": [str(GONE)]}}
        rewrite(out, document)
    operations.vacuum(out, keep=1)
    erase(out, [str(GONE)])
    assert having(tmp_path, str(GONE).encode()) == []
    for version in (2, 3):
        open_dataset(out, version, "sha256")


def rewrite(out: Path, document: dict[str, Any]) -> None:
    """Put a changed manifest, and the hash of it into those after it."""
    from etl.core.canonical import canonical_json
    from etl.tensors.manifest import sha256_hex

    text = canonical_json(document)
    (out / "_manifests" / f"{document['version']:06d}.json").unlink()
    (out / "_manifests" / f"{document['version']:06d}.json").write_bytes(text)
    after = out / "_manifests" / f"{document['version'] + 1:06d}.json"
    if after.exists():
        rewrite(out, json.loads(after.read_bytes()) | {"parent_sha256": sha256_hex(text)})
    else:
        (out / "_manifest.json").unlink()
        (out / "_manifest.json").write_bytes(text)
