-- What a table is: its names, kind, primary key, and how many decimals stored money has here.
select
    c.oid::int8,
    n.nspname,
    c.relname,
    c.relkind::text,
    coalesce((
        select json_agg(a.attname order by k.position)
        from pg_catalog.pg_index i
        cross join lateral unnest(i.indkey) with ordinality as k(attnum, position)
        join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
        where i.indrelid = c.oid and i.indisprimary
    ), '[]'),
    pg_catalog.scale('1'::money::numeric)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = :relation
