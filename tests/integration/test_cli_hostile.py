"""Bad input of every kind: one clear paragraph, the right exit code, and the user's folder as it was."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.command import Done, one_paragraph

if TYPE_CHECKING:
    from pathlib import Path

# One process runs all command lines in turn, as importing the command anew for each would take most of the time.
DRIVER = """
import contextlib, io, json, sys
from etl.cli.main import run

def one(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()

json.dump([one(arguments) for arguments in json.load(sys.stdin)], sys.stdout)
"""
ORDERS = ("export", "shop", "--table", "orders", "--to", "x")
SPLIT = ("--split", "a=0.5,b=0.5")
CASES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    # a column that is not there, in every flag that names columns
    ((*ORDERS, "--columns", "id,qti"), 2, "no column qti. Did you mean qty?"),
    ((*ORDERS, "--features", "qti"), 2, "--features: no column qti. Did you mean qty?"),
    ((*ORDERS, "--features", "qty", "--target", "nosuch"), 2, "--target: no column nosuch. The columns are id, qty"),
    ((*ORDERS, "--features", "qty", "--weight", "nosuch"), 2, "--weight: no column nosuch."),
    ((*ORDERS, "--key", "nosuch"), 2, "no column nosuch."),
    ((*ORDERS, *SPLIT, "--split-key", "nosuch"), 2, "--split-key: no column nosuch."),
    ((*ORDERS, "--partition-column", "nosuch"), 2, "no column nosuch."),
    ((*ORDERS, "--types", "nosuch=int64"), 2, "no column nosuch."),
    ((*ORDERS, "--columns", ""), 2, "--columns '' has an empty name"),
    ((*ORDERS, "--features", "qty,"), 2, "--features 'qty,' has an empty name"),
    # values and flags at odds
    ((*ORDERS, "--types", "qty=nosuch"), 2, "'nosuch' is not a type"),
    ((*ORDERS, "--types", "qty="), 2, "--types qty= names no type"),
    ((*ORDERS, "--features", "qty", "--dtype", "float99"), 2, "unknown dtype 'float99'. Did you mean float"),
    ((*ORDERS, "--features", "qty", "--target", "qty"), 2, "qty is both a feature and the target"),
    ((*ORDERS, "--features", "note"), 2, "column note among --features is TEXT (string), not a number"),
    ((*ORDERS, "--layout", "packed"), 2, "--layout packed needs --features"),
    ((*ORDERS, "--split-key", "id"), 2, "--split-key needs --split"),
    ((*ORDERS, "--split-salt", "z"), 2, "--split-salt needs --split"),
    ((*ORDERS, *SPLIT, "--split-key", "price"), 2, "price"),
    ((*ORDERS, "--split", "a=0.5,a=0.5", "--split-key", "id"), 2, "names a twice"),
    ((*ORDERS, "--nulls", "fill=abc"), 2, "fill=abc of column"),
    ((*ORDERS, "--format", "parquet", "--layout", "packed"), 2, "--layout"),
    ((*ORDERS, "--format", "parquet", "--dtype", "float32"), 2, "--dtype is for tensors"),
    ((*ORDERS, "--format", "parquet", "--nulls", "fill=0"), 2, "Parquet keeps NULL as NULL"),
    ((*ORDERS, "--partition-bytes", "0"), 2, "--partition-bytes"),
    ((*ORDERS, "--partition-bytes", "-1"), 2, "--partition-bytes"),
    ((*ORDERS, "--engine", "tcp://nowhere"), 2, "tcp://nowhere"),
    ((*ORDERS, "--mode", "append"), 2, "there is no dataset at"),
    # queries
    (("export", "shop", "--sql", " ", "--to", "x"), 2, "--sql is empty"),
    (("export", "shop", "--sql", "selec 1", "--to", "x"), 1, "syntax error"),
    (("export", "shop", "--sql", "select nosuch from orders", "--to", "x"), 1, "no such column: nosuch"),
    (("export", "shop", "--sql", "select 1; drop table orders", "--to", "x"), 2, "has 2 statements"),
    (("export", "shop", "--sql", "delete from orders", "--to", "x"), 2, "the query is a DELETE, not a read"),
    (("export", "shop", "--sql", "insert into orders values (9)", "--to", "x"), 2, "the query is an INSERT, not a"),
    (("export", "shop", "--sql", "select id, id from orders", "--to", "x"), 2, "columns 1 and 2 are both named id"),
    (("export", "shop", "--sql", 'select 1 as ""', "--to", "x"), 2, "a name is empty"),
    (("export", "shop", "--sql", "select :a", "--to", "x"), 2, "--param"),
    (("export", "shop", "--sql", "select 1", "--param", "b=1", "--to", "x"), 2, ":b is not in the query"),
    (("export", "shop", "--sql-file", "none.sql", "--to", "x"), 2, "none.sql cannot be read: No such file"),
    (("export", "shop", "--sql-file", "binary", "--to", "x"), 2, "binary cannot be read: it is not UTF-8 text"),
    (("export", "shop", "--sql-file", "folder", "--to", "x"), 2, "folder cannot be read: Is a directory"),
    (("export", "shop", "--sql-file", "empty", "--to", "x"), 2, "--sql-file is empty"),
    # stores
    (("export", "sqlite:///none.db", "--table", "a", "--to", "x"), 2, "there is no SQLite file"),
    (("export", "sqlite:///folder", "--table", "a", "--to", "x"), 2, "folder"),
    (("export", "sqlite:///binary", "--table", "a", "--to", "x"), 1, "file is not a database"),
    (("export", "sqlite:///empty", "--table", "a", "--to", "x"), 1, "no such table: a. There are no tables."),
    (("export", "sqlite://", "--table", "a", "--to", "x"), 2, "names no SQLite file"),
    (("export", "nosuch://h/a", "--table", "a", "--to", "x"), 2, "unknown scheme 'nosuch'"),
    (("inspect", "nosuch"), 2, "nosuch"),
    (("inspect", "shop", "--table", "nosuch"), 1, "nosuch"),
    (("inspect", "shop", "--rows", "-1"), 2, "--rows"),
    # targets
    ((*ORDERS[:4], "--to", "note.txt"), 2, "note.txt is a file"),
    ((*ORDERS[:4], "--to", "note.txt/x"), 2, "in the path of the target"),
    ((*ORDERS[:4], "--to", "shop.db", "--mode", "replace"), 2, "shop.db is a file"),
    ((*ORDERS[:4], "--to", "foreign"), 2, "foreign holds files that are no cuETL dataset (mine.csv)"),
    ((*ORDERS[:4], "--to", "foreign", "--mode", "replace"), 2, "holds files that are no cuETL dataset"),
    ((*ORDERS[:4], "--to", "."), 2, "holds files that are no cuETL dataset"),
    ((*ORDERS[:4], "--to", "link"), 2, "link is a symbolic link"),
    ((*ORDERS[:4], "--to", "/proc"), 2, "mount point"),
    ((*ORDERS[:4], "--to", " "), 2, "--to is empty"),
    ((*ORDERS, "--to", "x/y"), 2, "x/y lies inside"),
    ((*ORDERS[:4], "--to", "x/y", "--to", "./x"), 2, "x/y lies inside"),
    ((*ORDERS[:4], "--to", "made/in"), 2, "made/in lies inside the dataset"),
    ((*ORDERS[:4], "--to", "made"), 2, "made is a dataset already"),
    # datasets
    (("dataset", "verify", "foreign"), 1, "foreign holds no dataset"),
    (("dataset", "verify", "note.txt"), 1, "note.txt is a file, not a dataset"),
    (("dataset", "show", "none"), 1, "none is not there"),
    (("dataset", "verify", "mars://b/x"), 2, "mars:// is a storage that nothing"),
)


def tree(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()  # noqa: PTH115
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def run_all(lines: list[list[str]], folder: Path) -> list[Done]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUETL_", "PG"))}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps(lines), cwd=folder, env=clean,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Done(*one) for one in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Done]:
    """What each command line of `CASES` said, after a check that none of them changed the folder."""
    home = tmp_path_factory.mktemp("hostile")
    with closing(sqlite3.connect(home / "shop.db")) as database:
        database.executescript(
            """
            create table orders (id integer primary key, qty integer, price real, note text);
            insert into orders values (1, 2, 9.99, 'a'), (2, null, 1.5, null);
            """
        )
    (home / "cuetl.toml").write_text('[connections.shop]\nurl = "sqlite:///shop.db"\n', encoding="utf-8")
    (home / "note.txt").write_text("mine", encoding="utf-8")
    (home / "empty").write_bytes(b"")
    (home / "binary").write_bytes(bytes(range(256)) * 16)
    for name in ("folder", "foreign"):
        (home / name).mkdir()
    (home / "foreign" / "mine.csv").write_text("1,2\n", encoding="utf-8")
    (home / "link").symlink_to("foreign")
    made = run_all([[*ORDERS[:4], "--to", "made", "--format", "parquet", "--quiet"]], home)
    assert made == [Done(0, "", made[0].err)]
    before = tree(home)
    found = run_all([list(arguments) for arguments, _, _ in CASES], home)
    assert tree(home) == before
    assert sorted(path.name for path in home.iterdir() if path.name.startswith((".", "x"))) == []
    return {arguments: one for (arguments, _, _), one in zip(CASES, found, strict=True)}


@pytest.mark.parametrize(
    ("arguments", "code", "said"), CASES, ids=lambda one: " ".join(one) if isinstance(one, tuple) else ""
)
def test_bad_input_is_one_paragraph_with_its_exit_code(
    answers: dict[tuple[str, ...], Done], arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = answers[arguments]
    assert said in one_paragraph(done.err)
    assert (done.code, done.out) == (code, "")
