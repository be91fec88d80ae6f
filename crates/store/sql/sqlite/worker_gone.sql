update worker set gone_at = ?2
where id = ?1 and gone_at is null and not exists (select 1 from job where stage = 3 and worker_id = ?1)
