-- The demo shop: users, items and what they ordered. Decimals, dates, times, booleans, NULLs and text of many scripts.
create table users (
  user_id    integer primary key,
  name       text not null,
  email      text,
  country    char(2) not null,
  birth      date,
  signed_up  timestamp not null,
  newsletter boolean,
  credit     decimal(10,2),
  churned    boolean not null
);
create table items (
  item_id  integer primary key,
  title    text not null,
  category text not null,
  price    decimal(10,2) not null,
  weight   real,
  released date,
  active   boolean not null
);
create table orders (
  order_id   integer primary key,
  user_id    integer not null references users,
  item_id    integer not null references items,
  qty        integer not null,
  price      decimal(10,2) not null,
  discount   decimal(4,2),
  ordered_at timestamp not null,
  shipped_on date,
  gift       boolean not null,
  note       text
);
