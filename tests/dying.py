"""A storage that kills its process before its n-th change, and what must hold after each of these deaths.

Run as a script: `python -m tests.dying KIND OPERATION FOLDER` prints how many deaths there were.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
from pyarrow import fs

from etl.tensors import operations
from etl.tensors.arrow_files import ArrowFiles
from etl.tensors.dataset import open_dataset
from etl.tensors.places import Place
from etl.tensors.storage import LocalFiles
from tests.datasets import export

if TYPE_CHECKING:
    from etl.tensors.storage import Storage

pa: Any = arrow  # the stubs do not know short lists as columns


@dataclass(frozen=True, slots=True)
class SubTree:
    """Arrow's own file system of a folder, as a storage with nothing but what every storage has."""

    folder: str

    def filesystem(self) -> fs.FileSystem:
        return fs.SubTreeFileSystem(self.folder, fs.LocalFileSystem())


@dataclass(frozen=True, slots=True)
class Dying:
    """A storage whose process dies before change number `at`, counted from 1; 0: never."""

    inner: Storage
    at: int = 0
    made: list[str] = field(default_factory=list, compare=False)

    @property
    def exclusive(self) -> bool:
        return self.inner.exclusive

    @property
    def replaces(self) -> bool:
        return self.inner.replaces

    def read(self, path: str, /) -> bytes:
        return self.inner.read(path)

    def sizes(self, folder: str, /) -> dict[str, int]:
        return self.inner.sizes(folder)

    def size(self, path: str, /) -> int | None:
        return self.inner.size(path)

    def fetch(self, path: str, into: Path, /) -> str:
        return self.inner.fetch(path, into)

    def create(self, path: str, data: bytes, /) -> None:
        self._change(path)
        self.inner.create(path, data)

    def replace(self, path: str, data: bytes, /) -> None:
        self._change(path)
        self.inner.replace(path, data)

    def take(self, source: Path, path: str, /) -> None:
        self._change(path)
        self.inner.take(source, path)

    def move(self, path: str, to: str, /) -> None:
        self._change(path)
        self.inner.move(path, to)

    def remove(self, path: str, /) -> None:
        self._change(path)
        self.inner.remove(path)

    def _change(self, path: str) -> None:
        self.made.append(path)
        if len(self.made) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def table(*ids: int) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), "t": pa.array([f"t{i}" for i in ids], pa.string())})


def rows(place: Path | Place, version: int | None = None) -> list[int]:
    """The ids of a version, after every file of it was compared."""
    found = open_dataset(place, version, "sha256")
    if found.manifest.format == "parquet":
        ids: Any = found.table().column("id").to_pylist()
        return list(ids)
    return [int(i) for i in found.tensors()["id"]]


def seen(root: Path) -> list[str]:
    """What a plain listing takes for data, and nothing hidden is left but manifests and retired files."""
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    hidden = {n.partition("/")[0] for n in names if n.startswith(("_", "."))}
    assert hidden <= {"_manifest.json", "_manifests", "_retired", "_text"}, names
    return [n for n in names if not n.startswith("_")]


def main(kind: str, operation: str, folder: Path) -> int:
    """Die at every change of an operation in turn; each time the dataset is as before or as after, and goes on."""
    for deaths in range(100):
        root = folder / f"{deaths}"
        root.mkdir()
        storage = ArrowFiles(SubTree(str(root))) if kind == "subtree" else LocalFiles()
        path = "out" if kind == "subtree" else f"{root}/out"
        place = Place(storage, path, f"{kind}://{root}/out")
        after = {"create": [5, 6], "replace": [5, 6], "append": [1, 2, 5, 6], "rollback": [1, 2]}[operation]
        before: list[int] | None = None
        if operation != "create":
            export(place, table(1, 2), fmt="safetensors", run_id="a")
            before = [1, 2]
        if operation == "rollback":
            export(place, table(3, 4), fmt="safetensors", mode="replace", run_id="b")
            before = [3, 4]
        child = os.fork()
        if not child:
            dying = Place(Dying(storage, deaths + 1), path, place.url)
            if operation == "rollback":
                operations.rollback(dying)
            else:
                export(dying, table(5, 6), fmt="safetensors", mode=operation, run_id="dying")  # type: ignore[arg-type]
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = rows(place) if (root / "out" / "_manifest.json").exists() else None
        assert found in (before, after), (deaths, found)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the child failed"
            assert found == after
            return deaths
        number = open_dataset(place).manifest.version if found else 0
        export(place, table(9), fmt="safetensors", mode="replace", run_id="next")
        assert rows(place) == [9], deaths
        assert seen(root / "out") == [f.path for f in open_dataset(place).manifest.files], deaths
        if found:
            assert rows(place, number) == found, deaths
        text = {p.name.removesuffix(".old") for p in (root / "out").glob("_*/**/*") if p.suffix in (".parquet", ".old")}
        ours = {Path(one).name for v in open_dataset(place).history() for one in v.data_paths}
        assert text <= ours, deaths
    raise AssertionError("the operation never came to its end")


if __name__ == "__main__":
    json.dump({"deaths": main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))}, sys.stdout)
