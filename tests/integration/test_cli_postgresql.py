"""The command against a real PostgreSQL: errors name what failed, and the password is nowhere."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest

from tests.command import cuetl, one_paragraph

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase

SECRET = "Kn4ry#w:r/d%?9"
FORMS = (SECRET, quote(SECRET, safe=""), quote(SECRET), b64encode(SECRET.encode()).decode())

pytestmark = pytest.mark.server("postgresql")


@pytest.fixture
def secret_url(pgdb: PostgresDatabase) -> str:
    """A URL of a role whose password is `SECRET`, percent-encoded as a careful user types it."""
    literal = SECRET.replace("'", "''")
    role = f"r_{pgdb.name}"
    pgdb.sql(f"create role {role} login password '{literal}'", f"grant all on schema public to {role}")
    at = urlsplit(pgdb.url)
    return f"postgresql://{role}:{quote(SECRET, safe='')}@{at.hostname}:{at.port}/{pgdb.name}"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--table", "no_such_table"], 1, "no_such_table"),
        (["--sql", "selec 1"], 1, "selec"),
        (["--sql", "select 1 a, 2 a", "--format", "parquet"], 2, "both named a"),
        ([], 2, "--table"),
        (["--sql", "select 1 a", "--formt", "parquet"], 2, "--format"),
        (["--sql", "select 1/0 as a"], 1, "division by zero"),
        (["--sql", "select pg_terminate_backend(pg_backend_pid())"], 1, "terminat"),
    ],
)
def test_errors_are_one_paragraph_and_show_no_secret(
    tmp_path: Path, secret_url: str, arguments: list[str], code: int, said: str
) -> None:
    done = cuetl("export", secret_url, *arguments, "--to", "x", cwd=tmp_path)
    assert said in one_paragraph(done.err)
    assert (done.code, done.out) == (code, "")
    assert not [form for form in FORMS if form in done.err]
    assert not (tmp_path / "x").exists()


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, secret_url: str) -> None:
    at = urlsplit(secret_url)
    away = secret_url.replace(f"{at.hostname}:{at.port}", f"127.0.0.2:{at.port}")
    done = cuetl("export", away, "--sql", "select 1 a", "--to", "x", cwd=tmp_path)
    assert "127.0.0.2" in one_paragraph(done.err)
    assert done.code == 1
    assert not [form for form in FORMS if form in done.err]


def test_a_secret_is_in_no_output_and_no_file(tmp_path: Path, secret_url: str) -> None:
    at = urlsplit(secret_url)
    secret = tmp_path / "pw"
    secret.write_text(SECRET)
    home = tmp_path / "home"
    home.mkdir()
    (home / "cuetl.toml").write_text(
        f'[connections.db]\nurl = "postgresql://{at.username}@{at.hostname}:{at.port}{at.path}"\n'
        f'password = "${{file:{secret}}}"\n'
    )
    env = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    good = cuetl("export", "db", "--sql", "select 1 as a", "--to", "out", "--format", "parquet", "--json", cwd=home,
                 env=env)  # fmt: skip
    assert good.code == 0, good.err
    runs = [
        good,
        cuetl("export", "db", "--sql", "select 1/0", "--to", "out2", "--debug", cwd=home, env=env),
        cuetl("export", "db", "--sql", "select 1 as a", "--to", "out3", "--plan", cwd=home, env=env),
        cuetl("export", secret_url, "--sql", "select 1/0", "--to", "out4", cwd=home, env=env),
        cuetl("inspect", "db", "--json", cwd=home, env=env),
        cuetl("doctor", "--json", cwd=home, env=env),
    ]
    written = "".join(done.out + done.err for done in runs)
    written += "".join(path.read_bytes().decode("latin-1") for path in home.rglob("*") if path.is_file())
    assert not [form for form in FORMS if form in written]


def test_a_wrong_password_is_refused_by_the_server_and_not_shown(tmp_path: Path, secret_url: str) -> None:
    wrong = secret_url.replace("Kn4ry", "Wr0ngKn4ry")
    done = cuetl("export", wrong, "--sql", "select 1 a", "--to", "x", cwd=tmp_path)
    if done.code == 0:
        pytest.skip("this server trusts every password")
    assert "password" in one_paragraph(done.err)
    assert "Kn4ry" not in done.err
