"""How batches get to a device beside the training step: which device, on which stream, and whose memory it is then.

Not yet run on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from etl.tensors.frameworks import require_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Crossing:
    """The way to one device.

    Attributes:
        device: Its full name: "cuda" alone means another one on every thread.
        stream: torch's stream for the copies, so that they run beside the kernels of the training step; None where
            there is none to be had.
    """

    device: str | None
    stream: Any = None

    def made(self, make: Callable[[], T], /) -> T:
        """What `make` gives, when its copies are done; only the thread that copies waits."""
        if self.stream is None:
            return make()
        with require_torch().cuda.stream(self.stream):
            found = make()
        self.stream.synchronize()
        return found

    def received(self, tensors: Iterable[Any], /) -> None:
        """Say, on the thread that uses them, which stream does: else their memory is the next batch's too early."""
        if self.stream is not None:
            current = require_torch().cuda.current_stream(self.stream.device)
            for tensor in tensors:
                tensor.record_stream(current)


def crossing(framework: str, device: str | None, /) -> Crossing:
    """The way to a device, asked for on the thread that will use the batches."""
    if framework != "torch" or device is None or not device.startswith("cuda"):
        return Crossing(device)
    torch = require_torch()
    try:
        index = torch.device(device).index
        name = f"cuda:{torch.cuda.current_device() if index is None else index}"
        return Crossing(name, torch.cuda.Stream(device=name))
    except (RuntimeError, AssertionError):
        return Crossing(device)  # no such device here: to hand over the first batch says so by name
