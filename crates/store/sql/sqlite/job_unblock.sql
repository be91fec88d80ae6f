update job set blockers = blockers - 1,
               stage = case when blockers > 1 then 2 when run_at > ?2 then 1 else 0 end
where id = ?1 and stage = 2 returning stage
