"""Tensors as npy, torch and TFRecord files: the same values as in safetensors, bytes that depend on the rows alone."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError, Damaged
from etl.tensors import crc32c
from etl.tensors.dataset import open_dataset
from etl.tensors.encode import mapped
from etl.tensors.formats import npy, torch
from etl.tensors.operations import compact
from etl.tensors.options import WriteOptions
from tests.datasets import export
from tests.records import crc32c as crc32c_by_byte
from tests.records import examples
from tests.tables import INTEGERS, tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns

OFFSETS: tuple[Format, ...] = ("npy", "torch")
ALL: tuple[Format, ...] = (*OFFSETS, "tfrecord")
MIXED = {
    "b": pa.array([True, None, False, True]),
    "i": pa.array([1, None, -(2**63), 2**53 + 1], pa.int64()),
    "h": pa.array([1.5, None, -0.0, float("inf")], pa.float32()),
    "emb": pa.array([[1.0, 2.0], None, [3.0, 4.0], [0.5, -1.0]], pa.list_(pa.float32(), 2)),
    "tags": pa.array([[1, 300], None, [], [-1]], pa.list_(pa.int32())),
    "word": pa.array(["x", None, "", "é"]),
}


def stored(out: Path, split: str = "all") -> dict[str, NDArray[Any]]:
    """All tensors of a split as they lie in its files."""
    dataset = open_dataset(out, verify="sha256")
    files = [mapped(f, dataset.manifest.format, dataset.locate) for f in dataset.split(split).files]
    return {name: np.concatenate([one[name] for one in files]) for name in files[0]}


def same(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return set(one) == set(other) and all(
        (one[n].dtype, one[n].shape, one[n].tobytes()) == (other[n].dtype, other[n].shape, other[n].tobytes())
        for n in one
    )


def from_records(out: Path, split: str = "all") -> dict[str, NDArray[Any]]:
    """All tensors of a split of TFRecord files, in the dtypes that they had."""
    dataset = open_dataset(out, verify="sha256")
    features: Any = dataset.manifest.document["tfrecord_features"]
    rows = [one for file in dataset.split(split).files for one in examples(out / file.path)]
    found: dict[str, NDArray[Any]] = {}
    for name, one in features.items():
        values = [row[name] for row in rows]
        assert all(v.dtype == np.dtype(one["type"]) for v in values), name
        if one["ragged"]:
            found[name.removesuffix(".values") + ".lengths"] = np.array([len(v) for v in values], np.int32)
            joined = np.concatenate([np.zeros(0, one["type"]), *values])
        else:
            joined = np.array(values, one["type"]).reshape(len(rows), *one["shape"])
        if one["dtype"] == "bfloat16":
            found[name] = (joined.view(np.uint32) >> 16).astype(np.uint16)
        else:
            found[name] = joined.astype(one["dtype"])
    return found


@settings(max_examples=25)
@given(table=tables(), parts=st.sampled_from([1, 3]), layout=st.sampled_from(["columns", "packed"]), data=st.data())
def test_any_table_is_the_same_in_every_format(
    tmp_path_factory: pytest.TempPathFactory, table: Any, parts: int, layout: str, data: st.DataObject
) -> None:
    packed = layout == "packed"
    folder = tmp_path_factory.mktemp("any")
    features: tuple[str, ...] = ()
    if packed:
        numbers = [n for n in table.column_names if n in (*INTEGERS, "bool", "float16", "float32", "decimal")]
        features = tuple(data.draw(st.permutations(numbers)))
    options = WriteOptions(features=features, dtype="float32" if packed else None, cast="saturate")
    export(folder / "s", table, parts, fmt="safetensors", options=options)
    want = stored(folder / "s")
    for fmt in OFFSETS:
        export(folder / fmt, table, parts, fmt=fmt, options=options)
        assert same(stored(folder / fmt), want), fmt
    export(folder / "r", table, parts, fmt="tfrecord", options=options)
    # Of what TFRecord does not hold, `--cast` made something else.
    other = () if packed else ("float64", "uint64", "decimal")
    got = {n: v for n, v in from_records(folder / "r").items() if n.removesuffix(".valid") not in other}
    assert same(got, {n: v for n, v in want.items() if n.removesuffix(".valid") not in other})


@pytest.mark.parametrize("fmt", OFFSETS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float64"])
def test_a_matrix_of_any_dtype(tmp_path: Path, fmt: Format, dtype: str) -> None:
    table = pa.table({"a": [0, 1, None], "c": [1, 1, 0]})
    options = WriteOptions(features=("a", "c"), dtype=dtype)
    for one in ("safetensors", fmt):
        export(tmp_path / one, table, 2, fmt=one, options=options)
    assert same(stored(tmp_path / fmt), stored(tmp_path / "safetensors"))
    listed: Any = open_dataset(tmp_path / fmt).manifest.document["tensors"]
    assert [one["dtype"] for one in listed] == [dtype]


@pytest.mark.parametrize("fmt", ALL)
def test_no_rows_and_a_split_without_any_keep_every_tensor(tmp_path: Path, fmt: Format) -> None:
    table = pa.table(MIXED)
    export(tmp_path / "none", table.slice(0, 0), 2, fmt=fmt)
    export(tmp_path / "want", table.slice(0, 0), 2, fmt="safetensors")
    if fmt != "tfrecord":
        assert same(stored(tmp_path / "none"), stored(tmp_path / "want"))
    else:
        assert {n: len(v) for n, v in from_records(tmp_path / "none").items()} == dict.fromkeys(
            stored(tmp_path / "want"), 0
        )
    options = WriteOptions(split={"train": "0.999999", "val": "0.000001"}, split_key=("i",), null_key="own_group")
    export(tmp_path / "split", table, fmt=fmt, options=options)
    dataset = open_dataset(tmp_path / "split", verify="sha256")
    assert dataset.manifest.splits == {"train": 4, "val": 0}
    assert [f.rows for f in dataset.split("val").files] == [0]


@pytest.mark.parametrize("fmt", ALL)
def test_small_files_are_joined_and_appended_to(tmp_path: Path, fmt: Format) -> None:
    table = pa.table(MIXED)
    read = from_records if fmt == "tfrecord" else stored
    for one in ("safetensors", fmt):
        export(tmp_path / one, table, 4, fmt=one)
        export(tmp_path / one, table.slice(1), 2, fmt=one, mode="append", run_id="r2")
    dataset = open_dataset(tmp_path / fmt, verify="sha256")
    assert [(f.rows, f.added_in_version) for f in dataset.manifest.files] == [(4, 1), (3, 2)]
    assert same(read(tmp_path / fmt), stored(tmp_path / "safetensors"))
    texts = [pq.read_table(tmp_path / fmt / f.text_file.path) for f in dataset.manifest.files if f.text_file]
    assert pa.concat_tables(texts).column("word").to_pylist() == ["x", None, "", "é", None, "", "é"]


@pytest.mark.parametrize("fmt", ALL)
def test_equal_rows_are_equal_bytes(tmp_path: Path, fmt: Format) -> None:
    table = pa.table(MIXED)
    for run in ("r1", "r2"):
        export(tmp_path / run, table, fmt=fmt, run_id=run)
    one, other = (open_dataset(tmp_path / run).manifest for run in ("r1", "r2"))
    assert one.document["content_sha256"] == other.document["content_sha256"]
    assert [s.sha256 for f in one.files for s in f.stored] == [s.sha256 for f in other.files for s in f.stored]


@pytest.mark.parametrize("fmt", ["safetensors", *ALL])
def test_parquet_twins_have_the_same_rows_in_the_same_order(tmp_path: Path, fmt: Format) -> None:
    rows = 3000
    table = pa.table(
        {
            "k": pa.array([None if i % 97 == 0 else i * 7919 % 1009 for i in range(rows)], pa.int64()),
            "i": pa.array([None if i % 13 == 0 else i for i in range(rows)], pa.int64()),
        }
    )
    options = WriteOptions(
        split={"train": "0.8", "val": "0.2"}, split_key=("k",), null_key="own_group", column_nulls={"i": "drop"}
    )
    for one in ("parquet", fmt):
        export(tmp_path / one, table, 5, fmt=one, options=options)
    twins = open_dataset(tmp_path / "parquet"), open_dataset(tmp_path / fmt)
    assert twins[0].manifest.splits == twins[1].manifest.splits
    assert sum(twins[0].manifest.splits.values()) == rows - -(-rows // 13)
    read = from_records if fmt == "tfrecord" else stored
    for split in ("train", "val"):
        files = [tmp_path / "parquet" / f.path for f in twins[0].split(split).files]
        column = pa.concat_tables([pq.read_table(f) for f in files]).column("i")
        assert read(tmp_path / fmt, split)["i"].tolist() == column.to_pylist()


@pytest.mark.parametrize("fmt", ALL)
def test_verify_names_a_file_that_was_changed_and_one_that_lies(tmp_path: Path, fmt: Format) -> None:
    export(tmp_path / "out", pa.table(MIXED), fmt=fmt)
    dataset = open_dataset(tmp_path / "out")
    one = dataset.manifest.files[0].stored[0]
    path = tmp_path / "out" / one.path
    data = bytearray(path.read_bytes())
    data[-1 if fmt != "torch" else 4096 * 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=f"{one.path} has sha256"):
        dataset.verify("sha256")
    # A manifest that lists the changed bytes: what is in the file is looked at too.
    data[8 if fmt != "torch" else 60] ^= 0xFF
    path.write_bytes(data)
    name = tmp_path / "out" / "_manifest.json"
    digest = hashlib.sha256(data).hexdigest()
    name.write_text(name.read_text().replace(one.sha256, digest))
    with pytest.raises(Damaged, match=f"{one.path} (cannot be read|holds)"):
        open_dataset(tmp_path / "out").verify("sha256")


@pytest.mark.parametrize("fmt", ALL)
def test_a_stray_data_file_is_named(tmp_path: Path, fmt: Format) -> None:
    export(tmp_path / "out", pa.table(MIXED), fmt=fmt)
    own = open_dataset(tmp_path / "out").manifest.files[0].stored[0].path
    stray = "stray" + own[own.rindex(".") :]
    (tmp_path / "out" / stray).write_bytes(b"")
    with pytest.raises(Damaged, match=f"{stray} is not of this dataset"):
        open_dataset(tmp_path / "out", verify="sha256")


@settings(max_examples=150)
@given(fmt=st.sampled_from(OFFSETS), data=st.data())
def test_any_changed_bytes_are_damage_or_other_values_never_another_error(
    tmp_path_factory: pytest.TempPathFactory, fmt: Format, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"changed-{fmt}"
    if not folder.exists():
        export(
            folder,
            pa.table({"a": [1, 2, None], "h": pa.array([[1.0], [2.0], [3.0]], pa.list_(pa.float32(), 1))}),
            fmt=fmt,
        )
    dataset = open_dataset(folder, verify="none")
    (file,) = dataset.manifest.files
    path = dataset.locate(file.stored[0].path)
    good = path.read_bytes()
    told = [at for at, byte in enumerate(good) if byte not in b"\0 "]
    changed = bytearray(good)
    for at in data.draw(st.lists(st.sampled_from(told), min_size=1, max_size=3)):
        changed[at] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(changed[: data.draw(st.integers(0, len(good)) | st.just(len(good)))])
        with suppress(Damaged):
            mapped(file, fmt, dataset.locate)
    finally:
        path.write_bytes(good)


# npy


def test_npy_files_are_read_by_numpy_and_named_after_their_tensors(tmp_path: Path) -> None:
    table = pa.table({"a/b%": pa.array([1, 2], pa.int16()), "é x": pa.array([0.5, None])})
    export(tmp_path / "out", table, fmt="npy")
    names = sorted(p.name.removeprefix("part-r1-00000-1-000.") for p in (tmp_path / "out").glob("*.npy"))
    assert names == ["a%2Fb%25.npy", "a%2Fb%25.valid.npy", "é x.npy", "é x.valid.npy"]
    for path in (tmp_path / "out").glob("*.npy"):
        assert np.load(path, mmap_mode="r", allow_pickle=False).shape == (2,)
        assert npy.read_header(path).data_start % 64 == 0
        with path.open("rb") as file:
            assert np.lib.format.read_magic(file) == (1, 0)


def test_npy_refuses_what_no_file_can_be_named_after_and_tables_without_tensors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has a name too long for --format npy"):
        export(tmp_path / "out", pa.table({"ü" * 90: [1]}), fmt="npy")
    for fmt in ("npy", "tfrecord"):
        with pytest.raises(ConfigError, match=f"no column is a tensor: .*--format {fmt}"):
            export(tmp_path / "out", pa.table({"word": ["x"]}), fmt=fmt)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_names_of_splits_and_tensors_fit_in_a_files_name(tmp_path: Path) -> None:
    split, column, run = "s" * 64, "ü" * 65, "20261130213547050296"
    options = WriteOptions(split={split: "0.5", "v": "0.5"}, split_key=("k",))
    data = pa.table({"k": range(50), column: range(50)})
    export(tmp_path / "out", data, fmt="npy", options=options, run_id=run)
    export(tmp_path / "out", data, fmt="npy", options=options, run_id=run[::-1], mode="replace")
    got = open_dataset(tmp_path / "out", verify="sha256").split(split).tensors()
    assert got[column].tolist() == got["k"].tolist()
    with pytest.raises(ConfigError, match="up to 64 letters"):
        WriteOptions(split={f"{split}s": "0.5", "v": "0.5"}, split_key=("k",))


# torch


def test_torch_files_are_archives_of_stored_and_aligned_members_with_a_pickle_of_tensors_alone(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table(MIXED), fmt="torch")
    (path,) = (tmp_path / "out").glob("*.pt")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        assert {i.date_time for i in infos} == {(1980, 1, 1, 0, 0, 0)}
        assert {i.compress_type for i in infos} == {zipfile.ZIP_STORED}
        assert archive.read("archive/version") == b"3\n"
        assert archive.read("archive/byteorder") == b"little"
        about = json.loads(archive.read("archive/cuetl.json"))
    assert [t["name"] for t in about["tensors"]] == list(torch.read_header(path))
    assert all(t.offset % 64 == 0 for t in torch.read_header(path).values())


def test_torch_archives_beyond_4_gib_use_64_bit_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table(MIXED)
    export(tmp_path / "small", table, fmt="torch")
    monkeypatch.setattr(torch, "LARGE", 20)  # as if the fields ended here
    export(tmp_path / "large", table, fmt="torch")
    assert same(stored(tmp_path / "large"), stored(tmp_path / "small"))
    (path,) = (tmp_path / "large").glob("*.pt")
    data = path.read_bytes()
    assert data[-22:-18] == b"PK\x05\x06"
    assert struct.unpack("<I", data[-6:-2]) == (0xFFFFFFFF,)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_torch_file_whose_pickle_says_something_else_is_damaged(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table({"a": [1]}), fmt="torch")
    (path,) = (tmp_path / "out").glob("*.pt")
    with zipfile.ZipFile(path) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    members["archive/data.pkl"] = members["archive/data.pkl"].replace(b"LongStorage", b"EvilStorage")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(Damaged, match="lists other tensors than it holds"):
        torch.read_header(path)


# TFRecord


def test_crc32c_of_known_messages() -> None:
    known = {
        b"123456789": 0xE3069283,
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
    }  # RFC 3720, B.4
    for message, crc in known.items():
        assert crc32c.of_rows(np.frombuffer(message, np.uint8)[None]).tolist() == [crc]


@settings(max_examples=30)
@given(st.data(), st.sampled_from([4, 5, 64, 1024, 1025, 3000]))
def test_crc32c_of_rows_is_that_of_each_message(data: st.DataObject, width: int) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    starts = np.array(data.draw(st.lists(st.integers(0, width - 4), min_size=1, max_size=4)))
    rows = np.random.default_rng(seed).integers(0, 256, (len(starts), width), dtype=np.uint8)
    rows[np.arange(width) < starts[:, None]] = 0
    alone = [int(crc32c.of_rows(row[start:][None])[0]) for row, start in zip(rows, starts, strict=True)]
    assert crc32c.of_rows(rows, starts).tolist() == alone
    assert alone[0] == crc32c_by_byte(rows[0, starts[0] :].tobytes())


def test_t20_what_tfrecord_does_not_hold_is_refused_by_column_and_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "f": pa.array([0.1], pa.float64()),
            "b": pa.array([True]),
            "u": pa.array([7], pa.uint64()),
            "d": pa.array([Decimal("1.10")], pa.decimal128(5, 2)),
        }
    )
    with pytest.raises(ConfigError) as refused:
        export(tmp_path / "out", table, fmt="tfrecord")
    for words in ("f (double, float64)", "u (uint64, uint64)", "d (decimal128(5, 2), a decimal)", "--cast round"):
        assert words in str(refused.value)
    assert "b (" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    export(tmp_path / "out", table, fmt="tfrecord", options=WriteOptions(cast="round"))
    ((row),) = examples(next((tmp_path / "out").glob("*.tfrecord")))
    assert {n: v.tolist() for n, v in row.items() if not n.endswith(".valid")} == {
        "f": [np.float32(0.1)],
        "b": [1],
        "u": [7],
        "d": [np.float32(1.1)],
    }
    manifest = open_dataset(tmp_path / "out").manifest
    features: Any = manifest.document["tfrecord_features"]
    assert features["b"] == {"type": "int64", "dtype": "bool", "shape": [], "ragged": False}
    assert manifest.document["layout"] == {"kind": "columns", "target_bytes": 128 << 20}
    columns: dict[object, Any] = {c["name"]: c for c in manifest.columns}
    assert [columns[n]["cast"]["n_rounded"] for n in ("f", "b", "u", "d")] == [1, 0, 0, 0]  # six digits
    with pytest.raises(ConfigError, match=r"fill=1e39 of column f: .*float32"):
        export(
            tmp_path / "no", table, fmt="tfrecord", options=WriteOptions(cast="round", column_nulls={"f": "fill=1e39"})
        )


def test_rows_of_very_different_length_are_records_in_row_order(tmp_path: Path) -> None:
    lengths = [0, 70_000, 1, *range(200), 0, 5000]
    table = pa.table({"a": pa.array([list(range(n)) for n in lengths], pa.list_(pa.int64())), "n": lengths})
    export(tmp_path / "out", table, fmt="tfrecord", batch_rows=7)
    (path,) = (tmp_path / "out").glob("*.tfrecord")
    rows = examples(path)
    assert [row["n"].tolist() for row in rows] == [[n] for n in lengths]
    assert all(row["a.values"].tolist() == list(range(n)) for row, n in zip(rows, lengths, strict=True))


def test_a_split_of_several_files_and_blocks_of_records(tmp_path: Path) -> None:
    rows = 45_000
    table = pa.table({"i": pa.array(np.arange(rows) * 1001), "f": pa.array(np.arange(rows, dtype=np.float32))})
    options = WriteOptions(partition_bytes=430_000)
    export(tmp_path / "out", table, fmt="tfrecord", options=options, batch_rows=20_000)
    files = open_dataset(tmp_path / "out", verify="sha256").manifest.files
    assert len(files) > 1
    assert files[0].rows > 26_000  # more than a block of records
    got = [row for f in files for row in examples(tmp_path / "out" / f.path, check=False)]
    assert (np.concatenate([row["i"] for row in got]) == np.arange(rows) * 1001).all()
    assert (np.concatenate([row["f"] for row in got]) == np.arange(rows)).all()


def test_tfrecord_is_not_mapped_but_says_how_it_is_read(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table(MIXED), fmt="tfrecord")
    dataset = open_dataset(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"holds tfrecord, .*TensorFlow \(cuetl dataset show"):
        dataset.tensors()
    text = str(dataset.summary()["reading"])
    compile(text, "reading", "exec")
    assert "'b': tf.io.FixedLenFeature([], tf.int64),  # was bool" in text
    assert "'tags.values': tf.io.RaggedFeature(tf.int64),  # was int32" in text
    with pytest.raises(ConfigError, match="holds tfrecord files, which compact cannot"):
        compact(tmp_path / "out")


def test_how_to_read_is_never_code_of_a_manifest(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table({"'+evil()+'": [1]}), fmt="tfrecord")
    assert repr("'+evil()+'") in str(open_dataset(tmp_path / "out").summary()["reading"])
    path = tmp_path / "out" / "_manifest.json"
    path.write_text(path.read_text().replace('"type":"int64"', '"type":"int64),evil("'))
    with pytest.raises(Damaged, match="lists no features of TFRecord files"):
        open_dataset(tmp_path / "out").summary()
