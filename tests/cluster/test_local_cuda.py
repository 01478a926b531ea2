"""Dask-CUDA's local cluster in the production configuration: start-up, tasks, death, cancel. No device is touched."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

from connectors.base import CutWish
from connectors.memory import MemorySource
from etl.core.errors import EngineError
from etl.engine import select
from etl.engine.clusters import local_cuda
from etl.planning.function import FunctionRef, sha256_of
from etl.planning.jobs import Job, Reading, Write
from etl.planning.steps import Steps
from etl.run import runner
from etl.run.naming import new_run_id
from etl.settings import Engine, Settings
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.cluster import tasks
from tests.cluster.conftest import FOUND, TWO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etl.engine.base import EngineChoice
    from etl.engine.dask_client import DaskCluster

pytestmark = pytest.mark.gpuwheels

OF_LOCAL_CLUSTER = {"resources", "security", "host", "dashboard_address", "scheduler_kwargs", "silence_logs"}
"""What may pass through LocalCUDACluster to the cluster below it: any other keyword kills every worker."""
ROWS = 4000
TABLE = pa.table({"id": pa.array(range(ROWS)), "price": pa.array([None if i % 7 == 0 else i / 4 for i in range(ROWS)])})


def ended(cluster: DaskCluster, keys: Sequence[str], seconds: float = 20.0) -> bool:
    left = set(keys)
    for _ in range(int(seconds / 0.2)):
        left -= set(cluster.wait(seconds=0.2))
        if not left:
            return True
    return False


def workers() -> list[int]:
    """Worker processes of this process, without multiprocessing's own tracker."""
    return [one.pid for one in psutil.Process().children() if any("spawn_main" in word for word in one.cmdline())]


def test_every_option_is_one_that_dask_cuda_knows() -> None:
    from dask_cuda import LocalCUDACluster
    from distributed import LocalCluster

    known = inspect.signature(LocalCUDACluster)
    below = inspect.signature(LocalCluster)
    for wanted in (Engine(), Engine(rmm_pool_size=0.5, enable_nvlink=None, local_directory="x", memory_limit=1 << 30)):
        given = local_cuda.options(TWO, wanted, FOUND).keywords()
        assert not set(given) - set(known.parameters) - OF_LOCAL_CLUSTER
        assert not OF_LOCAL_CLUSTER - set(below.parameters) - {"resources"}
        known.bind(**given)


def test_workers_come_up_one_for_each_device_and_a_driver_does_not_wait_for_itself(cluster: DaskCluster) -> None:
    answers = cluster.client.run(tasks.shown)
    assert sorted(one["devices"] for one in answers.values()) == ["0,1", "1,0"]
    for one in answers.values():
        assert (one["threads"], one["resources"]) == (4, {"GPU": 1, "DRIVER": 1})
        assert one["initialized"] in ("1", "True")
        assert one["pinned"] == str(256 << 20)
        assert one["cudf"], "imported before the first part"
        assert one["listening"] == ["127.0.0.1"]
    here = {c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert here <= {"127.0.0.1"}
    drivers = [cluster.drive(tasks.driven, [1, 2, 3], key=f"driver-{n}") for n in range(3)]
    assert ended(cluster, [one.key for one in drivers]), "a driver holds what its own tasks need"
    assert [one.result() for one in drivers] == [14, 14, 14]


def test_a_cancelled_task_does_not_start(cluster: DaskCluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    running = [cluster.submit(tasks.wait_for, str(gate), key=f"runs-{n}") for n in range(8)]
    later = cluster.submit(tasks.wait_for, str(gate), key="later")
    assert not cluster.wait(seconds=0.5)
    cluster.cancel()
    assert ended(cluster, [*(one.key for one in running), later.key])
    gate.touch()
    again = cluster.submit(tasks.pid, None, key="after")
    assert ended(cluster, ["after"])
    assert again.result() != os.getpid()


def job(tmp_path: Path, name: str, steps: Steps | None, parts: int = 8) -> Job:
    source = MemorySource(TABLE, key="id")
    read = Reading(source.endpoint, source.query, CutWish("id", parts), source=source)
    return Job(read, (Write(str(tmp_path / name), "parquet", WriteOptions()),), steps)


def clean(tmp_path: Path, body: str) -> Steps:
    file = tmp_path / "orders_file.py"
    file.write_text(body, encoding="utf-8")
    return Steps(FunctionRef(str(file), "clean", sha256_of(str(file))))


@pytest.fixture
def frames_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a device no frame of cuDF can be made: the workers are told to use pandas."""
    chosen = select.choose

    def choose(engine: str, /, **wish: Any) -> EngineChoice:
        return replace(chosen(engine, **wish), backend="pandas")

    monkeypatch.setattr(select, "choose", choose)


@pytest.mark.usefixtures("no_device")
def test_data_passes_through_gpu_workers_as_it_does_here(tmp_path: Path) -> None:
    for engine in ("gpu", "cpu"):
        (result,) = runner.run([job(tmp_path, engine, None)], run_id=new_run_id(), engine=engine)
        assert (result.engine, result.rows) == (engine, ROWS)
    assert open_dataset(str(tmp_path / "gpu")).table().equals(open_dataset(str(tmp_path / "cpu")).table())
    assert workers() == []


STOPS = """
import os, threading
from pathlib import Path

def clean(rows):
    place = Path(__file__).parent
    if len(rows) and rows["id"].min() == 0 and not (place / "met").exists():
        (place / "met").write_text(str(os.getpid()))
        threading.Event().wait(60)
    return rows.assign(double=rows["price"] * 2)
"""


@pytest.mark.usefixtures("no_device", "frames_of_pandas")
def test_parts_of_a_killed_worker_run_again_as_halves(tmp_path: Path) -> None:
    met = tmp_path / "met"
    killed: list[int] = []

    def kill() -> None:
        for _ in range(600):
            if met.exists() and (text := met.read_text()):
                killed.append(int(text))
                os.kill(killed[0], signal.SIGKILL)
                return
            threading.Event().wait(0.05)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    (result,) = runner.run([job(tmp_path, "out", clean(tmp_path, STOPS))], run_id=new_run_id(), engine="gpu")
    killer.join()
    assert killed
    assert killed[0] != os.getpid()
    assert result.rows == ROWS
    halved = [str(w["text"]) for w in result.warnings if w["code"] == "halved"]
    assert len(halved) == result.partitions - 8 >= 1
    assert all("lost its worker and was read again as two halves" in one for one in halved)
    table = open_dataset(str(tmp_path / "out")).table()
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("double").to_pylist() == [None if i % 7 == 0 else i / 2 for i in range(ROWS)]
    assert workers() == []


@pytest.mark.usefixtures("no_device")
def test_a_worker_that_does_not_start_is_told_with_its_first_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keep = local_cuda.options

    def options(*given: Any) -> local_cuda.Options:
        return replace(keep(*given), pre_import=("no_such_library",))

    monkeypatch.setattr(local_cuda, "options", options)
    with pytest.raises(EngineError, match=r"the worker of GPU \d did not start: .*no_such_library"):
        local_cuda.start(TWO)
    assert workers() == []
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("no_device")
def test_a_device_that_does_not_work_is_found_before_the_first_part(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match=r"GPU worker tcp://127\.0\.0\.1:\d+ cannot work on its device: "):
        local_cuda.start(replace(TWO, backend="cudf"))
    assert workers() == []
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("no_device")
def test_a_cluster_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Settings(engine=Engine(devices=("0", "1")))
    monkeypatch.setattr(local_cuda, "settings", lambda: found)
    with pytest.raises(EngineError, match=r"the Dask-CUDA cluster could not start: .*NVML"):
        local_cuda.start(TWO)
