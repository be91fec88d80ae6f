-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of kv_override as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'key', key, 'writer', writer, 'spec_ref', spec_ref, 'before', before, 'after', after,
           'version', version, 'at', at
), id, null
from kv_override where id > coalesce(?1, -1) order by id limit ?3
