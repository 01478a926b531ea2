"""Batches on a GPU: how many are alive, that they are the same as on the host, and that nothing is taken back early."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from etl.core.errors import ConfigError
from etl.tensors.crossing import crossing
from tests.loading import dataset, hold

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.framework("torch")
def test_a_device_that_is_not_there_is_named_by_the_first_batch(tmp_path: Path) -> None:
    torch: Any = importlib.import_module("torch")
    missing = f"cuda:{torch.cuda.device_count()}"
    opened = dataset(tmp_path / "out", (100,))
    assert crossing("torch", missing).stream is None
    with pytest.raises(ConfigError, match=f"torch has no device {missing}"):
        next(iter(opened.loader(batch_size=10, device=missing)))


def test_the_host_needs_no_stream() -> None:
    assert crossing("numpy", None).stream is None
    assert crossing("torch", "cpu").device == "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_batches_on_the_device_are_those_of_the_host(tmp_path: Path, framework: Any) -> None:
    pytest.importorskip(framework)
    opened = dataset(tmp_path / "out", (9000, 5000), lists=True)
    host = list(opened.loader(batch_size=500, shuffle=True))
    count = 0
    for want, batch in zip(
        host, opened.loader(batch_size=500, shuffle=True, device="cuda", framework=framework), strict=True
    ):
        back: dict[str, Any] = {n: t.cpu().numpy() if framework == "torch" else t.get() for n, t in batch.items()}
        hold(back)
        assert back["id"].tolist() == want["id"].tolist()
        count += 1
    assert count == 28


@pytest.mark.gpu
def test_t48_three_batches_at_most_are_alive_on_the_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    opened = dataset(tmp_path / "out", (400_000,), wide=8)
    size = 20_000
    loader = opened.loader(batch_size=size, columns=["f0"], device="cuda", device_prefetch=2, host_prefetch=8)
    before = torch.cuda.memory_allocated()
    most = 0
    for _ in loader:
        time.sleep(0.05)
        most = max(most, torch.cuda.memory_allocated() - before)
    assert 0 < most <= 3 * (size * 4 + 512)


@pytest.mark.gpu
def test_a_consumer_on_a_stream_of_its_own_reads_whole_batches(tmp_path: Path) -> None:
    """Kernels that are still running when a batch is let go of do not see the next one."""
    torch = pytest.importorskip("torch")
    opened = dataset(tmp_path / "out", (400_000,))
    want = sum(range(400_000))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        total = torch.zeros((), dtype=torch.int64, device="cuda")
        weight = torch.ones(2048, 2048, device="cuda")
        for batch in opened.loader(batch_size=4096, shuffle=True, device="cuda"):
            weight = weight @ weight / 2048  # keeps the stream busy, so that the sum below runs late
            total += batch["id"].sum()
            del batch
    stream.synchronize()
    assert int(total) == want
