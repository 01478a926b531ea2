"""Rows found by their keys: the user's words as values of a key column, and the rows of a file that have them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.tensors.encode import mapped
from etl.tensors.manifest import integer, sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.manifest import FileEntry, Manifest
    from etl.tensors.views import Column

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


class _NoValueError(ValueError):
    """A text that is no value of the column."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys whose rows are wanted: every row that equals one of them in all its columns.

    Attributes:
        columns: The key columns that are named, in order.
        values: One tuple of texts for each key.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]


def key_columns(manifest: Manifest, /) -> tuple[str, ...]:
    """Columns that name rows: those of `--key`, then those of `--split-key`."""
    named = [str(c["name"]) for c in manifest.columns if c.get("role") == "key"]
    named += [str(c["name"]) for c in manifest.columns if c.get("role") == "split_key"]
    split = manifest.document.get("split")
    if isinstance(split, dict):
        have = {str(c["name"]) for c in manifest.columns}
        named += [n for n in map(str, sequence(split.get("key") or [])) if n in have]
    return tuple(dict.fromkeys(named))


def keys_of(texts: Sequence[str], manifest: Manifest, /) -> Keys:
    """The keys that were typed: VALUE where one column names the rows, else NAME=VALUE,NAME=VALUE.

    Args:
        texts: One for each key. What begins with the name of a key column and `=` is taken as named; a comma within a
            named value stands in double quotes around NAME=VALUE.
        manifest: The current version.

    Raises:
        ConfigError: A text is malformed, names another column or other columns than the first, or is no value of its
            column; or nothing names the rows.
    """
    known = key_columns(manifest)
    if not known:
        raise ConfigError("the dataset has no key column, so rows cannot be named", hint="Export it with --key.")
    if not texts:
        raise ConfigError("no key is given", hint="Write --key VALUE.")
    found = [_named(text, known, manifest) for text in texts]
    columns = tuple(found[0])
    for one in found:
        if tuple(one) != columns:
            raise ConfigError(
                f"--key names the columns {', '.join(one)} after {', '.join(columns)}",
                hint="Name the same columns in every --key, in the same order.",
            )
    for name, values in zip(columns, zip(*(one.values() for one in found), strict=True), strict=True):
        column = _column(manifest, name)
        for text in values:
            try:
                _tensor_value(column, text) if column.get("tensor") else _arrow_value(_type_of(column), text)
            except _NoValueError as error:
                raise ConfigError(
                    f"--key: {text!r} is no value of column {name} ({column.get('arrow_type')}): {error}", column=name
                ) from None
    return Keys(columns, tuple(dict.fromkeys(tuple(one.values()) for one in found)))


def _named(text: str, known: Sequence[str], manifest: Manifest) -> dict[str, str]:
    roles = [str(c["name"]) for c in manifest.columns if c.get("role") == "key"]
    alone = roles[0] if len(roles) == 1 else known[0] if len(known) == 1 else None
    if alone is not None and not any(text.lstrip('"').startswith(f"{name}=") for name in known):
        return {alone: text}
    if len(known) == 1:
        return {known[0]: text.removeprefix(f"{known[0]}=")}
    try:
        (parts,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise ConfigError(f"--key {text!r} is not a list of NAME=VALUE", hint="Write it as a=1,b=2.") from error
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(
                f"--key {text!r} does not say which column it is of", hint=f"Write {known[0]}=VALUE.", column=known[0]
            )
        if name not in known:
            raise ConfigError(
                f"--key: {name} is no key column", hint=nearest(name, known, what="key columns"), column=name
            )
        if name in found:
            raise ConfigError(f"--key {text!r} names {name} twice", column=name)
        found[name] = value
    return found


def check_columns(manifest: Manifest, keys: Keys, /) -> None:
    """Hold that the rows of a version can be told apart by these columns.

    Raises:
        ConfigError: It has no such column, or values of it were changed when they were cast.
    """
    for name in keys.columns:
        if not any(c["name"] == name for c in manifest.columns):
            raise ConfigError(
                f"version {manifest.version} has no column {name}, so rows cannot be found in it by that key",
                hint="Take its data away with `cuetl dataset vacuum` first.",
                column=name,
            )
        cast = _column(manifest, name).get("cast")
        changed = integer(cast["n_rounded"]) + integer(cast["n_saturated"]) if isinstance(cast, dict) else 0
        if changed:
            raise ConfigError(
                f"{changed} values of column {name} were rounded when version {manifest.version} was written, so it "
                "no longer names rows",
                hint="Export again with --key, which keeps keys in a dtype of their own.",
                column=name,
            )


def rows_with(manifest: Manifest, file: FileEntry, locate: Callable[[str], Path], keys: Keys, /) -> NDArray[np.bool_]:
    """Which rows of a file have one of the keys, [rows].

    Raises:
        Damaged: The file is not what the manifest says.
        FileNotFoundError: It is missing.
    """
    tensors: Mapping[str, NDArray[Any]] = {}
    if manifest.format != "parquet":
        tensors = mapped(file, manifest.format, locate)
    sides: list[Callable[[Sequence[str]], NDArray[np.bool_]]] = []
    for name in keys.columns:
        column = _column(manifest, name)
        if column.get("tensor"):
            sides.append(_of_tensor(column, tensors))
        else:
            stored = file.path if manifest.format == "parquet" else file.text_file.path if file.text_file else file.path
            sides.append(_of_text(locate(stored), name))
    if len(sides) == 1:
        return sides[0]([value for (value,) in keys.values])
    found = np.zeros(file.rows, np.bool_)
    for values in keys.values:
        one = np.ones(file.rows, np.bool_)
        for side, value in zip(sides, values, strict=True):
            one &= side([value])
        found |= one
    return found


def _column(manifest: Manifest, name: str) -> Mapping[str, object]:
    """The column's entry; that of the key where it is a feature too."""
    entries = [c for c in manifest.columns if c["name"] == name]
    return next((c for c in entries if c.get("role") in {"key", "split_key"}), entries[0])


def _of_tensor(
    column: Mapping[str, object], tensors: Mapping[str, NDArray[Any]]
) -> Callable[[Sequence[str]], NDArray[np.bool_]]:
    values = tensors[str(column["tensor"])]
    index, null = column.get("index"), column.get("null")
    if index is not None:
        values = values[:, integer(index)]
    valid: NDArray[np.bool_] | None = None
    if isinstance(null, dict) and null.get("valid_tensor"):
        valid = tensors[str(null["valid_tensor"])]
        at = null.get("valid_index")
        valid = valid if at is None else valid[:, integer(at)]

    def having(texts: Sequence[str]) -> NDArray[np.bool_]:
        wanted = []
        for text in texts:
            try:
                wanted.append(_tensor_value(column, text))
            except _NoValueError:
                continue  # in this version nothing can equal it
        same = np.isin(values, np.array(wanted, values.dtype))
        return same if valid is None else same & valid

    return having


def _of_text(path: Path, name: str) -> Callable[[Sequence[str]], NDArray[np.bool_]]:
    with pq.ParquetFile(path) as file:
        column: Column = file.read(columns=[name]).column(name).combine_chunks()
    kind: Any = column.type
    if isinstance(column, pa.ChunkedArray):  # several chunks where one could not hold them
        column = pa.concat_arrays(column.chunks)
    if isinstance(kind, pa.BaseExtensionType):
        column = column.storage
    elif pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = kind.value_type

    def having(texts: Sequence[str]) -> NDArray[np.bool_]:
        wanted = []
        for text in texts:
            try:
                wanted.append(_arrow_value(kind, text))
            except _NoValueError:
                continue
        among: Any = pa.array([one.as_py() for one in wanted], column.type)
        same: Any = pc.is_in(column, value_set=among)
        found: NDArray[np.bool_] = same.to_numpy(zero_copy_only=False)
        return found

    return having


def _type_of(column: Mapping[str, object]) -> pa.DataType:
    """The Arrow type of a column by its word in the manifest, as far as texts are checked by it before a file is."""
    word = str(column.get("arrow_type"))
    simple: Mapping[str, pa.DataType] = {
        str(kind): kind
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.binary(), pa.large_binary(), pa.uuid()),
        )
    }
    return simple.get(word, pa.string())


def _tensor_value(column: Mapping[str, object], text: str) -> int | float | bool:
    """The value that a tensor holds for this text.

    Raises:
        _NoValueError: There is none.
    """
    dtype = str(column.get("dtype"))
    value = _number(column, text)
    if dtype == "bfloat16":
        raise _NoValueError("bfloat16 does not name rows")
    if dtype == "bool":
        if not isinstance(value, bool):
            raise _NoValueError("it is neither true nor false")
        return value
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        if value != int(value) or not limits.min <= value <= limits.max:
            raise _NoValueError(f"it is no {dtype}")
        return int(value)
    return float(value)


def _number(column: Mapping[str, object], text: str) -> int | float | bool:
    decimal, category = column.get("decimal"), column.get("category")
    if isinstance(category, dict) and isinstance(category.get("values"), list):
        if text not in category["values"]:
            raise _NoValueError("it is none of its labels")
        return int(category["values"].index(text))
    if isinstance(decimal, dict):
        exact = _decimal(text)
        if decimal.get("encoding") != "scaled_int":
            return float(exact)
        scaled = exact.scaleb(integer(decimal["scale"]))
        if scaled != scaled.to_integral_value():
            raise _NoValueError(f"it has more than {decimal['scale']} digits after the point")
        return int(scaled)
    match column.get("kind"):
        case "bool":
            return _bool(text)
        case "timestamp":
            return _instant(text)
        case "date":
            return (_date(text) - date(1970, 1, 1)) // _DAY
        case "duration" if str(column.get("arrow_type")).startswith("time"):
            clock = _time(text)
            return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 10**6 + clock.microsecond
        case "continuous":
            return _float(text)
        case _:
            return _integer(text)


def _arrow_value(kind: Any, text: str) -> Any:
    """The Arrow scalar of this text.

    Raises:
        _NoValueError: There is none.
    """
    types = pa.types
    value: object = text
    if isinstance(kind, pa.BaseExtensionType):
        value = _uuid(text).bytes if str(kind) == str(pa.uuid()) else text
        kind = kind.storage_type
    elif types.is_dictionary(kind):
        kind = kind.value_type
    elif types.is_integer(kind):
        value = _integer(text)
    elif types.is_floating(kind):
        value = _float(text)
    elif types.is_boolean(kind):
        value = _bool(text)
    elif types.is_decimal(kind):
        value = _decimal(text)
    elif types.is_timestamp(kind):
        value = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=_instant(text))
        value = value if kind.tz else value.replace(tzinfo=None)
    elif types.is_date(kind):
        value = _date(text)
    elif types.is_time(kind):
        value = _time(text)
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        value = _bytes(text)
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _NoValueError(str(error)) from None


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise _NoValueError("it is no integer")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _NoValueError("it is no number") from None


def _bool(text: str) -> bool:
    if text not in {"true", "false"}:
        raise _NoValueError("it is neither true nor false")
    return text == "true"


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite():
        raise _NoValueError("it is no decimal number")
    return value


def _instant(text: str) -> int:
    """Microseconds since 1970; a time without a zone is taken as it is, or as UTC where the column has one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _NoValueError("it is no time such as 2026-01-02T03:04:05.000006Z") from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime.fromtimestamp(0, UTC)) // _MICROSECOND


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _NoValueError("it is no date such as 2026-01-02") from None


def _time(text: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise _NoValueError("it is no time of day such as 03:04:05") from None


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _NoValueError("it is not written in hexadecimal digits") from None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _NoValueError("it is no uuid") from None
