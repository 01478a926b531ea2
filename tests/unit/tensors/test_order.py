"""The loader's order: golden vectors, and the formula spelled out slowly in plain Python."""

from __future__ import annotations

import hashlib
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.tensors.order import Order, Steps, default_window, order_key, permutation

MASK = 2**64 - 1


def slow_permutation(rows: int, key: int) -> list[int]:
    """Section 9 of the design, in Python's integers."""
    outputs = []
    for i in range(1, rows + 1):
        z = (key + i * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        outputs.append(z ^ (z >> 31))
    return sorted(range(rows), key=outputs.__getitem__)


def slow_key(seed: int, epoch: int, what: str, index: int) -> int:
    text = f"cuetl-order-1|{seed}|{epoch}|{what}|{index}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)


def slow_order(order: Order, lane: int) -> list[int]:
    """A lane's rows."""
    rows, size = order.rows, order.block
    count = -(-rows // size)
    blocks = slow_permutation(count, slow_key(order.seed, order.epoch, "blocks", 0)) if order.shuffle else range(count)
    sequence = [row for b in blocks for row in range(b * size, min(rows, (b + 1) * size))]
    mine = sequence[lane * rows // order.lanes : (lane + 1) * rows // order.lanes]
    if not order.shuffle:
        return mine
    found = []
    for number, start in enumerate(range(0, len(mine), order.window)):
        window = mine[start : start + order.window]
        key = slow_key(order.seed, order.epoch, "rows", lane * 2**32 + number)
        found += [window[i] for i in slow_permutation(len(window), key)]
    return found


def test_golden_vectors() -> None:
    assert order_key(7, 0, "blocks", 0) == 0x95ACC1B5F715DEC8
    assert permutation(10, order_key(7, 0, "blocks", 0)).tolist() == [4, 7, 8, 1, 0, 6, 9, 3, 2, 5]
    assert permutation(10, order_key(7, 1, "blocks", 0)).tolist() == [4, 9, 0, 3, 1, 6, 2, 8, 7, 5]


def test_a_small_split_is_one_window_and_so_a_full_permutation() -> None:
    assert Order(10, seed=7).sequence(0, 0, 10).tolist() == [2, 7, 4, 0, 9, 1, 6, 5, 3, 8]


@given(st.integers(0, 300), st.integers(0, MASK))
def test_a_permutation_is_the_order_of_the_outputs(rows: int, key: int) -> None:
    assert permutation(rows, key).tolist() == slow_permutation(rows, key)


COLLIDES = 20
"""The outputs of this key have two among 2^20 that differ in their low 20 bits only."""


@pytest.mark.parametrize("key", [5, COLLIDES])
def test_outputs_that_differ_only_in_low_bits_are_in_order_too(key: int) -> None:
    rows = 1 << 20
    z = np.uint64(key) + np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    high = np.sort(z) >> np.uint64(20)
    assert bool((high[1:] == high[:-1]).any()) == (key == COLLIDES), "the key of the case is chosen for this"
    assert (permutation(rows, key) == np.argsort(z)).all()


ORDERS = st.builds(
    Order,
    st.integers(0, 400),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 5),
    lanes=st.integers(1, 9),
    shuffle=st.booleans(),
    window=st.sampled_from([16, 24, 64, 1024]),
    block=st.just(8),
)


@given(ORDERS)
def test_every_lane_is_as_the_formula_says_and_all_lanes_are_every_row_once(order: Order) -> None:
    lanes = [order.sequence(lane, 0, order.lane_rows(lane)).tolist() for lane in range(order.lanes)]
    assert lanes == [slow_order(order, lane) for lane in range(order.lanes)]
    assert sorted(chain.from_iterable(lanes)) == list(range(order.rows))


@given(ORDERS, st.data())
def test_any_place_is_found_without_what_came_before(order: Order, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, order.lanes - 1))
    rows = order.lane_rows(lane)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    assert order.sequence(lane, start, stop).tolist() == slow_order(order, lane)[start:stop]


@given(ORDERS, st.data())
def test_behind_its_end_a_lane_gives_its_first_row_and_an_empty_one_row_0(order: Order, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, order.lanes - 1))
    rows = order.lane_rows(lane)
    want = (slow_order(order, lane) or [0])[0]
    assert order.sequence(lane, rows, rows + 3).tolist() == [want] * 3


@given(ORDERS, st.data())
def test_a_rank_reads_whole_runs_of_blocks(order: Order, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, order.lanes - 1))
    number = data.draw(st.integers(0, 3))
    runs = order.window_runs(lane, number)
    assert sum(stop - start for start, stop in runs) == order.window_rows(lane, number)
    assert len(runs) <= -(-order.window_rows(lane, number) // order.block) + 1


DEALS = st.tuples(st.integers(0, 3000), st.integers(1, 9), st.integers(1, 12), st.booleans())


@given(DEALS)
def test_all_ranks_get_equally_many_batches_and_all_rows_once(deal: tuple[int, int, int, bool]) -> None:
    rows, world, batch, drop = deal
    order = Order(rows, lanes=world, shuffle=False)
    steps = Steps(order, batch * world, drop_last=drop)
    given_rows: list[int] = []
    for step in range(len(steps)):
        shares = [steps.pieces(step, rank, world) for rank in range(world)]
        sizes = {sum(p.stop - p.start for p in share) for share in shares}
        assert sizes == {steps.share(step, world)}, "the same rows on every rank"
        assert steps.share(step, world) == batch or (step == len(steps) - 1 and not drop)
        for share in shares:
            for piece in share:
                given_rows += order.sequence(
                    piece.lane, piece.start, min(piece.stop, order.lane_rows(piece.lane))
                ).tolist()
    missing = rows - len(given_rows)
    assert len(set(given_rows)) == len(given_rows)
    assert missing == max(0, -steps.padding(world)) if drop else missing == 0
    if drop:
        assert len(steps) == rows // world // batch
        assert missing < world * batch
    else:
        assert 0 <= steps.padding(world) < world


@given(st.integers(1, 3000), st.sampled_from([(8, w, v) for w in (1, 2, 4, 8) for v in (1, 2, 4, 8)]))
def test_other_ranks_share_the_same_steps(rows: int, worlds: tuple[int, int, int]) -> None:
    batch, before, after = worlds
    order = Order(rows, lanes=before)
    steps = Steps(order, batch)
    for step in range(len(steps)):
        whole = [p for rank in range(before) for p in steps.pieces(step, rank, before)]
        others = [p for rank in range(after) for p in steps.pieces(step, rank, after)]
        want = [(p.lane, at) for p in whole for at in range(p.start, p.stop)]
        have = [(p.lane, at) for p in others for at in range(p.start, p.stop)]
        assert want == have
        assert 0 <= steps.share(step, after) * after - len(have) < after


def test_forty_two_million_rows_on_four_ranks_are_640_batches_each() -> None:
    steps = Steps(Order(42_000_000, lanes=4), 4 * 16384, drop_last=True)
    assert len(steps) == 640


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(1, 1 << 18), (1024, 1 << 18), (1025, 258_048), (10_000, 24_576), (1 << 20, 8192), (0, 1 << 18)],
)
def test_a_window_is_whole_blocks_of_256_mib_at_most_and_two_at_least(row_bytes: int, rows: int) -> None:
    assert default_window(row_bytes) == rows
