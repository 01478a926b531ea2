"""The compiled loops give what formula and NumPy give, whatever the rows, the key and what the memory held before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.earned import Earned
from etl.core.errors import EtlError
from etl.tensors import shuffling
from etl.tensors.dataset import open_dataset
from etl.tensors.order import permutation
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etl.core.earned import Calls


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The loops are at work in this process."""
    assert shuffling.loaded(compiling=True) is not None
    assert shuffling.earned.calls(shuffling.MANY) is not None


@given(st.integers(1 << 10, 70_000), st.integers(0, (1 << 64) - 1), st.integers(0, 5000))
def test_the_compiled_permutation_is_that_of_the_formula(rows: int, key: int, more: int) -> None:
    room = shuffling.room_for(rows + more)
    room[:] = key & 0xFFFF  # what another window left there
    assert (shuffling.permuted(rows, key, room) == permutation(rows, key)).all()


@pytest.mark.parametrize("rows", [1, 2, 1023, 1024, 1025, 1 << 18, (1 << 20) + 1])
def test_sizes_at_the_edges(rows: int) -> None:
    assert (shuffling.permuted(rows, 7, shuffling.room_for(rows)) == permutation(rows, 7)).all()


def test_outputs_that_share_their_high_bits_are_told_apart_by_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is known for which 2^18 outputs share 46 bits: the answer of the loops is given, as they would give it."""
    calls = shuffling.earned.calls(0)
    assert calls is not None

    def alike(*given: int) -> int:
        calls["permuted"](*given)
        return 1

    monkeypatch.setattr(shuffling, "earned", Earned(lambda compiling: {"permuted": alike}, 0, 1))  # noqa: ARG005
    assert (shuffling.permuted(5000, 3, shuffling.room_for(5000)) == permutation(5000, 3)).all()


@given(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 17, 20]), st.integers(0, 300), st.data())
def test_rows_are_those_that_numpy_takes(columns: int, count: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 500))
    source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    places = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=count, max_size=count)), np.int64)
    out = np.full((count + 2, columns), -1, np.float32)
    shuffling.take(source, places, out[1:-1])
    assert (out[1:-1] == source[places]).all()
    assert (out[[0, -1]] == -1).all(), "rows beside those asked for were written"


def without(reason: type[Exception]) -> Callable[..., Calls | None]:
    """What cannot load the loops."""

    def load(*, compiling: bool) -> Calls | None:
        raise reason(compiling)

    return load


@pytest.mark.parametrize("reason", [ImportError, OSError, RuntimeError, EtlError])
def test_without_a_compiler_the_order_is_the_same(reason: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "earned", Earned(without(reason), 0, 1 << 40))
    assert (shuffling.permuted(3000, 9, shuffling.room_for(3000)) == permutation(3000, 9)).all()


def test_loops_are_loaded_once_and_compiled_only_for_very_much_work() -> None:
    asked: list[bool] = []

    def load(*, compiling: bool) -> Calls | None:
        asked.append(compiling)
        return {} if compiling else None

    earned = Earned(load, 10, 100)
    assert [earned.calls(n) for n in (9, 1, 50, 39, 1, 1000)] == [None, None, None, None, {}, {}]
    assert asked == [False, True]


def test_epochs_share_their_memory_and_batches_do_not(tmp_path: Path) -> None:
    rows = 3 * 8192
    export(tmp_path / "d", pa.table({"v": pa.array(np.arange(rows, dtype=np.float32))}), fmt="safetensors")
    loader = open_dataset(tmp_path / "d").loader(1000, shuffle=True, seed=3, window_rows=8192)
    kept = [np.asarray(batch["v"]) for batch in loader]
    copies = [one.copy() for one in kept]
    second = np.concatenate([np.asarray(batch["v"]) for batch in loader])
    assert sorted(second.tolist()) == list(range(rows))
    assert all((one == copy).all() for one, copy in zip(kept, copies, strict=True))
    iterators = [iter(loader), iter(loader)]  # of one epoch, at once: each has a memory of its own
    found = [[np.asarray(batch["v"]) for batch in both] for both in zip(*iterators, strict=True)]
    assert all((one == other).all() for one, other in found)
    assert sorted(np.concatenate([one for one, _ in found]).tolist()) == list(range(rows))
