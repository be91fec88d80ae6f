select id, attempt, token from job where stage = 3 and worker_id = ?1 order by id
