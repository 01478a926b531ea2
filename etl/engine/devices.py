"""What this process has for work on GPUs: driver, devices and packages. Nothing here makes a CUDA context."""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

NVML = "libnvidia-ml.so.1"
"""The driver's own library of facts: where it is missing, no driver is installed."""
TEXT = 96
PACKAGES = ("cudf", "dask-cudf", "dask-cuda", "distributed-ucxx", "kvikio")
SUFFIXES = ("", "-cu12", "-cu13")
EXTRAS = {12: "gpu-cu12", 13: "gpu-cu13"}


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the driver shows it. `memory`: bytes in all; 0 where it has none of its own."""

    index: int
    name: str
    uuid: str
    memory: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found on this host.

    Attributes:
        driver: The driver's version; "" where there is none.
        cuda: The newest CUDA that the driver runs, as (major, minor); (0, 0) where there is none.
        devices: All GPUs of the host, in the driver's order.
        packages: Distribution name, as installed, to version.
        fault: What the driver answered in place of facts; "" if it gave them.
    """

    driver: str = ""
    cuda: tuple[int, int] = (0, 0)
    devices: tuple[Device, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    fault: str = ""

    def version_of(self, package: str, /) -> str:
        """The version of a package, whichever CUDA its wheel is for; "" if it is not installed."""
        names = {package + suffix for suffix in SUFFIXES}
        return next((found for name, found in self.packages if name in names), "")

    def missing(self) -> str:
        """The first thing that a GPU engine lacks here, as the end of a sentence; "" if nothing is."""
        for package in ("cudf", "dask-cuda"):
            if not self.version_of(package):
                extra = EXTRAS.get(self.cuda[0], " or ".join(EXTRAS.values()))
                return f"{package} is not installed (extra {extra})"
        if not self.driver:
            return f"no NVIDIA driver was found{f' ({self.fault})' if self.fault else ''}"
        return "" if self.devices else "the NVIDIA driver shows no device"


@cache
def survey() -> Survey:
    """The facts of this host, asked for once per process."""
    driver, cuda, devices, fault = _driver()
    return Survey(driver, cuda, devices, tuple(packages()), fault)


def packages() -> list[tuple[str, str]]:
    """Distribution and version of each package for GPUs that is installed, wheels of both CUDA versions included."""
    found = []
    for name in (package + suffix for package in PACKAGES for suffix in SUFFIXES):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def ucx() -> bool:
    """Whether Dask can speak UCX here."""
    return importlib.util.find_spec("distributed_ucxx") is not None


class _NvmlMemory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _driver() -> tuple[str, tuple[int, int], tuple[Device, ...], str]:
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return "", (0, 0), (), ""
    code = nvml.nvmlInit_v2()
    if code:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        return "", (0, 0), (), f"NVML: {nvml.nvmlErrorString(code).decode()}"
    try:
        text, number = ctypes.create_string_buffer(TEXT), ctypes.c_int()
        nvml.nvmlSystemGetDriverVersion(text, TEXT)
        driver = text.value.decode()
        nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number))
        cuda = (number.value // 1000, number.value % 1000 // 10)
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return driver, cuda, tuple(_device(nvml, index) for index in range(count.value)), ""
    finally:
        nvml.nvmlShutdown()


def _device(nvml: ctypes.CDLL, index: int) -> Device:
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    name, uuid = ctypes.create_string_buffer(TEXT), ctypes.create_string_buffer(TEXT)
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetName(handle, name, TEXT)
    nvml.nvmlDeviceGetUUID(handle, uuid, TEXT)
    # Devices that share the host's memory answer "not supported" and leave 0.
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return Device(index, name.value.decode(), uuid.value.decode(), memory.total)
