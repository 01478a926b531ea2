-- A key's distribution: the smallest key of each run of :step rows in key order, as a literal that compares equal, and
-- the rows of that run. One walk of the index (or one sort where there is none). The key and the rows are put in by us.
select quote(min(k)), count(*) from (
  select k, (row_number() over (order by k) - 1) / ?1 as run from (select {key} as k from {rows}) where k is not null
) group by run order by run
