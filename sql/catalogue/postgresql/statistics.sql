-- A column's distribution from its statistics, ordered and made distinct by the server under the column's collation.
-- A most common value has its own weight; the other rows lie evenly between the bounds of the histogram.
with s as (
    select
        null_frac::float8 as null_frac,
        most_common_vals::text:::type[] as mcv,
        most_common_freqs as freqs,
        histogram_bounds::text:::type[] as hist,
        1 - null_frac - coalesce((select sum(f) from unnest(most_common_freqs) as f), 0) as rest
    from pg_catalog.pg_stats
    where schemaname = :schema and tablename = :table and attname = :column and inherited = :inherited
),
points as (
    select u.v :collate as v, u.f::float8 as weight, true as single from s, unnest(s.mcv, s.freqs) as u(v, f)
    union all
    select
        h.v :collate,
        case when h.i = cardinality(s.hist) then 0 else s.rest / greatest(cardinality(s.hist) - 1, 1) end,
        false
    from s, unnest(s.hist) with ordinality as h(v, i)
),
steps as (select v, sum(weight) as weight, bool_or(single) as single from points group by v)
select format('%s', v), weight, single, (select null_frac from s) from steps order by v
