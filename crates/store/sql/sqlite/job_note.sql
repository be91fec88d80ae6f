update job set last_seq = last_seq + ?4, progress = coalesce(?5, progress)
where id = ?1 and attempt = ?2 and token = ?3 and stage = 3
  and (select beat_at from worker where worker.id = job.worker_id) + lease_ms * 1000 > ?6
returning last_seq
