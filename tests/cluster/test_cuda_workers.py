"""Workers of `dask cuda worker`, started as documented, under somebody else's scheduler. No device is touched."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from connectors.base import CutWish
from connectors.memory import MemorySource
from etl.planning.function import FunctionRef, sha256_of
from etl.planning.jobs import Job, Reading, Write
from etl.planning.steps import Steps
from etl.run import runner
from etl.run.naming import new_run_id
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.cluster.conftest import DISABLED
from tests.command import cuetl
from tests.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.gpuwheels

WORKER = (
    *("--nthreads", "4", "--rmm-async", "--rmm-maximum-pool-size", "0.9", "--set-rmm-allocator-for-libs", "cupy"),
    *("--enable-cudf-spill", "--cudf-spill-stats", "1", "--pre-import", "cudf", "--death-timeout", "60"),
)
HERE = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")
ROWS = 1000
TABLE = pa.table({"id": pa.array(range(ROWS)), "price": pa.array([None if i % 7 == 0 else i / 4 for i in range(ROWS)])})


@contextlib.contextmanager
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A scheduler and two GPU workers; its address."""
    tool = str(Path(sys.executable).with_name("dask"))
    address = f"tcp://127.0.0.1:{free_port()}"
    place = {**os.environ, **DISABLED, "CUDA_VISIBLE_DEVICES": "0,1", "RAPIDS_NO_INITIALIZE": "1"}
    resources = ("--resources", "GPU=1 DRIVER=1", "--device-memory-limit", "1 GB")
    folder = ("--local-directory", str(tmp_path / "dask"))
    with contextlib.ExitStack() as stack, (tmp_path / "log").open("wb") as log:
        for words in (
            ("scheduler", "--port", address.rpartition(":")[2], *HERE),
            ("cuda", "worker", address, *WORKER, *resources, *folder, *HERE),
        ):
            one = subprocess.Popen([tool, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=place)
            stack.callback(one.wait)
            stack.callback(one.terminate)  # the nannies end their workers
        yield address


def test_parts_with_frames_run_on_the_workers_of_a_scheduler(tmp_path: Path) -> None:
    from distributed import Client

    file = tmp_path / "orders_file.py"
    file.write_text("def clean(rows):\n    return rows.assign(double=rows['price'] * 2)\n", encoding="utf-8")
    source = MemorySource(TABLE, key="id")
    read = Reading(source.endpoint, source.query, CutWish("id", 4), source=source)
    write = Write(str(tmp_path / "out"), "parquet", WriteOptions())
    job = Job(read, (write,), Steps(FunctionRef(str(file), "clean", sha256_of(str(file)))))
    with scheduler(tmp_path) as address:
        with Client(address, set_as_default=False, timeout=30) as client:
            client.wait_for_workers(2, timeout=60)
            resources = [one["resources"] for one in client.scheduler_info(n_workers=-1)["workers"].values()]
            assert resources == [{"GPU": 1, "DRIVER": 1}] * 2
        told = cuetl("doctor", "--cluster", address, "--json", cwd=tmp_path).json["findings"]
        (result,) = runner.run([job], run_id=new_run_id(), engine=address)
    assert (result.engine, result.rows, result.partitions) == ("cpu", ROWS, 4), "without a device, frames are pandas'"
    table = open_dataset(str(tmp_path / "out")).table().sort_by("id")
    assert table.column("double").to_pylist() == [None if i % 7 == 0 else i / 2 for i in range(ROWS)]
    asked = {one["what"]: one for one in told}
    assert asked[f"cluster {address}"]["said"] == "2 workers that are equal"
    assert sum(one["what"].startswith("worker tcp://") and "pandas" in one["said"] for one in told) == 2
    assert asked["cuDF"]["verdict"] == "ok"
