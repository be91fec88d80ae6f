-- Only here because on Postgres the names of indexes and views are found with the columns.
-- Whether anything has the name: a table, a view or an index. ?1 name
select 1 from sqlite_schema where lower(name) = ?1
