-- Columns of one table or view, hidden ones too: name, declared type, NOT NULL, place in the primary key, hidden
-- (0 ordinary, 1 hidden, 2 and 3 generated).
select name, type, "notnull", pk, hidden from pragma_table_xinfo(?1) order by cid
