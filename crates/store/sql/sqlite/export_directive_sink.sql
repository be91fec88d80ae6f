-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of directive_sink as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'table_name', table_name, 'columns', columns, 'created_at', created_at
), table_name, null
from directive_sink where table_name > coalesce(?1, '') order by table_name limit ?3
