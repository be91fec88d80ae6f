-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of kv as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'key', key, 'value', value, 'version', version, 'request_id', request_id, 'request_hash', request_hash,
           'last_writer', last_writer, 'purpose', purpose, 'spec_ref', spec_ref, 'expires_at', expires_at,
           'updated_at', updated_at
), key, null
from kv where key > coalesce(?1, '') order by key limit ?3
