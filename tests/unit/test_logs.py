"""The redactor: a secret in any form it is written in does not survive, and plain text does."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import logs
from etl.core import secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30).filter(
    lambda s: len(s.strip()) >= 6
)
AROUND = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Each test knows its own secrets only, and leaves those of others as they were."""
    before = set(secrets._known)
    secrets._known.clear()
    yield
    secrets._known.clear()
    secrets._known.update(before)


def only(secret: str) -> None:
    """One example's secret, without those of the examples before it."""
    secrets._known.clear()
    secrets.remember(secret)


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda s: s,
    "quoted": quote,
    "quoted all": lambda s: quote(s, safe=""),
    "quoted in lower case": lambda s: _lower_hex(quote(s, safe="")),
    "quoted plus": quote_plus,
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON in UTF-8": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "repr": lambda s: repr(s)[1:-1],
}


def _lower_hex(text: str) -> str:
    pieces = text.split("%")
    return pieces[0] + "".join(f"%{piece[:2].lower()}{piece[2:]}" for piece in pieces[1:])


@pytest.mark.parametrize("form", FORMS)
@given(secret=SECRETS, before=AROUND, after=AROUND)
def test_no_form_of_a_secret_survives(form: str, secret: str, before: str, after: str) -> None:
    only(secret)
    written = FORMS[form](secret)
    assert written not in logs.redact(f"{before}{written}{after}")


@given(secret=SECRETS, user=AROUND)
def test_basic_authorization_does_not_survive(secret: str, user: str) -> None:
    only(secret)
    encoded = base64.b64encode(f"{user}:{secret}".encode()).decode()
    shown = logs.redact(f"GET / sent {encoded} to the server")
    assert encoded not in shown
    kept = max((piece for piece in shown.split() if piece in encoded or "***" in piece), key=len, default="")
    recovered = _decodable(kept.replace("***", ""))
    assert secret.encode() not in recovered


def _decodable(text: str) -> bytes:
    return base64.b64decode(text[: len(text) // 4 * 4].encode(errors="ignore"), validate=False)


@given(lines=st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=6), min_size=2, max_size=4))
def test_each_line_of_a_key_of_several_lines_is_hidden(lines: list[str]) -> None:
    only("\n".join(lines))
    for line in lines:
        assert line not in logs.redact(f"before {line} after")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://etl:pw@h/a", "postgresql://etl:***@h/a"),
        ("cannot reach postgresql://u:a:b/c@d@h:5432/x now", "cannot reach postgresql://u:***@h:5432/x now"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("PGPASSWORD='a b c' psql", "PGPASSWORD=*** psql"),
        ('{"api_key": "abc", "a": 1}', '{"api_key": ***, "a": 1}'),
        ("{'client_secret': 'abc'}", "{'client_secret': ***}"),
        ("Authorization: Bearer abc.def-123", "Authorization: ***"),
        ("dsn = host=h", "dsn = ***"),
        ("token: abc123", "token: ***"),
    ],
)
def test_keys_and_shapes_are_hidden(text: str, shown: str) -> None:
    assert logs.redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        'password authentication failed for user "etl"',
        'password = "${file:/run/secrets/pg}" in cuetl.toml',
        "password=${env:PG_PASSWORD}",
        "column token: cannot cast 'abc' to int64",
        "sqlite:////var/shop.db and postgresql://h:5432/a",
        "use the password field of a connection",
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert logs.redact(text) == text


def test_a_short_password_does_not_blank_the_text() -> None:
    secrets.remember("a")
    assert logs.redact("a banana at sea") == "a banana at sea"


def test_a_tree_keeps_its_keys_numbers_and_shape() -> None:
    secrets.remember("hunter2-hunter2")
    tree = {"token": ["hunter2-hunter2", 1, None, True, {"x": ("hunter2-hunter2",)}]}
    assert logs.redact_tree(tree) == {"token": ["***", 1, None, True, {"x": ["***"]}]}


PROBE = """
import logging, sys, threading, warnings
from etl import logs
from etl.core import secrets
secrets.remember("hunter2-hunter2")
logs.install(sys.stderr, debug={debug})
logging.getLogger("driver").error("connect %s", "hunter2-hunter2")
logging.getLogger("distributed.core").error("closing comm hunter2-hunter2")
warnings.warn("odd hunter2-hunter2")
def fail():
    held = "hunter2-hunter2"
    raise ValueError("no hunter2-hunter2")
thread = threading.Thread(target=fail); thread.start(); thread.join()
fail()
"""


@pytest.mark.parametrize("debug", [False, True])
def test_logs_warnings_and_unhandled_errors_go_through_the_redactor(*, debug: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(debug=debug)], capture_output=True, text=True, check=False, timeout=60
    )
    assert "hunter2" not in done.stderr.replace('held = "***"', "") or debug
    assert "hunter2-hunter2" not in done.stderr
    assert "connect ***" in done.stderr
    assert done.stderr.count("ValueError: no ***") == 2
    assert ("Traceback" in done.stderr) is debug
    assert ("odd ***" in done.stderr) is debug
    assert ("closing comm" in done.stderr) is debug
    assert done.stdout == ""


def test_importing_configures_nothing() -> None:
    code = (
        "import sys, logging; before = sys.excepthook; import etl.logs; "
        "assert sys.excepthook is before and not logging.root.handlers"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_traceback_is_redacted() -> None:
    secrets.remember("hunter2-hunter2")
    try:
        raise ValueError("bad hunter2-hunter2")
    except ValueError as error:
        shown = logs.traceback_text(error)
    assert "hunter2" not in shown
    assert "ValueError: bad ***" in shown
