"""Parquet datasets: every carried type comes back with its NULLs; types never depend on values; groups are bounded."""

from __future__ import annotations

import uuid
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError
from etl.tensors.dataset import open_dataset
from etl.tensors.formats.parquet import choose_encodings
from etl.tensors.options import WriteOptions
from etl.tensors.sink import DatasetSink
from tests.datasets import export, schema_of

if TYPE_CHECKING:
    from pathlib import Path

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


MONTHS = pa.month_day_nano_interval()
SPAN = pa.MonthDayNano([1, 2, 11045000000000])
SPAN_DICT = {"months": 1, "days": 2, "nanoseconds": 11045000000000}

COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "int16": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "int64": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "uint32": (pa.uint32(), [0, None, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, None, 2**64 - 1]),
    "float16": (pa.float16(), [np.float16(1.5), None, np.float16(-0.0)]),
    "float32": (pa.float32(), [1.5, None, float("-inf")]),
    "float64": (pa.float64(), [0.1, None, -0.0]),
    "decimal9": (pa.decimal128(9, 3), [Decimal("-1.125"), None, Decimal("999999.999")]),
    "decimal18": (pa.decimal128(18, 2), [Decimal("-9999999999999999.99"), None, Decimal("0.01")]),
    "decimal38": (pa.decimal128(38, 18), [Decimal("-99999999999999999999.999999999999999999"), None, Decimal(1)]),
    "decimal76": (pa.decimal256(76, 38), [Decimal(10) ** 37, None, Decimal("-1E-38")]),
    "string": (pa.string(), ["é\x00x", None, ""]),
    "large": (pa.large_string(), ["a", None, ""]),
    "binary": (pa.binary(), [b"\x00\xff", None, b""]),
    "fixed": (pa.binary(3), [b"abc", None, b"\x00\x00\x00"]),
    "date": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "time": (pa.time64("us"), [timedelta(0), None, timedelta(0)]),
    "stamp": (pa.timestamp("us"), [-(2**62), None, 2**62]),
    "instant": (pa.timestamp("us", "UTC"), [-1, None, 0]),
    "duration": (pa.duration("us"), [timedelta(days=-1), None, timedelta(microseconds=1)]),
    "uuid": (pa.uuid(), [uuid.UUID(int=0), None, uuid.UUID(int=2**128 - 1)]),
    "enum": (pa.dictionary(pa.int32(), pa.string()), ["ok", None, "sad"]),
    "list": (pa.list_(pa.int64()), [[1, None], None, []]),
    "lists": (pa.list_(pa.list_(pa.string())), [[["a"], [], None], None, []]),
    "vector": (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [3.0, 4.0]]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": None, "b": "x"}, None, {"a": 1, "b": None}]),
    "map": (pa.map_(pa.string(), pa.string()), [[("k", None)], None, []]),
}


def column(kind: Any, values: list[Any]) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(
            kind, pa.array([None if v is None else v.bytes for v in values], kind.storage_type)
        )
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_time(kind):
        return pa.array([None if v is None else 86_399_999_999 for v in values], pa.int64()).view(kind)
    if pa.types.is_dictionary(kind):
        labels = pa.array(["sad", "ok", "never used"])
        codes = [None if v is None else ["sad", "ok"].index(v) for v in values]
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), labels)
    return pa.array(values, kind)


def everything(*, values: bool = True) -> Any:
    return pa.table({n: column(k, v if values else [None] * 3) for n, (k, v) in COLUMNS.items()})


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("values", [True, False], ids=["values", "all-null"])
def test_every_carried_type_comes_back_with_its_nulls(tmp_path: Path, parts: int, *, values: bool) -> None:
    table = everything(values=values)
    export(tmp_path / "out", table, parts)
    got = pq.read_table(tmp_path / "out")
    assert got.schema.types == table.schema.types
    for name in COLUMNS:
        have: Any = got.column(name)
        want: Any = table.column(name)
        assert have.null_count == (1 if values else 3), name
        if pa.types.is_dictionary(want.type):
            have, want = (pa.chunked_array([c.dictionary_decode() for c in decoded.chunks]) for decoded in (have, want))
        assert have.combine_chunks().equals(want.combine_chunks()), name


def test_no_rows_keep_the_whole_schema(tmp_path: Path) -> None:
    table = everything().slice(0, 0)
    assert export(tmp_path / "out", table, 2).files == 1
    got = pq.read_table(tmp_path / "out")
    assert (got.num_rows, got.schema.types) == (0, table.schema.types)
    open_dataset(tmp_path / "out", verify="sha256")


def test_intervals_become_three_integers_at_any_depth(tmp_path: Path) -> None:
    sliced = pa.array([None, SPAN, None, SPAN], MONTHS)[1:]
    nested = pa.array([[SPAN, None], None, []], pa.list_(MONTHS))
    fixed = pa.array([[SPAN, None], None, [SPAN, SPAN]], pa.list_(MONTHS, 2))
    inside = pa.array([{"i": SPAN, "n": 1}, None, {"i": None, "n": None}], pa.struct([("i", MONTHS), ("n", pa.int8())]))
    keyed = pa.array([[("k", SPAN), ("l", None)], None, []], pa.map_(pa.string(), MONTHS))
    table = pa.table({"i": sliced, "l": nested, "f": fixed, "s": inside, "m": keyed})
    export(tmp_path / "out", table, 2, batch_rows=2)
    got = pq.read_table(tmp_path / "out")
    assert got.column("i").to_pylist() == [SPAN_DICT, None, SPAN_DICT]
    assert got.column("l").to_pylist() == [[SPAN_DICT, None], None, []]
    assert got.column("f").to_pylist() == [[SPAN_DICT, None], None, [SPAN_DICT, SPAN_DICT]]
    assert got.column("s").to_pylist() == [{"i": SPAN_DICT, "n": 1}, None, {"i": None, "n": None}]
    assert got.column("m").to_pylist() == [[("k", SPAN_DICT), ("l", None)], None, []]


def test_other_readers_read_our_files(tmp_path: Path) -> None:
    rows = 20_000
    table = pa.table(
        {
            "key": np.arange(rows) * 3,
            "day": pa.array(np.arange(rows) // 100, pa.int32()).view(pa.date32()),
            "few": [f"v{i % 7}" for i in range(rows)],
            "price": pa.array([Decimal(i * 7919 % 100_003) / 100 for i in range(rows)], pa.decimal128(15, 2)),
            "noise": np.random.default_rng(1).random(rows),
            "id": column(pa.uuid(), [uuid.UUID(int=i) for i in range(rows)]),
        }
    )
    export(tmp_path / "out", table, 3)
    for pattern in ("*.parquet", "**/*.parquet"):
        found = duckdb.sql(
            f"select key, day, few, price, noise from '{tmp_path}/out/{pattern}' order by key"
        ).to_arrow_table()
        for name in found.column_names:
            assert found.column(name).to_pylist() == table.column(name).to_pylist(), name
    assert duckdb.sql(f"select typeof(id) from '{tmp_path}/out/*.parquet' limit 1").fetchall() == [("UUID",)]


def test_row_groups_and_files_end_at_their_limits(tmp_path: Path) -> None:
    rows = 10_000
    table = pa.table({"a": np.random.default_rng(2).integers(0, 2**62, rows)})
    options = WriteOptions(row_group_rows=1500, partition_bytes=30_000)
    export(tmp_path / "rows", table, options=options, batch_rows=700)
    files = open_dataset(tmp_path / "rows").manifest.files
    assert [f.rows for f in files] == [4500, 4500, 1000]
    metadata = pq.read_metadata(tmp_path / "rows" / files[0].path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1500] * 3
    export(tmp_path / "bytes", table, options=WriteOptions(row_group_bytes=8 * 2000), batch_rows=500)
    metadata = pq.read_metadata(tmp_path / "bytes" / open_dataset(tmp_path / "bytes").manifest.files[0].path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2000] * 5
    assert pq.read_table(tmp_path / "rows").equals(table)


def test_encodings_follow_what_pays() -> None:
    rows = 100_000
    random = np.random.default_rng(3)
    table = pa.table(
        {
            "sorted": np.cumsum(random.integers(0, 9, rows)),
            "few": random.integers(0, 1000, rows) * 10**12,
            "near": random.integers(0, 1000, rows),
            "many": random.integers(0, 2**60, rows),
            "floats": random.random(rows),
            "rounded": np.round(random.random(rows), 2),
            "word": pa.array(random.integers(0, 5, rows)).cast(pa.string()),
            "text": pa.array(random.integers(0, 2**60, rows)).cast(pa.string()),
            "alphabet": pa.array(np.arange(rows) + 10**9).cast(pa.string()),
            "null": pa.nulls(rows, pa.string()),
        }
    )
    found = choose_encodings(table)
    assert found.delta == ("sorted", "near")
    assert found.dictionary == ("few", "rounded", "word", "null")
    assert found.lengths == ("text", "alphabet")
    assert found.statistics == ("sorted", "few", "near", "many", "floats", "rounded", "alphabet", "null")


def test_equal_batches_are_equal_bytes(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        export(tmp_path / run, everything(), 2, run_id=run)
    one, other = (open_dataset(tmp_path / r).manifest for r in ("r1", "r2"))
    assert one.document["content_sha256"] == other.document["content_sha256"]
    assert [f.sha256 for f in one.files] == [f.sha256 for f in other.files]


def test_nulls_can_be_dropped_or_refused_and_tensor_options_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None], "k": [5, 6]})
    assert export(tmp_path / "d", table, options=WriteOptions(nulls="drop")).rows == 1
    with pytest.raises(CastError, match=r"column a is NULL in partition 0, row 2 \(k = 6\)"):
        export(tmp_path / "e", table, options=WriteOptions(nulls="error", key=("k",)))
    for options in (WriteOptions(dtype="float32"), WriteOptions(layout="columns"), WriteOptions(nulls="fill=0")):
        with pytest.raises(ConfigError, match="for tensors"):
            DatasetSink(str(tmp_path / "x"), "parquet", options).check(schema_of(table), "create")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.data(), st.integers(0, 60), st.integers(1, 4), st.integers(1, 20), st.integers(1, 30))
def test_any_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, parts: int, batch_rows: int, group: int
) -> None:
    kinds = {
        "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        "f": (pa.float64(), st.floats(allow_nan=False)),
        "t": (pa.string(), st.text(max_size=3)),
        "d": (pa.decimal128(18, 4), st.decimals(-(10**13), 10**13, places=4)),
        "l": (pa.list_(pa.int32()), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3)),
    }
    table = pa.table(
        {
            n: pa.array(data.draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows)), kind)
            for n, (kind, values) in kinds.items()
        }
    )
    out = tmp_path_factory.mktemp("any") / "out"
    export(out, table, parts, batch_rows=batch_rows, options=WriteOptions(row_group_rows=group, partition_bytes=2000))
    files = open_dataset(out, verify="sha256").manifest.files
    got = pa.concat_tables([pq.read_table(out / f.path) for f in files])
    assert got.to_pydict() == table.to_pydict()
