"""The words of the command line made into values: sizes, lists, assignments, shares. Errors name the flag."""

from __future__ import annotations

import csv
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNITS = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_SPLIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def size(text: str, flag: str, /) -> int:
    """Bytes of a size such as "128MiB", "1.5GB" or "4096".

    >>> size("1.5KiB", "--partition-bytes")
    1536

    Raises:
        ConfigError: It is no size, not a whole number of bytes, or less than one byte.
    """
    found = _SIZE.fullmatch(text)
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ConfigError(f"{flag} {text!r} is not a size", hint="Write it as 128MiB, 1GB or a number of bytes.")
    exact = Decimal(found[1]) * unit
    if exact != int(exact) or exact < 1:
        raise ConfigError(f"{flag} {text!r} is not a whole number of bytes of at least 1")
    return int(exact)


def names(text: str, flag: str, /) -> tuple[str, ...]:
    """Column names separated by commas; a name that has a comma itself stands in double quotes.

    Raises:
        ConfigError: A name is empty or given twice.
    """
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise ConfigError(f"{flag} {text!r} is not a list of names", hint="Write it as a,b,c.") from error
    found = tuple(name.strip() for name in row)
    if not found or not all(found):
        raise ConfigError(f"{flag} {text!r} has an empty name", hint="Write it as a,b,c.")
    refuse_twice(found, flag)
    return found


def refuse_twice(items: Iterable[str], flag: str, /) -> None:
    """Hold that no item is given twice.

    Raises:
        ConfigError: One is; it is named.
    """
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise ConfigError(f"{flag} names {item} twice")
        seen.add(item)


def assignments(items: Sequence[str], flag: str, /) -> dict[str, str]:
    """NAME=VALUE items, one a flag.

    Raises:
        ConfigError: An item has no `=` or no name, or a name is given twice. Values are not shown.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{flag} is given without NAME=VALUE", hint=f"Write {flag} NAME=VALUE.")
        refuse_twice((*found, name.strip()), flag)
        found[name.strip()] = value
    return found


def shares(text: str, flag: str, /) -> dict[str, str]:
    """Splits and their shares, as exact decimals whose sum is 1: "train=0.8,val=0.2".

    Raises:
        ConfigError: A share is no number above 0, a name is unfit for a file name or given twice, or the sum is not 1.
    """
    found = assignments(text.split(","), flag)
    total = Fraction(0)
    for name, share in found.items():
        if not _SPLIT_NAME.fullmatch(name):
            raise ConfigError(f"{flag} name {name!r} is not made of letters, digits and _")
        try:
            exact = Decimal(share.strip())
        except InvalidOperation:
            exact = Decimal(-1)
        if not exact.is_finite() or not 0 < exact <= 1:
            raise ConfigError(f"{flag} share of {name} is {share!r}", hint="A share is a number above 0, at most 1.")
        total += Fraction(exact)  # a sum of Decimals would be rounded to 28 digits
    if total != 1:
        raise ConfigError(
            f"the shares of {flag} sum to {float(total):.12g}{' or so' * (float(total) == 1)}, not 1",
            hint="Write it as train=0.8,val=0.1,test=0.1.",
        )
    return {name: share.strip() for name, share in found.items()}


def choice(text: str, known: Sequence[str], flag: str, /) -> None:
    """Hold that a word is one of those known.

    Raises:
        ConfigError: It is not; all choices are listed.
    """
    if text not in known:
        raise ConfigError(f"{flag} {text!r} is unknown", hint=f"Choices are {', '.join(known)}.")
