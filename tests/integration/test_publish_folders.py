"""What a commit does to the folder: foreign files stay, readers see one version, full disks and races leave nothing."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest

from etl.core.errors import (
    CommitConflict,
    ConfigError,
    CountMismatch,
    Damaged,
    DatasetError,
    EtlError,
    SchemaError,
)
from etl.core.partition import Pages, Partition
from etl.tensors import stages
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from etl.tensors.sink import DatasetSession, DatasetSink
from tests.datasets import begin, cut, export, requires, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connectors.base import Mode, Staged
    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


TABLE = pa.table({"a": list(range(100)), "t": ["x"] * 100})
APART = WriteOptions(partition_bytes=1)
"""No two parts share a file."""


def hidden(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]


def staged(session: DatasetSession, table: Any = TABLE, parts: int = 2, attempt: int = 1) -> list[Staged]:
    return [session.stage(Partition(i, Pages(i, i + 1)), attempt, iter(b)) for i, b in enumerate(cut(table, parts))]


def test_versions_follow_one_another_and_old_ones_stay_readable(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    export(out, TABLE)
    export(out, TABLE.slice(0, 10), mode="append", run_id="r2")
    export(out, TABLE.slice(0, 5), mode="replace", run_id="r3")
    assert [len(open_dataset(out, v, "sha256")) for v in (1, 2, 3, None)] == [100, 110, 5, 5]
    assert pq.read_table(out).num_rows == 5
    manifest = open_dataset(out).manifest.document
    assert (manifest["version"], manifest["parent"], manifest["operation"]) == (3, 2, "replace")
    assert (out / "_manifest.json").read_bytes() == (out / "_manifests" / "000003.json").read_bytes()
    ids = {json.loads(p.read_bytes())["dataset_id"] for p in (out / "_manifests").iterdir()}
    assert len(ids) == 1
    retired = sorted(p.name for p in (out / "_retired").iterdir())
    assert retired == ["part-r1-00000-1-000.parquet.old", "part-r2-00000-1-000.parquet.old"]
    with pytest.raises(DatasetError, match="no version 9"):
        open_dataset(out, 9)


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: many commits would wait for the disk many times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_reader_that_lists_the_folder_never_sees_a_mixture(memory_path: Path) -> None:
    out = memory_path / "out"
    export(out, pa.table({"g": [0] * 50}), 5, batch_rows=10, options=APART)
    # A process of its own, so that it does not wait for the writer's interpreter lock.
    look = (
        "import os, sys\n"
        "looks, bad = 0, []\n"
        "while not os.path.exists(sys.argv[2]):\n"
        "    with os.scandir(sys.argv[1]) as entries:\n"
        "        names = sorted(e.name for e in entries if e.name.endswith('.parquet'))\n"
        "    looks += 1\n"
        "    if len(names) != 5 or len({n.split('-')[1] for n in names}) != 1:\n"
        "        bad.append(names)\n"
        "print(looks, bad[:3])\n"
    )
    stop = memory_path / "stop"
    with subprocess.Popen(
        [sys.executable, "-c", look, str(out), str(stop)], stdout=subprocess.PIPE, text=True
    ) as reader:
        try:
            for g in range(1, 201):
                export(out, pa.table({"g": [g] * 50}), 5, mode="replace", run_id=f"g{g}", batch_rows=10, options=APART)
        finally:
            stop.touch()
            said = reader.communicate(timeout=20)[0]
    looks, _, bad = said.partition(" ")
    assert bad.strip() == "[]"
    assert int(looks) > 200
    assert len(open_dataset(out, verify="sha256")) == 50


def test_foreign_files_in_a_dataset_stay_where_they_are(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    (out / "sub").mkdir()
    (out / "sub" / "more").write_text("mine too", encoding="utf-8")
    (out / "empty").mkdir()
    (out / "link").symlink_to("notes.txt")
    for mode, run in (("replace", "r2"), ("append", "r3")):
        export(out, TABLE, mode=mode, run_id=run)  # type: ignore[arg-type]
        assert (out / "notes.txt").read_text(encoding="utf-8") == "mine"
        assert (out / "sub" / "more").read_text(encoding="utf-8") == "mine too"
        assert (out / "empty").is_dir()
        assert (out / "link").readlink() == Path("notes.txt")


@pytest.mark.parametrize("mode", ["create", "replace", "append"])
def test_targets_that_are_not_ours_are_refused_and_left_alone(tmp_path: Path, mode: str) -> None:
    schema = schema_of(TABLE)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "data.csv").write_text("1", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "foreign")
    cases = {
        "file": "is a file",
        "file/below": "is a file",
        "foreign": r"no cuETL dataset \(data\.csv\)",
        "link": "symbolic link",
        os.fsdecode(b"no\xfftext"): "is not UTF-8",
    }
    for name, words in cases.items():
        with pytest.raises(ConfigError, match=words):
            DatasetSink(str(tmp_path / name), "parquet").check(schema, mode)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mars:// is a storage that nothing"):
        DatasetSink("mars://bucket/out", "parquet").check(schema, mode)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mount point"):
        DatasetSink("/proc", "parquet").check(schema, mode)  # type: ignore[arg-type]
    assert (tmp_path / "foreign" / "data.csv").read_text(encoding="utf-8") == "1"
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("mode", ["create", "replace"])
@pytest.mark.parametrize("below", ["in", "sub/in", "_manifests/in"])
def test_a_dataset_inside_another_is_refused(tmp_path: Path, mode: Mode, below: str) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    with pytest.raises(ConfigError, match=r"lies inside the dataset .*out"):
        export(out / below, TABLE, mode=mode, run_id="r2")
    assert len(open_dataset(out, verify="sha256")) == 100
    assert not (out / below).exists()
    # A file of that name that is not ours does not make a dataset of the folder.
    (tmp_path / "_manifest.json").write_text("{}", encoding="utf-8")
    export(tmp_path / "beside", TABLE, mode=mode, run_id="r3")


def test_modes_are_held_to_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"no dataset at .* to append"):
        export(out, TABLE, mode="append")
    out.mkdir()
    export(out, TABLE)
    with pytest.raises(ConfigError, match=r"is a dataset already .version 1, 100 rows"):
        export(out, TABLE)
    other = pa.table({"a": pa.array([1], pa.int32()), "new": [1]})
    with pytest.raises(SchemaError, match="t is missing; new is new; a has dtype int32, the dataset int64"):
        export(out, other, mode="append")
    with pytest.raises(ConfigError, match=r"has the split none, not hash of a, b 1\. Append"):
        export(out, TABLE, mode="append", options=WriteOptions(split={"b": "1"}, split_key=("a",)))
    with pytest.raises(ConfigError, match="holds parquet files"):
        export(out, TABLE, fmt="safetensors", mode="append")
    assert len(open_dataset(out, verify="sha256")) == 100
    assert hidden(tmp_path) == []


def test_counts_that_differ_publish_nothing(tmp_path: Path) -> None:
    session = begin(tmp_path / "out", TABLE)
    parts = staged(session)
    asked = requires(parts, "r1")
    with pytest.raises(CountMismatch, match="counted 101 rows in the snapshot"):
        session.commit(parts, requires=requires(parts, "r1", rows=101))
    with pytest.raises(CountMismatch, match=r"partition 1 of .* was not written"):
        session.commit(parts[:1], requires=asked)
    short = session.stage(parts[0].part, 2, iter(cut(TABLE, 2)[0][:0]))
    with pytest.raises(CountMismatch, match="partition 0"):
        session.commit([*parts, short], requires=asked)
    assert not (tmp_path / "out").exists()
    session.abort()
    session.abort()
    assert hidden(tmp_path) == []


def test_only_the_newest_attempt_is_published_and_a_doubled_one_is_harmless(tmp_path: Path) -> None:
    session = begin(tmp_path / "out", TABLE, options=APART)
    first, doubled, second = staged(session), staged(session), staged(session, attempt=2)
    made = session.commit([second[0], first[0], doubled[0], second[1], first[1]], requires=requires(second, "r1"))
    assert (made.rows, made.files) == (100, 2)
    names = sorted(p.name for p in (tmp_path / "out").iterdir() if not p.name.startswith("_"))
    assert names == ["part-r1-00000-2-000.parquet", "part-r1-00001-2-000.parquet"]
    assert hidden(tmp_path) == []


def test_a_run_that_was_overtaken_fails_and_an_append_goes_on_top(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    late, more = begin(out, TABLE, mode="replace", run_id="r2"), begin(out, TABLE, mode="append", run_id="r3")
    one, other = staged(late), staged(more)
    export(out, TABLE.slice(0, 7), mode="append", run_id="r4")
    with pytest.raises(CommitConflict, match=r"version 2 of .* begun at version 1"):
        late.commit(one, requires=requires(one, "r2"))
    late.abort()
    assert more.commit(other, requires=requires(other, "r3")).rows == 207
    assert len(open_dataset(out, verify="sha256")) == 207


def test_a_failed_part_leaves_no_file(tmp_path: Path) -> None:
    session = begin(tmp_path / "out", TABLE, options=WriteOptions(row_group_rows=10))

    def broken() -> Iterator[Any]:
        yield cut(TABLE, 1)[0][0]
        raise ConnectionResetError("gone")

    with pytest.raises(DatasetError, match="gone"):
        session.stage(Partition(0, Pages(0, 1)), 1, broken())
    assert [p.name for p in session.folder.iterdir()] == [stages.OWNER]
    session.abort()


def test_stages_of_living_runs_stay_and_those_of_dead_ones_go(tmp_path: Path) -> None:
    out = tmp_path / "out"
    living = begin(out, TABLE, run_id="alive")
    code = (
        "import sys, pyarrow as pa; from pathlib import Path; from tests.datasets import begin;"
        "begin(Path(sys.argv[1]), pa.table({'a': [1], 't': ['x']}), run_id='dead')"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=Path(__file__).parents[2], check=True, timeout=60)
    assert sorted(hidden(tmp_path)) == [".out.cuetl-alive", ".out.cuetl-dead"]
    begin(out, TABLE, run_id="next").abort()
    assert hidden(tmp_path) == [".out.cuetl-alive"]
    with pytest.raises(ConfigError, match="another run named alive"):
        begin(out, TABLE, run_id="alive")
    living.abort()


def test_old_trees_go_when_nobody_can_be_reading_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    export(out, TABLE, mode="replace", run_id="r2")
    begin(out, TABLE, mode="replace", run_id="r3").abort()
    assert hidden(tmp_path) == [".out.cuetl-r2"]
    monkeypatch.setattr(stages, "OLD_TREE_SECONDS", -1)
    begin(out, TABLE, mode="replace", run_id="r3").abort()
    assert hidden(tmp_path) == []
    assert [len(open_dataset(out, v, "sha256")) for v in (1, 2)] == [100, 100]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import sys, resource, signal; import numpy as np, pyarrow as pa; from pathlib import Path\n"
        "from tests.datasets import export\n"
        "from etl.core.errors import DatasetError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "table = pa.table({'a': np.random.default_rng(1).integers(0, 2**62, 200_000)})\n"
        "try:\n"
        "    export(Path(sys.argv[1]), table, fmt=sys.argv[2], batch_rows=50_000)\n"
        "except DatasetError as error:\n"
        "    print(error)\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    for fmt in ("parquet", "safetensors"):
        ran = subprocess.run(
            [sys.executable, "-c", code, str(out), fmt],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert "cannot write partition 0" in ran.stdout
        assert "File too large" in ran.stdout
        assert list(tmp_path.iterdir()) == []


def test_verify_names_each_bad_file_with_both_hashes(tmp_path: Path) -> None:
    for fmt in ("parquet", "safetensors"):
        out = tmp_path / fmt
        export(out, TABLE, 3, fmt=fmt, options=APART)
        flipped, short, missing = (out / f.path for f in open_dataset(out).manifest.files)
        blob = bytearray(flipped.read_bytes())
        blob[len(blob) // 2] ^= 1
        flipped.write_bytes(blob)
        open_dataset(out, verify="size")
        with pytest.raises(Damaged, match=rf"{flipped.name} has sha256 [0-9a-f]{{64}}, not [0-9a-f]{{64}}"):
            open_dataset(out, verify="sha256")
        short.write_bytes(short.read_bytes()[:-1])
        missing.unlink()
        with pytest.raises(Damaged) as damaged:
            open_dataset(out)
        assert short.name in str(damaged.value)
        assert f"{missing.name} is missing" in str(damaged.value)
        assert damaged.value.exit_code == 4
        open_dataset(out, verify="none")


@pytest.mark.parametrize("fmt", ["parquet", "safetensors"])
def test_a_data_file_that_is_not_of_the_dataset_is_found(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    export(out, TABLE, fmt=fmt)
    export(out, TABLE, fmt=fmt, mode="replace", run_id="r2")
    for name in ("notes.txt", f"_hidden.{fmt}", f".hidden.{fmt}"):
        (out / name).write_text("mine", encoding="utf-8")
    for version in (1, 2):
        open_dataset(out, version, verify="sha256")
    (file,) = open_dataset(out).manifest.files
    for stray in (f"part-00007.{fmt}", f"day=1/part.{fmt}"):
        (out / stray).parent.mkdir(exist_ok=True)
        shutil.copyfile(out / file.path, out / stray)
        with pytest.raises(Damaged, match=f"{stray} is not of this dataset"):
            open_dataset(out, verify="sha256")
        (out / stray).unlink()


def test_a_manifest_that_is_changed_is_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    export(out, TABLE, mode="append", run_id="r2")
    first = out / "_manifests" / "000001.json"
    text = first.read_bytes()
    first.unlink()
    first.write_bytes(text.replace(b'"rows":100', b'"rows":101'))
    with pytest.raises(Damaged, match=r"000001\.json has sha256"):
        open_dataset(out, verify="sha256")
    (out / "_manifest.json").write_bytes(b"{")
    with pytest.raises(Damaged, match="not JSON"):
        open_dataset(out)
    with pytest.raises(DatasetError, match=r"holds no dataset|is not there"):
        open_dataset(tmp_path / "nothing")


def test_a_manifest_for_a_newer_reader_is_refused_and_unknown_fields_are_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, TABLE)
    document = json.loads((out / "_manifest.json").read_bytes())
    for change, fine in (({"colour": "red"}, True), ({"min_reader": 2}, False)):
        (out / "_manifest.json").write_text(json.dumps({**document, **change}), encoding="utf-8")
        if fine:
            assert open_dataset(out).manifest.document["colour"] == "red"
        else:
            with pytest.raises(DatasetError, match="layout 2"):
                open_dataset(out)


@pytest.mark.parametrize("fmt", ["parquet", "safetensors"])
def test_a_manifest_with_any_field_gone_or_of_another_kind_is_damaged_or_harmless(tmp_path: Path, fmt: Format) -> None:
    out = tmp_path / "out"
    options = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("a",))
    export(out, TABLE, fmt=fmt, options=options)
    whole = (out / "_manifest.json").read_bytes()
    for path in list(fields(json.loads(whole))):
        for value in (..., None, "x", -1, True, [None], {"a": 1}, "../out", 10**400):
            document = json.loads(whole)
            place = document
            for key in path[:-1]:
                place = place[key]
            if value is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            (out / "_manifest.json").write_text(json.dumps(document), encoding="utf-8")
            # Any other exception fails the test.
            with contextlib.suppress(EtlError):
                found = open_dataset(out, verify="none")
                found.summary()
                for name in found.splits if fmt == "safetensors" else ():
                    found.split(name).tensors()
                found.verify("size")
            with contextlib.suppress(EtlError):
                DatasetSink(str(out), fmt, options).check(schema_of(TABLE), "append")


def fields(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all fields of a document."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from fields(one, (*at, key))


def test_splits_of_a_dataset_are_disjoint_complete_and_stay_over_appends(tmp_path: Path) -> None:
    options = WriteOptions(split={"train": "0.8", "val": "0.1", "test": "0.1"}, split_key=("a",))
    sides = []
    for parts in (1, 5):
        out = tmp_path / str(parts)
        export(out, TABLE, parts, options=options)
        export(out, TABLE, parts, options=options, mode="append", run_id="r2")
        found = {}
        for name in open_dataset(out, verify="sha256").splits:
            files = open_dataset(out).split(name).files
            assert all(f.path.startswith(f"{name}-") for f in files)
            found[name] = {v for f in files for v in pq.read_table(out / f.path).column("a").to_pylist()}
        assert list(found) == ["train", "val", "test"]
        assert set.union(*found.values()) == set(range(100))
        assert sum(map(len, found.values())) == 100
        sides.append(found)
    assert sides[0] == sides[1]


@pytest.mark.parametrize("fmt", ["parquet", "safetensors"])
def test_many_small_parts_become_few_files_in_row_order(tmp_path: Path, fmt: Format) -> None:
    rows = 2000
    table = pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int64()),
            "t": pa.array([None if i % 5 == 0 else str(i) for i in range(rows)]),
            "l": pa.array([[i] * (i % 3) for i in range(rows)], pa.list_(pa.int32())),
        }
    )
    options = WriteOptions(split={"train": "0.7", "val": "0.3"}, split_key=("t",), null_key="own_group")
    for name, parts in (("many", 200), ("one", 1)):
        export(tmp_path / name, table, parts, fmt=fmt, options=options)
    many, one = (open_dataset(tmp_path / n, verify="sha256") for n in ("many", "one"))
    assert [f.split for f in many.manifest.files] == ["train", "val"]
    assert len(many.manifest.files[0].partitions) > 150
    if fmt == "safetensors":
        assert [f.sha256 for f in many.manifest.files] == [f.sha256 for f in one.manifest.files]
    for ours, theirs in zip(many.manifest.files, one.manifest.files, strict=True):
        paths = [(d.path / (f.text_file.path if f.text_file else f.path)) for d, f in ((many, ours), (one, theirs))]
        left, right = (pq.read_table(p) for p in paths)
        assert left.equals(right)
        assert ours.rows == theirs.rows == left.num_rows
    left_over = [p.name for p in (tmp_path / "many").iterdir() if not p.name.startswith("_")]
    assert sorted(left_over) == sorted(f.path for f in many.manifest.files)
