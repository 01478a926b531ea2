"""What every source promises, held against each connector's real store."""

from __future__ import annotations

import importlib
import math
import pickle
import pkgutil
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import connectors
from connectors.base import CutWish, Query, Tally
from connectors.registry import NOT_SCHEMES
from etl.core.errors import CastError, ConfigError, EtlError, StoreRejected
from etl.core.partition import KeyRange, NullKeys, Partition, Whole
from etl.core.schema import Schema
from etl.planning.cut import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connectors.base import Source
    from etl.core.partition import PartitionPlan, Snapshot
    from tests.harness.store import Row, Store

HARNESSES = sorted(p.stem for p in (Path(__file__).parent.parent / "harness").glob("*.py") if p.stem != "store")
BIG = 2**63 - 1
WHOLE = Partition(0, Whole())
ROWS: list[Row] = [(1, 5, "a"), (2, None, None), (3, -BIG - 1, ""), (4, BIG, "größe\n"), (5, 5, "a"), (6, 0, "'\"%:x")]
AS_EXAMPLES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module", params=HARNESSES)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = importlib.import_module(f"tests.harness.{request.param}").store(request)
    return found


def pieces(source: Source, at: Snapshot, part: Partition, names: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    schema = source.schema(at)
    chosen = schema.select(names) if names else schema
    tally = Tally()
    count = 0
    for batch in source.read(at, part, schema=chosen, batch_bytes=1 << 16, tally=tally):
        assert batch.schema.equals(chosen.to_arrow(), check_metadata=True)
        count += batch.num_rows
        yield batch
    assert tally.rows == count
    assert tally.counted in (None, count)


def rows_of(source: Source, at: Snapshot, part: Partition) -> list[Row]:
    return [
        (row["id"], row["k"], row["v"])
        for batch in pieces(source, at, part, ["id", "k", "v"])
        for row in batch.to_pylist()
    ]


def test_every_connector_has_a_harness() -> None:
    own = {m.name for m in pkgutil.iter_modules(connectors.__path__) if m.name not in NOT_SCHEMES}
    assert own <= set(HARNESSES)
    assert {"generic_mysql", "generic_sqlite"} <= set(HARNESSES)


def test_schema_is_the_batches_schema_with_rows_and_without(store: Store) -> None:
    for rows in (ROWS, []):
        store.fill(rows)
        source = store.source(Query(table="t"))
        with source.snapshot(attach_all=source.attach) as at:
            assert source.schema(at).names == ("id", "k", "v")
            assert sorted(rows_of(source, at, WHOLE)) == sorted(rows)
            assert source.count(at, WHOLE) == len(rows)


def test_columns_come_selected_and_ordered(store: Store) -> None:
    store.fill(ROWS)
    source = store.source(Query(table="t", columns=("v", "id")))
    with source.snapshot(attach_all=source.attach) as at:
        assert source.schema(at).names == ("v", "id")
        assert {tuple(b.schema.names) for b in pieces(source, at, WHOLE)} == {("v", "id")}
        assert {tuple(b.schema.names) for b in pieces(source, at, WHOLE, ["id"])} == {("id",)}


@AS_EXAMPLES
@given(
    keys=st.lists(
        st.one_of(st.none(), st.integers(-3, 3), st.integers(-BIG - 1, BIG), st.sampled_from([BIG, -BIG - 1])),
        max_size=60,
    ),
    wanted=st.integers(1, 8),
)
def test_parts_are_disjoint_and_complete(store: Store, keys: list[int | None], wanted: int) -> None:
    rows: list[Row] = [(i, key, None if key is None else str(key)) for i, key in enumerate(keys)]
    store.fill(rows)
    source = store.source(Query(table="t"))
    with source.snapshot(attach_all=source.attach) as at:
        plan = planned(source, at, store.cuts_by, wanted)
        read = [rows_of(source, at, part) for part in plan.parts]
        assert sorted(row for part in read for row in part) == sorted(rows)
        assert [source.count(at, part) for part in plan.parts] == [len(part) for part in read]
        assert source.count(at, WHOLE) == len(rows)
        assert all(source.explain(part, columns=["id"]) for part in plan.parts)


def planned(source: Source, at: Snapshot, column: str, wanted: int) -> PartitionPlan:
    wish = CutWish(column=column or None, partitions=wanted)
    return cut(source.facts(at, wish, sample=True), wish)


def test_an_even_key_gives_as_many_parts_as_asked_none_above_one_and_a_half_means(store: Store) -> None:
    store.fill([(i, i * i, None) for i in range(2000)])
    source = store.source(Query(table="t"))
    with source.snapshot(attach_all=source.attach) as at:
        plan = planned(source, at, store.cuts_by, 4)
        counts = [source.count(at, part) for part in plan.parts]
        assert sum(counts) == 2000
        if store.cuts_by:
            assert len(counts) == 4
            assert max(counts) <= 1.5 * 500
        else:
            assert len(counts) == 1
            assert plan.reason


def test_each_cut_that_is_promised_is_read(store: Store) -> None:
    store.fill(ROWS)
    source = store.source(Query(table="t"))
    right: dict[object, list[int]] = {
        Whole(): [1, 2, 3, 4, 5, 6],
        KeyRange(("k",), None, ("5",)): [3, 6],
        KeyRange(("k",), ("5",), None, nulls=True): [1, 2, 4, 5],
        KeyRange(("k",), ("0",), ("6",)): [1, 5, 6],
        NullKeys("k"): [2],
    }
    held = source.capabilities
    with source.snapshot(attach_all=source.attach) as at:
        assert at.kind in held.snapshots
        for number, (piece, ids) in enumerate(right.items()):
            if type(piece) in held.cuts:
                part = Partition(number, piece)  # type: ignore[arg-type]
                assert sorted(row[0] for row in rows_of(source, at, part)) == ids


def test_a_row_inserted_after_the_snapshot_is_not_seen(store: Store) -> None:
    store.fill(ROWS)
    source = store.source(Query(table="t"))
    with source.snapshot(attach_all=source.attach) as at:
        # Kind "single": the moment is the one part's own transaction, which starts when it is read.
        if store.insert is not None and at.kind not in ("none", "single"):
            store.insert((99, 7, "late"))
        assert sorted(rows_of(source, at, WHOLE)) == sorted(ROWS)


def test_a_reader_may_stop_early_and_another_read_follows(store: Store) -> None:
    store.fill([(i, i, "x" * 200) for i in range(5000)])
    source = store.source(Query(table="t"))
    with source.snapshot(attach_all=source.attach) as at:
        schema = source.schema(at)
        for _ in range(5):
            batches = source.read(at, WHOLE, schema=schema, batch_bytes=1 << 14, tally=Tally())
            assert 0 < next(iter(batches)).num_rows < 5000
            batches.close()  # type: ignore[attr-defined]
        assert len(rows_of(source, at, WHOLE)) == 5000


def test_a_source_travels_by_pickle(store: Store) -> None:
    store.fill(ROWS)
    source = store.source(Query(table="t"))
    with source.snapshot(attach_all=source.attach) as at:
        copy: Source = pickle.loads(pickle.dumps(source))
        assert sorted(rows_of(copy, pickle.loads(pickle.dumps(at)), WHOLE)) == sorted(ROWS)


def test_a_limit_gives_that_many_rows_in_one_part(store: Store) -> None:
    store.fill(ROWS)
    source = store.source(Query(table="t", limit=4))
    with source.snapshot(attach_all=source.attach) as at:
        plan = planned(source, at, store.cuts_by, 3)
        assert [p.slice for p in plan.parts] == [Whole()]
        assert len(rows_of(source, at, plan.parts[0])) == 4
        assert source.count(at, plan.parts[0]) == 4


def as_floats(source: Source) -> tuple[list[float | None], Tally]:
    """Column n of table d, read as float64 where its own type is a decimal."""
    tally = Tally()
    with source.snapshot(attach_all=source.attach) as at:
        schema = source.schema(at)
        assert pa.types.is_decimal(schema.to_arrow().field("n").type)
        asked = Schema(tuple(replace(f, type=pa.float64()) if f.name == "n" else f for f in schema))
        batches = list(source.read(at, WHOLE, schema=asked, batch_bytes=1 << 16, tally=tally))
    table = pa.Table.from_batches(batches, asked.to_arrow()).sort_by("id")
    assert tally.rows == table.num_rows
    return table.column("n").to_pylist(), tally


def exact(value: Decimal) -> bool:
    """Whether a float64 stands for a decimal of 10 fraction digits: rounded to these it gives the decimal again."""
    wide = Context(prec=60)
    return value.is_nan() or Decimal(float(value)).quantize(Decimal("1e-10"), ROUND_HALF_UP, wide) == value


DECIMALS = st.one_of(
    st.none(),
    st.just(Decimal("NaN")),
    st.sampled_from([Decimal(0), Decimal("0.1"), Decimal("-0.0000000001"), Decimal("99999999999999999999.9999999999")]),
    st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(n).scaleb(-10, Context(prec=40))),
    st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-4)),
)


def test_decimals_as_floats_are_promised_where_the_harness_can_show_them(store: Store) -> None:
    store.fill([])
    held = store.source(Query(table="t")).capabilities
    assert held.decimal_floats == (store.fill_decimals is not None)


@AS_EXAMPLES
@given(values=st.lists(DECIMALS, max_size=30))
def test_decimals_as_floats_are_rounded_once_and_counted_or_refused(store: Store, values: list[Decimal | None]) -> None:
    if store.fill_decimals is None:
        return  # as the test above holds, nothing is promised
    store.fill_decimals(values)
    inexact = [row for row, value in enumerate(values, 1) if value is not None and not exact(value)]
    right = [None if v is None else "nan" if v.is_nan() else float(v).hex() for v in values]
    found, tally = as_floats(store.source(Query(table="d", cast="round")))
    assert [None if v is None else "nan" if math.isnan(v) else v.hex() for v in found] == right
    assert tally.rounded == ({"n": len(inexact)} if inexact else {})
    if not inexact:
        assert len(as_floats(store.source(Query(table="d")))[0]) == len(values)
        return
    with pytest.raises(CastError) as caught:
        as_floats(store.source(Query(table="d")))
    assert f"column n, row id={inexact[0]}: " in str(caught.value)


def failure(store: Store, query: Query) -> EtlError:
    """What the first steps of a run raise."""
    try:
        source = store.source(query)
        with source.snapshot(attach_all=source.attach) as at:
            source.schema(at)
    except EtlError as error:
        return error
    pytest.fail(f"{query} was accepted")


def test_unknown_names_are_named(store: Store) -> None:
    store.fill(ROWS)
    missing = failure(store, Query(table="no_such_table"))
    assert isinstance(missing, StoreRejected)
    assert "no_such_table" in str(missing)
    error = failure(store, Query(table="t", columns=("id", "vv")))
    assert error.exit_code == 2
    assert "vv" in str(error)
    assert "v" in error.hint


def test_query_text_is_one_read_with_named_columns(store: Store) -> None:
    store.fill(ROWS)
    if not store.takes_sql:
        assert isinstance(failure(store, Query(sql="select 1 a")), ConfigError)
        return
    source = store.source(Query(sql="select id, k, v from t where id < :n -- few\n;", params={"n": 3}))
    with source.snapshot(attach_all=source.attach) as at:
        assert sorted(rows_of(source, at, WHOLE), key=lambda r: r[0]) == ROWS[:2]
        assert source.count(at, WHOLE) == 2
    for bad in ("select 1 a; select 2 b", "delete from t", "select 1 a, 2 a"):
        assert failure(store, Query(sql=bad)).exit_code == 2
    assert failure(store, Query(sql="select nope from t")).exit_code in (1, 2)
