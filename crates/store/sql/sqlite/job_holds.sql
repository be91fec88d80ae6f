select exists (
    select 1 from job j join worker w on w.id = j.worker_id
    where j.id = ?1 and j.attempt = ?2 and j.token = ?3 and j.stage = 3 and w.beat_at + j.lease_ms * 1000 > ?4)
