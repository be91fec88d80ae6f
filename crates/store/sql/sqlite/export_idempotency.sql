-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of idempotency as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'key', key, 'fingerprint', fingerprint, 'job_ids', json(job_ids), 'created_at', created_at
), rowid, null
from idempotency where rowid > coalesce(?1, -1) order by rowid limit ?3
