"""An operation that is killed at any step leaves the dataset as it was or as it should be, and done again ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest

from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Iterator

pa: Any = arrow  # the stubs do not know short lists as columns

GONE = 0x11223344556677
"""A key whose bytes are found in no file by chance."""

# As in test_publish_crash.py: a child is forked per step and kills itself at that step.
DRIVER = """
import os, shutil, signal, struct, sys
from pathlib import Path
import pyarrow as pa
from etl.tensors import operations, stages, storage
from etl.tensors.dataset import open_dataset
from etl.tensors.erase import erase

pa.set_cpu_count(1)
start, name, key = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
operation = {
    "rollback": lambda out: operations.rollback(out, 1),
    "compact": operations.compact,
    "vacuum": lambda out: operations.vacuum(out, keep=1),
    "erase": lambda out: erase(out, [str(key)]),
}[name]
steps, armed, limit = 0, False, 0

def step(*_):
    global steps
    if armed:
        if steps == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

def seen(event, args):
    if event in {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.utime", "os.chmod"}:
        step()
    elif event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT:
        step()

sys.addaudithook(seen)
fsync, exchange = os.fsync, storage.exchange

def counted_fsync(handle):
    step()
    fsync(handle)

def counted_exchange(*names):
    step()
    exchange(*names)
    step()

os.fsync = counted_fsync
storage.exchange = counted_exchange

def rows(out):
    "Version -> ids, of all versions that are whole; the current one must be."
    newest = open_dataset(out, verify="sha256")
    found = {newest.manifest.version: newest.tensors()["id"].tolist()}
    for one in operations.history(out, newest.manifest)[1:]:
        if not operations.missing(out, one):
            found[one.version] = open_dataset(out, one.version, "sha256").tensors()["id"].tolist()
    return found

before = rows(start)
wanted = {
    "rollback": before | {4: before[1]},
    "compact": before | {4: before[3]},
    "vacuum": {3: before[3], 2: before[2]},  # version 3 was appended to 2 and lists its file
    "erase": {v: [i for i in ids if i != key] for v, ids in {**before, 4: before[3]}.items()},
}[name]
done = False
while not done:
    out = start.parent / str(limit) / "out"
    shutil.copytree(start.parent, out.parent, ignore=lambda at, names: [n for n in names if n.isdigit()])
    child = os.fork()
    if not child:
        armed = True
        operation(out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
    if not done:
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (limit, status)
    found = rows(out)
    if name == "vacuum":
        assert all(before[v] == ids for v, ids in found.items()) and 3 in found, (limit, found)
    else:
        assert found in (before, wanted), (limit, found)
    assert not done or found == wanted, (limit, found)
    # Done again, it ends.
    if name in {"vacuum", "erase"} or found == before:
        operation(out)
        again = rows(out)
        if name != "erase" or found == wanted:
            # Numbers of commits that died are not used again.
            assert [again[v] for v in sorted(again)] == [wanted[v] for v in sorted(wanted)], (limit, again)
        else:
            assert all(key not in ids for ids in again.values()) and len(again) == len(wanted), (limit, again)
    left = sorted(p.name for p in out.parent.iterdir())
    if name == "erase":
        assert left == ["out"], (limit, left)
        for path in out.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert struct.pack("<q", key) not in data and str(key).encode() not in data, (limit, path)
    assert (out / "notes.txt").read_text() == "mine"
    listed = {f.path for f in open_dataset(out).manifest.files}
    names = {p.name for p in out.iterdir() if not p.name.startswith("_")}
    assert names == listed | {"notes.txt"}, (limit, names, listed)
    stages.OLD_TREE_SECONDS = -1
    operations.vacuum(out, keep=9)
    stages.OLD_TREE_SECONDS = 600
    assert sorted(p.name for p in out.parent.iterdir()) == ["out"], (limit, list(out.parent.iterdir()))
    shutil.rmtree(out.parent)
    limit += 1
print(limit)
"""


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: many commits would wait for the disk many times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["rollback", "compact", "vacuum", "erase"])
def test_killed_at_every_step_of_an_operation(memory_path: Path, operation: str) -> None:
    out = memory_path / "out"
    apart = WriteOptions(partition_bytes=1 << 20, key=("id",))
    for run, mode, ids in (("r1", "create", [1, GONE]), ("r2", "replace", [GONE, 2, 3]), ("r3", "append", [4, 5])):
        rows = pa.table({"id": pa.array(ids, pa.int64()), "t": [f"t{i % 9}" for i in ids]})
        export(out, rows, fmt="safetensors", options=apart, mode=mode, run_id=run)  # type: ignore[arg-type]
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, str(out), operation, str(GONE)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr[-2000:]
    # A vacuum here makes four changes: a data file, its text and their two folders go.
    assert int(driver.stdout) > (4 if operation == "vacuum" else 8)
