-- The mapped columns of a table that is a sink. $1 name
select columns::text from {registry} where table_name = $1::text
