-- The columns that a table has, with their types; none if it is not there. ?1 name
select name, type from pragma_table_info(?1)
