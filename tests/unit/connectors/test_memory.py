"""Memory tables: ranges over any ordered type are disjoint and complete, also around NaN, NULL and the extremes."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import memory
from connectors.base import CutWish, Query, Tally
from connectors.memory import MemorySource
from etl.core.errors import ConfigError, StoreRejected
from etl.core.partition import Partition, Whole
from etl.planning.cut import cut

KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "decimal": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3, allow_nan=False)),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "date": (pa.date32(), st.dates()),
    "bool": (pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data(), wanted=st.integers(1, 6))
def test_each_row_is_in_exactly_one_part(name: str, data: st.DataObject, wanted: int) -> None:
    kind, values = KEYS[name]
    keys = data.draw(st.lists(st.one_of(st.none(), values), max_size=30))
    source = MemorySource(pa.table({"n": pa.array(range(len(keys)), pa.int64()), "k": pa.array(keys, kind)}))
    source = pickle.loads(pickle.dumps(source))
    with source.snapshot(attach_all=source.attach) as at:
        wish = CutWish("k", wanted)
        parts = cut(source.facts(at, wish, sample=True), wish).parts
        schema = source.schema(at)
        read = [
            n
            for part in parts
            for batch in source.read(at, part, schema=schema, batch_bytes=64, tally=Tally())
            for n in batch.column("n").to_pylist()
        ]
        assert sorted(map(int, map(str, read))) == list(range(len(keys)))
        assert sum(source.count(at, part) for part in parts) == len(keys)


def test_types_without_an_order_are_one_part() -> None:
    source = MemorySource(pa.table({"l": pa.array([[1], [2]])}))
    with source.snapshot(attach_all=source.attach) as at:
        assert cut(source.facts(at, CutWish("l", 2), sample=True), CutWish("l", 2)).reason == "no-key"
        batches = source.read(at, Partition(0, Whole()), schema=source.schema(at), batch_bytes=1 << 20, tally=Tally())
        assert [b.num_rows for b in batches] == [2]


def test_sql_overrides_and_unknown_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="SQL"):
        MemorySource(pa.table({"a": [1]}), Query(sql="select 1"))
    with pytest.raises(ConfigError, match="types"):
        MemorySource(pa.table({"a": [1]}), Query(table="t", types={"a": "string"}))
    with pytest.raises(StoreRejected, match="nothing"):
        memory.CONNECTOR.source(MemorySource(pa.table({"a": [1]})).endpoint, Query(table="nothing"))
