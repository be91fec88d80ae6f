-- Only on SQLite: on Postgres job_parent_lock.sql answers it for all parents at once.
-- The state number of a job in either table: 0 queued, 1 processing, 2 done, 3 failed, 4 cancelled.
select case stage when 3 then 1 else 0 end from job where id = ?1
union all
select state from job_history where id = ?1
