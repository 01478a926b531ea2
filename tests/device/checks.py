"""The checks of ring 5: each raises where it fails and gives its figures in one line. Device libraries inside only."""

from __future__ import annotations

import gc
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from etl import testing
from etl.core.errors import DeviceOutOfMemory
from etl.core.partition import Partition, Whole
from etl.core.schema import Field, Schema
from etl.engine.backends import backend
from etl.engine.device import Ring, page_locked, settled
from etl.engine.devices import survey
from etl.planning.function import reference
from etl.planning.steps import Steps
from etl.run.frames import Made, through
from tests.contract import surface
from tests.contract.calls import ORDINARY, shop
from tests.device.compare import differences, same
from tests.values.transforms import TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

    from etl.engine.base import Backend

RATE_BYTES: Final = 256 << 20
REPEATS: Final = 5
LIMIT_BYTES: Final = 64 << 20
"""What the device may give while memory is made to run out."""


def pipelines_on_both_engines() -> str:
    """The functions of `pipelines/` through the whole path on both engines. It goes first: no context is made yet."""
    said = set()
    for name, _, tables in surface.functions():
        one = surface.defined(name)
        given = {source: surface.table(columns) for source, columns in zip(one.pipeline.sources, tables, strict=True)}
        said.add(testing.assert_backends_agree(one, sources=given))
    assert said == {"pandas against cuDF"}, said
    return ", ".join(said)


def values_against_the_goldens() -> str:
    """Ring 1's transforms on cuDF; each row of the table of differences is one of them."""
    _counting()
    warnings.filterwarnings("ignore", message="GPU-accelerated stable")
    found = differences(backend("cudf"))
    assert not found, "; ".join(found)
    return f"{len(TRANSFORMS)} transforms"


def ordinary_calls() -> str:
    """The calls of the contract ring, computed: cuDF's rows against those of pandas, as multisets."""
    import cudf

    found = calls_that_differ(backend("cudf"), cudf)
    assert not found, "; ".join(found)
    return f"{len(ORDINARY)} calls"


def calls_that_differ(on: Backend, module: Any) -> list[str]:
    """One line for each call whose rows on a backend are not those of pandas."""
    schema = Schema(tuple(Field(one.name, one.type) for one in shop().schema))
    found = []
    for what, operation in ORDINARY.items():
        try:
            mine = _rows(operation(on.from_arrow(shop(), schema), module))
        except Exception as error:  # noqa: BLE001 - whatever the engine says is the finding
            found.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
            continue
        theirs = _rows(operation(backend("pandas").from_arrow(shop(), schema), pd))
        differs = same(mine, theirs, order=False, close=1e-9)
        found += [f"{what}: {differs}"] if differs else []
    return found


def _rows(made: Any) -> pa.Table:
    """What a call gave, without its index, in types that both engines spell alike; nothing gives no columns."""
    if made is None:
        return pa.table({})
    frame = made.to_frame("value") if made.ndim == 1 else made.reset_index(drop=True)
    frame.columns = [str(name) for name in frame.columns]
    if type(frame).__module__.partition(".")[0] == "cudf":
        table: Any = frame.to_arrow(preserve_index=False)
    else:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    return pa.table([_plain(one) for one in table.columns], names=table.column_names)


def _plain(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([one.dictionary_decode() for one in column.chunks])
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):  # intervals
        return pa.chunked_array([one.storage for one in column.chunks])
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return column.cast(pa.timestamp("us"))
    return column.cast(pa.string()) if pa.types.is_large_string(kind) else column


def memory_runs_out_and_a_part_is_halved() -> str:
    """A real failure of RMM is recognised, what it held is free again, and smaller parts pass."""
    import rmm

    schema = Schema((Field("x", pa.float64()),))
    steps = Steps(reference(widened), "cudf", schema, Schema(tuple(Field(f"x{i}", pa.float64()) for i in range(8))))
    table = _table({"x": np.arange(LIMIT_BYTES // 16, dtype="f8")})
    before = rmm.mr.get_current_device_resource()
    gc.collect()
    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), LIMIT_BYTES)
    rmm.mr.set_current_device_resource(limited)
    try:
        rows, sizes = halved(table, steps)
        assert limited.get_allocated_bytes() == 0, "frames of a failed part are still held"
    finally:
        rmm.mr.set_current_device_resource(before)
    assert rows == table.num_rows
    assert max(sizes) < table.num_rows, "the whole part fitted: nothing was shown"
    return f"{table.num_rows} rows in parts of {max(sizes)}"


def widened(frame: Any) -> Any:
    """Eight columns of one: more than the device may give for a whole part."""
    return frame.assign(**{f"x{i}": frame["x"] * float(i) for i in range(8)})[[f"x{i}" for i in range(8)]]


def halved(table: pa.Table, steps: Steps) -> tuple[int, list[int]]:
    """Rows that came out, and the sizes of the parts that passed."""
    parts, rows, passed = [table], 0, []
    while parts:
        part = parts.pop()
        try:
            rows += sum(batch.num_rows for batch in through(_batches(part), steps, Partition(1, Whole()), Made()))
            passed.append(part.num_rows)
        except DeviceOutOfMemory:
            assert part.num_rows > table.num_rows // 16, "a sixteenth did not fit either"
            half = part.num_rows // 2
            parts += [part.slice(half), part.slice(0, half)]
    return rows, passed


def _batches(table: pa.Table) -> Generator[pa.RecordBatch, None, None]:
    yield from table.to_batches()


def rates_of_copies() -> str:
    """Host to device and back, from plain and from page-locked memory; GB/s of the best of five."""
    import cupy

    host = np.ones(RATE_BYTES, "u1")
    buffer: Any = page_locked(RATE_BYTES)
    locked = np.frombuffer(buffer, "u1", RATE_BYTES)
    locked[:] = 1
    device = cupy.empty(RATE_BYTES, "u1")
    figures = {
        "H2D": _rate(lambda: device.set(host)),
        "H2D page-locked": _rate(lambda: device.set(locked)),
        "D2H": _rate(lambda: device.get(out=host)),
        "D2H page-locked": _rate(lambda: device.get(out=locked)),
    }
    assert int(device.sum()) == RATE_BYTES
    return ", ".join(f"{name} {figure:.1f} GB/s" for name, figure in figures.items())


def rates_of_packing() -> str:
    """Arrow to a frame, and a frame's columns to one row-major array on the device."""
    rows, columns = 1 << 22, 8
    schema = Schema(tuple(Field(f"c{i}", pa.float32()) for i in range(columns)))
    table = _table({one.name: np.arange(rows, dtype="f4") + i for i, one in enumerate(schema)})
    frames = backend("cudf")
    frame = frames.from_arrow(table, schema)
    imported = _rate(lambda: frames.from_arrow(table, schema), table.nbytes)
    packed = frame.interleave_columns().to_cupy().reshape(rows, columns)
    assert packed.flags.c_contiguous
    assert float(packed[5, 3]) == 8.0
    figure = _rate(lambda: frame.interleave_columns().to_cupy(), table.nbytes)
    return f"import {imported:.1f} GB/s, interleave {figure:.1f} GB/s"


def _table(columns: Mapping[str, NDArray[Any]]) -> pa.Table:
    return pa.table([pa.array(values) for values in columns.values()], names=list(columns))


def _rate(step: Callable[[], object], size: int = RATE_BYTES) -> float:
    step()
    best = float("inf")
    for _ in range(REPEATS):
        settled()
        begun = time.perf_counter()
        step()
        settled()
        best = min(best, time.perf_counter() - begun)
    return size / best / 1e9


def tables_through_page_locked_memory() -> str:
    """What goes through a ring of page-locked buffers comes back from the device bit for bit, in one piece or many."""
    import cupy

    table = _table({"i": np.arange(1 << 20), "f": np.linspace(0, 1, 1 << 20)})
    pieces = 0
    for size in (table.nbytes * 2, table.nbytes // 3):
        back: dict[str, list[Any]] = {"i": [], "f": []}
        for piece in Ring(page_locked, size, 1).pieces(table):
            pieces += 1
            for name, parts in back.items():
                on_device = [cupy.asarray(chunk.to_numpy(zero_copy_only=True)) for chunk in piece.column(name).chunks]
                parts += [one.get() for one in on_device]
        for name, parts in back.items():
            assert np.array_equal(np.concatenate(parts), table.column(name).to_numpy())
    return f"{pieces} pieces"


def masks_packing_and_dlpack() -> str:
    """Arrow's bits as a mask, columns as one matrix, and the way to others by DLPack, on CuPy alone."""
    import cupy

    values = pa.array([1.5, None, 3.0, None, float("nan")], pa.float64())
    mask, floats = (np.asarray(memoryview(one)) for one in values.buffers() if one is not None)
    bits = cupy.asarray(mask.view("u1"))
    valid = cupy.unpackbits(bits, bitorder="little")[: len(values)].astype(bool)
    assert valid.get().tolist() == [True, False, True, False, True]
    data = cupy.where(valid, cupy.asarray(floats.view("f8")[: len(values)]), 0.0)
    packed = cupy.stack([data, data * 2], axis=1).astype("f4")
    assert packed.flags.c_contiguous
    assert repr(packed.get()[:, 0].tolist()) == "[1.5, 0.0, 3.0, 0.0, nan]"
    shared = cupy.from_dlpack(packed)
    assert shared.data.ptr == packed.data.ptr
    return "bits, where, stack, DLPack without a copy"


def cupys_memory_runs_out() -> str:
    """CuPy's own error is recognised as memory, and the next allocation works."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=LIMIT_BYTES)
    with cupy.cuda.using_allocator(pool.malloc):
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as raised:
            cupy.empty(2 * LIMIT_BYTES, "u1")
        assert backend("cudf").out_of_memory(raised.value)
        cupy.empty(1 << 20, "u1")
    return f"limit {LIMIT_BYTES >> 20} MiB"


def the_device_was_used() -> str:
    """RMM's peak since the values were checked, and what the driver shows: a green run on the CPU is no run."""
    import rmm.statistics

    statistics = rmm.statistics.get_statistics()
    assert statistics is not None, "nobody counted: the values were not checked before"
    assert statistics.peak_bytes > 0
    devices = survey().devices
    return f"peak {statistics.peak_bytes >> 20} MiB on {devices[0].name}"


def _counting() -> None:
    import rmm.statistics

    rmm.statistics.enable_statistics()


LOWER: Final = (
    tables_through_page_locked_memory,
    masks_packing_and_dlpack,
    cupys_memory_runs_out,
    rates_of_copies,
)
"""What a device and CuPy are enough for."""

WHOLE: Final = (
    pipelines_on_both_engines,
    values_against_the_goldens,
    ordinary_calls,
    the_device_was_used,
    memory_runs_out_and_a_part_is_halved,
    rates_of_packing,
    *LOWER,
)
