"""What ring 5 decides and says, on a machine without a GPU: its comparisons fail where they must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pytest

from etl.core.schema import Field, Schema
from etl.engine.backends import backend
from etl.engine.devices import Device, Survey
from etl.planning.function import reference
from etl.planning.steps import Steps
from tests.device import checks, run
from tests.device.compare import against_golden, differences, same
from tests.values.transforms import TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Callable

H200: Final = Device(0, "NVIDIA H200", "GPU-1", 139 << 30)
WHOLE: Final = Survey("570.1", (12, 8), (H200,), (("cudf-cu12", "26.10.2"), ("dask-cuda", "26.10.0")))
BARE: Final = Survey("570.1", (12, 8), (H200,))


class Turned:
    """The pandas backend with one fault: rows come out in reverse."""

    def __init__(self) -> None:
        self.plain = backend("pandas")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def to_arrow(self, frame: Any, schema: Schema) -> pa.Table:
        table = self.plain.to_arrow(frame, schema)
        return table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))


def test_the_goldens_are_met_by_the_backend_that_made_them() -> None:
    assert differences(backend("pandas")) == []


def test_every_ordinary_call_can_be_compared_and_a_wrong_value_is_found() -> None:
    assert checks.calls_that_differ(backend("pandas"), pd) == []

    class Doubled(Turned):
        def from_arrow(self, table: pa.Table, schema: Schema) -> Any:
            frame = self.plain.from_arrow(table, schema)
            frame["qty"] = frame["qty"] * 2
            return frame

    doubled: Any = Doubled()
    found = checks.calls_that_differ(doubled, pd)
    assert any(line.startswith("fillna: row ") for line in found)
    assert not any(line.startswith("contains: ") for line in found)


def test_rows_in_another_order_are_found_only_where_an_order_is_promised() -> None:
    by_name = {one.name: one for one in TRANSFORMS}
    turned: Any = Turned()
    assert "row 0, column k" in against_golden(turned, by_name["stable_sort"])
    assert against_golden(turned, by_name["melted"]) == ""


def test_a_backend_that_fails_is_a_difference_with_its_own_words() -> None:
    class Broken(Turned):
        def to_arrow(self, frame: Any, schema: Schema) -> pa.Table:
            del frame, schema
            raise ValueError("no kernel image")

    broken: Any = Broken()
    found = differences(broken)
    assert len(found) == len(TRANSFORMS)
    assert found[0] == "compare_text (differences 1, 4): rows: ValueError: no kernel image"


@pytest.mark.parametrize(
    ("got", "want", "close", "said"),
    [
        ([1.0], [1.0 + 1e-12], 1e-9, ""),
        ([1.0], [1.0 + 1e-12], 0.0, "row 0, column x: 1.0 for 1.000000000001"),
        ([float("nan")], [float("nan")], 0.0, ""),
        ([float("nan")], [None], 1e-9, "row 0, column x: nan for None"),
        ([0.0], [-0.0], 0.0, "row 0, column x: 0.0 for -0.0"),
        ([1.0], [1.0, 2.0], 0.0, "1 rows for 2"),
    ],
)
def test_values_are_compared_by_what_they_are(got: list[Any], want: list[Any], close: float, said: str) -> None:
    tables = [pa.table({"x": pa.array(one, pa.float64())}) for one in (got, want)]
    assert same(*tables, order=True, close=close) == said


def test_how_much_can_run() -> None:
    assert run.lacking(WHOLE, cupy=True) == ("whole", "")
    assert run.lacking(BARE, cupy=True) == ("lower half", "cudf is not installed (extra gpu-cu12)")
    assert run.lacking(BARE, cupy=False)[0] == "nothing"
    assert run.lacking(Survey(packages=WHOLE.packages), cupy=True) == ("nothing", "no NVIDIA driver was found")


def one_passes() -> str:
    return "3 GB/s"


def one_fails() -> str:
    raise AssertionError("2 rows for 3")


def told(
    found: Survey, *whole: Callable[[], str], cupy: bool = True, required: bool = False, only: str = ""
) -> tuple[int, list[str]]:
    """Exit code and lines."""
    lines: list[str] = []
    code = run.ring(found, whole, (one_passes,), lines.append, cupy=cupy, required=required, only=only)
    return code, lines


def test_without_a_gpu_one_line_says_so_and_it_is_a_failure_only_where_required() -> None:
    code, lines = told(Survey(), one_passes)
    assert (code, len(lines)) == (0, 1)
    assert lines[0].startswith("ring 5 (device): not run: cudf is not installed")
    assert told(Survey(), one_passes, required=True)[0] == 1


def test_the_last_line_is_the_readmes_row() -> None:
    code, lines = told(WHOLE, one_passes)
    assert code == 0
    assert lines[0].startswith("passed   one passes: 3 GB/s")
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert cells[0] == "5 device"
    assert cells[2] == "NVIDIA H200, 139 GiB, driver 570.1"
    assert "cudf 26.10.2" in cells[3]
    assert cells[4] == "1 passed, 0 failed"


def test_a_failed_check_or_none_ends_with_1() -> None:
    code, lines = told(WHOLE, one_passes, one_fails)
    assert code == 1
    assert "FAILED   one fails: AssertionError: 2 rows for 3" in lines
    assert told(WHOLE, one_passes, one_fails, only="passes")[0] == 0
    assert told(WHOLE, one_passes, only="no such check")[0] == 1


def test_the_lower_half_is_not_enough_where_a_gpu_is_required() -> None:
    code, lines = told(BARE, one_fails)
    assert code == 0
    assert lines[-2] == "only the lower half: cudf is not installed (extra gpu-cu12)"
    assert lines[-1].startswith("| 5 device (lower half) |")
    assert told(BARE, one_fails, required=True)[0] == 1


def test_checks_do_not_start_after_their_time() -> None:
    ticks = iter(range(0, 10_000, 100))
    said: list[str] = []
    wanted: list[Callable[[], str]] = [one_passes, one_passes, one_passes]
    outcome = run.carried_out(wanted, said.append, lambda: float(next(ticks)), 250.0)
    assert (len(outcome.passed), len(outcome.failed)) == (1, 2)
    assert said[-1] == "NOT RUN  one passes: the 250 s are over"


def at_most_30(frame: Any) -> Any:
    """A function whose memory runs out."""
    if len(frame) > 30:
        raise MemoryError("std::bad_alloc")
    return frame


def test_parts_are_halved_until_they_fit() -> None:
    schema = Schema((Field("x", pa.int64()),))
    steps = Steps(reference(at_most_30), "pandas", schema, schema)
    rows, sizes = checks.halved(pa.table({"x": range(100)}), steps)
    assert rows == 100
    assert sizes == [25] * 4
    with pytest.raises(AssertionError, match="a sixteenth"):
        checks.halved(pa.table({"x": range(1000)}), steps)
