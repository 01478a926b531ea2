"""Under torch's own DataLoader: each row once, whatever the workers and ranks, in the loader's order."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from etl.core.errors import ConfigError
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from etl.tensors.dataset import Dataset

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.framework("torch")


def made(out: Path, rows: int, parts: int = 1) -> Dataset:
    """A dataset of one column n = 0, 1, …"""
    table = pa.table({"n": pa.array(range(rows), pa.int64())}, schema=pa.schema([pa.field("n", pa.int64(), False)]))  # noqa: FBT003
    # Small files are joined at the end of a run unless they fill a quarter of the target.
    export(out, table, parts, fmt="safetensors", options=WriteOptions(partition_bytes=max(8, rows * 8 // parts)))
    return open_dataset(out)


def loaded(jobs: list[dict[str, Any]]) -> list[list[list[dict[str, Any]]]]:
    """Per job and epoch the batches, out of one fresh process; a warning there is an error."""
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {"PYTHONPATH": str(ROOT)}
    # torch warns of more workers than cores, of which a small machine has 2.
    quiet = "ignore:This DataLoader will create:UserWarning"
    script = [sys.executable, "-W", "error", "-W", quiet, str(ROOT / "tests/frameworks/workers.py"), json.dumps(jobs)]
    done = subprocess.run(script, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    found: list[list[list[dict[str, Any]]]] = json.loads(done.stdout)
    return found


def lengths(batches: list[dict[str, Any]]) -> list[int]:
    return [len(batch["n"]) for batch in batches]


def rows_of(batches: list[dict[str, Any]]) -> list[int]:
    return [n for batch in batches for n in batch["n"]]


def test_t41_t42_t43_any_number_of_workers_gives_the_loaders_batches_once(tmp_path: Path) -> None:
    sizes = {"t41": (40, 4), "t41b": (10, 1), "t42": (1000, 3), "t43": (8000, 1)}
    sets = {name: made(tmp_path / name, rows, parts) for name, (rows, parts) in sizes.items()}
    assert len(sets["t42"].manifest.files) > 1

    def job(name: str, workers: int, batch_size: int, **options: Any) -> dict[str, Any]:
        return {"kind": "iterable", "path": str(tmp_path / name), "workers": workers, "batch_size": batch_size,
                "options": options}  # fmt: skip

    shuffled = {"shuffle": True, "seed": 7}
    jobs = [job("t41", w, 8, **shuffled) for w in (0, 2, 4)]
    jobs += [job("t41b", w, 4) for w in (0, 4)] + [job("t41b", 4, 4, drop_last=True)]
    jobs += [job("t42", 2, 16, rank=r, world_size=2, mode="eval") for r in (0, 1)]
    jobs += [job("t43", w, 100, rank=5, world_size=8, **shuffled) for w in (0, 4)]
    *t41, none, four, dropped, first, second, one, many = [epochs[0] for epochs in loaded(jobs)]
    assert [lengths(b) for b in t41] == [[8] * 5] * 3
    assert t41[0] == t41[1] == t41[2]
    assert sorted(rows_of(t41[0])) == list(range(40))
    assert rows_of(t41[0]) == [int(n) for b in sets["t41"].loader(8, shuffle=True, seed=7) for n in b["n"]]
    assert (lengths(none), none, lengths(dropped)) == ([4, 4, 2], four, [4, 4])
    union = [n for batch in first + second for n, ok in zip(batch["n"], batch["valid_rows"], strict=True) if ok]
    assert sorted(union) == list(range(1000))
    assert (lengths(one), one) == ([100] * 10, many)


def test_t44_epochs_go_on_with_workers_made_anew_kept_or_stopped_early(tmp_path: Path) -> None:
    dataset = made(tmp_path / "d", 600)
    base = {"kind": "iterable", "path": str(tmp_path / "d"), "batch_size": 100, "epochs": 3,
            "options": {"shuffle": True, "seed": 3}}  # fmt: skip
    anew, kept, alone, spawned, stopped, later = loaded([
        {**base, "workers": 2}, {**base, "workers": 2, "persistent": True}, {**base, "workers": 0},
        {**base, "workers": 1, "context": "spawn", "epochs": 2}, {**base, "workers": 2, "stop": 2},
        {**base, "workers": 2, "epochs": 1, "set_epoch": 2}])  # fmt: skip
    loader = dataset.loader(100, shuffle=True, seed=3)
    want = [[int(n) for batch in loader for n in batch["n"]] for _ in range(3)]
    assert want[0] != want[1] != want[2]
    for epochs in (anew, kept, alone):
        assert [rows_of(batches) for batches in epochs] == want
    assert [rows_of(batches) for batches in spawned] == want[:2]
    assert [rows_of(batches) for batches in stopped] == [rows[:200] for rows in want]
    assert rows_of(later[0]) == want[2]


def test_an_epoch_that_is_none_is_refused(tmp_path: Path) -> None:
    batches = made(tmp_path / "d", 10).split("all").torch_iterable(4)
    for epoch in (-1, 1.5, "2", True):
        with pytest.raises(ConfigError, match="epoch is"):
            batches.set_epoch(epoch)  # type: ignore[arg-type]  # some are none
    batches.set_epoch(3)
    assert next(iter(batches))["n"].tolist() == [0, 1, 2, 3]


ELSEWHERE = """
import pickle, sys
data = pickle.load(sys.stdin.buffer)
from torch.utils.data import DataLoader
print(sorted(n for batch in DataLoader(data, batch_size=None, num_workers=1) for n in batch["n"].tolist()))
"""


def test_batches_that_were_pickled_are_a_dataset_of_torch_where_they_arrive(tmp_path: Path) -> None:
    data = made(tmp_path / "d", 10).split("all").torch_iterable(3, shuffle=True)
    done = subprocess.run([sys.executable, "-W", "error", "-c", ELSEWHERE], cwd=ROOT, input=pickle.dumps(data),
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout.decode().strip()) == (0, str(list(range(10)))), done.stderr.decode()


def test_rows_by_index_under_torchs_samplers(tmp_path: Path) -> None:
    made(tmp_path / "d", 101, 3)
    base = {"path": str(tmp_path / "d"), "batch_size": 10}
    plain, whole, first, second = loaded([
        {**base, "kind": "rows", "workers": 2}, {**base, "kind": "batches", "workers": 2},
        *({**base, "kind": "rows", "workers": 2, "rank": r, "world": 2} for r in (0, 1))])  # fmt: skip
    assert rows_of(plain[0]) == list(range(101))
    assert sorted(rows_of(whole[0])) == list(range(101))
    assert rows_of(whole[0]) != list(range(101))
    assert rows_of(first[0]) == list(range(0, 101, 2))
    assert rows_of(second[0]) == [*range(1, 101, 2), 0]


def test_a_row_of_torch_has_the_shape_of_a_row_and_its_own_list(tmp_path: Path) -> None:
    import torch

    table = pa.table({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "t": pa.array([[7, 8], None, [9]])})
    export(tmp_path / "d", table, fmt="safetensors", options=WriteOptions(features=("a", "b", "t")))
    rows = open_dataset(tmp_path / "d").split("all").torch_dataset()
    row = rows[np.int64(0)]
    assert (row["x"].tolist(), row["x"].dtype) == ([1, 4], torch.float64)
    assert (row["t.values"].tolist(), row["t.offsets"].tolist()) == ([7, 8], [0, 2])
    assert [r["t.values"].tolist() for r in rows.__getitems__([2, 1, 0])] == [[9], [], [7, 8]]
    assert rows[-1]["t.offsets"].tolist() == [0, 1]
    for several in ([2, 0], torch.tensor([2, 0]), np.array([2, 0])):
        assert rows[several]["x"].tolist() == [[3, 6], [1, 4]]
    assert rows[torch.tensor([1])]["x"].tolist() == [[2, 5]]
    assert rows[torch.tensor(1)]["x"].tolist() == [2, 5]
    for outside in (3, -4, [0, 3]):
        with pytest.raises(IndexError):
            rows[outside]
