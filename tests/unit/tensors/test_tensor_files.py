"""Tensor datasets: dtypes from the schema, values exact, masks, deterministic bytes, the standard reader reads them."""

from __future__ import annotations

import hashlib
import tracemalloc
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from connectors.base import StagedFile
from etl.core.errors import CastError, ConfigError, SchemaError
from etl.core.partition import Pages, Partition
from etl.tensors.dataset import open_dataset
from etl.tensors.join import groups
from etl.tensors.options import WriteOptions
from etl.tensors.sink import DatasetSink
from tests.datasets import begin, export, requires, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


BIG = 2**53 + 1


def load(out: Path, split: str = "all") -> dict[str, np.ndarray[Any, Any]]:
    """All files of a split, as a stranger's reader gives them."""
    files = open_dataset(out, verify="sha256").split(split).files
    parts = [load_file(out / f.path) for f in files]
    return {n: np.concatenate([p[n] for p in parts]) for n in parts[0]}


def texts(out: Path, split: str = "all") -> Any:
    files = open_dataset(out).split(split).files
    return pa.concat_tables([pq.read_table(out / f.text_file.path) for f in files if f.text_file])


@pytest.mark.parametrize(("rows", "files"), [(6000, 1), (7000, 2)])
def test_text_of_any_size_is_not_held(tmp_path: Path, rows: int, files: int) -> None:
    """Beside the second file, which the first may yet take in, lies more text than there is to be in memory."""
    notes = pa.array([f"{i:05d}" * 3200 for i in range(500)])  # 16 kB each
    table = pa.table({"id": np.arange(rows)}).append_column("note", notes.take(pa.array(np.arange(rows) % 500)))
    del notes
    options = WriteOptions(partition_bytes=4096 * 9, row_group_bytes=1 << 20)
    base, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for batch in table.to_batches(max_chunksize=100):
            # A batch of its own, as a reader gives it: a slice would keep nothing alive that is not so already.
            yield batch.take(pa.array(np.arange(batch.num_rows)))
            most = max(most, pa.total_allocated_bytes() - base)

    session = begin(tmp_path / "out", table, fmt="safetensors", options=options)
    try:
        staged = [session.stage(Partition(0, Pages(0, 1)), 1, batches())]
        session.commit(staged, requires=requires(staged, "r1"))
    finally:
        session.abort()
    assert most < 12 << 20, most
    assert len(open_dataset(tmp_path / "out", verify="sha256").split("all").files) == files
    assert texts(tmp_path / "out").equals(table.select(["note"]))


@pytest.mark.parametrize("fmt", ["safetensors", "npy", "torch", "tfrecord"])
def test_wide_rows_want_memory_for_themselves_alone(tmp_path: Path, fmt: Format) -> None:
    """Blocks of 65 536 rows would be 5 GB here, and those of a mask beside them are as many rows."""
    wide, rows = 20_000, 1000
    vectors = np.arange(rows * wide, dtype=np.float32).reshape(rows, wide)
    table = pa.table({"e": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), wide), "id": np.arange(rows)})
    tracemalloc.start()
    try:
        export(tmp_path / "out", table, fmt=fmt, batch_rows=100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * vectors.nbytes
    opened = open_dataset(tmp_path / "out", verify="sha256")
    if fmt != "tfrecord":
        assert (opened.tensors()["e"] == vectors).all()
        assert opened.tensors()["id"].tolist() == list(range(rows))


def test_files_with_much_text_are_not_joined_because_their_tensors_are_small() -> None:
    def file(size: int, text: int) -> StagedFile:
        return StagedFile("p", "all", 10, size, "", {"text_file": {"path": "t", "bytes": text, "sha256": ""}})

    tiny, wordy = file(80, 80), file(80, 64 << 20)
    assert groups([tiny, tiny, wordy, tiny, tiny, wordy, wordy], "safetensors", 128 << 20) == [
        [0, 1], [2], [3, 4], [5], [6],
    ]  # fmt: skip
    half = file(80, 900_000)
    assert groups([half] * 5, "npy", 4_000_000) == [[0, 1, 2, 3], [4]]


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("batch_rows", [1, 1000, 100_000])
def test_integers_and_nulls_do_not_depend_on_parts_or_batches(tmp_path: Path, parts: int, batch_rows: int) -> None:
    rows = 2000
    table = pa.table({"big": pa.array([None if i == 1500 else BIG for i in range(rows)], pa.int64())})
    export(tmp_path / "out", table, parts, fmt="safetensors", batch_rows=batch_rows)
    got = load(tmp_path / "out")
    assert got["big"].dtype == np.int64
    assert got["big"][1500] == 0
    assert np.flatnonzero(~got["big.valid"]).tolist() == [1500]
    assert (np.delete(got["big"], 1500) == BIG).all()


def everything() -> Any:
    return pa.table(
        {
            "b": pa.array([True, None, False], pa.bool_()),
            "i2": pa.array([1, None, -3], pa.int16()),
            "u2": pa.array([65535, None, 0], pa.uint16()),
            "u4": pa.array([2**32 - 1, None, 0], pa.uint32()),
            "u8": pa.array([2**63, None, 0], pa.uint64()),
            "f2": pa.array(np.array([1.5, np.nan, 0], np.float16), pa.float16()),
            "f8": pa.array([1.0, float("nan"), None], pa.float64()),
            "dec": pa.array([Decimal("1.15"), None, Decimal("-0.01")], pa.decimal128(5, 2)),
            "wide": pa.array([Decimal("0.5"), None, Decimal(-7)], pa.decimal128(38, 18)),
            "at": pa.array([1704067200000000, None, -1], pa.timestamp("us", "UTC")),
            "day": pa.array([19723, None, -1], pa.int32()).view(pa.date32()),
            "tod": pa.array([5_000_000, None, 0], pa.time64("us")),
            "gap": pa.array([5_000_000, None, 0], pa.duration("us")),
            "mood": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int32()), pa.array(["sad", "ok"])),
            "emb": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "tags": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            "name": pa.array(["x", None, ""], pa.string()),
            "id": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([uuid.UUID(int=i).bytes for i in range(3)], pa.binary(16))
            ),
        }
    )


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_every_type_has_the_dtype_of_its_schema_and_exact_values(tmp_path: Path, parts: int) -> None:
    export(tmp_path / "out", everything(), parts, fmt="safetensors", vocabularies={"mood": ("sad", "ok")})
    got = load(tmp_path / "out")
    want: dict[str, tuple[str, list[Any]]] = {
        "b": ("bool", [True, False, False]),
        "i2": ("int16", [1, 0, -3]),
        "u2": ("int32", [65535, 0, 0]),
        "u4": ("int64", [2**32 - 1, 0, 0]),
        "u8": ("uint64", [2**63, 0, 0]),
        "dec": ("int64", [115, 0, -1]),
        "wide": ("float64", [0.5, 0.0, -7.0]),
        "at": ("int64", [1704067200000000, 0, -1]),
        "day": ("int32", [19723, 0, -1]),
        "tod": ("int64", [5_000_000, 0, 0]),
        "gap": ("int64", [5_000_000, 0, 0]),
        "mood": ("int32", [1, 0, 0]),
        "emb": ("float32", [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]),
    }
    for name, (dtype, values) in want.items():
        assert str(got[name].dtype) == dtype, name
        assert got[name].tolist() == values, name
        assert got[f"{name}.valid"].tolist() == [True, False, True], name
    assert got["tags.lengths"].tolist() == [2, 0, 0]
    assert got["tags.values"].tolist() == [1, 2]
    assert got["tags.valid"].tolist() == [True, False, True]
    assert np.isnan(got["f8"][1])
    assert got["f8.valid"].tolist() == [True, True, False]
    assert got["f2"].dtype == np.float16
    text = texts(tmp_path / "out")
    assert text.column("name").to_pylist() == ["x", None, ""]
    assert text.column("id").to_pylist() == [uuid.UUID(int=i) for i in range(3)]
    manifest = open_dataset(tmp_path / "out").manifest
    by_name = {c["name"]: c for c in manifest.columns}
    assert by_name["mood"]["category"]["values"] == ["sad", "ok"]  # type: ignore[index]
    assert by_name["at"]["time"] == {"unit": "us", "epoch": "1970-01-01T00:00:00", "zone": "UTC"}
    assert by_name["dec"]["decimal"] == {"precision": 5, "scale": 2, "encoding": "scaled_int"}
    assert [w["column"] for w in manifest.document["warnings"]] == ["name", "id"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", ["columns", "packed"])
def test_no_rows_keep_every_tensor_with_its_dtype_and_shape(tmp_path: Path, layout: str) -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "f": pa.array([], pa.float64()), "t": pa.array([], pa.string())})
    options = WriteOptions(features=("a", "f")) if layout == "packed" else WriteOptions()
    made = export(tmp_path / "out", table, 2, fmt="safetensors", options=options)
    assert (made.rows, made.files) == (0, 1)
    got = load(tmp_path / "out")
    if layout == "packed":
        assert (got["x"].shape, got["x"].dtype, got["x.valid"].shape) == ((0, 2), np.float64, (0, 2))
    else:
        assert (got["a"].shape, got["a"].dtype, got["f"].dtype) == ((0,), np.int64, np.float64)
        assert texts(tmp_path / "out").schema.types == [pa.string()]


def test_a_split_without_rows_has_a_file(tmp_path: Path) -> None:
    options = WriteOptions(split={"train": "0.999999", "val": "0.000001"}, split_key=("a",))
    export(tmp_path / "out", pa.table({"a": [1, 2, 3]}), fmt="safetensors", options=options)
    assert load(tmp_path / "out", "val")["a"].shape == (0,)
    assert sorted(load(tmp_path / "out", "train")["a"].tolist()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        (["bool"], "bool"),
        (["bool", "int16"], "int16"),
        (["uint8", "bool"], "uint8"),
        (["uint8", "uint32"], "uint32"),
        (["uint8", "int8"], "int16"),
        (["uint32", "int16"], "int64"),
        (["int32", "date32"], "int32"),
        (["timestamp", "bool"], "int64"),
        (["float32", "int16"], "float32"),
        (["float16", "bool"], "float32"),
        (["float32", "int32"], "float64"),
        (["float64"], "float64"),
        (["decimal6"], "float32"),
        (["decimal7", "bool"], "float64"),
        (["float32", "timestamp"], "float64"),
        (["enum", "float32"], "float32"),
        (["enum", "bool"], "int32"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value,
)
def test_the_matrix_has_the_dtype_that_holds_every_declared_type(tmp_path: Path, kinds: list[str], dtype: str) -> None:
    types: dict[str, pa.DataType] = {
        "decimal6": pa.decimal128(6, 2),
        "decimal7": pa.decimal128(7, 2),
        "timestamp": pa.timestamp("us"),
        "date32": pa.date32(),
        "enum": pa.dictionary(pa.int32(), pa.string()),
        "bool": pa.bool_(),
        "float16": pa.float16(),
        "float32": pa.float32(),
        "float64": pa.float64(),
    }
    fields = [pa.field(f"c{i}", types[k] if k in types else getattr(pa, k)()) for i, k in enumerate(kinds)]
    table = pa.schema(fields).empty_table()
    options = WriteOptions(features=tuple(f.name for f in fields))
    export(tmp_path / "out", table, fmt="safetensors", options=options)
    assert str(load(tmp_path / "out")["x"].dtype) == dtype


def test_the_packed_layout(tmp_path: Path) -> None:
    table = pa.table(
        [
            pa.array([1, None, 3], pa.int16()),
            pa.array([0.5, 1.5, None], pa.float32()),
            pa.array([True, False, True]),
            pa.array([1.0, None, 0.0]),
            pa.array([7, 8, 9], pa.int64()),
            pa.array(["a", "b", None]),
            pa.array([1, 1, 1]),
        ],
        schema=pa.schema(
            [
                ("small", pa.int16()), ("f4", pa.float32()), ("flag", pa.bool_()), ("f8", pa.float64()),
                pa.field("big", pa.int64(), nullable=False), ("word", pa.string()), ("other", pa.int64()),
            ]
        ),
    )  # fmt: skip
    options = WriteOptions(features=("f4", "small", "flag"), target=("f8",), key=("big", "word"), dtype="float32")
    export(tmp_path / "out", table, 2, fmt="safetensors", options=options)
    got = load(tmp_path / "out")
    assert set(got) == {"x", "x.valid", "y", "y.valid", "big"}
    assert got["x"].tolist() == [[0.5, 1, 1], [1.5, 0, 0], [0, 3, 1]]
    assert got["x.valid"].tolist() == [[True, True, True], [True, False, True], [False, True, True]]
    assert got["y"].tolist() == [1.0, 0.0, 0.0]
    assert got["y.valid"].tolist() == [True, False, True]
    assert got["big"].tolist() == [7, 8, 9]
    assert got["x"].flags["C_CONTIGUOUS"]
    assert texts(tmp_path / "out").to_pydict() == {"word": ["a", "b", None]}


@pytest.mark.parametrize(
    ("kind", "value", "dtype", "hint"),
    [
        (pa.float64(), 1e300, "float32", "Use --cast saturate, another --dtype"),
        (pa.float64(), 0.1, "float32", "Use --cast round or saturate, another --dtype"),
        (pa.int64(), 300, "int8", "Use --cast saturate, another --dtype"),
        (pa.float64(), 0.5, "int8", "Use --cast round or saturate, another --dtype"),
        (pa.float64(), float("nan"), "int8", "Use another --dtype"),
    ],
)
def test_a_refused_value_comes_with_a_cast_that_would_carry_it(
    tmp_path: Path, kind: Any, value: float, dtype: str, hint: str
) -> None:
    table = pa.table({"n": pa.array([value], kind)})
    with pytest.raises(CastError) as refused:
        export(tmp_path / "out", table, fmt="safetensors", options=WriteOptions(features=("n",), dtype=dtype))
    assert f" {hint}" in str(refused.value)
    policies = [p for p in ("round", "saturate") if p in hint]
    for cast in ("round", "saturate"):
        options = WriteOptions(features=("n",), dtype=dtype, cast=cast)
        if cast in policies:
            export(tmp_path / cast, table, fmt="safetensors", options=options)
        else:
            with pytest.raises(CastError):
                export(tmp_path / cast, table, fmt="safetensors", options=options)


def test_cast_policies_refuse_or_count_and_name_column_key_and_value(tmp_path: Path) -> None:
    table = pa.table({"pk": pa.array([10, 11]), "n": pa.array([16777217, None], pa.int32())})
    with pytest.raises(CastError, match=r"column n: the value 16777217 \(pk = 10\) cannot be float32"):
        export(
            tmp_path / "out",
            table,
            fmt="safetensors",
            options=WriteOptions(features=("n",), key=("pk",), dtype="float32"),
        )
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.iterdir()) == []
    options = WriteOptions(features=("n",), dtype="float32", cast="round")
    export(tmp_path / "out", table, fmt="safetensors", options=options)
    (column,) = open_dataset(tmp_path / "out").columns
    assert column["cast"] == {"policy": "round", "n_rounded": 1, "n_saturated": 0, "max_abs_error": 1.0}
    assert column["null"]["count"] == 1  # type: ignore[index]
    assert load(tmp_path / "out")["x"].tolist() == [[16777216.0], [0.0]]
    with pytest.raises(CastError, match=r"cannot be int8: .*\(--cast round\)\. Use --cast saturate, another"):
        export(
            tmp_path / "no", table, fmt="safetensors", options=WriteOptions(features=("n",), dtype="int8", cast="round")
        )


def test_null_policies(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": pa.array([None, 1.0, 2.0])})
    with pytest.raises(CastError, match="column a is NULL in partition 0, row 2"):
        export(
            tmp_path / "e", table, fmt="safetensors", options=WriteOptions(nulls="error", column_nulls={"b": "mask"})
        )
    made = export(tmp_path / "d", table, fmt="safetensors", options=WriteOptions(nulls="drop"))
    assert made.rows == 1
    got = load(tmp_path / "d")
    assert set(got) == {"a", "b"}
    assert (got["a"].tolist(), got["b"].tolist()) == ([3], [2.0])
    export(tmp_path / "f", table, fmt="safetensors", options=WriteOptions(nulls="fill=-1"))
    got = load(tmp_path / "f")
    assert set(got) == {"a", "b"}
    assert (got["a"].tolist(), got["b"].tolist()) == ([1, -1, 3], [-1.0, 1.0, 2.0])
    money = pa.table({"m": pa.array([Decimal("0.25"), None], pa.decimal128(5, 2))})
    export(tmp_path / "m", money, fmt="safetensors", options=WriteOptions(nulls="fill=1.5"))
    assert load(tmp_path / "m")["m"].tolist() == [25, 150]
    columns = open_dataset(tmp_path / "f").columns
    assert columns[0]["null"] == {"policy": "fill", "fill": "-1", "valid_tensor": None, "valid_index": None, "count": 1}


def test_a_null_in_a_column_declared_not_null_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, None])], schema=schema)
    with pytest.raises(SchemaError, match="declared NOT NULL"):
        export(tmp_path / "out", table, fmt="safetensors")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (WriteOptions(features=("price", "label")), "label.*string.*not a number.*Encode"),
        (WriteOptions(features=("u", "s")), "u .unsigned, 64 bits. and s"),
        (WriteOptions(features=("pric",)), "no column pric.*price"),
        (WriteOptions(target=("nope",)), "--target: no column nope"),
        (WriteOptions(features=("price",), dtype="int64"), "decimal128.7, 2. and cannot be int64"),
        (WriteOptions(nulls="fill=1.5"), "fill=1.5 of column s"),
        (WriteOptions(split={"a": "1"}, split_key=("zz",)), "--split-key: no column zz"),
    ],
)  # fmt: skip
def test_wishes_that_cannot_be_are_refused_before_reading(tmp_path: Path, options: WriteOptions, words: str) -> None:
    table = pa.table(
        {
            "price": pa.array([], pa.decimal128(7, 2)),
            "label": pa.array([], pa.string()),
            "s": pa.array([], pa.int64()),
            "u": pa.array([], pa.uint64()),
        }
    )
    with pytest.raises(ConfigError, match=words):
        DatasetSink(str(tmp_path / "out"), "safetensors", options).check(schema_of(table), "create")


ODD_NAMES = tuple(
    dict.fromkeys(
        [*map(chr, range(1, 256)), " a ", "a/b", "../a", ".", "a.b", "😀", "\u202e", "é", "n" * 300, "select"]
    )
)


@pytest.mark.parametrize("fmt", ["safetensors", "parquet"])
def test_columns_may_have_any_name(tmp_path: Path, fmt: Format) -> None:
    table = pa.table([pa.array([i, None]) for i, _ in enumerate(ODD_NAMES)], names=list(ODD_NAMES))
    export(tmp_path / "out", table, 2, fmt=fmt)
    found = open_dataset(tmp_path / "out", verify="sha256")
    assert [column["name"] for column in found.columns] == list(ODD_NAMES)
    if fmt == "parquet":
        assert pq.read_table(tmp_path / "out").equals(table)
    else:
        tensors = found.tensors()
        assert [tensors[name].tolist() for name in ODD_NAMES] == [[i, 0] for i, _ in enumerate(ODD_NAMES)]
        assert all(tensors[f"{name}.valid"].tolist() == [True, False] for name in ODD_NAMES)


def test_a_column_without_a_name_is_refused_as_a_tensor(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "": [2]})
    with pytest.raises(ConfigError, match="column 2 has no name"):
        DatasetSink(str(tmp_path / "out"), "safetensors").check(schema_of(table), "create")
    export(tmp_path / "table", table, fmt="parquet")
    assert pq.read_table(tmp_path / "table").equals(table)


def test_the_name_of_the_header_is_no_tensors_name(tmp_path: Path) -> None:
    table = pa.table({"__metadata__": [1, 2]})
    with pytest.raises(ConfigError, match="no tensor can be named __metadata__"):
        DatasetSink(str(tmp_path / "out"), "safetensors").check(schema_of(table), "create")
    export(tmp_path / "packed", table, fmt="safetensors", options=WriteOptions(features=("__metadata__",)))
    assert load(tmp_path / "packed")["x"].tolist() == [[1], [2]]
    export(tmp_path / "table", table, fmt="parquet")
    open_dataset(tmp_path / "table", verify="sha256")


def test_names_that_would_collide_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "a.valid": pa.array([], pa.bool_())})
    with pytest.raises(ConfigError, match=r"two tensors would be named a\.valid"):
        DatasetSink(str(tmp_path / "out"), "safetensors").check(schema_of(table), "create")
    # In no file, but so readers name where the lists of `tags` begin.
    lists = pa.table({"tags": pa.array([], pa.list_(pa.int64())), "tags.offsets": pa.array([], pa.int64())})
    with pytest.raises(ConfigError, match=r"two tensors would be named tags\.offsets"):
        DatasetSink(str(tmp_path / "out"), "safetensors").check(schema_of(lists), "create")
    packed = pa.table({"x": pa.array([], pa.int64()), "f": pa.array([], pa.float32())})
    with pytest.raises(ConfigError, match="two tensors would be named x"):
        DatasetSink(str(tmp_path / "out"), "safetensors", WriteOptions(features=("f",), key=("x",))).check(
            schema_of(packed), "create"
        )


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.list_(pa.int32())), pa.month_day_nano_interval(), pa.struct([("a", pa.int32())])]
)
def test_types_that_are_no_tensors_are_refused_by_name(tmp_path: Path, kind: Any) -> None:
    table = pa.schema([("odd", kind)]).empty_table()
    with pytest.raises(ConfigError, match="column odd"):
        DatasetSink(str(tmp_path / "out"), "safetensors").check(schema_of(table), "create")


def test_files_are_cut_at_the_target_in_multiples_of_4096_rows(tmp_path: Path) -> None:
    rows = 50_001
    table = pa.table({"a": np.arange(rows), "t": [str(i) for i in range(rows)]})
    made = export(
        tmp_path / "out", table, fmt="safetensors", options=WriteOptions(partition_bytes=9 * 8192), batch_rows=777
    )
    files = open_dataset(tmp_path / "out", verify="sha256").manifest.files
    assert made.files == len(files) == 6
    assert [f.rows for f in files[:-1]] == [8192] * 5
    assert files[-1].rows == rows - 5 * 8192
    assert [f.row_start for f in files] == [8192 * i for i in range(6)]
    assert load(tmp_path / "out")["a"].tolist() == list(range(rows))
    assert texts(tmp_path / "out").column("t").to_pylist() == [str(i) for i in range(rows)]
    for file in files:
        assert file.data_start is not None
        assert file.data_start % 4096 == 0
        if file.rows % 4096 == 0:
            assert all(offset % 4096 == 0 for offset, _ in (file.tensors or {}).values())


def test_equal_rows_are_equal_bytes_whatever_run_and_batches(tmp_path: Path) -> None:
    table = everything()
    for run, batch_rows in (("r1", 1), ("r2", 3)):
        export(tmp_path / run, table, fmt="safetensors", run_id=run, batch_rows=batch_rows)
    one, other = (open_dataset(tmp_path / r).manifest for r in ("r1", "r2"))
    assert [f.sha256 for f in one.files] == [f.sha256 for f in other.files]
    assert one.document["content_sha256"] == other.document["content_sha256"]
    with safe_open(tmp_path / "r1" / one.files[0].path, "np") as file:
        assert list(file.metadata()) == ["cuetl"]


VALUES = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.floats()),
    "b": (pa.bool_(), st.booleans()),
    "t": (pa.string(), st.text(max_size=5)),
    "e": (pa.list_(pa.float32(), 3), st.lists(st.floats(width=32), min_size=3, max_size=3)),
    "r": (pa.list_(pa.int16()), st.lists(st.integers(-(2**15), 2**15 - 1), max_size=4)),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.data(), st.integers(0, 40), st.integers(1, 4), st.integers(1, 9))
def test_any_rows_come_back(tmp_path: Path, data: st.DataObject, rows: int, parts: int, batch_rows: int) -> None:
    columns = {}
    for name, (kind, values) in VALUES.items():
        drawn = data.draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, kind)
    table = pa.table(columns)
    out = tmp_path / hashlib.sha256(repr((rows, parts, table.to_pydict())).encode()).hexdigest()[:16]
    if out.exists():
        return
    export(out, table, parts, fmt="safetensors", batch_rows=batch_rows)
    got = load(out)
    for name in ("i", "f", "b", "e"):
        valid = got[f"{name}.valid"]
        assert valid.tolist() == [v is not None for v in table.column(name).to_pylist()]
        kept = table.column(name).drop_null()
        want = np.array(kept.to_pylist(), got[name].dtype).reshape(-1, *got[name].shape[1:])
        assert got[name][valid].tobytes() == want.tobytes() or np.array_equal(got[name][valid], want, equal_nan=True)
        assert not got[name][~valid].any()
    lists = table.column("r").to_pylist()
    assert got["r.lengths"].tolist() == [len(v or []) for v in lists]
    assert got["r.values"].tolist() == [i for v in lists for i in v or []]
    assert texts(out).column("t").to_pylist() == table.column("t").to_pylist()


def test_arrays_are_writable_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    table = pa.table({"a": [1.5, 2.5], "y": [1, 0]})
    export(tmp_path / "out", table, fmt="safetensors", options=WriteOptions(features=("a",), target=("y",)))
    dataset = open_dataset(tmp_path / "out")
    x, y = dataset.arrays()
    assert (x.tolist(), y.tolist() if y is not None else None) == ([[1.5], [2.5]], [1, 0])
    x[:] = 0
    assert dataset.split("all").arrays()[0].tolist() == [[1.5], [2.5]]
    assert len(dataset.split("all")) == 2
    dataset.verify("sha256")


def test_a_split_dataset_asks_which_split(tmp_path: Path) -> None:
    options = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("a",))
    export(tmp_path / "out", pa.table({"a": range(100)}), 3, fmt="safetensors", options=options)
    dataset = open_dataset(tmp_path / "out")
    with pytest.raises(ConfigError, match="splits train, val"):
        dataset.arrays()
    with pytest.raises(ConfigError, match="no matrix x"):
        dataset.split("train").arrays()
    with pytest.raises(ConfigError, match="no split trian"):
        dataset.split("trian")
    both = [dataset.split(n).tensors()["a"].tolist() for n in dataset.splits]
    assert sorted(both[0] + both[1]) == list(range(100))
    assert [len(b) for b in both] == [len(dataset.split(n)) for n in dataset.splits]
