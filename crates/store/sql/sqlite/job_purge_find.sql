-- Only on SQLite: failed jobs are counted per lane, so the purge has to know what it removes; purge_history.sql
-- of Postgres need not. A job whose end has yet to be written at its source stays.
select id, lane_id from job_history where state = ?1 and finished_at <= ?2
  and not exists (select 1 from source_link l where l.job_id = job_history.id) order by finished_at limit ?3
