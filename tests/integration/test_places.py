"""Datasets in storages that exchange no folders: every mode and operation, conflicts, crashes, damage."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from pyarrow import fs

from etl.core.errors import ConfigError, DatasetError
from etl.tensors import operations
from etl.tensors.arrow_files import ArrowFiles
from etl.tensors.dataset import open_dataset
from etl.tensors.places import Place, place_of
from etl.tensors.storage import LocalFiles
from tests.datasets import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know short lists as columns


@dataclass(frozen=True, slots=True)
class SubTree:
    """Arrow's own file system of a folder, as a storage with nothing but what every storage has."""

    folder: str

    def filesystem(self) -> fs.FileSystem:
        return fs.SubTreeFileSystem(self.folder, fs.LocalFileSystem())


def subtree(folder: Path) -> Place:
    return Place(ArrowFiles(SubTree(str(folder))), "out", "subtree://out")


def by_fsspec(folder: Path) -> Place:
    found = place_of(f"local://{folder}/out")
    assert isinstance(found, Place)
    return found


def by_renames(folder: Path) -> Place:
    return Place(LocalFiles(), f"{folder}/out", f"folder://{folder}/out")


PLACES: dict[str, Callable[[Path], Place]] = {"subtree": subtree, "fsspec": by_fsspec, "renames": by_renames}
FORMATS: tuple[Format, ...] = ("parquet", "safetensors")


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path, cache: Path) -> Place:
    """A dataset's place in each storage in turn; its files lie in the folder `root`."""
    (tmp_path / "root").mkdir()
    assert not cache.exists()
    return PLACES[request.param](tmp_path / "root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root" / "out"


def table(*ids: int) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), "t": [f"t{i}" for i in ids]})


def rows(place: Place, version: int | None = None) -> list[int]:
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
    assert hidden <= {"_manifest.json", "_manifests", "_retired", "_text"}
    return [n for n in names if not n.startswith("_")]


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_mode_and_operation_gives_the_versions_that_a_local_folder_has(
    place: Place, root: Path, fmt: Format
) -> None:
    export(place, table(3, 1, 2), parts=2, fmt=fmt)
    with pytest.raises(ConfigError, match="is a dataset already"):
        export(place, table(1), fmt=fmt)
    export(place, table(4), fmt=fmt, mode="append", run_id="r2")
    export(place, table(7, 8), fmt=fmt, mode="replace", run_id="r3")
    assert len(seen(root)) == 1
    made = operations.rollback(place)
    assert (made.version, made.document["restores"]) == (4, 2)
    assert [rows(place, v) for v in (1, 2, 3, 4)] == [[3, 1, 2], [3, 1, 2, 4], [7, 8], [3, 1, 2, 4]]
    assert seen(root) == sorted(f.path for f in made.files)
    open_dataset(place).verify()
    joined = operations.compact(place)
    assert joined is not None
    assert len(joined.files) == 1
    assert len(made.files) == 2
    assert rows(place) == [3, 1, 2, 4]
    gone = operations.vacuum(place, keep=1)
    assert gone.files > 0
    assert rows(place) == [3, 1, 2, 4]
    with pytest.raises(DatasetError, match="gone, as after a vacuum"):
        open_dataset(place, 3)


def test_a_place_is_a_value_that_travels(place: Place) -> None:
    assert pickle.loads(pickle.dumps(place)) == place
