"""Datasets on a real S3 server, by the commands and in Python."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from pyarrow import fs

from etl.core.errors import ConfigError, Damaged, DatasetError
from etl.core.secrets import keep_inline
from etl.tensors import operations
from etl.tensors.arrow_files import ArrowFiles, UrlOpening
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions
from etl.tensors.places import Place
from tests.command import cuetl, one_paragraph
from tests.datasets import begin, export

if TYPE_CHECKING:
    from pathlib import Path

    from etl.tensors.options import Format
    from tests.servers.s3 import S3Server

pa: Any = arrow  # the stubs do not know short lists as columns

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]

ALL: tuple[Format, ...] = ("parquet", "safetensors", "npy", "torch", "tfrecord")


def place(s3: S3Server, path: str, *, secret: str | None = None, endpoint: str | None = None) -> Place:
    options = (
        ("endpoint", endpoint or s3.endpoint),
        ("access_key", keep_inline(s3.key)),
        ("secret_key", keep_inline(secret or s3.secret)),
    )
    return Place(ArrowFiles(UrlOpening("s3", "", options)), path, f"s3://{path}")


def table(rows: int, start: int = 0) -> Any:
    ids = np.arange(start, start + rows)
    return pa.table({"id": ids, "v": ids * 0.5})


def test_the_server_takes_the_right_key_only(s3: S3Server) -> None:
    folder = s3.folder()
    with pytest.raises(OSError, match=r"(?i)denied|signature|forbidden"):
        s3.filesystem(secret="wrong").open_output_stream(f"{folder}/one").close()
    with pytest.raises(ConfigError, match="cannot write to s3://") as refused:
        begin(place(s3, f"{folder}/out", secret="wrong"), table(1))
    assert "wrong" not in str(refused.value)
    with pytest.raises(DatasetError, match="cannot write to s3://nobucketofthisname"):
        begin(place(s3, "nobucketofthisname/out"), table(1))


def test_export_replace_append_and_the_dataset_commands_work_on_s3(s3: S3Server, tmp_path: Path, cache: Path) -> None:
    folder = s3.folder()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("create table orders (id integer primary key, v real, name text)")
        db.executemany("insert into orders values (?, ?, ?)", [(i, i / 2, f"n{i}") for i in range(5000)])
    (tmp_path / "cuetl.toml").write_text(s3.settings(), encoding="utf-8")
    env = {**s3.variables(), "CUETL_CACHE": str(cache)}
    to = f"s3://{folder}/a b/out"
    reading = ("export", "sqlite:///shop.db", "--table", "orders", "--to", to, "--json")

    def tell(*words: str) -> Any:
        done = cuetl(*words, cwd=tmp_path, env=env)
        assert done.code == 0, done.err
        return done.json if "--json" in words else done.out

    plan = tell(*reading, "--plan")
    assert plan["targets"][0]["commit"]["kind"] == "manifest"
    made = tell(*reading)
    assert (made["version"], made["rows"]) == (1, 5000)
    assert "one_writer" in {w["code"] for w in made["warnings"]}
    refused = cuetl(*reading, cwd=tmp_path, env=env)
    assert refused.code == 2
    assert "is a dataset already" in refused.err
    assert tell(*reading, "--mode", "append")["rows"] == 10_000
    assert tell(*reading, "--mode", "replace", "--partitions", "3")["version"] == 3
    assert tell("dataset", "verify", to, "--json")["rows"] == 5000
    assert tell("dataset", "rollback", to, "--json")["restores"] == 2
    assert "versions: 4 (rollback)" in tell("dataset", "show", to)
    assert tell("dataset", "vacuum", to, "--keep", "1", "--json")["files"] == 2  # tensors, and the text beside them
    wrong = cuetl("dataset", "show", to, cwd=tmp_path, env={**env, "TEST_S3_SECRET": "not-this-one"})
    assert wrong.code == 1
    assert "not-this-one" not in one_paragraph(wrong.err)
    ds = open_dataset(place(s3, f"{folder}/a b/out"))
    assert sorted(ds.tensors()["id"].tolist()) == sorted([*range(5000)] * 2)
    assert s3.filesystem().get_file_info(f"{folder}/a b/out/_lock").type == fs.FileType.NotFound


@pytest.mark.parametrize("fmt", ALL)
def test_every_format_is_written_and_compared_on_s3(s3: S3Server, fmt: Format) -> None:
    out = place(s3, f"{s3.folder()}/out")
    options = WriteOptions(order="shuffle", seed=1, cast="exact" if fmt != "tfrecord" else "round")
    export(out, table(3000), parts=3, fmt=fmt, options=options)
    export(out, table(0), fmt=fmt, mode="replace", run_id="r2", options=options)
    assert len(open_dataset(out)) == 0
    assert operations.rollback(out).version == 3
    found = open_dataset(out)
    found.verify()
    assert len(found) == 3000
    if fmt == "parquet":
        ids: Any = found.table().column("id").to_pylist()
        assert sorted(ids) == [*range(3000)]
    elif fmt != "tfrecord":
        batches = list(found.loader(256, shuffle=True, seed=1))
        assert sorted(i for b in batches for i in b["id"].tolist()) == [*range(3000)]


def test_a_file_of_several_parts_arrives_whole_and_damage_there_is_named(s3: S3Server, cache: Path) -> None:
    folder = s3.folder()
    out = place(s3, f"{folder}/out")
    rows = 1 << 20
    export(out, table(rows), fmt="safetensors")
    found = open_dataset(out, verify="sha256")
    assert found.manifest.files[0].bytes > 15_000_000  # three of the parts that S3 takes at least
    assert float(found.tensors()["v"].sum()) == (rows - 1) * rows / 4
    fetched = [p for p in cache.rglob("*.safetensors") if p.is_file()]
    assert len(fetched) == 1
    path = f"{folder}/out/{found.manifest.files[0].path}"
    reached = s3.filesystem()
    with reached.open_input_stream(path) as file:
        data = bytearray(file.read())
    data[-1] ^= 1
    with reached.open_output_stream(path) as file:
        file.write(bytes(data))
    with pytest.raises(Damaged, match=r"has sha256 [0-9a-f]{64}, not"):
        found.verify()
    with reached.open_output_stream(path) as file:
        file.write(bytes(data[:5000]))
    with pytest.raises(Damaged, match="has 5000 bytes, not"):
        open_dataset(out)
    reached.delete_file(path)
    with pytest.raises(Damaged, match="is missing"):
        open_dataset(out)


def test_a_server_that_does_not_answer_is_one_clear_error(s3: S3Server) -> None:
    with pytest.raises(ConfigError, match="cannot write to s3://b/out"):
        begin(place(s3, "b/out", endpoint="http://127.0.0.1:9"), table(1))
