"""`cuetl.toml` and the environment as one frozen value, and sources as typed by the user as endpoints.

The file is `cuetl.toml` in the working folder, else the file that `$CUETL_CONFIG` names. This is the one place that
reads the environment for configuration.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.base import Endpoint
from connectors.registry import SPELLINGS
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.core.secrets import SecretRef, is_reference, keep_inline
from etl.core.urls import PORTS, looks_like_url, parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "cuetl.toml"
SECTIONS = ("connections", "engine", "storage")
TEXT_KEYS = ("url", "user", "host", "database")
OPTIONS: dict[str, type] = {
    "consistency": str,
    "statement_timeout": str,
    "show_detail": bool,
    "max_connections": int,
}
"""Keys that travel in `Endpoint.options`, with their TOML type."""
KEYS = (*TEXT_KEYS, "password", "port", *OPTIONS)
STORAGE_TEXT = ("endpoint", "region")
STORAGE_SECRETS = ("access_key", "secret_key", "session_token")
STORAGE_KEYS = ("url", *STORAGE_TEXT, *STORAGE_SECRETS, "anonymous")
CONSISTENCY = ("snapshot", "per-part")

FRACTION_OR_BYTES = (int, float, str)
ENGINE: dict[str, tuple[type, ...]] = {
    "devices": (list,),
    "protocol": (str,),
    "threads_per_worker": (int,),
    "rmm_async": (bool,),
    "rmm_maximum_pool_size": FRACTION_OR_BYTES,
    "rmm_pool_size": FRACTION_OR_BYTES,
    "device_memory_limit": FRACTION_OR_BYTES,
    "memory_limit": FRACTION_OR_BYTES,
    "local_directory": (str,),
    "enable_tcp_over_ucx": (bool,),
    "enable_infiniband": (bool,),
    "enable_nvlink": (bool,),
    "enable_rdmacm": (bool,),
    "tls_ca_file": (str,),
    "tls_client_cert": (str,),
    "tls_client_key": (str,),
    "require_tls": (bool,),
}
"""Keys of `[engine]`, with their TOML types."""
NO_TASK_SHUFFLE = "shuffles are Dask's own tasks or peer-to-peer; leave it out"
REFUSED = {
    "jit_unspill": "dask-cuda removed it in 26.06; spilling is cuDF's own and is on; leave it out",
    "explicit_comms": f"dask-cuda removed it in 26.06; {NO_TASK_SHUFFLE}",
    "shared_filesystem": f"dask-cuda removed it in 26.06; {NO_TASK_SHUFFLE}",
    "ucx_py": "UCX-Py was replaced by distributed-ucxx, which configures itself",
    "query_planning": "Dask has the expression backend only; leave it out",
    "rmm_managed_memory": "managed memory excludes the asynchronous allocator and NVLink; leave it out",
    "rmm_track_allocations": "memory is measured around the work on the device instead; leave it out",
    "rmm_allocator_external_lib_list": "CuPy, and torch where it is there, always share the allocator; leave it out",
    "enable_cudf_spill": "it is on wherever the device has memory of its own; leave it out",
}
"""What somebody may know from dask-cuda and may not set here, with the reason."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_DURATION = re.compile(r"\d+(?:\.\d+)?\s*(?:ms|s|min|h)?")


@dataclass(frozen=True, slots=True)
class Connection:
    """One `[connections.NAME]`: the URL, and the fields that stand beside it or in place of its parts.

    Text is as written; `password` and any `${env:NAME}` are references still.
    """

    name: str
    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    database: str | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """`[engine]`: what may be said of GPU workers and of the way to a scheduler. None: what cuETL chooses.

    Attributes:
        devices: Indices or UUIDs (of MIG instances too) of the GPUs to use, one worker each; (): all.
        protocol: "tcp", or "ucx" between several GPUs.
        threads_per_worker: Reads at once for each GPU.
        rmm_async: Take device memory from the driver's own pool. Not with `rmm_pool_size`.
        rmm_maximum_pool_size: The most of it, as a fraction of the device, bytes or text such as "70 GB".
        rmm_pool_size: Take that much at once instead: what UCX needs.
        device_memory_limit: Where Dask starts to spill results of whole-data graphs.
        memory_limit: Host memory of one worker.
        local_directory: Where workers keep their files.
        enable_tcp_over_ucx: Force this transport of UCX on or off, as the other three; None: UCX finds out.
        enable_infiniband: As above.
        enable_nvlink: As above.
        enable_rdmacm: As above.
        tls_ca_file: The authority of a `tls://` scheduler.
        tls_client_cert: This client's certificate.
        tls_client_key: Its key.
        require_tls: Refuse an address of a scheduler that does not speak TLS, and UCX, which cannot.
    """

    devices: tuple[str, ...] = ()
    protocol: str | None = None
    threads_per_worker: int | None = None
    rmm_async: bool | None = None
    rmm_maximum_pool_size: float | str | None = None
    rmm_pool_size: float | str | None = None
    device_memory_limit: float | str | None = None
    memory_limit: float | str | None = None
    local_directory: str | None = None
    enable_tcp_over_ucx: bool | None = None
    enable_infiniband: bool | None = None
    enable_nvlink: bool | None = None
    enable_rdmacm: bool | None = None
    tls_ca_file: str | None = None
    tls_client_cert: str | None = None
    tls_client_key: str | None = None
    require_tls: bool = False


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """One `[storage.NAME]`: the beginning of the URLs that it is for, and how that storage is opened."""

    name: str
    url: str
    options: tuple[tuple[str, str | bool | SecretRef], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """All configuration of this process. `path` None: no file was found; `looked` says where one was looked for."""

    path: Path | None = None
    connections: Mapping[str, Connection] = field(default_factory=dict)
    looked: str = FILE
    engine: Engine = field(default_factory=Engine)
    storage: tuple[StorageOptions, ...] = ()


@cache
def settings() -> Settings:
    """The settings of this process, read once.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or holds an unknown key; the nearest known one is named.
    """
    return load(Path.cwd(), os.environ)


def load(folder: Path, environment: Mapping[str, str], /) -> Settings:
    """The settings in effect in a folder and an environment.

    Raises:
        ConfigError: As `settings`.
    """
    named = environment.get("CUETL_CONFIG")
    path = folder / FILE
    if not path.is_file():
        if not named:
            return Settings(looked=f"{FILE} in {folder}")
        path = Path(named).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {why}", hint="Check the file, or $CUETL_CONFIG.") from error
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="See https://toml.io for the syntax.") from error
    _known_keys(tree, SECTIONS, f"{path}", "sections")
    connections = tree.get("connections", {})
    if not isinstance(connections, dict):
        raise ConfigError(f"{path}: connections is not a table", hint="Write [connections.NAME] and its keys.")
    named_ones = {name: _connection(path, name, one) for name, one in connections.items()}
    storage = tree.get("storage", {})
    if not isinstance(storage, dict):
        raise ConfigError(f"{path}: storage is not a table", hint="Write [storage.NAME] and its keys.")
    storages = tuple(_storage(path, name, one) for name, one in storage.items())
    return Settings(path, named_ones, str(path), _engine(path, tree.get("engine", {})), storages)


def storage_options(url: str, /, *, at: Settings | None = None) -> tuple[tuple[str, str | bool | SecretRef], ...]:
    """How the storage of a URL is opened, by the `[storage.NAME]` with the longest beginning of it; () without one."""
    at = settings() if at is None else at
    fit = [one for one in at.storage if url == one.url or url.startswith(one.url.removesuffix("/") + "/")]
    return max(fit, key=lambda one: len(one.url)).options if fit else ()


def cache_folder(environment: Mapping[str, str] | None = None, /) -> Path:
    """Where copies of files of other storages are kept: `$CUETL_CACHE`, else `.cache/cuetl` of the user's home."""
    named = (os.environ if environment is None else environment).get("CUETL_CACHE", "").strip()
    return Path(named).expanduser() if named else Path.home() / ".cache" / "cuetl"


def _storage(path: Path, name: str, keys: object) -> StorageOptions:
    place = f"{path}: [storage.{name}]"
    if not isinstance(keys, dict):
        raise ConfigError(f"{place} is not a table", hint="Write [storage.NAME] and its keys.")
    _known_keys(keys, STORAGE_KEYS, place, "keys")
    options: list[tuple[str, str | bool | SecretRef]] = []
    for key, value in keys.items():
        if type(value) is not (bool if key == "anonymous" else str):
            raise ConfigError(f"{place} {key} is not {'true or false' if key == 'anonymous' else 'text in quotes'}")
        if key in STORAGE_SECRETS and (reference := _reference(str(value))) is not None:
            options.append((key, reference))
        elif key in STORAGE_TEXT:
            options.append((key, _from_environment(str(value)) or ""))
        elif key == "anonymous":
            options.append((key, bool(value)))
    url = str(keys.get("url", ""))
    if "://" not in url:
        raise ConfigError(f"{place} has no url", hint='Write the beginning of the URLs it is for: url = "s3://bucket".')
    return StorageOptions(name, url, tuple(options))


def launched(environment: Mapping[str, str] | None = None, /) -> tuple[int, int] | None:
    """Rank and world size that a launcher (torchrun and its like) put into `RANK` and `WORLD_SIZE`; None: none did.

    Raises:
        ConfigError: One is missing, or they are no rank of a world.
    """
    at = os.environ if environment is None else environment
    rank, world = at.get("RANK", "").strip(), at.get("WORLD_SIZE", "").strip()
    if not rank and not world:
        return None
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ConfigError(
            f"the environment says RANK={rank!r} and WORLD_SIZE={world!r}, which is no rank of a world",
            hint="Set both as numbers, RANK from 0 to WORLD_SIZE - 1, or neither, or give rank= and world_size=.",
        )
    return int(rank), int(world)


def pipelines_folder(environment: Mapping[str, str] | None = None, /) -> Path:
    """The folder of pipelines: `$CUETL_PIPELINES`, else `./pipelines`."""
    at = os.environ if environment is None else environment
    return Path(at.get("CUETL_PIPELINES") or "pipelines").expanduser()


def endpoint(source: str, /, *, at: Settings | None = None) -> Endpoint:
    """The endpoint of a source as the user typed it: a URL, or the name of a connection.

    A password inside a typed URL is kept in this process only, and the endpoint carries a reference to it.

    Raises:
        ConfigError: There is no such connection (the nearest is named), or the URL cannot be read.
    """
    at = settings() if at is None else at
    if looks_like_url(source):
        return _endpoint(Connection("", source))
    if not _NAME.fullmatch(source):
        raise ConfigError(
            "the source is neither a URL nor the name of a connection",
            hint="A URL is written scheme://user@host/database, for files sqlite:///path; its text is not shown, "
            "since it may hold a password.",
        )
    if source not in at.connections:
        where = f" in {at.path}" if at.path else f"; no {at.looked} was found"
        hint = nearest(source, at.connections, what="connections") if at.path else "`cuetl init` makes one."
        raise ConfigError(f"no connection named {source}{where}", hint=hint)
    try:
        return _endpoint(at.connections[source])
    except ConfigError as error:
        raise error.at(f"connection {source}", connection=source) from error


def _connection(path: Path, name: str, keys: object) -> Connection:
    place = f"{path}: [connections.{name}]"
    if not isinstance(keys, dict):
        raise ConfigError(f"{place} is not a table", hint="Write [connections.NAME] and its keys.")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{place} is not a usable name", hint="Use letters, digits, _ and -.")
    _known_keys(keys, KEYS, place, "keys")
    if "url" not in keys:
        raise ConfigError(f"{place} has no url", hint='At least the scheme is needed: url = "postgresql://".')
    for key in (*TEXT_KEYS, "password"):
        if key in keys and not isinstance(keys[key], str):
            raise ConfigError(f"{place} {key} is not text in quotes")
    port = keys.get("port")
    if port is not None and (type(port) is not int or not 0 < port < PORTS):
        raise ConfigError(f"{place} port is not a number from 1 to 65535")
    return Connection(
        name,
        keys["url"],
        user=keys.get("user"),
        password=keys.get("password"),
        host=keys.get("host"),
        port=port,
        database=keys.get("database"),
        options={key: _option(place, key, keys[key]) for key in OPTIONS if key in keys},
    )


def _engine(path: Path, keys: object) -> Engine:
    place = f"{path}: [engine]"
    if not isinstance(keys, dict):
        raise ConfigError(f"{place} is not a table", hint="Write [engine] and its keys.")
    for key in keys:
        plain = key.lower().replace("-", "_")
        if plain in REFUSED:
            raise ConfigError(f"{place} {key} cannot be set", hint=f"{REFUSED[plain]}.")
    _known_keys(keys, tuple(ENGINE), place, "keys")
    for key, value in keys.items():
        if type(value) not in ENGINE[key]:
            kinds = {str: "text in quotes", bool: "true or false", int: "a whole number", list: "a list"}
            what = " or ".join(kinds.get(kind, "a number with a point") for kind in ENGINE[key])
            raise ConfigError(f"{place} {key} is not {what}")
    listed = keys.get("devices", [])
    if any(type(one) not in (int, str) for one in listed) or len({str(one) for one in listed}) < len(listed):
        raise ConfigError(f"{place} devices are not different numbers or UUIDs", hint='Write [0, 1] or ["GPU-…"].')
    if keys.get("threads_per_worker", 1) < 1:
        raise ConfigError(f"{place} threads_per_worker is less than 1")
    return Engine(**{**keys, "devices": tuple(str(one) for one in listed)})


def _option(place: str, key: str, value: object) -> str | int | float | bool:
    if key == "statement_timeout" and type(value) in (int, float):
        value = f"{value}s"  # a bare number is in seconds, as in every other place of cuETL
    if not isinstance(value, (str, int, float)) or type(value) is not OPTIONS[key]:
        kinds = {str: "text in quotes", bool: "true or false", int: "a whole number"}
        raise ConfigError(f"{place} {key} is not {kinds[OPTIONS[key]]}")
    if key == "consistency" and value not in CONSISTENCY:
        raise ConfigError(f"{place} consistency is {value!r}", hint='It is "snapshot" or "per-part".')
    if key == "max_connections" and int(value) < 1:
        raise ConfigError(f"{place} max_connections is less than 1")
    if key == "statement_timeout" and not _DURATION.fullmatch(str(value)):
        raise ConfigError(f"{place} statement_timeout is {value!r}", hint='Write it as "30s", "500ms", "5min" or "1h".')
    return value


def _known_keys(table: Mapping[str, object], known: tuple[str, ...], place: str, what: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{place} has an unknown key {key}", hint=nearest(key, known, what=what))


def _endpoint(one: Connection) -> Endpoint:
    url = parse_url(_from_environment(one.url) or "")
    first, plus, driver = url.scheme.partition("+")
    password = url.password if one.password is None else one.password
    database = _from_environment(one.database)
    found = Endpoint(
        one.name,
        f"{SPELLINGS.get(first, first)}{plus}{driver}",
        host=_from_environment(one.host) or url.host,
        port=one.port or url.port,
        database=database or url.database,
        user=_from_environment(one.user) or url.user,
        password=_reference(password),
        query=url.query,
        options=one.options,
    )
    if one.name:
        return found
    return Endpoint(
        found.display(), found.scheme, found.host, found.port, found.database, found.user, found.password, found.query
    )


def _reference(password: str | None) -> SecretRef | None:
    if password is None:
        return None
    if not is_reference(password):
        return keep_inline(password)
    if not password.startswith(("${env:", "${file:")):
        raise ConfigError(f"unknown secret reference {password}", hint="Write ${env:NAME} or ${file:PATH}.")
    return SecretRef(password)


def _from_environment(text: str | None) -> str | None:
    """A field that is `${env:NAME}` as a whole is read here: hosts and users are no secrets, URLs are redacted."""
    if text is None or not text.startswith("${env:") or not text.endswith("}"):
        return text
    name = text[6:-1]
    if name not in os.environ:
        raise ConfigError(f"the environment variable of {text} is not set", hint="Set it.")
    return os.environ[name]
