"""What the documents say is true here: their commands run, their paths exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.postgresql import PostgresDatabase

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md")
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
    named |= {link for link in re.findall(r"\]\(([\w./-]+)\)", text) if not link.startswith("http")}
    assert named, document
    assert sorted(path for path in named if not (ROOT / path).exists() and path != "etl/_sql") == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_verb_that_a_document_names_exists(document: str) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b", (ROOT / document).read_text())) <= verbs | {"it", "parts"}


def test_the_architecture_names_every_module_of_the_packages_it_lists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    files = [*(ROOT / "etl").glob("*/*.py"), *(ROOT / "connectors").glob("*.py")]
    modules = {path.name for path in files if path.parent.name != "cli" and path.name != "__init__.py"}
    assert {name for name in modules if f"`{name}`" not in text and f"/{name}`" not in text} == set()


def test_the_commands_of_the_readme_run_as_written(pgdb: PostgresDatabase, tmp_path: Path) -> None:
    pgdb.sql(ORDERS, "alter table orders add primary key (order_id)", "analyze orders")
    (settings,) = fenced("README.md", "toml")
    (commands,) = fenced("README.md", "sh")
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

    for command in commands.splitlines():
        run("bash", "-c", command)
    (tmp_path / "open.py").write_text(snippet)
    rows, shape, dtype = re.fullmatch(r"(\d+) \((\d+), 2\) (\w+)\n", run(sys.executable, "open.py")).groups()  # type: ignore[union-attr]
    assert (int(rows), dtype) == (5000, "int32")
    assert 0 < int(shape) < 5000
