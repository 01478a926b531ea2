"""sql_86: a password is in nothing that a run writes, says, pickles or shows, whatever fails."""

from __future__ import annotations

import pickle
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pyarrow.parquet as pq
import pytest

from connectors import registry
from connectors.base import Query
from etl import settings
from tests.command import cuetl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

pytestmark = pytest.mark.server("postgresql")
SECRET = "hunter2-Zq9@/%"
WRONG = "hunter2-Zq9-wr0ng"
FORMS = (
    "hunter2",
    "Zq9",
    quote(SECRET, safe=""),
    b64encode(SECRET.encode()).decode(),
    b64encode(WRONG.encode()).decode(),
)


@dataclass(frozen=True, slots=True)
class Home:
    """A folder with a configuration that gives the password in one way, and the environment that goes with it."""

    path: Path
    role: str
    at: str

    def configure(self, way: str, password: str) -> dict[str, str]:
        """Write `cuetl.toml`; the environment that it needs."""
        env = {"HOME": str(self.path), "XDG_STATE_HOME": str(self.path / "state")}
        plain = f'url = "postgresql://{self.role}@{self.at}"\n'
        if way == "url":
            body = f'url = "postgresql://{self.role}:{quote(password, safe="")}@{self.at}"\n'
        elif way == "field":
            body = plain + f"password = '{password}'\n"
        elif way == "environment":
            body = plain + 'password = "${env:DB_WORD}"\n'
            env["DB_WORD"] = password
        else:
            (self.path.parent / "word").write_text(password)
            body = plain + f'password = "${{file:{self.path.parent / "word"}}}"\n'
        (self.path / "cuetl.toml").write_text(f"[connections.db]\n{body}")
        return env


@pytest.fixture
def home(pgdb: PostgresDatabase, tmp_path: Path) -> Home:
    role = f"r86_{pgdb.name}"
    pgdb.sql(f"create role {role} login password '{SECRET}'", "create table t86(id int primary key, v numeric(5,2))",
             "insert into t86 values (1,'NaN')", f"grant select on t86 to {role}")  # fmt: skip
    at = urlsplit(pgdb.url)
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder, role, f"{at.hostname}:{at.port}/{pgdb.name}")


def shown(home: Home, said: str) -> list[str]:
    """The forms of the password in what was said and in every file but the configuration itself."""
    written = [p.read_bytes().decode("latin-1") for p in home.path.rglob("*") if p.is_file() and p.name != "cuetl.toml"]
    return [form for form in FORMS for text in (said, *written) if form in text]


@pytest.mark.parametrize("way", ["field", "url", "environment", "file"])
def test_sql_86_no_failure_shows_the_password(home: Home, way: str) -> None:
    env = home.configure(way, SECRET)
    said = ""
    runs: tuple[tuple[str, ...], ...] = (("--table", "t86", "--to", "decode", "--format", "parquet", "--debug"),)
    if way == "field":
        runs += (("--sql", "selec 1", "--to", "bad"), ("--table", "t86", "--to", "plan", "--plan", "--json"))
    for arguments in runs:
        done = cuetl("export", "db", *arguments, cwd=home.path, env=env)
        assert (done.code == 0) == ("--plan" in arguments), done.err
        said += done.out + done.err
    assert "Traceback" in said
    assert "NaN" in said
    env = home.configure(way, WRONG)
    refused = cuetl("export", "db", "--sql", "select 1 a", "--to", "wrong", "--debug", cwd=home.path, env=env)
    said += refused.out + refused.err
    assert not shown(home, said)


def test_sql_86_a_host_that_does_not_answer(home: Home) -> None:
    env = home.configure("field", SECRET)
    text = (home.path / "cuetl.toml").read_text().replace(home.at.partition(":")[0], "127.0.0.9", 1)
    (home.path / "cuetl.toml").write_text(text)
    done = cuetl("export", "db", "--sql", "select 1 a", "--to", "x", "--debug", cwd=home.path, env=env)
    assert done.code == 1
    assert "127.0.0.9" in done.err
    assert not shown(home, done.out + done.err)


@pytest.mark.parametrize("way", ["environment", "file"])
def test_sql_86_what_goes_to_workers_has_references_only(home: Home, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = home.configure(way, SECRET)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.path)
    settings.settings.cache_clear()
    at = settings.endpoint("db")
    settings.settings.cache_clear()
    source = registry.connector(at.scheme).source(at, Query(table="t86", run_id="r86"))
    content = pickle.dumps(source).decode("latin-1") + repr(source) + repr(at)
    assert not [form for form in FORMS if form in content]


def test_sql_86_the_server_sees_the_run_and_no_secret(home: Home) -> None:
    env = home.configure("field", SECRET)
    text = "select current_setting('application_name') a"
    done = cuetl("export", "db", "--sql", text, "--to", "good", "--format", "parquet", "--json", cwd=home.path, env=env)
    assert done.code == 0, done.err
    assert not shown(home, done.out + done.err)
    (row,) = pq.read_table(home.path / "good").to_pylist()
    assert row["a"] == f"cuetl:{done.json['run_id']}"
