-- Only on SQLite: failed jobs are counted per lane, so the purge has to know what it removes; purge_history.sql
-- of Postgres need not.
select id, lane_id from job_history where state = ?1 and finished_at <= ?2 order by finished_at limit ?3
