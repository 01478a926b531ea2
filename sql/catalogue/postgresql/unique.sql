-- Unique indexes over whole columns without NULLs, the primary key first: keys that can cut a table.
select json_agg(a.attname order by k.position)
from pg_catalog.pg_index i
cross join lateral unnest(i.indkey) with ordinality as k(attnum, position)
join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = :relation and i.indisunique and i.indisvalid and i.indimmediate
    and i.indpred is null and i.indexprs is null and k.position <= i.indnkeyatts
group by i.indexrelid, i.indisprimary
having bool_and(a.attnotnull)
order by i.indisprimary desc, count(*), i.indexrelid
