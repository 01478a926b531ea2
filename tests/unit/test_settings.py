"""`cuetl.toml`: found, read, and each mistake in it named; sources become endpoints that carry references only."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import Endpoint
from etl import settings
from etl.core.errors import ConfigError
from etl.core.secrets import SecretRef
from etl.settings import Settings, endpoint, load

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str) -> Settings:
    (folder / "cuetl.toml").write_text(text, encoding="utf-8")
    return load(folder, {})


def test_without_a_file_there_are_no_connections(tmp_path: Path) -> None:
    at = load(tmp_path, {})
    assert at.path is None
    assert at.connections == {}
    with pytest.raises(ConfigError, match=r"no connection named warehouse; no cuetl\.toml in .* was found"):
        endpoint("warehouse", at=at)


def test_the_working_folder_comes_before_the_environment(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[connections.b]\nurl = "sqlite:///b"\n')
    environment = {"CUETL_CONFIG": str(other)}
    assert list(load(tmp_path, environment).connections) == ["b"]
    (tmp_path / "cuetl.toml").write_text('[connections.a]\nurl = "sqlite:///a"\n')
    assert list(load(tmp_path, environment).connections) == ["a"]


def test_a_file_that_the_environment_names_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load(tmp_path, {"CUETL_CONFIG": str(tmp_path / "none.toml")})


def test_fields_stand_beside_the_url_or_in_place_of_its_parts(tmp_path: Path) -> None:
    at = read(
        tmp_path,
        """
        [connections.w]
        url = "postgres://etl@db.example/warehouse?sslmode=verify-full"
        user = "other"
        password = "${env:PG_PASSWORD}"
        port = 5433
        consistency = "per-part"
        statement_timeout = "30s"
        show_detail = false
        max_connections = 3
        """,
    )
    assert endpoint("w", at=at) == Endpoint(
        "w",
        "postgresql",
        "db.example",
        5433,
        "warehouse",
        "other",
        SecretRef("${env:PG_PASSWORD}"),
        {"sslmode": "verify-full"},
        {"consistency": "per-part", "statement_timeout": "30s", "show_detail": False, "max_connections": 3},
    )


def test_an_environment_reference_stands_for_a_whole_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUETL_TEST_HOST", "db.example")
    at = read(tmp_path, '[connections.w]\nurl = "postgresql://"\nhost = "${env:CUETL_TEST_HOST}"\n')
    assert endpoint("w", at=at).host == "db.example"
    monkeypatch.delenv("CUETL_TEST_HOST")
    with pytest.raises(ConfigError, match=r"connection w: the environment variable of \$\{env:CUETL_TEST_HOST\}"):
        endpoint("w", at=at)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[connection.a]\n", "unknown key connection. Did you mean connections?"),
        ('[connections.a]\nurll = "x"\n', "unknown key urll. Did you mean url?"),
        ('[connections.a]\nurl = "sqlite:///a"\nstatment_timeout = "1s"\n', "Did you mean statement_timeout?"),
        ('[connections.a]\nuser = "x"\n', "has no url"),
        ("[connections.a]\nurl = 1\n", "url is not text in quotes"),
        ('[connections.a]\nurl = "sqlite:///a"\npassword = 5\n', "password is not text in quotes"),
        ('[connections.a]\nurl = "sqlite:///a"\nport = "5432"\n', "port is not a number"),
        ('[connections.a]\nurl = "sqlite:///a"\nport = true\n', "port is not a number"),
        ('[connections.a]\nurl = "sqlite:///a"\nport = 70000\n', "port is not a number"),
        ('[connections.a]\nurl = "sqlite:///a"\nshow_detail = "no"\n', "show_detail is not true or false"),
        ('[connections.a]\nurl = "sqlite:///a"\nmax_connections = 0\n', "max_connections is less than 1"),
        ('[connections.a]\nurl = "sqlite:///a"\nmax_connections = true\n', "max_connections is not a whole number"),
        ('[connections.a]\nurl = "sqlite:///a"\nconsistency = "best"\n', 'It is "snapshot" or "per-part"'),
        ('[connections.a]\nurl = "sqlite:///a"\nstatement_timeout = "soon"\n', "statement_timeout is 'soon'"),
        ('[connections."a b"]\nurl = "sqlite:///a"\n', "not a usable name"),
        ("connections = 3\n", "connections is not a table"),
        ("[connections]\na = 3\n", "[connections.a] is not a table"),
        ("[connections.a\n", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cuetl.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path, {})


def test_the_nearest_connection_is_named(tmp_path: Path) -> None:
    at = read(tmp_path, '[connections.warehouse]\nurl = "sqlite:///a"\n')
    with pytest.raises(ConfigError, match=r"no connection named warehose in .* Did you mean warehouse"):
        endpoint("warehose", at=at)


@pytest.mark.parametrize("source", ["u:kn4ry@h/a", "postgresql:/u:kn4ry@h/a", "", "-x", "a b"])
def test_a_source_that_is_neither_url_nor_name_is_not_shown(source: str) -> None:
    with pytest.raises(ConfigError, match="neither a URL nor the name") as caught:
        endpoint(source, at=Settings())
    assert "kn4ry" not in str(caught.value)


@given(password=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=6, max_size=20))
def test_a_typed_password_travels_as_a_reference_only(password: str) -> None:
    password = f"Kn4ry{password}"
    url = f"postgresql://etl:{quote(password, safe='')}@db.example/shop"
    found = endpoint(url, at=Settings())
    assert found.password is not None
    assert found.password.local
    assert found.password.resolve().reveal() == password
    assert found.name == "postgresql://db.example/shop"
    assert "Kn4ry" not in repr(found)
    assert b"Kn4ry" not in pickle.dumps(found)


@given(password=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20))
def test_a_password_field_needs_no_escaping(password: str) -> None:
    one = settings.Connection("w", "postgresql://etl@h/a", password=password)
    found = endpoint("w", at=Settings(connections={"w": one}))
    assert found.password is not None
    if not password.startswith("${"):
        assert found.password.resolve().reveal() == password


def test_a_reference_in_the_url_stays_one() -> None:
    found = endpoint("postgresql://etl:${env:PG_PASSWORD}@h/a", at=Settings())
    assert found.password == SecretRef("${env:PG_PASSWORD}")


@pytest.mark.parametrize("text", ["${vault:kv/a}", "${inline:abc}"])
def test_only_known_references_are_taken(text: str) -> None:
    one = settings.Connection("w", "postgresql://h/a", password=text)
    with pytest.raises(ConfigError, match=r"unknown secret reference .* Write \$\{env:NAME\}"):
        endpoint("w", at=Settings(connections={"w": one}))


@pytest.mark.parametrize(("typed", "scheme"), [("postgres", "postgresql"), ("mariadb+pymysql", "mysql+pymysql")])
def test_second_spellings_of_schemes(typed: str, scheme: str) -> None:
    assert endpoint(f"{typed}://h/a", at=Settings()).scheme == scheme
