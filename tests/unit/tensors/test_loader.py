"""Loaders: equal batches on all ranks for any files, every row as promised, the same order everywhere, any resume."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import export
from tests.loading import dataset, hold, ids, table

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.dataset import Dataset

SIZES = {
    "empty": (0,),
    "one": (1,),
    "two": (30, 10),
    "odd": (9, 10, 11, 12),
    "blocks": (4096, 5000, 1, 9000, 2000),
    "large": (20_000, 20_001),
}


class Sets(dict[str, "Dataset"]):
    """Datasets by name, shown in short."""

    def __repr__(self) -> str:
        return "the sets"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    home = tmp_path_factory.mktemp("sets")
    return Sets({name: dataset(home / name, sizes, lists=name != "large") for name, sizes in SIZES.items()})


def rows_of(name: str) -> int:
    return sum(SIZES[name])


@pytest.mark.parametrize("io", ["pread", "mmap"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("fmt", ["safetensors", "npy", "torch"])
def test_batches_hold_the_rows_of_their_ids(tmp_path: Path, fmt: Any, shuffle: bool, io: Any) -> None:  # noqa: FBT001 - a case
    opened = dataset(tmp_path / "out", (4096, 5000, 7), fmt=fmt, lists=True)
    loader = opened.loader(batch_size=1000, shuffle=shuffle, seed=1, io=io)
    batches = list(loader)
    for batch in batches:
        hold(batch)
        assert list(batch) == ["id", "half", "flag", "tags.values", "tags.offsets", "half.valid"]
    got = list(chain.from_iterable(ids(batches)))
    assert (got == list(range(9103))) == (not shuffle)
    assert sorted(got) == list(range(9103))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(SIZES)),
    world=st.integers(1, 9),
    batch=st.sampled_from([1, 2, 3, 7, 16, 64, 1000, 5000]),
    shuffle=st.booleans(),
    drop=st.booleans(),
    threads=st.integers(1, 4),
    ahead=st.integers(0, 3),
    window=st.sampled_from([None, 8192]),
)
def test_all_ranks_give_equally_many_batches_and_all_rows(
    sets: Sets,
    name: str,
    world: int,
    batch: int,
    shuffle: bool,  # noqa: FBT001 - as above
    drop: bool,  # noqa: FBT001
    threads: int,
    ahead: int,
    window: int | None,
) -> None:
    rows, batch = rows_of(name), max(batch, rows_of(name) // 100 + 1)
    loaders = [
        sets[name].loader(
            batch_size=batch, shuffle=shuffle, seed=5, drop_last=drop, rank=r, world_size=world, threads=threads,
            host_prefetch=ahead, window_rows=window,
        )
        for r in range(world)
    ]  # fmt: skip
    before = [len(one) for one in loaders]
    got = [list(one) for one in loaders]
    assert [len(g) for g in got] == before
    assert len(set(before)) == 1
    for ranks in zip(*got, strict=True):
        assert len({len(b["id"]) for b in ranks}) == 1
        for one in ranks:
            hold(one)
    for one in got:
        assert all(len(b["id"]) == batch for b in one[: -1 if not drop else None])
    every = sorted(chain.from_iterable(chain.from_iterable(ids(g) for g in got)))
    padding = loaders[0].padding
    assert len(every) == rows + padding
    if drop:
        assert before[0] == rows // world // batch
        assert len(set(every)) == len(every)
    else:
        assert set(every) == set(range(rows))
        assert 0 <= padding < world


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(SIZES)),
    world=st.integers(1, 9),
    batch=st.sampled_from([1, 4, 64, 5000]),
    shuffle=st.booleans(),
)
def test_evaluation_counts_every_row_exactly_once(
    sets: Sets,
    name: str,
    world: int,
    batch: int,
    shuffle: bool,  # noqa: FBT001 - a case
) -> None:
    batch = max(batch, rows_of(name) // 100 + 1)
    counted: list[int] = []
    lengths = set()
    for rank in range(world):
        loader = sets[name].loader(batch_size=batch, mode="eval", shuffle=shuffle, rank=rank, world_size=world)
        batches = list(loader)
        lengths.add(len(batches))
        for one in batches:
            assert one["valid_rows"].dtype == np.bool_
            assert one["valid_rows"].shape == one["id"].shape
            counted += one["id"][one["valid_rows"]].tolist()
    assert len(lengths) == 1
    assert (counted == list(range(rows_of(name)))) or shuffle
    assert sorted(counted) == list(range(rows_of(name)))


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_order_does_not_depend_on_threads_prefetch_files_or_format(tmp_path: Path, *, shuffle: bool) -> None:
    sets = [dataset(tmp_path / f, (12_000, 12_289), fmt=f) for f in ("safetensors", "npy", "torch")]
    sets.append(dataset(tmp_path / "one", (24_289,)))
    ways: list[dict[str, Any]] = [
        {},
        {"threads": 1, "host_prefetch": 0},
        {"threads": 7, "host_prefetch": 1, "io": "mmap"},
        {"columns": ["id"]},
        {"framework": "numpy", "device": "cpu"},
    ]
    found = [
        ids(one.loader(batch_size=700, shuffle=shuffle, seed=5, rank=1, world_size=3, window_rows=8192, **way))
        for one in sets
        for way in (ways if one is sets[0] else ways[:1])
    ]
    assert all(one == found[0] for one in found)


def test_t02_an_integer_stays_one_whatever_the_batch_holds(tmp_path: Path) -> None:
    """Batches with a NULL and without: the same names, dtypes and exact values."""
    big = 2**53 + 1
    rows = pa.table({"n": pa.array([None if i == 3 else big + i for i in range(20)], pa.int64())})
    export(tmp_path / "out", rows, fmt="safetensors")
    for shuffle in (False, True):
        for batch in open_dataset(tmp_path / "out").loader(batch_size=2, shuffle=shuffle):
            assert list(batch) == ["n", "n.valid"]
            assert (batch["n"].dtype, batch["n.valid"].dtype) == (np.int64, np.bool_)
            for value, there in zip(batch["n"].tolist(), batch["n.valid"].tolist(), strict=True):
                assert value >= big if there else value == 0


def test_bfloat16_is_named_in_every_batch(tmp_path: Path) -> None:
    options = WriteOptions(features=("f0",), dtype="bfloat16", cast="round", key=("id",))
    opened = dataset(tmp_path / "out", (600,), wide=1, options=options)
    for batch in opened.loader(batch_size=100, shuffle=True):
        assert batch.dtypes["x"] == "bfloat16"
        wide = batch.arrays["x"].astype(np.uint32) << 16
        want = batch["id"].astype(np.float32)
        assert np.abs(wide.view(np.float32)[:, 0] - want).max() <= 2  # 8 bits below 600


def test_t40_small_form_is_656_batches_on_each_rank(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (9000, 10_000, 11_000, 12_000))
    loaders = [opened.loader(batch_size=16, drop_last=True, rank=r, world_size=4) for r in range(4)]
    assert [len(one) for one in loaders] == [656] * 4
    assert [sum(1 for _ in one) for one in loaders] == [656] * 4


@pytest.mark.parametrize(("files", "world"), [(4, 3), (5, 4), (10, 8)])
def test_t40_no_rank_has_fewer_whatever_the_files(tmp_path: Path, files: int, world: int) -> None:
    opened = dataset(tmp_path / "out", [64] * files)
    counts = [len(list(opened.loader(batch_size=8, rank=r, world_size=world))) for r in range(world)]
    assert len(set(counts)) == 1


def test_t41_only_the_last_batch_is_short(sets: Sets, tmp_path: Path) -> None:
    sizes = [len(b["id"]) for b in sets["two"].loader(batch_size=8, shuffle=True)]
    assert sizes == [8, 8, 8, 8, 8]
    ten = dataset(tmp_path / "ten", (10,))
    for threads in (1, 4):
        assert [len(b["id"]) for b in ten.loader(batch_size=4, threads=threads)] == [4, 4, 2]
        assert [len(b["id"]) for b in ten.loader(batch_size=4, threads=threads, drop_last=True)] == [4, 4]


def test_t43_one_file_for_eight_ranks(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (8000,))
    got = [ids(opened.loader(batch_size=100, shuffle=True, rank=r, world_size=8)) for r in range(8)]
    assert [len(g) for g in got] == [10] * 8
    assert sorted(chain.from_iterable(chain.from_iterable(got))) == list(range(8000))


def test_t44_two_epochs_differ_and_come_again(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (4096,))
    loader = opened.loader(batch_size=512, shuffle=True, seed=9)
    first, second = (list(chain.from_iterable(ids(loader))) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(4096))
    assert first != second
    again = opened.loader(batch_size=512, shuffle=True, seed=9)
    assert list(chain.from_iterable(ids(again))) == first
    again.set_epoch(1)
    assert list(chain.from_iterable(ids(again))) == second
    other = opened.loader(batch_size=512, shuffle=True, seed=10)
    assert list(chain.from_iterable(ids(other))) != first


def test_t45_ranks_share_one_order_far_from_the_written_one(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (100_000,))
    got = [
        list(chain.from_iterable(ids(opened.loader(batch_size=1000, shuffle=True, seed=7, rank=r, world_size=4))))
        for r in range(4)
    ]
    every = list(chain.from_iterable(got))
    assert sorted(every) == list(range(100_000))
    steps = np.array(got).reshape(4, 25, 1000).transpose(1, 0, 2).reshape(-1)  # in the order of training
    correlation = np.corrcoef(steps, np.arange(100_000))[0, 1]
    assert abs(correlation) < 0.02


SCRIPT = """
import json, sys
from etl import open_dataset
if __name__ == "__main__":
    path, state = sys.argv[1], json.loads(sys.argv[2])
    split = open_dataset(path).split("all")
    found = []
    for rank in range(2):
        loader = split.loader(batch_size=4, shuffle=True, seed=7, rank=rank, world_size=2, threads=2)
        loader.load_state_dict(state)
        found.append([[b["id"].tolist() for b in loader] for _ in range(2)])
    print(json.dumps(found))
"""


def test_t46_another_process_goes_on_in_the_same_order(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (500, 12))
    loaders = [opened.loader(batch_size=4, shuffle=True, seed=7, rank=r, world_size=2) for r in range(2)]
    iterators = [iter(one) for one in loaders]
    for _ in range(61):
        for one in iterators:
            next(one)
    (state, other) = (one.state_dict() for one in loaders)
    assert state == other, "any rank's state does"
    for one in iterators:
        one.close()
    rest = [[ids(one) for _ in range(2)] for one in _resumed(opened, state)]
    assert [[len(e) for e in rank] for rank in rest] == [[3, 64]] * 2
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "out"), json.dumps(state)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == rest


def _resumed(opened: Dataset, state: dict[str, object]) -> list[Any]:
    loaders = [opened.loader(batch_size=4, shuffle=True, seed=7, rank=r, world_size=2) for r in range(2)]
    for one in loaders:
        one.load_state_dict(state)
    return loaders


def test_t46_at_every_step_the_rest_comes_exactly_once(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (100, 28))
    whole = ids(opened.loader(batch_size=2, shuffle=True, seed=3))
    second = opened.loader(batch_size=2, shuffle=True, seed=3)
    second.set_epoch(1)
    next_epoch = ids(second)
    assert len(whole) == 64
    for step in range(65):
        loader = opened.loader(batch_size=2, shuffle=True, seed=3)
        iterator = iter(loader)
        head = ids(next(iterator) for _ in range(step))
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["step"]) == ((0, step) if step < 64 else (1, 0))
        iterator.close()
        resumed = opened.loader(batch_size=2, shuffle=True, threads=1, host_prefetch=0)
        resumed.load_state_dict(state)
        assert head + ids(resumed) == (whole if step < 64 else whole + next_epoch)
        assert ids(resumed) == (next_epoch if step < 64 else ids(_epoch(opened, 2)))


def _epoch(opened: Dataset, epoch: int) -> Any:
    loader = opened.loader(batch_size=2, shuffle=True, seed=3)
    loader.set_epoch(epoch)
    return loader


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["one", "two", "odd", "blocks", "large"]),
    worlds=st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=2, max_size=4),
    stops=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    mode=st.sampled_from(["train", "eval"]),
    shuffle=st.booleans(),
    window=st.sampled_from([None, 8192]),
)
def test_t46_ranks_may_change_any_number_of_times_in_one_epoch(
    sets: Sets,
    name: str,
    worlds: list[int],
    stops: list[int],
    mode: Any,
    shuffle: bool,  # noqa: FBT001 - a case
    window: int | None,
) -> None:
    """One global batch, other ranks: the rest of the epoch once, in the same global batches."""
    rows = rows_of(name)
    size = -(-rows // 6 // 12) * 12 or 12
    state: dict[str, object] | None = None
    counted: list[int] = []
    done = False
    for number, world in enumerate(worlds):
        stop = stops[number] if number < len(worlds) - 1 else None
        states = []
        for rank in range(world):
            loader = sets[name].loader(
                batch_size=size // world, mode=mode, shuffle=shuffle, seed=2, rank=rank, world_size=world,
                window_rows=window,
            )  # fmt: skip
            if state is not None:
                loader.load_state_dict(state)
            iterator = iter(loader)
            for batch in islice(iterator, stop):
                hold(batch)
                counted += batch["id"][batch["valid_rows"] if mode == "eval" else slice(None)].tolist()
            iterator.close()
            states.append(loader.state_dict())
        assert all(s == states[0] for s in states)
        state = states[0]
        if state["epoch"] == 1:
            done = True
            break
    assert done
    assert set(counted) == set(range(rows))
    if mode == "eval":
        assert len(counted) == rows
    else:
        assert len(counted) < rows + 12 + sum(worlds)


def test_after_a_change_of_ranks_the_next_epoch_has_lanes_of_its_own(sets: Sets) -> None:
    four = sets["blocks"].loader(batch_size=100, shuffle=True, seed=2, rank=0, world_size=4)
    iterator = iter(four)
    next(iterator)
    iterator.close()
    one = sets["blocks"].loader(batch_size=400, shuffle=True, seed=2, rank=0, world_size=1)
    one.load_state_dict(four.state_dict())
    assert one.state_dict()["lanes"] == 4
    assert len(list(one)) == len(one) - 1
    assert one.state_dict()["lanes"] == 1
    fresh = sets["blocks"].loader(batch_size=400, shuffle=True, seed=2, rank=0, world_size=1)
    fresh.set_epoch(1)
    assert ids(one) == ids(fresh)


def test_an_epoch_that_was_left_is_not_taken_up_by_the_next_iteration(sets: Sets) -> None:
    loader = sets["two"].loader(batch_size=8, shuffle=True, seed=1)
    for _ in loader:
        break
    assert loader.state_dict()["step"] == 1
    second = ids(loader)
    assert len(second) == 5
    loader.set_epoch(1)
    assert ids(loader) == second


def test_set_epoch_of_the_loaded_epoch_keeps_the_place(sets: Sets) -> None:
    loader = sets["two"].loader(batch_size=8, shuffle=True, seed=1)
    iterator = iter(loader)
    head = ids(next(iterator) for _ in range(2))
    resumed = sets["two"].loader(batch_size=8, shuffle=True, seed=1)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    assert head + ids(resumed) == ids(sets["two"].loader(batch_size=8, shuffle=True, seed=1))
    resumed.set_epoch(0)
    assert len(ids(resumed)) == 5


def test_batches_made_ahead_do_not_count(sets: Sets) -> None:
    loader = sets["two"].loader(batch_size=1, host_prefetch=8)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["step"] == 1
    iterator.close()


def test_a_state_of_something_else_is_refused(sets: Sets) -> None:
    state = sets["two"].loader(batch_size=8, rank=0, world_size=1).state_dict()
    assert set(state) == {
        "v", "content_sha256", "split", "mode", "shuffle", "seed", "epoch", "step", "global_batch", "lanes",
        "drop_last",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="content_sha256"):
        sets["odd"].loader(batch_size=8).load_state_dict(state)
    with pytest.raises(ConfigError, match="global_batch 8, this loader of 16"):
        sets["two"].loader(batch_size=8, rank=0, world_size=2).load_state_dict(state)
    with pytest.raises(ConfigError, match="mode"):
        sets["two"].loader(batch_size=8, mode="eval").load_state_dict(state)
    for broken in ({}, {**state, "v": 2}, {**state, "step": -1}, {**state, "step": 5}, {**state, "lanes": 3},
                   {**state, "seed": "x"}, {**state, "shuffle": 1}, None, 7):  # fmt: skip
        loader = sets["two"].loader(batch_size=8)
        with pytest.raises(ConfigError, match="state"):
            loader.load_state_dict(broken)  # type: ignore[arg-type]  # some are none
        assert len(ids(loader)) == 5, "what was refused changed nothing"


def test_numpys_numbers_are_as_good_as_pythons(sets: Sets) -> None:
    """A state made of them is JSON, and the order is that of the same numbers."""
    own: dict[str, Any] = {"batch_size": 8, "seed": 7, "window_rows": 8192, "rank": 1, "world_size": 2, "threads": 2}
    numpys: dict[str, Any] = {name: np.int64(value) for name, value in own.items()}
    theirs = sets["two"].loader(shuffle=True, **numpys)
    ours = sets["two"].loader(shuffle=True, **own)
    assert ids(theirs) == ids(ours)
    fifth: Any = np.int32(5)
    theirs.set_epoch(fifth)
    ours.load_state_dict(json.loads(json.dumps(theirs.state_dict())))
    assert ids(theirs) == ids(ours)


def test_a_dataset_of_text_alone_has_no_tensors_and_says_so(tmp_path: Path) -> None:
    export(tmp_path / "out", pa.table({"t": ["a", "b"]}), fmt="safetensors")
    opened = open_dataset(tmp_path / "out", verify="sha256")
    for ask in (opened.loader, opened.split("all").torch_iterable):
        with pytest.raises(ConfigError, match=r"holds no tensors.*table"):
            ask(2)
    with pytest.raises(ConfigError, match=r"holds no tensors.*table"):
        opened.tensors()
    assert opened.table()["t"].to_pylist() == ["a", "b"]


def test_a_state_of_another_split_is_refused(tmp_path: Path) -> None:
    split = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("id",))
    export(tmp_path / "out", table(0, 100), fmt="safetensors", options=split)
    opened = open_dataset(tmp_path / "out")
    state = opened.split("train").loader(batch_size=8).state_dict()
    with pytest.raises(ConfigError, match="split 'train', this loader of 'val'"):
        opened.split("val").loader(batch_size=8).load_state_dict(state)


def test_the_window_asked_for_goes_with_the_state(sets: Sets) -> None:
    loader = sets["large"].loader(batch_size=1000, shuffle=True, window_rows=8192)
    iterator = iter(loader)
    head = ids(next(iterator) for _ in range(3))
    iterator.close()
    resumed = sets["large"].loader(batch_size=1000, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    whole = ids(sets["large"].loader(batch_size=1000, shuffle=True, window_rows=8192))
    assert head + ids(resumed) == whole
    assert whole != ids(sets["large"].loader(batch_size=1000, shuffle=True))


def test_a_batch_larger_than_the_windows(sets: Sets) -> None:
    (only, rest) = ids(sets["large"].loader(batch_size=30_000, shuffle=True, window_rows=8192, seed=4))
    assert len(only) == 30_000
    small = ids(sets["large"].loader(batch_size=1000, shuffle=True, window_rows=8192, seed=4))
    assert only + rest == list(chain.from_iterable(small))


def test_t11_an_empty_split_loads_and_gives_nothing(sets: Sets) -> None:
    for mode in ("train", "eval"):
        loader = sets["empty"].loader(batch_size=4, mode=mode)
        assert len(loader) == 0
        assert list(loader) == []
        assert loader.state_dict()["epoch"] == 1
    assert sets["empty"].tensors()["half"].shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"batch_size": 4, "seed": 1.5}, "seed is 1.5"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank is 2 in a world of 2"),
        ({"batch_size": 4, "rank": 0}, "rank and world_size belong together"),
        ({"batch_size": 4, "mode": "test"}, "unknown mode 'test'"),
        ({"batch_size": 4, "mode": "eval", "drop_last": True}, "drop_last leaves out rows"),
        ({"batch_size": 4, "as_": "list"}, "unknown as_ 'list'"),
        ({"batch_size": 4, "io": "gds"}, "unknown io 'gds'"),
        ({"batch_size": 4, "window_rows": 5000}, "window_rows is 5000"),
        ({"batch_size": 4, "window_rows": 4096}, "window_rows is 4096"),
        ({"batch_size": 4, "columns": ["hlaf"]}, "has no tensor hlaf.*half"),
        ({"batch_size": 4, "columns": "half"}, "columns is the text 'half'"),
        ({"batch_size": 4, "columns": []}, r"columns is \[\]"),
        ({"batch_size": 4, "columns": [3]}, r"columns is \[3\]"),
        ({"batch_size": 4, "threads": 0}, "threads is 0"),
        ({"batch_size": 4, "framework": "numpi"}, "unknown framework 'numpi'"),
    ],
)
def test_what_is_wrong_is_named(sets: Sets, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sets["two"].loader(**arguments)


def test_columns_bring_their_masks_along_and_tuples_are_exactly_what_was_asked(sets: Sets) -> None:
    (batch, *_) = sets["two"].loader(batch_size=8, columns=["half"])
    assert list(batch) == ["half", "half.valid"]
    (two, *_) = sets["two"].loader(batch_size=8, columns=["half", "id"], as_="tuple")
    assert [a.dtype.name for a in two] == ["float32", "int64"]
    (lists, *_) = sets["two"].loader(batch_size=8, columns=["tags"], shuffle=True)
    assert list(lists) == ["tags.values", "tags.offsets"]
    (judged, *_) = sets["two"].loader(batch_size=8, columns=["id"], as_="tuple", mode="eval")
    assert [a.dtype.name for a in judged] == ["int64", "bool"]


def test_a_packed_set_gives_x_then_y(tmp_path: Path) -> None:
    options = WriteOptions(features=("f0", "f1"), target=("flag",), key=("id",))
    opened = dataset(tmp_path / "out", (5000,), wide=2, options=options)
    for x, y, key in opened.loader(batch_size=600, shuffle=True, as_="tuple"):
        assert x.tolist() == [[i, i + 1] for i in key.tolist()]
        assert y.tolist() == [i % 3 == 0 for i in key.tolist()]


def test_parquet_has_no_batches_and_says_how_to_read_it(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (10,), fmt="parquet")
    with pytest.raises(ConfigError, match="holds parquet"):
        opened.loader(batch_size=4)


def test_a_loader_shows_itself_in_a_notebook(sets: Sets) -> None:
    shown = sets["two"].loader(batch_size=8, shuffle=True, seed=7)._repr_html_()
    assert "5 of 8 rows" in shown
    assert "shuffled, seed 7" in shown
