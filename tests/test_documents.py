"""What the documents say is true here: their commands run, their paths exist."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from etl.cli.main import app
from tests.command import cuetl

if TYPE_CHECKING:
    from tests.servers.postgresql import PostgresDatabase

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md", *PAGES)
ORDERS = """create table orders as select g as order_id, g % 700 as user_id, (g % 9)::int4 as qty,
 (g % 1000 / 4.0)::float8 as price, (g % 5 = 0)::int4 as returned, timestamptz '2026-01-01 00:00:00+00'
 + g * interval '1 minute' as at, case when g % 11 = 0 then null else 'note ' || g end as note
 from generate_series(1, 5000) g"""


def fenced(document: str, language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS[:3])
def test_every_path_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:etl|connectors|tests|sql|benchmarks|\.ci)/[\w./-]*)`", text))
    assert named, document
    assert sorted(path for path in named if not (ROOT / path).exists() and path != "etl/_sql") == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_of_a_document_leads_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / document).read_text())
    files = [link.partition("#")[0] for link in links if "://" not in link]
    assert sorted(path for path in files if not ((ROOT / document).parent / path).exists()) == []


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    links = set(re.findall(r"\]\((docs/[^)\s]+)\)", (ROOT / "README.md").read_text()))
    assert links == set(PAGES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_flag_and_command_of_cuetl_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    commands = {" ".join(words) for words in every_command(get_command(app))}
    known = {flag for command in every_command(get_command(app)).values() for flag in command}
    said = re.findall(r"(?:^|`)cuetl ((?:dataset )?[a-z]+)\b", text, re.MULTILINE)
    assert sorted(set(said) - commands) == []
    flags = re.findall(r"`(--[a-z-]+)", text) if document in ("README.md", *PAGES) else []
    assert sorted(set(flags) - known) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_extra_that_a_document_names_exists(document: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"(?:cuetl|'\.)\[(\w+)\]", (ROOT / document).read_text())
    assert sorted(set(named) - set(extras)) == []


def every_command(command: Any, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], set[str]]:
    """Words of a command → its flags, of all commands below this one."""
    found = {words: {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}}
    for name, one in getattr(command, "commands", {}).items():
        found |= every_command(one, (*words, name))
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_verb_that_a_document_names_exists(document: str) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / document).read_text()
    code = [*re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE), *re.findall(r"`[^`\n]+`", text)]
    named = {verb for one in code for verb in re.findall(r"(?:^|`)make ([a-z-]+)", one, re.MULTILINE)}
    assert named <= verbs
    assert named or document not in DOCUMENTS[:4]


def test_the_architecture_names_every_module_of_the_packages_it_lists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    files = [*(ROOT / "etl").glob("*/*.py"), *(ROOT / "connectors").glob("*.py")]
    modules = {path.name for path in files if path.parent.name != "cli" and path.name != "__init__.py"}
    assert {name for name in modules if f"`{name}`" not in text and f"/{name}`" not in text} == set()


def test_the_commands_of_the_readme_run_as_written(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    pgdb.sql(ORDERS, "alter table orders add primary key (order_id)", "analyze orders")
    (settings,) = fenced("README.md", "toml")
    blocks = fenced("README.md", "sh")
    (snippet,) = fenced("README.md", "python")
    given = "postgresql://etl@db.example/shop"
    assert given in settings
    bare = pgdb.url.replace(f":{pgdb.password}@", "@")
    (tmp_path / "cuetl.toml").write_text(settings.replace(given, bare))
    scripts = Path(sys.executable).parent
    env = {**os.environ, "PG_PASSWORD": pgdb.password, "PATH": f"{scripts}:{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert pgdb.password not in done.stdout + done.stderr
        return done.stdout

    for block in blocks:
        run("bash", "-e", "-c", block)
    (tmp_path / "open.py").write_text(snippet)
    rows, shape, dtype = re.fullmatch(r"(\d+) \((\d+), 2\) (\w+)\n", run(sys.executable, "open.py")).groups()  # type: ignore[union-attr]
    assert (int(rows), dtype) == (5000, "int32")
    assert 0 < int(shape) < 5000


@pytest.mark.framework("torch")
def test_the_snippet_for_torch_in_the_readme_runs_as_written(tmp_path: Path) -> None:
    (snippet,) = fenced("README.md", "python torch")
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        columns = "order_id integer primary key, user_id integer, qty integer, price real, returned integer"
        shop.execute(f"create table orders ({columns})")
        rows = [(n, n % 700, n % 9, n % 1000 / 4, int(n % 5 == 0)) for n in range(5000)]
        shop.executemany("insert into orders values (?, ?, ?, ?, ?)", rows)
        shop.commit()
    (tmp_path / "cuetl.toml").write_text('[connections.warehouse]\nurl = "sqlite:///shop.sqlite"\n')
    export = next(line for block in fenced("README.md", "sh") for line in block.splitlines() if "lake/churn" in line)
    done = cuetl(*shlex.split(export)[1:], cwd=tmp_path)
    assert done.code == 0, done.err
    script = [sys.executable, "-c", snippet]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    batches, epoch, features = map(int, ran.stdout.split())
    assert (epoch, features) == (1, 2)
    assert batches > 10
