"""Spool files: what was written comes back, in order, and partitions are whole files of even size."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, as in tests.tables
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import CutWish, Tally
from etl.core.errors import Cancelled, Damaged
from etl.core.partition import Partition, Snapshot, Whole
from etl.core.schema import Field, Schema
from etl.engine import spool
from etl.engine.spool import SpoolFile, groups, read_spool, write_spool
from etl.planning.cut import cut
from etl.run.spool import SpoolSource
from tests.datasets import TAKEN
from tests.tables import pa, tables

if TYPE_CHECKING:
    from typing import Any

AT = Snapshot("single", "spool", TAKEN)


def schema_of(table: Any) -> Schema:
    return Schema(tuple(Field(f.name, f.type, nullable=f.nullable) for f in table.schema))


def never() -> bool:
    return False


def words_of(column: pa.ChunkedArray[Any]) -> str:
    return str(pa.chunked_array([column.combine_chunks()]).to_string(window=1000))


@given(tables(rows=30), st.integers(1, 9), st.sampled_from([1, 200, 1 << 20]))
def test_rows_come_back_as_a_source_whatever_files_they_lie_in(table: Any, batch: int, file_bytes: int) -> None:
    schema = schema_of(table)
    batches = table.to_batches(batch)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "FILE_BYTES", file_bytes)
        files = write_spool(Path(folder), "p", schema, iter(batches), stopped=never)
        assert sum(f.rows for f in files) == table.num_rows
        source = SpoolSource("rows", tuple(files), schema)
        parts = cut(source.facts(AT, CutWish(), sample=False), CutWish(partitions=max(2, len(files)))).parts
        assert sum(source.count(AT, part) for part in parts) == table.num_rows
        wanted = schema.select(reversed(schema.names))
        for several in (parts, (Partition(0, Whole()),)):
            tally = Tally()
            read = [b for part in several for b in source.read(AT, part, schema=wanted, batch_bytes=1, tally=tally)]
            # Arrow's own words: NaN is itself there, and Python has no year 0.
            right = table.select(list(reversed(table.column_names)))
            assert [words_of(c) for c in pa.Table.from_batches(read).columns] == [words_of(c) for c in right.columns]
            assert tally.rows == table.num_rows


def test_lists_of_labels_that_differ_become_one(tmp_path: Path) -> None:
    kind = arrow.dictionary(arrow.int32(), arrow.string())
    batches = [
        arrow.record_batch([pa.array(words, kind)], schema=arrow.schema([("word", kind)]))
        for words in (["b", None, "a"], ["c", "b"])
    ]
    (file,) = write_spool(tmp_path, "p", Schema((Field("word", kind),)), batches, stopped=never)
    made = pa.Table.from_batches(list(read_spool(file))).column("word").cast("string").to_pylist()
    assert made == ["b", None, "a", "c", "b"]


def test_what_is_not_there_any_more_is_said_and_a_stop_is_heard(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    with pytest.raises(Cancelled):
        write_spool(tmp_path, "p", schema_of(table), table.to_batches(), stopped=lambda: True)
    (file,) = write_spool(tmp_path, "p", schema_of(table), table.to_batches(), stopped=never)
    Path(file.path).write_bytes(b"ARROW1 and no more")
    with pytest.raises(Damaged, match=r"rows between two passes, .*Run again"):
        list(read_spool(file))
    Path(file.path).unlink()
    with pytest.raises(Damaged, match="rows between two passes"):
        list(read_spool(file))


@given(
    st.lists(st.integers(0, 100 << 20), min_size=1, max_size=40), st.integers(1, 8), st.sampled_from(["pandas", "cudf"])
)
def test_partitions_are_neighbours_of_even_size(sizes: list[int], workers: int, backend: Any) -> None:
    files = [SpoolFile(str(i), 1, size) for i, size in enumerate(sizes)]
    found = groups(files, backend, workers)
    assert [path for group in found for path in group] == [f.path for f in files], "each once, in order"
    largest = spool.GROUP_BYTES_GPU if backend == "cudf" else spool.FILE_BYTES
    for group in found:
        size = sum(sizes[int(path)] for path in group)
        assert len(group) == 1 or size <= largest + max(sizes) // 2 + 1
