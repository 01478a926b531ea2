-- All tables that the user may read, with what the catalogue estimates of them.
select
    n.nspname,
    c.relname,
    c.relkind::text,
    case when c.reltuples >= 0 and c.relkind in ('r', 'm', 'p') then c.reltuples::int8 end,
    case when c.relkind in ('r', 'm') then pg_catalog.pg_table_size(c.oid)
         when c.relkind = 'p' then (
             select sum(pg_catalog.pg_table_size(t.relid))::int8 from pg_catalog.pg_partition_tree(c.oid) t where t.isleaf)
    end,
    n.nspname = any (pg_catalog.current_schemas(false))
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm', 'p', 'v', 'f')
    and n.nspname not in ('pg_catalog', 'information_schema')
    and n.nspname !~ '^pg_(toast|temp_)'
    and pg_catalog.has_schema_privilege(n.oid, 'usage')
    and pg_catalog.has_any_column_privilege(c.oid, 'select')
    and not c.relispartition
order by 6 desc, 1, 2
