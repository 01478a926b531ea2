"""`init`, `demo`, `inspect`, `dataset` and `doctor`, one after another as a newcomer runs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.command import ROOT, cuetl, one_paragraph

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after `cuetl init` and `cuetl demo`."""
    folder = tmp_path_factory.mktemp("home")
    assert cuetl("init", cwd=folder).code == 0
    done = cuetl("demo", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert "etl.open_dataset(" in done.out
    return folder


def test_init_keeps_what_exists(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".gitignore").write_text("mine\n")
    done = cuetl("init", "new", cwd=tmp_path)
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[:2]] == [
        ["wrote", "new/cuetl.toml"],
        ["kept", "new/.gitignore"],
    ]
    assert (tmp_path / "new" / ".gitignore").read_text() == "mine\n"


def test_init_says_why_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cuetl("init", "file", cwd=tmp_path)
    assert done.code == 2
    assert "file cannot be written" in one_paragraph(done.err)


def test_the_demo_again_makes_the_next_version(home: Path) -> None:
    before = cuetl("dataset", "show", "cuetl-demo/orders", "--json", cwd=home).json
    again = cuetl("demo", "--json", cwd=home).json
    assert [one["format"] for one in again["datasets"]] == ["safetensors", "parquet"]
    after = cuetl("dataset", "show", "cuetl-demo/orders", "--json", cwd=home).json
    assert after["version"] == before["version"] + 1
    assert after["content_sha256"] == before["content_sha256"] or after["rows"] == before["rows"]
    for name in ("features", "orders"):
        assert cuetl("dataset", "verify", f"cuetl-demo/{name}", cwd=home).code == 0


def test_the_lines_the_demo_prints_run(home: Path) -> None:
    out = cuetl("demo", cwd=home).out
    code = "\n".join(line.strip() for line in out.partition("in Python:")[2].splitlines() if line.strip())
    assert len(code.splitlines()) == 3
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_demo_names_a_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cuetl("demo", "--to", "file", cwd=tmp_path)
    assert done.code == 2
    assert "file" in one_paragraph(done.err)
    assert (tmp_path / "file").read_text() == ""


def test_inspect_lists_tables_with_sizes(home: Path) -> None:
    done = cuetl("inspect", "shop", cwd=home)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["table", "kind", "rows", "size"]
    tables = cuetl("inspect", "shop", "--json", cwd=home).json["tables"]
    assert {"orders", "users", "items"} <= {one["name"] for one in tables}


def test_inspect_shows_columns_with_types_nulls_and_rows(home: Path) -> None:
    found = cuetl("inspect", "shop", "--table", "orders", "--rows", "3", "--json", cwd=home).json
    columns = {one["name"]: one for one in found["columns"]}
    assert columns["price"]["arrow_type"] == "decimal128(10, 2)"
    assert columns["price"]["tensor_dtype"] == "int64"
    assert columns["order_id"]["null_share"] == 0
    assert 0 < columns["note"]["null_share"] < 1
    assert len(found["sample"]) == 3
    assert len(found["sample"][0]) == len(columns)
    shown = cuetl("inspect", "shop", "--sql", "select 1 as one, null as absent", cwd=home)
    assert shown.code == 0, shown.err
    assert "absent" in shown.out


def test_inspect_names_a_table_that_is_not_there(home: Path) -> None:
    done = cuetl("inspect", "shop", "--table", "ordrs", cwd=home)
    assert done.code == 1
    assert "ordrs" in one_paragraph(done.err)


def test_dataset_show_reads_like_a_report(home: Path) -> None:
    done = cuetl("dataset", "show", "cuetl-demo/features", cwd=home)
    assert done.code == 0, done.err
    assert "rows: 20 000" in done.out
    assert "train 1" in done.out
    assert "user_id" in done.out
    stored = cuetl("dataset", "show", "cuetl-demo/orders", cwd=home)
    head = next(line for line in stored.out.splitlines() if line.startswith("name "))
    assert head.split() == ["name", "nullable", "arrow", "type", "source", "type", "nulls"]
    whole = cuetl("dataset", "verify", "cuetl-demo/orders", cwd=home)
    assert "is whole (179 000 rows, every file compared by sha256)" in whole.out


@pytest.mark.parametrize("flags", [[], ["--size"]])
def test_a_missing_file_is_found_and_named(home: Path, tmp_path: Path, flags: list[str]) -> None:
    copy = shutil.copytree(home / "cuetl-demo" / "orders", tmp_path / "copy")
    first = min(copy.glob("*.parquet"))
    first.unlink()
    done = cuetl("dataset", "verify", "copy", *flags, cwd=tmp_path)
    assert done.code == 4
    assert first.name in one_paragraph(done.err)


def test_a_flipped_byte_is_found_by_hash_and_not_by_size(home: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(home / "cuetl-demo" / "features", tmp_path / "copy")
    first = min(copy.glob("*.safetensors"))
    blob = bytearray(first.read_bytes())
    blob[len(blob) // 2] ^= 1
    first.write_bytes(blob)
    assert cuetl("dataset", "verify", "copy", "--size", cwd=tmp_path).code == 0
    done = cuetl("dataset", "verify", "copy", "--json", cwd=tmp_path)
    assert (done.code, done.out) == (4, "")
    assert first.name in one_paragraph(done.err)


def test_a_folder_without_a_dataset_is_named(tmp_path: Path) -> None:
    done = cuetl("dataset", "show", "nothing", cwd=tmp_path)
    assert done.code == 1
    assert "nothing" in one_paragraph(done.err)


def test_doctor_reports_and_its_exit_code_says_whether_to_mend(home: Path) -> None:
    done = cuetl("doctor", "--json", cwd=home)
    found = {one["what"]: one for one in done.json["findings"]}
    assert found["Python"]["verdict"] == "ok"
    assert found["connection shop"]["verdict"] == "ok"
    assert "SQLite" in found["connection shop"]["said"]
    assert done.code == (1 if any(one["verdict"] == "bad" for one in found.values()) else 0)


@pytest.mark.slow
def test_doctor_compiles_the_decoder_where_that_was_not_done(tmp_path: Path) -> None:
    package = tmp_path / "fresh"
    shutil.copytree(ROOT / "connectors", package / "connectors", ignore=shutil.ignore_patterns("__pycache__"))
    env = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(package)}
    said = []
    for _ in range(2):
        found = cuetl("doctor", "--json", cwd=tmp_path, env=env).json["findings"]
        said += [one["said"] for one in found if (one["what"], one["verdict"]) == ("decoder", "ok")]
    assert len(said) == 2
    assert said[0].startswith("compiled now in ")
    assert said[1] == "compiled"


def test_doctor_finds_a_connection_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "cuetl.toml").write_text(
        '[connections.lost]\nurl = "sqlite:///none.db"\n[connections.odd]\nurl = "nosuch://h/a"\n'
    )
    done = cuetl("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "connection lost" in done.err
    assert "unknown scheme 'nosuch'" in done.err


def test_doctor_finds_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "cuetl.toml").write_text("[connection]\n")
    done = cuetl("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "Did you mean connections?" in done.err
