"""References to secrets, and the registry of values that must never be printed.

Specs, definitions and manifests carry references (`${env:NAME}`, `${file:/path}`); the process that connects resolves
them. A password typed inside a URL on the command line never travels either: it is kept in this process under a
`${inline:…}` reference.
"""

from __future__ import annotations

import os
import secrets as _random
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from etl.core.errors import ConfigError

_known: set[str] = set()
_inline: dict[str, str] = {}


class Secret:
    """A resolved secret: `reveal()` gives the value; it neither prints nor pickles."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        remember(value)

    def reveal(self) -> str:
        """The value itself, for the driver."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret's value does not leave the process that resolved it")


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A reference: `${env:PG_PASSWORD}`, `${file:/run/secrets/pg}` or `${inline:…}` (this process only)."""

    text: str

    @property
    def local(self) -> bool:
        """Whether only this process can resolve it."""
        return self.text.startswith("${inline:")

    def resolve(self) -> Secret:
        """The value, read in the process that connects.

        The environment is read here and not in `etl.settings`: a worker resolves the reference that it was sent, and
        has no settings.

        Raises:
            ConfigError: The variable is not set or the file cannot be read; the reference is named.
        """
        kind, _, name = self.text.removeprefix("${").removesuffix("}").partition(":")
        match kind:
            case "env":
                if name not in os.environ:
                    raise ConfigError(
                        f"the environment variable of {self.text} is not set", hint="Set it, for the workers too."
                    )
                return Secret(os.environ[name])
            case "file":
                try:
                    return Secret(Path(name).read_text(encoding="utf-8").removesuffix("\n"))
                except OSError as error:
                    raise ConfigError(f"the file of {self.text} cannot be read: {error.strerror}") from error
            case "inline":
                if name not in _inline:
                    raise ConfigError(
                        "a password typed in a URL is known to the process it was typed for only",
                        hint="For workers in other processes put it into cuetl.toml as ${env:NAME} or ${file:PATH}.",
                    )
                return Secret(_inline[name])
        raise ConfigError(f"unknown secret reference {self.text}", hint="Write ${env:NAME} or ${file:PATH}.")


def is_reference(text: str, /) -> bool:
    """Whether the text is a reference as a whole."""
    return text.startswith("${") and text.endswith("}") and ":" in text


def keep_inline(value: str, /) -> SecretRef:
    """Keep a typed value in this process and return a reference to it."""
    remember(value)
    name = _random.token_hex(8)
    _inline[name] = value
    return SecretRef(f"${{inline:{name}}}")


def remember(value: str, /) -> None:
    """Note a value that must not be printed by this process."""
    if value:
        _known.add(value)


def known() -> frozenset[str]:
    """All values seen by this process; the redactor of `etl.logs` works from them."""
    return frozenset(_known)
