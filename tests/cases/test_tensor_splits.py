"""Cases of splits and sources: rows stay on their side, equal rows are told, files are few and the same again."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import memory
from connectors.base import Endpoint, Query
from etl.core.errors import CastError, ConfigError, Damaged
from etl.planning.jobs import Job, Reading, Write
from etl.run import runner
from etl.tensors.dataset import open_dataset
from etl.tensors.leaks import KEEP, row_hashes, shared_rows
from etl.tensors.options import WriteOptions
from tests.cases.exporting import Exports
from tests.command import ROOT
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns

THREE = {"train": "0.8", "val": "0.1", "test": "0.1"}


@pytest.fixture
def exports(pgdb: PostgresDatabase, tmp_path: Path) -> Exports:
    return Exports(tmp_path, pgdb.url)


def sides(out: Path, table: Any, parts: int = 1, *, by: str = "k", **options: Any) -> dict[Any, str]:
    """Where each key is."""
    how: dict[str, Any] = {"split": THREE, "split_key": (by,), **options}
    export(out, table, parts, fmt="safetensors", options=WriteOptions(**how))
    dataset = open_dataset(out)
    return {k: name for name in dataset.splits for k in dataset.split(name).tensors()["k"].tolist()}


def test_t_34_no_row_changes_its_side(tmp_path: Path) -> None:
    keys = np.random.default_rng(5).permutation(10_000)
    first = sides(tmp_path / "a", pa.table({"k": keys}))
    assert len(first) == 10_000
    more = sides(tmp_path / "b", pa.table({"k": np.append(keys, 10_000)}))
    assert {k: more[k] for k in first} == first
    assert sides(tmp_path / "c", pa.table({"k": keys[::-1].copy()})) == first
    for parts in (1, 13):
        assert sides(tmp_path / f"p{parts}", pa.table({"k": keys}), parts) == first
    shares = [list(first.values()).count(n) / 10_000 for n in THREE]
    assert np.abs(np.array(shares) - [0.8, 0.1, 0.1]).max() < 0.02


def test_t_35_nor_when_others_are_removed_but_with_another_salt(tmp_path: Path) -> None:
    keys = np.arange(2000)
    first = sides(tmp_path / "a", pa.table({"k": keys}))
    kept = np.concatenate([keys[:500], keys[900:]])
    assert sides(tmp_path / "b", pa.table({"k": kept})) == {k: first[k] for k in kept.tolist()}
    assert sides(tmp_path / "c", pa.table({"k": keys}), split_salt="2026") != first


def test_t_36_equal_keys_are_on_one_side(tmp_path: Path) -> None:
    for number, column in enumerate(
        (
            pa.array([0.0, -0.0]),
            pa.array(["é", "e\u0301"]),
            pa.array([Decimal("42.00"), Decimal(42)], pa.decimal128(9, 4)),
        )
    ):
        table = pa.table({"key": column, "k": pa.array([0, 1])})
        found = sides(tmp_path / str(number), table, by="key", allow_float=True)
        assert found[0] == found[1]
    whole = sides(tmp_path / "i", pa.table({"k": pa.array([42])}))
    exact = sides(tmp_path / "d", pa.table({"key": pa.array([Decimal("42.00")]), "k": pa.array([42])}), by="key")
    assert whole == exact
    with pytest.raises(ConfigError, match="float cannot be a split key"):
        sides(tmp_path / "f", pa.table({"k": pa.array([0.0])}))


@pytest.mark.server("postgresql")
def test_the_twin_query_of_postgresql_gives_the_same_sides(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table twin(id int primary key, name text, day date, paid numeric(9,2))",
        "insert into twin select g, chr(200 + g % 60) || g, date '2020-01-01' + g, 5 + (g % 90) * 1.01"
        " from generate_series(1, 400) g",
    )
    bounds = [8 * 2**64 // 10, 9 * 2**64 // 10]
    for column, text in (
        ("id", "id::text"), ("name", "normalize(name, NFC)"), ("day", "to_char(day, 'YYYY-MM-DD')"),
        ("paid", "trim_scale(paid)::text"),
    ):  # fmt: skip
        message = f"'2026|' || octet_length({text}) || ':' || {text}"
        words = pgdb.sql(f"select id, encode(sha256(convert_to({message}, 'UTF8')), 'hex') from twin")
        want = {key: sum(int(digest[:16], 16) >= b for b in bounds) for key, digest in words}
        exports.done(
            *("--table", "twin", "--key", "id", "--features", "id", "--split", "train=0.8,val=0.1,test=0.1"),
            *("--split-key", column, "--split-salt", "2026"),
            to=column,
        )
        dataset = open_dataset(exports.home / column)
        found = {k: i for i, name in enumerate(dataset.splits) for k in dataset.split(name).tensors()["id"].tolist()}
        assert found == want


@pytest.mark.server("postgresql")
def test_t_37_a_second_export_reads_the_table_as_it_is_now(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t37(id int primary key, v int)", "insert into t37 values (1, 10), (2, 20)")
    ask = ("--sql", "select id, v from t37 order by id")
    assert exports.tensors(*ask)["v"].tolist() == [10, 20]
    pgdb.sql("insert into t37 values (3, 30)", "update t37 set v = 11 where id = 1")
    exports.done(*ask, "--mode", "replace")
    dataset = open_dataset(exports.home / "out")
    assert dataset.manifest.version == 2
    assert dataset.tensors()["v"].tolist() == [11, 20, 30]
    assert open_dataset(exports.home / "out", version=1).tensors()["v"].tolist() == [10, 20]


@pytest.mark.parametrize("split", [{}, THREE])
def test_t_38_many_small_parts_give_few_files(tmp_path: Path, split: dict[str, str]) -> None:
    rows = 200 * 10
    out = tmp_path / "out"
    options = WriteOptions(split=split, split_key=("k",) if split else ())
    export(out, pa.table({"k": np.arange(rows)}), 200, fmt="safetensors", options=options)
    dataset = open_dataset(out)
    assert len(dataset.manifest.files) == max(1, len(split))
    for name in dataset.splits:
        keys = dataset.split(name).tensors()["k"]
        assert (np.diff(keys) > 0).all()


def test_t_38_a_dataset_is_opened_by_one_file(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table({"k": np.arange(100)}), 5, fmt="safetensors")
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(tmp_path / "out" / "_manifest.json", alone)
    dataset = open_dataset(alone, verify="none")
    assert (len(dataset), dataset.splits) == (100, ("all",))


GREEDY = """
import resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from etl.core.partition import Pages, Partition
from etl.tensors.options import WriteOptions
from tests.datasets import begin, requires
rows = 8_000_000
table = pa.table({"k": np.arange(rows), "v": np.arange(rows) * 0.5})
options = WriteOptions(features=("v",), split={"a": "0.9", "b": "0.1"}, split_key=("k",), partition_bytes=8 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
session = begin(Path(sys.argv[1]), table, fmt="safetensors", options=options)
staged = [session.stage(Partition(0, Pages(0, 1)), 1, iter(table.combine_chunks().to_batches()))]
session.commit(staged, requires=requires(staged, "r1"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_t_39_one_large_batch_is_written_within_a_bound(tmp_path: Path) -> None:
    # 122 MiB in one batch; it is written in pieces of 16 MiB to files of 8 MiB.
    done = subprocess.run(
        [sys.executable, "-c", GREEDY, str(tmp_path / "out")], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(done.stdout) < 256 << 10
    assert len(open_dataset(tmp_path / "out")) == 8_000_000


def test_t_50_damage_is_found(tmp_path: Path) -> None:
    table = pa.table({"v": np.arange(5000)})
    for damage in ("flip", "short", "missing"):
        out = tmp_path / damage
        export(out, table, fmt="safetensors")
        (path,) = out.glob("*.safetensors")
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[-9] ^= 1
            path.write_bytes(data)
            open_dataset(out, verify="size")
        elif damage == "short":
            path.write_bytes(data[:-1])
        else:
            path.unlink()
        for level in ("size", "sha256"):
            if (damage, level) == ("flip", "size"):
                continue
            with pytest.raises(Damaged, match=path.name) as error:
                open_dataset(out, verify=level)
            assert error.value.exit_code == 4


@pytest.mark.server("postgresql")
def test_t_51_the_same_rows_are_the_same_bytes(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t51(id int primary key, v float8)",
        "insert into t51 select g, g / 7.0 from generate_series(1, 500) g",
    )
    seen, runs = set(), set()
    for to in ("a", "b"):
        done = exports.done(
            "--table", "t51", "--features", "id,v", "--split", "a=0.5,b=0.5", "--split-key", "id", to=to
        )
        runs.add(json.dumps(done))
        dataset = open_dataset(exports.home / to)
        files = tuple(
            hashlib.sha256((exports.home / to / f.path).read_bytes()).hexdigest() for f in dataset.manifest.files
        )
        assert files == tuple(f.sha256 for f in dataset.manifest.files)
        seen.add((files, dataset.manifest.document["content_sha256"]))
    assert len(seen) == 1
    assert len(runs) == 2


def at(*days: int) -> list[dt.datetime]:
    return [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=d) for d in days]


def by_time(out: Path, column: Any, ends: dict[str, str], **options: Any) -> dict[str, list[int]]:
    table = pa.table({"t": column, "k": pa.array(range(len(column)), pa.int64())})
    export(out, table, 2, fmt="safetensors", options=WriteOptions(split=ends, split_time="t", **options))
    dataset = open_dataset(out, verify="sha256")
    return {name: dataset.split(name).tensors()["k"].tolist() for name in dataset.splits}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_split_by_time_gives_ties_to_the_later_split(tmp_path: Path, unit: str) -> None:
    column = pa.array([t.replace(tzinfo=None) for t in at(0, 31, 30, 59, 58, 400)], pa.timestamp(unit)).cast(
        pa.timestamp(unit, "UTC")
    )
    ends = {"train": "2026-02-01T00:00:00Z", "val": "2026-03-01T01:00:00+01:00", "test": ""}
    assert by_time(tmp_path / "out", column, ends) == {"train": [0, 2], "val": [1, 4], "test": [3, 5]}
    split: Any = open_dataset(tmp_path / "out").manifest.document["split"]
    assert split["method"] == "time"
    assert split["ranges"]["val"] == ["1769904000000000", "1772323200000000"]
    assert [c["role"] for c in open_dataset(tmp_path / "out").columns] == ["time", "feature"]


def test_a_split_by_dates_and_by_numbers(tmp_path: Path) -> None:
    days = [d.date() for d in at(0, 31, 30)]
    ends = {"train": "2026-02-01", "test": ""}
    for number, kind in enumerate((pa.date32(), pa.date64())):
        assert by_time(tmp_path / str(number), pa.array(days, kind), ends) == {"train": [0, 2], "test": [1]}
    for name, kind in {"i": pa.int32(), "u": pa.uint64()}.items():
        found = by_time(tmp_path / name, pa.array([5, 9, 10], kind), {"train": "10", "test": ""})
        assert found == {"train": [0, 1], "test": [2]}
    found = by_time(tmp_path / "far", pa.array([5, 9], pa.int8()), {"a": "-1000", "b": "1000", "c": ""})
    assert found == {"a": [], "b": [0, 1], "c": []}


def test_a_late_row_of_the_training_split_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = 400
    table = pa.table(
        {"t": pa.array(at(*range(rows)), pa.timestamp("us", "UTC")), "k": pa.array(range(rows), pa.int64())}
    )
    plain = sides(tmp_path / "plain", table)
    cut = sides(tmp_path / "cut", table, 3, split_time="t", time_cut="2026-04-11T00:00:00Z")
    assert cut == {k: side for k, side in plain.items() if side != "train" or k < 100}
    document = open_dataset(tmp_path / "cut").manifest.document
    left_out = sum(side == "train" and k >= 100 for k, side in plain.items())
    assert document["rows"] == rows - left_out
    assert document["split"]["time_cut"] == {  # type: ignore[index]
        "column": "t", "unit": "us", "at": "1775865600000000", "split": "train",
    }  # fmt: skip


def test_a_run_counts_the_rows_that_a_cut_leaves_out(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array(range(50), pa.int64()), "k": pa.array(range(50), pa.int64())})
    options = WriteOptions(split={"train": "1"}, split_key=("k",), split_time="t", time_cut="30")
    memory.put("late", table)
    read = Reading(Endpoint("memory", "memory"), Query(table="late"))
    runner.run([Job(read, (Write(str(tmp_path / "out"), "safetensors", options),))], run_id="late", workers=1)
    memory.clear()
    source: Any = open_dataset(tmp_path / "out").manifest.document["source"]
    assert (source[0]["rows_read"], source[0]["rows_written"], source[0]["rows_dropped"]) == (50, 30, {"time_cut": 20})


@pytest.mark.parametrize(
    ("kind", "ends", "words"),
    [
        (pa.timestamp("us", "UTC"), {"a": "2026-01-01T00:00:00", "b": ""}, "no moment of column t.*00Z"),
        (pa.timestamp("us"), {"a": "2026-01-01T00:00:00Z", "b": ""}, "no moment of column t"),
        (pa.timestamp("us"), {"a": "soon", "b": ""}, "'soon' is no moment"),
        (pa.date32(), {"a": "2026-01-01T00:00:00", "b": ""}, "no moment of column t"),
        (pa.int64(), {"a": "1.5", "b": ""}, "no moment of column t"),
        (pa.int64(), {"a": "5", "b": "5", "c": ""}, "do not ascend"),
        (pa.int64(), {"a": "5", "b": "6"}, "the last split by t, b, ends at 6"),
        (pa.float64(), {"a": "5", "b": ""}, "needs a timestamp, a date or an integer"),
    ],
)
def test_a_split_by_time_that_cannot_be_is_refused(tmp_path: Path, kind: Any, ends: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        by_time(tmp_path / "out", pa.array([], kind), ends)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split_time": "t"}, "split_time needs split"),
        ({"split": THREE, "split_key": ("k",), "split_time": "t"}, "given together without time_cut"),
        ({"split": THREE, "split_key": ("k",), "time_cut": "2026-01-01"}, "time_cut needs split_key"),
        ({"split": {"a": "1"}, "split_key": ("k",), "split_time": "t", "time_cut": "2026-01-01"}, "split train"),
    ],
)
def test_wishes_of_time_that_do_not_fit_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WriteOptions(**options)


def test_a_row_without_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CastError, match="the time t is NULL in 1 of 1 rows looked at in partition 1"):
        by_time(tmp_path / "out", pa.array([1, None], pa.int64()), {"a": "5", "b": ""})


def leaked(out: Path) -> tuple[list[Any], Any]:
    document: Any = open_dataset(out).manifest.document
    (check,) = [c for c in document["checks"] if c["name"] == "feature rows in one split"]
    return [w for w in document["warnings"] if w["code"] == "equal_rows"], check


def test_equal_feature_rows_in_two_splits_are_told(tmp_path: Path) -> None:
    keys = np.arange(4000)
    own = {"split": THREE, "split_key": ("k",), "features": ("a", "b")}
    alone = pa.table({"k": keys, "a": keys.astype(np.float32), "b": keys % 3})
    export(tmp_path / "alone", alone, 3, fmt="safetensors", options=WriteOptions(**own))  # type: ignore[arg-type]
    warnings, check = leaked(tmp_path / "alone")
    assert warnings == []
    assert check["passed"] is True
    assert all(check["observed"]["rows"][name] > 0 for name in THREE)
    # Pairs of equal rows whose keys are far apart: about one in three lies on two sides.
    twice = pa.table({"k": keys, "a": (keys % 2000).astype(np.float32), "b": keys % 2000 % 3})
    export(tmp_path / "twice", twice, 5, fmt="safetensors", options=WriteOptions(**own))  # type: ignore[arg-type]
    warnings, check = leaked(tmp_path / "twice")
    assert sorted(w["count"] for w in warnings) == sorted(check["observed"]["shared"].values())
    assert any("of val that were looked at are also in train" in w["text"] for w in warnings)
    assert check["passed"] is False
    assert sum(check["observed"]["shared"].values()) > 50


@pytest.mark.parametrize("values", [3, 2000])
def test_features_of_few_values_are_equal_in_every_split_and_that_is_no_leak(tmp_path: Path, values: int) -> None:
    rng = np.random.default_rng(3)
    rows = 30_000
    table = pa.table({"k": np.arange(rows), "a": rng.integers(0, values, rows), "b": rng.random(rows) < 0.5})
    own = WriteOptions(split=THREE, split_key=("k",), features=("a", "b"), key=("k",), dtype="float64")
    export(tmp_path / "out", table, 4, fmt="safetensors", options=own)
    warnings, check = leaked(tmp_path / "out")
    assert warnings == []
    assert sum(check["observed"]["shared"].values()) > 0


def test_every_equal_row_is_found_where_the_sample_holds_all(tmp_path: Path) -> None:
    rows = 300
    words = [f"w{i % 150}" for i in range(rows)]
    table = pa.table(
        {"k": np.arange(rows), "word": words, "n": pa.array([None if i % 150 == 7 else i % 150 for i in range(rows)])}
    )
    export(
        tmp_path / "out", table, 4, fmt="safetensors", options=WriteOptions(split=THREE, split_key=("k",), key=("k",))
    )
    dataset = open_dataset(tmp_path / "out")
    groups = {name: {k % 150 for k in dataset.split(name).tensors()["k"].tolist()} for name in THREE}
    _, check = leaked(tmp_path / "out")
    assert check["observed"]["rows"] == {name: len(found) for name, found in groups.items()}
    want = {f"{a},{b}": len(groups[a] & groups[b]) for a, b in (("train", "val"), ("train", "test"), ("val", "test"))}
    assert {n: want[n] for n in check["observed"]["shared"]} == check["observed"]["shared"]
    assert sum(want.values()) == sum(check["observed"]["shared"].values())


VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int16(), st.integers(-3, 3)),
    (pa.float64(), st.sampled_from([0.0, 1.5, -2.0])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "b", "aé"])),
    (pa.decimal128(20, 2), st.integers(-2, 2).map(Decimal)),
    (pa.decimal256(50, 2), st.integers(-2, 2).map(Decimal)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 2), max_size=3)),
    (pa.list_(pa.float32(), 2), st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=2)),
    (pa.binary(5), st.sampled_from([b"aaaaa", b"aaaab"])),
    (pa.timestamp("us"), st.sampled_from([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)])),  # noqa: DTZ001 - without a zone
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=st.integers(1, 25))
def test_hashes_are_equal_exactly_where_rows_are(data: st.DataObject, rows: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(VALUES))), min_size=1, max_size=3, unique=True))
    values = [data.draw(st.lists(st.one_of(st.none(), VALUES[c][1]), min_size=rows, max_size=rows)) for c in chosen]
    names = [str(c) for c in chosen]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(v, VALUES[c][0]) for c, v in zip(chosen, values, strict=True)], names=names
    )
    start = data.draw(st.integers(0, rows - 1))
    hashes = row_hashes(batch, names)
    assert row_hashes(batch.slice(start), names).tolist() == hashes[start:].tolist()
    tuples = [repr(row) for row in zip(*values, strict=True)]
    assert len(set(zip(tuples, hashes.tolist(), strict=True))) == len(set(tuples)) == len(set(hashes.tolist()))


def test_zeros_and_nans_are_one_value_each() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    batch = pa.RecordBatch.from_arrays([pa.array(np.concatenate([[0.0, -0.0], nans]))], names=["f"])
    found = row_hashes(batch, ["f"]).tolist()
    assert found[0] == found[1]
    assert found[2] == found[3] != found[0]


def sketch(hashes: Sequence[int]) -> bytes:
    return np.sort(np.array(sorted(hashes)[:KEEP], np.uint64)).tobytes()


def test_a_sample_is_compared_only_as_far_as_every_part_kept_it() -> None:
    # The first part kept hashes up to 1023 of 3000; what another part has above is no evidence.
    parts = [{"a": sketch(range(3000)), "b": sketch([5, 2000])}, {"a": sketch([2000]), "b": sketch([7])}]
    looked, shared = shared_rows(parts)
    assert looked == {"a": KEEP, "b": 2}
    assert shared == {("a", "b"): 2}
    assert shared_rows([]) == ({}, {})


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.sampled_from(["", "a", "é"]))), max_size=40),
    parts=st.integers(1, 5),
    batch_rows=st.sampled_from([1, 7, 1000]),
    order=st.sampled_from(["source", "key", "shuffle"]),
    cut=st.sampled_from([None, "20"]),
)
def test_every_row_is_in_one_split_with_all_rows_of_its_key(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[tuple[int, str | None]],
    parts: int,
    batch_rows: int,
    order: Any,
    cut: str | None,
) -> None:
    rows = len(keys)
    table = pa.table(
        {
            "row": pa.array(range(rows), pa.int64()),
            "a": pa.array([k for k, _ in keys], pa.int64()),
            "b": pa.array([k for _, k in keys], pa.string()),
        }
    )
    options = WriteOptions(
        split={"train": "0.5", "val": "0.25", "test": "0.25"},
        split_key=("a", "b"),
        null_key="own_group",
        key=("row",),
        order=order,
        split_time="row" if cut else None,
        time_cut=cut,
    )
    out = tmp_path_factory.mktemp("s") / "out"
    export(out, table, parts, fmt="safetensors", options=options, batch_rows=batch_rows)
    dataset = open_dataset(out)
    found = {name: dataset.split(name).tensors()["row"].tolist() for name in dataset.splits}
    side_of = {row: name for name, several in found.items() for row in several}
    assert sum(map(len, found.values())) == len(side_of) == dataset.manifest.rows
    groups: dict[Any, set[str]] = {}
    for row, side in side_of.items():
        groups.setdefault(keys[row], set()).add(side)
    assert all(len(sides_) == 1 for sides_ in groups.values())
    left_out = set(range(rows)) - set(side_of)
    assert all(cut is not None and row >= 20 for row in left_out)
    assert not any(cut is not None and row >= 20 for row in found["train"])
    if order == "key":
        assert all(several == sorted(several) for several in found.values())
