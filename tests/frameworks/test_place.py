"""The rank that a loader takes: of a process group, of JAX's processes, of the launcher's environment."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import etl
from etl.core.errors import ConfigError
from etl.settings import launched
from etl.tensors.frameworks import place
from tests.servers.process import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_the_launchers_environment_names_rank_and_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert place() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert place() == (3, 8)
    for rank, world in (("8", "8"), ("-1", "8"), ("one", "8"), ("3", ""), ("", "8"), ("0", "0")):
        with pytest.raises(ConfigError, match=f"RANK='{rank}' and WORLD_SIZE='{world}', which is no rank of a world"):
            launched({"RANK": rank, "WORLD_SIZE": world})


@pytest.mark.framework("torch")
def test_torchs_process_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert place() == (3, 8)
    dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)  # torch's own, without a network
    try:
        assert place() == (2, 4)
    finally:
        dist.destroy_process_group()
    assert place() == (3, 8)


PROCESS = """
import sys, json, jax
from etl.tensors.frameworks import place
before = place()
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
print(json.dumps([before, place()]))
"""


@pytest.mark.framework("jax")
def test_jaxs_processes_are_ranks_once_they_were_set_up() -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {"JAX_PLATFORMS": "cpu"}
    at = f"127.0.0.1:{free_port()}"
    both = [
        subprocess.Popen([sys.executable, "-c", PROCESS, at, str(rank)], cwd=ROOT, env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120) for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert [process.returncode for process in both] == [0, 0], said
    assert [json.loads(out) for out, _ in said] == [[[0, 1], [0, 2]], [[0, 1], [1, 2]]]


@pytest.mark.framework("torch")
def test_a_query_is_read_as_torch_tensors(tmp_path: Path) -> None:
    import torch

    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("create table t (id integer not null, price real)")
        db.execute("insert into t values (9007199254740993, 1.5), (2, null)")
    db.close()
    found = etl.read_sql(f"sqlite:///{tmp_path}/shop.db", "select id, price from t order by price").to_torch()
    assert (found["id"].tolist(), found["id"].dtype) == ([2, 9007199254740993], torch.int64)
    assert (found["price"].tolist(), found["price.valid"].tolist()) == ([0, 1.5], [False, True])
