-- What the catalogue adds to a described query: the words of each type, and dimensions and collation of base columns.
select
    d.position::int4,
    pg_catalog.format_type(d.type, d.modifier),
    coalesce(a.attndims, 0)::int4,
    case when a.attcollation <> 0 and a.attcollation <> 100
        then (select format('%I.%I', cn.nspname, co.collname) from pg_catalog.pg_collation co
              join pg_catalog.pg_namespace cn on cn.oid = co.collnamespace where co.oid = a.attcollation)
        else '' end,
    pg_catalog.scale('1'::money::numeric)
from unnest(:types, :modifiers, :tables, :attributes) with ordinality as d(type, modifier, relation, attribute, position)
left join pg_catalog.pg_attribute a on a.attrelid = d.relation and a.attnum = d.attribute and d.attribute > 0
order by d.position
