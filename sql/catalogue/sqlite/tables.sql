-- Tables and views a user may read: name, kind, whether WITHOUT ROWID.
select name, type, wr from pragma_table_list
where schema = 'main' and type in ('table', 'view', 'virtual') and name not like 'sqlite\_%' escape '\'
order by name
