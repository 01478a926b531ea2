"""Datasets in storages that exchange no folders: every mode and operation, conflicts, crashes, damage."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etl.core.canonical import canonical_json
from etl.core.errors import CommitConflict, ConfigError, Damaged, DatasetError
from etl.core.partition import Pages, Partition
from etl.core.secrets import SecretRef
from etl.settings import cache_folder, load, storage_options
from etl.tensors import by_manifest, operations
from etl.tensors.arrow_files import ArrowFiles
from etl.tensors.dataset import open_dataset
from etl.tensors.erase import erase
from etl.tensors.places import Place, place_of
from etl.tensors.storage import LocalFiles
from tests.datasets import begin, export, requires
from tests.dying import SubTree, rows, seen, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from etl.tensors.options import Format

ROOT = Path(__file__).resolve().parents[2]


def subtree(folder: Path) -> Place:
    return Place(ArrowFiles(SubTree(str(folder))), "out", "subtree://out")


def by_fsspec(folder: Path) -> Place:
    found = place_of(f"local://{folder}/out")
    assert isinstance(found, Place)
    return found


def by_renames(folder: Path) -> Place:
    return Place(LocalFiles(), f"{folder}/out", f"folder://{folder}/out")


def parts(of: Any) -> list[tuple[Partition, list[Any]]]:
    """The rows as one part."""
    return [(Partition(0, Pages(0, 1)), of.to_batches())]


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


def test_datasets_without_rows_and_text_in_columns_are_whole_there(place: Place, root: Path) -> None:
    export(place, table(), fmt="safetensors")
    assert rows(place) == []
    export(place, table(1), fmt="safetensors", mode="append", run_id="r2")
    assert rows(place) == [1]
    assert open_dataset(place).table().column("t").to_pylist() == ["t1"]
    assert len(seen(root)) == 2


def test_a_run_that_began_before_another_published_conflicts_and_leaves_nothing(place: Place, root: Path) -> None:
    export(place, table(1))
    slow = begin(place, table(2), mode="replace", run_id="slow")
    staged = [slow.stage(part, 1, iter(batches)) for part, batches in parts(table(2))]
    export(place, table(3), mode="replace", run_id="quick")
    with pytest.raises(CommitConflict, match="published version 2"):
        slow.commit(staged, requires=requires(staged, "slow"))
    slow.abort()
    assert rows(place) == [3]
    assert seen(root) == [f.path for f in open_dataset(place).manifest.files]


def test_what_was_brought_for_a_run_that_fails_goes_with_it(place: Place, root: Path) -> None:
    export(place, table(1))
    session = begin(place, table(2), mode="append", run_id="r2")
    staged = [session.stage(part, 1, iter(batches)) for part, batches in parts(table(2))]
    switch = session.prepare(staged, requires=requires(staged, "r2"))
    assert len(list(root.glob("*.parquet"))) == 2
    open_dataset(place).verify()
    session.abort()
    session.abort()
    assert seen(root) == [f.path for f in open_dataset(place).manifest.files]
    with pytest.raises((Damaged, DatasetError)):
        switch()
    assert rows(place) == [1]
    assert seen(root) == [f.path for f in open_dataset(place).manifest.files]


def test_damage_is_named_and_a_reader_keeps_what_it_fetched(place: Place, root: Path) -> None:
    export(place, table(1, 2, 3), fmt="safetensors")
    found = open_dataset(place)
    assert found.tensors()["id"].tolist() == [1, 2, 3]
    path = root / found.manifest.files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(Damaged, match=rf"{path.name} has sha256 [0-9a-f]{{64}}, not"):
        found.verify()
    path.write_bytes(whole[:100])
    with pytest.raises(Damaged, match=f"{path.name} has 100 bytes, not {len(whole)}"):
        open_dataset(place)
    path.unlink()
    with pytest.raises(Damaged, match=f"{path.name} is missing"):
        open_dataset(place)
    (root / "stray.safetensors").write_bytes(whole)
    path.write_bytes(whole)
    with pytest.raises(Damaged, match=r"stray\.safetensors is not of this dataset"):
        open_dataset(place, verify="sha256")


def test_a_lock_of_a_dead_run_is_taken_and_that_of_a_living_one_is_waited_for(
    place: Place, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(place, table(1))
    gone = {"run_id": "gone", "owner": {"host": "elsewhere", "pid": 1, "started": "1"}, "token": "x"}
    (root / "_lock").write_bytes(canonical_json({**gone, "at": int(time.time()) - 121}))
    export(place, table(2), mode="append", run_id="r2")
    (root / "_lock").write_bytes(canonical_json({**gone, "at": int(time.time())}))
    monkeypatch.setattr(by_manifest, "WAIT_SECONDS", 0.3)
    with pytest.raises(CommitConflict, match="the run gone is publishing"):
        begin(place, table(3), mode="append", run_id="r3")
    assert rows(place) == [1, 2]


def test_targets_that_could_not_be_published_to_are_refused_before_anything_is_read(place: Place, root: Path) -> None:
    (root / "mine").mkdir(parents=True)
    (root / "mine" / "a.csv").write_text("1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds files that are no cuETL dataset \(mine/a\.csv\)"):
        begin(place, table(1))
    (root / "mine" / "a.csv").unlink()
    with pytest.raises(ConfigError, match=r"no dataset at .* to append to"):
        begin(place, table(1), mode="append")
    export(place, table(1))
    with pytest.raises(ConfigError, match="lies inside the dataset"):
        begin(Place(place.storage, f"{place.path}/deep/er", "inner://"), table(1))
    with pytest.raises(ConfigError, match="erase cannot take rows out"):
        erase(place, ["id=1"])
    with pytest.raises(DatasetError, match="holds no dataset"):
        open_dataset(Place(place.storage, f"{place.path}x", "none://x"))


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("subtree", "replace"),
        ("renames", "rollback"),
        *(
            pytest.param(kind, operation, marks=pytest.mark.slow)
            for kind in ("subtree", "renames")
            for operation in ("create", "append", "replace" if kind == "renames" else "rollback")
        ),
    ],
)
def test_a_run_killed_before_any_of_its_changes_leaves_a_version_whole_and_the_next_cleans_up(
    tmp_path: Path, kind: str, operation: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.dying", kind, operation, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CUETL_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deaths"] >= 10


def test_a_local_folder_is_published_to_where_the_kernel_exchanges_no_folders(tmp_path: Path) -> None:
    """A filter of the kernel's refuses RENAME_EXCHANGE in a process of its own, as a file system without it does."""
    out = tmp_path / "out"
    export(out, table(1, 2))
    done = subprocess.run(
        [sys.executable, "-m", "tests.unexchanged", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"replaced": [3], "appended": [3, 4], "back": [3], "erased": "refused"}
    assert rows(out) == [3]
    assert seen(out) == [f.path for f in open_dataset(out).manifest.files]
    # Where folders can be exchanged again, the same dataset goes on as any other.
    export(out, table(5), mode="append", run_id="r9")
    assert rows(out) == [3, 5]
    assert [
        p.name for p in tmp_path.iterdir() if p.name.startswith(".out") and not (p / "_manifest.json").exists()
    ] == []


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mars://b/x", "mars:// is a storage that nothing"),
        ("s3://key:secret-word@b/x", "names a user or a key"),
        ("s3://b/x?region=eu", "has a query"),
        ("s3://bucket", "names no folder"),
        ("s3://bucket/a/../b", "names no folder"),
        ("", "is empty"),
    ],
)
def test_urls_that_name_no_place_are_refused(target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        place_of(target)
    assert "secret-word" not in str(refused.value)


def test_storages_are_configured_by_the_beginning_of_their_urls_with_references_to_secrets(tmp_path: Path) -> None:
    (tmp_path / "cuetl.toml").write_text(
        '[storage.all]\nurl = "s3://"\nregion = "eu-1"\n'
        '[storage.lab]\nurl = "s3://lab"\nendpoint = "http://lab:9000"\nsecret_key = "${env:LAB}"\nanonymous = false\n',
        encoding="utf-8",
    )
    at = load(tmp_path, {})
    assert dict(storage_options("s3://lab/a", at=at)) == {
        "endpoint": "http://lab:9000",
        "secret_key": SecretRef("${env:LAB}"),
        "anonymous": False,
    }
    assert dict(storage_options("s3://laboratory/a", at=at)) == {"region": "eu-1"}
    assert storage_options("gs://x/a", at=at) == ()
    (tmp_path / "cuetl.toml").write_text('[storage.all]\nurl = "s3://"\nendpont = "x"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown key endpont"):
        load(tmp_path, {})
    assert cache_folder({"CUETL_CACHE": "/c"}) == Path("/c")
