"""A run that is killed at any step of its commit leaves the old version or the new one, whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from etl.tensors.options import WriteOptions
from tests.datasets import export

# Runs in a process of its own without threads: a child is forked per step and kills itself at that step.
DRIVER = """
import os, shutil, signal, sys
from pathlib import Path
import pyarrow as pa
from etl.tensors import publish, storage
from etl.tensors.dataset import open_dataset
from tests.datasets import begin, cut, requires
from etl.core.partition import Pages, Partition

pa.set_cpu_count(1)
start, mode, fmt, base = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
table = pa.table({"a": list(range(300)), "t": ["x"] * 300})
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

done = False
while not done:
    # Each step from the same start: what a dead run leaves would add steps to the next.
    out = start.parent / str(limit) / "out"
    out.parent.mkdir()
    if base:
        shutil.copytree(start, out)
    child = os.fork()
    if not child:
        session = begin(out, table, fmt=fmt, mode=mode, run_id=f"k{limit}")
        staged = [session.stage(Partition(i, Pages(i, i + 1)), 1, iter(b)) for i, b in enumerate(cut(table, 2))]
        armed = True
        session.commit(staged, requires=requires(staged, f"k{limit}"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
    if not done:
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (limit, status)
    if (out / "_manifest.json").exists():
        rows = len(open_dataset(out, verify="sha256"))
        listed = {f.path for f in open_dataset(out).manifest.files}
        found = {p.name for p in out.iterdir() if not p.name.startswith("_")}
        assert found == listed | ({"notes.txt"} if base else set()), (limit, found, listed)
        new = base + 300 if mode == "append" else 300
        assert rows in {base, new}, (limit, rows)
        assert not done or rows == new
    else:
        assert mode == "create" and not out.exists(), limit
    # The next run goes on from there, and cleans up.
    session = begin(out, table, fmt=fmt, mode="replace", run_id="next")
    staged = [session.stage(Partition(i, Pages(i, i + 1)), 1, iter(b)) for i, b in enumerate(cut(table, 2))]
    session.commit(staged, requires=requires(staged, "next"))
    assert len(open_dataset(out, verify="sha256")) == 300
    left = [p for p in out.parent.iterdir() if p.name.startswith(".out.cuetl-")]
    assert all((p / "_manifest.json").exists() for p in left), left
    if base:
        assert (out / "notes.txt").read_text() == "mine"
    shutil.rmtree(out.parent)
    limit += 1
print(limit)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["parquet", "safetensors"])
@pytest.mark.parametrize("mode", ["create", "replace", "append"])
def test_killed_at_every_step_of_a_commit(tmp_path: Path, mode: str, fmt: str) -> None:
    out = tmp_path / "out"
    base = 0
    if mode != "create":
        base = 100
        table = pa.table({"a": list(range(base)), "t": ["y"] * base})
        export(out, table, fmt=fmt, options=WriteOptions())  # type: ignore[arg-type]
        (out / "notes.txt").write_text("mine", encoding="utf-8")
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, str(out), mode, fmt, str(base)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr[-2000:]
    assert int(driver.stdout) > 8
