-- One row per user: what is known on 2025-01-01, and whether the user left. Key user_id, label churned.
select
  u.user_id,
  coalesce(o.orders, 0) as orders,
  coalesce(o.pieces, 0) as pieces,
  cast(coalesce(o.spent, 0) as real) as spent,
  o.largest,
  o.discount,
  coalesce(o.gifts, 0) as gifts,
  cast(julianday('2025-01-01') - julianday(o.latest) as integer) as days_since_order,
  cast(julianday('2025-01-01') - julianday(u.signed_up) as integer) as days_since_sign_up,
  u.newsletter,
  u.credit,
  u.churned
from users as u
left join (
  select
    user_id,
    count(*) as orders,
    sum(qty) as pieces,
    sum(qty * price) as spent,
    max(cast(price as real)) as largest,
    avg(discount) as discount,
    sum(gift) as gifts,
    max(ordered_at) as latest
  from orders
  group by user_id
) as o on o.user_id = u.user_id
