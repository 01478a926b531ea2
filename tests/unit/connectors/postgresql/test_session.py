"""How connections are opened: libpq's own defaults, TLS for remote hosts, names and literals quoted."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from connectors.base import Endpoint, Query
from connectors.postgresql.connector import CONNECTOR
from connectors.postgresql.errors import TRANSIENT, from_connect, from_words
from connectors.postgresql.session import is_local, literal, network_note, parameters
from etl.core.errors import ConfigError, StoreRejected, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

AT = Endpoint("warehouse", "postgresql")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PGHOST", "PGSSLMODE", "PGSERVICE", "PGHOSTADDR", "PGSSLROOTCERT", "PGGSSENCMODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_only_what_was_given_is_handed_to_libpq() -> None:
    found = parameters(AT, "r1")
    assert not {"host", "port", "dbname", "user", "password", "sslmode"} & set(found)
    assert found["application_name"] == "cuetl:r1"
    assert found["connect_timeout"] == "10"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "/run/postgresql", "@abstract", None])
def test_loopback_and_sockets_keep_libpqs_own_tls_mode(host: str | None) -> None:
    assert is_local(host)
    assert "sslmode" not in parameters(replace(AT, host=host), "")


def test_remote_hosts_are_verified_unless_someone_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = replace(AT, host="db.example")
    found = parameters(remote, "")
    assert found["sslmode"] == "verify-full"
    assert found["sslrootcert"]
    assert not is_local("localhost,db.example")
    assert parameters(replace(remote, query={"sslmode": "disable"}), "")["sslmode"] == "disable"
    monkeypatch.setenv("PGSSLMODE", "require")
    assert "sslmode" not in parameters(remote, "")


def test_a_host_from_libpqs_environment_counts_as_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert parameters(AT, "")["sslmode"] == "verify-full"


def test_gss_encryption_is_taken_only_where_someone_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parameters(AT, "")["gssencmode"] == "disable"
    assert parameters(replace(AT, query={"gssencmode": "prefer"}), "")["gssencmode"] == "prefer"
    assert "gssencmode" not in parameters(replace(AT, query={"service": "mine"}), "")
    monkeypatch.setenv("PGGSSENCMODE", "require")
    assert "gssencmode" not in parameters(AT, "")


def test_a_lower_mode_over_a_network_is_said() -> None:
    assert "sslmode=disable" in network_note(replace(AT, host="db.example", query={"sslmode": "disable"}))
    assert not network_note(replace(AT, host="localhost", query={"sslmode": "disable"}))
    assert not network_note(replace(AT, host="db.example"))


def test_literals_end_where_they_should() -> None:
    assert literal("it's \\ 'x'") == "'it''s \\ ''x'''"
    with pytest.raises(ConfigError, match="NUL"):
        literal("a\0b")


@pytest.mark.parametrize("state", [*sorted(TRANSIENT), "08006", "08P01"])
def test_what_may_pass_is_transient(state: str) -> None:
    found = from_words(state, "words", AT, "reading table t")
    assert isinstance(found, StoreUnavailable)
    assert str(found).startswith(f"reading table t on connection warehouse: words (SQLSTATE {state})")


@pytest.mark.parametrize(
    "state", ["22012", "23505", "28P01", "3D000", "42501", "42601", "42P01", "53100", "53200", "XX000"]
)
def test_what_cannot_pass_is_permanent(state: str) -> None:
    found = from_words(state, "words", AT, "reading")
    assert isinstance(found, StoreRejected)
    assert found.context == {"connection": "warehouse", "sqlstate": state}


def test_standby_conflicts_name_the_settings() -> None:
    found = from_words("40001", "canceling statement due to conflict with recovery", AT, "reading")
    assert "hot_standby_feedback" in str(found)
    assert "max_standby_streaming_delay" in str(found)


def test_an_undeclared_parameter_is_told_apart_from_other_mistakes() -> None:
    assert "--param" in str(from_words("42601", 'syntax error at or near ":"', AT, "planning"))
    assert "--param" not in str(from_words("42601", 'syntax error at or near "selec"', AT, "planning"))


def test_an_address_is_named_once() -> None:
    refused = psycopg.OperationalError("connection failed: Connection refused")
    assert str(from_connect(refused, AT)).startswith(f"cannot connect to {AT.display()} (connection warehouse): ")
    bare = replace(AT, name=AT.display())
    assert str(from_connect(refused, bare)).startswith(f"cannot connect to {AT.display()}: ")


def test_details_can_be_kept_out() -> None:
    assert "secret row" in str(from_words("22012", "m", AT, "reading", detail="secret row"))
    quiet = replace(AT, options={"show_detail": False})
    assert "secret row" not in str(from_words("22012", "m", quiet, "reading", detail="secret row"))


@pytest.mark.parametrize(
    ("words", "kind", "hint"),
    [
        ('FATAL:  password authentication failed for user "x"', StoreRejected, "Check user"),
        ('FATAL:  database "x" does not exist', StoreRejected, "Check user"),
        ("server does not support SSL, but SSL was required", StoreRejected, "sslmode=disable"),
        ("SSL error: certificate verify failed", StoreRejected, "sslrootcert"),
        ("Connection refused", StoreUnavailable, "Check host"),
        ("FATAL:  sorry, too many clients already", StoreUnavailable, "max_connections"),
        ("FATAL:  the database system is starting up", StoreUnavailable, "Check host"),
    ],
)
def test_connecting_fails_with_the_remedy(words: str, kind: type[Exception], hint: str) -> None:
    found = from_connect(psycopg.OperationalError(f"connection failed: {words}"), AT)
    assert isinstance(found, kind)
    assert hint in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(table="a", sql="select 1"),
        Query(sql="select 1 a; select 2 b"),
        Query(sql="delete from t"),
        Query(sql="select 'x"),
        Query(table="a..b"),
        Query(table="t", types={"a": "int65"}),
        Query(table="t", limit=-1),
        Query(sql="select 1", params={"day": "x"}),
        Query(sql="select :day", params={"day": object()}),
    ],
)
def test_what_is_wrong_without_a_server_is_refused_without_one(query: Query) -> None:
    with pytest.raises(ConfigError):
        CONNECTOR.source(replace(AT, host="203.0.113.1"), query)


def test_the_decoder_is_imported_without_a_driver() -> None:
    code = "import connectors.postgresql, connectors.postgresql.columns, sys; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"
