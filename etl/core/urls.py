"""Connection URLs taken apart: `scheme://user:password@host:port/database?name=value`, each part percent-decoded.

The rules follow RFC 3986 with one more strictness. A password that was typed without percent-encoding makes a URL of
which nobody can say where the host begins; such a text is refused, and never shown, rather than guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from etl.core.errors import ConfigError
from etl.core.secrets import is_reference, remember

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
PORTS = 1 << 16
RAW = "Percent-encode the user or password part, or use the password field of a connection in cuetl.toml."
"""What to do about a URL whose user or password was typed raw."""
ELSEWHERE = "Percent-encode the part: # is %23, ? is %3F, % is %25, @ is %40."

_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Url:
    """The decoded parts of a URL; None where a part is not given.

    `host` is a name, an address (IPv6 without brackets) or the folder of a Unix socket. `database` is the path without
    its first slash: `sqlite:///rel.db` is `rel.db`, `sqlite:////abs.db` is `/abs.db`.
    """

    scheme: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    database: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)


def looks_like_url(text: str, /) -> bool:
    """Whether the text is meant as a URL: it has `://`."""
    return "://" in text


def parse_url(text: str, /) -> Url:
    """The parts of a URL.

    >>> parse_url("postgresql://etl:p%40ss@[::1]:5433/shop?sslmode=require").host
    '::1'
    >>> parse_url("sqlite:////var/shop.db").database
    '/var/shop.db'

    Raises:
        ConfigError: It is no URL, or a user or password in it was not percent-encoded. The text is not shown.
    """
    scheme, _, rest = text.partition("://")
    if not SCHEME.fullmatch(scheme):
        raise ConfigError("the source is not a URL of the form scheme://host/database", hint=RAW)
    scheme = scheme.lower()
    _remember_candidate(rest)
    cut = min((i for i in map(rest.find, "/?#") if i >= 0), default=len(rest))
    authority, tail = rest[:cut], rest[cut:]
    path, mark, raw_query = tail.partition("?")
    if "#" in tail:
        raise _refuse(scheme, "it has a fragment (#)", RAW if authority else ELSEWHERE)
    if authority.count("@") > 1:
        raise _refuse(scheme, "its authority part has two @")
    if authority and "@" in path:
        raise _refuse(scheme, "there is an @ after the host part")
    if _BARE_PERCENT.search(text):
        raise _refuse(scheme, "it has a % without two hex digits", RAW if authority else ELSEWHERE)
    if _NOT_PRINTED.search(text):
        raise _refuse(scheme, "it has a control character", RAW if authority else ELSEWHERE)
    query = _query(scheme, raw_query) if mark else {}
    user_info, at, host_port = authority.rpartition("@")
    user, colon, password = user_info.partition(":")
    host, port = _host_port(scheme, host_port)
    typed = _decoded(scheme, password) if at and colon else None
    in_query = query.pop("password", None)
    if typed is not None and in_query is not None:
        raise _refuse(scheme, "it gives the password twice", "Give it once.")
    return Url(
        scheme,
        user=_decoded(scheme, user) or None,
        password=in_query if typed is None else typed,
        host=host,
        port=port,
        database=_decoded(scheme, path[1:]) or None,
        query=query,
    )


def _host_port(scheme: str, text: str) -> tuple[str | None, int | None]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+(?:%25[\w.\-]+)?)\](?::(.*))?", text, re.DOTALL)
    if bracketed:
        host, port = bracketed.group(1), bracketed.group(2)
    else:
        if "[" in text or "]" in text:
            raise _refuse(scheme, "its host part has a bracket and is not [an IPv6 address]")
        host, colon, rest = text.partition(":")
        port = rest if colon else None
    if not port:
        return _decoded(scheme, host) or None, None
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < PORTS):
        raise _refuse(scheme, "its port is not a number from 1 to 65535")
    return _decoded(scheme, host) or None, int(port)


def _query(scheme: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split("&") if text else []:
        raw_name, equals, value = pair.partition("=")
        if not raw_name or not equals or "@" in pair or "?" in pair or "/" in raw_name:
            raise _refuse(scheme, "its query is not name=value")
        name = _decoded(scheme, raw_name)
        if name in found:
            raise _refuse(scheme, "its query gives one name twice", "Give each parameter once.")
        found[name] = _decoded(scheme, value)
    return found


def _decoded(scheme: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _refuse(scheme, "its percent-encoding is not UTF-8") from None


def _remember_candidate(rest: str) -> None:
    """Whatever may be a password must not be printed, even when the URL is refused."""
    before, at, _ = rest.rpartition("@")
    _, colon, candidate = before.partition(":")
    if at and colon and not is_reference(candidate):
        remember(candidate)
        remember(unquote(candidate, errors="ignore"))


def _refuse(scheme: str, why: str, hint: str = RAW) -> ConfigError:
    return ConfigError(f"the {scheme}:// URL cannot be read: {why}", hint=hint)
