-- Size and rights of one table, and how far its statistics are from it.
select
    c.relkind::text,
    case when c.relkind in ('r', 'm') then pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::int8 else 0 end,
    case when c.relkind in ('r', 'm') then pg_catalog.pg_table_size(c.oid) else 0 end,
    pg_catalog.row_security_active(c.oid),
    exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid),
    c.relpages::int8,
    c.reltuples::float8,
    coalesce(pg_catalog.pg_stat_get_mod_since_analyze(c.oid), 0)::int8,
    coalesce(pg_catalog.pg_stat_get_live_tuples(c.oid), 0)::int8,
    pg_catalog.pg_stat_get_last_analyze_time(c.oid) is not null
        or pg_catalog.pg_stat_get_last_autoanalyze_time(c.oid) is not null
from pg_catalog.pg_class c
where c.oid = :relation
