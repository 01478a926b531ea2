"""Tables on their way to a device: through buffers taken once, whole, in order, and never beyond a buffer's end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import EngineError
from etl.engine import device
from etl.engine.device import Ring

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 1 << 14


class Plain:
    """Plain memory in place of page-locked memory, and where it lies."""

    def __init__(self) -> None:
        self.taken: list[pa.Buffer] = []

    def __call__(self, size: int) -> pa.Buffer:
        self.taken.append(pa.allocate_buffer(size))
        return self.taken[-1]

    def holds(self, buffer: pa.Buffer) -> bool:
        return any(
            b.address <= buffer.address and buffer.address + buffer.size <= b.address + b.size for b in self.taken
        )


def buffers(table: pa.Table) -> Iterator[pa.Buffer]:
    for column in table.columns:
        for chunk in column.chunks:
            yield from (one for one in chunk.buffers() if one is not None and one.size)
            if isinstance(chunk, pa.DictionaryArray):
                yield from (one for one in chunk.dictionary.buffers() if one is not None and one.size)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "f": st.none() | st.floats(allow_nan=False),
            "t": st.none() | st.text(max_size=200),
            "l": st.none() | st.lists(st.integers(0, 9), max_size=30),
        }
    ),
    max_size=300,
)
TYPES: dict[str, pa.DataType] = {"i": pa.int64(), "f": pa.float64(), "t": pa.string(), "l": pa.list_(pa.int64())}
SCHEMA = pa.schema([pa.field(name, kind) for name, kind in TYPES.items()])


@given(rows, st.integers(1, 50))
def test_pieces_are_the_table_in_order_and_lie_inside_the_buffers(made: list[dict[str, object]], chunk: int) -> None:
    table = pa.Table.from_pylist(made, SCHEMA)
    table = pa.Table.from_batches(table.to_batches(max_chunksize=chunk), SCHEMA)
    memory = Plain()
    ring = Ring(memory, SIZE, 1)
    got = []
    for piece in ring.pieces(table):
        assert all(memory.holds(one) for one in buffers(piece))
        got += piece.to_pylist()
    assert got == made
    assert len(memory.taken) == 1
    assert sum(one.num_rows for one in ring.pieces(table)) == len(made), "the buffer came back"


def test_what_fits_is_one_piece_with_its_dictionary() -> None:
    table = pa.table({"d": pa.array(["a", "b", None, "a"]).dictionary_encode()})
    memory = Plain()
    (piece,) = Ring(memory, SIZE, 1).pieces(table)
    assert piece.equals(table)
    found = list(buffers(piece))
    assert found
    assert all(memory.holds(one) for one in found)


def test_a_row_larger_than_a_buffer_is_refused_by_its_size_and_the_buffer_comes_back() -> None:
    ring = Ring(Plain(), SIZE, 1)
    with pytest.raises(EngineError, match=r"a row of \d+ bytes is larger than a buffer of 16384 bytes"):
        list(ring.pieces(pa.table({"t": ["short", "x" * SIZE]})))
    assert next(ring.pieces(pa.table({"t": ["short"]}))).num_rows == 1


def test_one_thread_at_a_time_has_the_device_and_waiting_is_measured() -> None:
    inside, most, lock = 0, 0, threading.Lock()
    waits: list[float] = []
    gate = threading.Event()

    def work() -> None:
        nonlocal inside, most
        with device.alone("cudf") as waited:
            with lock:
                waits.append(waited)
                inside += 1
                most = max(most, inside)
            gate.wait(0.05)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == 1
    assert sum(waits) > 0.05
    with device.alone("pandas") as waited:
        assert waited == 0


def test_an_error_in_the_device_section_lets_the_next_thread_in() -> None:
    with pytest.raises(ValueError, match="first"), device.alone("cudf"):
        raise ValueError("first")
    with device.alone("cudf"):
        pass


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("cudaErrorLaunchFailure: unspecified launch failure", True),
        ("std::bad_alloc: out_of_memory", False),
        ("column price: 1e9 does not fit int8", False),
    ],
)
def test_an_error_after_which_the_process_is_lost_is_told_from_the_others(text: str, *, lost: bool) -> None:
    error = EngineError("a part failed")
    error.__cause__ = RuntimeError(text)
    assert device.gave_up(error) is lost
