"""Files are hashed once by a process, and a file that changed is never taken for one that was hashed."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from etl.core.errors import Damaged, DatasetError
from etl.tensors import operations, verify
from etl.tensors.dataset import open_dataset
from etl.tensors.erase import Erased, erase
from etl.tensors.options import WriteOptions
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.options import Format

APART = WriteOptions(partition_bytes=1, key=("id",))


def settled(out: Path) -> None:
    """As if the files had been written a minute ago."""
    for path in out.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)


def test_opening_again_does_not_read_what_was_hashed_and_verify_reads_it_always(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"id": list(range(20))}), fmt="safetensors", options=APART)
    settled(out)
    open_dataset(out, verify="sha256")
    path = out / open_dataset(out).manifest.files[0].path
    about = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # nobody does this by accident
    open_dataset(out, verify="sha256")
    with pytest.raises(Damaged, match=path.name):
        open_dataset(out).verify()


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"id": list(range(20))}), fmt="safetensors", options=APART)
    settled(out)
    open_dataset(out, verify="sha256")
    path = out / open_dataset(out).manifest.files[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=path.name):
        open_dataset(out, verify="sha256")


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    about = path.stat()
    first = verify.hash_of(path, remember=True)
    path.write_bytes(b"two")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # within one tick of a coarse clock
    assert verify.hash_of(path, remember=True) != first


def test_all_bad_files_are_named_in_order(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"id": list(range(60))}), 30, fmt="safetensors", options=APART)
    names = [f.path for f in open_dataset(out).manifest.files]
    for name in names[3:15]:
        data = bytearray((out / name).read_bytes())
        data[-1] ^= 1
        (out / name).write_bytes(data)
    with pytest.raises(Damaged) as caught:
        open_dataset(out).verify()
    assert caught.value.context["faults"] == 12
    said = [part.split(" ")[0] for part in str(caught.value).partition("damaged: ")[2].split("; ")]
    assert said == names[3:15]


def test_a_version_that_changes_while_it_is_opened_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"id": list(range(20))}), fmt="safetensors", options=APART)
    looked = verify.check
    erased: list[Erased] = []

    def slow(*arguments: object, remember: bool) -> None:
        if not erased:
            erased.append(erase(out, ["3"]))
        looked(*arguments, remember=remember)  # type: ignore[arg-type]

    monkeypatch.setattr(verify, "check", slow)
    assert len(open_dataset(out, 1)) == 19
    assert erased[0].version == 2
    assert len(open_dataset(out)) == 19


def test_a_version_whose_data_a_vacuum_took_is_not_called_damaged(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        export(out, pa.table({"id": [number]}), mode="replace", run_id=f"r{number}")
    operations.vacuum(out, keep=1)
    with pytest.raises(DatasetError, match=r"the data of version 1 of .* are gone, as after a vacuum") as caught:
        open_dataset(out, 1)
    assert not isinstance(caught.value, Damaged)
    path = out / open_dataset(out).manifest.files[0].path
    path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        open_dataset(out)


@pytest.mark.parametrize("fmt", ["parquet", "safetensors", "npy", "torch", "tfrecord"])
def test_t_50_each_file_of_each_format_is_looked_at(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, pa.table({"id": list(range(9)), "t": list("abcdefghi")}), 3, fmt=fmt, options=APART)
    manifest = open_dataset(out, verify="sha256").manifest
    for one in (one for file in manifest.files[1:2] for one in file.stored):
        path = out / one.path
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        path.write_bytes(flipped)
        open_dataset(out, verify="size")
        with pytest.raises(Damaged, match=re.escape(f"{one.path} has sha256")):
            open_dataset(out, verify="sha256")
        path.write_bytes(whole[:-1])
        with pytest.raises(Damaged, match=re.escape(f"{one.path} has {len(whole) - 1} bytes, not {len(whole)}")):
            open_dataset(out)
        path.unlink()
        with pytest.raises(Damaged, match=re.escape(f"{one.path} is missing")) as caught:
            open_dataset(out)
        assert caught.value.exit_code == 4
        path.write_bytes(whole)
    open_dataset(out, verify="sha256")


def test_the_whole_chain_of_manifests_is_looked_at(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2, 3, 4):
        export(out, pa.table({"id": [number]}), mode="replace", run_id=f"r{number}")
    open_dataset(out).verify()
    first = out / "_manifests" / "000001.json"
    text = first.read_bytes()
    first.unlink()
    first.write_bytes(text.replace(b'"rows":1', b'"rows":2', 1))
    with pytest.raises(Damaged, match=r"000001\.json has sha256 [0-9a-f]{64}, not [0-9a-f]{64} as version 2 says"):
        open_dataset(out).verify()
    first.unlink()
    with pytest.raises(Damaged, match=r"000001\.json is missing"):
        open_dataset(out).verify()
