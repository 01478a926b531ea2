"""What a loader holds and for how long: threads, memory, files; and what it says when a file is not what it was."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from itertools import chain, islice
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.core.errors import ConfigError, Damaged, SchemaError
from etl.tensors.ahead import Ahead
from etl.tensors.batch import Batch
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from etl.tensors.shards import Shards
from tests.datasets import export
from tests.loading import dataset, hold, ids, table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from etl.tensors.dataset import Dataset


def until(true: Callable[[], bool], seconds: float = 20) -> bool:
    """Wait for something that other threads bring about."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.005)
    return true()


def ours() -> list[str]:
    """The loader's threads that are alive."""
    names = ("cuetl-loader", "cuetl-device", "cuetl-window")
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("two") / "out", (20_000, 20_001))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_letting_go_of_an_iterator_ends_its_threads(two: Dataset, device: str | None, *, shuffle: bool) -> None:
    iterator = iter(two.loader(batch_size=100, shuffle=shuffle, framework="numpy", device=device))
    next(iterator)
    assert "cuetl-loader" in ours()
    del iterator
    assert until(lambda: not ours())


SCRIPT = """
import sys
from etl import open_dataset
iterator = iter(open_dataset(sys.argv[1]).loader(batch_size=10, shuffle=True, framework="numpy", device="cpu"))
print(len(next(iterator)["id"]))
"""


_FORKED = """
import os, signal, sys
from etl.tensors.dataset import open_dataset

loader = open_dataset(sys.argv[1]).loader(100)
iterator = iter(loader)
next(iterator)
child = os.fork()
if not child:
    signal.alarm(60)
    try:
        next(iterator)
    except Exception as error:
        print(error)
    iterator.close()
    del iterator
    print(sum(len(batch["id"]) for batch in loader), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(sum(len(batch["id"]) for batch in iterator))
"""


def test_an_iterator_is_refused_in_a_fork_where_a_new_one_does(two: Dataset) -> None:
    """Its threads are in the process that began it: to wait for them would be to wait forever."""
    command = [sys.executable, "-c", _FORKED, str(two.path)]
    done = subprocess.run(command, check=True, timeout=90, capture_output=True, text=True)
    refused, whole, rest = done.stdout.splitlines()
    assert "begun in another process" in refused
    assert (int(whole), int(rest)) == (len(two), len(two) - 100)


def test_a_process_that_ends_with_an_epoch_begun_ends_quietly(two: Dataset) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(two.path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_closed_iterator_has_no_threads_and_gives_no_more(two: Dataset, device: str | None) -> None:
    iterator = iter(two.loader(batch_size=100, shuffle=True, framework="numpy", device=device))
    next(iterator)
    iterator.close()
    iterator.close()
    assert not ours()
    assert list(iterator) == []


def test_an_epoch_that_ended_leaves_no_threads(two: Dataset) -> None:
    loader = two.loader(batch_size=5000, shuffle=True)
    assert len(list(loader)) == len(loader)
    assert until(lambda: not ours())


def test_without_prefetch_the_caller_makes_the_batches(two: Dataset) -> None:
    iterator = iter(two.loader(batch_size=5000, host_prefetch=0))
    next(iterator)
    assert "cuetl-loader" not in ours()
    iterator.close()


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_is_never_written_again(two: Dataset, *, shuffle: bool) -> None:
    """Kept batches stay as they were; what a caller writes into one is seen nowhere else."""
    loader = two.loader(batch_size=3000, shuffle=shuffle, seed=1, window_rows=8192)
    kept = list(loader)
    for batch in kept:
        hold(batch)
        batch["id"][:] = -1
        assert batch["id"].flags.c_contiguous
        assert batch["id"].ctypes.data % 64 == 0
    loader.set_epoch(0)
    for batch in loader:
        hold(batch)
    for one in two.manifest.files:
        assert (two.path / one.path).stat().st_size == one.bytes
    two.verify("sha256")


@pytest.mark.parametrize("shuffle", [False, True])
def test_memory_comes_again_only_when_nobody_refers_to_it(two: Dataset, *, shuffle: bool) -> None:
    """A slice, a view of other dtype, a buffer: whatever is kept of a batch stays; what is let go of is used again."""
    random = Random(3)
    keep: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: a[5:9],
        lambda a: a.view(np.uint64)[::-1],
        lambda a: memoryview(a)[7:],
        lambda a: a.reshape(10, -1).T,
    ]
    kept: list[tuple[Any, list[Any]]] = []
    places = set()
    loader = two.loader(batch_size=100, shuffle=shuffle, seed=1, drop_last=True)
    for batch in loader:
        places.add(batch["id"].ctypes.data)
        if random.random() < 0.2:
            part = random.choice(keep)(batch["id"])
            kept.append((part, np.array(part).tolist()))
    assert len(kept) > 40
    for part, values in kept:
        assert np.array(part).tolist() == values
    assert len(places) < len(loader) - 200


@pytest.mark.parametrize("io", ["pread", "mmap"])
@pytest.mark.parametrize("rows", [60_000, 240_000])
def test_t39_memory_is_two_windows_and_the_batches_made_ahead(tmp_path: Path, rows: int, io: Any) -> None:
    """However long the file is: what NumPy allocates is counted exactly."""
    options = WriteOptions(features=tuple(f"f{n}" for n in range(16)))
    opened = dataset(tmp_path / "out", (rows,), wide=16, options=options)
    row, window, batch, ahead = 16 * 4, 8192, 1024, 3
    loader = opened.loader(
        batch_size=batch, shuffle=True, window_rows=window, host_prefetch=ahead, io=io, columns=["x"]
    )
    len(list(opened.loader(batch_size=10_000)))
    bound = 2 * window * row + (ahead + 2) * batch * row + 8 * window * 8 + 300_000
    tracemalloc.start()
    try:
        count = sum(len(b["x"]) for b in loader)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == rows
    assert peak < bound < rows * row


def test_t48_at_most_device_prefetch_and_one_batches_are_alive(two: Dataset) -> None:
    """NumPy stands in for the device: the count is made by the same thread."""
    loader = two.loader(batch_size=500, shuffle=True, framework="numpy", device="cpu", device_prefetch=2)
    most = 0
    for batch in islice(loader, 5):
        hold(batch)
        time.sleep(0.01)  # a slow consumer lets as many be made as may be
        most = max(most, sum(type(one) is Batch for one in gc.get_objects()))
    assert most == 3  # the one in hand and two ahead


class Thing:
    """Something whose life can be watched."""


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_more_are_alive_than_asked_for_whatever_the_consumer_does(depth: int) -> None:
    alive: weakref.WeakSet[Thing] = weakref.WeakSet()
    seen = []

    def make() -> Generator[Thing, None, None]:
        for _ in range(60):
            one = Thing()
            alive.add(one)
            seen.append(len(alive))
            yield one
            del one

    for number, _ in enumerate(Ahead(make(), depth=depth, most=depth + 1, parts=lambda one: [one], name="cuetl-test")):
        if number % 3 == 0:
            time.sleep(0.002)  # a slow consumer
    assert len(seen) == 60
    assert max(seen) == depth + 1


def test_a_consumer_that_keeps_everything_gets_everything() -> None:
    def make() -> Generator[Thing, None, None]:
        for _ in range(20):
            yield Thing()

    assert len(list(Ahead(make(), depth=2, most=3, parts=lambda one: [one], name="cuetl-test"))) == 20
    # Numbers have no weak references: then nothing is counted, and nothing waits.
    assert len(list(Ahead(make(), depth=2, most=3, parts=lambda _: [1, 2], name="cuetl-test"))) == 20


def test_an_error_comes_where_its_batch_would_have() -> None:
    closed = []

    def make() -> Generator[int, None, None]:
        try:
            yield 1
            yield 2
            raise ValueError("three")
        finally:
            closed.append(True)

    ahead = Ahead(make(), depth=5, name="cuetl-test")
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(ahead)
    assert list(ahead) == []
    assert closed == [True]


def shift(path: Path) -> None:
    """Write a file's last byte anew: the same size, another content, a later time."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))


HARM: dict[str, tuple[Callable[[Path], None], str]] = {
    "changed": (shift, "was changed while it was read"),
    "cut short": (lambda p: os.truncate(p, 5000), "was (changed|cut short) while it was read"),
    "missing": (lambda p: p.unlink(), "is missing"),
}


@pytest.mark.parametrize("io", ["pread", "mmap"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("harm", HARM)
def test_a_file_that_is_harmed_while_it_is_loaded_is_named(
    tmp_path: Path, harm: str, io: Any, *, shuffle: bool
) -> None:
    opened = dataset(tmp_path / "out", (30_000, 30_000))
    path = opened.manifest.files[1].path
    do, words = HARM[harm]
    loader = opened.loader(batch_size=100, shuffle=shuffle, io=io, window_rows=8192, host_prefetch=1)
    iterator = iter(loader)
    for _ in range(301 if not shuffle else 1):  # the file is open by now
        next(iterator)
    do(opened.path / path)
    with pytest.raises(Damaged, match=words) as caught:
        list(iterator)
    assert path in str(caught.value)
    assert caught.value.exit_code == 4
    assert list(iterator) == []
    assert until(lambda: not ours())


@pytest.mark.parametrize("harm", ["cut short", "missing"])
def test_a_file_that_is_not_there_is_named_before_its_rows(tmp_path: Path, harm: str) -> None:
    opened = dataset(tmp_path / "out", (100, 100))
    path = opened.manifest.files[1].path
    HARM[harm][0](opened.path / path) if harm == "missing" else os.truncate(opened.path / path, 4200)
    loader = opened.loader(batch_size=50)
    iterator = iter(loader)
    got = ids(next(iterator) for _ in range(2))
    with pytest.raises(Damaged, match=path):
        next(iterator)
    assert list(chain.from_iterable(got)) == list(range(100))
    assert loader.state_dict()["step"] == 2, "to go on after a repair"


def test_a_version_that_was_replaced_goes_on_from_where_its_files_went(tmp_path: Path) -> None:
    opened = dataset(tmp_path / "out", (9000, 9000))
    want = ids(opened.loader(batch_size=1000, shuffle=True))
    iterator = iter(opened.loader(batch_size=1000, shuffle=True, window_rows=None))
    first = next(iterator)["id"].tolist()
    export(tmp_path / "out", table(0, 5), fmt="safetensors", mode="replace", run_id="r2")
    assert [first, *ids(iterator)] == want
    assert ids(opened.loader(batch_size=1000, shuffle=True)) == want
    assert sum(len(b["id"]) for b in open_dataset(tmp_path / "out").loader(batch_size=4)) == 5


@pytest.mark.parametrize(("fmt", "kept"), [("safetensors", 2), ("npy", 12)])
def test_more_files_than_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: Any, kept: int) -> None:
    monkeypatch.setattr("etl.tensors.shards.MOST_OPEN", kept)
    opened = dataset(tmp_path / "out", [64] * 12, fmt=fmt, lists=True)
    loader = opened.loader(batch_size=40, threads=2)  # opens the first file, which the dataset keeps
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - its entries are all that is asked
    iterator = iter(loader)
    got = []
    for batch in iterator:
        hold(batch)
        got += batch["id"].tolist()
        assert len(os.listdir("/proc/self/fd")) <= before + kept + 6 + 6  # noqa: PTH208
    assert got == list(range(768))
    del iterator
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208


_FEW = """
import resource, sys
import numpy as np
from etl.tensors.dataset import open_dataset

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
opened = open_dataset(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
split = opened.split("all")
rows = np.arange(len(split))
for io in ("pread", "mmap"):
    for batch_size in (100, len(split)):
        batches = split.loader(batch_size, shuffle=True, io=io)
        assert sorted(i for b in batches for i in b["id"].tolist()) == rows.tolist()
assert (split.take(rows[::-1])["id"] == rows[::-1]).all()
assert (split.tensors()["id"] == rows).all()
"""


@pytest.mark.parametrize(("files", "wide"), [(20, 20), (1, 450)])
def test_a_window_of_more_files_than_a_process_may_open(tmp_path: Path, files: int, wide: int) -> None:
    """Each tensor is a file of its own here: nobody holds those of a window, nor those of a row."""
    opened = dataset(tmp_path / "out", [64] * files, fmt="npy", lists=True, wide=wide)
    subprocess.run([sys.executable, "-c", _FEW, str(opened.path)], check=True, timeout=120)


@pytest.mark.parametrize("fmt", ["safetensors", "npy", "torch"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_lengths_that_were_changed_are_damage_on_every_way_in(tmp_path: Path, fmt: Any, *, shuffle: bool) -> None:
    """Only the hash tells of changed bytes; lists that would lie outside of their items are told by any reading."""
    opened = dataset(tmp_path / "out", (50,), fmt=fmt, lists=True)
    (entry,) = opened.manifest.files
    offset, size = dict(entry.tensors or {})["tags.lengths"]
    path = opened.path / (entry.members["tags.lengths"].path if entry.members else entry.path)
    with path.open("r+b") as file:
        file.seek((entry.data_start or 0) + offset + size - 4)
        file.write(b"\xff\xff\xff\x7f")
    split = open_dataset(opened.path).split("all")
    ways: list[Callable[[], object]] = [
        lambda: split[49],
        lambda: split.take([49]),
        split.tensors,
        lambda: list(split.loader(8, shuffle=shuffle)),
    ]
    for way in ways:
        with pytest.raises(Damaged, match="items of tags, its lengths say"):
            way()


def test_t52_a_feature_order_or_fit_that_is_another_is_refused(tmp_path: Path) -> None:
    old = dataset(tmp_path / "out", (10,), wide=3, options=WriteOptions(features=("f0", "f1", "half")))
    wanted = str(old.manifest.document["feature_order_sha256"])
    old.require(feature_order_sha256=wanted)
    options = WriteOptions(features=("f1", "f0", "f2"))
    export(old.path, table(0, 10, wide=3), fmt="safetensors", mode="replace", run_id="r2", options=options)
    new = open_dataset(old.path)
    with pytest.raises(SchemaError, match="missing half; extra f2; moved f0, f1") as caught:
        new.require(feature_order_sha256=wanted)
    assert caught.value.exit_code == 4
    with pytest.raises(SchemaError, match="it has f1, f0, f2"):
        new.require(feature_order_sha256="0" * 64)
    with pytest.raises(SchemaError, match="no fit, not with the fit 0123456789abcdef"):
        new.require(fit_id="0123456789abcdef")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Shards]:
    home = tmp_path_factory.mktemp("shards")
    sizes = (4096, 3000, 1500, 1801)
    made = [dataset(home / f, sizes, fmt=f, lists=True) for f in ("safetensors", "npy", "torch")]
    return [Shards(one.path, one.manifest, "all", io) for one in made for io in ("pread", "mmap")]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 5), ends=st.tuples(st.integers(0, 10397), st.integers(0, 10397)))
def test_runs_are_the_rows(shards: list[Shards], number: int, ends: tuple[int, int]) -> None:
    start, stop = sorted(ends)
    found = shards[number].run(shards[number].names, start, stop)
    assert found["id"].tolist() == list(range(start, stop))
    hold(found)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 5), indices=st.lists(st.integers(0, 10396), max_size=60))
def test_takes_are_the_rows(shards: list[Shards], number: int, indices: list[int]) -> None:
    found = shards[number].take(shards[number].names, np.array(indices, np.int64))
    assert found["id"].tolist() == indices
    hold(found)


def test_what_is_outside_is_refused(shards: list[Shards]) -> None:
    for indices in ([-1], [10397]):
        with pytest.raises(IndexError):
            shards[0].take(["id"], np.array(indices))
    with pytest.raises(IndexError):
        shards[0].run(["id"], 9000, 10398)
    with pytest.raises(ConfigError, match="has no tensor"):
        shards[0].select(["nothing"])


def test_shards_pickle_without_their_files(shards: list[Shards]) -> None:
    shards[0].run(["id"], 0, 1)
    again = pickle.loads(pickle.dumps(shards[0]))
    assert again == shards[0]
    assert again.run(["id"], 4000, 4200)["id"].tolist() == list(range(4000, 4200))
