-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of job_cancel as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'worker_id', worker_id, 'job_id', job_id
), worker_id, job_id
from job_cancel where (worker_id, job_id) > (coalesce(?1, -1), coalesce(?2, -1)) order by worker_id, job_id limit ?3
