"""What `planning.cut` must know: sizes from the catalogue, ways to cut, and a key's distribution in the server's order.

Nothing is computed from key values here: bounds are picked, ordered and made distinct by the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from connectors.base import Facts, KeyFacts, KeyStep, LeafFacts, Obstacle
from connectors.postgresql import statements
from connectors.postgresql.describe import DIALECT, MULTIRANGES
from connectors.postgresql.session import Row, catalogue, literal, network_note
from connectors.sqltext import tokens
from etl.core.errors import ConfigError, StoreError
from etl.core.partition import Pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.base import CutWish, Query
    from connectors.postgresql.describe import Description, Relation
    from connectors.postgresql.session import Session
    from connectors.postgresql.types import Column
    from connectors.sqltext import Text
    from etl.core.partition import Snapshot

FRESH: Final = 0.1
"""Rows changed since ANALYZE, as a share, up to which statistics count."""
BOUNDS_PER_PART: Final = 16
"""Bounds looked for per part: a part is then uneven by one sixteenth at most, before sampling."""
SMALL: Final = 32 << 20
"""Bytes up to which a source is one part anyway (the plan's own line)."""
ALONE: Final = 0.8
"""A value that has this share of its step's rows counts as the step."""
SAMPLE_PAGES: Final = 64
"""Pages sampled per part: neighbours on a page are alike, so pages count, not rows."""
SAMPLE_ALL: Final = 2048
"""A table up to this many pages (16 MiB) is looked at as a whole."""
CLOCKS: Final = frozenset(
    {
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "localtime",
        "localtimestamp",
        "transaction_timestamp",
        "statement_timestamp",
    }
)
"""Stable inside a transaction, but each part has its own: rows could fall between two parts' clocks."""


@dataclass(frozen=True, slots=True)
class _Size:
    """One table's size and rights; `fresh`: its statistics are near."""

    kind: str
    pages: int
    bytes: int
    secured: bool
    parent: bool
    fresh: bool


def facts(
    session: Session, described: Description, query: Query, at: Snapshot, wish: CutWish, *, sample: bool
) -> Facts:
    """Sizes and the ways in which the source may be cut.

    Without `sample` only catalogues, statistics and EXPLAIN are read.

    Raises:
        ConfigError: The column to cut by does not exist.
        EtlError: The server refused or was lost.
    """
    if wish.column is not None:
        described.column(wish.column)
    found = (
        _of_table(session, described, query, wish, described.relation, sample=sample)
        if described.relation is not None
        else _of_query(session, described, query, wish, described.text, sample=sample)
    )
    if query.limit is not None:
        found = _one(found, Obstacle("limit", f"the first {query.limit} rows are read as one part"))
    elif at.kind == "single":
        found = _one(
            found,
            Obstacle(
                "no-snapshot",
                "the server does not export a snapshot, so parts would not be of one moment",
                'Grant EXECUTE on pg_export_snapshot(), or allow it: consistency = "per-part".',
            ),
        )
    note = network_note(session.endpoint)
    return _with(found, notes=(*found.notes, note)) if note else found


def _with(old: Facts, *, notes: tuple[str, ...] | None = None, key: KeyFacts | None = None) -> Facts:
    return Facts(
        old.rows,
        old.bytes,
        old.pages,
        old.leaves,
        key or old.key,
        old.hash_column,
        old.obstacle,
        old.notes if notes is None else notes,
        old.readers,
    )


def _one(old: Facts, obstacle: Obstacle) -> Facts:
    return Facts(old.rows, old.bytes, obstacle=obstacle, notes=old.notes, readers=old.readers)


def _explained(rows: Sequence[Row]) -> dict[str, Any]:
    plan: dict[str, Any] = rows[0][0][0]["Plan"]
    return plan


# Tables ---------------------------------------------------------------------------------------------------------------


def _of_table(
    session: Session, described: Description, query: Query, wish: CutWish, relation: Relation, *, sample: bool
) -> Facts:
    oid = f"{relation.oid}::oid"
    values = {"relation": oid}
    everything = statements.projection([c for c in described.columns if not c.cast]) or "1"
    results = session.run(
        "; ".join(
            (
                catalogue("size", values),
                catalogue("leaves", values),
                catalogue("unique", values),
                f"explain (format json) select {everything} from {relation.quoted}",  # noqa: S608 - quoted names
            )
        ),
        f"planning {relation.words}",
    )
    size = _size(results[0][0])
    leaves, uniques, plan = results[1], [tuple(r[0]) for r in results[2]], _explained(results[3])
    rows = float(plan["Plan Rows"])
    parent = relation.kind == "p" or size.parent
    total = sum(leaf[3] for leaf in leaves) if parent else size.bytes
    if relation.kind in ("v", "f"):
        total = round(rows * plan["Plan Width"])
    base = Facts(rows, total)
    if wish.column is not None:
        return _by_column(session, described, base, wish, query, size=size, leaves=leaves, sample=sample)
    if parent:
        refused = _leaf_obstacle(relation, leaves, size)
        if refused is None:
            return Facts(rows, total, leaves=tuple(_leaf(leaf, session.version) for leaf in leaves))
    else:
        refused = _page_obstacle(relation, size, session.version)
        if refused is None:
            return Facts(rows, total, pages=size.pages)
    return _by_own_key(session, described, base, wish, query, uniques, refused, size=size, leaves=leaves, sample=sample)


def _size(row: Row) -> _Size:
    kind, pages, total, secured, parent, relpages, reltuples, changed, live, analyzed = row
    grown = abs(pages - relpages) > FRESH * max(relpages, 1) + 1
    # A session that fills a table and analyzes it hands its row counts in after ANALYZE has set them: rows came in,
    # it seems, and not a page was added.
    late = pages == relpages and live - reltuples >= (1 - FRESH) * changed
    fresh = analyzed and reltuples > 0 and (changed <= FRESH * reltuples or late) and not grown
    return _Size(kind, int(pages), int(total), secured, parent, bool(fresh))


def _leaf(row: Row, version: int) -> LeafFacts:
    name, _, pages, total, reltuples, relpages, *_ = row
    rows = reltuples / relpages * pages if relpages > 0 and reltuples >= 0 else total / 100
    return LeafFacts(name, int(total), float(rows), int(pages) if version >= MULTIRANGES else None)


def _leaf_obstacle(relation: Relation, leaves: Sequence[Row], size: _Size) -> Obstacle | None:
    if size.secured or any(leaf[8] for leaf in leaves):
        return _row_security(relation)
    foreign = [leaf[0] for leaf in leaves if leaf[1] == "f"]
    if foreign:
        return Obstacle("foreign-table", f"{foreign[0]} is a foreign table", "Read the foreign server itself.")
    closed = [leaf[0] for leaf in leaves if not (leaf[6] and leaf[7])]
    if closed:
        return Obstacle(
            "no-privilege",
            f"this user has no SELECT right on the partition {closed[0]} itself",
            f"Grant SELECT on {closed[0]} and its siblings, or name a column with --partition-column.",
        )
    if not leaves:
        return Obstacle("small", f"{relation.words} has no partitions")
    return None


def _row_security(relation: Relation) -> Obstacle:
    return Obstacle(
        "row-security",
        f"row security is active on {relation.words}, which rules out reading by pages",
        "Read as the owner, or name a column with --partition-column.",
    )


def _page_obstacle(relation: Relation, size: _Size, version: int) -> Obstacle | None:
    if relation.kind == "v":
        return Obstacle("no-key", f"{relation.words} is a view", "Name a column with --partition-column.")
    if relation.kind == "f":
        return Obstacle("foreign-table", f"{relation.words} is a foreign table", "Read the foreign server itself.")
    if size.secured:
        return _row_security(relation)
    if version < MULTIRANGES:
        return Obstacle(
            "server-too-old",
            "servers before PostgreSQL 14 cannot read ranges of pages",
            "Name a column with --partition-column.",
        )
    return None if size.pages else Obstacle("small", f"{relation.words} is empty")


def _by_own_key(
    session: Session,
    described: Description,
    base: Facts,
    wish: CutWish,
    query: Query,
    uniques: Sequence[tuple[str, ...]],
    refused: Obstacle,
    *,
    size: _Size,
    leaves: Sequence[Row],
    sample: bool,
) -> Facts:
    """By the first column of a unique index; by all of its columns when one value of the first is too heavy."""
    usable = [u for u in uniques if described.column(u[0]).ordered]
    if refused.reason == "no-key" and _small(base, wish):
        refused = Obstacle("small", "it is estimated at under 32 MiB")
    if refused.reason in ("small", "foreign-table") or not usable:
        return _one(base, refused)
    key = usable[0]
    found = _by_column(session, described, base, wish, query, size=size, leaves=leaves, sample=sample, column=key[0])
    if found.key is None:
        return _one(base, refused)
    parts = _parts(base, wish)
    heavy = max((s.rows for s in found.key.steps if s.single), default=0.0)
    whole = len(key) > 1 and all(described.column(c).ordered for c in key)
    if whole and sample and heavy > 1.5 * base.rows / parts:
        columns = [described.column(c) for c in key]
        return _with(found, key=_sampled(session, described, query, columns, base, parts, _pages_of(size, leaves)))
    return found


def _small(base: Facts, wish: CutWish) -> bool:
    """Whether nobody would cut it, so that not being able to is nothing to warn of."""
    return wish.partitions is None and wish.column is None and base.bytes < SMALL


def _pages_of(size: _Size, leaves: Sequence[Row]) -> int:
    return size.pages or sum(int(leaf[2]) for leaf in leaves)


def _parts(base: Facts, wish: CutWish) -> int:
    """At least the number of parts that `planning.cut` may make."""
    return wish.partitions or max(-(-base.bytes // wish.partition_bytes), 4 * wish.readers, 1)


def _by_column(
    session: Session,
    described: Description,
    base: Facts,
    wish: CutWish,
    query: Query,
    *,
    size: _Size | None,
    leaves: Sequence[Row],
    sample: bool,
    column: str | None = None,
) -> Facts:
    one = described.column(column or wish.column or "")
    if not one.ordered:
        return Facts(base.rows, base.bytes, hash_column=one.name, notes=base.notes)
    parts = _parts(base, wish)
    if wish.partitions == 1:
        return base
    if size is not None and size.fresh and not one.is_array and one.table:
        key = _from_statistics(session, described, one, base, parts)
        if key is not None:
            return _with(base, key=key)
    if not sample:
        return _with(base, key=KeyFacts((one.name,), nullable=one.field.nullable, deferred=True))
    pages = _pages_of(size, leaves) if size is not None else 0
    key = _sampled(session, described, query, [one], base, parts, pages)
    notes = base.notes
    if described.relation is None or described.relation.kind == "v":
        notes = (*notes, f"the bounds of {one.name} were found by running the query once more")
    return _with(base, key=key, notes=notes)


# Keys -----------------------------------------------------------------------------------------------------------------


def _collate(column: Column) -> str:
    return f" collate {column.collation}" if column.collation else ""


def _from_statistics(
    session: Session, described: Description, column: Column, base: Facts, parts: int
) -> KeyFacts | None:
    """From pg_stats; None where they are absent or too coarse for this many parts."""
    relation = described.relation
    if relation is None:
        return None
    rows = session.rows(
        catalogue(
            "statistics",
            {
                "schema": literal(relation.schema),
                "table": literal(relation.name),
                "column": literal(column.name),
                "inherited": "false",
                "type": column.literal_type,
                "collate": _collate(column),
            },
        ),
        f"reading the statistics of {relation.words}",
    )
    # With two bounds per part and fewer, a part could be twice as large as its neighbour.
    if len(rows) < 3 * parts and not (rows and all(single for _, _, single, _ in rows)):
        return None
    steps = tuple(KeyStep((bound,), weight * base.rows, single=single) for bound, weight, single, _ in rows)
    nulls = float(rows[0][3]) * base.rows
    return KeyFacts((column.name,), steps, 0.0, nulls, column.field.nullable, "the server's statistics")


def _sampled(
    session: Session,
    described: Description,
    query: Query,
    columns: Sequence[Column],
    base: Facts,
    parts: int,
    pages: int,
) -> KeyFacts:
    """Bounds picked by the server from a sample of pages, or from all rows of a small table or of a query."""
    wanted = max(BOUNDS_PER_PART * parts, 64)
    names = [statements.name(c.name) for c in columns]
    clause, origin = "", "all rows"
    sampled = SAMPLE_PAGES * parts
    can = described.relation is not None and described.relation.kind in ("r", "m", "p")
    if can and pages > max(SAMPLE_ALL, 2 * sampled):
        share = 100 * max(sampled, SAMPLE_ALL) / pages
        clause, origin = f" tablesample system ({share:.6f}) repeatable (42)", f"a sample of {share:.2g} % of the pages"
    if described.relation is not None:
        source = f"select {', '.join(names)} from {described.relation.quoted}{clause}"  # noqa: S608 - quoted names
    else:
        source = statements.select(described, query, statements.WHOLE, [described.column(c.name) for c in columns])
        source = f"select {', '.join(names)} from (\n{source}\n) as cuetl_s"  # noqa: S608 - the user's own query
    keys = ", ".join(f"k{i}" for i in range(len(names)))
    texts = ", ".join(f"format('%s', k{i})" for i in range(len(names)))
    # `first` and `last` are where a value begins and ends among all, so that a value has its whole weight; the value
    # after a heavy one is a bound too, so that the heavy one stands alone.
    sql = f"""
    with sampled({keys}) as (
        {source}
    ),
    numbered as (
        select {keys}, row_number() over w as n, rank() over w as first, count(*) over w as last,
            count(k0) over () as valued, count(*) over () as rows
        from sampled window w as (order by {keys})
    ),
    marked as (
        select *, lag(last - first + 1) over (order by n) as before from numbered
    ),
    picked as (
        select * from marked
        where n = 1 or (n <= valued and (
            (n - 1) * {wanted} / valued <> (n - 2) * {wanted} / valued or (n = first and before * {wanted} > valued)))
    )
    select min(first), min(last), min(valued), min(rows), {texts} from picked group by {keys} order by {keys}
    """  # noqa: S608 - quoted names, and the user's own query
    rows = session.rows(sql, f"looking for bounds of {', '.join(c.name for c in columns)}")
    nullable = columns[0].field.nullable
    names_ = tuple(c.name for c in columns)
    if not rows:
        return KeyFacts(names_, (), nullable=nullable, origin=origin)
    valued, seen = int(rows[0][2]), int(rows[0][3])
    total = float(seen) if not clause else base.rows
    scale = total / max(seen, 1)
    nulls = (seen - valued) * scale
    if not valued:
        return KeyFacts(names_, (), 0.0, nulls, nullable, origin)
    starts = [int(r[0]) for r in rows] + [valued + 1]
    steps = tuple(
        KeyStep(tuple(row[4:]), (after - start) * scale, single=int(row[1]) - start + 1 >= ALONE * (after - start))
        for row, (start, after) in zip(rows, pairwise(starts), strict=True)
    )
    return KeyFacts(names_, steps, 0.0, nulls, nullable, origin)


# Queries --------------------------------------------------------------------------------------------------------------


def _of_query(
    session: Session, described: Description, query: Query, wish: CutWish, text: Text | None, *, sample: bool
) -> Facts:
    if text is None:
        raise ConfigError("there is neither a table nor a query")
    plan = _explained(session.rows(f"explain (format json) {text.sql}", "planning the query"))
    base = Facts(float(plan["Plan Rows"]), round(plan["Plan Rows"] * plan["Plan Width"]))
    top = text.top_level
    if top.has_limit:
        return _one(
            base,
            Obstacle(
                "limit",
                "LIMIT, OFFSET or the like would be evaluated anew in each part",
                "Leave it out, or write the query into a table first.",
            ),
        )
    if top.has_order_by and wish.column is None:
        return _one(
            base,
            Obstacle(
                "order-by",
                "the order of the rows is kept by reading them as one part",
                "Leave ORDER BY out, or name a column with --partition-column.",
            ),
        )
    unstable = _unstable(session, text)
    if unstable:
        return _one(
            base,
            Obstacle(
                "nondeterministic",
                f"{unstable} gives another value in each part",
                "Put its value into a parameter.",
            ),
        )
    if wish.column is not None:
        notes = (f"rows keep their order inside a part only ({wish.column} cuts it)",) if top.has_order_by else ()
        base = _with(base, notes=notes)
        return _by_column(session, described, base, wish, query, size=None, leaves=(), sample=sample)
    pages = _query_pages(session, text)
    if pages is not None:
        return Facts(base.rows, max(base.bytes, 1), pages=pages)
    if _small(base, wish):
        return _one(base, Obstacle("small", "the query is estimated at under 32 MiB"))
    return _one(
        base,
        Obstacle(
            "no-key",
            "the query is not a plain select from one table",
            "Name a column of its output with --partition-column.",
        ),
    )


def _unstable(session: Session, text: Text) -> str:
    words = {t.text.lower() for t in tokens(text.sql, DIALECT) if t.kind == "word"}
    clocks = sorted(words & CLOCKS)
    if clocks:
        return clocks[0]
    called = sorted(text.top_level.functions)
    if not called:
        return ""
    names = ", ".join(literal(one) for one in called)
    rows = session.rows(
        f"select proname from pg_catalog.pg_proc where proname in ({names}) and provolatile = 'v' limit 1",  # noqa: S608 - quoted literals
        "looking up functions",
    )
    return f"{rows[0][0]}()" if rows else ""


def _query_pages(session: Session, text: Text) -> int | None:
    """Pages of the one table of a plain select, when the server's plan of a part proves that they may cut it."""
    simple = text.top_level.simple_select
    if simple is None or session.version < MULTIRANGES:
        return None
    relation = f"pg_catalog.to_regclass({literal(simple.table)})"
    part = statements.paged(simple, statements.pages_condition(Pages(0, 1)))
    try:
        size, planned = session.run(
            f"{catalogue('size', {'relation': relation})}; explain (format json, verbose) {part}", "planning the query"
        )
    except StoreError as error:
        if error.retry == "transient":
            raise
        return None  # the condition did not fit into the text: it is read in one part
    if not size:
        return None
    facts_ = _size(size[0])
    plan = _explained(planned)
    single = plan["Node Type"] == "Tid Range Scan" and not plan.get("Plans")
    if facts_.kind not in ("r", "m") or facts_.parent or facts_.secured or not single or not facts_.pages:
        return None
    return facts_.pages
