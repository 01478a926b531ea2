-- 1 000 items, 20 000 users, 179 000 orders: the same rows in every build. What looks random is a hash of the row's
-- number: y = (n * a + b) mod 2^31-1, then y * y mod 2^31-1, taken by remainder and by quotient (all below 2^63).
begin;

with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000),
y(i, y) as (select i, (i * 48271 + 1234567) % 2147483647 from n),
h(i, h) as (select i, (y * y + 11 * y) % 2147483647 from y)
insert into items
select i,
  case h % 6 when 0 then 'Teekanne' when 1 then 'Café crème' when 2 then 'お茶' when 3 then 'Чайник' when 4 then 'Cup & saucer'
    else 'شاي' end || ' ' || i,
  case h / 7 % 5 when 0 then 'kitchen' when 1 then 'drinks' when 2 then 'garden' when 3 then 'books' else 'toys' end,
  (99 + h / 11 % 20000) / 100.0,
  case when h / 13 % 10 = 0 then null else (10 + h / 17 % 5000) / 8.0 end,
  case when h / 19 % 12 = 0 then null else date('2015-01-01', (h / 23 % 3400) || ' days') end,
  h / 29 % 20 > 0
from h;

-- A user's zeal (0 to 99) decides how much is ordered, and with some noise who leaves.
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000),
y(i, y) as (select i, (i * 69621 + 7654321) % 2147483647 from n),
h(i, h) as (select i, (y * y + 7 * y) % 2147483647 from y),
z(i, h, zeal) as (select i, h, (i * 7919) % 100 from h)
insert into users
select i,
  case h % 7 when 0 then 'Zoë' when 1 then 'Łukasz' when 2 then '美咲' when 3 then 'José' when 4 then 'Олена' when 5 then 'Ngọc'
    else 'Ada' end || ' ' || char(65 + h / 7 % 26) || '.',
  case when h / 11 % 9 = 0 then null else 'user' || i || '@shop.example' end,
  case h / 13 % 8 when 0 then 'DE' when 1 then 'FR' when 2 then 'JP' when 3 then 'BR' when 4 then 'UA' when 5 then 'VN'
    when 6 then 'PL' else 'GB' end,
  case when h / 17 % 6 = 0 then null else date('1950-01-01', (h / 19 % 20000) || ' days') end,
  strftime('%Y-%m-%d %H:%M:%S', 1420070400 + h / 3 % 283996800, 'unixepoch'),
  case when h / 23 % 5 = 0 then null else h / 29 % 2 end,
  case when h / 31 % 4 = 0 then null else (h / 37 % 50000 - 10000) / 100.0 end,
  zeal + h / 41 % 30 < 45
from z;

-- Order i goes to user u: of a hundred neighbours, those with more zeal are met more often.
with recursive n(i) as (select 1 union all select i + 1 from n where i < 179000),
y(i, y) as (select i, (i * 39373 + 2468013) % 2147483647 from n),
h(i, h) as (select i, (y * y + 13 * y) % 2147483647 from y),
u(i, h, a, b) as (select i, h, 1 + h % 20000, 1 + h / 20000 % 20000 from h),
o(i, h, user_id, item_id) as (
  select i, h, case when (a * 7919) % 100 < (b * 7919) % 100 then b else a end, 1 + (h / 43 % 1000) * (h / 47 % 1000) / 1000 from u
)
insert into orders
select o.i, o.user_id, o.item_id, 1 + o.h / 53 % 4 * (o.h / 59 % 3), items.price,
  case when o.h / 61 % 3 > 0 then null else o.h / 67 % 51 / 100.0 end,
  strftime('%Y-%m-%d %H:%M:%S', 1640995200 + o.h / 2 % 94694400, 'unixepoch') || case when o.h / 71 % 2 then printf('.%03d', o.h / 73 % 1000) else '' end,
  case when o.h / 79 % 8 = 0 then null else date(1640995200 + o.h / 2 % 94694400, 'unixepoch', (1 + o.h / 83 % 9) || ' days') end,
  o.h / 89 % 12 = 0,
  case o.h / 97 % 10 when 0 then 'für Oma 🎁' when 1 then 'leave at the door' when 2 then '' else null end
from o join items using (item_id)
order by o.i;

commit;
