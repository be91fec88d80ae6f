-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of job_event as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'job_id', job_id, 'seq', seq, 'at', at, 'event', event, 'data', data
), job_id, seq
from job_event where (job_id, seq) > (coalesce(?1, -1), coalesce(?2, -1)) order by job_id, seq limit ?3
