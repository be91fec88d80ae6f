-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of job_parent as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'job_id', job_id, 'parent_id', parent_id
), job_id, parent_id
from job_parent where (job_id, parent_id) > (coalesce(?1, -1), coalesce(?2, -1)) order by job_id, parent_id limit ?3
