-- The tables that hold the rows of a partitioned or inherited parent, itself too when it can hold rows.
with recursive tree(oid) as (
    select :relation
    union
    select i.inhrelid from tree join pg_catalog.pg_inherits i on i.inhparent = tree.oid
)
select
    format('%I.%I', n.nspname, c.relname),
    c.relkind::text,
    case when c.relkind = 'f' then 0 else pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::int8 end,
    case when c.relkind = 'f' then 0 else pg_catalog.pg_table_size(c.oid) end,
    c.reltuples::float8,
    c.relpages::int8,
    pg_catalog.has_table_privilege(c.oid, 'select'),
    pg_catalog.has_schema_privilege(n.oid, 'usage'),
    pg_catalog.row_security_active(c.oid)
from tree
join pg_catalog.pg_class c on c.oid = tree.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'f')
order by pg_catalog.pg_relation_size(c.oid) desc, c.oid
