-- Every type that the roots are made of: items of arrays, bases of domains, bounds of ranges, attributes of composites.
with recursive want(oid) as (
    select distinct root.oid from unnest(:roots) as root(oid)
    union
    select inner_type.oid
    from want
    join pg_catalog.pg_type p on p.oid = want.oid
    cross join lateral (
        select p.typelem where p.typelem <> 0 and p.typcategory = 'A'
        union all
        select p.typbasetype where p.typbasetype <> 0
        union all
        select r.rngsubtype from pg_catalog.pg_range r where r.rngtypid = p.oid
        union all
        select r.rngtypid from pg_catalog.pg_range r where :multirange = p.oid
        union all
        select a.atttypid from pg_catalog.pg_attribute a
        where p.typtype = 'c' and a.attrelid = p.typrelid and a.attnum > 0 and not a.attisdropped
    ) as inner_type(oid)
)
select
    p.oid::int8,
    pg_catalog.format_type(p.oid, -1),
    n.nspname = 'pg_catalog',
    p.typtype::text,
    p.typcategory::text,
    p.typelem::int8,
    p.typbasetype::int8,
    p.typtypmod,
    p.typndims,
    coalesce((select f.proname from pg_catalog.pg_proc f where f.oid = p.typsend), '')::text,
    coalesce((select r.rngsubtype from pg_catalog.pg_range r where r.rngtypid = p.oid), 0)::int8,
    coalesce((select r.rngtypid from pg_catalog.pg_range r where :multirange = p.oid), 0)::int8,
    (select json_agg(e.enumlabel order by e.enumsortorder) from pg_catalog.pg_enum e where e.enumtypid = p.oid),
    (select json_agg(json_build_array(a.attname, a.atttypid::int8, a.atttypmod, a.attndims) order by a.attnum)
     from pg_catalog.pg_attribute a
     where p.typtype = 'c' and a.attrelid = p.typrelid and a.attnum > 0 and not a.attisdropped),
    exists (
        select from pg_catalog.pg_opclass o
        join pg_catalog.pg_am m on m.oid = o.opcmethod
        where m.amname = 'btree' and o.opcdefault and o.opcintype = p.oid
    )
from want
join pg_catalog.pg_type p on p.oid = want.oid
join pg_catalog.pg_namespace n on n.oid = p.typnamespace
