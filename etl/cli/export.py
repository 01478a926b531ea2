"""`cuetl export`: flags to jobs, jobs to datasets."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from connectors import registry
from connectors.base import CutWish, Query
from etl.cli import output, process, words
from etl.core import lookup
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.engine import select
from etl.planning.jobs import Job, Reading, Write
from etl.run import explain, runner
from etl.run.naming import new_run_id
from etl.settings import endpoint
from etl.tensors.options import WriteOptions
from etl.tensors.places import Place, place_of

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.base import Cast, Endpoint, Mode, Special
    from etl.tensors.options import Format, Layout, Order
    from etl.tensors.places import Target

DEFAULT_FORMAT = "safetensors"
MODES = ("create", "replace", "append")
CASTS = ("exact", "round", "saturate")
SPECIALS = ("error", "null", "clamp")
NULLS = ("mask", "error", "drop")
LAYOUTS = ("columns", "packed")
ORDERS = ("source", "key", "shuffle")
MOST_PARTS = 100_000
"""More parts than this are a slip of the keyboard; the plan alone would not fit a screen or a manifest."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of `export` as typed."""

    source: str
    to: tuple[str, ...]
    sql: str | None = None
    sql_file: Path | None = None
    tables: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    columns: str | None = None
    types: tuple[str, ...] = ()
    limit: int | None = None
    features: str | None = None
    target: str | None = None
    weight: str | None = None
    key: str | None = None
    order: str | None = None
    shuffle: int | None = None
    layout: str | None = None
    dtype: str | None = None
    cast: str = "exact"
    nulls: str = "mask"
    special: str | None = None
    split: str | None = None
    split_key: str | None = None
    split_salt: str | None = None
    partition_column: str | None = None
    partitions: int | None = None
    partition_bytes: str = "128MiB"
    workers: int | None = None
    params: tuple[str, ...] = ()
    engine: str = "auto"
    mode: str = "create"
    count: bool = True
    resume: str | None = None
    plan: bool = False
    as_json: bool = False
    quiet: bool = False
    debug: bool = False


def export(flags: Flags, /) -> None:
    """Carry out one `cuetl export`.

    Raises:
        EtlError: What failed; nothing was published then.
    """
    process.prepare(flags.source, debug=flags.debug)
    run_id = new_run_id()
    jobs = jobs_of(flags, run_id)
    if flags.plan:
        plans = explain.plan(jobs, engine=flags.engine, workers=flags.workers)
        if flags.as_json:
            output.emit_json(plans[0] if len(plans) == 1 else {"tables": plans})
            return
        for index, one in enumerate(plans):
            if index:
                output.text()
            output.plan(one)
        return
    with output.progress(quiet=flags.quiet or flags.as_json) as progress:
        results = runner.run(
            jobs,
            run_id=run_id,
            engine=flags.engine,
            workers=flags.workers,
            progress=progress,
            resume=flags.resume,
        )
    # All is published: a stop that comes now ends the report, not the run.
    with contextlib.suppress(KeyboardInterrupt):
        if flags.as_json:
            output.emit_results(results)
        elif not flags.quiet:
            output.report(results)


def jobs_of(flags: Flags, run_id: str, /) -> tuple[Job, ...]:
    """The jobs of one `export`: one for each table, each with every target.

    Only a table pattern asks the store for something: its list of tables.

    Raises:
        ConfigError: A flag is missing, malformed or at odds with another; it is named.
    """
    sql = _query_text(flags)
    writes = _writes(flags)
    words.choice(flags.mode, MODES, "--mode")
    select.check(flags.engine)
    if flags.partitions is not None and flags.partitions > MOST_PARTS:
        raise ConfigError(f"--partitions {flags.partitions} is more than {MOST_PARTS}")
    params = words.assignments(flags.params, "--param")
    if params and sql is None:
        raise ConfigError("--param fills :NAME in a query, and there is none", hint="Give --sql or --sql-file.")
    types = words.assignments(flags.types, "--types")
    for column, type_ in types.items():
        if not type_.strip():
            raise ConfigError(f"--types {column}= names no type", hint=f"Write --types {column}=int64, for example.")
    columns = words.names(flags.columns, "--columns") if flags.columns is not None else None
    options = _options(flags)
    of_format = {
        fmt: _twin(options) if fmt == "parquet" and len({f for _, f in writes}) > 1 else options for _, fmt in writes
    }
    wish = CutWish(flags.partition_column, flags.partitions, options.partition_bytes)
    at = endpoint(flags.source)
    several = len(flags.tables) > 1 or any(_is_pattern(name) for name in flags.tables)
    jobs = []
    for name in _tables(at, flags.tables) if sql is None else (None,):
        query = Query(
            table=name,
            sql=sql,
            columns=columns,
            types=types,
            params=params,
            limit=flags.limit,
            key=options.key,
            special=options.special,
            cast=options.cast,
            run_id=run_id,
        )
        under = "" if name is None or not several else f"/{quote(name.replace(chr(34), ''), safe=' ')}"
        targets = tuple(
            Write(f"{to}{under}", cast("Format", fmt), of_format[fmt], cast("Mode", flags.mode)) for to, fmt in writes
        )
        jobs.append(Job(Reading(at, query, wish, name or "query", flags.count), targets))
    return tuple(jobs)


def _query_text(flags: Flags) -> str | None:
    given = [
        flag
        for flag, value in (("--sql", flags.sql), ("--sql-file", flags.sql_file), ("--table", flags.tables or None))
        if value is not None
    ]
    if not given:
        raise ConfigError("nothing to read was named", hint="Give --table NAME, --sql TEXT or --sql-file FILE.")
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} were given together", hint="Give one of them.")
    if flags.sql_file is None:
        text = flags.sql
    else:
        try:
            text = flags.sql_file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"--sql-file {flags.sql_file} cannot be read: {why}") from error
    if text is not None and not text.strip():
        raise ConfigError(f"{given[0]} is empty", hint="Give the query's text.")
    return text


def _writes(flags: Flags) -> list[tuple[str, str]]:
    known = lookup.modules(lookup.FORMATS)
    for name in flags.formats:
        if name not in known:
            raise ConfigError(f"unknown format {name!r}", hint=nearest(name, known, what="formats"))
    formats = flags.formats or (DEFAULT_FORMAT,) * len(flags.to)
    if len(formats) != len(flags.to):
        raise ConfigError(
            f"there are {len(flags.to)} --to and {len(formats)} --format", hint="Give each --to its --format, in order."
        )
    for one in flags.to:
        if not one.strip():
            raise ConfigError("--to is empty", hint="Give the folder of the dataset.")
    places = [place_of(one) for one in flags.to]
    words.refuse_twice(map(str, places), "--to")
    for place in places:
        for outer in places:
            if _inside(place, outer):
                raise ConfigError(
                    f"--to {place} lies inside --to {outer}, whose readers would read its files too",
                    hint="Name a folder beside it.",
                )
    return list(zip(flags.to, formats, strict=True))


def _inside(place: Target, outer: Target) -> bool:
    if isinstance(place, Place) or isinstance(outer, Place):
        return str(place).startswith(f"{outer}/")
    return outer in place.parents


def _options(flags: Flags) -> WriteOptions:
    words.choice(flags.cast, CASTS, "--cast")
    order = flags.order or ("source" if flags.shuffle is None else "shuffle")
    words.choice(order, ORDERS, "--order")
    if flags.special is not None:
        words.choice(flags.special, SPECIALS, "--special")
    if flags.layout is not None:
        words.choice(flags.layout, LAYOUTS, "--layout")
    if not flags.nulls.startswith("fill="):
        words.choice(flags.nulls, (*NULLS, "fill=VALUE"), "--nulls")
    listed = {
        flag: words.names(value, flag) if value is not None else ()
        for flag, value in (
            ("--features", flags.features),
            ("--target", flags.target),
            ("--key", flags.key),
            ("--split-key", flags.split_key),
        )
    }
    return WriteOptions(
        features=listed["--features"],
        target=listed["--target"],
        weight=flags.weight,
        key=listed["--key"],
        order=cast("Order", order),
        seed=flags.shuffle,
        layout=cast("Layout | None", flags.layout),
        dtype=flags.dtype,
        cast=cast("Cast", flags.cast),
        nulls=flags.nulls,
        special=cast("Special | None", flags.special),
        split=words.shares(flags.split, "--split") if flags.split is not None else {},
        split_key=listed["--split-key"],
        split_salt=flags.split_salt or "",
        partition_bytes=words.size(flags.partition_bytes, "--partition-bytes"),
    )


def _twin(options: WriteOptions) -> WriteOptions:
    """The flags of a Parquet dataset beside tensors of the same read: without those that speak of tensors."""
    nulls = "mask" if options.nulls.startswith("fill=") else options.nulls
    return replace(options, layout=None, dtype=None, nulls=nulls)


def _is_pattern(name: str) -> bool:
    return "*" in name and not name.startswith('"')


def _tables(at: Endpoint, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The tables wanted, patterns replaced by the store's tables that match them (views are not taken along)."""
    found: list[str] = []
    known: list[str] | None = None
    for name in wanted:
        if not _is_pattern(name):
            found.append(name)
            continue
        if known is None:
            every = registry.connector(at.scheme).tables(at)
            known = [one.name for one in every if "view" not in one.kind]
        # A quoted name is matched as it is called: `a.*` finds "a.b".
        matching = [one for one in known if fnmatchcase(one.replace('"', ""), name)]
        if not matching:
            raise ConfigError(f"no table matches --table {name}", hint=nearest(name, known, what="tables"))
        found.extend(one for one in matching if one not in found)
    words.refuse_twice(found, "--table")
    return tuple(found)
