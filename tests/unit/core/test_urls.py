"""Connection URLs: every encoded password arrives, every raw one is refused or read right, and none is printed."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core import secrets
from etl.core.errors import ConfigError
from etl.core.urls import Url, parse_url

PRINTABLE = st.characters(exclude_categories=("Cs", "Cc"))
PASSWORDS = st.text(PRINTABLE, min_size=1, max_size=24)
NASTY = st.text(st.sampled_from("aZ1@:/?#%[]&=+ é\\'\"2f4"), min_size=1, max_size=16)


@given(password=PASSWORDS | NASTY, user=PASSWORDS | NASTY, database=PASSWORDS | NASTY)
def test_percent_encoded_parts_round_trip(password: str, user: str, database: str) -> None:
    encoded = [quote(text, safe="") for text in (user, password, database)]
    found = parse_url("postgresql://{}:{}@db.example:5433/{}".format(*encoded))
    assert found == Url("postgresql", user, password, "db.example", 5433, database, {})


@given(password=NASTY | PASSWORDS)
def test_a_raw_password_is_read_right_or_refused_and_never_printed(password: str) -> None:
    password = f"Kn4ry{password}"
    try:
        found = parse_url(f"postgresql://etl:{password}@127.0.0.1:5433/shop?sslmode=require")
    except ConfigError as error:
        refused = str(error)
    else:
        refused = "Percent-encode"
        expected = Url("postgresql", "etl", password, "127.0.0.1", 5433, "shop", {"sslmode": "require"})
        if "%" in password:  # a raw % before two hex digits is an encoded character: nobody can tell
            expected = replace(expected, password=found.password)
        assert found == expected
        assert "Kn4ry" not in repr(found)
    assert "ercent-encode" in refused
    assert "Kn4ry" not in refused


@given(password=st.text(st.sampled_from("abcdef@/?#"), min_size=1).filter(lambda p: set(p) & set("@/?#")))
def test_a_raw_delimiter_in_a_password_is_always_refused(password: str) -> None:
    with pytest.raises(ConfigError, match="password field"):
        parse_url(f"postgresql://etl:{password}@db.example/shop")


@given(text=st.text(st.sampled_from("ab:/@?#[]%&=.1 +-"), max_size=40))
def test_any_text_is_parsed_or_refused_clearly(text: str) -> None:
    try:
        parse_url(f"x://{text}")
    except ConfigError:
        return


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///rel/shop.db", Url("sqlite", database="rel/shop.db")),
        ("sqlite:////var/shop.db", Url("sqlite", database="/var/shop.db")),
        ("sqlite:///odd%20name%23.db", Url("sqlite", database="odd name#.db")),
        ("sqlite:///user@home.db", Url("sqlite", database="user@home.db")),
        ("postgresql://[::1]:5433/a", Url("postgresql", host="::1", port=5433, database="a")),
        ("postgresql://u@[fe80::1%25eth0]/a", Url("postgresql", user="u", host="fe80::1%eth0", database="a")),
        ("postgresql://%2Fvar%2Frun/a", Url("postgresql", host="/var/run", database="a")),
        ("postgresql:///a?host=/var/run", Url("postgresql", database="a", query={"host": "/var/run"})),
        ("postgresql://h1,h2/a", Url("postgresql", host="h1,h2", database="a")),
        ("PostgreSQL://h", Url("postgresql", host="h")),
        ("postgresql://", Url("postgresql")),
        ("postgresql://u:@h/a", Url("postgresql", user="u", password="", host="h", database="a")),
        ("postgresql://u@h:/a", Url("postgresql", user="u", host="h", database="a")),
        (
            "mysql+pymysql://h/a?charset=utf8mb4",
            Url("mysql+pymysql", host="h", database="a", query={"charset": "utf8mb4"}),
        ),
        ("postgresql://u@h/a?password=p%40s", Url("postgresql", user="u", password="p@s", host="h", database="a")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_spellings(url: str, expected: Url) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "rest",
    [
        "u:Kn4ry#w:r/d%?9@h/a",
        "u:kn4ry/x@h/a",
        "u:12/kn4ry@h/a",
        "u:12#kn4ry@h/a",
        "u:12?kn4ry@h/a",
        "u:12?kn4ry=1@h/a",
        "u:kn4ry@x@h/a",
        "u:kn4ry%zz@h/a",
        "u:kn4ry%FF@h/a",
        "u:p@h:kn4ry/a",
        "u:p@h:0/a",
        "u:p@h:65536/a",
        "u:p@h:１/a",  # noqa: RUF001 - a digit of another script is no port
        "u:p@h/a?kn4ry",
        "u:p@h/a?x=1&x=2",
        "u:p@[::1/a",
        "u:p@h[1]/a",
        "u:kn4ry\n@h/a",
        "u:p@h/a?password=kn4ry",
    ],
)
def test_what_cannot_be_read_is_refused_without_its_text(rest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(f"postgresql://{rest}")
    assert "kn4ry" not in str(caught.value).lower()
    assert caught.value.exit_code == 2


def test_a_refused_password_is_known_to_the_redactor() -> None:
    with pytest.raises(ConfigError):
        parse_url("postgresql://u:oh-my/secret-thing@h/a")
    assert "oh-my/secret-thing" in secrets.known()
