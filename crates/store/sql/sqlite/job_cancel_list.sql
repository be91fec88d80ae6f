-- The jobs of a worker that somebody wants to end, beside each whether the worker still holds it. ?1 worker
select c.job_id, exists (select 1 from job j where j.id = c.job_id and j.stage = 3 and j.worker_id = c.worker_id)
from job_cancel c where c.worker_id = ?1 order by c.job_id
