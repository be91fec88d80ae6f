-- Only on SQLite: on Postgres worker_beat.sql answers it in the same statement. Beside each job whether the worker
-- still holds it.
select c.job_id, exists (select 1 from job j where j.id = c.job_id and j.stage = 3 and j.worker_id = c.worker_id)
from job_cancel c where c.worker_id = ?1 order by c.job_id
