-- The columns of one table in its own order.
select
    a.attname,
    a.atttypid::int8,
    a.atttypmod,
    a.attndims,
    a.attnotnull,
    pg_catalog.format_type(a.atttypid, a.atttypmod),
    case when a.attcollation <> 0 and a.attcollation <> 100
        then (select format('%I.%I', cn.nspname, co.collname) from pg_catalog.pg_collation co
              join pg_catalog.pg_namespace cn on cn.oid = co.collnamespace where co.oid = a.attcollation)
        else '' end,
    a.attnum::int4
from pg_catalog.pg_attribute a
where a.attrelid = :relation and a.attnum > 0 and not a.attisdropped
order by a.attnum
