select j.id, j.attempt, j.token
from job j join worker w on w.id = j.worker_id
where j.stage = 3 and j.worker_id = ?1 and w.beat_at + j.lease_ms * 1000 > ?2
order by j.id
