select id, name, kinds, queues, concurrency, started_at, beat_at,
       (select count(*) from job where stage = 3 and worker_id = worker.id),
       beat_at + lease_min_ms * 1000 > ?1
from worker where gone_at is null order by id
